"""The same numbers on every CPU: the runs of kernel_runs.py, as they are computed here and as other CPUs would.

OpenBLAS, numpy and the C library choose their code by the CPU; environment variables make them choose as if it were an
older one. Code that this CPU lacks can't be tried, and is skipped.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import kernel_runs
import pytest

pytestmark = [pytest.mark.kernels, pytest.mark.slow]

SCRIPT = Path(kernel_runs.__file__)
#: What threadpoolctl calls the kernels; those of Prescott and Katmai are the same.
KERNELS = {"Haswell": {"Haswell"}, "SkylakeX": {"SkylakeX"}, "Nehalem": {"Nehalem"}, "Prescott": {"Prescott", "Katmai"}}
CHOICES = ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "GLIBC_TUNABLES")


def played(**chosen):
    """What kernel_runs prints in a process with these environment variables and no other choice of code."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOICES} | chosen
    run = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True)
    if run.returncode == -signal.SIGILL:
        pytest.skip(f"this CPU lacks instructions of {chosen}")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def here():
    """The runs as this CPU computes them by itself."""
    return played()


def assert_same_runs(here, there):
    assert len(here["hashes"]) > 500
    assert here["hashes"].keys() == there["hashes"].keys()
    differing = [name for name, value in here["hashes"].items() if there["hashes"][name] != value]
    assert not differing, f"{len(differing)} of {len(here['hashes'])} runs differ: {'; '.join(differing[:10])}"


@pytest.mark.parametrize("kernel", KERNELS)
def test_another_blas_kernel_gives_the_same_runs(here, kernel):
    there = played(OPENBLAS_CORETYPE=kernel)
    if not set(there["kernels"]) <= KERNELS[kernel]:
        pytest.skip(f"expected the kernel {kernel}, but BLAS took {' and '.join(there['kernels']) or 'none'}")
    assert_same_runs(here, there)


@pytest.mark.parametrize("kept", [0, 1])
def test_fewer_simd_instructions_of_numpy_give_the_same_runs(here, kept):
    disabled = here["features"][kept:]
    if not disabled:
        pytest.skip(f"numpy uses {len(here['features'])} levels of instructions beyond its least on this CPU")
    there = played(NPY_DISABLE_CPU_FEATURES=" ".join(disabled))
    assert there["features"] == here["features"][:kept]
    assert_same_runs(here, there)


def test_a_c_library_without_fused_multiplication_gives_the_same_runs(here):
    there = played(GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F")
    if there["exponentials"] == here["exponentials"]:
        pytest.skip("the C library computes the same exponentials: it has one code for all CPUs, or none to choose")
    assert_same_runs(here, there)
