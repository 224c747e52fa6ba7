"""Figures made from results."""

from fedbandit_envs.reports import plotting as plotting
