"""Kinds of regret that a program, or a later version, adds: recorded and shown, and old results stay readable."""

import subprocess
import sys
from pathlib import Path

import experiment_policies
import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.problems.regrets import REGRETS, Regret

# Two agents, three arms; means by hand: <theta_a, phi_a>.
THETA = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
FEATURES = [[[0.5, 0.0], [0.0, 0.4], [0.1, 0.1]], [[0.2, 0.0], [0.0, 0.8], [0.1, 0.1]]]


@pytest.mark.parametrize("executor", ["serial", "processes:1"])
def test_a_kind_of_regret_added_after_the_import_is_recorded_and_shown(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(REGRETS, "last_arm_regret", Regret(experiment_policies.against_the_last_arm, "axis", "help"))
    policies = [{"name": "Test-One-Arm", "parameters": {"arm": 0}}]
    arguments = {"theta": THETA, "features": FEATURES, "max_cycles": 8}
    run = fb.run(fb.Experiment("fedbandit/Linear-v0", policies, arguments, trials=2), tmp_path, executor)
    for found in (run, fb.Result.load(tmp_path)):
        # The last arm gives 0.2 to both agents, the first one 0.5 and 0.2.
        np.testing.assert_allclose(found.agents(found.labels[0], "last_arm_regret"), [[-2.4, 0.0]] * 2, atol=1e-12)
        np.testing.assert_allclose(found.final(found.labels[0], "total_last_arm_regret"), [-2.4] * 2)
        assert found.table(kind="last_arm_regret")["regret"] == pytest.approx([-1.2])
    assert main(["compare", str(tmp_path), "--kind", "last_arm_regret", "--columns", "regret", "--format", "csv"]) == 0
    assert float(capsys.readouterr().out.split()[1]) == pytest.approx(-1.2)


def test_workers_refuse_a_kind_of_regret_that_they_cannot_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGRETS, "my_regret", Regret(lambda instance: instance.means, "axis", "help"))
    experiment = fb.Experiment("fedbandit/Linear-v0", ["Oracle"], {"max_cycles": 4}, trials=1)
    with pytest.raises(ValueError, match="got that of 'my_regret', defined in a function or as a lambda"):
        fb.run(experiment, executor="processes:1")


LATER_VERSION = """
import sys
from fedbandit_envs.problems.regrets import REGRETS
known = dict(REGRETS)
REGRETS.clear()  # before anything else is imported: one more kind, in front of the others
REGRETS.update({"own_regret": known["regret"], **known})
import fedbandit_envs as fb
result = fb.Result.load(sys.argv[1])
print([result.final("Uniform", name)[0] for name in sys.argv[2:]])
print(result.agents("Uniform").tolist())
for read in (lambda: result.final("Uniform", "mean_own_regret"), lambda: result.agents("Uniform", "own_regret")):
    try:
        read()
    except ValueError as error:
        print(error)
try:
    fb.run(result.experiment, sys.argv[1], "serial")
except RuntimeError as error:
    print(error)
"""


def test_a_version_with_one_more_kind_of_regret_reads_old_files_rightly(tmp_path: Path) -> None:
    arguments = {"num_agents": 3, "num_arms": 4, "max_cycles": 20}
    result = fb.run(fb.Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=1), tmp_path, "serial")
    names = ("worst_regret", "active_arms", "scalars_up", "total_paper_regret")
    command = [sys.executable, "-c", LATER_VERSION, str(tmp_path), *names]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    finals, agents, curve, kind, resumed = ran.stdout.splitlines()
    assert finals == str([result.final("Uniform", name)[0] for name in names])
    assert agents == str(result.agents("Uniform").tolist())
    assert "mean_own_regret: expected a result that holds it, got one of another version without it;" in curve
    assert "own_regret: expected a result that holds it, got one of another version without it;" in kind
    assert "got one of another version, without mean_own_regret, own_regret, worst_own_regret;" in resumed
