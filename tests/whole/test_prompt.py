"""At the prompt and in notebooks: short reprs, the version, public names only, and types that check."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_agents import phases
from fedbandit_envs.experiments.progress import progress_bar

ROOT = Path(__file__).parents[2]
TWO_LINES = 260  # characters


def things() -> dict[str, Any]:
    """One object of each public class that holds arrays, with many numbers in it."""
    env = fb.make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=100)
    history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0, record=True)
    assert history.exchanges is not None
    arrays = {"theta": np.ones((30, 3)), "features": np.ones((40, 30, 3))}
    experiment = fb.Experiment("fedbandit/Linear-v0", ["Uniform", "Oracle"], arrays | {"max_cycles": 8}, trials=2)
    finished: list[object] = []
    result = fb.run(experiment, executor="serial", callbacks=[finished.append])
    user, item = np.divmod(np.arange(600), 30)
    ratings = {"user": user, "item": item, "rating": 1 + (user + 2) * (item + 1) % 5}
    return {
        "environment": env,
        "instance": env.instance,
        "policy": history.policy,
        "history": history,
        "exchange": history.exchanges[2],
        "message": history.exchanges[2].up,
        "plan": history.exchanges[0].plan,
        "feedback": history.exchanges[0].feedback,
        "view": history.view,
        "ledger": history.ledger,
        "phase": phases(history)[0],
        "experiment": experiment,
        "result": result,
        "Gaussian": fb.Gaussian(np.zeros((100, 3)), std=0.1),
        "Discrete": fb.Discrete(np.zeros((100, 2, 3)), np.full((100, 2), 0.5)),
        "PointMass": fb.PointMass(np.eye(30)),
        "Linear": fb.Linear(**arrays),
        "audit": fb.audit(history),
        "fitted": fb.from_ratings(ratings, user="user", item="item", rating="rating", num_arms=3, dim=2),
        "finished": finished[0],
        "rounds": fb.CommunicationRounds(env, history.policy),
        "recorder": fb.RecordRegret(env),
    }


def test_every_repr_is_one_or_two_lines_that_name_the_class() -> None:
    for name, thing in things().items():
        text = repr(thing)
        assert len(text) <= TWO_LINES, (name, len(text))
        assert "\n" not in text, name
        assert text.startswith(f"{type(thing).__name__}("), name


def test_reprs_say_what_matters() -> None:
    shown = {name: repr(thing) for name, thing in things().items()}
    assert shown["Gaussian"] == "Gaussian(mean=float64[100, 3], std=float64[1, 3])"
    assert shown["Linear"] == "Linear(theta=float64[30, 3], features=float64[40, 30, 3], num_agents=40)"
    assert re.match(r"History\(FedPECD, 100 agents, 100 steps, regret per agent [\d.]+, 10 rounds, ", shown["history"])
    assert shown["result"].startswith("Result(2 of 2 trials of Experiment('fedbandit/Linear-v0', ['Uniform', 'Oracle']")


def test_the_package_has_a_version_and_shows_public_names_only() -> None:
    assert fb.__version__ == version("fedbandit-envs")
    stub = (ROOT / "fedbandit_envs" / "__init__.pyi").read_text()
    assert sorted(dir(fb)) == sorted(re.findall(r" as (\w+)$", stub, re.MULTILINE))


def test_the_package_can_be_run_as_a_module() -> None:
    ran = subprocess.run([sys.executable, "-m", "fedbandit_envs", "--version"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, f"fedbandit {fb.__version__}\n")


def test_a_notebook_has_a_progress_bar_and_a_log_has_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_bar(2) as bar:
        assert bar.disable
    notebook = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr("fedbandit_envs.experiments.progress.find_spec", lambda name: None)  # no ipywidgets
    with progress_bar(2) as bar:
        assert not bar.disable
        bar.delay = 0
        bar.update()
        bar.refresh()
    assert "1/2" in capsys.readouterr().out


@pytest.mark.slow
def test_the_quick_start_passes_mypy(tmp_path: Path) -> None:
    mypy = shutil.which("mypy")
    if mypy is None:
        pytest.skip("needs mypy, of the extra dev")
    text = (ROOT / "README.md").read_text()
    (block,) = re.findall(r"## Quick start\n\n```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "quick_start.py").write_text(block)
    command = [mypy, "--strict", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(tmp_path / "cache")]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    ran = subprocess.run(
        [*command, "quick_start.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    wrong = [line for line in ran.stdout.splitlines() if line.startswith("quick_start.py")]
    assert not wrong
    assert "quick_start" not in ran.stderr
    assert ran.returncode in (0, 1), ran.stderr
