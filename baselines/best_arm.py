"""Best-arm identification by many agents: Multi-Round."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedbandit_baselines.multi_armed_ucb import known_noise
from fedbandit_baselines.pooled_elimination import PooledElimination
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.ties import JUST_WHOLE
from fedbandit_envs.validation import check_fields, checked, optional, probability, real_number


@dataclass(frozen=True)
class MultiRound(PooledElimination):
    """Best-arm identification in few rounds: k agents find an arm whose mean is within epsilon of the best.

    Use it where one good arm is wanted, and rounds are few. It is judged by the recommended arm (`history.recommended`,
    `history.simple_regret()`) and by the pulls until agents settle; cumulative regret is not what it is made for.
    The paper proves that the arm is within epsilon of the best with probability 1 - delta, where all agents have the
    same means. No bound on regret is promised, and none where reports are lost.
    Reference: Hillel, Karnin, Koren, Lempel and Somekh, Distributed Exploration in Multi-Armed Bandits, NIPS 2013; its
    rewards in [0, 1] have sigma = 1/2 here.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", means=[0.7, 0.5, 0.5], rewards="bernoulli", max_cycles=5_000)
    >>> history = fb.play(env, fb.make_policy("Multi-Round"), seed=0)
    >>> history.recommended[-1].tolist() == [0] * 20, float(history.simple_regret()[-1].max())
    (True, 0.0)
    """

    drops_ties: ClassVar[bool] = False

    delta: float = checked(0.1, probability)  #: allowed probability of a wrong answer
    epsilon: float = checked(0.1, real_number, above=0)  #: how far below the best the mean of the answer may be
    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def time(self, phase: int, constants: Constants) -> float:
        """t_r, how often an agent has pulled each arm that is left after round r; t_0 = 0."""
        if phase == 0:
            return 0.0
        scale = (2 * known_noise(self.sigma, constants)) ** 2 * 2 / constants.num_agents
        return scale * 4.0**phase * math.log(4 * constants.num_arms * phase**2 / self.delta)

    def pulls(self, phase: int, constants: Constants) -> int:
        """t_r - t_{r-1}, where both are rounded up, and t_1 is at least 1."""
        until, since = (math.ceil(self.time(r, constants) * JUST_WHOLE) for r in (phase, phase - 1))
        return max(until, 1) - (max(since, 1) if phase > 1 else 0)

    def radii(self, phase: int, eta: FloatArray, clients: IntArray, constants: Constants) -> FloatArray:
        """Half of e_r for every arm: two intervals are apart if the averages differ by more than e_r."""
        return np.full(len(eta), 0.5**phase / 2)

    def is_last(self, phase: int, constants: Constants) -> bool:
        """Whether e_r <= epsilon / 2."""
        return 0.5**phase <= self.epsilon / 2
