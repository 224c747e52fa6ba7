"""Trials that failed: what is kept of them, and how they are written."""

import os
import shlex
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedbandit_envs.experiments.results import Result

_LIBRARY = Path(__file__).parents[1]
_PYTHON = Path(os.__file__).parent


@dataclass(frozen=True)
class Failure:
    """A run that raised an exception: one policy in one trial."""

    trial: int  #: the number of the trial
    seed: int  #: the seed of the trial
    label: str  #: the policy that played, or "" if nothing came back at all
    error: str  #: the type and the message of the exception
    where: str  #: the last place in the user's own code, as "file:line, in function"
    trace: str  #: the whole traceback

    @classmethod
    def of(cls, trial: int, seed: int, label: str, error: BaseException) -> "Failure":
        """The failure in words: not every exception survives the way between processes."""
        notes = [*getattr(error, "__notes__", ()), *([f"while {label} played"] if label else [])]
        what = "; ".join([f"{type(error).__name__}: {error}", *notes])
        return cls(trial, seed, label, what, last_own_frame(error), "".join(traceback.format_exception(error)))


class FailedTrials(RuntimeError):
    """Some trials failed, after all others have finished.

    `failures` are the runs that failed, and `results` the trials that every policy has finished; both are by the name
    of the experiment, which is "" after `run`. The message says for each failure what happened where, and how to play
    that trial alone.

    >>> error = FailedTrials("trial 3 failed", {"": [Failure(3, 7, "Mine", "ValueError: 0", "", "")]}, {})
    >>> [(failure.label, failure.trial) for failure in error.failures[""]]
    [('Mine', 3)]
    """

    def __init__(self, message: str, failures: "Mapping[str, Sequence[Failure]]", results: "Mapping[str, Result]"):
        super().__init__(message)
        self.failures, self.results = failures, results


def last_own_frame(error: BaseException) -> str:
    """The last place of a traceback that is neither in this library nor in an installed one, if there is such a place.

    If all of it is in libraries, the last place of all is named.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_library(Path(frame.filename))]
    if not frames:
        return ""
    frame = (own or frames)[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}"


def _is_library(file: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return bool(installed) or file.is_relative_to(_LIBRARY) or file.is_relative_to(_PYTHON)


def report(failures: Mapping[str, Sequence[Failure]], files: Mapping[str, Path]) -> str:
    """Two lines for each failure: what happened where, and what runs the trial again alone.

    Args:
        failures: by the name of the experiment.
        files: the experiments that the shell can run again, as files.
    """
    lines = []
    for name, failed in failures.items():
        for failure in sorted(failed, key=lambda failure: failure.trial):
            alone = f"run(experiment, executor='serial', only=[{failure.trial}])"
            if name in files:
                file = shlex.quote(str(files[name]))
                alone = f"fedbandit run {file} --trial {failure.trial} --executor serial --debug"
            else:
                alone += f", or the same command with --trial {failure.trial} --debug"
            where = f", at {failure.where}" if failure.where else ""
            lines.append(
                f"{name + ', ' if name else ''}trial {failure.trial} (seed {failure.seed}) failed: "
                f"{failure.error}{where}\n  alone: {alone}"
            )
    return "\n".join(lines)
