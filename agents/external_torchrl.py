"""Actors of TorchRL as policies."""

from typing import Any

from fedbandit_agents.external import ExternalPolicy, from_callable, network_digest
from fedbandit_envs.validation import needs


def from_torchrl(module: Any, *, observation: str = "statistics", name: str = "TorchRL") -> ExternalPolicy:
    """The policy of a TensorDict module of TorchRL, an actor whose likeliest arm is played.

    It reads its `in_keys`, alone or below a group of agents, as ("agents", "observation"); of named observations each
    key ends in the name. Its action, one-hot or not, is the out_key that ends in "action". It must treat agents alike
    and one by one: what a centralised actor sees of others would be communication that nobody counts.
    """
    needs("torchrl", extra="torchrl")
    import torch
    from tensordict import TensorDict
    from torchrl.envs.utils import ExplorationType, set_exploration_type

    if not hasattr(module, "in_keys"):
        raise ValueError(f"module: expected a TensorDict module, got {type(module).__name__}; use from_callable")
    actions = [key for key in module.out_keys if _last(key) == "action"]
    if not actions:
        raise ValueError(f"module: expected an out_key that ends in 'action', got {module.out_keys}; pass the actor")
    named = observation.startswith("distribution")
    if not named and len(module.in_keys) != 1:
        raise ValueError(
            f"module: expected one in_key, that of the observation, got {module.in_keys}; use from_callable with a "
            "function that makes the others"
        )

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
        module.eval()  # no dropout, say
        try:
            with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
                arms = module(batch)[actions[0]].cpu()
        finally:
            module.train(training)
        if arms.ndim == 2:
            # One-hot, as probabilities: then their number is compared with that of the problem's arms.
            arms = arms[:, 0] if arms.shape[1] == 1 else arms.double()
        return arms.numpy()

    return from_callable(act, observation=observation, name=name, version=lambda: network_digest(module))


def _last(key: str | tuple[str, ...]) -> str:
    return key if isinstance(key, str) else key[-1]
