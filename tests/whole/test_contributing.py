"""What CONTRIBUTING.md says: the walk from `fedbandit run` to a figure is what runs, and the places it names exist."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fedbandit_envs.cli.main import main

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "fedbandit_envs"
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading, up to the next one."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def named_files(text: str) -> list[str]:
    """The files of the library that a text names; one without a folder is on the ground floor, or beside the last."""
    files: list[str] = []
    for name in re.findall(r"`([\w/]+\.py)`", text):
        whole = "/" in name or (LIBRARY / name).exists()
        files.append(name if whole else Path(next(one for one in files[::-1] if "/" in one)).with_name(name).as_posix())
    return files


def test_the_walk_has_ten_steps_and_names_files_that_exist() -> None:
    walk = section("From `fedbandit run` to a figure, in ten lines")
    assert re.findall(r"^(\d+)\. ", walk, flags=re.MULTILINE) == [str(number) for number in range(1, 11)]
    files = named_files(walk)
    assert len(files) > 20
    assert [name for name in files if not (LIBRARY / name).is_file()] == []


@pytest.mark.slow
def test_a_run_and_a_figure_go_through_every_file_of_the_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            entered.add(frame.f_code.co_filename)

    words = ["run", "--env", "Synthetic", "--set", "max_cycles=64", "--set", "num_agents=3"]
    words += ["--policy", "Fed-PECD", "--trials", "1", "--executor", "serial", "--out", str(tmp_path)]
    before = sys.gettrace()
    threading.settrace(note)  # files are written by a thread
    sys.settrace(note)
    try:
        assert main(words) == 0
        assert main(["plot", str(tmp_path), "--figure", "regret", "--format", "svg"]) == 0
    finally:
        sys.settrace(before)
        threading.settrace(before)  # type: ignore[arg-type]
    names = {Path(file).relative_to(LIBRARY).as_posix() for file in entered if Path(file).is_relative_to(LIBRARY)}
    walk = named_files(section("From `fedbandit run` to a figure, in ten lines"))
    assert [name for name in walk if name not in names] == []


def test_each_place_for_a_new_thing_is_there() -> None:
    rows = re.findall(r"^\| (.*) \| (.*) \|$", section("Where a new thing goes"), flags=re.MULTILINE)[2:]
    assert len(rows) > 12
    for _, where in rows:
        files = [name for name in re.findall(r"`([\w/]+/[\w]+\.py)`", where) if "yourname" not in name]
        for name in files:
            content = (LIBRARY / name).read_text(encoding="utf-8")
            for table in re.findall(r"`([A-Z_]{4,}|_OWN|FeatureMap|Carrier)`", where):
                if len(files) == 1:
                    assert table in content, f"{table} in {name}"


def test_the_table_of_rooms_names_each_room() -> None:
    named = set(re.findall(r"^\| `(\w+)/` \|", section("Rooms"), flags=re.MULTILINE))
    assert named == {path.name for path in LIBRARY.iterdir() if (path / "__init__.py").exists()}
