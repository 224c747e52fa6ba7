"""Plain arrays and numbers on disk: whole or not at all, the same bytes, nothing pickled."""

import io
import json
import math
import os
import pickle
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from refusals import assert_refused

from fedbandit_envs.storage import StoredFileError, load, save, write_whole

TREE = {
    "seed": 2**127 + 1,
    "name": "Fed-PECD ψ",
    "rate": 0.1,
    "nothing": None,
    "yes": True,
    "infinite": -math.inf,
    "file": np.arange(6).reshape(2, 3),  # names that numpy.savez takes for its own arguments
    "allow_pickle": np.array(2.5),
    "x": np.zeros(2),
    "x.npy": np.ones(3, dtype=np.float32),
    "agents": {
        "0": {"mask": np.array([[True, False]]), "count": 3, "empty": np.zeros((0, 4), dtype=np.int64)},
        "1": {},
        "deep": {"deeper": {"words": np.array(["a", "bc"]), "none": {}}},
    },
}


def assert_equal(got, expected):
    assert type(got) is type(expected)
    if isinstance(expected, dict):
        assert set(got) == set(expected)
        for name in expected:
            assert_equal(got[name], expected[name])
    elif isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
        assert got.shape == expected.shape
    else:
        assert got == expected


def test_a_tree_comes_back_as_it_went(tmp_path):
    save(tmp_path / "state", TREE)
    assert_equal(load(tmp_path / "state"), TREE)


def test_an_empty_tree_comes_back(tmp_path):
    save(tmp_path / "state", {})
    assert load(tmp_path / "state") == {}


def test_arrays_come_back_writable_and_in_their_own_memory_order(tmp_path):
    save(tmp_path / "state", {"columns": np.asfortranarray(np.arange(6.0).reshape(2, 3))})
    columns = load(tmp_path / "state")["columns"]
    columns[0, 0] = 5
    assert columns.flags.f_contiguous


def test_numbers_of_numpy_come_back_as_plain_ones(tmp_path):
    save(tmp_path / "state", {"a": np.int64(3), "b": np.float32(0.5), "c": np.True_, "d": np.str_("e")})
    assert_equal(load(tmp_path / "state"), {"a": 3, "b": 0.5, "c": True, "d": "e"})


def test_floats_come_back_to_the_last_bit(tmp_path):
    numbers = {str(place): float(x) for place, x in enumerate(np.random.default_rng(0).standard_normal(100) * 1e-300)}
    save(tmp_path / "state", numbers)
    assert load(tmp_path / "state") == numbers


def test_the_same_tree_gives_the_same_bytes_in_any_order_and_at_any_time(tmp_path):
    save(tmp_path / "one", TREE)
    save(tmp_path / "two", dict(reversed(TREE.items())))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    program = (
        "import sys, time, pathlib; sys.path[:0] = [sys.argv[1], sys.argv[3]]\n"
        "time.localtime = lambda *a: time.gmtime(1e9)\n"
        "from test_storage import TREE, save; save(pathlib.Path(sys.argv[2]), TREE)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"}
    command = [
        sys.executable,
        "-c",
        program,
        str(Path(__file__).parent),
        str(tmp_path / "three"),
        str(Path(__file__).parents[1] / "helpers"),
    ]
    subprocess.run(command, check=True, env=environment)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "three").read_bytes()


def test_another_tree_gives_other_bytes(tmp_path):
    save(tmp_path / "one", TREE)
    save(tmp_path / "two", {**TREE, "rate": 0.2})
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


def test_other_programs_can_read_the_file(tmp_path):
    save(tmp_path / "state", TREE)
    with np.load(tmp_path / "state", allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["arrays/file"], TREE["file"])
        assert json.loads(stored["tree"].item())["agents"]["0"] == {
            "count": 3,
            "empty": ["arrays/agents/0/empty"],
            "mask": ["arrays/agents/0/mask"],
        }
    with zipfile.ZipFile(tmp_path / "state") as archive:
        assert archive.testzip() is None


def test_saving_replaces_what_was_there_and_leaves_no_other_file(tmp_path):
    save(tmp_path / "state", {"a": 1})
    save(tmp_path / "state", {"a": 2})
    assert load(tmp_path / "state") == {"a": 2}
    assert os.listdir(tmp_path) == ["state"]


