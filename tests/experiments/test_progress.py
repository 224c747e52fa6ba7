"""The progress bar on a real terminal, and in a file."""

import os
import select
import time
from pathlib import Path

import pytest

from fedbandit_envs.experiments.progress import progress_bar

pty = pytest.importorskip("pty", reason="needs terminals as Unix has them")


def written(terminal: int) -> str:
    """What a terminal was sent until now; a terminal that was sent nothing is not waited for."""
    parts = []
    while select.select([terminal], [], [], 0.2)[0]:
        parts.append(os.read(terminal, 4096))
    return b"".join(parts).decode()


def test_a_terminal_that_does_not_know_its_width_shows_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    try:
        with open(theirs, "w") as terminal:
            assert os.get_terminal_size(theirs).columns == 0
            monkeypatch.setattr("sys.stderr", terminal)
            with progress_bar(5) as bar:
                time.sleep(1.1)  # a bar appears after a second
                bar.update()
            terminal.flush()
            shown = written(ours)
    finally:
        os.close(ours)
    assert "1/5 [" in shown
    assert max(map(len, shown.split("\r"))) <= 80


def test_a_file_gets_no_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(tmp_path / "log", "w") as log:
        monkeypatch.setattr("sys.stderr", log)
        with progress_bar(5) as bar:
            time.sleep(1.1)
            bar.update()
    assert (tmp_path / "log").read_text() == ""
