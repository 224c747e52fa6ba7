"""The benchmark still finds what it measures; how fast that is, is never a test."""

import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.mark.slow
def test_the_runs_in_new_processes_end_and_measure(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "path", list(sys.path))  # the scripts add folders of their own
    from benchmarks import peers, scaling, stepping, streams  # noqa: F401 - the import itself is a part of the test

    found = scaling.measure(1, num_agents=5, max_cycles=512)
    assert found["seconds"] > 0
    assert 0 < found["design"] < 1
    assert found["peak"] > found["psi"] == 8 * 5 * 10 * 3


@pytest.mark.slow
def test_runs_over_shards_are_measured_in_every_process(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "path", list(sys.path))
    from benchmarks import scale, stepping  # noqa: F401

    one, two = (scale.measure(200, shards) for shards in (0, 2))
    assert (one["pulls"], one["scalars"]) == (two["pulls"], two["scalars"])
    assert 0 < one["served"] < one["seconds"]
    assert one["shards"] == []
    assert len(two["shards"]) == len(two["shard_cpu"]) == 2
    assert min(two["shards"]) > 2**20
