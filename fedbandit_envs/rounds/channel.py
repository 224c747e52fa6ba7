"""How messages travel between agents and server: merged, sorted by agent, checked and charged."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedbandit_envs.arrays import BoolArray, IntArray
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.rounds.ledger import Ledger


@dataclass
class Channel:
    """Carries messages between blocks of agents and the server, and charges the ledger for them."""

    num_agents: int  #: the number of agents of the whole problem, M
    ledger: Ledger  #: what has crossed so far
    # The last `agents` that were found to be in rising order. Messages mostly name the same array, which is immutable.
    _in_order: IntArray | None = field(default=None, init=False, repr=False, compare=False)

    def up(
        self,
        messages: Sequence[Message | None],
        step: int,
        arriving: BoolArray | None = None,
    ) -> Message | None:
        """The blocks' messages as one, sorted by agent; None, and no round, when nobody speaks.

        `arriving` (M,) says whose messages are not lost on the way; None: all of them. What is lost is not charged, and
        a round in which everything is lost gives None too.
        """
        merged = self.collected(messages)
        if merged is None:
            return None
        self.ledger.open_round(step)
        if arriving is not None:
            merged = merged.rows(arriving[_senders(merged)])
            if not len(_senders(merged)):
                return None
        self.ledger.charge(merged, "up")
        return merged

    def collected(self, messages: Sequence[Message | None]) -> Message | None:
        """The blocks' messages as one, sorted by agent, without a charge; None when nobody speaks."""
        spoken = [message for message in messages if message is not None and len(_senders(message))]
        if not spoken:
            return None
        return self._sorted(spoken[0] if len(spoken) == 1 else _merged(spoken))

    def down(self, message: Message | None) -> Message | None:
        """The server's answer, sorted by agent and charged to whoever receives it; None when nobody does."""
        if message is None:
            return None
        _check_type(message, "server.answer")
        message = self._sorted(message)
        _check_finite(message)
        if message.agents is not None and not len(message.agents):
            return None
        self.ledger.charge(message, "down")
        return message

    def _sorted(self, message: Message) -> Message:
        """The message with its rows in the order of the agents, each of whom may have one."""
        if message.agents is None:
            return message
        agents, order = message.agents, None
        if agents is self._in_order:
            return message
        rising = _rising(agents)
        if not rising:
            order = np.argsort(agents, kind="stable")
            agents = agents[order]
            rising = _rising(agents)
        if len(agents) and (not rising or agents[0] < 0 or agents[-1] >= self.num_agents):
            raise ProtocolError(
                f"message {message.kind!r}: expected different agents from 0 to {self.num_agents - 1}, got "
                f"{message.agents}; agents speak for themselves alone: pass agents=view.agents or some of them"
            )
        if order is None:
            self._in_order = agents
            return message
        return message.rows(order)


def _rising(numbers: IntArray) -> bool:
    return bool(np.count_nonzero(numbers[1:] > numbers[:-1]) >= len(numbers) - 1)


def _check_type(message: object, verb: str) -> None:
    if not isinstance(message, Message):
        raise ProtocolError(f"{verb}: expected a Message or None, got {type(message).__name__}; return one of these")


def _check_finite(message: Message) -> None:
    """Refuse an answer with NaN or infinity, which would spoil what every agent knows."""
    for name, array in message.arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            bad = array[~np.isfinite(array)][0]
            raise ProtocolError(
                f"server.answer, {name!r} of message {message.kind!r}: expected finite numbers, got {bad}; leave out "
                "what is unknown with a mask in present, and refuse reports that can't be in `refuses`"
            )


def _senders(message: Message) -> IntArray:
    _check_type(message, "agents.report")
    if message.agents is None:
        raise ProtocolError(
            f"message {message.kind!r}: expected the agents it comes from, got None; pass agents=view.agents"
        )
    return message.agents


def _merged(messages: list[Message]) -> Message:
    first = messages[0]
    for message in messages[1:]:
        if (message.kind, set(message.arrays), set(message.present)) != (
            first.kind,
            set(first.arrays),
            set(first.present),
        ):
            raise ProtocolError(
                f"messages of one round: expected one kind with the same arrays, got {first.kind!r} with "
                f"{sorted(first.arrays)} and {message.kind!r} with {sorted(message.arrays)}; what an agent says may "
                "depend on the round, not on the agent"
            )
    return Message.of_own(
        first.kind,
        {name: np.concatenate([message[name] for message in messages]) for name in first.arrays},
        np.concatenate([message.agents for message in messages if message.agents is not None]),
        {name: np.concatenate([message.present[name] for message in messages]) for name in first.present},
    )
