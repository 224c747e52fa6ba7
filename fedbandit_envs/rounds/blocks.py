"""The agents of a run, split into blocks: their plans as one, their feedback apart."""

from collections.abc import Sequence

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import CheckedPlan, Feedback, Plan, ProtocolError
from fedbandit_envs.protocol.policy import AgentSide
from fedbandit_envs.rounds.checkpoints import Marks, marks_of


class AgentBlocks:
    """Agent sides, each with the numbers of its agents; all together they have the agents from 0 to n - 1.

    Args:
        sides: the agent sides.
        rows: the numbers of the agents of each side.
        num_arms: the number of arms, K.
    """

    def __init__(self, sides: Sequence[AgentSide], rows: Sequence[IntArray], num_arms: int):
        self.sides, self.rows = list(sides), list(rows)
        self.shape = sum(len(block) for block in rows), num_arms  #: the number of agents, and of arms
        self.together = np.array_equal(self.rows[0], np.arange(self.shape[0]))  #: whether it is one block, in order

    def plan(self, down: Message | None, remaining: int) -> CheckedPlan:
        """The plans of all blocks as one: it lasts as long as the longest; the others go on with their arm."""
        if self.together:
            return _checked_plan(self.sides[0], down, remaining, self.shape)
        num_agents, num_arms = self.shape
        explore = np.empty((num_agents, num_arms), dtype=np.int64)
        arm = np.empty(num_agents, dtype=np.int64)
        length = 0
        for rows, side in zip(self.rows, self.sides, strict=True):
            theirs = None if down is None else down.for_agents(rows)
            if down is not None and theirs is None and side.hears_of_others:
                theirs = down.for_nobody()
            plan = _checked_plan(side, theirs, remaining, (len(rows), num_arms))
            explore[rows], arm[rows] = plan.explore, plan.arm
            length = max(length, plan.length)
        return CheckedPlan(explore, arm, length)

    def report(self, feedback: Feedback) -> list[Message | None]:
        """What each block says about the last plan."""
        if self.together:
            return [self.sides[0].report(feedback)]
        pairs = zip(self.rows, self.sides, strict=True)
        return [side.report(feedback.rows(rows)) for rows, side in pairs]

    def observe(self, view: View) -> None:
        """Show all blocks what holds from now on."""
        for rows, side in zip(self.rows, self.sides, strict=True):
            side.observe(view if self.together else view.rows(rows))

    def marks(self) -> Marks:
        """How the agents stand, in their order."""
        if self.together:
            return marks_of(self.sides[0], *self.shape)
        whole = Marks(*np.empty((len(Marks._fields), self.shape[0]), dtype=np.int64))
        for rows, side in zip(self.rows, self.sides, strict=True):
            for mark, own in zip(whole, marks_of(side, len(rows), self.shape[1]), strict=True):
                mark[rows] = own
        return whole

    def snapshot(self) -> State:
        """The states of the sides, by the number of their block."""
        return {str(number): side.snapshot() for number, side in enumerate(self.sides)}

    def restore(self, state: State) -> None:
        """Take over the states of a `snapshot`."""
        for number, side in enumerate(self.sides):
            side.restore(state.get(str(number), {}))


def _checked_plan(side: AgentSide, down: Message | None, remaining: int, shape: tuple[int, int]) -> CheckedPlan:
    plan = side.plan(down, remaining)
    if not isinstance(plan, Plan):
        raise ProtocolError(
            f"{type(side).__name__}.plan: expected a Plan, got {type(plan).__name__}; return Plan(explore, "
            "arm, length), Plan.play(arm, num_arms) or Plan.wait(num_agents, num_arms)"
        )
    return plan.checked(*shape)


def checked_rows(blocks: Sequence[Sequence[int]] | None, num_agents: int, *, name: str = "blocks") -> list[IntArray]:
    """The agents of each block, if all blocks together hold every agent once.

    Args:
        blocks: the agents of each block; None: one block of all agents.
        num_agents: the number of agents, M.
        name: what the argument is called in a message.

    >>> checked_rows([[2, 0], [1]], 3)
    [array([2, 0]), array([1])]
    """
    if blocks is None:
        return [np.arange(num_agents)]
    try:
        rows = [np.array(block) for block in blocks]
        whole = bool(rows) and all(block.ndim == 1 and block.dtype.kind in "iu" and len(block) for block in rows)
    except (TypeError, ValueError):
        whole = False
    if not whole or sorted(np.concatenate(rows).tolist()) != list(range(num_agents)):
        raise ValueError(
            f"{name}: expected lists that hold each agent from 0 to {num_agents - 1} once, none empty, got {blocks!r}"
        )
    return rows
