"""Linear algebra on one thread.

Sums over agents are split among threads, so their last bits depend on the number of threads. The arrays of a run are
also so small that a second thread costs more than it saves.
"""

import os
import sys
from contextlib import ContextDecorator
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

#: Environment variables that make linear algebra run on one thread, for processes that are about to start: the
#: libraries read them when they are loaded.
ONE_THREAD_ENVIRONMENT = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class OneThread(ContextDecorator):
    """A context manager and decorator within which linear algebra runs on one thread.

    Afterwards it runs on as many threads as before. Several threads may be within at the same time: the last one that
    leaves gives the other threads back.

    >>> with one_thread:
    ...     pass
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._within = 0
        self._limits: list[Any] = []  # active limits: numpy's BLAS, and scipy's own once scipy.linalg is imported
        self._libraries: dict[bool, ThreadpoolController] = {}  # the key says whether scipy's BLAS is among them

    def __enter__(self) -> None:
        scipy = "scipy.linalg" in sys.modules
        with self._lock:
            self._within += 1
            if len(self._limits) <= scipy:
                if scipy not in self._libraries:
                    self._libraries[scipy] = ThreadpoolController()
                self._limits.append(self._libraries[scipy].limit(limits=1, user_api="blas"))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._within -= 1
            if not self._within:
                while self._limits:
                    self._limits.pop().restore_original_limits()


one_thread = OneThread()  #: the one that the whole library uses


def processors() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
