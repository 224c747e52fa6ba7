"""Plays a broad set of runs and prints a hash of each: `python kernel_runs.py`; test_kernels compares CPUs by them.

A hash covers all that a run decides and all that is measured: pulls, active sets, regrets, communication and faults.
The last bits of estimates in messages are no part of it. Nothing here uses linear algebra: the problems are the same
bit for bit.
"""

import hashlib
import importlib.util
import json
import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import threadpoolctl
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

import fedbandit_envs as fb
from fedbandit_envs.protocol.policy import observe_for

SYNTHETIC, LINEAR = "fedbandit/Synthetic-v0", "fedbandit/Linear-v0"
MOVIELENS, HOUSEHOLD = "fedbandit/MovieLens-v0", "fedbandit/Household-v0"
ATTACKED = fb.Faults(attackers=fb.Attackers("scale", share=0.2))
COMPILED = ("Fed-PECD", "Fed-PE", "Enhanced-Fed-PE", "Collaborative", "Shared-Theta-Fed-PE", "Local-UCB")
FAULTS = fb.Faults(dropout=0.2, schedule={1: range(3)})


def cubes(contexts: np.ndarray) -> np.ndarray:
    """Features (N, 4, n) that are not linear in the contexts (N, n); products are the same on every CPU."""
    return np.stack([contexts, contexts * contexts + 0.1, contexts * contexts * contexts, 1 - contexts], axis=1)


def linear(dim: int, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """A problem of 4 arms and 7 agents with random theta, whose context distribution is named in `arguments`."""
    rng = np.random.default_rng(3)
    theta = np.abs(rng.normal(size=(4, dim)))
    theta /= np.sqrt((theta * theta).sum(axis=1, keepdims=True))
    mean, root = rng.uniform(0.2, 0.6, size=(7, dim)), 0.1 * rng.normal(size=(dim, dim))
    kinds = {
        "covariance": fb.Gaussian(mean, covariance=np.einsum("ij,kj->ik", root, root)),
        "std": fb.Gaussian(mean, std=0.02),
        "discrete": fb.Discrete(rng.uniform(0.2, 0.6, size=(7, 3, dim)), np.full((7, 3), [0.5, 0.25, 0.25])),
        "equal": fb.PointMass(np.full((7, dim), 0.5)),  # all agents and arms have the same features: ties everywhere
    }
    arguments["contexts"] = kinds[arguments["contexts"]]
    if arguments.pop("curved", False):
        arguments["feature_map"] = fb.FeatureFunction(cubes, 4, dim, dim)
    else:
        arguments["feature_map"] = fb.Identity(4, dim)
    return LINEAR, {"theta": theta} | arguments


def same_arms(rewards: str) -> tuple[str, dict[str, Any]]:
    """A problem that guarantees the same features of 5 arms for all agents, which some policies need."""
    rng = np.random.default_rng(4)
    theta = rng.uniform(0.1, 0.5, size=(5, 3))
    contexts = fb.Gaussian(np.tile(rng.uniform(0.2, 0.6, size=15), (8, 1)), std=0.02)
    settings = {"theta": theta, "contexts": contexts, "feature_map": fb.Table(5, 3), "rewards": rewards}
    return LINEAR, settings | {"same_arms": True, "theta_bound": 1.0, "context_proxy": 0.04}


PROBLEMS = {
    "synthetic": (SYNTHETIC, {"num_agents": 12}),
    "classical": (SYNTHETIC, {"num_agents": 12, "error": "classical"}),
    "resampled": (SYNTHETIC, {"num_agents": 12, "context": "resampled"}),
    "many arms": (SYNTHETIC, {"num_agents": 9, "num_arms": 30, "dim": 5}),
    "MovieLens": (MOVIELENS, {"num_agents": 20}),
    "MovieLens masked": (MOVIELENS, {"num_agents": 20, "factors": "masked", "context_std": 0.1, "noise_std": 0.1}),
    "MovieLens resampled": (MOVIELENS, {"num_agents": 15, "context": "resampled", "context_std": 0.1}),
    "households": (HOUSEHOLD, {"num_agents": 15}),
    "households resampled": (HOUSEHOLD, {"num_agents": 15, "context": "resampled"}),
    "covariance": linear(3, contexts="covariance"),
    "covariance resampled": linear(3, contexts="covariance", context="resampled"),
    "discrete": linear(3, contexts="discrete"),
    "curved": linear(3, contexts="std", curved=True),
    "curved, 5 dimensions": linear(5, contexts="std", curved=True),
    "Bernoulli": linear(3, contexts="std", rewards="bernoulli"),
    "Bernoulli discrete": linear(3, contexts="discrete", rewards="bernoulli", context="resampled"),
    "synthetic stream": (SYNTHETIC, {"num_agents": 8, "context_std": 0.1, "context": "streaming"}),
    "Bernoulli equal": linear(2, contexts="equal", rewards="bernoulli"),
    "forecast": ("fedbandit/Forecast-v0", {"num_agents": 8}),
    "multi-armed": ("fedbandit/MultiArmed-v0", {"num_agents": 8, "num_arms": 5}),
    "multi-armed Bernoulli": ("fedbandit/MultiArmed-v0", {"num_agents": 8, "num_arms": 5, "rewards": "bernoulli"}),
    "the same arms": same_arms("gaussian"),
    "the same arms Bernoulli": same_arms("bernoulli"),
    "shared arms": ("fedbandit/SharedArms-v0", {}),
}


def policies() -> Iterator[tuple[str, fb.Policy]]:
    """All registered policies, with variants; compiled ones where numba is installed."""
    for name in fb.policy_names():
        yield name, fb.make_policy(name)
    yield "Fed-PECD uniform", fb.make_policy("Fed-PECD", allocation="uniform")
    yield "Fed-PECD c=4 n=3", fb.make_policy("Fed-PECD", first=4, growth=3)
    yield "Fed-PE short", fb.make_policy("Fed-PE", pad=False, count_init=False)
    for aggregation in ("huber", "tukey"):
        yield f"Fed-PECD {aggregation}", fb.make_policy("Fed-PECD", allocation="uniform", aggregation=aggregation)
        for name in ("Collaborative", "Shared-Theta-Fed-PE", "DisLinUCB"):
            yield f"{name} {aggregation}", fb.make_policy(name, aggregation=aggregation)
    if importlib.util.find_spec("numba") is not None:
        for name in COMPILED:
            yield f"{name} compiled", fb.make_policy(name, compiled=True)


def fingerprint(history: fb.History) -> str:
    """A hash of what a run decided, and of what was measured."""
    digest = hashlib.sha256()
    ledger = history.ledger
    kinds = ("regret", "distribution_regret", "paper_regret")
    regrets = [history.regret(kind) for kind in kinds if kind in (history.summed or history.gaps)]
    for array in (history.steps, history.pulls, history.active, *regrets, ledger.per_agent, ledger.per_round):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr([(fault.agent, fault.round, fault.reason) for fault in history.faults]).encode())
    return digest.hexdigest()[:20]


