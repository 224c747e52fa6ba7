"""Baselines: Fed-PE and its variants, step-by-step policies, and the two ends of the scale."""

from fedbandit_baselines.dis_lin_ucb import DisLinUCB
from fedbandit_baselines.fed_pe import Collaborative, EnhancedFedPE, FedPE, SharedThetaFedPE
from fedbandit_baselines.thompson import ExactThompson, FederatedThompson, LocalThompson
from fedbandit_baselines.ucb import KKUCB, KKUCBObserved, LocalUCB
from fedbandit_baselines.yardsticks import Oracle, Uniform

__all__ = [
    "KKUCB",
    "Collaborative",
    "DisLinUCB",
    "EnhancedFedPE",
    "ExactThompson",
    "FedPE",
    "FederatedThompson",
    "KKUCBObserved",
    "LocalThompson",
    "LocalUCB",
    "Oracle",
    "SharedThetaFedPE",
    "Uniform",
]
