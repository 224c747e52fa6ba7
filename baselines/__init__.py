"""Baselines: Fed-PE and its variants, step-by-step policies, and the two ends of the scale."""

from fedbandit_baselines.fed_pe import Collaborative, EnhancedFedPE, FedPE, SharedThetaFedPE
from fedbandit_baselines.reference import Oracle, Uniform

__all__ = ["Collaborative", "EnhancedFedPE", "FedPE", "Oracle", "SharedThetaFedPE", "Uniform"]
