"""SuperSuit: one PPO policy of Stable-Baselines3 learns from all agents of several PettingZoo environments at once.

With `--figure FILE` it also runs an experiment with the trained policy, Fed-PECD, Fed-PE and Uniform, and draws it.
"""

from regret import ENVIRONMENT, PROBLEM, arguments, extra, regret, report

import fedbandit_envs as fb
from fedbandit_agents import from_sb3

with extra("supersuit"):
    import supersuit
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.utils import set_random_seed


def draw(policy, file):
    """Regret over time of the trained policy and of others, all on problems that it has not seen."""
    fb.register_policy("PPO", type(policy))
    told = {"sigma": PROBLEM["noise_std"]}
    policies = [
        "PPO",
        fb.PolicySpec("Fed-PECD", told, label="Fed-PECD"),
        fb.PolicySpec("Fed-PE", told, label="Fed-PE (knows the contexts)"),
        "Uniform",
    ]
    experiment = fb.Experiment(ENVIRONMENT, policies, PROBLEM, trials=20, seed=1)
    result = fb.run(experiment, executor="serial")  # a model lives in this process alone
    fb.plotting.regret(result).savefig(file, dpi=150)


def main():
    parser = arguments(__doc__, steps=60_000)
    parser.add_argument("--figure", help="the file into which the comparison is drawn")
    chosen = parser.parse_args()
    torch.set_num_threads(1)

    set_random_seed(chosen.seed)
    env = fb.PullStatistics(fb.ExpectedFeatures(fb.make(ENVIRONMENT, **PROBLEM)))
    rows = supersuit.pettingzoo_env_to_vec_env_v1(env)
    copies = supersuit.concat_vec_envs_v1(rows, 4, num_cpus=1, base_class="stable_baselines3")
    copies.venv.reset(seed=chosen.seed)  # PPO(seed=...) would call copies.seed, which SuperSuit does not have
    model = PPO(
        "MlpPolicy", copies, n_steps=64, batch_size=512, n_epochs=5, learning_rate=3e-3, gamma=0.5, device="cpu"
    )

    before = regret(from_sb3(model))
    model.learn(chosen.steps)
    policy = from_sb3(model)
    report(before, regret(policy))
    if chosen.figure:
        draw(policy, chosen.figure)


if __name__ == "__main__":
    main()