def runs() -> Iterator[tuple[str, str]]:
    """The name and the hash of each run."""
    for label, policy in policies():
        for problem, (name, arguments) in PROBLEMS.items():
            shown = arguments | {"observe": observe_for(policy)}
            if policy.observes == "delayed":
                shown["reveal"] = "after"
            try:
                small = fb.make(name, max_cycles=100, **shown)
            except ValueError:  # a context that is drawn anew can't be observed; fixed ones can't be revealed
                continue
            if fb.why_not(policy, small, network="ring"):
                continue
            small.reset(seed=0)
            fb.play(small, policy, seed=1, network="ring")  # only peers use the ring
            short = small.episode.plans > 50  # runs that cost by steps, not by phases, are short ones
            variants: dict[str, tuple[int, int, dict[str, Any]]] = {"plain": (1, 100 if short else 2000, {})}
            if problem == "MovieLens" and label.startswith("Fed-"):
                variants["long"] = (2, 2**13, {})
            if problem in ("synthetic", "households") or problem.startswith("Bernoulli"):
                seeds, horizon = ((5,), 60) if short else ((5, 6, 7), 1000)
                variants |= {f"faults {seed}": (seed, horizon, {"faults": FAULTS}) for seed in seeds}
                variants["stepwise"] = (5, 50, {"stepwise": True})
            robust = label == "Fed-CI" or getattr(policy, "aggregation", "mean") != "mean"
            if problem in ("synthetic", "households") and robust:
                variants["attackers"] = (5, 100 if short else 1000, {"faults": ATTACKED})
            for variant, (seed, horizon, keywords) in variants.items():
                env = fb.make(name, max_cycles=horizon, **shown)
                history = fb.play(env, policy, seed=seed, network="ring", **keywords)
                yield f"{label}, {problem}, {variant}", fingerprint(history)


def main() -> None:
    """Print what computed, and the hashes."""
    warnings.simplefilter("ignore")
    import scipy.linalg  # noqa: F401 - scipy brings a BLAS of its own

    blas = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    exponentials = repr([math.exp(0.001 * x) for x in range(10_000)])  # the C library's, which may depend on the CPU
    found = {
        "kernels": sorted({str(pool.get("architecture")) for pool in blas}),
        "features": [name for name in __cpu_dispatch__ if __cpu_features__.get(name)],
        "exponentials": hashlib.sha256(exponentials.encode()).hexdigest(),
        "hashes": dict(runs()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
