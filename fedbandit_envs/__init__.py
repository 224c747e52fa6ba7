"""Federated bandits with hidden contexts: environments, policies, and honest comparisons between them.

import fedbandit_envs as fb

env = fb.make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17)
history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
print(history.mean_regret()[-1], history.ledger.scalars)
"""

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

__all__ = [
    "AgentSide",
    "BanditInstance",
    "CommunicationRounds",
    "Constants",
    "ContextDistribution",
    "Discrete",
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
    "ProtocolError",
    "ServerSide",
    "Synthetic",
    "Table",
    "View",
    "environment_ids",
    "make",
    "make_policy",
    "play",
    "policy_names",
    "register_policy",
]

register_environments()
