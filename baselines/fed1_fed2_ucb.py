"""Fed1-UCB and Fed2-UCB: federated multi-armed bandits whose agents sample one common bandit."""

import math
from dataclasses import dataclass

import numpy as np

from fedbandit_baselines.multi_armed_ucb import known_noise
from fedbandit_baselines.pooled_elimination import PooledElimination
from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.ties import JUST_WHOLE
from fedbandit_envs.validation import check_fields, checked, optional, real_number, whole_number


@dataclass(frozen=True)
class Fed1UCB(PooledElimination):
    """Federated elimination for the arm that is best on average over these agents, from all of them at once.

    In each phase every agent pulls each arm that is left `pulls_per_phase` times and sends its means. The server drops
    an arm if its average over agents + B is at most the largest average - B, with B = sqrt(noise_scale sigma^2 ln T /
    (M F)), where F are the pulls of an arm by one agent so far. Use it where one arm is wanted for all agents, and
    judge it by `group_regret`: agents whose own best arm is another one pay for that.
    The paper proves group regret of the order ln T, for noise with a known sigma and the default noise_scale. Nothing
    is promised for regret by an agent's own means.
    Reference: Shi and Shen, Federated Multi-Armed Bandits, AAAI 2021; the authors' program has noise_scale = 4.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=5, max_cycles=20_000)
    >>> history = fb.play(env, fb.make_policy("Fed1-UCB"), seed=0)
    >>> history.ledger.rounds, history.active[-1].max()
    (29, np.int64(1))
    """

    #: f, how often an agent pulls each arm in a phase; None: 10 ln T
    pulls_per_phase: int | None = checked(None, optional(whole_number), at_least=1)
    noise_scale: float = checked(6.0, real_number, at_least=0)  #: the factor under the root of the width B
    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def pulls(self, phase: int, constants: Constants) -> int:
        """f(p), the same in each phase."""
        if self.pulls_per_phase is not None:
            return self.pulls_per_phase
        return max(math.ceil(10 * math.log(constants.horizon) * JUST_WHOLE), 1)

    def radii(self, phase: int, eta: FloatArray, clients: IntArray, constants: Constants) -> FloatArray:
        """B from the noise of the rewards alone; eta = 1 / (M F) when all agents are heard."""
        sigma = known_noise(self.sigma, constants)
        return np.sqrt(self.noise_scale * sigma**2 * math.log(constants.horizon) * eta)


@dataclass(frozen=True)
class Fed2UCB(PooledElimination):
    """Federated elimination for the arm that is best in a population of which the agents are a sample.

    Use it where new agents can join: they are admitted in waves, and more agents make their average closer to the mean
    of the population. Judge it by `distribution_regret`. With too few agents exploration never ends.
    The paper proves `distribution_regret` of the order ln T if new agents can be admitted in every phase. Here there
    are M agents and no more, so this is promised only if exploration ends before all are admitted.
    Reference: Shi and Shen, Federated Multi-Armed Bandits, AAAI 2021; the authors' program has other scales.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/MultiArmed-v0", num_agents=30, local_std=0.05, max_cycles=5_000)
    >>> history = fb.play(env, fb.make_policy("Fed2-UCB"), seed=0)
    >>> history.ledger.messages_up  # 2, 6 and 14 agents speak, and then all of them in each phase
    142
    """

    pulls_per_phase: int = checked(100, whole_number, at_least=1)  #: f, how often an agent pulls each arm in a phase
    growth: int = checked(2, whole_number, at_least=1)  #: growth^p agents are new in phase p
    noise_scale: float = checked(6.0, real_number, at_least=0)  #: the factor under the root of B's first term
    client_scale: float = checked(6.0, real_number, at_least=0)  #: the factor under the root of B's second term
    #: noise scale that the bounds assume; None: that of the problem
    sigma: float | None = checked(None, optional(real_number), at_least=0)
    #: sigma_c, how far the agents' means are from the population's; None: what the problem guarantees, or else sigma
    local_std: float | None = checked(None, optional(real_number), at_least=0)

    def __post_init__(self) -> None:
        check_fields(self)

    def pulls(self, phase: int, constants: Constants) -> int:
        """f(p), the same in each phase."""
        return self.pulls_per_phase

    def num_admitted(self, phase: int, constants: Constants) -> int:
        """M(p), at most all agents."""
        admitted = 0
        for wave in range(1, phase + 1):
            admitted += self.growth**wave
            if admitted >= constants.num_agents:
                return constants.num_agents
        return admitted

    def radii(self, phase: int, eta: FloatArray, clients: IntArray, constants: Constants) -> FloatArray:
        """B_{p,2}: the noise of the rewards, and the differences between agents."""
        sigma, local_std, log = (
            known_noise(self.sigma, constants),
            self._local_std(constants),
            math.log(constants.horizon),
        )
        noise = np.sqrt(self.noise_scale * sigma**2 * log * eta)
        return noise + np.sqrt(self.client_scale * local_std**2 * log / np.maximum(clients, 1))

    def _local_std(self, constants: Constants) -> float:
        if self.local_std is not None:
            return self.local_std
        proxy = constants.context_proxy
        return known_noise(self.sigma, constants) if proxy is None else math.sqrt(proxy)
