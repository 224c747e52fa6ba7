"""What an experiment found: curves and numbers over trials. `tables` has the tables made of them."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.folder import make_folder
from fedbandit_envs.experiments.reading import read_folder
from fedbandit_envs.experiments.tables import LEDGER, TABLES, WITH_STEPS
from fedbandit_envs.experiments.text import Columns, aligned, html_table, selected, typed, write_table
from fedbandit_envs.experiments.trials import PRIVACY, STATES, Record, curve_names, settling_step
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.rounds.ledger import COUNTS, DIRECTIONS
from fedbandit_envs.validation import needs, one_of, whole_number

_LONG = ("agents", "paths")  # tables too long for text files that nobody asked for
_SHOWN = ("policy", "regret", "regret_low", "regret_high", "worst_agent", "wrong_share", "scalars_up")
_METHOD = "low and high: Student's 95 % interval of the mean regret"


class Result:
    """The finished trials of an experiment: what `run` returns, and what `Result.load` reads from its folder.

    Policies are named by their labels. Arrays have a row for each trial.

    Curves, by name: `mean_regret`, `worst_regret`, `total_regret` (over agents; also of the other kinds in
    `REGRETS`), `active_arms` (mean), `settled_share` (agents with one arm left), `wrong_share` (agents that lately
    played an arm that is not their best), `admitted` (the number of agents that take part), `simple_regret` (of the
    arms that agents recommend; NaN where they recommend none), `wrong_recommended` (the share of recommended arms that
    are not the best), and what has crossed: `scalars`, `scalars_up`, `messages_down`, ...

    >>> from fedbandit_envs import Experiment, run
    >>> arguments = {"num_agents": 4, "max_cycles": 32}
    >>> result = run(Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=2), executor="serial")
    >>> result.final("Uniform", "worst_regret").shape
    (2,)
    >>> result.table()["policy"]
    ['Uniform']
    """

    def __init__(
        self,
        experiment: Experiment,
        records: Sequence[Record],
        notes: Sequence[str] = (),
        provenance: Sequence[Mapping[str, str]] = (),
    ):
        if not records:
            raise ValueError("records: expected at least one finished trial, got none; run the experiment first")
        self.experiment, self.records = experiment, list(records)
        self.notes = list(notes)  #: what a reader should know: advice, what was reused, or is left out
        self.provenance = list(provenance)  #: the software and machines that computed it; empty if it was not read
        self._tables: dict[tuple[Any, str], Columns] = {}  # short tables that were asked for, by function and kind

    def __repr__(self) -> str:
        return f"Result({len(self.records)} of {self.experiment.trials} trials of {self.experiment!r})"

    def __str__(self) -> str:
        return "\n".join([repr(self), aligned(self._shown()), _METHOD, *self.notes])

    def _shown(self) -> Columns:
        """The columns of the summary that matter most."""
        summary = self.table()
        return selected(summary, (*_SHOWN, *(name for name in PRIVACY if name in summary)))

    @classmethod
    def load(cls, folder: str | Path) -> "Result":
        """The result in a folder that `run` wrote."""
        return cls(*read_folder(folder))

    def _repr_html_(self) -> str:
        """The summary as a table, which a notebook shows when the result is the value of a cell."""
        trials = f"{len(self.records)} of {self.experiment.trials} trials"
        table = html_table(self._shown(), f"{self.experiment.environment}, {trials}; {_METHOD}")
        return table + "".join(f"<p>{escape(note)}</p>" for note in self.notes)

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

    @property
    def seeds(self) -> list[str]:
        """The seeds of these trials."""
        return [record["seed"] for record in self.records]

    @property
    def horizon(self) -> int:
        """The last step of the runs, T."""
        return int(self._of(self.labels[0])[0]["steps"][-1])

    def _of(self, label: str) -> list[Record]:
        place = str(self.labels.index(one_of("policy", label, self.labels)))
        return [record["policies"][place] for record in self.records]

    def privacy(self, label: str) -> tuple[float, float] | None:
        """The budget (epsilon, delta) of differential privacy that each agent's reports kept; None: none."""
        kept = self._of(label)[0].get("privacy")
        return None if kept is None else tuple(kept[name] for name in PRIVACY)

    def _check_curve(self, label: str, name: str) -> None:
        """Refuse a curve that neither this version nor the version that wrote the result knows."""
        stored = self._of(label)[0].get("curve_rows", {})
        derived = (*(f"total_{kind}" for kind in REGRETS), "scalars", "messages")
        one_of("curve", name, tuple(dict.fromkeys((*curve_names(), *derived, *stored))))

    def check_kind(self, kind: str) -> None:
        """Refuse a kind of regret that there is none of this name, or that these problems do not have."""
        one_of("kind", kind, REGRETS)
        for label in self.labels:
            if np.isnan(self.final(label, f"mean_{kind}")).any():
                raise ValueError(
                    f"kind: expected one that this problem has, got {kind!r}, which is for problems whose contexts "
                    "stay the same, and whose arms agents do not share; use regret"
                )

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

    def paths(
        self, label: str, name: str = "mean_regret", times: Sequence[int] | IntArray | None = None
    ) -> list[tuple[IntArray, FloatArray]]:
        """For each trial its own checkpoints (or `times`), and a curve there.

        Between checkpoints are straight lines; counts, which jump at rounds, stay what they were at the checkpoint
        before.
        """
        self._check_curve(label, name)
        at = None if times is None else self._checked(times)
        curves = []
        for run in self._of(label):
            steps, values = run["steps"], _values(run, name)
            if at is not None and not np.array_equal(at, steps):
                start = values[0] if name in STATES else 0.0
                steps, values = at, _between(at, np.array([0, *steps]), np.array([start, *values]), name)
            curves.append((steps, values))
        return curves

    def _checked(self, times: Sequence[int] | IntArray) -> IntArray:
        at = np.array([whole_number("time", time, at_least=0) for time in times], dtype=np.int64)
        if len(at) and at.max() > self.horizon:
            raise ValueError(
                f"time: expected a step from 0 to {self.horizon}, the horizon of these runs, got {at.max()}"
            )
        return at

    def curve(self, label: str, name: str = "mean_regret", times: Sequence[int] | IntArray | None = None) -> FloatArray:
        """(trials, C) a curve at the policy's checkpoints, or at `times` up to the horizon; straight lines between."""
        at = self.steps(label) if times is None else times
        return np.array([values for _, values in self.paths(label, name, at)])

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
        by_claim: dict[str, list[Record]] = {}
        for run in self._of(label):
            for number in range(len(run.get("audit", {}))):
                row = run["audit"][str(number)]
                by_claim.setdefault(row["claim"], []).append(row)
        return by_claim

    def time_to_settle(self, label: str) -> FloatArray:
        """(trials,) the step by which every agent has one arm left, to about 1 % of the horizon.

        NaN where that never happens. A policy that eliminates no arms, like the Oracle, has no such time.
        """
        return np.array([settling_step(steps, shares) for steps, shares in self.paths(label, "settled_share")])

    def table(self, what: str = "summary", kind: str = "regret", times: Sequence[int] | None = None) -> Columns:
        """A tidy table as columns.

        "summary": one row per policy, means over trials. "trials": one row per policy and trial. "agents": one per
        policy, trial and agent. "curves": one per policy and checkpoint, means over trials. "paths": one per policy,
        trial and checkpoint. "comparisons": paired differences of regret per agent, for each pair of policies, at the
        end, by Student's t for pairs, with Holm's correction over all of them. The columns `..._low` and `..._high` are
        Student's 95 % interval of the mean before them.

        The types of columns do not depend on the data: counts, steps and numbers of trials are int, labels and seeds
        str, all else float. A number that does not exist is NaN: an interval of one trial, or a time to settle of a
        policy that never does.

        Args:
            what: the name of the table, as above.
            kind: which regret, a key of `REGRETS`.
            times: steps at which "curves", "paths" and "comparisons" are wanted, up to the horizon.
        """
        self.check_kind(kind)
        rows_of = TABLES[one_of("table", what, TABLES)]
        if times is not None and what not in WITH_STEPS:
            raise ValueError(f"times: expected a table with steps ({', '.join(WITH_STEPS)}), got {what!r}")
        if times is not None or what in _LONG:
            return rows_of(self, kind, times)
        if (rows_of, kind) not in self._tables:  # pages and commands ask for the same tables again and again
            self._tables[rows_of, kind] = rows_of(self, kind, None)
        return {name: list(column) for name, column in self._tables[rows_of, kind].items()}

    def frame(
        self,
        what: str = "summary",
        kind: str = "regret",
        times: Sequence[int] | None = None,
        *,
        backend: str = "pandas",
    ) -> Any:
        """The table as a data frame of pandas, or of polars with `backend="polars"`."""
        columns = typed(self.table(what, kind, times))
        needs(one_of("backend", backend, ("pandas", "polars")), extra="frames", instead="use table()")
        if backend == "polars":
            import polars

            return polars.DataFrame(columns)
        import pandas

        return pandas.DataFrame(columns)

    def write_tables(self, folder: str | Path, *, parquet: bool = False) -> list[Path]:
        """Write the tables as files: CSV, the summary and the comparisons also as JSON.

        The long tables, "agents" and "paths", are left out of these.

        Args:
            folder: where to; it is made if it is not there.
            parquet: also write every table, the long ones too, as .parquet, which needs pyarrow.
        """
        if parquet:
            needs("pyarrow", extra="frames", instead="leave out parquet=True")
        make_folder(Path(folder))
        names = [f"{what}.csv" for what in TABLES if what not in _LONG] + ["summary.json", "comparisons.json"]
        names += [f"{what}.parquet" for what in TABLES] if parquet else []
        tables = {what: self.table(what) for what in dict.fromkeys(name.partition(".")[0] for name in names)}
        return [write_table(tables[name.partition(".")[0]], Path(folder) / name) for name in names]


def _between(at: IntArray, steps: IntArray, values: FloatArray, name: str) -> FloatArray:
    """A curve at any times: the last count before each, or a straight line between the checkpoints around it."""
    if name in ("scalars", "messages", *COUNTS):
        counted: FloatArray = values[np.searchsorted(steps, at, side="right") - 1]
        return counted
    return np.interp(at, steps, values)


def _values(run: Record, name: str) -> FloatArray:
    """(C,) a curve of one run, stored or derived."""
    if name.startswith("total_"):
        return _values(run, name.replace("total", "mean")) * run["agents"].shape[1]
    if name in ("scalars", "messages"):
        parts = [_values(run, f"{name}_{direction}") for direction in DIRECTIONS]
        return np.sum(parts, axis=0)
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
