"""Writes each finished run as a line of JSON."""

import json
from pathlib import Path

from fedbandit_envs.experiments.computing import FinishedRun
from fedbandit_envs.experiments.folder import make_folder, unwritable
from fedbandit_envs.rounds.ledger import DIRECTIONS


class JsonLines:
    """A callback of `run` that adds one line of JSON to a file for each run that it computes.

    A line has experiment, label, trial, seed, seconds, regret (the mean over agents at the end), scalars (in all
    directions) and rounds.

    >>> import tempfile
    >>> from fedbandit_envs import Experiment, run
    >>> file = Path(tempfile.mkdtemp()) / "log.jsonl"
    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Uniform"], {"num_agents": 2, "max_cycles": 8}, trials=2)
    >>> result = run(experiment, executor="serial", callbacks=[JsonLines(file)])
    >>> [json.loads(line)["trial"] for line in file.read_text().splitlines()]
    [0, 1]
    """

    def __init__(self, path: str | Path):
        """Open the file `path`; lines that it has are kept."""
        self._path = Path(path)
        make_folder(self._path.parent)
        self._append("")

    def __call__(self, finished: FinishedRun) -> None:
        """Add the line of a finished run."""
        record = finished.record
        line = {
            "experiment": finished.experiment,
            "label": finished.label,
            "trial": finished.trial,
            "seed": str(finished.seed),  # more digits than many readers of JSON keep in a number
            "seconds": round(finished.seconds, 6),
            "regret": float(record["curves"][record["curve_rows"]["mean_regret"], -1]),
            "scalars": sum(record["totals"][f"scalars_{direction}"] for direction in DIRECTIONS),
            "rounds": record["totals"]["rounds"],
        }
        self._append(json.dumps(line) + "\n")

    def _append(self, text: str) -> None:
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise unwritable(self._path, error) from error
