"""Experiments whose policies talk to peers: the network is a setting of the experiment, and can be swept."""

from pathlib import Path

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.experiments.sweeps import sweep, sweep_table

M, K, T = 4, 3, 20
RING = fb.Experiment(
    "fedbandit/Synthetic-v0",
    ["coop-UCB2", "Uniform"],
    {"num_agents": M, "num_arms": K, "max_cycles": T},
    trials=2,
    network="ring",
)


def test_every_trial_is_the_run_on_that_network(tmp_path: Path) -> None:
    result = fb.run(RING, tmp_path, "serial")
    policy = RING.policies[0].make()
    for trial in range(2):
        seed = RING.trial_seed(trial)
        history = fb.play(RING.environment_for(policy), policy, seed=seed, network="ring")
        assert result.final("coop-UCB2", "mean_regret")[trial] == history.mean_regret()[-1]
    each = 2 * K * 2 * M * (T - K)  # 2 K numbers over both directions of M edges, after the start and all steps but one
    for name in ("scalars_peer", "scalars"):
        np.testing.assert_array_equal(result.final("coop-UCB2", name), [each, each])
        np.testing.assert_array_equal(result.final("Uniform", name), [0, 0])
    np.testing.assert_array_equal(result.final("coop-UCB2", "scalars_up"), [0, 0])
    np.testing.assert_array_equal(fb.Result.load(tmp_path).final("coop-UCB2", "scalars_peer"), [each, each])


def test_the_network_is_written_and_read_and_makes_another_problem(tmp_path: Path) -> None:
    RING.write(tmp_path / "ring.toml")
    assert fb.Experiment.read(tmp_path / "ring.toml") == RING
    assert RING.with_argument("network", "star").problem() != RING.problem()


def test_a_sweep_over_networks_plays_each() -> None:
    over = {"network": ["path", "ring", "complete"]}
    results = sweep(RING, over, executor="serial")
    assert sweep_table(["network"], results)["network"] == [name for name in over["network"] for _ in range(2)]
    edges = [result.final("coop-UCB2", "scalars_peer")[0] / (2 * K * 2 * (T - K)) for result in results.values()]
    assert edges == [3, 4, 6]


def test_a_sweep_over_failing_edges_plays_each_and_leaves_others_as_they_are() -> None:
    results = sweep(RING, {"edge_dropout": [0.0, 0.5, 1.0]}, executor="serial")
    crossed = [result.final("coop-UCB2", "scalars_peer") for result in results.values()]
    np.testing.assert_array_equal(crossed[0], fb.run(RING, executor="serial").final("coop-UCB2", "scalars_peer"))
    assert (crossed[1] > 0).all()
    assert (crossed[1] < crossed[0]).all()
    assert (crossed[2] == 0).all()
    alone = [result.final("Uniform").tolist() for result in results.values()]
    assert alone[0] == alone[1] == alone[2]
    policy = RING.policies[0].make()
    faults = fb.Faults(edge_dropout=0.5)
    seeds = [RING.trial_seed(trial) for trial in range(2)]
    played = [fb.play(RING.environment_for(policy), policy, seed=s, network="ring", faults=faults) for s in seeds]
    assert crossed[1].tolist() == [history.ledger.scalars_peer for history in played]


def test_failing_edges_are_written_and_read_and_make_another_problem(tmp_path: Path) -> None:
    lossy = RING.with_argument("edge_dropout", 0.25)
    lossy.write(tmp_path / "lossy.toml")
    assert fb.Experiment.read(tmp_path / "lossy.toml") == lossy
    assert lossy.problem() != RING.problem()
    assert "edge_dropout" not in RING.text()  # experiments of before keep their identity


def test_edges_fail_only_where_a_policy_talks_to_peers() -> None:
    with pytest.raises(ValueError, match=r"expected 0 where nobody has peers, got 0\.5; use dropout"):
        fb.Experiment("Synthetic", ["Fed-PECD"], edge_dropout=0.5).check()
    with pytest.raises(ValueError, match=r"edge_dropout: expected a share from 0 to 1, got 1\.5"):
        RING.with_argument("edge_dropout", 1.5)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("", "expected one, because the agents of CoopUCB2 talk to their neighbours"),
        ("rings", "did you mean 'ring'"),
        ("grid:2x3", "of 4 agents"),
    ],
)
def test_a_network_that_cannot_be_is_refused_before_anything_is_computed(
    network: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=words):
        fb.run(RING.with_argument("network", network), tmp_path / "out", "serial")
    assert not (tmp_path / "out").exists()


def test_a_network_in_a_file_is_a_name() -> None:
    with pytest.raises(ValueError, match="network: expected text, got 3"):
        fb.Experiment.from_table({"environment": "Synthetic", "policies": ["coop-UCB2"], "network": 3})
