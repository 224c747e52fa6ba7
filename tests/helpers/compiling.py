"""What needs numba is marked, and skipped where it is not installed."""

import importlib.util

import pytest

NEEDS_NUMBA = [
    pytest.mark.compiled,
    pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="needs numba"),
]
COMPILED_OR_NOT = (False, pytest.param(True, marks=NEEDS_NUMBA))
