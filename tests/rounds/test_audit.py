"""Audits: what they prove on honest runs, and that they fail on broken ones."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_agents.phased.elimination import PhasedAgents, PhasedElimination
from fedbandit_agents.phased.server import PhasedServer
from fedbandit_agents.phased.theorem import phases
from fedbandit_envs.rounds.auditing import audit

ERROR = "largest error of an estimate, in widths"
LOST = "agents that eliminated their best arm"
DESIGN = "excess of the allocation over the optimal design"
TOTAL = "total regret, as a share of its bound"


def run(policy, seed=0, agents=20, horizon=2**12, **keywords):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=agents, num_arms=5, max_cycles=horizon, **keywords)
    return fb.play(env, policy, seed=seed, record=True)


def test_an_exact_run_proves_every_claim():
    report = audit(run(fb.make_policy("Fed-PE"), observe="context", error="classical"))
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
    assert report[TOTAL].verdict.endswith(
        "not claimed: contexts are hidden and fixed, so their bias never averages out"
    )
    assert report[DESIGN].claimed


def test_policies_without_the_theorem_are_held_to_their_accounts_only():
    report = audit(run(fb.make_policy("Uniform")))
    assert report.ok
    assert len(report.claims) == 2


def test_the_uniform_ablation_is_seen_not_to_be_optimal():
    claim = audit(run(fb.make_policy("Fed-PE", allocation="uniform"), observe="context"))[DESIGN]
    assert not claim.holds
    assert claim.unless == "the allocation is uniform, not g-optimal"


def test_a_claim_names_the_noise_that_its_widths_do_not_cover():
    claim = audit(run(fb.make_policy("Fed-PE", sigma=0.5), observe="context", error="classical"))[ERROR]
    assert claim.unless == "sigma * width = 0.5 is below 1, the noise"


@dataclass(frozen=True)
class Proud(PhasedElimination):
    """A policy of a user's that claims something of its own."""

    observes: ClassVar[str] = "context"

    def claims(self, history):
        yield fb.Claim("rounds", 3, history.ledger.rounds)


def test_a_policy_makes_its_own_claims():
    report = audit(run(Proud(), observe="context", horizon=2**8))
    assert [claim.claim for claim in report.claims][2:] == ["rounds"]
    assert report["rounds"].verdict == "FAILS"
    assert not report.ok


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
            def eliminated(self, down):
                active, best = super().eliminated(down)
                several = np.flatnonzero(active.sum(axis=1) > 1)
                if self.phase == 10:
                    active[several, best[several]] = False
                    best = active.argmax(axis=1)
                return active, best

        return Agents(self, view)


@dataclass(frozen=True)
class Lazy(PhasedElimination):
    """Broken: its server calls a uniform allocation a design."""

    observes: ClassVar[str] = "context"

    def server(self, view):
        class Server(PhasedServer):
            def _designed(self, agents, active):
                yield from ()
                budget = self.policy.budget(self.phase)
                return np.ceil(active * budget / active.sum(axis=1, keepdims=True)).astype(np.int64)

        return Server(self, view.constants)


@pytest.mark.parametrize(
    ("broken", "claim"),
    [(Overconfident(), ERROR), (Trigger(growth=2), LOST), (Lazy(), DESIGN)],
    ids=lambda x: str(x)[:12],
)
def test_an_audit_fails_on_a_broken_policy(broken, claim):
    report = audit(run(broken, observe="context", error="classical"))
    assert not report.ok
    assert report[claim].claimed
    assert not report[claim].holds
    assert report[claim].verdict == "FAILS"


def test_an_audit_prints_as_a_table():
    text = str(audit(run(fb.make_policy("Fed-PE"), observe="context", error="classical")))
    assert text.splitlines()[0].split() == ["claim", "bound", "measured", "verdict"]
    assert text.count("holds") == 9


def test_an_audit_needs_a_recorded_run():
    env = fb.make("fedbandit/Synthetic-v0", num_agents=2, max_cycles=20)
    with pytest.raises(ValueError, match="record=True"):
        audit(fb.play(env, fb.make_policy("Fed-PECD"), seed=0))


def test_nothing_is_claimed_for_features_shorter_than_the_lower_norm_says():
    assert audit(run(fb.make_policy("Fed-PE"), observe="context", error="classical"))[ERROR].claimed
    too_long = audit(run(fb.make_policy("Fed-PE", ell=50.0), observe="context", error="classical"))[ERROR]
    assert too_long.unless.startswith("ell = 50 is above the smallest norm of a feature, ")
    berkson = audit(run(fb.make_policy("Fed-PE"), observe="context", context_std=0.3))
    assert not berkson[ERROR].claimed  # its noise makes some features shorter than the problem's ell


def test_bounded_contexts_are_claimed_by_their_range_and_maps_without_a_known_law_not_at_all():
    theta = np.array([[1.0, 0.0], [0.0, 1.0]])
    pair = fb.Discrete(np.array([[[1.0, 0.2], [0.2, 1.0]]] * 3), np.array([[0.99, 0.01]] * 3))
    env = fb.make("fedbandit/Linear-v0", theta=theta, contexts=pair, feature_map=fb.Identity(2, 2), context="resampled")

    def claimed(env, width):
        return audit(fb.play(env, fb.make_policy("Fed-PECD", width=width), seed=0, record=True))[ERROR].claimed

    assert not claimed(env, np.sqrt(1 + 0.99 * 0.01 * 0.8**2))  # the variance is not enough
    assert claimed(env, np.sqrt(1 + 0.4**2))  # half the range is
    own = fb.FeatureFunction(lambda c: np.repeat(np.tanh(c)[:, None] + 2, 2, axis=1), 2, 2, 2)
    env = fb.make(
        "fedbandit/Linear-v0",
        theta=theta,
        contexts=fb.Gaussian(np.ones((3, 2)), std=0.1),
        feature_map=own,
        context="resampled",
        max_cycles=500,
    )
    assert not claimed(env, 100.0)


def test_an_audit_of_something_else_is_refused():
    with pytest.raises(ValueError, match="expected a History, got int"):
        audit(3)


def test_active_sets_estimates_and_widths_can_be_read_off_a_recorded_run():
    history = run(fb.make_policy("Fed-PE"), observe="context", horizon=2**14)
    found = phases(history)
    assert [phase.number for phase in found] == list(range(1, len(found) + 1))
    assert found[0].before.all()
    for phase, after in itertools.pairwise(found):
        np.testing.assert_array_equal(phase.active, after.before)
        best = np.where(phase.before, phase.estimates, -np.inf).argmax(axis=1)
        rows = np.arange(len(best))
        reach = (phase.estimates - phase.widths)[rows, best]
        kept = phase.before & (phase.estimates + phase.widths >= reach[:, None])
        np.testing.assert_array_equal(phase.active, kept)
    np.testing.assert_array_equal(found[-1].active.sum(axis=1), history.active[-1])
    assert history.active[-1].mean() < 4  # arms were eliminated
    with pytest.raises(ValueError, match="expected a run of Fed-PECD or Fed-PE, got one of Uniform"):
        phases(run(fb.make_policy("Uniform")))
