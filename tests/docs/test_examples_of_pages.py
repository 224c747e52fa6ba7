"""What the pages show works as it stands there: each Python block as a script, commands in a shell."""

import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest
from built_site import DOCS, SITE_TESTS

import fedbandit_envs as fb

sys.path.insert(0, str(DOCS / "_ext"))

import command_pages

pytestmark = SITE_TESTS
BIN = Path(sys.executable).parent
WRITTEN = sorted(file for file in DOCS.rglob("*.md") if not {"generated", "_build", "ideas"} & set(file.parts))
# Pages whose commands are not run here, each with its reason. All others with a block of bash are run.
NOT_RUN = {
    "start/install.md": "they install packages, which needs a package index",
    "how-to/federation.md": "it needs the extra flower; .ci/run plays federations in an environment of their own",
}


def blocks(file: Path, language: str) -> list[str]:
    """The blocks that are meant to be run. One that can't be, as it needs a cluster, is a {code-block} instead."""
    return re.findall(rf"^```{language}\n(.*?)^```", file.read_text(), flags=re.DOTALL | re.MULTILINE)


def with_commands() -> list[str]:
    """The pages whose commands are run."""
    return [page for file in WRITTEN if blocks(file, "bash") and (page := str(file.relative_to(DOCS))) not in NOT_RUN]


def finished(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    "file", [file for file in WRITTEN if blocks(file, "python")], ids=lambda file: str(file.relative_to(DOCS))
)
def test_python_blocks_run_when_pasted(file: Path, tmp_path: Path) -> None:
    for number, block in enumerate(blocks(file, "python")):
        script = tmp_path / f"block_{number}.py"
        script.write_text(block)
        done = finished([sys.executable, str(script)], tmp_path)
        assert done.returncode == 0, done.stderr


def test_pages_with_python_are_found() -> None:
    """An expression that finds nothing would make the test above pass for ever."""
    found = {str(file.relative_to(DOCS)) for file in WRITTEN if blocks(file, "python")}
    assert {"start/first-run.md", "how-to/own-policy.md", "how-to/own-data.md", "how-to/own-environment.md"} <= found


def test_pages_with_commands_are_found() -> None:
    assert {"start/first-run.md", "how-to/sweeps-and-tables.md", "how-to/experiments.md"} <= set(with_commands())
    for page in NOT_RUN:
        assert blocks(DOCS / page, "bash"), f"{page} has no commands any more: take it out of NOT_RUN"


@pytest.mark.parametrize("page", with_commands())
def test_commands_run_in_a_shell(page: str, tmp_path: Path) -> None:
    lines = [line for block in blocks(DOCS / page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    assert len(lines) >= 2
    for line in lines:
        done = finished(["sh", "-c", f'PATH="{BIN}:$PATH" {line}'], tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout, line


def test_names_and_options_that_pages_mention_are_there() -> None:
    words = "".join(file.read_text() for file in WRITTEN)
    names = set(re.findall(r"\bfb((?:\.[A-Za-z_]+)+)", words))
    assert {".play", ".plotting.regret", ".tracking.tensorboard"} <= names
    for name in names:
        assert attrgetter(name[1:])(fb) is not None
    known = "".join(command_pages.pages().values())
    commands = re.findall(r"fedbandit (\w+) ((?:\\\n|[^`\n])*)", words)
    options = {(command, option) for command, rest in commands for option in re.findall(r"--[a-z-]+", rest)}
    assert {("run", "--env"), ("sweep", "--over"), ("compare", "--format")} <= options
    for command, option in options:
        section = re.search(rf"^## fedbandit {command}\n(.*?)(?=^## |\Z)", known, flags=re.DOTALL | re.MULTILINE)
        assert section, command
        assert f"`{option}" in section[1], (command, option)


def test_own_ratings_become_an_experiment_in_five_lines(tmp_path: Path) -> None:
    text = (DOCS / "how-to/own-data.md").read_text()
    found = re.search(r":name: five-lines\n\n(.*?)```", text, flags=re.DOTALL)
    assert found
    lines = found[1].splitlines()
    assert len(lines) == 5
    rng = np.random.default_rng(0)
    tastes, films = rng.uniform(0, 1, (150, 3)), rng.uniform(0, 1, (60, 3))
    rows = [
        f"u{user},f{film},{1 + 4 * tastes[user] @ films[film] / 3:.2f}"
        for user in range(150)
        for film in rng.choice(60, 30, replace=False)
    ]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,film,stars", *rows]) + "\n")
    script = ["import fedbandit_envs as fb", "if __name__ == '__main__':", *(f"    {line}" for line in lines)]
    (tmp_path / "own.py").write_text("\n".join(script))
    done = finished([sys.executable, "own.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "held-out" in done.stdout
    assert re.search(r"^Uniform +[\d,.]+ +[\d,.]+ ", done.stdout, flags=re.MULTILINE)  # its regret, in a row of its own
    assert (tmp_path / "results/mine/experiment.toml").exists()
