"""Bandit problems with their truth, which policies never see."""
