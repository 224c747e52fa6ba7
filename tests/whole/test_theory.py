"""What theory promises about many runs. Each test states how often it would fail on a right program."""

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.rounds.auditing import audit

ERROR = "largest error of an estimate, in widths"


def play_and_audit(name, runs, problem, **parameters):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=10, num_arms=4, dim=2, **problem)
    histories = [fb.play(env, fb.make_policy(name, **parameters), seed=seed, record=True) for seed in range(runs)]
    return histories, [audit(history) for history in histories]


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(200, marks=pytest.mark.slow),
        pytest.param(2000, marks=pytest.mark.study),
    ],
)
@pytest.mark.parametrize(
    ("name", "problem", "parameters"),
    [
        ("Fed-PE", {"observe": "context", "error": "classical", "max_cycles": 2**14}, {"delta": 0.1}),
        ("Fed-PECD", {"context": "resampled", "max_cycles": 2**17}, {"delta": 0.1, "width": 5**0.5}),
    ],
    ids=["exact", "resampled"],
)
def test_widths_cover_and_covered_runs_keep_every_promise(name, problem, parameters, runs):
    # Theory promises that a run is uncovered with probability at most 0.1. That is a union bound, far from tight: the
    # true rate is below 2 % (measured: 0 of 200), for which the false-alarm rate P(Binomial(200, 0.02) > 20) is 1e-9.
    histories, audits = play_and_audit(name, runs, problem, **parameters)
    covered = [report[ERROR].holds for report in audits]
    print(f"{name}: {sum(covered)} of {runs} runs are covered")
    assert np.mean(covered) >= 0.9
    assert all(report[ERROR].claimed for report in audits)
    assert all(report.ok for report, fine in zip(audits, covered, strict=True) if fine)
    assert np.mean([history.active[-1].mean() for history in histories]) < 3  # not 4: there was something to lose


def test_widths_of_the_lemmas_do_not_cover_a_fixed_hidden_context():
    # The bias of an agent stays while the widths shrink below it, in every run: measured 0 of 5, errors above 3 widths.
    env = fb.make("fedbandit/Synthetic-v0", num_agents=50, max_cycles=2**15, error="classical", context_std=0.3)
    policy = fb.make_policy("Fed-PECD", width=10**0.5)
    audits = [audit(fb.play(env, policy, seed=seed, record=True)) for seed in range(5)]
    assert not any(report[ERROR].holds for report in audits)


@pytest.mark.slow
def test_regret_per_agent_falls_with_the_number_of_agents_at_the_papers_scale():
    # Means differ by hundreds, their standard errors over 10 trials are below 40: false-alarm rate below 1e-6.
    regret = []
    for agents in (50, 100, 150):
        exact = {"observe": "context", "error": "classical"}
        env = fb.make("fedbandit/Synthetic-v0", num_agents=agents, max_cycles=2**17, **exact)
        runs = [fb.play(env, fb.make_policy("Fed-PE"), seed=seed).mean_regret()[-1] for seed in range(10)]
        regret.append(np.mean(runs))
    assert regret[0] > regret[1] + 200 > regret[2] + 400
    assert regret[1] == pytest.approx(1300, rel=0.2)


def test_the_oracle_has_no_regret_and_uniform_play_a_linear_one():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=2**14)
    assert fb.play(env, fb.make_policy("Oracle"), seed=0).mean_regret()[-1] == 0
    history = fb.play(env, fb.make_policy("Uniform"), seed=0)
    rate = history.mean_regret() / history.steps
    gaps = fb.play(env, fb.make_policy("Uniform"), seed=0, record=True).instance.gaps()
    np.testing.assert_allclose(rate, gaps.mean(), rtol=0.01)
