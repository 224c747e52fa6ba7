"""Baselines: Fed-PE and its variants, policies that decide at each step or talk to peers, and two yardsticks."""

from fedbandit_baselines.coop_ucb import CoopUCB2
from fedbandit_baselines.dd_ucb import DDUCB
from fedbandit_baselines.dis_lin_ucb import DisLinUCB
from fedbandit_baselines.fed_pe import Collaborative, EnhancedFedPE, FedPE, SharedThetaFedPE
from fedbandit_baselines.gossip_ucb import GossipUCB
from fedbandit_baselines.thompson import ExactThompson, FederatedThompson, LocalThompson
from fedbandit_baselines.ucb import KKUCB, LocalUCB
from fedbandit_baselines.yardsticks import Oracle, Uniform

__all__ = [
    "DDUCB",
    "KKUCB",
    "Collaborative",
    "CoopUCB2",
    "DisLinUCB",
    "EnhancedFedPE",
    "ExactThompson",
    "FedPE",
    "FederatedThompson",
    "GossipUCB",
    "LocalThompson",
    "LocalUCB",
    "Oracle",
    "SharedThetaFedPE",
    "Uniform",
]
