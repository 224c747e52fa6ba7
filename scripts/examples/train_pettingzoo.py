"""A plain PettingZoo loop: a linear policy, shared by all agents, learns by policy gradient in NumPy alone."""

import numpy as np
from regret import ENVIRONMENT, PROBLEM, arguments, regret, report

import fedbandit_envs as fb
from fedbandit_agents import from_callable

AGENTS = 64  # in training: what one agent learns serves any number of them


def probabilities(weights, observations):
    """(n, K) softmax of linear scores of the observations (n, length)."""
    scores = observations @ weights
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def main():
    chosen = arguments(__doc__, steps=60_000).parse_args()
    rng = np.random.default_rng(chosen.seed)
    env = fb.PullStatistics(fb.ExpectedFeatures(fb.make(ENVIRONMENT, **PROBLEM | {"num_agents": AGENTS})))
    length, num_arms = env.observation_space("agent_0").shape[0], PROBLEM["num_arms"]
    weights = rng.normal(scale=0.1, size=(length, num_arms))
    policy = from_callable(lambda observations: (observations @ weights).argmax(axis=1), name="Linear")

    before = regret(policy)
    observations, _ = env.reset(seed=chosen.seed)
    for _ in range(max(1, chosen.steps // AGENTS)):
        if not env.agents:
            observations, _ = env.reset()  # the next problem
        rows = np.stack([observations[agent] for agent in env.agents])
        chances = probabilities(weights, rows)
        arms = (chances.cumsum(axis=1) < rng.random((AGENTS, 1))).sum(axis=1).clip(max=num_arms - 1)
        actions = dict(zip(env.agents, arms.tolist(), strict=True))
        observations, rewards, _, _, _ = env.step(actions)
        paid = np.array([rewards[agent] for agent in actions])
        # Policy gradient: towards arms that paid more than the agents' average, away from those that paid less.
        gradient = rows.T @ ((np.eye(num_arms)[arms] - chances) * (paid - paid.mean())[:, None]) / AGENTS
        weights += 2.0 * gradient
    report(before, regret(policy))


if __name__ == "__main__":
    main()
