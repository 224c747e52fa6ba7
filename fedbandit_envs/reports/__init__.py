"""What is made of results: figures, tables for papers, the HTML report, and lines for trackers."""

from fedbandit_envs.reports import plotting as plotting
from fedbandit_envs.reports import tracking as tracking
