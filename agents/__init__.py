"""Policies for federated bandits with hidden contexts: Fed-PECD, Fed-CI, what each shares, and models as policies."""

from fedbandit_agents.external import ExternalPolicy, from_callable
from fedbandit_agents.external_sb3 import from_sb3
from fedbandit_agents.external_torchrl import from_torchrl
from fedbandit_agents.inference.fed_ci import FedCI
from fedbandit_agents.inference.fed_ci_elimination import FedCIElimination
from fedbandit_agents.phased.elimination import PhasedElimination
from fedbandit_agents.phased.fed_pecd import FedPECD
from fedbandit_agents.phased.theorem import Phase, phases

__all__ = [
    "ExternalPolicy",
    "FedCI",
    "FedCIElimination",
    "FedPECD",
    "Phase",
    "PhasedElimination",
    "from_callable",
    "from_sb3",
    "from_torchrl",
    "phases",
]
