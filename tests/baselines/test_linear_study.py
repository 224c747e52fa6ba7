"""What weights and residuals bring, with paired intervals; docs/results/linear.md has the numbers."""

import pytest
from linear_comparison import SIGMA, compare, fixed, named, on_a_sphere, problems, row

import fedbandit_envs as fb

AGENTS, STEPS, TRIALS = 20, 1000, 10


@pytest.mark.study
def test_what_weights_bring():
    """Where spreads differ, weights lower the regret, by paired intervals of 95 %; elsewhere nothing is claimed."""
    policies = named("Weighted-DisLinUCB", "DisLinUCB", "Lin-Hidden", "KK-UCB")
    found = {name: compare(make, TRIALS, policies) for name, make in problems(STEPS, AGENTS).items()}
    for name, policies in found.items():
        print("\n" + row(name, policies))
    unequal = next(iter(found.values()))
    for other in ("DisLinUCB", "Lin-Hidden", "KK-UCB"):
        difference, half = unequal[other].against(unequal["Weighted-DisLinUCB"])
        assert difference > half


@pytest.mark.study
def test_what_others_and_revealed_contexts_bring():
    """Lin and Moothedath's claims, by paired intervals of 95 %: delayed < hidden < alone, and others help in both."""
    policies = named("Lin-Delayed", "Lin-Hidden", "KK-UCB-Observed", "KK-UCB")
    found = compare(on_a_sphere, TRIALS, policies)
    print("\n" + row("one theta, contexts of spread 0.25", found))
    for better, worse in [
        ("Lin-Delayed", "Lin-Hidden"),
        ("Lin-Hidden", "KK-UCB"),
        ("Lin-Delayed", "KK-UCB-Observed"),
        ("KK-UCB-Observed", "KK-UCB"),
    ]:
        difference, half = found[worse].against(found[better])
        assert difference > half


@pytest.mark.study
def test_what_it_brings_to_know_the_context():
    """Kirschner and Krause's claim, by paired intervals of 95 %: exact < observed < hidden, paid at what came."""
    found = {}
    for label, name, observe in [
        ("exact", "KK-UCB", "context"),
        ("observed", "KK-UCB-Observed", "distribution"),
        ("hidden", "KK-UCB", "distribution"),
    ]:
        how = {"num_agents": 4, "num_arms": 5, "max_cycles": STEPS, "noise_std": SIGMA, "context_std": 0.2}
        env = fb.make("fedbandit/Synthetic-v0", context="streaming", reveal="after", observe=observe, **how)
        found |= compare(lambda _, env=env: env, TRIALS, {label: named(name)[name]}, "paper_regret")
    print("\n" + row("Synthetic, spread 0.2", found))
    for better, worse in [("exact", "observed"), ("observed", "hidden")]:
        difference, half = found[worse].against(found[better])
        assert difference > half


@pytest.mark.study
@pytest.mark.parametrize("std", [0.05, 0.1, 0.2, 0.4])
def test_what_residuals_bring(std):
    """Residuals lower the regret of DisLinUCB, by paired intervals of 95 %, unless the spread is small.

    Which spread is small was seen from the numbers: at 0.05 the two are the same within their interval.
    """
    policies = named("Residual-LinUCB", "DisLinUCB", "KK-UCB", "Local-UCB", "Fed-CI")
    found = compare(lambda trial: fixed(trial, std, 2**12, AGENTS), TRIALS, policies, "regret")
    print("\n" + row(f"fixed contexts, spread {std}", found))
    difference, half = found["DisLinUCB"].against(found["Residual-LinUCB"])
    assert difference > (half if std >= 0.1 else -half)


@pytest.mark.study
def test_what_the_constants_of_asynchronous_systems_do():
    """The constants of their authors' code explore less than theory asks for; here that pays, by paired intervals."""
    make = problems(STEPS, AGENTS)["Synthetic, spread 0.2 throughout"]
    policies = {
        "FedLinUCB, as in its code": fb.make_policy("FedLinUCB", width=0.5, alpha=1.0),
        "FedLinUCB": fb.make_policy("FedLinUCB", sigma=SIGMA),
        "FedLinUCB, alpha = 1": fb.make_policy("FedLinUCB", sigma=SIGMA, alpha=1.0),
        "Async-LinUCB, width 0.5": fb.make_policy("Async-LinUCB", width=0.5),
        "Async-LinUCB": fb.make_policy("Async-LinUCB", sigma=SIGMA),
        "DisLinUCB": fb.make_policy("DisLinUCB", sigma=SIGMA),
        "Uniform": fb.make_policy("Uniform"),
    }
    found = compare(make, TRIALS, policies)
    print("\n" + row("Synthetic, spread 0.2 throughout", found))
    difference, half = found["FedLinUCB"].against(found["FedLinUCB, as in its code"])
    assert difference > half
