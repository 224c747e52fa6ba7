"""Actors of TorchRL as policies."""

from typing import Any

from fedbandit_agents.external import ExternalPolicy, from_callable, network_digest
from fedbandit_envs.validation import needs


def from_torchrl(module: Any, *, observation: str = "statistics", name: str = "TorchRL") -> ExternalPolicy:
    """The policy of a TensorDict module of TorchRL: an actor whose likeliest arm is played.

    The module reads its `in_keys`. A key may stand alone or below a group of agents, as ("agents", "observation"). If
    observations are named arrays, each key ends in the name of one. The action, one-hot or not, is the out_key that
    ends in "action". The module must treat agents alike and one by one: what a centralised actor sees of other agents
    would be communication that is not counted.

    Args:
        module: the actor.
        observation: what the module was trained on; see `ExternalPolicy`.
        name: the name of the policy in error messages.
    """
    needs("torchrl", extra="torchrl")
    import torch
    from tensordict import TensorDict
    from torchrl.envs.utils import ExplorationType, set_exploration_type

    named = observation.startswith("distribution")
    action = _action_key(module, named)

    def act(observations: Any) -> Any:
        batch = TensorDict({}, [])
        for key in module.in_keys:
            if named and _last(key) not in observations:
                raise ValueError(
                    f"module: expected in_keys that end in one of {', '.join(map(repr, observations))}, got {key!r}; "
                    "name in observation= what the module was trained on"
                )
            batch[key] = torch.as_tensor(observations[_last(key)] if named else observations)
        training = module.training
        module.eval()  # switches off what only belongs to training, such as dropout
        try:
            with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
                arms = module(batch)[action].cpu()
        finally:
            module.train(training)
        if arms.ndim == 2:
            # A one-hot row is passed on as probabilities: its length is then compared with the number of arms.
            arms = arms[:, 0] if arms.shape[1] == 1 else arms.double()
        return arms.numpy()

    return from_callable(act, observation=observation, name=name, version=lambda: network_digest(module))


def _action_key(module: Any, named: bool) -> Any:
    """The out_key of the module's action; modules that are no actors of single agents are refused."""
    if not hasattr(module, "in_keys"):
        raise ValueError(f"module: expected a TensorDict module, got {type(module).__name__}; use from_callable")
    actions = [key for key in module.out_keys if _last(key) == "action"]
    if not actions:
        raise ValueError(f"module: expected an out_key that ends in 'action', got {module.out_keys}; pass the actor")
    if not named and len(module.in_keys) != 1:
        raise ValueError(
            f"module: expected one in_key, that of the observation, got {module.in_keys}; use from_callable with a "
            "function that makes the others"
        )
    return actions[0]


def _last(key: str | tuple[str, ...]) -> str:
    """The last part of a nested key."""
    return key if isinstance(key, str) else key[-1]