def test_threads_that_write_the_same_file_do_not_disturb_each_other(tmp_path, monkeypatch):
    all_written, fsync = threading.Barrier(4, timeout=10), os.fsync

    def fsync_together(descriptor):
        fsync(descriptor)
        all_written.wait()

    monkeypatch.setattr(os, "fsync", fsync_together)
    with ThreadPoolExecutor(4) as pool:
        for write in [pool.submit(save, tmp_path / "state", {"a": np.full(1000, number)}) for number in range(4)]:
            write.result()
    assert len(np.unique(load(tmp_path / "state")["a"])) == 1
    assert os.listdir(tmp_path) == ["state"]


def test_a_file_has_the_usual_permissions(tmp_path):
    save(tmp_path / "state", {})
    (tmp_path / "usual").touch()
    assert (tmp_path / "state").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, failing):
    save(tmp_path / "state", {"a": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="expected a place that can be written to, got 'No space left on device'; "):
        save(tmp_path / "state", {"a": 2})
    monkeypatch.undo()
    assert load(tmp_path / "state") == {"a": 1}
    assert os.listdir(tmp_path) == ["state"]


def test_an_interrupted_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    save(tmp_path / "state", {"a": 1})

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "state", {"a": 2})
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["state"]
    assert load(tmp_path / "state") == {"a": 1}


def test_a_folder_that_can_not_be_written_to_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for path, kind in ((tmp_path / "missing" / "state", FileNotFoundError), (tmp_path / "file" / "state", OSError)):
        with pytest.raises(kind, match="expected a place that can be written to") as caught:
            save(path, TREE)
        assert caught.value.filename == str(path)
        assert "; create the folder or choose another" in str(caught.value)


def test_a_missing_file_is_missing_not_torn(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "state")


def assert_torn(path):
    with pytest.raises(
        StoredFileError, match="expected a file written by this program, got one that is torn"
    ) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "; delete it or move it away" in str(caught.value)
    return str(caught.value)


def test_a_file_cut_anywhere_is_torn(tmp_path):
    save(tmp_path / "state", TREE)
    content = (tmp_path / "state").read_bytes()
    for length in [*range(0, len(content), 97), len(content) - 22, len(content) - 1]:
        (tmp_path / "state").write_bytes(content[:length])
        assert_torn(tmp_path / "state")


def test_a_file_that_has_lost_or_gained_an_array_is_torn(tmp_path):
    save(tmp_path / "whole", {"a": np.zeros(2), "b": np.ones(2)})
    with zipfile.ZipFile(tmp_path / "whole") as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    for changed in (
        {name: content for name, content in members.items() if "b" not in name},
        {**members, "arrays/c.npy": members["arrays/b.npy"]},
    ):
        with zipfile.ZipFile(tmp_path / "state", "w") as archive:
            for name, content in changed.items():
                archive.writestr(name, content)
        assert_torn(tmp_path / "state")


def test_a_file_with_a_changed_byte_is_torn_or_unharmed(tmp_path):
    small = {"count": 3, "inner": {"a": np.arange(3)}, "b": np.zeros(1)}
    save(tmp_path / "state", small)
    content = (tmp_path / "state").read_bytes()
    torn = 0
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 0x55
        (tmp_path / "state").write_bytes(changed)
        try:
            tree = load(tmp_path / "state")
        except StoredFileError:
            torn += 1
        else:
            assert_equal(tree, small)  # the byte was one that nobody reads, as that of a date
    assert torn > len(content) / 2


