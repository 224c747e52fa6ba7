"""The values that cross between policies and the world: what they hold, and what they refuse."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from refusals import assert_refused

from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide, Policy, ServerSide


def plan(explore, arm, length):
    return Plan(np.array(explore), np.array(arm), length)


class TestPlan:
    def test_a_cut_takes_exploitation_first_and_then_the_last_arms(self):
        whole = plan([[2, 0, 3], [1, 1, 1]], [1, 2], 7)
        for remaining, explore in (
            (7, [[2, 0, 3], [1, 1, 1]]),
            (5, [[2, 0, 3], [1, 1, 1]]),
            (4, [[2, 0, 2], [1, 1, 1]]),
            (2, [[2, 0, 0], [1, 1, 0]]),
            (1, [[1, 0, 0], [1, 0, 0]]),
        ):
            cut = whole.cut(remaining)
            np.testing.assert_array_equal(cut.explore, explore)
            assert cut.length == remaining
            np.testing.assert_array_equal(cut.arm, [1, 2])

    @given(arrays(np.int64, (3, 4), elements=st.integers(0, 5)), st.integers(0, 9), st.integers(0, 40))
    def test_a_cut_keeps_every_agent_within_what_remains(self, explore, slack, remaining):
        length = int(explore.sum(axis=1).max()) + slack
        cut = Plan(explore, np.zeros(3, dtype=np.int64), length).cut(remaining)
        assert cut.length == min(length, remaining)
        np.testing.assert_array_equal(cut.explore.sum(axis=1), np.minimum(explore.sum(axis=1), remaining))
        assert (cut.explore <= explore).all()
        # What is lost of an arm is lost of all later ones too.
        lost = (cut.explore < explore).cumsum(axis=1) > 0
        assert (cut.explore[:, 1:][lost[:, :-1]] == 0).all()

    def test_waiting_is_a_plan_of_no_steps(self):
        waiting = Plan.wait(2, 3)
        waiting.checked(2, 3)
        assert (waiting.length, waiting.explore.sum()) == (0, 0)

    @pytest.mark.parametrize(
        ("wrong", "part"),
        [
            (plan([[1, 0]], [0, 0], 1), "plan.explore: expected an array of shape (2, 2)"),
            (plan([[1, 0], [0, 1]], [0], 1), "plan.arm: expected an array of shape (2,)"),
            (Plan([[1, 0], [0, 1]], np.zeros(2, int), 1), "plan.explore: expected an array"),
            (plan([[1.0, 0], [0, 1]], [0, 0], 1), "plan.explore: expected whole numbers, got float64"),
            (plan([[1, 0], [0, 1]], [True, False], 1), "plan.arm: expected whole numbers, got bool"),
            (plan([[1, 0], [0, 1]], [0, 0], -1), "plan.length: expected a whole number of at least 0, got -1"),
            (plan([[1, 0], [0, 1]], [0, 0], 1.0), "plan.length: expected a whole number of at least 0, got 1.0"),
            (plan([[1, 0], [0, 1]], [0, 0], True), "plan.length: expected a whole number of at least 0, got True"),
            (plan([[-1, 0], [0, 1]], [0, 0], 1), "plan.explore: expected counts of at least 0, got -1"),
            (plan([[1, 0], [0, 1]], [0, 2], 1), "plan.arm: expected arms from 0 to 1, got 0 to 2"),
            (plan([[1, 0], [1, 1]], [0, 0], 1), "plan.explore: expected at most length = 1 pulls, got 2"),
            (plan([[2**63 - 1, 2**63 - 1], [0, 0]], [0, 0], 1), "plan.explore: expected at most length = 1 pulls"),
            (plan([[0, 0], [0, 0]], [0, -1], 0), "plan.arm: expected arms from 0 to 1, got -1 to 0"),
        ],
    )
    def test_a_wrong_plan_is_refused_by_name(self, wrong, part):
        assert_refused(lambda: wrong.checked(2, 2), part)

    @pytest.mark.parametrize("length", [2**65, np.uint64(2**64 - 1)])
    def test_a_length_beyond_all_numbers_hides_nothing(self, length):
        assert_refused(
            lambda: plan([[-1, 0]], [0], length).checked(1, 2), "plan.explore: expected counts of at least 0"
        )
        # These pulls add up to 1, so only the numbers themselves show that one of them is below 0.
        assert_refused(
            lambda: plan([[-1, 2]], [0], length).checked(1, 2), "plan.explore: expected counts of at least 0, got -1"
        )

    @pytest.mark.parametrize("pulls", [2.5, -1])
    def test_exploring_each_arm_takes_a_whole_number(self, pulls):
        assert_refused(lambda: Plan.explore_each(pulls, 2, 3), "pulls: expected a whole number")

    def test_waiting_is_shared_and_can_not_be_written_to(self):
        assert Plan.wait(2, 3) is Plan.wait(2, 3)
        for array in (Plan.wait(2, 3).explore, Plan.wait(2, 3).arm):
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.setflags(write=True)

    def test_a_plan_is_checked_as_it_is_now(self):
        reused = plan([[1, 0]], [0], 1)
        reused.checked(1, 2)
        reused.explore[0, 1] = 1
        assert_refused(lambda: reused.checked(1, 2), "plan.explore: expected at most length = 1 pulls, got 2")

    def test_a_checked_plan_is_not_checked_again_but_a_changed_copy_is(self):
        checked = plan([[1, 0]], [0], 1).checked(1, 2)
        assert checked.checked(1, 2) is checked
        assert_refused(lambda: replace(checked, arm=np.array([2])), "plan.arm: expected arms from 0 to 1, got 2 to 2")
        assert_refused(lambda: checked.checked(2, 2), "plan.explore: expected an array of shape (2, 2)")

    @pytest.mark.parametrize("explore", [np.array([1, 0]), np.int64(3), None, [[1], [1, 2]]])
    def test_a_checked_plan_has_a_row_for_each_agent(self, explore):
        assert_refused(lambda: CheckedPlan(explore, np.array([0]), 2), "plan.explore: expected an array of shape")

    def test_a_checked_plan_shows_what_it_was_made_of(self):
        assert repr(plan([[1, 0]], [0], 1).checked(1, 2)) == "CheckedPlan(explore=int64[1, 2], arm=int64[1], length=1)"

    def test_a_checked_plan_that_is_cut_is_checked(self):
        cut = plan([[3, 2]], [0], 9).checked(1, 2).cut(4)
        assert isinstance(cut, CheckedPlan)
        assert (cut.explore.tolist(), cut.exploration.tolist(), cut.length) == ([[3, 1]], [4], 4)

    def test_the_longest_length_of_64_bits_is_no_limit_for_exploration(self):
        # The length cap: exploration is compared with what 64 bits can hold, however long the plan claims to be.
        checked = plan([[5, 0]], [0], 2**70).checked(1, 2)
        assert checked.exploration.tolist() == [5]
        assert_refused(
            lambda: plan([[2**63 - 1, 2**63 - 1]], [0], 2**70).checked(1, 2), "plan.explore: expected at most"
        )


def test_feedback_adds_exploitation_to_the_arm_that_was_played():
    feedback = Feedback(
        explored=np.array([[1, 2], [0, 0]]),
        explored_sums=np.array([[0.5, 3.0], [0.0, 0.0]]),
        arm=np.array([1, 0]),
        played=np.array([4, 5]),
        played_sums=np.array([2.0, -1.0]),
    )
    np.testing.assert_array_equal(feedback.pulls(), [[1, 6], [5, 0]])
    np.testing.assert_array_equal(feedback.sums(), [[0.5, 5.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(feedback.explored, [[1, 2], [0, 0]])
    second = feedback.rows(np.array([1]))
    np.testing.assert_array_equal(second.pulls(), [[5, 0]])


class TestMessage:
    def test_a_message_does_not_follow_the_arrays_it_was_made_of(self):
        theta, agents, mask = np.ones((2, 2)), np.array([0, 1]), np.array([[True, False], [True, True]])
        message = Message("x", {"theta": theta}, agents, {"theta": mask})
        theta[:] = 7
        agents[:] = 7
        mask[:] = False
        np.testing.assert_array_equal(message["theta"], [[1, 0], [1, 1]])
        np.testing.assert_array_equal(message.agents, [0, 1])
        np.testing.assert_array_equal(message.present["theta"], [[True, False], [True, True]])

    def test_the_sender_keeps_the_right_to_write_to_its_own_arrays(self):
        theta, mask = np.ones((2, 2)), np.ones((2, 2), dtype=bool)
        Message("x", {"theta": theta}, np.array([0, 1]), {"theta": mask})
        assert theta.flags.writeable
        assert mask.flags.writeable

    @pytest.mark.parametrize("part", ["arrays", "present", "agents"])
    def test_nothing_in_a_message_can_be_written(self, part):
        message = Message("x", {"a": np.ones(2)}, np.array([0, 1]), {"a": np.array([True, False])})
        array = message.agents if part == "agents" else getattr(message, part)["a"]
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
        with pytest.raises(TypeError):
            message.arrays["b"] = np.ones(2)
        with pytest.raises(AttributeError):
            message.kind = "y"

    def test_what_a_message_costs_cannot_be_written(self):
        message = Message("x", {"a": np.ones(2), "b": np.ones(2)}, np.array([0, 1]), {"a": np.array([True, False])})
        ((mask, *_), _) = message.costs
        with pytest.raises(ValueError, match="read-only"):
            mask[0] = True
        with pytest.raises(TypeError):
            message.costs[1] = (None, 0, 0, 0)

    def test_a_mask_wipes_what_is_not_present(self):
        hidden = np.array([[1.5, np.nan], [2.5, 3.5]])
        message = Message("x", {"a": hidden}, np.array([0, 1]), {"a": np.array([[True, False], [False, True]])})
        np.testing.assert_array_equal(message["a"], [[1.5, 0], [0, 3.5]])

    def test_a_mask_over_leading_axes_wipes_whole_vectors(self):
        message = Message(
            "x", {"a": np.ones((2, 2, 3))}, np.array([0, 1]), {"a": np.array([[True, False], [0, 1]]) > 0}
        )
        np.testing.assert_array_equal(message["a"].sum(axis=2), [[3, 0], [0, 3]])

    def test_scalars_and_bytes_count_what_is_present(self):
        message = Message(
            "x",
            {
                "theta": np.ones((3, 2, 4)),  # 4 doubles for each arm present
                "arms": np.ones((3, 2), dtype=np.int32),  # 2 numbers of 4 bytes each
            },
            np.array([0, 1, 2]),
            {"theta": np.array([[True, True], [True, False], [False, False]])},
        )
        np.testing.assert_array_equal(message.scalars(), [8 + 2, 4 + 2, 0 + 2])
        np.testing.assert_array_equal(message.bytes(), [64 + 8, 32 + 8, 0 + 8])

    def test_a_broadcast_counts_once(self):
        message = Message("x", {"V": np.ones((3, 2, 2))}, None, {"V": np.array([True, False, True])})
        np.testing.assert_array_equal(message.scalars(), [8])
        np.testing.assert_array_equal(message.bytes(), [64])

    def test_a_message_without_arrays_has_no_scalars(self):
        np.testing.assert_array_equal(Message("call").scalars(), [0])
        np.testing.assert_array_equal(Message("request", agents=np.array([3, 5])).scalars(), [0, 0])

    def test_a_message_of_nobody_has_no_scalars(self):
        nobody = Message("x", {"a": np.ones((2, 3))}, np.array([0, 1]), {"a": np.ones(2, dtype=bool)}).rows(
            np.array([], int)
        )
        assert len(nobody.scalars()) == len(nobody.bytes()) == 0

    def test_rows_take_everything_of_those_agents(self):
        message = Message("x", {"a": np.arange(6).reshape(3, 2)}, np.array([2, 5, 7]), {"a": np.eye(3, 2) > 0})
        some = message.rows(np.array([2, 0]))
        np.testing.assert_array_equal(some.agents, [7, 2])
        np.testing.assert_array_equal(some.present["a"], [[False, False], [True, False]])
        np.testing.assert_array_equal(some["a"], [[0, 0], [0, 0]])
        assert Message("call").rows(np.array([0])).agents is None

    def test_a_tree_gives_the_same_message_back(self):
        message = Message("x", {"a": np.arange(4.0).reshape(2, 2)}, np.array([1, 0]), {"a": np.eye(2) > 0})
        again = Message.from_tree(message.tree())
        assert again.kind == "x"
        for one, two in ((message["a"], again["a"]), (message.agents, again.agents)):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(message.present["a"], again.present["a"])
        assert Message.from_tree(Message("call").tree()).agents is None

    @pytest.mark.parametrize(
        ("make", "part"),
        [
            (
                lambda: Message("x", {"a": np.ones(3)}, np.array([0, 1])),
                "one row for each of its 2 agents, got shape (3,)",
            ),
            (
                lambda: Message("x", {"a": np.float64(1)}, np.array([0])),
                "one row for each of its 1 agents, got shape ()",
            ),
            (lambda: Message("x", {}, np.array([[0, 1]])), "agents of shape (n,), got (1, 2)"),
            (lambda: Message("x", {"a": np.array(["secret"])}), "expected numbers, got an array of <U6"),
            (lambda: Message("x", {"a": np.array([{}])}), "expected numbers, got an array of object"),
            (lambda: Message(7), "a text for its kind, got 7"),
            (lambda: Message("x", {"a": np.ones(2)}, None, {"b": np.ones(2, dtype=bool)}), "present['b']"),
            (lambda: Message("x", {"a": np.ones(2)}, None, {"a": np.ones(2)}), "got float64 of shape (2,)"),
            (lambda: Message("x", {"a": np.ones((2, 3))}, None, {"a": np.ones(3, dtype=bool)}), "for shape (2, 3)"),
            (lambda: Message("x", {"a": np.ones(2)}, np.array([0, 1]), {"a": np.array(False)}), "bool of shape ()"),
        ],
    )
    def test_a_wrong_message_is_refused_by_name(self, make, part):
        assert_refused(make, part)
        with pytest.raises(ProtocolError):
            make()


COPIES = {
    "copy": copy.copy,
    "deep copy": copy.deepcopy,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(
    "message",
    [
        Message("hello"),
        Message("broadcast", {"theta": np.eye(2)}),
        Message("rows", {"n": np.arange(6).reshape(3, 2)}, np.array([1, 4, 7]), {"n": np.array([True, False, True])}),
    ],
    ids=lambda message: message.kind,
)
def test_a_message_can_be_copied_and_the_copy_is_immutable_too(message, how):
    other = COPIES[how](message)
    assert other is not message
    assert (other.kind, list(other.arrays), list(other.present)) == (
        message.kind,
        list(message.arrays),
        list(message.present),
    )
    for name, array in message.arrays.items():
        np.testing.assert_array_equal(other[name], array)
        assert other[name].dtype == array.dtype
        assert not other[name].flags.writeable
    for name, mask in message.present.items():
        np.testing.assert_array_equal(other.present[name], mask)
        assert not other.present[name].flags.writeable
    np.testing.assert_array_equal(other.scalars(), message.scalars())
    np.testing.assert_array_equal(other.agents, message.agents)
    if message.agents is not None:
        with pytest.raises(ValueError, match="WRITEABLE"):
            other.agents.setflags(write=True)
    with pytest.raises(TypeError, match="item assignment"):
        other.arrays["more"] = np.zeros(1)


def test_a_message_can_take_over_arrays_that_were_made_for_it():
    sums, mask, agents = np.arange(6.0).reshape(3, 2), np.array([True, False, True]), np.array([1, 4, 7])
    own, copied = sums.copy(), Message("rows", {"n": sums}, agents, {"n": mask})
    taken = Message.of_own("rows", {"n": own}, agents, {"n": mask})
    assert np.shares_memory(taken["n"], own)
    assert not own.flags.writeable
    np.testing.assert_array_equal(taken["n"], copied["n"])  # what the mask leaves out is 0 in both
    assert taken["n"][1].tolist() == [0, 0]
    np.testing.assert_array_equal(taken.scalars(), copied.scalars())
    np.testing.assert_array_equal(taken.bytes(), copied.bytes())
    assert sums.flags.writeable  # a message that copies leaves the array as it was
    with pytest.raises(ProtocolError, match="one row for each of its 2 agents"):
        Message.of_own("rows", {"n": np.zeros((3, 1))}, np.array([0, 1]))


@pytest.mark.parametrize("how", COPIES)
def test_a_checked_plan_can_be_copied_and_the_copy_is_read_only_too(how):
    plan = Plan(np.array([[1, 0], [0, 2]]), np.array([1, 0]), 5).checked(2, 2)
    other = COPIES[how](plan)
    np.testing.assert_array_equal(other.explore, [[1, 0], [0, 2]])
    np.testing.assert_array_equal(other.exploration, [1, 2])
    assert other.checked(2, 2) is other
    assert not other.explore.flags.writeable
    assert not other.arm.flags.writeable


def test_feedback_that_is_not_checked_because_nothing_was_pulled_is_read_only_too():
    feedback = Feedback.of_no_pulls(Plan.wait(2, 3))
    for array in (feedback.explored, feedback.explored_sums, feedback.arm, feedback.played, feedback.played_sums):
        assert not array.flags.writeable


class Sides(AgentSide):
    def plan(self, down, remaining):
        return Plan.wait(1, 1)

    def report(self, feedback):
        return None


class TestState:
    def test_state_is_every_plain_attribute_and_a_copy(self):
        side = Sides()
        side.count, side.best, side.name, side.nothing = np.int64(3), np.array([1.5]), "x", None
        state = side.snapshot()
        assert state == {"count": 3, "best": side.best, "name": "x", "nothing": None}
        assert type(state["count"]) is int
        side.best[0] = 9
        other = Sides()
        other.restore(state)
        assert other.best[0] == 1.5
        other.best[0] = 7
        assert state["best"][0] == 1.5

    def test_state_that_is_not_plain_is_refused_by_name(self):
        side = Sides()
        side.log = [1, 2]
        assert_refused(side.snapshot, "Sides.log", "got list", "override snapshot() and restore()")


def test_a_policy_without_a_server_refuses_reports():
    class Mute(Policy):
        def agents(self, view):
            return Sides()

    server = Mute().server(None)
    assert isinstance(server, ServerSide)
    assert_refused(lambda: server.answer(Message("hello", agents=np.array([0]))), "'hello'", "Policy.server()")


@pytest.mark.parametrize("agents", [np.array([True, False, True]), np.array([0.0, 1.5])], ids=["mask", "fractions"])
def test_agents_of_a_message_are_whole_numbers(agents):
    with pytest.raises(ProtocolError, match=r"expected the numbers of its agents, got (bool|float64).*view.agents"):
        Message("x", {}, agents)


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: Message("x", np.ones(2), np.arange(2)), ("expected arrays as a dict", "got ndarray")),
        (lambda: Message("x", {"a": np.ones(2)}, np.arange(2), np.ones(2, bool)), ("expected present as a dict",)),
        (lambda: Message("x", {"a": np.ones(1)}, None, {"b": np.ones(1, bool)}), ("got one for 'b'", "not among them")),
        (lambda: Message("x", {"a": np.ones(1)})["b"], ("expected an array 'b', got a", "has to send it")),
    ],
)
def test_messages_say_what_is_wrong_with_them(make, parts):
    assert_refused(make, *parts)
