"""Executors on Ray and Dask: a cluster that is there, or one on this machine that ends with the run.

Both carry functions and results between their own processes as pickles, as these systems do: connect to clusters that
you trust. A local one listens on the loopback interface alone.
"""

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, Future
from typing import Any, Self

from fedbandit_envs.experiments.executors.local import ONE_THREAD, know_policies, packed_policies, processors

_HERE = "127.0.0.1"
_RETRIES = 2  # of a task whose worker dies, by the cluster itself


class RayCluster:
    """Computes on Ray: at `address` ("auto" finds a running one), or on one started for the run."""

    def __init__(self, address: str = ""):
        if not address or address.startswith(("127.", "localhost")):
            _keep_ray_at_home()  # also to find a Ray that was started in this way
        self._ray = _imported("ray", "ray")
        self._address = address
        self._started = False
        self.workers = 1

    def __enter__(self) -> Self:
        ray = self._ray
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no calls home
            quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
            if self._address:
                ray.init(address=self._address, **quiet)
            else:
                ray.init(
                    address="local",
                    num_cpus=processors(),
                    include_dashboard=False,
                    runtime_env={"env_vars": dict.fromkeys(ONE_THREAD, "1")},
                    **quiet,
                )
            self._started = True
        self.workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._task = ray.remote(_informed).options(max_retries=_RETRIES, num_cpus=1)
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Hand it to a worker; Ray tries again when the worker dies."""
        lost = (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.NodeDiedError)
        return _translated(self._task.remote(packed_policies(), fn, *args).future(), lost)

    def __exit__(self, *_: object) -> None:
        if self._started:
            self._ray.shutdown()
            self._started = False


class DaskCluster:
    """Computes on Dask: at the scheduler's `address`, or on a cluster started for the run."""

    def __init__(self, address: str = ""):
        self._distributed = _imported("distributed", "dask")
        self._address = address
        self._cluster: Any = None
        self.workers = 1

    def __enter__(self) -> Self:
        distributed = self._distributed
        if not self._address:
            # Dask's workers run linear algebra on one thread unless told otherwise.
            self._cluster = distributed.LocalCluster(
                n_workers=processors(), threads_per_worker=1, host=_HERE, dashboard_address=None
            )
        self._client = distributed.Client(self._cluster or self._address, set_as_default=False)
        self._pool = self._client.get_executor(pure=False)
        self.workers = max(1, sum(self._client.nthreads().values()))
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any) -> Future[Any]:
        """Hand it to a worker; Dask tries again when the worker dies."""
        return _translated(
            self._pool.submit(_informed, packed_policies(), fn, *args), (self._distributed.scheduler.KilledWorker,)
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _keep_ray_at_home() -> None:
    """Make a Ray that starts here listen on the loopback interface.

    Ray replaces 127.0.0.1 by an address that others can reach, except where it expects no cluster, which is what this
    variable says; it is read when Ray is imported.
    """
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    ray = sys.modules.get("ray")
    if ray is None:
        os.environ.setdefault(name, "0")
    elif name not in os.environ and not ray.is_initialized():
        raise ValueError(
            f"executor: expected ray not to be imported before its local cluster starts, got an import without {name}; "
            f"set {name}=0 before it, so that Ray listens on this machine alone, or start Ray yourself"
        )


def _informed(policies: Mapping[str, str | bytes], fn: Callable[..., Any], *args: Any) -> Any:
    """In a worker: know the policies that were registered where the run started, then compute."""
    know_policies(policies)
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


def _imported(module: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"executor: expected {module} to be installed, got none; pip install 'fedbandit-envs[{extra}]'"
        ) from error
