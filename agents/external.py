"""Trained models and plain functions as policies: what an RL library has learnt, played as any other policy.

    policy = from_sb3(PPO("MlpPolicy", env).learn(50_000))
    history = fb.play(fb.make("fedbandit/Synthetic-v0"), policy, seed=0)

A model is asked once a step, for all agents together, and sends nothing. It is shown what agents in the environments
are shown: a batch of the observations on which it was trained, one row an agent.
"""

import hashlib
import uuid
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.protocol.knowledge import View
from fedbandit_envs.protocol.observations import flat_features, pull_statistics, statistics_by_name
from fedbandit_envs.protocol.plans import ProtocolError, places
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.steps import StepAgents
from fedbandit_envs.validation import check_fields, checked, needs, one_of

OBSERVATIONS = ("features", "distribution", "statistics", "distribution+statistics")
Function = Callable[[Any], Any]  # from a batch of observations to arms (M,) or probabilities of the arms (M, K)


@dataclass(frozen=True)
class ExternalPolicy(Policy):
    """A policy that is one function of what an agent observes, `act`; agents never communicate.

    `observation` is what it is shown, as the environments name it: "features" (psi, flat), "statistics" (that and what
    the agent remembers of its episode, as the wrapper PullStatistics), "distribution" (mu_i, as named arrays) or
    "distribution+statistics" (PullStatistics on these).
    """

    observation: str = checked("statistics", one_of, choices=OBSERVATIONS)  #: what `act` is shown

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def act(self, observations: Any) -> Any:
        """The arm of each row (M,), or the probabilities of its arms (M, K), from which arms are then drawn.

        Row i of the answer may depend on row i of the observations alone. There are always M rows, the number of all
        agents, also when only some of them are played here: the answers for the others are not used.
        """

    def agents(self, view: View) -> "ExternalAgents":
        """Agents that never communicate."""
        return ExternalAgents(self, view)


class ExternalAgents(StepAgents):
    """Agents that ask `act` at each step."""

    def __init__(self, policy: ExternalPolicy, view: View):
        super().__init__(view)
        self.policy = policy
        shape = view.psi.shape[:2]
        self.pulls: IntArray = np.zeros(shape, dtype=np.int64)
        self.sums: FloatArray = np.zeros(shape)  # of rewards

    def choose(self) -> IntArray:
        """What the policy answers to the agents' observations."""
        try:
            answer = np.asarray(self.policy.act(self._observations()))
        except Exception as error:
            error.add_note(f"{type(self.policy).__name__} was asked for the arms of step {self.pulls[0].sum()}")
            raise
        return self._arms(answer)

    def learn(self, arm: IntArray, pulls: IntArray, rewards: FloatArray) -> None:
        """Remember the rewards."""
        where = places(arm, self.pulls.shape[1])
        self.pulls.reshape(-1)[where] += pulls
        self.sums.reshape(-1)[where] += rewards

    def _observations(self) -> Any:
        """A batch of M rows, those of this block at the places of its agents, the others filled with one of them.

        Networks round differently for batches of different sizes. With one size for all blocks, and each agent at its
        own place, its arms do not depend on who else is in the block.
        """
        rows = np.zeros(self.view.constants.num_agents, dtype=np.int64)
        rows[self.view.agents] = np.arange(len(self.view.agents))
        shown = self._observed()
        return {name: part[rows] for name, part in shown.items()} if isinstance(shown, dict) else shown[rows]

    def _observed(self) -> Any:
        """What the agents of this block are shown: an array (n, length), or named arrays (n, ...)."""
        kind = self.policy.observation
        if kind == "features":
            return flat_features(self.view.psi)
        if kind == "distribution":
            return self.view.distribution.encode()
        statistics = pull_statistics(self.pulls, self.sums, self.view.constants.horizon)
        if kind == "statistics":
            return np.concatenate([flat_features(self.view.psi), statistics], axis=1)
        return self.view.distribution.encode() | statistics_by_name(statistics)

    def _arms(self, answer: NDArray[Any]) -> IntArray:
        """(n,) the arms of this block's agents."""
        num_agents, num_arms = self.view.constants.num_agents, self.view.constants.num_arms
        if answer.shape == (num_agents,) and answer.dtype.kind in "iu":
            return answer[self.view.agents]
        if answer.shape == (num_agents, num_arms) and answer.dtype.kind == "f":
            return self._drawn(answer[self.view.agents].astype(np.float64))
        raise ProtocolError(
            f"{type(self.policy).__name__}: expected whole numbers of shape ({num_agents},), the arm of each row, or "
            f"probabilities of shape ({num_agents}, {num_arms}), got {answer.dtype} of shape {answer.shape}; return "
            "one row for each row of the observations"
        )

    def _drawn(self, probabilities: FloatArray) -> IntArray:
        """(n,) arms drawn with the policy's own random numbers, so that runs repeat."""
        sums = probabilities.sum(axis=1)
        if not (probabilities.min() >= 0 and np.abs(sums - 1).max() < 1e-3):
            raise ProtocolError(
                f"{type(self.policy).__name__}: expected probabilities that sum to 1 in each row, got a smallest of "
                f"{probabilities.min():g} and sums from {sums.min():g} to {sums.max():g}; apply a softmax"
            )
        cumulative = probabilities.cumsum(axis=1)
        step = int(self.pulls[0].sum())
        drawn = self.view.randomness.draws(step).uniforms() * cumulative[:, -1]
        return (cumulative[:, :-1] <= drawn[:, None]).sum(axis=1)


