"""Linear algebra on one thread.

Sums over agents are split among threads, so their last bits depend on how many there are, and the arrays of a run are
so small that a second thread costs more than it saves.
"""

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
    """While anybody is within it, linear algebra runs on one thread; afterwards on as many as before."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._within = 0
        self._limits: list[Any] = []  # active limits: numpy's BLAS, and scipy's own once scipy.linalg is imported
        self._libraries: dict[bool, ThreadpoolController] = {}  # by whether scipy's library is among them

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


one_thread = OneThread()