def write_members(path, tree, compression=zipfile.ZIP_STORED, **arrays):
    """A file as `save` writes it, but with any text for its tree, and with members of any bytes."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("tree.npy", npy(np.array(tree.encode())))
        for name, content in arrays.items():
            archive.writestr(f"arrays/{name}.npy", content)


def npy(array, allow_pickle=False):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def test_the_file_of_another_writer_is_read(tmp_path):
    write_members(tmp_path / "state", '{"a": {"b": ["arrays/any"]}, "c": 1}', any=npy(np.arange(2)))
    assert_equal(load(tmp_path / "state"), {"a": {"b": np.arange(2)}, "c": 1})


@pytest.mark.parametrize(
    "tree", ["", "[1, 2]", "3", '["arrays/a"]', '{"a": []}', '{"a": [[]]}', '{"a": ["arrays/a"], "b": ["arrays/a"]}']
)
def test_a_tree_that_is_none_is_refused(tmp_path, tree):
    write_members(tmp_path / "state", tree, a=npy(np.zeros(2)))
    assert_torn(tmp_path / "state")


def test_an_array_that_the_tree_does_not_name_is_refused_by_its_name(tmp_path):
    write_members(tmp_path / "state", '{"c": 1}', a=npy(np.zeros(2)))
    assert "arrays: expected those of its tree, got arrays/a too" in assert_torn(tmp_path / "state")


def test_a_tree_that_is_a_number_is_refused_as_one(tmp_path):
    write_members(tmp_path / "state", "3")
    assert "tree: expected names with values, got int" in assert_torn(tmp_path / "state")


def test_a_member_that_is_no_array_is_refused(tmp_path):
    write_members(tmp_path / "state", '{"a": ["arrays/a"]}', a=b"hello")
    assert "arrays/a: expected an array, got other bytes" in assert_torn(tmp_path / "state")


@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing")
@pytest.mark.parametrize("header", [b"{'descr': (", b"{'shape': 01}"])
def test_an_array_whose_header_can_not_be_parsed_is_refused(tmp_path, header):
    array = npy(np.zeros(2))
    spoilt = array[:10] + header.ljust(array.index(b"\n") - 10) + array[array.index(b"\n") :]
    write_members(tmp_path / "state", '{"a": ["arrays/a"]}', a=spoilt)
    assert_torn(tmp_path / "state")


def test_compressed_members_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    write_members(tmp_path / "state", '{"a": ["arrays/a"]}', zipfile.ZIP_DEFLATED, a=npy(np.zeros(10**6)))
    assert (tmp_path / "state").stat().st_size < 20_000
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a member was read"))
    assert "expected arrays that are not compressed, got tree.npy compressed" in assert_torn(tmp_path / "state")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes that have a name")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "state")
    with pytest.raises(StoredFileError, match="expected a file, got a folder, a pipe or a device"):
        load(tmp_path / "state")


@pytest.mark.parametrize("content", ["npy", "npz", "pickle", "text", "json", "zip"])
def test_a_foreign_file_is_refused(tmp_path, content):
    buffer = io.BytesIO()
    if content == "npy":
        np.save(buffer, np.zeros(3))
    elif content == "npz":
        np.savez(buffer, a=np.zeros(3))
    elif content == "pickle":
        pickle.dump({"a": 1}, buffer)
    elif content in ("text", "json"):
        buffer.write({"text": b"hello", "json": b'{"a": 1}'}[content])
    else:
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("tree.json", "{}")
    (tmp_path / "state").write_bytes(buffer.getvalue())
    assert_torn(tmp_path / "state")


def test_a_pickled_array_in_a_file_is_refused_and_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    pickled = npy(np.array([Trap()], dtype=object), allow_pickle=True)
    write_members(tmp_path / "state", '{"trap": ["arrays/trap"]}', trap=pickled)
    assert "Object arrays" in assert_torn(tmp_path / "state")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("tree", "parts"),
    [
        ({"a": {"b": np.array([None])}}, ("a/b: ", "array of object", "got an array of object")),
        ({"a": np.array([(1, None)], dtype=[("x", int), ("y", object)])}, ("a: ", "array of")),
        ({"a": {1, 2}}, ("a: ", "set")),
        ({"a": [1, 2]}, ("a: ", "list")),
        ({"a": 1j}, ("a: ", "complex")),
        ({"a": np.datetime64("2020-01-01")}, ("a: ", "date")),
        ({"a/b": 1}, ("name: ", "'a/b'")),
        ({"a": {"": 1}}, ("name: ", "''", "a/")),
        ({3: 1}, ("name: ", "3")),
    ],
)
def test_what_is_not_plain_is_refused_and_nothing_written(tmp_path, tree, parts):
    assert_refused(lambda: save(tmp_path / "state", tree), *parts)
    assert os.listdir(tmp_path) == []


def test_a_link_that_somebody_planted_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr("fedbandit_envs.storage.secrets.token_hex", lambda size: "guessed")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / ".state.guessed.part").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        write_whole(tmp_path / "state", b"content")
    assert (tmp_path / "victim").read_text() == "mine"
