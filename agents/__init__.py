"""Policies for federated bandits with hidden contexts: Fed-PECD and the phased elimination it shares with Fed-PE."""

from fedbandit_agents.fed_pecd import FedPECD
from fedbandit_agents.phased_elimination import PhasedElimination

__all__ = ["FedPECD", "PhasedElimination"]
