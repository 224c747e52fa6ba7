"""
A new policy
============

Explore every arm, pool what all agents saw by least squares, and commit. What the policy sends is counted like
anybody's. :doc:`/how-to/own-policy` explains each part.
"""

from dataclasses import dataclass

import numpy as np

import fedbandit_envs as fb


@dataclass(frozen=True)
class ExploreThenCommit(fb.Policy):
    """Try each arm some times, then play the best."""

    tries: int = 20

    def agents(self, view):
        """Make the agents' side."""
        return Explorers(self.tries, view)

    def server(self, view):
        """Make the server's side."""
        return LeastSquares()


class Explorers(fb.AgentSide):
    """Agents that explore once and commit to what the server says."""

    def __init__(self, tries, view):
        self.tries, self.view = tries, view

    def plan(self, down, remaining):
        """Try every arm at the start, then play the best one to the end."""
        if down is None:
            return fb.Plan.explore_each(self.tries, *self.view.psi.shape[:2])
        rewards = np.einsum("nad,ad->na", self.view.psi, down["theta"])
        return fb.Plan.play(rewards.argmax(axis=1), rewards.shape[1], length=remaining)

    def report(self, feedback):
        """Send the expected features and the mean rewards."""
        return fb.Message("means", {"x": self.view.psi, "y": feedback.sums() / self.tries}, self.view.agents)


class LeastSquares(fb.ServerSide):
    """A server that fits each arm's theta to all reports."""

    def answer(self, up):
        """The estimate for each arm, over all agents."""
        return fb.Message("theta", {"theta": np.einsum("adn,na->ad", np.linalg.pinv(up["x"].swapaxes(0, 1)), up["y"])})


# %%
# `check_policy` plays the policy on small problems and says what is wrong with it, if anything is.

fb.register_policy("Explore-Then-Commit", ExploreThenCommit)
print(fb.testing.check_policy(ExploreThenCommit()))

# %%
# Now it stands beside the others. All policies of a trial meet the same problem.

policies = ["Explore-Then-Commit", "Fed-CI", "Local-UCB", "Uniform"]
experiment = fb.Experiment("fedbandit/Synthetic-v0", policies, {"num_agents": 30, "max_cycles": 2**12}, trials=5)
result = fb.run(experiment, executor="serial")
figure = fb.plotting.regret(result)
