"""A plain Gymnasium loop over the native vector environment: agents learn a linear model of rewards, shared by all."""

import gymnasium
import numpy as np
from regret import ENVIRONMENT, PROBLEM, arguments, regret, report

from fedbandit_agents import from_callable

AGENTS = 64  # in training: what one agent learns serves any number of them


def main():
    chosen = arguments(__doc__, steps=60_000).parse_args()
    rng = np.random.default_rng(chosen.seed)
    name = ENVIRONMENT.replace("-v0", "-Agent-v0")
    problem = PROBLEM | {"num_agents": AGENTS}
    envs = gymnasium.make_vec(f"fedbandit_envs:{name}", observation="features", **problem)
    length, num_arms = envs.single_observation_space.shape[0], PROBLEM["num_arms"]
    weights = rng.normal(scale=0.1, size=(length, num_arms))  # reward of arm a: observation @ weights[:, a]
    policy = from_callable(lambda rows: (rows @ weights).argmax(axis=1), observation="features", name="Linear")

    before = regret(policy)
    everyone = np.arange(AGENTS)
    observations, _ = envs.reset(seed=chosen.seed)
    over = np.zeros(AGENTS, dtype=bool)
    for _ in range(max(1, chosen.steps // AGENTS)):
        values = observations @ weights
        explore = rng.random(AGENTS) < 0.2
        arms = np.where(explore, rng.integers(num_arms, size=AGENTS), values.argmax(axis=1))
        following, rewards, _, truncated, _ = envs.step(arms)
        if not over.any():  # the step after the end only starts the next episode
            errors = np.zeros((AGENTS, num_arms))
            errors[everyone, arms] = rewards - values[everyone, arms]
            weights += 0.5 * observations.T @ errors / AGENTS
        observations, over = following, truncated
    report(before, regret(policy))


if __name__ == "__main__":
    main()
