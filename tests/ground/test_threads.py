"""Linear algebra on one thread, however many there are."""

import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import fedbandit_envs as fb
from fedbandit_agents.phased.design import g_optimal
from fedbandit_envs.threads import one_thread

PROGRAM = """
import hashlib
import fedbandit_envs as fb
env = fb.make("fedbandit/MovieLens-v0", num_agents=100, max_cycles=2**12, error="classical")
history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0, record=True)
sent = b"".join(x.up[name].tobytes() for x in history.exchanges if x.up is not None for name in x.up.arrays)
print(hashlib.sha256(history.pulls.tobytes() + sent).hexdigest())
"""


def threads():
    """Of numpy's own library; other packages may bring more."""
    libraries = ThreadpoolController().info()
    return [library["num_threads"] for library in libraries if "numpy" in library["filepath"]]


def test_runs_are_the_same_however_many_threads_there_are():
    found = set()
    for number in ("1", "4"):
        # Sums over agents are large enough here to be split among threads.
        environment = os.environ | dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), number)
        program = [sys.executable, "-c", PROGRAM]
        found.add(subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(found) == 1


def test_afterwards_there_are_as_many_as_before():
    before = threads()
    with one_thread:
        assert set(threads()) == {1}
    assert threads() == before


@pytest.mark.parametrize("what", ["a run", "a design"])
def test_steps_see_one_thread(what, monkeypatch):
    seen = []
    plain = np.linalg.inv

    def watched(matrices):
        seen.extend(threads())
        return plain(matrices)

    monkeypatch.setattr(np.linalg, "inv", watched)
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        if what == "a run":
            env = fb.make("fedbandit/Synthetic-v0", num_agents=4, dim=4, max_cycles=50)
            fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
        else:
            directions = np.random.default_rng(0).normal(size=(6, 3, 4))
            g_optimal(directions, np.ones((6, 3), bool), gap=1e-3)
    assert set(seen) == {1}


def test_the_last_to_leave_gives_the_threads_back():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = threads()
        one_thread.__enter__()
        with one_thread:
            assert set(threads()) == {1}
        assert set(threads()) == {1}
        one_thread.__exit__()
        assert threads() == before


def test_a_library_that_is_loaded_within_is_limited_from_the_next_time_on():
    program = """
import sys
from threadpoolctl import ThreadpoolController
from fedbandit_envs.threads import one_thread
with one_thread:
    assert "scipy.linalg" not in sys.modules
    import scipy.linalg
    with one_thread:
        found = {library["num_threads"] for library in ThreadpoolController().info() if library["user_api"] == "blas"}
        assert found == {1}, found
"""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "3"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
