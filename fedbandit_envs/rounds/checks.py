"""What a run needs before it can begin: an environment, a policy that can play it, and faults that make sense."""

from pettingzoo import ParallelEnv

from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.problems.instance import OBSERVES
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.validation import one_of


def checked_environment(env: object) -> HiddenContextBandit:
    """The bandit inside an environment that may be wrapped; anything else is refused."""
    bandit = getattr(env, "unwrapped", env)
    if not isinstance(bandit, HiddenContextBandit) or not isinstance(env, ParallelEnv):
        raise ValueError(
            f"env: expected a HiddenContextBandit, wrapped or not, got {type(env).__name__}; use fb.make(id), or "
            "pettingzoo.make('parallel', id)"
        )
    return bandit


def check_plays(policy: object, bandit: HiddenContextBandit) -> None:
    """Refuse what is no policy, and a policy that needs what this environment does not show or is not installed."""
    if not isinstance(policy, Policy):
        raise ValueError(
            f"policy: expected a Policy, got {policy!r}; use fb.make_policy(name), or an instance of yours"
        )
    one_of(f"{type(policy).__name__}.observes", policy.observes, OBSERVES)
    if policy.observes == "context" and not bandit.exact:
        advice = "make the environment with observe='context'"
        if bandit.resampled:  # then there is no context that could be shown
            advice = "make the environment with context='fixed' and observe='context'"
        raise ValueError(
            f"policy: expected one that observes the distribution, got {type(policy).__name__}, which needs the "
            f"context, and this environment hides it; {advice}"
        )
    policy.check_installed()


def check_faults(faults: Faults | None, num_agents: int) -> None:
    """Refuse what is no `Faults`, and a schedule of agents that don't exist."""
    if faults is None:
        return
    if not isinstance(faults, Faults):
        raise ValueError(f"faults: expected Faults, got {faults!r}; use Faults(dropout=0.1)")
    faults.check(num_agents)
