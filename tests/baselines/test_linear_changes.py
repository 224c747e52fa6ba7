"""The linear policies on all kinds of contexts: one run, however it is split or stopped; and what they refuse."""

import numpy as np
import pytest
from histories import assert_same_history
from refusals import assert_refused

import fedbandit_envs as fb

KINDS = {
    "fixed": ("Synthetic", {}),
    "resampled": ("Synthetic", {"context": "resampled"}),
    "pieces": ("Synthetic", {"change_every": 7}),
    "streaming": ("Synthetic", {"context": "streaming"}),
    "revealed": ("Synthetic", {"context": "streaming", "reveal": "after"}),
    "ensembles": ("Forecast", {"members": 4, "reveal": "after"}),
}
STEP_BY_STEP = ("streaming", "revealed", "ensembles")  # elsewhere the fast path may draw several pulls at once
POLICIES = {
    "Lin-Hidden": {"threshold": 2.0},
    "Lin-Delayed": {"threshold": 2.0},
    "Weighted-DisLinUCB": {"threshold": 2.0},
    "Residual-LinUCB": {"threshold": 2.0},
    "FedLinUCB": {"alpha": 0.3},
    "Private-FedLinUCB": {"every": 7, "epsilon": 10.0},
    "FedUCB": {"threshold": 2.0, "noise_scale": 1e-4, "width_scale": 0.1},
    "Async-LinUCB": {"upload": 1.3, "download": 1.2},
    "Async-LinUCB in turn": {"upload": 1.3, "download": 1.2, "one_by_one": True},
}


def make(kind):
    name, arguments = KINDS[kind]
    return fb.make(f"fedbandit/{name}-v0", num_agents=5, num_arms=4, noise_std=0.3, max_cycles=60, **arguments)


def policy_of(name):
    return fb.make_policy(name.removesuffix(" in turn"), **POLICIES[name])


CASES = [(kind, name) for kind in KINDS for name in POLICIES if fb.why_not(policy_of(name), make(kind)) is None]


def test_each_plays_what_it_should():
    playable = {name: [kind for kind, other in CASES if other == name] for name in POLICIES}
    everything = list(KINDS)
    assert playable.pop("Lin-Delayed") == ["revealed", "ensembles"]
    assert playable.pop("Residual-LinUCB") == ["fixed", "resampled"]
    assert all(kinds == everything for kinds in playable.values())


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_run_is_the_same_however_it_is_split_or_stopped(kind, name):
    whole = fb.play(make(kind), policy_of(name), seed=3)
    assert whole.ledger.scalars > 0
    assert not whole.faults  # no report of an honest agent is refused
    assert_same_history(whole, fb.play(make(kind), policy_of(name), seed=3, blocks=[[4, 0], [2], [1, 3]]))
    rounds = fb.CommunicationRounds(make(kind), policy_of(name))
    rounds.start(3)
    while rounds.bandit.steps < 31:
        rounds.advance()
    again = fb.CommunicationRounds(make(kind), policy_of(name))
    again.restore(rounds.snapshot())
    again.finish()
    assert_same_history(whole, again.history())


@pytest.mark.parametrize(("kind", "name"), [case for case in CASES if case[0] in STEP_BY_STEP])
def test_stepping_through_pettingzoo_gives_the_same_run(kind, name):
    fast, slow = (fb.play(make(kind), policy_of(name), seed=3, stepwise=how) for how in (False, True))
    assert_same_history(fast, slow)


def test_losses_stop_nobody():
    for name in ("FedLinUCB", "Async-LinUCB", "Async-LinUCB in turn", "Weighted-DisLinUCB"):
        history = fb.play(make("streaming"), policy_of(name), seed=3, faults=fb.Faults(dropout=0.4))
        assert history.faults
        assert history.steps[-1] == 60


