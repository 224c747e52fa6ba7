"""Models of Stable-Baselines3 as policies."""

from typing import Any

from fedbandit_agents.external import ExternalPolicy, from_callable, network_digest


def from_sb3(
    model: Any, *, observation: str = "statistics", deterministic: bool = True, name: str = "SB3"
) -> ExternalPolicy:
    """The policy of a model of Stable-Baselines3 that was trained on the observations of single agents.

    Args:
        model: the model itself. Files are not loaded here, because a file of SB3 can run any code: load a file that you
            trust with SB3, and pass the model.
        observation: what the model was trained on; see `ExternalPolicy`.
        deterministic: whether the likeliest arm is played. If not, arms are drawn as in training; this needs a model
            with an actor, such as PPO.
        name: the name of the policy in error messages.
    """
    _check_model(model, observation, deterministic)
    network, space = model.policy, model.observation_space

    def likeliest(observations: Any) -> Any:
        _check_shapes(space, observations)
        return model.predict(observations, deterministic=True)[0]

    def probabilities(observations: Any) -> Any:
        _check_shapes(space, observations)
        network.set_training_mode(False)
        tensors, _ = network.obs_to_tensor(observations)
        return network.get_distribution(tensors).distribution.probs.detach().cpu().numpy()

    return from_callable(
        likeliest if deterministic else probabilities,
        observation=observation,
        name=name,
        version=lambda: network_digest(network, deterministic),
        num_arms=int(model.action_space.n),
    )


def _check_model(model: Any, observation: str, deterministic: bool) -> None:
    """Refuse what can't be played agent by agent, from the observation alone."""
    if not all(hasattr(model, part) for part in ("predict", "policy", "action_space")):
        raise ValueError(f"model: expected a model of Stable-Baselines3, got {model!r}; load it with its own class")
    if not hasattr(model.action_space, "n"):
        raise ValueError(
            f"model: expected one that chooses one agent's arm, got actions in {model.action_space}; a model of the "
            "joint view sees all agents at once, which would be communication that is not counted"
        )
    network, space = model.policy, model.observation_space
    if not deterministic and not hasattr(network, "get_distribution"):
        raise ValueError(f"deterministic: expected True for {type(model).__name__}, which has no actor, got False")
    if hasattr(network, "lstm_actor") or model.get_vec_normalize_env() is not None:
        raise ValueError(
            "model: expected one that needs nothing but the observation, got one with a memory or with normalised "
            "observations; use from_callable with a function that does what it needs"
        )
    if hasattr(space, "spaces") != observation.startswith("distribution"):
        raise ValueError(f"observation: expected what the model was trained on, {space}, got {observation!r}")


def _check_shapes(space: Any, observations: Any) -> None:
    """Refuse observations whose shapes are not those on which the model was trained."""
    spaces = dict(space.spaces) if hasattr(space, "spaces") else {"": space}
    parts = observations if isinstance(observations, dict) else {"": observations}
    expected = {key: part.shape for key, part in spaces.items()}
    got = {key: part.shape[1:] for key, part in parts.items()}
    if expected != got:
        raise ValueError(
            f"observations: expected shapes {expected}, on which the model was trained, got {got}; play it on problems "
            "with the same numbers of arms and dimensions and the same kind of contexts, with the same observation="
        )
