"""Stable-Baselines3 on contexts that change: PPO learns at one site of the forecast problem, then plays at all others.

At each step the model is shown the forecast of tomorrow's weather, and is paid by the weather that comes. What an
action pays in which weather is the same at all sites, so that a model of one site serves them all. Another episode
would have other payoffs, so training is one long episode, and the model is measured at other sites of the same one.
"""

from regret import arguments, extra, report

import fedbandit_envs as fb
from fedbandit_agents import from_sb3

with extra("sb3"):
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

PROBLEM = {"num_agents": 20, "num_arms": 4, "noise_std": 0.3}
EVALUATION_STEPS = 500


def regret(policy, seed):
    """Regret per site after the first steps of the episode, at the sites where nobody was trained."""
    env = fb.make("fedbandit/Forecast-v0", max_cycles=EVALUATION_STEPS, **PROBLEM)
    return float(fb.play(env, policy, seed=seed).regret()[-1, 1:].mean())


def main():
    chosen = arguments(__doc__, steps=6_000).parse_args()
    torch.set_num_threads(1)
    site = PROBLEM | {"agent": 0, "observation": "features", "max_cycles": 10**6}
    env = make_vec_env("fedbandit_envs:fedbandit/Forecast-Agent-v0", seed=chosen.seed, env_kwargs=site)
    settings = {"learning_rate": 1e-3, "n_steps": 512, "batch_size": 128, "gamma": 0.0, "ent_coef": 0.01}
    model = PPO("MlpPolicy", env, seed=chosen.seed, device="cpu", **settings)

    before = regret(from_sb3(model, observation="features"), chosen.seed)
    model.learn(chosen.steps)
    after = regret(from_sb3(model, observation="features"), chosen.seed)
    report(before, after, {name: regret(fb.make_policy(name), chosen.seed) for name in ("KK-UCB", "Uniform")})


if __name__ == "__main__":
    main()
