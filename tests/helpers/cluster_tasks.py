"""What workers of a cluster import for the tests: a module of its own, so that they can."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from experiment_policies import OneArm, OneArmAgents

import fedbandit_envs as fb


@dataclass(frozen=True)
class DiesOnce(OneArm):
    """Kills its process in the middle of the first trial that is played without a mark in `folder`."""

    folder: str = ""

    def agents(self, view: fb.View) -> OneArmAgents:
        mark = Path(self.folder) / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().agents(view)
