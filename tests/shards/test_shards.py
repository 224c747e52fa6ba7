"""One run over shards is the run in one process, byte for byte."""

import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest
from histories import assert_same_run
from playable import home

import fedbandit_envs as fb
from fedbandit_envs import arrays, seeding
from fedbandit_envs.problems.generator import draw_instance, draw_rows
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import observe_for
from fedbandit_envs.protocol.registry import policy_class
from fedbandit_envs.shards import bandit, part
from fedbandit_envs.shards.packing import packed, slim, unpacked, whole
from fedbandit_envs.testing.comparing import first_difference

NAMES = sorted(point.name for point in entry_points(group="fedbandit.policies"))
POLICIES = [name for name in NAMES if not policy_class(name).shares_arms]


def played(env, name, shards, executor="serial", **how):
    where = {} if shards is None else {"shards": shards, "executor": executor}
    return fb.play(env, fb.make_policy(name), seed=5, network="ring", **where, **how)


@pytest.mark.parametrize("name", POLICIES)
def test_any_number_of_shards_gives_the_run_of_one_process(name):
    _, problem, shown = home(name, num_agents=8)
    env = fb.HiddenContextBandit(problem, max_cycles=64, **shown)
    expected = played(env, name, None)
    for shards in (1, 2, 3, 7):
        assert_same_run(expected, played(env, name, shards))


LONG = ["Fed-PECD", "Fed-CI", "Enhanced-Fed-PE", "Collaborative", "Local-UCB", "Uniform"]


@pytest.mark.parametrize("name", LONG)
def test_seven_shards_of_a_long_run(name, monkeypatch):
    monkeypatch.setattr(part, "_STEPS_ALONE", 700)
    env = fb.make("Synthetic", num_agents=9, max_cycles=2**11, observe=observe_for(fb.make_policy(name)))
    assert_same_run(played(env, name, None), played(env, name, 7))


