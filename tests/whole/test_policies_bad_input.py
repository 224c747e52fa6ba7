"""What policies, their names and their parameters refuse, and what they say then."""

import pytest
from refusals import assert_refused

import fedbandit_envs as fb
from fedbandit_envs.protocol import registry
from fedbandit_envs.protocol.registry import policy_class, policy_parameters

PHASED = ("Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE")
EVERY = fb.policy_names()


def with_parameter(parameter):
    return [name for name in EVERY if parameter in policy_parameters(policy_class(name))]


@pytest.mark.parametrize("horizon", [0, -1, 1.5, "100", True])
def test_a_horizon_below_one(horizon):
    assert_refused(lambda: fb.make("fedbandit/Synthetic-v0", max_cycles=horizon), "max_cycles", repr(horizon))


@pytest.mark.parametrize("name", with_parameter("delta"))
@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.1, float("nan"), float("inf"), "0.1", None, True])
def test_delta_outside_its_interval(name, delta):
    assert_refused(lambda: fb.make_policy(name, delta=delta), "delta", repr(delta))


@pytest.mark.parametrize("name", with_parameter("ell"))
@pytest.mark.parametrize("ell", [0, -0.5, float("nan"), float("inf"), "0.5"])
def test_ell_that_is_not_a_positive_number(name, ell):
    assert_refused(lambda: fb.make_policy(name, ell=ell), "ell", "above 0", repr(ell))


@pytest.mark.parametrize("name", PHASED)
@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("width", 0, "above 0"),
        ("sigma", -1.0, "above 0"),
        ("first", 0, "at least 1"),
        ("first", 1.5, "whole number"),
        ("growth", 1, "at least 2"),
        ("growth", True, "whole number"),
        ("phases", 0, "at least 1"),
        ("gap", 0.0, "above 0"),
        ("allocation", "g_optimal", "'g-optimal'"),
    ],
)
def test_parameters_of_phased_elimination(name, parameter, value, expected):
    message = assert_refused(lambda: fb.make_policy(name, **{parameter: value}), parameter, expected, repr(value))
    assert parameter != "allocation" or "did you mean 'g-optimal'" in message


@pytest.mark.parametrize("name", ["KK-UCB", "DisLinUCB"])
@pytest.mark.parametrize(("parameter", "value"), [("sigma", 0), ("theta_bound", -1), ("theta_bound", "1")])
def test_parameters_of_step_by_step_policies(name, parameter, value):
    assert_refused(lambda: fb.make_policy(name, **{parameter: value}), parameter, repr(value))


def test_a_negative_threshold():
    assert_refused(lambda: fb.make_policy("DisLinUCB", threshold=-1.0), "threshold", "at least 0", "-1.0")


def test_where_contexts_are_resampled_the_advice_is_to_fix_them():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=2, max_cycles=10, context="resampled")
    assert_refused(lambda: fb.play(env, fb.make_policy("Fed-PE"), seed=0), "FedPE", "hides it", "context='fixed'")


@pytest.mark.parametrize("name", [name for name in EVERY if policy_class(name).observes == "context"])
def test_a_policy_that_needs_the_context_on_an_environment_that_hides_it(name):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=2, max_cycles=10)
    policy = fb.make_policy(name)
    assert_refused(lambda: fb.play(env, policy, seed=0), type(policy).__name__, "hides it", "observe='context'")
    # The refusal's remedy works.
    shown = fb.make("fedbandit/Synthetic-v0", num_agents=2, num_arms=2, max_cycles=10, observe="context")
    assert fb.play(shown, policy, seed=0).steps[-1] == 10


