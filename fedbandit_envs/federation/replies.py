"""Replies of clients, which are bytes from outside: what can be checked about them without knowing the policy."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.federation.client import HELLO, MISSING, PLAY
from fedbandit_envs.federation.texts import shown
from fedbandit_envs.federation.wire import WireError, most_bytes, not_finite, unpack
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.rounds.faults import QuorumLost


class ReplyError(ValueError):
    """A reply can't be used; the message says what was expected and what the client sent."""


@dataclass(frozen=True, eq=False)
class Reply:
    """A reply whose form is right. Whether its content is right, only the server can find out."""

    verb: str  #: PLAY, HELLO or MISSING
    agents: IntArray  #: the numbers of the agents for which the client speaks
    turn: int  #: the turn that was played last, for MISSING the turn that the client needs next, for HELLO 0
    length: int  #: the number of steps that the turn took
    message: Message | None  #: the report; None: nothing to say


def read_reply(packet: Mapping[str, Any], constants: Constants) -> Reply:
    """The reply in a packet.

    Args:
        packet: the packet, as bytes from outside.
        constants: the public numbers of the problem.

    Raises:
        ReplyError: the packet is unreadable, or it holds numbers that no honest client sends.

    >>> from fedbandit_envs.federation.wire import pack
    >>> sizes = {"num_agents": 3, "num_arms": 4, "dim": 2, "horizon": 100}
    >>> constants = Constants(**sizes, ell=0.5, L=1.0, noise_std=1.0, context="fixed")
    >>> read_reply(pack({"verb": "play", "turn": 2, "length": 8, "agents": [1]}, [None]), constants).length
    8
    >>> read_reply(pack({"verb": "play", "turn": 2, "length": 8, "agents": [17]}, [None]), constants)
    Traceback (most recent call last):
        ...
    fedbandit_envs.federation.replies.ReplyError: agents: expected numbers from 0 to 2, got 17
    """
    most = most_bytes(constants, constants.num_agents)
    try:
        header, messages = unpack(packet, most, 1)
    except WireError as error:
        raise ReplyError(f"unreadable: {error}") from error
    verb = header.get("verb")
    if verb not in (PLAY, HELLO, MISSING):
        raise ReplyError(f"unreadable: expected a verb among {PLAY}, {HELLO}, {MISSING}, got {str(verb)[:20]!r}")
    agents = _agents(header.get("agents"), constants)
    turn = 0 if verb == HELLO else _number("turn", header.get("turn"))
    length = _number("length", header.get("length")) if verb == PLAY else 0
    message = messages[0] if len(messages) else None
    if message is not None:
        if message.agents is None or not np.isin(message.agents, agents).all():
            got = "all agents" if message.agents is None else message.agents.tolist()
            raise ReplyError(f"rows: expected those of its own agents {agents.tolist()}, got those of {got}")
        if len(np.unique(message.agents)) < len(message.agents):
            raise ReplyError(f"rows: expected one for each agent, got those of {message.agents.tolist()}")
        if (name := not_finite(message)) is not None:
            raise ReplyError(f"sent NaN or infinity in {name}")
        if not len(message.agents):
            message = None
    return Reply(verb, agents, turn, length, message)


def _agents(value: Any, constants: Constants) -> IntArray:
    if not isinstance(value, list) or not value or len(value) > constants.num_agents:
        raise ReplyError(f"unreadable: expected a list of its agents' numbers, got {str(value)[:20]!r}")
    for agent in value:
        if not isinstance(agent, int) or isinstance(agent, bool) or not 0 <= agent < constants.num_agents:
            raise ReplyError(f"agents: expected numbers from 0 to {constants.num_agents - 1}, got {str(agent)[:20]}")
    if len(set(value)) < len(value):
        raise ReplyError(f"agents: expected each of them once, got {value}")
    return np.array(value, dtype=np.int64)


def _number(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise ReplyError(f"unreadable: expected a whole number for {name}, got {str(value)[:20]!r}")
    return value


def agreed(
    replies: dict[str, Reply],
    failed: dict[str, str],
    name: str,
    of: Callable[[Reply], Any],
    accepts: Callable[[Message | None], bool] = lambda _: True,
) -> None:
    """Move the replies that differ from the others to `failed`.

    Args:
        replies: the replies by key; those that differ are removed.
        failed: the reasons by key, to which a reason is added for each reply that is removed.
        name: what is compared, for the reason.
        of: the value that must be the same in all replies; None: this reply is not compared.
        accepts: whether the server can take a message. Of the values with such a message, the one that most agents have
            is right.
    """
    groups: dict[Any, list[str]] = defaultdict(list)
    for key, reply in replies.items():
        groups[of(reply)].append(key)
    groups.pop(None, None)
    if len(groups) < 2:
        return
    ranked = sorted(groups.values(), key=lambda keys: -sum(len(replies[key].agents) for key in keys))
    right = next((keys for keys in ranked if any(accepts(replies[key].message) for key in keys)), ranked[0])
    expected = of(replies[right[0]])
    for key in [key for keys in ranked if keys is not right for key in keys]:
        failed[key] = shown(f"{name}: expected {expected} as most others have, got {of(replies[key])}")
        del replies[key]


def agreed_length(replies: dict[str, Reply], failed: dict[str, str]) -> None:
    """Move the replies to `failed` whose turn has another length than that of most agents.

    A wrong length would end the run for everybody, so one that just half of the agents have is not believed.

    Raises:
        QuorumLost: no length is that of more than half of the agents that were heard.
    """
    agents: dict[int, int] = defaultdict(int)
    for reply in replies.values():
        agents[reply.length] += len(reply.agents)
    heard = sum(agents.values())
    if heard and 2 * max(agents.values()) <= heard:
        found = ", ".join(f"{length} steps from {number}" for length, number in sorted(agents.items())[:10])
        raise QuorumLost(
            f"length of the plan: expected the same from more than half of the {heard} agents that were heard, got "
            f"{found}; find the client that is wrong, and leave it out"
        )
    agreed(replies, failed, "length of the plan", lambda reply: reply.length)


def form(reply: Reply) -> Any:
    """The form of a reply's message, which must be the same for all clients; None: the client has nothing to say."""
    message = reply.message
    if message is None:
        return None
    arrays = sorted((name, array.dtype.str, array.shape[1:]) for name, array in message.arrays.items())
    masks = sorted((name, mask.shape[1:]) for name, mask in message.present.items())
    return message.kind, tuple(arrays), tuple(masks)
