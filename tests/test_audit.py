"""Audits: what they prove on honest runs, and that they fail on broken ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from fedbandit_agents.phased_elimination import PhasedAgents, PhasedElimination, PhasedServer

import fedbandit_envs as fb
from fedbandit_envs.auditing import audit

ERROR = "largest error of an estimate, in widths"
LOST = "agents that eliminated their best arm"
DESIGN = "excess of the allocation over the optimal design"
TOTAL = "total regret, as a share of its bound"


def run(policy, seed=0, agents=20, horizon=2**12, **keywords):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=agents, num_arms=5, max_cycles=horizon, **keywords)
    return fb.play(env, policy, seed=seed, record=True)


def test_an_exact_run_proves_every_claim():
    report = audit(run(fb.make_policy("Fed-PE"), observe="context"))
    assert report.ok
    assert len(report.claims) == 9
    assert all(claim.claimed and claim.holds for claim in report.claims)


def test_a_resampled_run_with_wide_widths_proves_every_claim():
    report = audit(run(fb.make_policy("Fed-PECD", width=5**0.5), context="resampled"))
    assert report.ok
    assert report[ERROR].claimed


def test_nothing_that_hangs_on_coverage_is_claimed_for_a_fixed_hidden_context():
    report = audit(run(fb.make_policy("Fed-PECD"), error="classical", context_std=0.3))
    assert not report[ERROR].claimed
    assert not report[ERROR].holds  # the bias does not average out
    assert not report[TOTAL].claimed
    assert report[DESIGN].claimed


def test_policies_without_the_theorem_are_held_to_their_accounts_only():
    report = audit(run(fb.make_policy("Uniform")))
    assert report.ok
    assert len(report.claims) == 2


def test_the_uniform_ablation_is_seen_not_to_be_optimal():
    claim = audit(run(fb.make_policy("Fed-PE", allocation="uniform"), observe="context"))[DESIGN]
    assert not claim.holds
    assert not claim.claimed


@dataclass(frozen=True)
class Overconfident(PhasedElimination):
    """Broken: widths a hundred times too small."""

    observes: ClassVar[str] = "context"

    def alpha(self, constants):
        return super().alpha(constants) / 100


@dataclass(frozen=True)
class Trigger(PhasedElimination):
    """Broken: drops the arm that looks best, whatever the widths say."""

    observes: ClassVar[str] = "context"

    def agents(self, view):
        class Agents(PhasedAgents):
            def _eliminate(self, down):
                super()._eliminate(down)
                if self.active[0].sum() > 1 and self.phase == 10:
                    self.active[np.arange(len(self.best)), self.best] = False
                    self.best = self.active.argmax(axis=1)

        return Agents(self, view)


@dataclass(frozen=True)
class Lazy(PhasedElimination):
    """Broken: its server calls a uniform allocation a design."""

    observes: ClassVar[str] = "context"

    def server(self, constants):
        class Server(PhasedServer):
            def _designed(self, agents, active):
                budget = self.policy.budget(self.phase)
                return np.ceil(active * budget / active.sum(axis=1, keepdims=True)).astype(np.int64)

        return Server(self, constants)


@pytest.mark.parametrize(
    ("broken", "claim"),
    [(Overconfident(), ERROR), (Trigger(growth=2), LOST), (Lazy(), DESIGN)],
    ids=lambda x: str(x)[:12],
)
def test_an_audit_fails_on_a_broken_policy(broken, claim):
    report = audit(run(broken, observe="context"))
    assert not report.ok
    assert report[claim].claimed
    assert not report[claim].holds
    assert report[claim].verdict == "FAILS"


def test_an_audit_prints_as_a_table():
    text = str(audit(run(fb.make_policy("Fed-PE"), observe="context")))
    assert text.splitlines()[0].split() == ["claim", "bound", "measured", "verdict"]
    assert text.count("holds") == 9


def test_an_audit_needs_a_recorded_run():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, max_cycles=20)
    with pytest.raises(ValueError, match="record=True"):
        audit(fb.play(env, fb.make_policy("Fed-PECD"), seed=0))