def test_there_is_no_context_to_show_when_contexts_are_resampled():
    assert_refused(
        lambda: fb.make("fedbandit/Synthetic-v0", num_agents=2, context="resampled", observe="context"),
        "observe",
        "'distribution'",
    )


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [("FedPECD", "'Fed-PECD'"), ("fed-pe", "'Fed-PE'"), ("LocalUCB", "'Local-UCB'"), ("uniform", "'Uniform'")],
)
def test_an_unknown_policy_gets_the_nearest_names(wrong, nearest):
    message = assert_refused(lambda: fb.make_policy(wrong), "policy", repr(wrong), "did you mean")
    assert nearest in message.partition("did you mean")[2]
    for name in EVERY:
        assert name in message


@pytest.mark.parametrize("wrong", ["", "Thompson", None, 3])
def test_an_unknown_policy_is_refused_whatever_it_is(wrong):
    with pytest.raises(ValueError, match="policy: expected one of") as caught:
        fb.make_policy(wrong)
    assert f"got {wrong!r}" in str(caught.value)


@pytest.mark.parametrize("name", EVERY)
def test_an_unknown_parameter_gets_the_known_ones(name):
    with pytest.raises(ValueError, match="expected parameters among") as caught:
        fb.make_policy(name, detla=0.1)
    message = str(caught.value)
    assert f"{name}:" in message
    assert "got 'detla'" in message
    known = policy_parameters(policy_class(name))
    assert all(parameter in message for parameter in known)
    assert "delta" not in known or "did you mean 'delta'" in message
    assert known or "(none)" in message


class Mine(fb.Policy):
    def agents(self, view):
        raise NotImplementedError


class Other(Mine):
    pass


@pytest.fixture
def registered():
    before = dict(registry._registered)
    yield
    registry._registered.clear()
    registry._registered.update(before)


@pytest.mark.usefixtures("registered")
class TestRegistering:
    def test_a_class_or_where_to_find_it(self):
        fb.register_policy("Mine", Mine)
        fb.register_policy("Mine", Mine)  # again: nothing changes
        fb.register_policy("Found", "fedbandit_agents:FedPECD")
        assert {"Mine", "Found"} < set(fb.policy_names())
        assert isinstance(fb.make_policy("Mine"), Mine)
        assert fb.make_policy("Found", delta=0.2).delta == 0.2

    def test_a_name_that_is_taken(self):
        assert_refused(lambda: fb.register_policy("Fed-PECD", Mine), "not taken", "'Fed-PECD'")
        fb.register_policy("Mine", Mine)
        assert_refused(lambda: fb.register_policy("Mine", Other), "not taken", "'Mine'")

    def test_the_same_class_as_an_entry_point(self):
        from fedbandit_agents import FedPECD

        fb.register_policy("Fed-PECD", FedPECD)
        fb.register_policy("Fed-PECD", "fedbandit_agents:FedPECD")  # by another path
        assert fb.policy_names().count("Fed-PECD") == 1
        assert type(fb.make_policy("Fed-PECD")) is FedPECD

    def test_a_path_needs_no_name(self):
        assert fb.make_policy("fedbandit_agents:FedPECD", delta=0.2).delta == 0.2
        for path in ("fedbandit_agents:Nothing", "nowhere:FedPECD", ":", "fedbandit_agents:"):
            assert_refused(lambda path=path: fb.make_policy(path), "'module:Class' that can be imported", path)

    def test_what_is_not_a_policy(self):
        fb.register_policy("Dict", "builtins:dict")
        with pytest.raises(ValueError, match=r"'Dict' to name a subclass of fedbandit_envs\.Policy"):
            fb.make_policy("Dict")


def test_a_class_defined_anew_takes_the_place_of_the_old_one_of_its_name():
    from fedbandit_envs.protocol import registry

    def cell():
        class Cell(fb.Policy):
            def agents(self, view):
                raise NotImplementedError

        return Cell

    first, second = cell(), cell()
    fb.register_policy("Test-Cell", first)
    try:
        fb.register_policy("Test-Cell", second)
        assert policy_class("Test-Cell") is second
        with pytest.raises(ValueError, match="not taken"):
            fb.register_policy("Test-Cell", "elsewhere:Cell")
    finally:
        del registry._registered["Test-Cell"]
