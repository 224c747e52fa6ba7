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


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.slow
def test_the_table_and_the_picture_of_sizes(scripts, tmp_path):
    from benchmarks import scale

    rows, points = scale.of_sizes((40, 80))
    assert set(points) == {(40, 0), (40, 2), (80, 0), (80, 2)}
    assert [row.measured for row in rows if row.what == "the same pulls and scalars"] == ["yes", "yes"]
    assert {row.ok for row in rows} == {None, True}  # a goal of time is set for a million agents only
    scale.picture(points, tmp_path / "new" / "scale.png")
    assert (tmp_path / "new" / "scale.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_table_of_sixteen_shards(scripts):
    from benchmarks import scale

    rows = scale.in_sixteen(32)
    assert "M = 32, K = 2, d = 2, in 16 shards" in rows[0].what
    assert all(float(part.replace(",", "")) >= 0 for row in rows for part in row.measured.split(", "))


@pytest.mark.slow
def test_what_a_run_allocates_has_a_goal_where_there_are_many_agents(scripts):
    from benchmarks import memory

    (many,), (few,) = (memory.of_policies({"DisLinUCB": 20}, 300, most) for most in (1, None))
    assert (many.goal, many.ok) == ("at most 1", False)
    assert (few.goal, few.ok) == ("", None)
    assert float(few.measured) > 10  # a report alone takes d times psi


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "horizon"),
    {
        "DisLinUCB": 100,
        "FedLinUCB": 140,
        "FedUCB": 60,
        "Residual-LinUCB": 60,
        "DDUCB": 60,
        "Enhanced-Fed-PE": 2**12,
        "Collaborative": 2**12,
        "Fed-CI": 2**10,
        "Federated-Thompson": 2**10,
        "Exact-Thompson": 2**10,
        "Local-Thompson": 2**12,
        "Theta-Told": 2**12,
    }.items(),
)
def test_a_run_allocates_at_most_twelve_times_psi(scripts, name, horizon):
    """The horizons are the shortest at which each of them took more, before it went without what it did not need."""
    from benchmarks import memory

    assert memory.peak(name, 10_000, horizon) <= memory.MOST == 12


@pytest.mark.slow
def test_instructions_are_counted_or_said_to_need_valgrind(scripts, monkeypatch):
    from benchmarks import instructions

    monkeypatch.setattr(instructions, "_SETTINGS", (("Uniform", 2, 8), ("Uniform", 2, 4096)))
    monkeypatch.setattr(instructions, "_RUNS", 1)
    rows = instructions.instructions(False)
    if rows[0].measured.startswith("not measured"):
        assert len(rows) == 1
    else:
        few, many = (float(row.measured) for row in rows)
        assert 0 < few < many


@pytest.mark.slow
def test_the_evaluation_that_is_timed_really_takes_place(scripts):
    from benchmarks import runs

    (row,) = runs.evaluation(quick=True)
    assert float(row.measured.removesuffix(" s")) > 0
