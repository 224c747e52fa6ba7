"""One turn of a run: agents plan, and what they plan is pulled. Rounds and the clients of a federation share it."""

from collections.abc import Callable
from typing import NamedTuple

from fedbandit_envs.problems.segments import Segment
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, ProtocolError
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.blocks import AgentBlocks
from fedbandit_envs.rounds.checkpoints import Checkpoints

MOST_IDLE_TURNS = 1000  # turns in a row without a pull before a policy is taken to be stuck


class NeverPulls(ProtocolError):
    """A policy whose agents have waited for too many turns in a row."""


def idle_turns(before: int, length: int, policy: Policy) -> int:
    """Count the turns in a row without a pull; a turn with a pull starts the count again.

    Args:
        before: the count before this turn.
        length: the number of steps that this turn took.
        policy: what plays; a message names it.

    Raises:
        NeverPulls: there were more than `MOST_IDLE_TURNS` such turns in a row.
    """
    idle = 0 if length else before + 1
    if idle > MOST_IDLE_TURNS:
        raise NeverPulls(
            f"{type(policy).__name__}: expected a pull within {MOST_IDLE_TURNS} rounds, got none; return plans of "
            "positive length"
        )
    return idle


class Turn(NamedTuple):
    """What a turn brought."""

    plan: CheckedPlan  #: what was asked for, cut at the horizon
    feedback: Feedback  #: what was pulled


def play_turn(
    agents: AgentBlocks,
    checkpoints: Checkpoints,
    down: Message | None,
    taken: int,
    horizon: int,
    pull: Callable[[CheckedPlan], Feedback],
    segment: Segment | None = None,
    valid: int | None = None,
) -> Turn:
    """Let the agents plan, now that `down` has arrived, pull the plan after `taken` steps, and count the pulls.

    A plan is cut at the horizon, or after `valid` steps if contexts change before it, and a plan without steps is not
    pulled. The caller asks for the reports, unless the horizon is reached: then nobody would use them.
    """
    plan = agents.plan(down, horizon - taken)
    return carry_out(plan, agents, checkpoints, taken, horizon, pull, segment, valid)


def carry_out(
    plan: CheckedPlan,
    agents: AgentBlocks,
    checkpoints: Checkpoints,
    taken: int,
    horizon: int,
    pull: Callable[[CheckedPlan], Feedback],
    segment: Segment | None = None,
    valid: int | None = None,
) -> Turn:
    """The second half of `play_turn`: pull a plan of the agents after `taken` steps, and count the pulls.

    Shards call it alone, because between planning and pulling they ask each other for the longest plan.
    """
    left = horizon - taken
    plan = plan.cut(left if valid is None else min(left, valid))
    if not plan.length:  # nothing is pulled, so there is nothing to check or to count
        return Turn(plan, Feedback.of_no_pulls(plan))
    feedback = pull(plan)
    if not isinstance(feedback, Feedback):  # a wrapper or a source of rewards may have made it
        raise ProtocolError(f"pull: expected a Feedback, got {type(feedback).__name__}; return Feedback.of(plan, ...)")
    feedback = feedback.checked(plan)
    checkpoints.add(feedback, segment)
    if taken + plan.length >= checkpoints.next_time:
        checkpoints.take(taken + plan.length, agents.marks())
    return Turn(plan, feedback)