def from_callable(
    function: Function,
    *,
    observation: str = "statistics",
    name: str = "External",
    version: str | Callable[[], str] | None = None,
    num_arms: int | None = None,
) -> ExternalPolicy:
    """The policy that plays what `function` answers to a batch of observations; see `ExternalPolicy.act`.

    To use it in experiments, `fb.register_policy("My-Model", type(policy))`; they then run in this process alone, with
    executor="serial". For worker processes, register a subclass of ExternalPolicy from the top of a module.

    Args:
        function: from observations, one row an agent, to arms (M,) or probabilities of the arms (M, K).
        observation: what it is shown; see ExternalPolicy.
        name: what errors call it.
        version: tells models apart where results are kept: those of one version are never continued with another. Or a
            function that gives it, which is asked again at each run: a model that has changed since is refused. None: a
            new one at each call, so that results can't be continued at all.
        num_arms: how many arms it chooses from, if it can't be played on problems with another number of them; problems
            of different sizes can have observations of the same length.
    """
    if not callable(function):
        raise ValueError(f"function: expected a callable, got {function!r}; pass a function of a batch of observations")
    shown = one_of("observation", observation, OBSERVATIONS)
    fingerprint = version if callable(version) else None
    made = fingerprint() if fingerprint else uuid.uuid4().hex if version is None else str(version)

    @dataclass(frozen=True)
    class Named(ExternalPolicy):
        observation: str = checked(shown, one_of, choices=(shown,))
        version: str = checked(made, one_of, choices=(made,))

        def act(self, observations: Any) -> Any:
            return function(observations)

        def agents(self, view: View) -> ExternalAgents:
            if num_arms not in (None, view.constants.num_arms):
                raise ValueError(
                    f"{name}: expected a problem with {num_arms} arms, as the model knows, got one with "
                    f"{view.constants.num_arms}; play it on problems of the size it was trained on"
                )
            if fingerprint and fingerprint() != made:
                raise ValueError(
                    f"{name}: expected the model as it was when it became a policy, got one that has changed since; "
                    "make the policy after training"
                )
            return ExternalAgents(self, view)

    Named.__name__ = name  # its __qualname__ still tells that it was made here, so that no other process can import it
    return Named()


def from_sb3(
    model: Any, *, observation: str = "statistics", deterministic: bool = True, name: str = "SB3"
) -> ExternalPolicy:
    """The policy of a model of Stable-Baselines3 that was trained on the observations of single agents.

    Args:
        model: the model itself. Files are not loaded here: SB3's can run any code, so load those you trust yourself.
        observation: what it was trained on; see ExternalPolicy.
        deterministic: play the likeliest arm; else draw arms as in training, for models with an actor, such as PPO.
        name: what errors call it.
    """
    if not all(hasattr(model, part) for part in ("predict", "policy", "action_space")):
        raise ValueError(f"model: expected a model of Stable-Baselines3, got {model!r}; load it with its own class")
    if not hasattr(model.action_space, "n"):
        raise ValueError(
            f"model: expected one that chooses one agent's arm, got actions in {model.action_space}; a model of the "
            "joint view sees all agents at once, which would be communication that nobody counts"
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
        raise ValueError(f"observation: expected what the model was trained on, {space}, got {observation!r}; name it")

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
        version=lambda: _digest(network, deterministic),
        num_arms=int(model.action_space.n),
    )


def _check_shapes(space: Any, observations: Any) -> None:
    """Refuse observations that a model was not trained on."""
    spaces = dict(space.spaces) if hasattr(space, "spaces") else {"": space}
    parts = observations if isinstance(observations, dict) else {"": observations}
    expected = {key: part.shape for key, part in spaces.items()}
    got = {key: part.shape[1:] for key, part in parts.items()}
    if expected != got:
        raise ValueError(
            f"observations: expected shapes {expected}, on which the model was trained, got {got}; play it on problems "
            "with the same numbers of arms and dimensions and the same kind of contexts, with the same observation="
        )


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

    return from_callable(act, observation=observation, name=name, version=lambda: _digest(module))


def _last(key: str | tuple[str, ...]) -> str:
    return key if isinstance(key, str) else key[-1]


def _digest(network: Any, *settings: object) -> str:
    """A fingerprint of a torch module: its weights, its layers, and what else decides how it is played."""
    digest = hashlib.sha256(repr((network, settings)).encode())
    for name, tensor in network.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
