"""Stable-Baselines3: PPO or DQN learns from one agent and then plays for all, or PPO learns for all at once.

A model of one agent becomes a policy with `from_sb3`. A model of the joint view sees all agents, which no policy
without communication may, so its regret is measured in a plain Gymnasium loop.
"""

import gymnasium
import numpy as np
from regret import ENVIRONMENT, EVALUATION, PROBLEM, arguments, extra, regret, report

from fedbandit_agents import from_sb3

with extra("sb3"):
    import torch
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.env_util import make_vec_env


def joint_regret(model, env):
    """Regret per agent of a model that plays all agents, from the last infos of the evaluation episodes."""
    found = []
    for seed in EVALUATION:
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, _, _, over, info = env.step(action)
        found.append(info["episode_regret"]["regret"].mean())
    return float(np.mean(found))


def main():
    parser = arguments(__doc__, steps=60_000)
    parser.add_argument("--learner", choices=["ppo", "dqn"], default="ppo")
    parser.add_argument(
        "--view",
        choices=["agent", "joint"],
        default="agent",
        help="whether the model sees one agent or all agents as one",
    )
    parser.add_argument("--observation", choices=["statistics", "features", "distribution"], default="statistics")
    chosen = parser.parse_args()
    if chosen.learner == "dqn" and chosen.view == "joint":
        parser.error(
            "argument --learner: expected ppo for the joint view, got dqn, which can choose for one agent only; take "
            "ppo, or --view agent"
        )
    torch.set_num_threads(1)

    name = f"fedbandit_envs:{ENVIRONMENT if chosen.view == 'joint' else ENVIRONMENT.replace('-v0', '-Agent-v0')}"
    keywords = PROBLEM | {"observation": chosen.observation, "record_regret": True}
    envs = make_vec_env(name, n_envs=32, seed=chosen.seed, env_kwargs=keywords)  # copies with problems of their own
    network = "MultiInputPolicy" if chosen.observation == "distribution" else "MlpPolicy"  # a Dict or a Box
    shared = {"learning_rate": 3e-3, "gamma": 0.5, "seed": chosen.seed, "device": "cpu"}
    if chosen.learner == "dqn":
        model = DQN(network, envs, train_freq=1, batch_size=256, learning_starts=2000, **shared)
    else:
        model = PPO(network, envs, n_steps=64, batch_size=512, n_epochs=5, **shared)

    def measure():
        if chosen.view == "joint":
            return joint_regret(model, gymnasium.make(name, **keywords))
        return regret(from_sb3(model, observation=chosen.observation))  # the policy plays with the weights of now

    before = measure()
    model.learn(chosen.steps)
    report(before, measure())


if __name__ == "__main__":
    main()
