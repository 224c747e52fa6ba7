"""Tables of pulls in little memory: what is read is what was written, whatever was compressed."""

import numpy as np
import pytest

from fedbandit_envs.rounds import count_tables as module
from fedbandit_envs.rounds.count_tables import CountTables, StackedTables
from fedbandit_envs.storage import from_bytes, to_bytes


def growing(seed=0, number=12, shape=(6, 3)):
    """Counts that grow by 0 to 2, and once by far more than a byte, and by more than two bytes, can hold."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 3, (number, *shape))
    steps[number // 2, 2, 1], steps[number // 3, 3, 0] = 300, 70_000
    return steps.cumsum(axis=0)


def written(counts, kind=np.int32):
    tables = CountTables(np.zeros(counts.shape[1:], dtype=kind))
    for now in counts:
        tables.add(now)
    return tables


@pytest.fixture(params=["plain", "compressed"])
def counts(request, monkeypatch):
    if request.param == "compressed":
        monkeypatch.setattr(module, "_PLAIN", 2)
        monkeypatch.setattr(module, "_LARGE", 0)
    return growing()


def test_what_is_read_is_what_was_written(counts):
    tables = written(counts)
    for found, expected in ((list(tables), counts), (tables[3:9:2], counts[3:9:2]), (tables[::-1], counts[::-1])):
        np.testing.assert_array_equal(np.array(found), expected)
    for place in (0, 5, -1, -12):
        np.testing.assert_array_equal(tables[place], counts[place])
    assert {table.dtype for table in tables} == {np.dtype(np.int32)}
    assert not any(table.flags.writeable for table in tables)
    with pytest.raises(IndexError):
        tables[12]


def test_tables_counted_from_one_of_them(counts):
    np.testing.assert_array_equal(np.array(written(counts).since(4)), counts[5:] - counts[4])
    np.testing.assert_array_equal(written(counts).since(4)[-1], counts[-1] - counts[4])
    assert len(written(counts).since(len(counts) - 1)) == 0


def test_a_copy_does_not_grow_with_the_run(counts):
    tables = written(counts[:5])
    copy = tables.copy()
    tables.add(counts[5])
    assert (len(copy), len(tables)) == (5, 6)
    np.testing.assert_array_equal(copy[-1], counts[4])


def test_blocks_of_agents_are_read_as_one(counts):
    stacked = StackedTables([written(counts[:, :2]), written(counts[:, 2:])])
    assert len(stacked) == len(counts)
    np.testing.assert_array_equal(np.array(list(stacked)), counts)
    np.testing.assert_array_equal(stacked[-2], counts[-2])
    np.testing.assert_array_equal(np.array(stacked[2:4]), counts[2:4])
    np.testing.assert_array_equal(np.array(list(stacked.since(3))), counts[4:] - counts[3])


def test_tables_go_on_after_they_were_stored(counts):
    tree = from_bytes(to_bytes(written(counts[:7]).tree()), "state")
    tables = CountTables.from_tree(tree)
    for now in counts[7:]:
        tables.add(now)
    np.testing.assert_array_equal(np.array(list(tables)), counts)


def test_a_stored_table_of_another_size_is_refused(monkeypatch):
    monkeypatch.setattr(module, "_PLAIN", 0)
    monkeypatch.setattr(module, "_LARGE", 0)
    tree = written(growing()).tree()
    tree["start"] = np.zeros((2, 3), dtype=np.int32)
    with pytest.raises(ValueError, match="expected a table of 6 bytes"):
        CountTables.from_tree(tree)


def test_step_by_step_tables_take_a_tenth_of_their_size():
    """3 pulls of each of 10^4 agents between two of 100 checkpoints, mostly of one arm, in 10 arms."""
    rng = np.random.default_rng(0)
    arms = np.where(rng.random((100, 10_000, 3)) < 0.7, 3, rng.integers(0, 10, (100, 10_000, 3)))
    tables = CountTables(np.zeros((10_000, 10), dtype=np.int32))
    now = np.zeros((10_000, 10), dtype=np.int64)
    for pulled in arms:
        np.add.at(now, (np.arange(10_000)[:, None], pulled), 1)
        tables.add(now)
    # The first 32 too, which were not compressed as long as there were no more: alone they would take 0.08.
    assert sum(piece.data.nbytes for piece in tables._pieces) < 0.08 * 100 * now.astype(np.int32).nbytes
