"""TorchRL: PPO in a training loop written by hand, on the PettingZoo environment, with one network for all agents."""

from regret import ENVIRONMENT, PROBLEM, arguments, extra, regret, report

import fedbandit_envs as fb
from fedbandit_agents import from_torchrl

with extra("torchrl"):
    import torch
    from tensordict.nn import TensorDictModule
    from torch import nn
    from torch.distributions import Categorical
    from torchrl.envs import ExplorationType, PettingZooWrapper, check_env_specs
    from torchrl.modules import MLP, ProbabilisticActor
    from torchrl.objectives import ClipPPOLoss

AGENTS = 32  # in training: what one agent learns serves any number of them
EPOCHS = 5  # how often the steps of an episode are used


def network(inputs, outputs):
    return MLP(inputs, outputs, num_cells=[64, 64], activation_class=nn.Tanh)


def main():
    chosen = arguments(__doc__, steps=60_000).parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)

    bandit = fb.PullStatistics(fb.ExpectedFeatures(fb.make(ENVIRONMENT, **PROBLEM | {"num_agents": AGENTS})))
    env = PettingZooWrapper(bandit, group_map={"agents": bandit.possible_agents}, seed=chosen.seed)
    check_env_specs(env)

    length, num_arms = env.observation_spec["agents", "observation"].shape[-1], PROBLEM["num_arms"]
    scores = TensorDictModule(network(length, num_arms), [("agents", "observation")], [("agents", "logits")])
    actor = ProbabilisticActor(
        scores,
        in_keys=[("agents", "logits")],
        out_keys=[("agents", "action")],
        distribution_class=Categorical,
        default_interaction_type=ExplorationType.RANDOM,
        return_log_prob=True,
    )
    critic = TensorDictModule(network(length, 1), [("agents", "observation")], [("agents", "state_value")])
    loss = ClipPPOLoss(actor, critic, normalize_advantage=True, normalize_advantage_exclude_dims=())
    keys = ("action", "sample_log_prob", "advantage", "value_target", "value")
    names = ("action", "action_log_prob", "advantage", "value_target", "state_value")
    loss.set_keys(**{key: ("agents", name) for key, name in zip(keys, names, strict=True)})
    optimiser = torch.optim.Adam(loss.parameters(), lr=3e-3)

    before = regret(from_torchrl(actor))
    horizon = PROBLEM["max_cycles"]
    for _ in range(max(1, chosen.steps // (horizon * AGENTS))):
        with torch.no_grad():
            episode = env.rollout(horizon, actor)
            # A pull changes nothing but what is known, so the reward of a step is taken for its whole return.
            rewards = episode["next", "agents", "reward"]
            episode["agents", "value_target"] = rewards
            episode["agents", "advantage"] = rewards - critic(episode)["agents", "state_value"]
        for _ in range(EPOCHS):
            for batch in episode[torch.randperm(horizon)].split(16):
                losses = loss(batch)
                optimiser.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                optimiser.step()
    report(before, regret(from_torchrl(actor)))


if __name__ == "__main__":
    main()
