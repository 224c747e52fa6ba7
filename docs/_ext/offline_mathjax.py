"""Takes MathJax from an installed package into the pages: one script and its fonts, about 1.5 MB."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PACKAGE = "sphinx-mathjax-offline"  # the name of its folder too, so it can be found but not imported by a statement
SCRIPT = "tex-chtml.js"
FONTS = "output/chtml/fonts/woff-v2"


def setup(app: Sphinx) -> dict[str, Any]:
    """Point the mathematics at the copy, and make the copy when the pages are written."""
    app.connect("config-inited", lambda app, config: setattr(config, "mathjax_path", f"mathjax/{SCRIPT}"))
    app.connect("build-finished", copy)
    return {"parallel_read_safe": True}


def copy(app: Sphinx, error: Exception | None) -> None:
    """Copy the script and its fonts beside the pages."""
    if error is not None or app.builder.format != "html":
        return
    found = find_spec(PACKAGE)
    assert found is not None
    assert found.submodule_search_locations is not None
    source = Path(found.submodule_search_locations[0]) / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / SCRIPT, target / SCRIPT)
    shutil.copytree(source / FONTS, target / FONTS, dirs_exist_ok=True)
