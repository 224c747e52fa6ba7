"""Executors on Ray and Dask: on a cluster that runs already, or on a local cluster that ends with the run.

Both systems carry functions and results between their processes as pickles, so connect only to clusters that you trust.
A local cluster listens on the loopback interface alone.
"""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from importlib import import_module
from typing import Any, Self

from fedbandit_envs.experiments.executors.known import Known, know, known_here
from fedbandit_envs.shards.ray_session import RaySession
from fedbandit_envs.threads import processors
from fedbandit_envs.validation import needs

_HERE = "127.0.0.1"
_RETRIES = 2  # how often Ray itself repeats a task whose worker dies


class RayCluster:
    """Computes on Ray. It needs the extra `ray`.

    Args:
        address: the address of a running cluster; "auto" finds one; "" starts a local cluster for the run.
    """

    def __init__(self, address: str = ""):
        self._session = RaySession(address)
        self.workers = 1

    def __enter__(self) -> Self:
        ray = self._session.__enter__().ray
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._task = ray.remote(_informed).options(max_retries=_RETRIES, num_cpus=1)
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Hand `fn(*args)` to a worker; Ray tries again when the worker dies."""
        exceptions = self._session.ray.exceptions
        lost = (exceptions.WorkerCrashedError, exceptions.NodeDiedError)
        return _translated(self._task.remote(known_here(), fn, *args).future(), lost)

    def __exit__(self, *_: object) -> None:
        self._session.__exit__()


class DaskCluster:
    """Computes on Dask. It needs the extra `dask`.

    Args:
        address: the address of a running scheduler; "" starts a local cluster for the run.
    """

    def __init__(self, address: str = ""):
        needs("distributed", extra="dask")
        self._distributed: Any = import_module("distributed")
        self._address = address
        self._cluster: Any = None
        self.workers = 1

    def __enter__(self) -> Self:
        distributed = self._distributed
        if not self._address:
            # Dask's workers run linear algebra on one thread by default.
            self._cluster = distributed.LocalCluster(
                n_workers=processors(), threads_per_worker=1, host=_HERE, dashboard_address=None
            )
        self._client = distributed.Client(self._cluster or self._address, set_as_default=False)
        self._pool = self._client.get_executor(pure=False)
        self.workers = max(1, sum(self._client.nthreads().values()))
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Hand `fn(*args)` to a worker; Dask tries again when the worker dies."""
        return _translated(
            self._pool.submit(_informed, known_here(), fn, *args), (self._distributed.scheduler.KilledWorker,)
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _informed(known: Known, fn: Callable[..., Any], *args: Any) -> Any:
    """Compute `fn(*args)` in a worker, once it knows what was added where the run was started."""
    know(known)
    return fn(*args)


def _translated(inner: Future[Any], lost: tuple[type[BaseException], ...]) -> Future[Any]:
    """A future in which the loss of a worker shows as `BrokenExecutor`."""
    outer: Future[Any] = Future()

    def finish(done: Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled():
            outer.cancel()
        elif isinstance(error, lost):
            outer.set_exception(BrokenExecutor(str(error)))
        elif error is not None:
            outer.set_exception(error)
        else:
            outer.set_result(done.result())

    inner.add_done_callback(finish)
    return outer