KINDS = {
    "resampled": {"context": "resampled"},
    "streaming": {"context": "streaming"},
    "new users": {"change_every": 30},
    "classical error": {"error": "classical"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["KK-UCB", "DisLinUCB", "Local-UCB", "Uniform"])
def test_every_kind_of_context(name, kind):
    env = fb.make("Synthetic", num_agents=7, max_cycles=100, **KINDS[kind])
    assert_same_run(played(env, name, None), played(env, name, 3))


EVERY_KIND = {
    "fixed": ("Synthetic", {}),
    **{kind: ("Synthetic", settings) for kind, settings in KINDS.items()},
    "revealed": ("Synthetic", {"context": "streaming", "reveal": "after"}),
    "multi-armed": ("MultiArmed", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_every_policy_on_every_kind_of_problem_that_it_can_play(kind, monkeypatch):
    """Those that talk to peers are among them."""
    monkeypatch.setattr(part, "_STEPS_ALONE", 17)
    played_by, (id, settings) = [], EVERY_KIND[kind]
    if id == "Synthetic":
        settings = {"context_std": 0.1, **settings}
    for name in POLICIES:
        shown = {"observe": observe_for(fb.make_policy(name))}
        if (kind, shown["observe"]) == ("resampled", "context"):
            continue  # there is none that could be shown
        env = fb.make(id, num_agents=7, num_arms=4, max_cycles=70, **shown, **settings)
        if fb.why_not(fb.make_policy(name), env, network="ring") is None:
            expected = played(env, name, None)
            for shards in (1, 2, 3, 7):
                assert_same_run(expected, played(env, name, shards))
            played_by.append(name)
    assert len(played_by) >= 10


@pytest.mark.parametrize("id", ["Household", "MultiArmed", "Forecast", "Linear"])
def test_problems_that_are_drawn_as_a_whole(id):
    env = fb.make(id, max_cycles=150)
    assert_same_run(played(env, "Uniform", None), played(env, "Uniform", 2))


@pytest.mark.parametrize("name", ["Fed-PECD", "Fed-CI", "DisLinUCB", "FedLinUCB", "coop-UCB2", "GosInE"])
def test_lost_and_false_reports_are_the_same(name):
    env = fb.make("Synthetic", num_agents=10, max_cycles=1000 if name in ("Fed-PECD", "Fed-CI") else 100)
    faults = fb.Faults(dropout=0.3, attackers=fb.Attackers("sign-flip", 0.2))
    expected = played(env, name, None, faults=faults)
    assert expected.faults
    assert_same_run(expected, played(env, name, 3, faults=faults))


@pytest.mark.parametrize("name", ["Fed-PECD", "DisLinUCB", "coop-UCB2"])
def test_a_recorded_run_has_the_same_messages_plans_feedback_and_truth(name):
    env = fb.make("Synthetic", num_agents=7, max_cycles=150)
    one, two = (played(env, name, shards, record=True) for shards in (None, 3))
    assert_same_run(one, two)
    assert first_difference(list(one.exchanges), list(two.exchanges)) is None
    np.testing.assert_array_equal(one.instance.means, two.instance.means)
    np.testing.assert_array_equal(one.view.psi, two.view.psi)
    assert [claim.holds for claim in fb.audit(one).claims] == [claim.holds for claim in fb.audit(two).claims]


def test_revealed_contexts_cross_when_they_are_recorded():
    env = fb.make("Synthetic", num_agents=5, max_cycles=40, context="streaming", reveal="after")
    one, two = (played(env, "KK-UCB-Observed", shards, record=True) for shards in (None, 2))
    assert one.exchanges[-1].feedback.features is not None
    assert first_difference(list(one.exchanges), list(two.exchanges)) is None


def test_the_next_episode_follows_as_it_does_in_one_process():
    policy = fb.make_policy("Local-UCB")
    one, two = (fb.make("Synthetic", num_agents=4, max_cycles=40) for _ in range(2))
    for seed in (1, None, None):
        other = fb.play(two, policy, seed=seed, shards=2, executor="serial")
        assert_same_run(fb.play(one, policy, seed=seed), other)


@pytest.mark.parametrize("settings", [{}, {"context": "resampled"}, {"error": "classical"}])
def test_a_shard_draws_its_agents_alone_as_they_are_in_the_whole(settings, monkeypatch):
    monkeypatch.setattr(seeding, "GROUP", 5)
    problem = fb.Synthetic(num_agents=23, num_arms=3, **settings)
    expected = draw_instance(problem, 7)
    for first, last in ((0, 4), (4, 11), (11, 23), (22, 23)):
        own = draw_rows(problem, 7, first, last)
        assert own.num_agents == last - first
        np.testing.assert_array_equal(own.psi, expected.psi[first:last])
        np.testing.assert_array_equal(own.phi, expected.phi[first:last])
        np.testing.assert_array_equal(own.theta, expected.theta)


def test_more_agents_than_a_group_of_random_numbers(monkeypatch):
    """Groups of 4096 agents are made groups of 4, in this process, where the shards live too; those of sums, too."""
    for module in (seeding, bandit):
        monkeypatch.setattr(module, "GROUP", 4)
    monkeypatch.setattr(arrays, "ROWS", 4)
    assert bandit.borders(18, 3) == [(0, 4), (4, 12), (12, 18)]
    for name in ("Fed-PECD", "Collaborative", "DisLinUCB"):
        shown = {"observe": observe_for(fb.make_policy(name))}
        env = fb.make("Synthetic", **shown, num_agents=18, max_cycles=200)
        assert_same_run(played(env, name, None), played(env, name, 3))


def test_what_a_mask_leaves_out_does_not_cross():
    mask = np.zeros((100, 50), dtype=bool)
    mask[3, 7] = True
    means = np.random.default_rng(0).random((100, 50))
    message = Message("means", {"means": means}, np.arange(5, 105), {"means": mask})
    parts = packed(slim(message))
    assert sum(len(memoryview(part).cast("B")) for part in parts) < 2000 < message.arrays["means"].nbytes
    again = whole([unpacked([bytes(part) for part in parts])])
    np.testing.assert_array_equal(again["means"], message["means"], strict=True)
    np.testing.assert_array_equal(again.present["means"], mask, strict=True)
    np.testing.assert_array_equal(again.agents, message.agents, strict=True)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"shards": 0}, "shards: expected a whole number of at least 1"),
        ({"shards": 8}, "expected at most 7, one for each agent"),
        ({"shards": 2, "executor": "threads"}, "executor: expected"),
        ({"executor": "threads"}, "expected shards=N with it, got 'threads' alone"),
        ({"executor": "ray:somewhere"}, "expected shards=N with it, got 'ray:somewhere' alone"),
        ({"shards": 2, "executor": "processes:4"}, "the number of shards is given by shards=N"),
        ({"shards": 2, "stepwise": True}, "none with stepwise=True"),
        ({"shards": 2, "blocks": [[0], [1, 2, 3, 4, 5, 6]]}, "none with blocks"),
    ],
)
def test_what_shards_cannot_do_is_refused(how, words):
    env = fb.make("Synthetic", num_agents=7, max_cycles=40)
    with pytest.raises(ValueError, match=words):
        fb.play(env, fb.make_policy("Local-UCB"), seed=0, **how)


def test_wrappers_and_shared_arms_are_refused():
    env = fb.RecordRegret(fb.make("Synthetic", num_agents=7, max_cycles=40))
    with pytest.raises(ValueError, match="without wrappers"):
        fb.play(env, fb.make_policy("Local-UCB"), seed=0, shards=2)
    with pytest.raises(ValueError, match="agents can't share arms"):
        fb.play(fb.make("SharedArms", max_cycles=40), fb.make_policy("OrchExplore"), seed=0, shards=2)


def test_an_error_in_a_shard_is_the_error_of_the_run():
    env = fb.make("Synthetic", num_agents=7, max_cycles=40, context="streaming")
    for shards in (None, 2):
        with pytest.raises(ValueError, match="follows contexts which change"):
            played(env, "Fed-PECD", shards)


SCRIPT = """
from dataclasses import dataclass
import numpy as np
import fedbandit_envs as fb

class Stubborn(fb.StepAgents):
    def choose(self):
        return np.full(len(self.view.agents), 2, dtype=np.int64)

    def learn(self, outcome):
        pass

    def observe(self, view):
        self.view = view

@dataclass(frozen=True)
class Mine(fb.Policy):
    def agents(self, view):
        return Stubborn(view)

fb.REGRETS["mine"] = fb.Regret(lambda one: one.means.max(axis=1, keepdims=True) - one.means, "x", "y", by_agent=True)
env = fb.make("Synthetic", num_agents=5, max_cycles=10, context="streaming")
one, two = (fb.play(env, Mine(), seed=0, shards=shards) for shards in (None, 2))
assert (one.pulls == two.pulls).all() and (one.regret("mine") == two.regret("mine")).all()
"""


@pytest.mark.slow
def test_a_script_may_have_a_policy_and_a_regret_of_its_own_and_no_main_guard(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
