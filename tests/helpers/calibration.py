"""How often the regions of Fed-CI's posterior hold the true mean rewards; for tests and `scripts/calibrate.py`."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

import fedbandit_envs as fb
from fedbandit_agents import FedCI

STEPS = (2**6, 2**9, 2**13)  # in exploration, soon after, and when most agents have settled


def places(problem, seeds, observe="distribution"):
    """P(r < truth) by the posterior after so many STEPS, (3, seeds, M, K)."""
    # Agents don't count what they pull in the last plan of a run, so it goes on for longer.
    env, policy = fb.HiddenContextBandit(problem, max_cycles=2 * STEPS[-1], observe=observe), FedCI()
    found = []
    for seed in seeds:
        rounds, of_run = fb.CommunicationRounds(env, policy), []
        rounds.reset(seed=seed)
        while len(of_run) < len(STEPS):
            rounds.advance()
            (side,) = rounds.sides
            if side.pulls[0].sum() >= STEPS[len(of_run)]:
                belief, truth = side.posterior(), env.instance.means[:, None]
                variances = belief.variance + np.einsum("nsaq,nsaq->nsa", belief.factors, belief.factors)
                below = ndtr((truth - belief.mean) / np.sqrt(variances))
                of_run.append(np.einsum("ns,nsa->na", belief.weights, below))
        found.append(of_run)
    return np.moveaxis(np.array(found), 1, 0)


@dataclass(frozen=True)
class FromThePrior:
    """Everything as Fed-CI believes: theta_a ~ N(0, I), contexts from mu."""

    mu: str  # "table": a row for each arm; "shared": one vector for all arms; "people": one of three
    context: str = "fixed"
    num_agents: int = 30
    num_arms: int = 4
    noise_std: float = 1.0

    def instance(self, rng, context_rng):
        theta, feature_map = rng.normal(size=(self.num_arms, 2)), fb.Identity(self.num_arms, 2)
        if self.mu == "people":
            mu = fb.Discrete(rng.normal(size=(self.num_agents, 3, 2)), np.full((self.num_agents, 3), 1 / 3))
        elif self.mu == "shared":
            mu = fb.Gaussian(rng.normal(size=(self.num_agents, 2)), std=0.3)
        else:
            mu = fb.Gaussian(rng.normal(size=(self.num_agents, 2 * self.num_arms)), std=0.3)
            feature_map = fb.Table(self.num_arms, 2)
        contexts = mu.sample(context_rng) if self.context == "fixed" else None
        return fb.BanditInstance(theta, feature_map, mu, contexts, self.noise_std, context=self.context)


LEVELS = (0.5, 0.9, 0.99)
# Where the posterior is Bayes' rule but for what is estimated beside theta (the scales of noise and scatter) and, with
# tables, for the bias <theta_a, phi - psi>: while theta is uncertain it is a product of two Gaussians, taken as one.
EXACT = {
    "known contexts": (FromThePrior("table"), "context"),
    "tables": (FromThePrior("table"), "distribution"),
    "resampled": (FromThePrior("table", context="resampled"), "distribution"),
}
# Elsewhere it is approximate (the server treats arms one by one, and Gaussian), or theta is not drawn from the prior.
APPROXIMATE = {
    "shared": FromThePrior("shared"),
    "people": FromThePrior("people"),
    "little noise": FromThePrior("shared", noise_std=0.01),
    "hardly any noise": FromThePrior("shared", noise_std=0.001),
    "synthetic": fb.Synthetic(num_agents=50, context_std=0.1),
    "movielens": fb.MovieLens(num_agents=50, context_std=0.1, noise_std=0.1),
    "movielens masked": fb.MovieLens(num_agents=50, context_std=0.1, noise_std=0.1, factors="masked"),
    "household": fb.Household(num_agents=50, noise_std=0.1),
    "household masked": fb.Household(num_agents=50, noise_std=0.1, factors="masked"),
    "linear": fb.Linear(num_agents=50),
}


def held(place, level):
    """(seeds,) share of the agents and arms of a run whose region of that level holds the truth, from `places`."""
    return (abs(place - 0.5) <= level / 2).mean(axis=(1, 2))
