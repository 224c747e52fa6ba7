"""The page of the league, from the files in docs/results/league, which `fedbandit league` has written."""

import csv
import re
from collections.abc import Callable
from pathlib import Path

from markdown_text import table
from policy_kinds import kinds

Row = dict[str, str]
STREAMS = "forecast", "stream", "revealed"  #: parts of the names of problems whose contexts change at each step


def page(folder: Path) -> str:
    """The page: how it was played, the figure, and a table of regret and one of communication.

    Args:
        folder: where league.md and league.csv are.
    """
    with (folder / "league.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = re.search(r"^# .*?\n\n(.*?)\n\n", (folder / "league.md").read_text(), flags=re.DOTALL)
    assert found is not None
    streams = [row for row in rows if any(part in row["problem"] for part in STREAMS)]
    steady = [row for row in rows if row not in streams]
    return f"""# The league

{found[1]}

The files were made by `fedbandit league --trials 4 --out results/league`, which also writes a report. In one
process (`--workers 1`), beside other work, it took 732 seconds. Without `--trials` there are 3, which take three
quarters of that. To make this page again, copy `league.md`, `league.csv` and `league.png` from there into
`docs/results/league`.

```{{figure}} ../../results/league/league.png
:alt: a panel for each problem, with a mark for each policy at its communication and its regret
:class: wide

Final regret per agent against the numbers that all agents sent and received, both on logarithmic axes. Good policies
are below and on the left.
```

## Regret per agent at the end

An empty cell: the policy can't play this problem, and `fb.why_not` says why. The smallest number of each problem is
bold, where policies that are shown what is hidden do not count: the oracles, those that see the contexts, and
Theta-Told, which sees theta.

Contexts that are fixed, or drawn anew at each pull:

{pivot(steady, "regret", shortened)}
Contexts that are new at each step, and in two problems revealed after it:

{pivot(streams, "regret", shortened)}
## Numbers that crossed

{pivot(steady, "scalars", counted)}

{pivot(streams, "scalars", counted)}
Intervals, other kinds of regret, rounds and times are in `league.csv`.
"""


def pivot(rows: list[Row], column: str, written: Callable[[float], str]) -> str:
    """A table with a row for each policy, kind by kind, and a column for each problem."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    values = {(row["policy"], row["problem"]): float(row[column]) for row in rows if not row["why not"]}
    names = list(dict.fromkeys(name for name, _ in values))
    best = {problem: lowest(values, problem) for problem in problems} if column == "regret" else {}
    lines = []
    for kind, members in kinds(names):
        lines.append([f"*{kind.title}*", *[""] * len(problems)])
        for name in members:
            cells = [
                (f"**{written(value)}**" if best.get(problem) == name else written(value))
                if (value := values.get((name, problem))) is not None
                else ""
                for problem in problems
            ]
            lines.append([f"[{name}](../policies/{name}.md)", *cells])
    return table(["policy", *problems], lines)


def lowest(values: dict[tuple[str, str], float], problem: str) -> str:
    """The policy with the least regret on a problem, of those that are not told what is hidden."""
    from fedbandit_envs.protocol.registry import policy_class

    playing = [name for name, where in values if where == problem]
    fair = [name for name in playing if policy_class(name).observes in ("distribution", "delayed")]
    return min(fair, key=lambda name: values[name, problem])


def shortened(value: float) -> str:
    """Three digits of a number.

    >>> shortened(1234.5), shortened(12.34), shortened(0.0)
    ('1,230', '12.3', '0')
    """
    if abs(value) >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def counted(value: float) -> str:
    """A count in short.

    >>> counted(0), counted(950), counted(33199), counted(3268000)
    ('0', '950', '33 k', '3.3 M')
    """
    if value >= 1e6:
        return f"{value / 1e6:.1f} M"
    return f"{value / 1e3:.0f} k" if value >= 1e4 else f"{value:,.0f}"
