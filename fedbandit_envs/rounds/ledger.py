"""What communication costs: derived from the messages, never self-reported."""

from typing import Any

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.protocol.messages import Cost, Message, summed_over_rows

DIRECTIONS = ("up", "down", "peer")
COUNTS = tuple(f"{what}_{direction}" for what in ("messages", "scalars", "bytes") for direction in DIRECTIONS)
_COLUMN = {name: column for column, name in enumerate(COUNTS)}
_MOST_WAITING = 256  # messages that wait to be added up, to bound memory
_MOST_BYTES = 2**17  # the most bytes that masks and agents of waiting messages may take, to bound memory too


class Ledger:
    """Rounds, messages, scalars and bytes of a run; up, down and between peers apart; per agent and per round.

    Scalars are the entries present in a message, bytes are scalars times their size; masks, kinds and ids are free. A
    broadcast is charged once for each receiving agent. What crosses between peers is charged to the receiver, once for
    each edge and direction in which it arrives. A run leaves its ledger in `history.ledger`.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=100)
    >>> ledger = fb.play(env, fb.make_policy("Fed-PECD"), seed=0).ledger
    >>> ledger.rounds, ledger.scalars_up, ledger.scalars_down
    (10, 916, 3250)
    """

    def __init__(self, num_agents: int):
        self._added_up: IntArray = np.zeros((num_agents, len(COUNTS)), dtype=np.int64)
        # What was charged since then: the direction, the agents (None: all), how many messages, and what these cost.
        self._waiting: list[tuple[int, IntArray | None, IntArray | int, tuple[Cost, ...]]] = []
        self._bytes = 0
        self._rounds: list[list[int]] = []

    def __repr__(self) -> str:
        peers = ("scalars_peer", "bytes_peer") if self.scalars_peer else ()
        names = ("rounds", "messages", "scalars_up", "scalars_down", "bytes_up", "bytes_down", *peers)
        return f"Ledger({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    @property
    def per_agent(self) -> IntArray:
        """(M, len(COUNTS)): COUNTS of each agent."""
        self._add_up()
        return self._added_up.copy()

    @property
    def rounds(self) -> int:
        """The number of rounds in which agents spoke."""
        return len(self._rounds)

    @property
    def per_round(self) -> IntArray:
        """(rounds, 1 + len(COUNTS)): the step at which the round took place, then COUNTS summed over agents."""
        return np.array(self._rounds, dtype=np.int64).reshape(-1, 1 + len(COUNTS))

    def open_round(self, step: int) -> None:
        """Begin a new round after `step` steps."""
        self._rounds.append([step, *[0] * len(COUNTS)])

    def charge(self, message: Message, direction: str) -> None:
        """Charge the agents of `message`, or all agents for a broadcast; `direction` is "up" or "down"."""
        receivers = len(self._added_up) if message.agents is None else 1  # a broadcast is charged to every agent
        total = receivers if message.agents is None else len(message.agents)
        self._charge(DIRECTIONS.index(direction), message, receivers, 1, total)

    def charge_peers(self, message: Message, arrived: IntArray) -> None:
        """Charge what agents received from their neighbours.

        Args:
            message: what arrived; its agents are the receivers.
            arrived: (n,) from how many neighbours each of them received something.
        """
        self._charge(DIRECTIONS.index("peer"), message, 1, arrived, int(arrived.sum()))

    def _charge(self, column: int, message: Message, receivers: int, messages: IntArray | int, total: int) -> None:
        """Charge a message to a direction; `messages` is the number for each row, `total` that of all."""
        totals, directions = self._rounds[-1], len(DIRECTIONS)
        totals[1 + column] += total
        for cost in message.costs:
            scalars = receivers * cost.scalars
            totals[1 + directions + column] += scalars
            totals[1 + 2 * directions + column] += scalars * cost.itemsize
            if cost.mask is not None:
                self._bytes += cost.mask.nbytes
        if message.agents is not None and self._waiting and message.agents is not self._waiting[-1][1]:
            self._bytes += message.agents.nbytes  # mostly all messages name the same array
        self._waiting.append((column, message.agents, messages, message.costs))
        if len(self._waiting) >= _MOST_WAITING or self._bytes >= _MOST_BYTES:
            self._add_up()

    def _add_up(self) -> None:
        """Add what waits to the numbers of each agent."""
        for column, agents, messages, costs in self._waiting:
            everybody = agents is None or len(agents) == len(self._added_up)
            rows = slice(None) if everybody else agents
            scalars, sizes = summed_over_rows(costs, 1 if agents is None else len(agents))
            self._added_up[rows, column] += messages
            self._added_up[rows, len(DIRECTIONS) + column] += scalars
            self._added_up[rows, 2 * len(DIRECTIONS) + column] += sizes
        self._waiting, self._bytes = [], 0

    def _total(self, name: str) -> int:
        return sum(totals[1 + _COLUMN[name]] for totals in self._rounds)

    @property
    def messages(self) -> int:
        """Messages in all directions."""
        return self.messages_up + self.messages_down + self.messages_peer

    @property
    def scalars(self) -> int:
        """Scalars in all directions."""
        return self.scalars_up + self.scalars_down + self.scalars_peer

    @property
    def messages_up(self) -> int:
        """Messages from agents to server."""
        return self._total("messages_up")

    @property
    def messages_down(self) -> int:
        """Messages from server to agents."""
        return self._total("messages_down")

    @property
    def scalars_up(self) -> int:
        """Scalars from agents to server."""
        return self._total("scalars_up")

    @property
    def scalars_down(self) -> int:
        """Scalars from server to agents."""
        return self._total("scalars_down")

    @property
    def bytes_up(self) -> int:
        """Bytes from agents to server."""
        return self._total("bytes_up")

    @property
    def bytes_down(self) -> int:
        """Bytes from server to agents."""
        return self._total("bytes_down")

    @property
    def messages_peer(self) -> int:
        """Messages between agents, one for each edge and direction."""
        return self._total("messages_peer")

    @property
    def scalars_peer(self) -> int:
        """Scalars between agents."""
        return self._total("scalars_peer")

    @property
    def bytes_peer(self) -> int:
        """Bytes between agents."""
        return self._total("bytes_peer")

    def copy(self) -> "Ledger":
        """The ledger as it is now."""
        ledger = Ledger(len(self._added_up))
        ledger._added_up[:] = self._added_up
        ledger._waiting, ledger._bytes = self._waiting.copy(), self._bytes
        ledger._rounds = [totals.copy() for totals in self._rounds]
        return ledger

    def snapshot(self) -> dict[str, Any]:
        """The ledger as plain arrays."""
        return {"per_agent": self.per_agent, "per_round": self.per_round}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Ledger":
        """The ledger of a `snapshot`."""
        ledger = cls(len(state["per_agent"]))
        ledger._added_up[:] = state["per_agent"]
        ledger._rounds = [list(map(int, row)) for row in state["per_round"]]
        return ledger