def test_what_is_lost_on_its_way_is_sent_again_by_fed_lin_ucb():
    env = fb.make(
        "fedbandit/Linear-v0", theta=[[0.5]], features=np.ones((30, 2, 1, 1)), context="streaming", max_cycles=30
    )
    history = fb.play(env, fb.make_policy("FedLinUCB", alpha=1.0), seed=1, faults=fb.Faults(dropout=0.5), record=True)
    ups = [(turn.step + turn.plan.length, turn.up) for turn in history.exchanges if turn.up is not None]
    received = sum(up["gram"].sum() for _, up in ups)
    own = [turn.down["gram"].max() for turn in history.exchanges if turn.down is not None]
    assert history.faults
    assert own[-1] == received  # all that arrived, and nothing twice
    assert received > 0.5 * 2 * ups[-1][0]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_policy_of_revealed_contexts_needs_them():
    for kind in ("streaming", "fixed"):
        assert_refused(lambda kind=kind: fb.play(make(kind), policy_of("Lin-Delayed"), seed=0), "reveal='after'")


def test_agents_that_take_turns_are_not_too_many():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=401, num_arms=2, dim=2, max_cycles=3)
    said = "at most 400 agents"
    assert_refused(lambda: fb.play(env, fb.make_policy("Async-LinUCB", one_by_one=True), seed=0), said, "got 401")
    assert fb.why_not(fb.make_policy("Async-LinUCB"), env) is None


@pytest.mark.parametrize(
    ("name", "parameter", "value", "expected"),
    [
        ("FedLinUCB", "alpha", 0.0, "above 0"),
        ("FedLinUCB", "regularisation", 0.0, "above 0"),
        ("Async-LinUCB", "upload", 0.9, "at least 1"),
        ("Async-LinUCB", "download", float("nan"), "at least 1"),
        ("Async-LinUCB", "one_by_one", 1, "True or False"),
        ("Weighted-DisLinUCB", "threshold", -1.0, "at least 0"),
        ("DELB", "constant", 0.0, "above 0"),
        ("Feature-Selection", "sigma", 0.0, "above 0"),
        ("Lin-Hidden", "delta", 1.0, "between 0 and 1"),
    ],
)
def test_parameters(name, parameter, value, expected):
    assert_refused(lambda: fb.make_policy(name, **{parameter: value}), parameter, expected)


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("FedLinUBC", "FedLinUCB"), ("Lin-Hiden", "Lin-Hidden"), ("DELP", "DELB")]
)
def test_an_unknown_name_gets_the_nearest(wrong, nearest):
    with pytest.raises(ValueError, match=f"did you mean.*{nearest}"):
        fb.make_policy(wrong)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_wrong_step_of_a_function_is_named_while_it_is_played(hidden):
    def features(step):
        table = np.full((2, 2, 2), 0.5)
        table[0, 1, 0] = np.nan if step == 7000 else 0.5
        return table

    def contexts(step):
        return fb.Gaussian(features(step).reshape(2, -1), std=0.1)

    shown = {"contexts": contexts, "feature_map": fb.Table(2, 2)} if hidden else {"features": features}
    env = fb.make("fedbandit/Linear-v0", theta=np.eye(2), context="streaming", ell=0.1, L=1.0, max_cycles=7100, **shown)
    assert_refused(lambda: fb.play(env, fb.make_policy("Uniform"), seed=0), "(7000): ", "got nan")


def test_a_nan_among_hidden_contexts_is_named_by_its_step():
    true = np.ones((7100, 2, 4))
    true[7000, 1, 2] = np.nan
    mu = fb.Gaussian(np.full((2, 4), 0.5), std=0.1)
    shown = {"contexts": [mu] * 7100, "feature_map": fb.Table(2, 2), "true_contexts": true}
    said = "true_contexts", "nan in segment 7000"
    assert_refused(lambda: fb.make("fedbandit/Linear-v0", theta=np.eye(2), context="streaming", **shown), *said)
