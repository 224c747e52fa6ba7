"""Federated bandits with hidden contexts: environments, policies, and honest comparisons between them.

import fedbandit_envs as fb

env = fb.make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17)
history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
print(history.mean_regret()[-1], history.ledger.scalars)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedbandit_envs.channel import Ledger
from fedbandit_envs.contexts import ContextDistribution, Discrete, Gaussian, PointMass
from fedbandit_envs.env import HiddenContextBandit
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
)
from fedbandit_envs.registration import (
    environment_ids,
    make,
    make_policy,
    policy_names,
    register_environments,
    register_policy,
)
from fedbandit_envs.rounds import CommunicationRounds, play
from fedbandit_envs.wrappers import ExpectedFeatures, PullStatistics, RecordRegret

if TYPE_CHECKING:
    from fedbandit_envs import plotting
    from fedbandit_envs.experiment import Experiment, PolicySpec
    from fedbandit_envs.results import Result
    from fedbandit_envs.running import run, run_all

__all__ = [
    "AgentSide",
    "BanditInstance",
    "CommunicationRounds",
    "Constants",
    "ContextDistribution",
    "Discrete",
    "ExpectedFeatures",
    "Experiment",
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
    "RecordRegret",
    "Result",
    "ServerSide",
    "Synthetic",
    "Table",
    "View",
    "environment_ids",
    "make",
    "make_policy",
    "play",
    "plotting",
    "policy_names",
    "register_policy",
    "run",
    "run_all",
    "testing",
]

register_environments()

_LATER = {  # what needs more than numpy, gymnasium and pettingzoo, or is not part of playing; imported at first use
    "Experiment": "experiment",
    "PolicySpec": "experiment",
    "Result": "results",
    "plotting": "",
    "run": "running",
    "run_all": "running",
    "testing": "",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not _LATER[name]:
        return import_module(f"{__name__}.{name}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
