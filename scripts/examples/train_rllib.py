"""RLlib: PPO through its wrapper of PettingZoo's parallel form, with one policy for all agents or one for each.

RLlib keeps agents in sets, whose order changes between processes. So a run with the same seed gives the same numbers
only where the environment variable PYTHONHASHSEED is 0.
"""

import numpy as np
from regret import ENVIRONMENT, PROBLEM, arguments, extra, regret, report

import fedbandit_envs as fb
from fedbandit_agents import from_callable

with extra("rllib"):
    import ray
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.columns import Columns
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
    from ray.tune.registry import register_env

AGENTS = [f"agent_{number}" for number in range(PROBLEM["num_agents"])]


def make_env(_):
    return ParallelPettingZooEnv(fb.PullStatistics(fb.ExpectedFeatures(fb.make(ENVIRONMENT, **PROBLEM))))


def main():
    parser = arguments(__doc__, steps=40_000)
    parser.add_argument("--policies", choices=["shared", "independent"], default="shared")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    shared = chosen.policies == "shared"

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    register_env("fedbandit", make_env)
    batch = 4096  # steps of agents
    config = (
        PPOConfig()
        .environment("fedbandit")
        .env_runners(num_env_runners=0)  # everything in this process
        .multi_agent(
            policies=["shared"] if shared else AGENTS,
            policy_mapping_fn=lambda agent, episode, **_: "shared" if shared else agent,
            count_steps_by="agent_steps",
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64]))
        .training(lr=3e-3, gamma=0.5, num_epochs=5, minibatch_size=512, train_batch_size=batch)
        .debugging(seed=chosen.seed, log_level="ERROR")
    )
    learner = config.build_algo()

    @torch.no_grad()
    def best_arms(observations):
        rows = torch.as_tensor(observations)
        if shared:
            return scores("shared", rows).argmax(dim=1).numpy()
        return np.array([int(scores(agent, row[None]).argmax()) for agent, row in zip(AGENTS, rows, strict=True)])

    def scores(name, rows):
        return learner.get_module(name).forward_inference({Columns.OBS: rows})[Columns.ACTION_DIST_INPUTS]

    policy = from_callable(best_arms, name="PPO")
    before = regret(policy)
    for _ in range(max(1, chosen.steps // batch)):
        learner.train()
    report(before, regret(policy))
    learner.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
