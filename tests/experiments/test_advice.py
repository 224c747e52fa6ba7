"""Advice after a run: is it long enough for what a policy has to tell apart?"""

import math

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.envs import bandit
from fedbandit_envs.experiments.advice import advice
from fedbandit_envs.problems.generator import draw_instance


def test_the_steps_to_separate_arms_are_those_of_the_first_phase_with_narrow_widths() -> None:
    constants = fb.Constants(4, 2, 2, 1000, ell=0.5, L=1.0, noise_std=1.0, context="fixed")
    policy = fb.make_policy("Fed-PECD", width=0.5)
    alpha = policy.alpha(constants)  # type: ignore[attr-defined]
    # d K / (M f_p) = 1 / f_p here, so widths are 0.5 * alpha * (1 / 0.5) / sqrt(f_p) = alpha / sqrt(f_p).
    gap = 2 * alpha / math.sqrt(8)
    through_phase_3 = 2 + (2 + 2) + (4 + 2) + (8 + 2)
    assert policy.steps_to_separate(constants, gap * 1.001) == through_phase_3
    assert policy.steps_to_separate(constants, gap * 0.999) == through_phase_3 + (16 + 2)


@pytest.mark.parametrize("num_agents", [50, 100])
def test_half_of_the_agents_settle_about_when_it_is_said(num_agents: int) -> None:
    env = fb.make("fedbandit/Synthetic-v0", num_agents=num_agents, max_cycles=2**17)
    history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
    gaps = history.gaps["regret"]
    gap = float(np.median(np.where(gaps > 0, gaps, np.inf).min(axis=1)))
    said = history.policy.steps_to_separate(history.constants, gap)
    settled = (history.active == 1).mean(axis=1)
    assert said is not None
    assert said / 2.1 < history.steps[np.argmax(settled >= 0.5)] < 2.1 * said  # at most one phase away


def test_policies_that_eliminate_nothing_get_no_advice() -> None:
    short = fb.Experiment("fedbandit/Synthetic-v0", ["Uniform", "Local-UCB", "Oracle"], {"max_cycles": 64}, trials=1)
    assert advice(fb.run(short, executor="serial")) == []


def test_agents_without_a_second_best_arm_get_no_advice() -> None:
    same = {"theta": [[1.0, 0.0]] * 2, "features": [[[1.0, 0.0], [1.0, 0.0]]] * 3, "max_cycles": 16}
    assert advice(fb.run(fb.Experiment("fedbandit/Linear-v0", ["Fed-PE"], same, trials=1), executor="serial")) == []


def _advice(policy: str, gap: float, noise_std: float) -> str:
    """The advice after a short run of two arms, whose means differ by `gap` for every agent."""
    arguments = {"theta": [[gap, 0.0], [0.0, gap]], "features": [[[1.0, 0.0], [1.0, 0.0]]] * 3, "max_cycles": 16}
    experiment = fb.Experiment("Linear", [policy], {**arguments, "noise_std": noise_std}, trials=1)
    (line,) = advice(fb.run(experiment, executor="serial"))
    return line


def test_widths_for_other_noise_are_named_before_longer_runs() -> None:
    line = _advice("Fed-PE", gap=0.1, noise_std=0.108)
    assert line.endswith("Its widths assume sigma = 1, the noise here is 0.108: try sigma=0.108.")
    assert "max_cycles" not in line


@pytest.mark.parametrize("policy", ["Fed-PE", "KK-UCB"])
def test_bounds_for_less_noise_than_there_is_are_named_for_every_policy(policy: str) -> None:
    line = _advice(policy, gap=0.1, noise_std=2.0)
    assert line.endswith("sigma = 1, the noise here is 2, so its bounds need not hold: try sigma=2.")


def test_widths_for_the_right_noise_are_left_alone() -> None:
    line = _advice("Fed-PE", gap=0.5, noise_std=0.6)
    assert "sigma" not in line
    assert line.endswith("shows the gain.")


def test_very_long_runs_are_advised_with_the_reason() -> None:
    line = _advice("Fed-PE", gap=0.001, noise_std=1.0)
    assert "Gaps here are about 0.001" in line
    assert line.endswith("to show a gain, and a problem with larger gaps less.")


def test_one_instance_is_drawn_for_all_policies_that_are_shown_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ["Fed-PECD", "Local-UCB", "Uniform", "Fed-PE", "Collaborative"]  # the last two are shown contexts
    result = fb.run(fb.Experiment("Synthetic", shown, {"max_cycles": 64}, trials=1), executor="serial")
    drawn = []
    monkeypatch.setattr(bandit, "draw_instance", lambda *given: drawn.append(given) or draw_instance(*given))
    assert len(advice(result)) == 2
    assert len(drawn) == 2
