"""What all tests share."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def what_is_old_is_left_out_of_garbage_collection() -> None:
    """Before each file of tests, take everything that is there out of Python's garbage collection.

    The thousands of collected tests and what earlier tests left live to the end, and a full collection looks at each of
    them again: 0.15 s, and `check_policy` alone asks for one in every run with another truth.
    """
    gc.collect()
    gc.freeze()
