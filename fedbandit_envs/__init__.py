"""Federated bandits with hidden contexts: environments, policies, and honest comparisons between them.

import fedbandit_envs as fb

env = fb.make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17)
history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
print(history.mean_regret()[-1], history.ledger.scalars)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedbandit_envs.ids import environment_ids, register_environments

if TYPE_CHECKING:
    from fedbandit_envs import household_v0, linear_v0, movielens_v0, plotting, synthetic_v0, testing
    from fedbandit_envs.auditing import audit, phases
    from fedbandit_envs.channel import Ledger
    from fedbandit_envs.contexts import ContextDistribution, Discrete, Gaussian, PointMass
    from fedbandit_envs.env import HiddenContextBandit
    from fedbandit_envs.experiment import Experiment, PolicySpec
    from fedbandit_envs.faults import Faults, QuorumLost
    from fedbandit_envs.features import FeatureFunction, FeatureMap, Identity, Table
    from fedbandit_envs.generators import Household, Linear, MovieLens, Synthetic
    from fedbandit_envs.history import History
    from fedbandit_envs.instance import BanditInstance
    from fedbandit_envs.knowledge import Constants, View
    from fedbandit_envs.protocol import (
        AgentSide,
        Feedback,
        Message,
        Plan,
        Policy,
        ProtocolError,
        ServerSide,
        StepAgents,
    )
    from fedbandit_envs.registration import make, make_policy, policy_names, register_policy
    from fedbandit_envs.results import Result
    from fedbandit_envs.rounds import CommunicationRounds, play
    from fedbandit_envs.running import run, run_all
    from fedbandit_envs.wrappers import ExpectedFeatures, PullStatistics, RecordRegret

__all__ = [
    "AgentSide",
    "BanditInstance",
    "CommunicationRounds",
    "Constants",
    "ContextDistribution",
    "Discrete",
    "ExpectedFeatures",
    "Experiment",
    "Faults",
    "FeatureFunction",
    "FeatureMap",
    "Feedback",
    "Gaussian",
    "HiddenContextBandit",
    "History",
    "Household",
    "Identity",
    "Ledger",
    "Linear",
    "Message",
    "MovieLens",
    "Plan",
    "PointMass",
    "Policy",
    "PolicySpec",
    "ProtocolError",
    "PullStatistics",
    "QuorumLost",
    "RecordRegret",
    "Result",
    "ServerSide",
    "StepAgents",
    "Synthetic",
    "Table",
    "View",
    "audit",
    "environment_ids",
    "household_v0",
    "linear_v0",
    "make",
    "make_policy",
    "movielens_v0",
    "phases",
    "play",
    "plotting",
    "policy_names",
    "register_policy",
    "run",
    "run_all",
    "synthetic_v0",
    "testing",
]

# Everything is imported at first use, so that `import fedbandit_envs`, which gymnasium.make() does for its users, costs
# little more than Gymnasium and PettingZoo themselves. The names above are the same, for readers and type checkers.
_HOMES = {
    "auditing": ("audit", "phases"),
    "channel": ("Ledger",),
    "contexts": (
        "ContextDistribution",
        "Discrete",
        "Gaussian",
        "PointMass",
    ),
    "env": ("HiddenContextBandit",),
    "experiment": (
        "Experiment",
        "PolicySpec",
    ),
    "faults": (
        "Faults",
        "QuorumLost",
    ),
    "features": (
        "FeatureFunction",
        "FeatureMap",
        "Identity",
        "Table",
    ),
    "generators": (
        "Household",
        "Linear",
        "MovieLens",
        "Synthetic",
    ),
    "history": ("History",),
    "instance": ("BanditInstance",),
    "knowledge": (
        "Constants",
        "View",
    ),
    "protocol": (
        "AgentSide",
        "Feedback",
        "Message",
        "Plan",
        "Policy",
        "ProtocolError",
        "ServerSide",
        "StepAgents",
    ),
    "registration": (
        "make",
        "make_policy",
        "policy_names",
        "register_policy",
    ),
    "results": ("Result",),
    "rounds": (
        "CommunicationRounds",
        "play",
    ),
    "running": (
        "run",
        "run_all",
    ),
    "wrappers": (
        "ExpectedFeatures",
        "PullStatistics",
        "RecordRegret",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("household_v0", "linear_v0", "movielens_v0", "plotting", "synthetic_v0", "testing")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_environments()
