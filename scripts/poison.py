"""Draws what false reports cost: regret of the honest agents against the share of attackers.

Run as: python scripts/poison.py [FOLDER [TRIALS]]; with 10 trials it takes some minutes on two cores.
"""

import sys
from pathlib import Path

from fedbandit_envs.experiments.text import write_table
from fedbandit_envs.paper.poisoned import TRIALS, poison_figure, poison_table, poisoned
from fedbandit_envs.reports.plotting import save


def main(folder: str = "results/poison", trials: str = str(TRIALS)) -> None:
    """Compute the regrets, and write poison.csv, poison.png and poison.pdf to the folder."""
    found = poisoned(trials=int(trials))
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_table(poison_table(found), Path(folder) / "poison.csv")
    save(poison_figure(found), Path(folder) / "poison")
    print(f"written to {folder}: poison.csv, poison.png, poison.pdf")


if __name__ == "__main__":
    main(*sys.argv[1:])
