"""Carrying reports where the server is spread over the shards: the driver answers what needs all agents."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from fedbandit_envs.joint import Joint
from fedbandit_envs.protocol.messages import Message, State
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.rounds.carrier import Carrier, Delivery
from fedbandit_envs.rounds.faults import Fault, faults_tree
from fedbandit_envs.rounds.ledger import Ledger
from fedbandit_envs.shards.keeper import Keeper
from fedbandit_envs.shards.packing import messages_of
from fedbandit_envs.shards.server_part import HandOver, joined_ledgers, joined_states


class ViaShards:
    """Lets the parts of a server in the shards answer their agents; it carries what they ask of all agents.

    At the first report that the parts can't answer, because it is refused or missing, it makes a server here from their
    states. From then on that server answers all reports, as in a run in which it was never spread.

    Args:
        keepers: the shards.
        make: makes the carrier with a server here.
    """

    def __init__(self, keepers: Sequence[Keeper], make: Callable[[], Carrier]):
        self._keepers, self._make = keepers, make
        self._here: Carrier | None = None
        self.lost: list[Fault] = []

    @property
    def ledger(self) -> Ledger:
        """What has crossed so far."""
        if self._here is not None:
            return self._here.ledger
        for keeper in self._keepers:
            keeper.look("ledger")
        return Ledger.restored(joined_ledgers([keeper.answer() for keeper in self._keepers]))

    def exchange(self, reports: Sequence[Message | None], step: int) -> Delivery:
        """Carry the reports of the agents of all shards after `step` steps."""
        if self._here is not None:
            return self._here.exchange(reports, step)
        for keeper in self._keepers:
            keeper.ask("consult", step)
        found = self._answered()
        while isinstance(found[0], Joint):
            for keeper, answer in zip(self._keepers, _answers(found), strict=True):
                keeper.ask("go_on", answer)
            found = self._answered()
        return Delivery() if found[0] is None else self._take_over(found, step)

    def _answered(self) -> list[Any]:
        return [keeper.answer() for keeper in self._keepers]

    def _take_over(self, found: Sequence[HandOver], step: int) -> Delivery:
        """Make the server here from its parts, and carry to it what they could not answer."""
        server, ledger = joined_states([own.server for own in found]), joined_ledgers([own.ledger for own in found])
        self.restore({"spread": False, "server": server, "ledger": ledger, "faults": faults_tree([])})
        assert self._here is not None
        return self._here.exchange(messages_of([own.up for own in found]), step)

    def snapshot(self) -> State:
        """The state as a tree of plain arrays; parts of the server are in the states of their shards."""
        return {"spread": True} if self._here is None else {"spread": False, **self._here.snapshot()}

    def restore(self, state: State) -> None:
        """Take over a state; the other side of `snapshot`."""
        self._here = None
        if not state.get("spread"):  # also where a run that is recorded goes on without
            self._here = self._make()
            self._here.restore(state)
            self.lost = self._here.lost


def _answers(asked: list[Joint]) -> list[Any]:
    """The answer for each shard, from what all of them ask at the same time; `asked` is emptied to free memory."""
    if not all(isinstance(joint, Joint) and joint.function is asked[0].function for joint in asked):
        raise ProtocolError(
            "answering: expected the parts of a server in all shards to ask the same, got different questions; let "
            "nothing but answers decide what is asked"
        )
    function, _, common, each = asked[0]
    parts = [list(joint.parts) for joint in asked]
    counts, every = [len(own) for own in parts], iter([part for own in parts for part in own])
    asked.clear()
    parts.clear()
    found = function(every, *common)
    if not each:
        return [found] * len(counts)
    return [found[end - count : end] for count, end in zip(counts, accumulate(counts), strict=True)]
