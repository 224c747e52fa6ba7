"""Baselines: Fed-PE and its variants, step-by-step and multi-armed policies, policies of peers, and two yardsticks."""

from fedbandit_baselines.best_arm import MultiRound
from fedbandit_baselines.coop_ucb import CoopUCB2
from fedbandit_baselines.coop_ucl import CoopUCL
from fedbandit_baselines.dcb import DCB
from fedbandit_baselines.dd_ucb import DDUCB
from fedbandit_baselines.dec_ucb import DecUCB
from fedbandit_baselines.fed1_fed2_ucb import Fed1UCB, Fed2UCB
from fedbandit_baselines.fed_pe import Collaborative, EnhancedFedPE, FedPE, SharedThetaFedPE
from fedbandit_baselines.gosine import GosInE
from fedbandit_baselines.gossip_ucb import GossipUCB
from fedbandit_baselines.limited_interaction import LimitedInteraction
from fedbandit_baselines.linear.async_lin_ucb import AsyncLinUCB
from fedbandit_baselines.linear.delb import DELB
from fedbandit_baselines.linear.dis_lin_ucb import DisLinUCB
from fedbandit_baselines.linear.feature_selection import FeatureSelection
from fedbandit_baselines.linear.fed_lin_ucb import FedLinUCB
from fedbandit_baselines.linear.fed_ucb import FedUCB
from fedbandit_baselines.linear.kk_ucb import KKUCB, KKUCBObserved
from fedbandit_baselines.linear.lin_delayed import LinDelayed
from fedbandit_baselines.linear.lin_hidden import LinHidden
from fedbandit_baselines.linear.private_fed_lin_ucb import PrivateFedLinUCB
from fedbandit_baselines.linear.residual_lin_ucb import ResidualLinUCB
from fedbandit_baselines.linear.weighted_dis_lin_ucb import WeightedDisLinUCB
from fedbandit_baselines.multi_armed_ucb import UCB1, PooledUCB
from fedbandit_baselines.one_round import OneRound
from fedbandit_baselines.orch_explore import OrchExplore
from fedbandit_baselines.pf_ucb import PFUCB
from fedbandit_baselines.private_gossip_ucb import PrivateGossipUCB
from fedbandit_baselines.shared_yardsticks import SharedOracle, SharedUniform
from fedbandit_baselines.thompson import ExactThompson, FederatedThompson, LocalThompson, ThetaTold
from fedbandit_baselines.ucb import LocalUCB
from fedbandit_baselines.yardsticks import Oracle, Uniform

__all__ = [
    "DCB",
    "DDUCB",
    "DELB",
    "KKUCB",
    "PFUCB",
    "UCB1",
    "AsyncLinUCB",
    "Collaborative",
    "CoopUCB2",
    "CoopUCL",
    "DecUCB",
    "DisLinUCB",
    "EnhancedFedPE",
    "ExactThompson",
    "FeatureSelection",
    "Fed1UCB",
    "Fed2UCB",
    "FedLinUCB",
    "FedPE",
    "FedUCB",
    "FederatedThompson",
    "GosInE",
    "GossipUCB",
    "KKUCBObserved",
    "LimitedInteraction",
    "LinDelayed",
    "LinHidden",
    "LocalThompson",
    "LocalUCB",
    "MultiRound",
    "OneRound",
    "Oracle",
    "OrchExplore",
    "PooledUCB",
    "PrivateFedLinUCB",
    "PrivateGossipUCB",
    "ResidualLinUCB",
    "SharedOracle",
    "SharedThetaFedPE",
    "SharedUniform",
    "ThetaTold",
    "Uniform",
    "WeightedDisLinUCB",
]
