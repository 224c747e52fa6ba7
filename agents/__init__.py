"""Policies for federated bandits with hidden contexts: Fed-PECD, Fed-CI, and what each shares with its relatives."""

from fedbandit_agents.fed_ci import FedCI
from fedbandit_agents.fed_ci_elimination import FedCIElimination
from fedbandit_agents.fed_pecd import FedPECD
from fedbandit_agents.phased_elimination import PhasedElimination

__all__ = ["FedCI", "FedCIElimination", "FedPECD", "PhasedElimination"]
