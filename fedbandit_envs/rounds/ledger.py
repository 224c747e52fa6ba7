"""What communication costs: derived from the messages, never self-reported."""

from typing import Any

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.protocol.messages import Cost, Message, summed_over_rows

COUNTS = ("messages_up", "messages_down", "scalars_up", "scalars_down", "bytes_up", "bytes_down")
_COLUMN = {name: column for column, name in enumerate(COUNTS)}
_MOST_WAITING = 256  # messages that wait to be added up, to bound memory


class Ledger:
    """Rounds, messages, scalars and bytes of a run; up and down apart; per agent and per round.

    Scalars are the entries present in a message, bytes are scalars times their size; masks, kinds and ids are free. A
    broadcast is charged once for each receiving agent. A run leaves its ledger in `history.ledger`.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=100)
    >>> ledger = fb.play(env, fb.make_policy("Fed-PECD"), seed=0).ledger
    >>> ledger.rounds, ledger.scalars_up, ledger.scalars_down
    (10, 916, 3250)
    """

    def __init__(self, num_agents: int):
        self._added_up: IntArray = np.zeros((num_agents, len(COUNTS)), dtype=np.int64)
        # What was charged since then: the direction, the agents (None: all) and the costs of each message.
        self._waiting: list[tuple[int, IntArray | None, tuple[Cost, ...]]] = []
        self._rounds: list[list[int]] = []

    def __repr__(self) -> str:
        names = ("rounds", "messages", "scalars_up", "scalars_down", "bytes_up", "bytes_down")
        return f"Ledger({', '.join(f'{name}={getattr(self, name)}' for name in names)})"

    @property
    def per_agent(self) -> IntArray:
        """(M, len(COUNTS)): COUNTS of each agent."""
        self._add_up()
        return self._added_up.copy()

    @property
    def rounds(self) -> int:
        """The number of rounds in which agents spoke to the server."""
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
        column = 0 if direction == "up" else 1  # COUNTS has the two directions by turns
        receivers = len(self._added_up) if message.agents is None else 1  # a broadcast is charged to every agent
        totals = self._rounds[-1]
        totals[1 + column] += receivers if message.agents is None else len(message.agents)
        for cost in message.costs:
            totals[3 + column] += receivers * cost.scalars
            totals[5 + column] += receivers * cost.scalars * cost.itemsize
        self._waiting.append((column, message.agents, message.costs))
        if len(self._waiting) >= _MOST_WAITING:
            self._add_up()

    def _add_up(self) -> None:
        """Add what waits to the numbers of each agent."""
        for column, agents, costs in self._waiting:
            rows = slice(None) if agents is None else agents
            scalars, sizes = summed_over_rows(costs, 1 if agents is None else len(agents))
            self._added_up[rows, column] += 1
            self._added_up[rows, 2 + column] += scalars
            self._added_up[rows, 4 + column] += sizes
        self._waiting = []

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
        ledger = Ledger(len(self._added_up))
        ledger._added_up[:] = self._added_up
        ledger._waiting = self._waiting.copy()
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
