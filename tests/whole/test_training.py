"""The examples of scripts/examples really train: each is run as a user runs it, and its table is read."""

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "scripts" / "examples"
MODULES = {"sb3": "stable_baselines3", "rllib": "ray.rllib"}  # only those that are not called as the extra is


def run(name: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """An example on one thread, far from the checkout, with sets in the same order each time (RLlib's runs need it)."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.run(
        [sys.executable, EXAMPLES / f"train_{name}.py", *options],
        capture_output=True,
        text=True,
        timeout=300,
        cwd="/",
        env=os.environ | threads | {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONHASHSEED": "0"} | environment,
    )


def table(name: str, *options: str, yardstick: str = "Fed-PECD") -> dict[str, float]:
    """The regret of each policy, from the last lines that the example prints."""
    done = run(name, *options)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    lines = done.stdout.splitlines()[-4:]
    found = {line[:16].strip(): float(line[16:]) for line in lines}
    assert list(found) == ["before training", "after training", yardstick, "Uniform"]
    assert all(map(math.isfinite, found.values()))
    return found


def needs(extra: str) -> None:
    try:
        found = find_spec(MODULES.get(extra, extra))
    except ModuleNotFoundError:  # the package above it is not there
        found = None
    if found is None:
        pytest.skip(f"needs the extra {extra}")


def test_a_regret_that_is_not_finite_ends_an_example_with_an_error() -> None:
    program = "from regret import report; report(float('nan'), 1.0)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=EXAMPLES, timeout=300)
    assert (done.returncode, done.stderr) == (1, "expected finite regret, got the numbers in the table above\n")


# Margins are wider than what was measured: other versions round differently, and a different rounding is another run.


@pytest.mark.parametrize("name", ["pettingzoo", "gymnasium"])
def test_a_plain_loop_learns(name: str) -> None:
    found = table(name, "--steps", "30000")
    assert found["after training"] < 0.6 * found["Uniform"]
    assert found["before training"] > 0.6 * found["Uniform"]


@pytest.mark.sb3
@pytest.mark.parametrize(
    ("options", "share"),
    [
        ([], 0.6),
        (["--learner", "dqn"], 0.6),
        (["--observation", "distribution"], 0.6),
        (["--view", "joint", "--observation", "features"], 1.0),
    ],
    ids=["ppo", "dqn", "dict", "joint"],
)
def test_stable_baselines3_learns(options: list[str], share: float) -> None:
    needs("sb3")
    found = table("sb3", *options)
    assert found["after training"] <= share * found["Uniform"]


@pytest.mark.sb3
def test_ppo_learns_from_forecasts_at_one_site_and_plays_at_others() -> None:
    """At most 0.4 times the regret of uniform play at sites where it was not trained; measured: 0.004."""
    needs("sb3")
    found = table("forecast", yardstick="KK-UCB")
    assert found["after training"] <= 0.4 * found["Uniform"]
    assert found["before training"] > 0.5 * found["Uniform"]


@pytest.mark.supersuit
def test_ppo_with_pull_statistics_learns_and_is_drawn_beside_the_others(tmp_path: Path) -> None:
    """At most 0.6 times the regret of uniform play on problems not seen in training; measured: 0.28."""
    needs("supersuit")
    found = table("supersuit", "--figure", str(tmp_path / "ppo.png"))
    assert found["after training"] <= 0.6 * found["Uniform"]
    assert (tmp_path / "ppo.png").stat().st_size > 10_000


@pytest.mark.torchrl
def test_torchrl_learns() -> None:
    needs("torchrl")
    found = table("torchrl")
    assert found["after training"] <= 0.8 * found["Uniform"]


@pytest.mark.tianshou
def test_tianshou_learns() -> None:
    needs("tianshou")
    found = table("tianshou")
    assert found["after training"] <= 0.8 * found["Uniform"]


@pytest.mark.rllib
@pytest.mark.parametrize(
    ("options", "share"), [([], 0.6), (["--policies", "independent", "--steps", "8192"], math.inf)]
)
def test_rllib_learns_with_one_policy_and_runs_with_one_for_each_agent(options: list[str], share: float) -> None:
    needs("rllib")
    found = table("rllib", *options)
    assert found["after training"] <= share * found["Uniform"]


@pytest.mark.parametrize("extra", ["sb3", "supersuit", "torchrl", "tianshou", "rllib"])
def test_a_missing_extra_is_named_in_one_line(extra: str, tmp_path: Path) -> None:
    """The library is hidden by a module of its name that says it is not there."""
    module = MODULES.get(extra, extra).split(".")[0]
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module named {module}')\n")
    # Programs import torch too, which may be there or not; it must not be needed here.
    (tmp_path / "torch.py").write_text("set_num_threads = print\n")
    done = run(extra, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"pip install -e '.[{extra}]'" in done.stderr
