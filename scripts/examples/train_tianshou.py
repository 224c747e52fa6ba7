"""Tianshou: a DQN, shared by all agents, learns in PettingZoo's AEC form, where agents act one after the other."""

import numpy as np
from regret import ENVIRONMENT, PROBLEM, arguments, extra, regret, report

import fedbandit_envs as fb
from fedbandit_agents import from_callable

with extra("tianshou"):
    import torch
    from pettingzoo.utils.conversions import parallel_to_aec
    from tianshou.algorithm import DQN
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv, PettingZooEnv
    from tianshou.trainer import OffPolicyTrainerParams
    from tianshou.utils.net.common import Net


AGENTS = 2  # in training: what one agent learns serves any number of them


def make_env():
    problem = PROBLEM | {"num_agents": AGENTS}
    return PettingZooEnv(parallel_to_aec(fb.ExpectedFeatures(fb.make(ENVIRONMENT, **problem))))


def main():
    chosen = arguments(__doc__, steps=16_000).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    np.random.seed(chosen.seed)  # noqa: NPY002  Tianshou explores with NumPy's global numbers

    env = make_env()
    network = Net(state_shape=env.observation_space.shape, action_shape=env.action_space.n, hidden_sizes=[64, 64])
    # Tianshou 2.0.1 does not tell policies of single agents that they are in training, so they explore at inference.
    explorer = DiscreteQLearningPolicy(model=network, action_space=env.action_space, eps_inference=0.2)
    learner = DQN(
        policy=explorer,
        optim=AdamOptimizerFactory(lr=3e-3),
        # In AEC form the rewards of a cycle are paid after the action of its last agent. So an agent's reward comes
        # within as many steps as there are agents, before it is its turn again.
        n_step_return_horizon=AGENTS,
        gamma=0.5,
        target_update_freq=100,
    )
    algorithm = MultiAgentOffPolicyAlgorithm(algorithms=[learner] * AGENTS, env=env)

    @torch.no_grad()
    def best_arms(observations):
        values, _ = network(observations)
        return values.argmax(dim=1).numpy()

    policy = from_callable(best_arms, observation="features", name="DQN")
    before = regret(policy)
    envs = DummyVectorEnv([make_env] * 16)
    envs.seed(chosen.seed)
    collector = Collector(algorithm, envs, VectorReplayBuffer(chosen.steps, len(envs)), exploration_noise=True)
    collector.reset()
    trainer = OffPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=chosen.steps,
        collection_step_num_env_steps=512,
        update_step_num_gradient_steps_per_sample=1 / 32,
        batch_size=256,
        multi_agent_return_reduction=lambda rewards: rewards.mean(axis=1),
        verbose=False,
        show_progress=False,
    )
    algorithm.run_training(trainer)
    report(before, regret(policy))


if __name__ == "__main__":
    main()
