"""Downloads from a server on this machine: what is fetched is whole and checked, or nothing is left behind."""

import gc
import hashlib
import io
import os
import socket
import sys
import zipfile

import pytest
from http_answers import Server, body, drop_by_drop, silence, without_length

from fedbandit_envs import validation
from fedbandit_envs.problems.movielens import download as module
from fedbandit_envs.problems.movielens.download import DownloadError, download

pytest.importorskip("pooch")
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # pooch leaves failed answers open

RATINGS = b"1\t1\t5\t0\n2\t1\t3\t0\n" * 5000


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = zipped({"ml-100k/README": b"about", "ml-100k/u.data": RATINGS})


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def server(monkeypatch):
    """A server whose archive stands for MovieLens-100K."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    running.answers = [body(ARCHIVE)]
    monkeypatch.setattr(module, "MOVIELENS_URL", running.url)
    monkeypatch.setattr(module, "MOVIELENS_SHA256", sha256(ARCHIVE))
    monkeypatch.setattr(module, "RATINGS_SHA256", sha256(RATINGS))
    yield running
    gc.collect()  # sockets that pooch left open must not be found in another test
    running.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "folder"


def one_line_error(destination):
    with pytest.raises(DownloadError) as caught:
        download(destination)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_ratings_are_extracted_alone_and_whole(server, folder, capsys):
    path = download(folder)
    assert path == folder / "u.data"
    assert path.read_bytes() == RATINGS
    assert os.listdir(folder) == ["u.data"]
    assert server.requests == 1
    assert "downloaded" in capsys.readouterr().out


def test_a_server_that_does_not_announce_the_length_is_fine(server, folder):
    server.answers = [without_length(ARCHIVE)]
    assert download(folder).read_bytes() == RATINGS


def test_the_right_file_is_not_fetched_again(server, folder, capsys):
    path = download(folder)
    before = path.stat()
    assert download(folder) == path
    assert server.requests == 1
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert "already there" in capsys.readouterr().out


def test_another_file_of_that_name_is_neither_used_nor_overwritten(server, folder):
    folder.mkdir(parents=True)
    (folder / "u.data").write_bytes(b"mine")
    message = one_line_error(folder)
    assert f"expected sha256 {sha256(RATINGS)}, got {sha256(b'mine')}" in message
    assert "remove it, or choose another folder" in message
    assert (folder / "u.data").read_bytes() == b"mine"
    assert server.requests == 0


@pytest.mark.parametrize("content", [b"<html>please log in</html>", zipped({"ml-100k/u.data": b"changed"}), b""])
def test_a_wrong_checksum_is_an_error_with_both_and_leaves_nothing(server, tmp_path, folder, content):
    server.answers = [body(content)]
    message = one_line_error(folder)
    assert f"{server.url}: expected its checksum, got another" in message
    assert sha256(ARCHIVE) in message
    assert sha256(content) in message
    assert os.listdir(tmp_path) == []


def packed(method, spoil):
    """An archive with u.data packed by this method, of which some bytes are changed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("ml-100k/u.data", RATINGS)
    return spoil(bytearray(buffer.getvalue()))


def torn(content):
    """Bytes in the middle of the packed file are others."""
    content[60:80] = bytes(20)
    return bytes(content)


def locked(content):
    """The flags in both headers say that the file is encrypted."""
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


UNREADABLE = {
    "no archive": b"PK nothing",
    "without u.data": zipped({"ml-100k/README": b"about"}),
    "encrypted": packed(zipfile.ZIP_STORED, locked),
    "deflate": packed(zipfile.ZIP_DEFLATED, torn),
    "bzip2": packed(zipfile.ZIP_BZIP2, torn),
    "lzma": packed(zipfile.ZIP_LZMA, torn),
    "stored": packed(zipfile.ZIP_STORED, torn),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_an_archive_that_can_not_be_read_is_an_error_that_says_so(server, tmp_path, folder, monkeypatch, content):
    server.answers = [body(content)]
    monkeypatch.setattr(module, "MOVIELENS_SHA256", sha256(content))
    assert "expected a zip file that can be read, with ml-100k/u.data in it, got" in one_line_error(folder)
    assert os.listdir(tmp_path) == []


def test_an_answer_that_is_far_too_long_is_cut(server, tmp_path, folder, monkeypatch):
    server.answers = [without_length(ARCHIVE)]
    monkeypatch.setattr(module, "_MOST_BYTES", 100)
    assert "expected at most 100 bytes, got more" in one_line_error(folder)
    assert os.listdir(tmp_path) == []


def test_what_is_unpacked_is_bounded_and_checked(server, tmp_path, folder, monkeypatch):
    content = packed(zipfile.ZIP_DEFLATED, bytes)
    server.answers = [body(content)]
    monkeypatch.setattr(module, "MOVIELENS_SHA256", sha256(content))
    monkeypatch.setattr(module, "_MOST_BYTES", len(content))
    message = one_line_error(folder)
    assert f"expected sha256 {sha256(RATINGS)} for ml-100k/u.data, got" in message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("answer", [body(ARCHIVE, cut=1000), silence, body(b"", length=10)])
def test_a_cut_connection_is_an_error_that_leaves_nothing(server, tmp_path, folder, answer):
    server.answers = [answer]
    assert f"{server.url}: expected to download it, got " in one_line_error(folder)
    assert os.listdir(tmp_path) == []


def test_a_server_that_sends_a_byte_at_a_time_is_given_up(server, tmp_path, folder, monkeypatch):
    server.answers = [drop_by_drop(ARCHIVE, pause=0.02)]
    monkeypatch.setattr(module, "_LONGEST", 0.3)
    assert "expected the file within 0.3 s, got" in one_line_error(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_page_is_an_error_with_its_status(server, tmp_path, folder):
    server.answers = [body(b"no such page", status=404)]
    assert "404" in one_line_error(folder)
    assert os.listdir(tmp_path) == []


def test_no_network_is_an_error_that_says_what_to_do_and_leaves_nothing(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        monkeypatch.setattr(module, "MOVIELENS_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/ml-100k.zip")
        message = one_line_error(folder)
    assert "check the network, or get the zip file by other means" in message
    assert os.listdir(tmp_path) == []


def test_a_failed_download_leaves_what_was_in_the_folder(server, tmp_path):
    server.answers = [silence]
    (tmp_path / "mine").touch()
    one_line_error(tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_a_file_in_the_place_of_the_folder_is_an_error_before_any_request(server, tmp_path):
    (tmp_path / "taken").write_text("a file")
    for destination in (tmp_path / "taken", tmp_path / "taken" / "below"):
        message = one_line_error(destination)
        assert "expected a folder that can be written" in message
        assert str(destination) in message
    assert server.requests == 0
    assert os.listdir(tmp_path) == ["taken"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_an_error_before_any_request(server, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in one_line_error(tmp_path)
    finally:
        tmp_path.chmod(0o700)
    assert server.requests == 0


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (OSError(28, "No space left on device"), DownloadError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_or_an_interrupt_leaves_no_half_file(
    server, tmp_path, folder, monkeypatch, step, failure, expected
):
    def fail(*arguments):
        raise failure

    monkeypatch.setattr(f"os.{step}", fail)
    with pytest.raises(expected) as caught:
        download(folder)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
    assert expected is KeyboardInterrupt or "No space left on device" in str(caught.value)


def test_without_pooch_the_extra_is_named_and_nothing_left(tmp_path, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.setattr(validation, "find_spec", lambda package: None)
    with pytest.raises(ImportError, match=r"data: expected pooch to be installed, .*'\.\[data\]"):
        download(folder)
    assert os.listdir(tmp_path) == []
