"""Linear policies on streams whose contexts are known more or less well, paired by trial."""

from typing import NamedTuple

import numpy as np
from scipy import stats

import fedbandit_envs as fb

SIGMA = 0.3


class Compared(NamedTuple):
    """A policy on a problem."""

    regrets: np.ndarray  #: (trials,) regret per agent
    scalars: float  #: numbers sent and received per agent

    def mean(self):
        return interval(self.regrets)

    def against(self, other):
        """The mean paired difference to another policy, and the half width of its interval of 95 %."""
        return interval(self.regrets - other.regrets)


def interval(values):
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean(), half


def unequal(seed, T, M, K=10, d=3, low=0.05, high=1.0):
    """Features as on Synthetic, but each agent has at each step its own spread, log-uniform from `low` to `high`."""
    theta = np.zeros((K, d))
    theta[:, 0] = 1

    def shown(step):
        rng = np.random.default_rng([seed, step])
        psi = rng.uniform(-0.5, 0.5, (M, K, d))
        spread = np.exp(rng.uniform(np.log(low), np.log(high), (M, 1)))
        return fb.Gaussian(psi.reshape(M, -1), std=np.broadcast_to(spread, (M, K * d)).copy())

    return fb.make(
        "fedbandit/Linear-v0",
        theta=theta,
        contexts=shown,
        feature_map=fb.Table(K, d),
        context="streaming",
        shared_theta=True,
        theta_bound=1.0,
        context_proxy=high**2,
        noise_std=SIGMA,
        ell=1e-3,
        L=1.0,
        max_cycles=T,
    )


def problems(T, M):
    """Functions that make an environment for a trial, by the name of the problem."""
    usual = {"num_agents": M, "max_cycles": T, "noise_std": SIGMA}
    return {
        "spreads from 0.05 to 1 by agent and step": lambda trial: unequal(trial, T, M),
        "Synthetic, spread 0.2 throughout": lambda _: fb.make(
            "fedbandit/Synthetic-v0", context="streaming", context_std=0.2, **usual
        ),
        "Forecast, Gaussian": lambda _: fb.make("fedbandit/Forecast-v0", **usual),
        "Forecast, ensembles of 5": lambda _: fb.make("fedbandit/Forecast-v0", members=5, **usual),
        "Forecast, skill 0.1": lambda _: fb.make("fedbandit/Forecast-v0", skill=0.1, **usual),
    }


def visitors(seed, T, M, low=0.05, high=0.5):
    """Another MovieLens user visits each agent at each step, known with a spread that is log-uniform in a range."""
    factors = fb.MovieLens(num_agents=M)
    theta = factors.instance(*(np.random.default_rng(seed) for _ in range(2))).theta
    users = factors.instance(np.random.default_rng(seed), np.random.default_rng(0)).distribution.mean

    def shown(step):
        rng = np.random.default_rng([seed, step])
        spread = np.exp(rng.uniform(np.log(low), np.log(high), (M, 1)))
        return fb.Gaussian(users[rng.integers(len(users), size=M)], std=np.broadcast_to(spread, users.shape).copy())

    arguments = {"theta": theta, "contexts": shown, "feature_map": fb.Identity(*theta.shape), "context": "streaming"}
    return fb.make("fedbandit/Linear-v0", **arguments, noise_std=SIGMA, ell=1e-3, L=10.0, max_cycles=T)


def streams(T, M):
    """The same with MovieLens users and households: functions that make an environment for a trial, by name."""
    usual = {"num_agents": M, "max_cycles": T, "noise_std": SIGMA, "context": "streaming"}
    return problems(T, M) | {
        "MovieLens, spread 0.1": lambda _: fb.make("fedbandit/MovieLens-v0", context_std=0.1, **usual),
        "MovieLens, spreads from 0.05 to 0.5": lambda trial: visitors(trial, T, M),
        "Household": lambda _: fb.make("fedbandit/Household-v0", **usual),
    }


def revealed(T, M):
    """Streams whose contexts are seen after each pull."""
    usual = {"num_agents": M, "max_cycles": T, "noise_std": SIGMA, "reveal": "after"}
    new = {"context": "streaming"}
    return {
        "Synthetic, spread 0.2": lambda _: fb.make("fedbandit/Synthetic-v0", context_std=0.2, **usual, **new),
        "Forecast, Gaussian": lambda _: fb.make("fedbandit/Forecast-v0", **usual),
        "Forecast, ensembles of 5": lambda _: fb.make("fedbandit/Forecast-v0", members=5, **usual),
        "MovieLens, spread 0.1": lambda _: fb.make("fedbandit/MovieLens-v0", context_std=0.1, **usual, **new),
        "Household": lambda _: fb.make("fedbandit/Household-v0", **usual, **new),
    }


def fixed(seed, std, T, M, K=10, d=3):
    """Hidden contexts that stay the same, and a theta of norm 1 for each arm."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(K, d))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    mu = fb.Gaussian(rng.uniform(-0.6, 0.6, (M, K * d)), std=std)
    guaranteed = {"theta_bound": 1.0, "context_proxy": std**2}
    return fb.make(
        "fedbandit/Linear-v0",
        theta=theta,
        contexts=mu,
        feature_map=fb.Table(K, d),
        noise_std=SIGMA,
        max_cycles=T,
        **guaranteed,
    )


def on_a_sphere(seed, T=1000, M=10, K=10, d=5, std=0.25):
    """One theta of norm 1, and features whose means are uniform on the sphere and new at each step."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d)
    theta = np.tile(theta / np.linalg.norm(theta), (K, 1))
    means = rng.normal(size=(T, M, K, d))
    means = (means / np.linalg.norm(means, axis=-1, keepdims=True)).reshape(T, M, K * d)
    shown = {"contexts": [fb.Gaussian(mean, std=std) for mean in means], "feature_map": fb.Table(K, d)}
    how = {"context": "streaming", "reveal": "after", "shared_theta": True, "noise_std": 0.3, "max_cycles": T}
    return fb.make("fedbandit/Linear-v0", theta=theta, **shown, **how)


def row(name, found):
    """A row of a table: regret of each policy, the difference of the others to the first, and the scalars sent."""
    first = found[next(iter(found))]
    cells = [name]
    for policy, one in found.items():
        mean, half = one.mean()
        cell = f"{mean:.1f} ± {half:.1f}"
        if one is not first:
            difference, width = one.against(first)
            cell += f" ({difference:+.1f} ± {width:.1f})"
        cells.append(f"{policy} {cell}, {one.scalars:,.0f} scalars")
    return " | ".join(cells)


def named(*names):
    """Policies by their names, which are told the noise scale where they take one."""
    return {name: fb.make_policy(name, **({} if name == "Local-UCB" else {"sigma": SIGMA})) for name in names}


def compare(make, trials, policies, kind="distribution_regret"):
    """All policies, by their labels, on one problem; they face the same instances and contexts."""
    found = {}
    for label, policy in policies.items():
        histories = [fb.play(make(trial), policy, seed=trial) for trial in range(trials)]
        regrets = np.array([history.mean_regret(kind)[-1] for history in histories])
        scalars = np.mean([history.ledger.scalars for history in histories]) / histories[0].constants.num_agents
        found[label] = Compared(regrets, scalars)
    return found
