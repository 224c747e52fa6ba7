"""What communication costs: derived from the messages, never self-reported."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.protocol.messages import Message, in_rows

COUNTS = ("messages_up", "messages_down", "scalars_up", "scalars_down", "bytes_up", "bytes_down")


_MOST_MASKS = 8  # kinds of masks that are counted entry by entry, before they are added up


_COLUMN = {name: column for column, name in enumerate(COUNTS)}


class Ledger:
    """Rounds, messages, scalars and bytes; up and down apart; per agent and per round.

    Scalars are the entries present in a message, bytes are scalars times their size; masks, kinds and ids are free. A
    broadcast is charged once for each receiving agent.
    """

    def __init__(self, num_agents: int):
        self._alike = [0] * len(COUNTS)  # what every agent was charged, and
        self._apart: IntArray = np.zeros((len(COUNTS), num_agents), dtype=np.int64)  # what some were beside that, and
        # how often each entry of a mask was sent, by its direction, the scalars and bytes of each, and the mask's shape
        self._masked: dict[tuple[int, int, int, tuple[int, ...]], NDArray[np.int32]] = {}
        self._rounds: list[list[int]] = []

    @property
    def per_agent(self) -> IntArray:
        """(M, len(COUNTS)): COUNTS of each agent."""
        self._add_up_masks()
        return self._apart.T + self._alike

    def __repr__(self) -> str:
        names = ("rounds", "messages", "scalars_up", "scalars_down", "bytes_up", "bytes_down")
        return f"Ledger({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    @property
    def rounds(self) -> int:
        """How often agents spoke to the server."""
        return len(self._rounds)

    @property
    def per_round(self) -> IntArray:
        """(rounds, 1 + len(COUNTS)): the step at which the round took place, then COUNTS summed over agents."""
        return np.array(self._rounds, dtype=np.int64).reshape(-1, 1 + len(COUNTS))

    def open_round(self, step: int) -> None:
        """A new round begins after `step` steps."""
        self._rounds.append([step, *[0] * len(COUNTS)])

    def charge(self, message: Message, direction: str) -> None:
        """Charge the agents of `message`, or all agents for a broadcast."""
        agents, alike, apart, totals = message.agents, self._alike, self._apart, self._rounds[-1]
        num_agents = apart.shape[1]
        everyone = agents is None or len(agents) == num_agents
        column = 0 if direction == "up" else 1  # COUNTS has the two directions by turns
        totals[1 + column] += num_agents if agents is None else len(agents)
        if everyone:
            alike[column] += 1
        else:
            apart[column, agents] += 1
        for mask, each, sent, size in message.costs:
            total = sent * num_agents if agents is None else sent
            totals[3 + column] += total
            totals[5 + column] += total * size
            if mask is not None and agents is not None:
                times = self._times((column, each, size, (num_agents, *mask.shape[1:])))
                if everyone:
                    times += mask
                else:
                    times[agents] += mask
            elif everyone:
                alike[2 + column] += sent if agents is None else each
                alike[4 + column] += (sent if agents is None else each) * size
            else:
                apart[2 + column, agents] += each
                apart[4 + column, agents] += each * size

    def _times(self, key: tuple[int, int, int, tuple[int, ...]]) -> NDArray[np.int32]:
        if key not in self._masked:
            if len(self._masked) >= _MOST_MASKS:
                self._add_up_masks()
            self._masked[key] = np.zeros(key[-1], dtype=np.int32)
        return self._masked[key]

    def _add_up_masks(self) -> None:
        for (column, each, size, _), times in self._masked.items():
            scalars = each * in_rows(times, len(times))
            self._apart[column + 2] += scalars
            self._apart[column + 4] += scalars * size
        self._masked = {}

    def _total(self, name: str) -> int:
        return sum(totals[1 + _COLUMN[name]] for totals in self._rounds)

    @property
    def messages(self) -> int:
        """Messages in both directions."""
        return self._total("messages_up") + self._total("messages_down")

    @property
    def scalars(self) -> int:
        """Scalars in both directions."""
        return self.scalars_up + self.scalars_down

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

    def copy(self) -> "Ledger":
        """The ledger as it is now."""
        self._add_up_masks()
        ledger = Ledger(self._apart.shape[1])
        ledger._alike = self._alike.copy()
        ledger._apart[:] = self._apart
        ledger._rounds = [totals.copy() for totals in self._rounds]
        return ledger

    def snapshot(self) -> dict[str, Any]:
        """The ledger as plain arrays."""
        return {"per_agent": self.per_agent, "per_round": self.per_round}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "Ledger":
        """The ledger of a `snapshot`."""
        ledger = cls(len(state["per_agent"]))
        ledger._apart[:] = state["per_agent"].T
        ledger._rounds = [list(map(int, row)) for row in state["per_round"]]
        return ledger
