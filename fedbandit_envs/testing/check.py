"""For authors of policies: `check_policy` plays a policy in every way the contract allows and names what is wrong."""

from collections.abc import Mapping

import numpy as np

from fedbandit_envs.contexts.features import Identity, Table
from fedbandit_envs.contexts.finite import Discrete
from fedbandit_envs.contexts.gaussian import Gaussian
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.problems.generator import InstanceGenerator, draw_instance
from fedbandit_envs.problems.instance_checks import OBSERVES
from fedbandit_envs.problems.linear import Linear
from fedbandit_envs.problems.shared_arms import SharedArms
from fedbandit_envs.problems.synthetic import Synthetic
from fedbandit_envs.protocol.policy import Policy, observe_for
from fedbandit_envs.rounds.why_not import why_not
from fedbandit_envs.testing.problem_check import ProblemCheck
from fedbandit_envs.validation import one_of, whole_number

_STEPS = 50  # the horizon with which a policy is asked what it plays
_CHANGING = Synthetic(num_agents=3, num_arms=3, dim=2, context="streaming")


def check_policy(
    policy: Policy,
    *,
    problems: Mapping[str, InstanceGenerator | SharedArms] | None = None,
    horizon: int | None = None,
    seed: int = 0,
) -> str:
    """Play a policy on small problems and name the first fault, or return a sentence that says that there is none.

    Checked: every plan and message; that nothing received or sent is changed; that a run repeats, also beside another
    one; that it is the same, bit for bit, however the agents are split; that it can be stopped after any round and
    resumed; and, unless the policy observes "truth" or "theta", that another truth behind the same view and rewards
    changes no decision. Policies that talk to peers are played on a ring. Those for arms that agents share are played
    on such, where what is paid follows the truth, so another truth is not tried.

    Args:
        policy: an instance of your policy.
        problems: the problems to play, by a name for each; None: small ones of all kinds that it can play.
        horizon: the number of steps of a run; None: a short one, or a long one for policies whose plans are long.
        seed: the seed of the problems and of the rewards.

    Raises:
        PolicyFault: the first fault, with its place, what was expected and what came.

    >>> from fedbandit_envs.protocol.registry import make_policy
    >>> problems = {"two agents": Synthetic(num_agents=2, num_arms=2, dim=2)}
    >>> check_policy(make_policy("Uniform"), problems=problems, horizon=20)
    'Uniform: no fault found on two agents'
    """
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy: expected a Policy, got {policy!r}; use fb.make_policy(name), or an instance of yours"
        )
    one_of(f"{type(policy).__name__}.observes", policy.observes, OBSERVES)
    if horizon is not None:
        whole_number("horizon", horizon, at_least=1)
    chosen = _default_problems(policy) if problems is None else problems
    for number, (name, problem) in enumerate(chosen.items()):
        ProblemCheck(policy, problem, horizon, seed, name, thorough=number == 0).all()
    checked = list(chosen)
    if problems is None and not policy.shares_arms and _follows_changes(policy):
        checked.append("changing contexts")
        ProblemCheck(policy, _CHANGING, horizon, seed, checked[-1], thorough=False).all()
    return f"{type(policy).__name__}: no fault found on {', '.join(checked)}"


def _default_problems(policy: Policy) -> Mapping[str, InstanceGenerator | SharedArms]:
    """Small problems of all kinds that a policy can play."""
    if policy.shares_arms:
        return {
            "arms that agents share": SharedArms(num_agents=4, num_arms=5),
            "one agent, one arm": SharedArms(num_agents=1, num_arms=1),
        }
    if policy.observes == "delayed":
        return {
            "revealed contexts": Synthetic(num_agents=5, num_arms=4, context_std=0.1, context="streaming"),
            "one agent, one arm": Synthetic(num_agents=1, num_arms=1, dim=2, context="streaming"),
        }
    rng = np.random.default_rng(0)
    people = Discrete(rng.uniform(0.2, 0.9, (3, 2, 2)), np.array([[0.5, 0.5], [0.3, 0.7], [1.0, 0.0]]))
    alike = Gaussian(np.tile(rng.uniform(0.2, 0.9, 6), (4, 1)), std=0.1)
    problems: dict[str, InstanceGenerator] = {
        "hidden contexts": Synthetic(num_agents=5, num_arms=4, context_std=0.1),
        "one agent, one arm": Synthetic(num_agents=1, num_arms=1, dim=2),
        "shared accounts": Linear(rng.uniform(0.0, 1.0, (3, 2)), contexts=people, feature_map=Identity(3, 2)),
        "the same arms": Linear(
            rng.uniform(0.0, 1.0, (3, 2)), contexts=alike, feature_map=Table(3, 2), same_arms=True, theta_bound=2.0
        ),
    }
    if policy.observes != "context":
        problems["resampled contexts"] = Synthetic(num_agents=3, num_arms=3, dim=2, context="resampled")
    return {name: problem for name, problem in problems.items() if _plays(policy, problem)}


def _plays(policy: Policy, problem: InstanceGenerator) -> bool:
    """Whether the policy plays problems with these constants."""
    try:
        policy.check_problem(draw_instance(problem, 0).constants(_STEPS, observe_for(policy)))
    except ValueError:
        return False
    return True


def _follows_changes(policy: Policy) -> bool:
    """Whether the policy plays problems whose contexts change, and are never revealed."""
    env = HiddenContextBandit(_CHANGING, max_cycles=_STEPS, observe=observe_for(policy))
    return why_not(policy, env, network="ring") is None
