"""A policy whose server draws random numbers: it tells all agents which arm to play next."""

from dataclasses import dataclass

import numpy as np

import fedbandit_envs as fb
from fedbandit_envs.protocol.registry import policy_names


@dataclass(frozen=True)
class RandomArms(fb.Policy):
    """All agents play what the server draws, five steps at a time."""

    def agents(self, view: fb.View) -> "Followers":
        return Followers(view)

    def server(self, view: fb.ServerView) -> "Dice":
        return Dice(view)


class Followers(fb.AgentSide):
    def __init__(self, view: fb.View):
        self.view = view

    def plan(self, down: fb.Message | None, remaining: int) -> fb.Plan:
        arm = 0 if down is None else int(down["arm"])
        return fb.Plan.play(np.full(len(self.view.agents), arm), self.view.constants.num_arms, 5)

    def report(self, feedback: fb.Feedback) -> fb.Message:
        return fb.Message("done", {}, self.view.agents)


class Dice(fb.ServerSide):
    def __init__(self, view: fb.ServerView):
        self.view, self.answers = view, 0

    def answer(self, up: fb.Message) -> fb.Message:
        self.answers += 1
        arm = self.view.randomness.generator(self.answers).integers(self.view.constants.num_arms)
        return fb.Message("play", {"arm": np.array(arm)})


NAME = "Test-Random-Server"
if NAME not in policy_names():
    fb.register_policy(NAME, RandomArms)
