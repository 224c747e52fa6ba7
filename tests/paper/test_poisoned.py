"""What attackers cost: the table and the figure on a small scale, and the goals as a study."""

from itertools import product

import numpy as np
import pytest

from fedbandit_envs.paper.poisoned import AGGREGATIONS, SETTINGS, Setting, poison_figure, poison_table, poisoned
from fedbandit_envs.rounds.attacks import ATTACKS

SMALL = {"small": Setting("Fed-PECD", agents=10, horizon=300)}


def test_the_table_and_the_figure_hold_every_case() -> None:
    found = poisoned(SMALL, trials=2, executor="serial", shares=(0.2,))
    assert list(found) == list(product(["small"], AGGREGATIONS, ATTACKS, (0.0, 0.2)))
    table = poison_table(found)
    row = table["attackers"].index(0.2)
    key = "small", table["aggregation"][row], table["attack"][row]
    ratio = found[*key, 0.2].mean() / found[*key, 0.0].mean()
    assert table["to_own_without"][row] == pytest.approx(ratio)
    figure = poison_figure(found)
    assert [axes.get_title() for axes in figure.axes] == list(ATTACKS)
    assert [line.get_label() for line in figure.axes[0].lines] == list(AGGREGATIONS)


def test_only_the_honest_count() -> None:
    setting = SMALL["small"]
    assert setting.regret("mean", "scale", 0.0, trial=1) != setting.regret("mean", "scale", 0.1, trial=1)
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        assert np.isnan(setting.regret("mean", "scale", 1.0, trial=1))


@pytest.mark.study
@pytest.mark.parametrize("name", SETTINGS)
def test_ten_percent_of_attackers_cost_the_honest_at_most_half_as_much_again(name: str) -> None:
    """Tukey's aggregation; 10 paired trials with fixed seeds, and 1.1 times the mean's regret without attackers."""
    found = poisoned({name: SETTINGS[name]}, shares=(0.1,))
    for attack in ATTACKS:
        robust, clean = (found[name, "tukey", attack, share].mean() for share in (0.1, 0.0))
        print(f"{name}, {attack}: {robust / clean:.3f}")
        assert robust <= 1.5 * clean
        assert clean <= 1.1 * found[name, "mean", attack, 0.0].mean()
