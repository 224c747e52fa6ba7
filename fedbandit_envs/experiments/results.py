"""What an experiment found: curves and numbers over trials, and tidy tables of them."""

import csv
import io
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.folder import make_folder, write_whole
from fedbandit_envs.experiments.reading import read_folder
from fedbandit_envs.experiments.statistics import bootstrap_band, holm, paired_difference
from fedbandit_envs.experiments.trials import CURVES, Record
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.rounds.ledger import COUNTS
from fedbandit_envs.validation import one_of, whole_number

Columns = dict[str, list[Any]]  # a table: each column by its name, all of the same length
TABLES = ("summary", "trials", "agents", "curves", "comparisons")
LEDGER = (*COUNTS, "rounds")
DERIVED_CURVES = (*(f"total_{kind}" for kind in REGRETS), "scalars", "messages")
_NOT_FROM_ZERO = ("active_arms", "settled_share", "wrong_share")


class Result:
    """The finished trials of an experiment: what `run` returns, and what `Result.load` reads from its folder.

    Policies are named by their labels. Arrays have a row for each trial.

    Curves, by name: `mean_regret`, `worst_regret`, `total_regret` (over agents; also of `distribution_regret` and
    `paper_regret`), `active_arms` (mean), `settled_share` (agents with one arm left), `wrong_share` (agents that lately
    played an arm that is not their best), and what has crossed: `scalars`, `scalars_up`, `messages_down`, ...

    >>> from fedbandit_envs import Experiment, run
    >>> arguments = {"num_agents": 4, "max_cycles": 32}
    >>> result = run(Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=2), executor="serial")
    >>> result.final("Uniform", "worst_regret").shape
    (2,)
    >>> result.table()["policy"]
    ['Uniform']
    """

    def __init__(self, experiment: Experiment, records: Sequence[Record], notes: Sequence[str] = ()):
        if not records:
            raise ValueError("records: expected at least one finished trial, got none; run the experiment first")
        self.experiment, self.records = experiment, list(records)
        self.notes = list(notes)  #: what a reader should know, in a line each: what was reused, or is left out
        self._summaries: dict[tuple[str, str], dict[str, Any]] = {}  # rows by policy and kind: asked for several times

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """The result in a folder that `run` wrote."""
        return cls(*read_folder(folder))

    @property
    def labels(self) -> list[str]:
        """The policies."""
        return self.experiment.labels

    @property
    def trials(self) -> list[int]:
        """Numbers of the trials that are finished."""
        return [record["trial"] for record in self.records]

    @property
    def planned(self) -> int:
        """The number of trials that the experiment asks for; `trials` has those that every policy has finished."""
        return self.experiment.trials

    def _of(self, label: str) -> list[Record]:
        place = str(self.labels.index(one_of("policy", label, self.labels)))
        return [record["policies"][place] for record in self.records]

    def _check_curve(self, label: str, name: str) -> None:
        """Refuse a curve that neither this version nor the version that wrote the result knows."""
        stored = self._of(label)[0].get("curve_rows", {})
        one_of("curve", name, tuple(dict.fromkeys((*CURVES, *DERIVED_CURVES, *stored))))

    def num_agents(self, label: str) -> int:
        """The number of agents, M."""
        return self._of(label)[0]["agents"].shape[1]

    def steps(self, label: str) -> IntArray:
        """(C,) the checkpoints of a policy; all times at which some trial has one, where trials differ."""
        every = [run["steps"] for run in self._of(label)]
        if all(np.array_equal(every[0], steps) for steps in every):
            return every[0]
        grid = np.unique(np.concatenate(every))
        return grid if len(grid) <= 400 else grid[np.linspace(0, len(grid) - 1, 400).round().astype(np.int64)]

    def curve(self, label: str, name: str = "mean_regret", times: Sequence[int] | None = None) -> FloatArray:
        """(trials, C) a curve at the policy's checkpoints, or at `times`; straight lines between checkpoints."""
        self._check_curve(label, name)
        at = self.steps(label) if times is None else np.array([whole_number("time", t, at_least=0) for t in times])
        rows = []
        for run in self._of(label):
            values = _values(run, name)
            if at is not run["steps"]:
                start = values[0] if name in _NOT_FROM_ZERO else 0.0
                values = np.interp(at, [0, *run["steps"]], [start, *values])
            rows.append(values)
        return np.array(rows)

    def final(self, label: str, name: str = "mean_regret") -> FloatArray:
        """(trials,) the last value of a curve, or a total: "rounds", "scalars", "bytes_up", ..."""
        if name in LEDGER:
            return np.array([run["totals"][name] for run in self._of(label)], dtype=np.float64)
        self._check_curve(label, name)
        return np.array([_values(run, name)[-1] for run in self._of(label)])

    def agents(self, label: str, kind: str = "regret") -> FloatArray:
        """(trials, M) each agent's regret at the end."""
        runs = self._of(label)
        one_of("kind", kind, (*REGRETS, *runs[0].get("agent_rows", ())))
        return np.array([run["agents"][_row(run, "agent_rows", kind)] for run in runs])

    def claims(self, label: str) -> dict[str, list[Record]]:
        """For each claim of theory, the audited trials in their order: bound, measured, claimed, holds."""
        found: dict[str, list[Record]] = {}
        for run in self._of(label):
            for number in range(len(run.get("audit", {}))):
                row = run["audit"][str(number)]
                found.setdefault(row["claim"], []).append(row)
        return found

    def time_to_settle(self, label: str, share: float = 1.0) -> FloatArray:
        """(trials,) the first checkpoint at which this share of the agents has one arm left; NaN if never."""
        times = []
        for run in self._of(label):
            there = np.flatnonzero(_values(run, "settled_share") >= share)
            times.append(float(run["steps"][there[0]]) if len(there) else np.nan)
        return np.array(times)

    def table(self, what: str = "summary", kind: str = "regret", times: Sequence[int] | None = None) -> Columns:
        """A tidy table as columns.

        "summary": one row per policy, means over trials with 95 % bands. "trials": one row per policy and trial.
        "agents": one per policy, trial and agent. "curves": one per policy and checkpoint (or each of `times`), with
        the band. "comparisons": paired differences of regret per agent, for each pair of policies, at the end (or at
        each of `times`), with Holm's correction over all of them.
        """
        one_of("kind", kind, REGRETS)
        rows = {
            "summary": lambda: [self._kept_summary(label, kind) for label in self.labels],
            "trials": lambda: [row for label in self.labels for row in self._trials(label, kind)],
            "agents": lambda: [row for label in self.labels for row in self._agents(label, kind)],
            "curves": lambda: [row for label in self.labels for row in self._curves(label, kind, times)],
            "comparisons": lambda: self._comparisons(kind, times),
        }[one_of("table", what, TABLES)]()
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}

    def frame(self, what: str = "summary", kind: str = "regret", times: Sequence[int] | None = None) -> Any:
        """The table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("frame: expected pandas to be installed; pip install pandas, or use table()") from error
        return pandas.DataFrame(self.table(what, kind, times))

    def _kept_summary(self, label: str, kind: str) -> dict[str, Any]:
        if (label, kind) not in self._summaries:
            self._summaries[label, kind] = self._summary(label, kind)
        return self._summaries[label, kind]

    def _summary(self, label: str, kind: str) -> dict[str, Any]:
        row: dict[str, Any] = {"policy": label, "trials": len(self.records), "agents": self.num_agents(label)}
        for name, curve in (("regret", f"mean_{kind}"), ("worst_agent", f"worst_{kind}")):
            band = bootstrap_band(self.final(label, curve)[:, None])
            row |= {name: float(band.mean[0]), f"{name}_low": float(band.low[0]), f"{name}_high": float(band.high[0])}
        settled = self.time_to_settle(label)
        row["time_to_settle"] = float(np.median(settled)) if np.isfinite(settled).all() else None
        row |= {name: float(self.final(label, name).mean()) for name in (*_NOT_FROM_ZERO, *LEDGER)}
        return row

    def _trials(self, label: str, kind: str) -> list[dict[str, Any]]:
        columns = {"regret": self.final(label, f"mean_{kind}"), "worst_agent": self.final(label, f"worst_{kind}")}
        columns["time_to_settle"] = self.time_to_settle(label)
        columns |= {name: self.final(label, name) for name in (*_NOT_FROM_ZERO, *LEDGER)}
        return [
            {"policy": label, "trial": record["trial"], "seed": record["seed"]}
            | {name: _or_none(values[place]) for name, values in columns.items()}
            for place, record in enumerate(self.records)
        ]

    def _agents(self, label: str, kind: str) -> list[dict[str, Any]]:
        regrets = self.agents(label, kind)
        return [
            {"policy": label, "trial": trial, "agent": agent, "regret": float(regret)}
            for trial, row in zip(self.trials, regrets, strict=True)
            for agent, regret in enumerate(row)
        ]

    def _curves(self, label: str, kind: str, times: Sequence[int] | None) -> list[dict[str, Any]]:
        at = self.steps(label) if times is None else times
        mean, worst = (bootstrap_band(self.curve(label, f"{of}_{kind}", times)) for of in ("mean", "worst"))
        other = {name: self.curve(label, name, times).mean(axis=0) for name in (*_NOT_FROM_ZERO, "scalars")}
        return [
            {
                "policy": label,
                "step": int(step),
                "regret": float(mean.mean[place]),
                "regret_low": float(mean.low[place]),
                "regret_high": float(mean.high[place]),
                "worst_agent": float(worst.mean[place]),
            }
            | {name: float(values[place]) for name, values in other.items()}
            for place, step in enumerate(at)
        ]

    def _comparisons(self, kind: str, times: Sequence[int] | None) -> list[dict[str, Any]]:
        at = [int(self.records[0]["policies"]["0"]["steps"][-1])] if times is None else list(times)
        rows: list[dict[str, Any]] = []
        for first, second in combinations(self.labels, 2):
            one, other = (self.curve(label, f"mean_{kind}", at) for label in (first, second))
            for place, step in enumerate(at):
                found = paired_difference(one[:, place], other[:, place])
                row = {"policy": first, "against": second, "step": step, "difference": found.mean}
                rows.append(row | {"low": found.low, "high": found.high, "p_value": found.p_value})
        for row, corrected in zip(rows, holm([row["p_value"] for row in rows]), strict=True):
            row["p_holm"] = corrected
        return rows

    def write_tables(self, folder: str | Path) -> list[Path]:
        """Write every table but "agents" as CSV, and the summary and the comparisons as JSON."""
        make_folder(Path(folder))
        tables = {what: self.table(what) for what in TABLES if what != "agents"}
        csv_files = [write_table(table, Path(folder) / f"{what}.csv") for what, table in tables.items()]
        return csv_files + [
            write_table(tables[what], Path(folder) / f"{what}.json") for what in ("summary", "comparisons")
        ]


def _values(run: Record, name: str) -> FloatArray:
    """(C,) a curve of one run, stored or derived."""
    if name.startswith("total_"):
        return _values(run, name.replace("total", "mean")) * run["agents"].shape[1]
    if name in ("scalars", "messages"):
        return _values(run, f"{name}_up") + _values(run, f"{name}_down")
    return run["curves"][_row(run, "curve_rows", name)]


def _row(run: Record, rows: str, name: str) -> int:
    """The row of a name, as the record itself tells it."""
    stored = run.get(rows, {})
    if name not in stored:
        raise ValueError(
            f"{name}: expected a result that holds it, got one of another version without it; "
            "run the experiment again with --force (force=True)"
        )
    return int(stored[name])


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def table_text(columns: Columns, form: str) -> str:
    """A table as "csv", "json" (a list of rows) or "markdown"."""
    one_of("form", form, ("csv", "json", "markdown"))
    rows = list(zip(*columns.values(), strict=True))
    if form == "json":
        return json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1) + "\n"
    if form == "markdown":
        names, *cells = [[_markdown(cell) for cell in row] for row in table_cells(columns)]
        lines = [names, ["---"] * len(columns), *cells]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return buffer.getvalue()


def table_cells(columns: Columns) -> list[list[str]]:
    """A table as people read it: the row of its names, then its rows, with rounded numbers."""
    return [list(columns), *([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))]


def _markdown(cell: str) -> str:
    """A cell in which neither a bar nor a line break ends the cell or the row."""
    return "<br>".join(cell.replace("\\", "\\\\").replace("|", "\\|").splitlines())


def _cell(value: Any) -> str:
    if value is None:
        return "never"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def write_table(columns: Columns, path: Path) -> Path:
    """To a .csv, .json or .md file."""
    form = {".csv": "csv", ".json": "json", ".md": "markdown"}[path.suffix]
    write_whole(path, table_text(columns, form).encode())
    return path
