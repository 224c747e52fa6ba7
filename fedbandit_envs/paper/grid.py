"""How the two statements of the paper's figures depend on what the paper leaves open.

The paper leaves open the kind of context error, its standard deviation, and the width of confidence intervals.
"""

import math
from collections.abc import Mapping, Sequence
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
from fedbandit_envs.paper.panels import PAPER_PROBLEMS, PAPER_SCALE, PaperScale, experiment
from fedbandit_envs.paper.verdicts import EXACT, HIDDEN, exact_below_hidden, falls_with_agents

STDS = (0.03, 0.05, 0.1)
WIDTHS = (1.0, math.sqrt(10))  # the factor in the paper's algorithm, and the factor in its lemmas
ERRORS = ("classical", "berkson")
TRIALS = 10
NOTE = """Each row has the regret per agent at the end, and says whether exact is below hidden at M = 100, and whether
regret falls from M = 50 to 100 and from 100 to 150. Verdicts are by Student's 95 % interval of paired differences.
"classical": agents see noisy observations of true features, and these lie in the paper's ranges.
"berkson": agents see expectations, and noise spreads the true features beyond these ranges; smaller norms and gaps
make the exact problem itself harder, so there "exact below hidden" can reverse. The paper makes no such claim.
"""


@dataclass(frozen=True)
class Cell:
    """One choice of everything that the paper leaves open.

    >>> Cell("synthetic", "berkson", context_std=0.05, width=1.0).name(num_agents=100)
    'synthetic-berkson-std0.05-width1-M100'
    """

    problem: str  #: "synthetic" or "movielens"
    error: str  #: "classical" or "berkson", the kind of context error
    context_std: float  #: the standard deviation of the context error
    width: float  #: the factor of all confidence widths

    def name(self, num_agents: int) -> str:
        """The name of the cell's folder for this number of agents."""
        return f"{self.problem}-{self.error}-std{self.context_std:g}-width{self.width:.3g}-M{num_agents}"

    def experiment(self, num_agents: int, trials: int, seed: int, horizon: int) -> Experiment:
        """Known against hidden contexts in this cell."""
        return experiment(
            self.problem,
            num_agents,
            trials,
            seed,
            horizon=horizon,
            error=self.error,
            context_std=self.context_std,
            width=self.width,
        )


def all_cells() -> list[Cell]:
    """The cells of the whole grid."""
    return [Cell(*choice) for choice in product(PAPER_PROBLEMS, ERRORS, STDS, WIDTHS)]


def grid(
    out: str | Path,
    trials: int = TRIALS,
    executor: str | Executor = "processes",
    *,
    seed: int = 0,
    force: bool = False,
    cells: Sequence[Cell] | None = None,
    scale: PaperScale = PAPER_SCALE,
) -> Columns:
    """The regrets and verdicts of all cells as a table, which is also written as grid.csv, .json and .md.

    Args:
        out: the folder; trials that are there already are kept.
        trials: the number of trials of each cell and number of agents.
        executor: who computes the trials.
        seed: the seed from which the seeds of all trials are derived.
        force: whether torn or foreign files in the folder are removed, not refused.
        cells: the cells; None: all.
        scale: how large the evaluation is.
    """
    chosen = all_cells() if cells is None else cells
    experiments = {
        cell.name(m): cell.experiment(m, trials, seed, scale.horizon) for cell in chosen for m in scale.agents
    }
    results = run_all(experiments, Path(out) / "grid", executor, force=force)
    rows = [grid_row(cell, {m: results[cell.name(m)] for m in scale.agents}, scale.compared_at) for cell in chosen]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    for suffix in (".csv", ".json"):
        write_table(table, Path(out) / f"grid{suffix}")
    write_whole(Path(out) / "grid.md", f"{NOTE}\n{table_text(table, 'markdown')}".encode())
    return table


def grid_row(cell: Cell, by_agents: Mapping[int, Result], compared_at: int) -> dict[str, Any]:
    """A row of the grid: mean regrets per agent, and the two verdicts.

    Args:
        cell: the cell.
        by_agents: its results by the number of agents, M.
        compared_at: the number of agents at which known and hidden contexts are compared.
    """
    row: dict[str, Any] = {
        "problem": cell.problem,
        "error": cell.error,
        "context_std": cell.context_std,
        "width": round(cell.width, 3),
    }
    for short, label in (("exact", EXACT), ("hidden", HIDDEN)):
        row |= {f"{short}_M{m}": round(float(result.final(label).mean()), 1) for m, result in by_agents.items()}
    row["exact_below_hidden"] = exact_below_hidden("", by_agents[compared_at]).verdict
    row["falls_with_M"] = ", ".join(verdict.verdict for verdict in falls_with_agents("", by_agents, HIDDEN))
    return row
