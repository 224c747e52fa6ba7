"""Programs that are started for a federation end with it, and so do all their children."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from proc import children_of, running_with

from fedbandit_envs.federation import programs as module
from fedbandit_envs.federation.programs import Programs, runs

psutil = pytest.importorskip("psutil")

# Starts a child with a session of its own; both ignore the polite signal if they are told to.
PARENT = """
import signal, subprocess, sys, time
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the child inherits it
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"], start_new_session=True)
print("ready", flush=True)
time.sleep(100)
"""


def start(programs: Programs, manner: str, mark: str) -> None:
    programs.start("one", [sys.executable, "-c", PARENT, manner], {**os.environ, "FEDBANDIT_TEST": mark})
    deadline = time.monotonic() + 30
    while "ready" not in programs.log("one") and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.parametrize("manner", ["polite", "deaf"])
def test_programs_end_with_all_their_children(manner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GRACE_SECONDS", 0.3)
    mark = str(tmp_path)
    with Programs(tmp_path / "logs") as programs:
        start(programs, manner, mark)
        pid = programs.pid("one")
        assert runs(pid)
        assert len(running_with(f"FEDBANDIT_TEST={mark}")) == 2
        assert len(children_of(pid)) == 1
    assert not runs(pid)
    assert running_with(f"FEDBANDIT_TEST={mark}") == []


def test_a_program_that_has_ended_is_told_with_its_code_and_output(tmp_path: Path) -> None:
    with Programs(tmp_path / "logs") as programs:
        programs.start("short", [sys.executable, "-c", "print('bye'); raise SystemExit(3)"], os.environ)
        assert programs.wait("short", 30) == 3
        assert programs.ended() == {"short": 3}
        assert programs.log("short") == "bye\n"


def test_a_process_that_nobody_has_waited_for_does_not_run() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    assert runs(process.pid)
    process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while runs(process.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs(process.pid)
    assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE
    process.wait()
