"""The site that scripts/docs has built, and the marks of all tests that belong to it."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SITE = DOCS / "_build" / "html"
# The site's tests are no part of the fast suite: `pytest -m docs tests/docs` runs them after scripts/docs.
SITE_TESTS = [
    pytest.mark.docs,
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="needs the site: run scripts/docs first"),
]
