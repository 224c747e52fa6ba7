"""What a user adds is at most twenty lines each: a context distribution, a feature map, a kind of regret, a figure."""

import inspect
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.cli.main import main
from fedbandit_envs.reports import plotting


@dataclass(frozen=True)
class Mixture(fb.ContextDistribution):
    """A context lies at `start`, or with probability `share` at `start + move`; three named arrays say so."""

    start: FloatArray  #: (M, n)
    move: FloatArray  #: (M, n)
    share: FloatArray  #: (M, 1)

    num_agents = property(lambda self: self.start.shape[0])
    dim = property(lambda self: self.start.shape[1])

    def rows(self, index):
        return Mixture(self.start[index], self.move[index], self.share[index])

    def sample(self, rng):
        return self.start + self.move * (rng.random(self.share.shape) < self.share)

    def encode(self):
        return {"start": self.start, "move": self.move, "share": self.share}

    def nodes(self):
        return np.stack([self.start, self.start + self.move], axis=1), np.hstack([1 - self.share, self.share])


class Stretched:
    """A linear map: arm a has the features (a + 1) c."""

    num_arms, dim, context_dim = 3, 2, 2

    def __call__(self, contexts):
        return contexts[..., None, :] * np.arange(1.0, 4)[:, None]

    def reward_matrix(self, theta):
        return theta * np.arange(1.0, 4)[:, None]


def against_a_random_arm(instance):
    """The gaps (M, K) to the mean of all arms."""
    return instance.means.mean(axis=1, keepdims=True) - instance.means


def worst_agents(result, *, kind):
    """The regret of the worst agent over time."""
    figure, axes = plotting.blank()
    for label, look in plotting.looks(result).items():
        plotting.line(axes, result.steps(label), result.curve(label, f"worst_{kind}"), label, look)
    axes.set_title(plotting.heading(result))
    return figure


THETA = np.array([[1.0, 0.0], [0.0, 1.0], [0.4, 0.4]])
MIXTURE = Mixture(np.array([[1.0, 0.2], [0.3, 1.0]]), np.array([[0.0, 0.5], [0.5, 0.0]]), np.array([[0.25], [0.5]]))


@pytest.mark.parametrize("part", [Mixture, Stretched, against_a_random_arm, worst_agents])
def test_it_is_at_most_twenty_lines(part):
    assert sum(bool(line.strip()) for line in inspect.getsource(part).splitlines()) <= 20


def test_agents_are_shown_the_three_arrays_of_an_own_distribution_and_infer_from_it():
    env = fb.make("fedbandit/Linear-v0", theta=THETA, contexts=MIXTURE, feature_map=fb.Identity(3, 2), max_cycles=400)
    observations, _ = env.reset(seed=0)
    assert {name: rows.tolist() for name, rows in observations["agent_1"].items()} == {
        "start": [0.3, 1.0],
        "move": [0.5, 0.0],
        "share": [0.5],
    }
    np.testing.assert_allclose(MIXTURE.expected_features(fb.Identity(3, 2))[0, 0], [1.0, 0.325])  # 0.2 + 0.5 / 4
    for name in ("Fed-PECD", "Fed-CI", "DisLinUCB"):
        assert fb.play(env, fb.make_policy(name), seed=0).pulls[-1].sum(axis=1).tolist() == [400, 400]


def test_an_own_map_with_a_reward_matrix_is_linear_so_whole_plans_are_drawn_at_once():
    contexts = fb.Gaussian([[1.0, 0.5], [0.2, 0.9]], std=0.3)
    keywords = {"contexts": contexts, "feature_map": Stretched(), "context": "resampled", "max_cycles": 2**12}
    env = fb.make("fedbandit/Linear-v0", theta=THETA, **keywords)
    env.reset(seed=0)
    law = env.instance.reward_law()
    assert type(law).__name__ == "GaussianRewards"
    np.testing.assert_allclose(law.means[0], [1.0, 1.0, 1.8])  # 1 * 1, 2 * 0.5 and 3 * 0.4 * (1 + 0.5), by hand
    assert fb.play(env, fb.make_policy("Fed-PECD"), seed=0).steps[-1] == 2**12


def test_own_regrets_and_figures_are_known_to_runs_and_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setitem(fb.REGRETS, "random_regret", fb.Regret(against_a_random_arm, "to a random arm", "in a test"))
    monkeypatch.setitem(plotting.FIGURES, "worst", worst_agents)
    arguments = {"num_agents": 3, "max_cycles": 64}
    result = fb.run(
        fb.Experiment("fedbandit/Synthetic-v0", ["Uniform", "Oracle"], arguments, trials=2), tmp_path, "serial"
    )
    assert (result.final("Oracle", "mean_random_regret") < 0).all()
    # The two kinds differ by a constant of each agent, so by the same number for every policy that plays the instance.
    offset = {
        name: result.final(name, "mean_random_regret") - result.final(name, "mean_regret") for name in result.labels
    }
    np.testing.assert_allclose(offset["Uniform"], offset["Oracle"])
    assert main(["plot", str(tmp_path), "--figure", "worst", "--kind", "random_regret", "--format", "svg"]) == 0
    (figure,) = tmp_path.glob("*.svg")
    assert figure.stat().st_size > 1000
