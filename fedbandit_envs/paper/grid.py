"""How the two statements of the paper's figures depend on what it leaves open: context error, its size, and width."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from fedbandit_envs.experiments.executors.local import Executor
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.experiments.folder import write_whole
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.experiments.running import run_all
from fedbandit_envs.experiments.text import Columns, table_text, write_table
from fedbandit_envs.paper.panels import AGENTS, COMPARED_AT, PROBLEMS, experiment
from fedbandit_envs.paper.verdicts import EXACT, HIDDEN, exact_below_hidden, falls_with_agents

STDS = (0.03, 0.05, 0.1)
WIDTHS = (1.0, math.sqrt(10))  # of the paper's algorithm and of its lemmas
ERRORS = ("classical", "berkson")
TRIALS = 10
NOTE = """Regret per agent at the end; whether exact is below hidden at M = 100; whether regret falls from M = 50 to 100
and from 100 to 150, each by Student's 95 % interval of paired differences.
"classical": agents see noisy observations of true features, and these lie in the paper's ranges.
"berkson": agents see expectations, and noise spreads the true features beyond these ranges; smaller norms and gaps
make the exact problem itself harder, so there "exact below hidden" can reverse. The paper makes no such claim.
"""


@dataclass(frozen=True)
class Cell:
    """One choice of everything that is left open."""

    problem: str
    error: str
    context_std: float
    width: float

    def name(self, num_agents: int) -> str:
        """The name of the cell's folder."""
        return f"{self.problem}-{self.error}-std{self.context_std:g}-width{self.width:.3g}-M{num_agents}"

    def experiment(self, num_agents: int, trials: int, seed: int) -> Experiment:
        """Known against hidden contexts in this cell."""
        return experiment(
            self.problem,
            num_agents,
            trials,
            seed,
            error=self.error,
            context_std=self.context_std,
            width=self.width,
        )


def cells() -> list[Cell]:
    """All of the grid."""
    return [Cell(*choice) for choice in product(PROBLEMS, ERRORS, STDS, WIDTHS)]


def grid(
    out: str | Path, trials: int = TRIALS, executor: str | Executor = "processes", *, seed: int = 0, force: bool = False
) -> Columns:
    """The regrets and verdicts of all cells; also written as grid.csv, .json and .md."""
    experiments = {cell.name(m): cell.experiment(m, trials, seed) for cell in cells() for m in AGENTS}
    results = run_all(experiments, Path(out) / "grid", executor, force=force)
    rows = [grid_row(cell, {m: results[cell.name(m)] for m in AGENTS}) for cell in cells()]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    for suffix in (".csv", ".json"):
        write_table(table, Path(out) / f"grid{suffix}")
    write_whole(Path(out) / "grid.md", f"{NOTE}\n{table_text(table, 'markdown')}".encode())
    return table


def grid_row(cell: Cell, by_agents: Mapping[int, Result]) -> dict[str, Any]:
    """Mean regrets per agent, and the two verdicts."""
    row: dict[str, Any] = {
        "problem": cell.problem,
        "error": cell.error,
        "context_std": cell.context_std,
        "width": round(cell.width, 3),
    }
    for short, label in (("exact", EXACT), ("hidden", HIDDEN)):
        row |= {f"{short}_M{m}": round(float(result.final(label).mean()), 1) for m, result in by_agents.items()}
    row["exact_below_hidden"] = exact_below_hidden("", by_agents[COMPARED_AT]).verdict
    row["falls_with_M"] = ", ".join(verdict.verdict for verdict in falls_with_agents("", by_agents, HIDDEN))
    return row
