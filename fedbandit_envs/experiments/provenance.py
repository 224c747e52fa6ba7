"""Where numbers were computed: versions and linear algebra, kept beside each run and never part of its identity."""

import os
import platform
import re
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedbandit_envs.experiments.experiment import PACKAGE


@cache
def provenance() -> dict[str, str]:
    """The program and the machine of this process, in words; what is not known is left out.

    >>> sorted(provenance().keys() - {"commit"})
    ['blas', 'kernel', 'numpy', 'package', 'platform', 'python', 'scipy']
    """
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    known = {
        "package": _version(PACKAGE),
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "scipy": _version("scipy"),
        "blas": f"{blas.get('name', '')} {blas.get('version', '')}".strip(),
        "kernel": _kernel(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    return {name: value for name, value in known.items() if value}


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _kernel() -> str:
    """The processor for which numpy's linear algebra chose its code, as the library itself calls it."""
    from threadpoolctl import threadpool_info

    libraries: list[dict[str, Any]] = [one for one in threadpool_info() if one["user_api"] == "blas"]
    libraries.sort(key=lambda one: "numpy" not in one["filepath"])  # scipy may have loaded one of its own
    return str(libraries[0].get("architecture", "")) if libraries else ""


def _commit() -> str:
    """The commit of a checkout from which the package runs, with a mark if files were changed since."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    command = ["git", "--no-optional-locks", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    command += ["--exclude", "*"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=10, env={**os.environ, "LC_ALL": "C"})
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _short(value: str) -> str:
    """A commit with its first digits, and its mark if files were changed; everything else as it is."""
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{28}", r"\1", value)


def mixture(origins: list[dict[str, str]]) -> str:
    """One line that says in what the provenances of runs differ, or nothing if they are all the same."""
    names = sorted({name for one in origins for name in one})
    differing = []
    for name in names:
        values = sorted({one.get(name, "unknown") for one in origins})
        if len(values) > 1:
            differing.append(f"{name} {' and '.join(map(_short, values))}")
    return f"runs were computed with different software or machines: {'; '.join(differing)}" if differing else ""
