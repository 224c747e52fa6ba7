"""Linear algebra on one thread.

Sums over agents are split among threads, so their last bits depend on how many there are, and the arrays of a run are
so small that a second thread costs more than it saves.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=2)
def _libraries(scipy: bool) -> ThreadpoolController:
    """What is loaded now; `scipy` brings a library of its own, when it is first needed."""
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it, linear algebra runs on one thread; afterwards on as many as before."""
    with _libraries("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield
