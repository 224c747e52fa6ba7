"""A connection to Ray: to a cluster that runs already, or to a local one that ends with the session.

Ray carries functions and results between its processes as pickles, so connect only to clusters that you trust. A local
cluster listens on the loopback interface alone.
"""

import os
import sys
from importlib import import_module
from typing import Any, Self

from fedbandit_envs.threads import ONE_THREAD_ENVIRONMENT, processors
from fedbandit_envs.validation import needs


class RaySession:
    """Ray, for the time of a `with` block. It needs the extra `ray`.

    Args:
        address: the address of a running cluster; "auto" finds one; "" starts a local cluster.
    """

    def __init__(self, address: str = ""):
        if not address or address.startswith(("127.", "localhost")):
            _keep_ray_at_home()  # a cluster on loopback alone is found only with this setting
        needs("ray", extra="ray")
        self.ray: Any = import_module("ray")
        self._address = address
        self._started = False

    def __enter__(self) -> Self:
        ray = self.ray
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send statistics of its use
            quiet: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
            if self._address:
                ray.init(address=self._address, **quiet)
            else:
                ray.init(
                    address="local",
                    num_cpus=processors(),
                    include_dashboard=False,
                    runtime_env={"env_vars": ONE_THREAD_ENVIRONMENT},
                    **quiet,
                )
            self._started = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._started:
            self.ray.shutdown()
            self._started = False


def _keep_ray_at_home() -> None:
    """Make a Ray that starts here listen on the loopback interface alone.

    Ray replaces 127.0.0.1 by an address that other machines can reach, unless this environment variable says that there
    is no cluster of several machines. Ray reads the variable when it is imported.
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
