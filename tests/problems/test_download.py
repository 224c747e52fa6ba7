"""Downloads from a server on this machine: what is fetched is whole and checked, or nothing is left behind."""

import hashlib
import io
import os
import socket
import threading
import zipfile

import pytest
from http_answers import Server, body, silence, without_length

from fedbandit_envs.problems.movielens import download as module
from fedbandit_envs.problems.movielens.download import DownloadError, download

RATINGS = b"1\t1\t5\t0\n2\t1\t3\t0\n" * 5000
SHA256 = hashlib.sha256(RATINGS).hexdigest()
QUICK = {"attempts": 3, "backoff": 0.001, "timeout": 5.0, "sha256": SHA256}


def zipped(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), content)
    return buffer.getvalue()


ARCHIVE = zipped(**{"ml-100k__README": b"about", "ml-100k__u_data": RATINGS})


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    yield running
    running.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new" / "folder"


def left_in(folder):
    return sorted(os.listdir(folder)) if folder.exists() else []


def one_line_error(*args, **kwargs):
    with pytest.raises(DownloadError) as caught:
        download(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_ratings_are_extracted_alone_and_whole(server, folder, capsys):
    server.answers = [body(ARCHIVE)]
    path = download(folder, server.url, **QUICK)
    assert path == folder / "u.data"
    assert path.read_bytes() == RATINGS
    assert left_in(folder) == ["u.data"]
    assert server.requests == 1
    assert "downloaded" in capsys.readouterr().out


def test_a_server_that_does_not_announce_the_length_is_fine(server, folder):
    server.answers = [without_length(ARCHIVE)]
    assert download(folder, server.url, **QUICK).read_bytes() == RATINGS


def test_the_right_file_is_not_fetched_again(server, folder):
    server.answers = [body(ARCHIVE)]
    path = download(folder, server.url, **QUICK)
    before, said = path.stat(), []
    assert download(folder, server.url, **QUICK, say=said.append) == path
    assert server.requests == 1
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert len(said) == 1
    assert "already there" in said[0]


def test_another_file_of_that_name_is_neither_used_nor_overwritten(server, folder):
    folder.mkdir(parents=True)
    (folder / "u.data").write_bytes(b"mine")
    message = one_line_error(folder, server.url, **QUICK)
    assert f"expected sha256 {SHA256}" in message
    assert "remove it, or choose another folder" in message
    assert (folder / "u.data").read_bytes() == b"mine"
    assert server.requests == 0


def test_a_wrong_checksum_is_an_error_with_both_and_leaves_nothing(server, folder):
    server.answers = [body(zipped(**{"ml-100k__u_data": RATINGS[:-1]}))]
    message = one_line_error(folder, server.url, **QUICK)
    assert f"expected sha256 {SHA256}, got {hashlib.sha256(RATINGS[:-1]).hexdigest()}" in message
    assert left_in(folder) == []
    assert server.requests == 1


def test_a_cut_connection_is_tried_again_and_then_succeeds(server, folder):
    server.answers = [body(ARCHIVE, cut=1000), silence, body(ARCHIVE)]
    assert download(folder, server.url, **QUICK).read_bytes() == RATINGS
    assert server.requests == 3
    assert left_in(folder) == ["u.data"]


@pytest.mark.parametrize("answer", [body(ARCHIVE, cut=1000), silence, body(b"", length=10)])
def test_a_connection_cut_every_time_is_an_error_that_leaves_nothing(server, folder, answer):
    server.answers = [answer]
    message = one_line_error(folder, server.url, **QUICK)
    assert "the connection was cut" in message or "no connection" in message
    assert "(3 attempts)" in message
    assert server.requests == 3
    assert left_in(folder) == []


def test_a_server_that_falls_silent_is_given_up_after_the_timeout(server, folder):
    finished = threading.Event()

    def stall(handler):
        body(ARCHIVE, cut=1000)(handler)
        handler.wfile.flush()
        finished.wait(10)

    server.answers = [stall]
    try:
        message = one_line_error(folder, server.url, **QUICK | {"attempts": 2, "timeout": 0.1})
    finally:
        finished.set()
    assert "timed out" in message
    assert server.requests == 2
    assert left_in(folder) == []


def test_a_missing_page_is_an_error_at_once(server, folder):
    server.answers = [body(b"no such page", status=404)]
    message = one_line_error(folder, server.url, **QUICK)
    assert "expected status 200, got 404" in message
    assert server.url in message
    assert server.requests == 1
    assert left_in(folder) == []


def test_a_server_in_trouble_is_asked_again(server, folder):
    server.answers = [body(b"busy", status=503), body(b"slow down", status=429), body(ARCHIVE)]
    assert download(folder, server.url, **QUICK).read_bytes() == RATINGS
    assert server.requests == 3


def test_waits_double_between_attempts(server, folder, monkeypatch):
    waits = []
    monkeypatch.setattr(module.time, "sleep", waits.append)
    server.answers = [body(b"busy", status=503)]
    message = one_line_error(folder, server.url, **QUICK | {"attempts": 4, "backoff": 0.5})
    assert "got 503" in message
    assert waits == [0.5, 1, 2]


def test_no_network_is_an_error_that_says_what_to_do_and_leaves_nothing(folder, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        message = one_line_error(folder, f"http://127.0.0.1:{unused.getsockname()[1]}/ml-100k.zip", **QUICK)
    assert "no connection" in message
    assert "check the network, or get the zip file by other means" in message
    assert left_in(folder) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>please log in</html>", "expected a zip file"),
        (zipped(README=b"about"), r"expected one u.data .*got sizes \[\]"),
        (zipped(**{"a__u_data": RATINGS, "b__u_data": RATINGS}), "expected one u.data"),
        (ARCHIVE.replace(RATINGS[:100], b"x" * 100, 1), "expected a zip file .*CRC"),
    ],
)
def test_an_archive_without_the_ratings_is_an_error_that_leaves_nothing(server, folder, content, message):
    server.answers = [body(content)]
    with pytest.raises(DownloadError, match=message):
        download(folder, server.url, **QUICK)
    assert left_in(folder) == []


