"""Tiny policies and tasks for the tests of experiments; a module of its own, so that worker processes can import it."""

import os
import secrets
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fedbandit_envs as fb
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.protocol.registry import policy_names, register_policy


@dataclass(frozen=True)
class OneArm(fb.Policy):
    """Plays one arm in pieces of the horizon, and sends one number after each."""

    arm: int = 0
    pieces: int = 4

    def agents(self, view: fb.View) -> "OneArmAgents":
        return OneArmAgents(self, view)

    def server(self, view: fb.ServerView) -> "Listener":
        return Listener()


class OneArmAgents(fb.AgentSide):
    def __init__(self, policy: OneArm, view: fb.View):
        self.policy, self.view = policy, view

    def plan(self, down: Any, remaining: int) -> fb.Plan:
        constants = self.view.constants
        arms = np.full(len(self.view.agents), self.policy.arm)
        return fb.Plan.play(arms, constants.num_arms, constants.horizon // self.policy.pieces)

    def report(self, feedback: fb.Feedback) -> fb.Message:
        return fb.Message("mean", {"mean": feedback.played_sums}, self.view.agents)


class Listener(fb.ServerSide):
    def answer(self, up: fb.Message) -> None:
        return None


@dataclass(frozen=True)
class FailsSometimes(OneArm):
    """Raises in trials whose first feature says so."""

    share: float = 0.5

    def agents(self, view: fb.View) -> "OneArmAgents":
        if view.randomness.draws(0).uniforms()[0] < self.share:
            raise TwoArgumentsError("no", "luck")
        return super().agents(view)


@dataclass(frozen=True)
class Sleeps(OneArm):
    """Takes its time."""

    seconds: float = 0.5

    def agents(self, view: fb.View) -> "OneArmAgents":
        time.sleep(self.seconds)
        return super().agents(view)


@dataclass(frozen=True)
class Hangs(OneArm):
    """Never comes back in the trials that a share of random numbers says; leaves its process's id in a folder."""

    share: float = 0.4
    folder: str = ""
    how: str = "sleeps"

    def agents(self, view: fb.View) -> "OneArmAgents":
        if self.folder:
            (Path(self.folder) / str(os.getpid())).touch()
        if view.randomness.draws(0).uniforms()[0] < self.share:
            if self.how == "is stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif self.how == "computes":
                pow(3, 10**8)  # in compiled code, where no other thread of the process can run
            time.sleep(600)
        return super().agents(view)


@dataclass(frozen=True)
class Marks(OneArm):
    """Leaves a file in a folder whenever it begins, and another one when it has taken its time."""

    folder: str = ""
    seconds: float = 0.0

    def agents(self, view: fb.View) -> "OneArmAgents":
        assert self.folder, "give a folder, or the files lie where the tests were started"
        trial = view.randomness.draws(0).uniforms()[0]
        (Path(self.folder) / f"begun {trial} {secrets.token_hex(8)}").touch()
        time.sleep(self.seconds)
        (Path(self.folder) / f"done {trial} {secrets.token_hex(8)}").touch()
        return super().agents(view)


class TwoArgumentsError(Exception):
    """Breaks a process pool when it is pickled: it can't be made again from its one argument."""

    def __init__(self, first: str, second: str):
        super().__init__(f"{first} {second}")


def register() -> None:
    policies = {"Test-One-Arm": OneArm, "Test-Fails": FailsSometimes, "Test-Sleeps": Sleeps, "Test-Marks": Marks}
    policies["Test-Hangs"] = Hangs
    for name, policy in policies.items():
        if name not in policy_names():
            register_policy(name, policy)


def process_of(_: int) -> int:
    """The id of the process that computes."""
    return os.getpid()


def double(number: int) -> int:
    return 2 * number


def die(number: int, times: int, folder: str) -> int:
    """Kills its process the first `times` times that it is called with `number`."""
    died = len(list(Path(folder).glob(f"{number}-*")))
    if died < times:
        (Path(folder) / f"{number}-{died}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


def threads_of_linear_algebra() -> str | None:
    return os.environ.get("OPENBLAS_NUM_THREADS")


def sleep_and_tell(folder: str, seconds: float) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(seconds)


def compute_and_tell(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()
    pow(3, 10**8)  # in compiled code, where no other thread of the process can run


def small(trials: int = 5, **changes: Any) -> fb.Experiment:
    arguments = {"num_agents": 6, "num_arms": 3, "max_cycles": 64, "error": "classical"}
    fields: dict[str, Any] = {"policies": ["Test-One-Arm", "Fed-PECD", "Fed-PE"], "seed": 3} | changes
    return fb.Experiment("fedbandit/Synthetic-v0", arguments=arguments, trials=trials, **fields)


register()


def against_the_last_arm(instance: fb.BanditInstance) -> FloatArray:
    """(M, K) the gaps of a kind of regret of one's own."""
    return instance.means[:, [-1]] - instance.means
