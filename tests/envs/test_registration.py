"""Environments of one's own: registered by a call or as an entry point, and then known everywhere."""

import subprocess
import sys
import threading
from importlib.metadata import EntryPoint

import gymnasium
import numpy as np
import own_problems
import pettingzoo
import pytest

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.envs import ids
from fedbandit_envs.envs.registration import problem_class, registered_environments
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.federation.sources import SimulatedRewards

WHERE = "own_problems:TwoArms"


@pytest.fixture(scope="module", autouse=True)
def registered():
    fb.register_environment("tests/TwoArms-v0", own_problems.TwoArms)
    fb.register_environment("tests/Named-v0", WHERE)


@pytest.mark.parametrize("id", ["tests/TwoArms-v0", "tests/Named-v0"])
def test_a_registered_environment_is_made_by_all_libraries(id):
    assert id in fb.environment_ids()
    assert fb.make(id, high=2.0, num_agents=2, max_cycles=5).num_arms == 2
    pettingzoo.make("aec", id, max_cycles=5).reset(seed=0)
    joint = gymnasium.make(id, max_cycles=5)
    joint.reset(seed=0)
    assert joint.step(np.zeros(3, dtype=int))[1] == pytest.approx(3.0, abs=1.5)  # three means of 1, noise of 0.1
    agent = id.replace("-v0", "-Agent-v0")
    assert gymnasium.make(agent, agent=2).action_space.n == 2
    assert gymnasium.make_vec(agent, num_envs=4).num_envs == 4


def test_an_unknown_keyword_of_a_registered_environment_names_those_there_are():
    with pytest.raises(ValueError, match=r"TwoArms: expected keywords among num_agents, high.*did you mean 'high'"):
        fb.make("tests/TwoArms-v0", hihg=1)


@pytest.mark.parametrize("executor", ["serial", "processes:2"])
def test_experiments_run_a_registered_environment_also_in_worker_processes(executor):
    experiment = fb.Experiment("tests/TwoArms-v0", ["Oracle", "Uniform"], {"max_cycles": 30}, trials=2)
    result = fb.run(experiment, executor=executor)
    assert (result.final("Oracle") == 0).all()
    assert (result.final("Uniform") > 0).all()
    assert experiment.resolved().arguments == {"num_agents": 3, "high": 1.0, "max_cycles": 30}


def test_a_class_that_workers_can_not_import_is_sent_to_them():
    class Local(own_problems.TwoArms):
        """Defined in a function."""

    fb.register_environment("tests/Local-v0", Local)
    experiment = fb.Experiment("tests/Local-v0", ["Uniform"], {"max_cycles": 10}, trials=1)
    here, there = (fb.run(experiment, executor=executor) for executor in ("serial", "processes:1"))
    np.testing.assert_equal(there.records, here.records)
    assert registered_environments()["tests/Local-v0"] is Local


def test_a_class_that_can_not_be_sent_is_refused_before_workers_start():
    lock = threading.Lock()

    class Locked(own_problems.TwoArms):
        """Holds what can't be copied."""

        kept = lock

    fb.register_environment("tests/Locked-v0", Locked)
    experiment = fb.Experiment("tests/Locked-v0", ["Uniform"], {"max_cycles": 10}, trials=1)
    with pytest.raises(ValueError, match="environment: expected one that can be sent to worker processes"):
        fb.run(experiment, executor="processes:1")
    assert fb.run(experiment, executor="serial").trials == [0]


def test_the_command_line_lists_explains_and_runs_a_registered_environment(capsys):
    assert main(["list", "environments"]) == 0
    assert "tests/TwoArms-v0\n      Two arms whose means are" in capsys.readouterr().out
    assert main(["list", "tests/TwoArms-v0"]) == 0
    assert "high=1.0\n      the mean of the first arm" in capsys.readouterr().out
    words = ["--env", "tests/TwoArms-v0", "--policy", "Oracle", "--set", "max_cycles=10", "--trials", "1"]
    assert main(["run", *words, "--executor", "serial"]) == 0


def test_the_same_class_may_be_registered_again_and_another_one_not():
    fb.register_environment("tests/Named-v0", own_problems.TwoArms)  # what the text named
    again = type("TwoArms", (own_problems.TwoArms,), {"__module__": "own_problems"})
    fb.register_environment("tests/Named-v0", again)
    assert problem_class("tests/Named-v0") is again
    with pytest.raises(ValueError, match="id: expected one that is not taken, got 'tests/Named-v0'"):
        fb.register_environment("tests/Named-v0", fb.Linear)
    with pytest.raises(ValueError, match="not taken, got 'fedbandit/Linear-v0'"):
        fb.register_environment("fedbandit/Linear-v0", own_problems.TwoArms)


@pytest.mark.parametrize("id", ["NoNamespace-v0", "a/NoVersion", "a/b c-v0", "a/b/c-v0", 3])
def test_an_id_of_another_form_is_refused(id):
    with pytest.raises(ValueError, match="id: expected 'namespace/Name-v0'"):
        fb.register_environment(id, own_problems.TwoArms)


@pytest.mark.parametrize("problem", [dict, 3, own_problems.TwoArms(), None])
def test_what_is_no_class_of_problems_is_refused(problem):
    with pytest.raises(ValueError, match="a class with a method instance"):
        fb.register_environment("tests/Wrong-v0", problem)
    assert "tests/Wrong-v0" not in fb.environment_ids()


def test_a_text_that_names_no_class_of_problems_is_refused_when_it_is_used():
    fb.register_environment("tests/Nonsense-v0", "math:sqrt")
    try:
        with pytest.raises(ValueError, match="problem: expected for 'tests/Nonsense-v0' a class"):
            fb.make("tests/Nonsense-v0")
    finally:
        del ids.PROBLEMS["tests/Nonsense-v0"]
    with pytest.raises(ValueError, match="'package:Class', got 'own_problems'"):
        fb.register_environment("tests/Nonsense-v0", "own_problems")


def test_entry_points_of_other_packages_are_known_and_faulty_ones_only_warned_about(monkeypatch):
    points = [
        EntryPoint("tests/Entry-v0", WHERE, ids.GROUP),
        EntryPoint("fedbandit/Synthetic-v0", WHERE, ids.GROUP),
        EntryPoint("no id", WHERE, ids.GROUP),
    ]
    monkeypatch.setattr(ids, "entry_points", lambda group: points)
    with pytest.warns(UserWarning, match="is left out") as warned:
        ids.register_environments()
    assert len(warned) == 2
    assert fb.make("tests/Entry-v0", max_cycles=5).num_arms == 2
    assert problem_class("Synthetic") is fb.Synthetic


def test_an_installed_entry_point_is_known_to_a_new_process(tmp_path):
    (tmp_path / "their_package.py").write_text("from own_problems import TwoArms\n")
    info = tmp_path / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedbandit.problems]\ntheirs/TwoArms-v0 = their_package:TwoArms\n")
    program = (
        f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]!r}\n"
        "import gymnasium\n"
        "print(gymnasium.make('fedbandit_envs:theirs/TwoArms-v0').action_space)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "MultiDiscrete([2 2 2])"


def test_clients_of_a_federation_make_a_registered_environment():
    settings = Settings.simulated("Uniform", {}, "tests/TwoArms-v0", {"num_agents": 4, "max_cycles": 10}, seed=1)
    source = SimulatedRewards(np.array([1, 3]), settings.source())
    assert list(source.view(settings.constants, 0).agents) == [1, 3]