def test_an_endless_answer_is_given_up(server, folder, monkeypatch):
    monkeypatch.setattr(module, "_LARGEST", len(ARCHIVE) // 2)
    server.answers = [body(ARCHIVE)]
    assert "expected at most" in one_line_error(folder, server.url, **QUICK)
    assert left_in(folder) == []


@pytest.mark.parametrize("url", ["ml-100k.zip", "http://127.0.0.1:port/", "http://127.0.0.1/a b"])
def test_what_is_not_a_url_is_refused(folder, url):
    assert "expected an http or https url" in one_line_error(folder, url, **QUICK)
    assert left_in(folder) == []


def test_a_file_in_the_place_of_the_folder_is_an_error_before_any_request(server, tmp_path):
    (tmp_path / "taken").write_text("a file")
    for destination in (tmp_path / "taken", tmp_path / "taken" / "below"):
        message = one_line_error(destination, server.url, **QUICK)
        assert "expected a folder that can be written" in message
        assert str(destination) in message
    assert server.requests == 0
    assert left_in(tmp_path) == ["taken"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_an_error_before_any_request(server, tmp_path):
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in one_line_error(tmp_path, server.url, **QUICK)
    finally:
        tmp_path.chmod(0o700)
    assert server.requests == 0


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_disk_that_fills_up_leaves_no_half_file(server, folder, monkeypatch, step):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    server.answers = [body(ARCHIVE)]
    monkeypatch.setattr(f"os.{step}", full)
    assert "No space left on device" in one_line_error(folder, server.url, **QUICK)
    assert left_in(folder) == []


def test_an_interrupt_leaves_no_half_file(server, folder, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_fetched", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download(folder, server.url, **QUICK)
    assert left_in(folder) == []


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"backoff": -1}, {"timeout": 0}])
def test_settings_out_of_range_are_refused(folder, wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}: expected"):
        download(folder, **QUICK | wrong)
    assert left_in(folder) == []
