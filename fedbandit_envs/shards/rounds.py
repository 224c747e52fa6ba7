"""The driver of a run over shards: the same rounds, with another agents' part."""

from typing import Any, NoReturn

import numpy as np
from pettingzoo import ParallelEnv

from fedbandit_envs import arrays
from fedbandit_envs.envs.parallel import HiddenContextBandit, Observation
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.carrier import Carrier
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.loop import CommunicationRounds
from fedbandit_envs.shards.bandit import borders
from fedbandit_envs.shards.hosts import host_of
from fedbandit_envs.shards.part import ShardedPart
from fedbandit_envs.shards.spread import ViaShards


class ShardedRounds(CommunicationRounds):
    """Plays a policy round by round, with the agents in shards and all else in this process.

    Where the server is a `SpreadServer` and every report arrives unchanged, shards hold their parts of it too.
    It is a context manager, which ends the shards at its end. `play(..., shards=N)` is the short way to a whole run.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200)
    >>> with ShardedRounds(env, fb.make_policy("Fed-PECD"), shards=2, executor="serial") as rounds:
    ...     rounds.start(seed=0)
    ...     rounds.finish()
    ...     rounds.history().ledger.rounds
    14

    Args:
        env: a HiddenContextBandit without wrappers.
        policy: what plays.
        shards: the number of shards.
        executor: where they live: "processes", "ray", "ray:ADDRESS", or "serial" for this process.
        record: keep every message, plan and feedback, and the truth.
        faults: reports that are lost, or changed, on their way; None: none.
        network: who can talk to whom, for policies that talk to peers.
    """

    def __init__(
        self,
        env: ParallelEnv[str, Observation, int],
        policy: Policy,
        *,
        shards: int,
        executor: str = "processes",
        record: bool = False,
        faults: Faults | None = None,
        network: Any = None,
    ):
        if type(env) is not HiddenContextBandit:
            raise ValueError(
                f"env: expected a HiddenContextBandit without wrappers for shards, got {type(env).__name__}; "
                "each shard makes its own part of the environment, where wrappers would see nothing, and agents can't "
                "share arms"
            )
        super().__init__(env, policy, record=record, faults=faults, network=network)
        self._shards = borders(len(env.possible_agents), shards)
        self._blocks = [np.arange(*border) for border in self._shards]
        self._kind, address = host_of(executor)
        self._session = self._kind.session(address)
        self._seed = 0

    def __enter__(self) -> "ShardedRounds":
        self._session.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._end_shards()
        self._session.__exit__(*error)

    def _end_shards(self) -> None:
        part = getattr(self, "_part", None)
        if isinstance(part, ShardedPart):
            part.close()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> NoReturn:
        """Refuse, because the driver of shards has no observations to return."""
        raise ValueError("reset: expected start(seed) for a run over shards, whose driver has no observations")

    def start(self, seed: int | None = None) -> None:
        """Start a new run with this seed, or with that of the environment's next episode."""
        self._end_shards()
        self._seed = self.bandit.next_seed(seed)  # type: ignore[attr-defined]
        self._begin()

    @property
    def seed(self) -> int:
        """The seed of the episode."""
        return self._seed

    def _make_part(self) -> ShardedPart:
        """The agents of the run: in shards."""
        assert isinstance(self.bandit, HiddenContextBandit)
        # Sums go by groups of rows, which shards must not split. Who loses, changes or records messages must see them.
        whole_groups = all(first % arrays.ROWS == 0 for first, _ in self._shards)
        spread = whole_groups and self._faults in (None, Faults()) and not self._record
        return ShardedPart(self.bandit, self.policy, self._seed, self._shards, self._kind, self._record, spread)

    def _make_carrier(self) -> Carrier:
        """Who carries reports: to the parts of the server in the shards, or to a server here."""
        assert isinstance(self._part, ShardedPart)
        return ViaShards(self._part.keepers, super()._make_carrier) if self._part.spread else super()._make_carrier()
