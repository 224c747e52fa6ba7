"""What all tests share."""

import gc

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take the thousands of collected tests out of Python's garbage collection.

    They live to the end. A full collection looks at every one of them again, 0.15 s each time, and `check_policy` alone
    asks for one in every run with another truth.
    """
    gc.collect()
    gc.freeze()
