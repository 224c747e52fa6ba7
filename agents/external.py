"""Trained models and plain functions as policies: what an RL library has learnt is played as any other policy.

    policy = from_sb3(PPO("MlpPolicy", env).learn(50_000))
    history = fb.play(fb.make("fedbandit/Synthetic-v0"), policy, seed=0)

A model is asked once a step, for all agents together, and sends nothing. It is shown what agents in the environments
are shown: a batch of the observations on which it was trained, with one row for each agent.
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
from fedbandit_envs.protocol.plans import ProtocolError
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.pull_tables import places
from fedbandit_envs.protocol.steps import Outcome, StepAgents
from fedbandit_envs.validation import check_fields, checked, one_of

#: What a policy of this module can be shown; `ExternalPolicy` explains each.
OBSERVATIONS = ("features", "distribution", "statistics", "distribution+statistics")
#: A function from a batch of observations to arms (M,), or to probabilities of the arms (M, K).
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class ExternalPolicy(Policy):
    """A policy that is one function of what an agent observes; agents never communicate.

    Subclass it at the top of a module and define `act`, so that worker processes can import it. For a function at hand
    use `from_callable`; for trained models use `from_sb3` or `from_torchrl`.

    `observation` says what `act` is shown, in the words of the environments:

    - "features": psi, flattened.
    - "statistics": psi, and what the agent remembers of its episode, as the wrapper PullStatistics gives it.
    - "distribution": mu_i, as named arrays.
    - "distribution+statistics": mu_i and the agent's memory, as named arrays.

    >>> class FirstArm(ExternalPolicy):
    ...     def act(self, observations):
    ...         return np.zeros(len(observations), dtype=int)
    >>> import fedbandit_envs as fb
    >>> history = fb.play(fb.make("fedbandit/Linear-v0", max_cycles=20), FirstArm(), seed=0)
    >>> history.pulls[-1][0]
    array([20,  0,  0])
    """

    observation: str = checked("statistics", one_of, choices=OBSERVATIONS)  #: what `act` is shown

    def __post_init__(self) -> None:
        check_fields(self)

    @abstractmethod
    def act(self, observations: Any) -> Any:
        """The arm of each row (M,), or the probabilities of its arms (M, K), from which arms are then drawn.

        Row i of the answer may depend on row i of the observations alone.

        Args:
            observations: an array (M, length), or named arrays (M, ...), where M is the number of all agents. If only
                some agents are played in this process, the answers for the others are not used.
        """

    def agents(self, view: View) -> "ExternalAgents":
        """Agents that never communicate."""
        return ExternalAgents(self, view)


class ExternalAgents(StepAgents):
    """Agents that ask the policy's `act` at each step."""

    def __init__(self, policy: ExternalPolicy, view: View):
        super().__init__(view)
        self.policy = policy
        shape = view.psi.shape[:2]
        self.pulls: IntArray = np.zeros(shape, dtype=np.int64)
        self.sums: FloatArray = np.zeros(shape)  # the sums of the rewards

    def observe(self, view: View) -> None:
        """Keep what is shown from now on."""
        self.view = view

    def choose(self) -> IntArray:
        """The arms that the policy answers to the agents' observations."""
        try:
            answer = np.asarray(self.policy.act(self._observations()))
        except Exception as error:
            error.add_note(f"{type(self.policy).__name__} was asked for the arms of step {self.pulls[0].sum()}")
            raise
        return self._arms(answer)

    def learn(self, outcome: Outcome) -> None:
        """Remember the rewards."""
        where = places(outcome.arm, self.pulls.shape[1])
        self.pulls.reshape(-1)[where] += outcome.pulls
        self.sums.reshape(-1)[where] += outcome.rewards

    def _observations(self) -> Any:
        """A batch of M rows: the agents of this block at their places; all other rows repeat one of them.

        Networks round differently for batches of different sizes. With one size for all blocks, and each agent at its
        own place, the arms of an agent do not depend on which other agents are in the block.
        """
        rows = np.zeros(self.view.constants.num_agents, dtype=np.int64)
        rows[self.view.agents] = np.arange(len(self.view.agents))
        shown = self._observed()
        return {name: part[rows] for name, part in shown.items()} if isinstance(shown, dict) else shown[rows]

    def _observed(self) -> Any:
        """The observations of this block's agents: an array (n, length), or named arrays (n, ...)."""
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
        """The arms of this block's agents (n,), from the policy's answer."""
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
        """Arms (n,) drawn with the policy's own random numbers, so that runs repeat."""
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
    """The policy that plays what a function answers to a batch of observations; see `ExternalPolicy.act`.

    To use it in experiments, call `fb.register_policy("My-Model", type(policy))`. Worker processes are sent a copy of
    the function and of all that it uses. What can't be copied runs with executor="serial", or as a subclass of
    ExternalPolicy at the top of a module.

    Args:
        function: takes observations, one row for each agent, and gives arms (M,) or probabilities of the arms (M, K).
        observation: what the function is shown; see `ExternalPolicy`.
        name: the name of the policy in error messages.
        version: tells models apart where results are kept: results of one version are never continued with another. It
            may be a function that gives the version. This function is asked again at each run, and a model that has
            changed since is refused. None is a new version at each call, so that results can't be continued at all.
        num_arms: the number of arms that the function chooses from, if it can't be played on problems with another
            number: problems of different sizes can have observations of the same length.

    >>> import fedbandit_envs as fb
    >>> policy = from_callable(lambda rows: np.full(len(rows), 2), name="Always-Two")
    >>> history = fb.play(fb.make("fedbandit/Linear-v0", max_cycles=20), policy, seed=0)
    >>> history.pulls[-1][0]
    array([ 0,  0, 20])
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
            _check_size(name, num_arms, view.constants.num_arms)
            if fingerprint and fingerprint() != made:
                raise ValueError(
                    f"{name}: expected the model as it was when it became a policy, got one that has changed since; "
                    "make the policy after training"
                )
            return ExternalAgents(self, view)

    Named.__name__ = name  # the __qualname__ still says that the class was made here: no other process can import it
    return Named()


def _check_size(name: str, expected: int | None, num_arms: int) -> None:
    if expected not in (None, num_arms):
        raise ValueError(
            f"{name}: expected a problem with {expected} arms, as the model knows, got one with {num_arms}; play it on "
            "problems of the size it was trained on"
        )


def network_digest(network: Any, *settings: object) -> str:
    """A fingerprint of a torch module: of its weights, of its layers, and of the settings with which it is played."""
    digest = hashlib.sha256(repr((network, settings)).encode())
    for name, tensor in network.state_dict().items():
        digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
