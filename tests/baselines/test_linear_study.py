"""What weights and residuals bring, with paired intervals; docs/results/linear.md has the numbers."""

import pytest
from linear_comparison import compare, fixed, problems, row

AGENTS, STEPS, TRIALS = 20, 2000, 20


@pytest.mark.study
def test_what_weights_bring():
    """Where spreads differ, weights lower the regret, by paired intervals of 95 %; elsewhere nothing is claimed."""
    found = {name: compare(make, TRIALS) for name, make in problems(STEPS, AGENTS).items()}
    for name, policies in found.items():
        print("\n" + row(name, policies))
    unequal = next(iter(found.values()))
    for other in ("DisLinUCB", "Lin-Hidden", "KK-UCB"):
        difference, half = unequal[other].against(unequal["Weighted-DisLinUCB"])
        assert difference > half


@pytest.mark.study
def test_what_residuals_bring():
    """Under fixed hidden contexts residuals lower the regret of DisLinUCB, by paired intervals of 95 %."""
    names = ("Residual-LinUCB", "DisLinUCB", "Lin-Hidden", "KK-UCB", "Local-UCB", "Fed-CI")
    for std in (0.05, 0.1, 0.2):
        found = compare(fixed(std, 2**13, AGENTS), TRIALS, names, "regret")
        print("\n" + row(f"Synthetic, fixed contexts, spread {std}", found))
        difference, half = found["DisLinUCB"].against(found["Residual-LinUCB"])
        assert difference > half
