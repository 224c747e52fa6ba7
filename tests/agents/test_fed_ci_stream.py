"""Fed-CI where contexts are new at each step: the oracle, cases by hand, all ways to play a run, and bad reports."""

import numpy as np
import pytest
import reference_stream
from linear_problems import as_problem, drawn, recorded, stream

import fedbandit_envs as fb

RELATIVES = ("Fed-CI", "Local-Thompson", "Federated-Thompson")

# --- the oracle -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RELATIVES)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("revealed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_decides_the_same(name, shared, revealed, seed):
    env, psi = stream(seed, shared=shared, reveal="after" if revealed else "never")
    spreads = drawn(seed, shared=shared)[2]
    history, arms, rewards = recorded(env, fb.make_policy(name))
    problem = as_problem(history, psi, arms, rewards)
    played = reference_stream.fed_ci_stream(
        psi,
        np.zeros_like(spreads) if name == "Federated-Thompson" else spreads,
        problem.rewards,
        sigma=0.3,
        shared=shared,
        alone=name == "Local-Thompson",
        features=problem.phi if revealed else None,
    )
    assert min(played.margins) > 1e-9  # no decision hangs on rounding
    np.testing.assert_array_equal(played.arms, arms)
    sent = [turn for turn in history.exchanges if turn.up is not None and turn.up.kind == "sums"]
    assert [turn.step for turn in sent] == sorted({step for step, _ in played.uploads})
    assert history.ledger.scalars == played.numbers
    assert (len(sent) > 1) == (name != "Local-Thompson")
