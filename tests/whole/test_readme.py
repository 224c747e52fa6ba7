"""What the README shows works as it stands there: its first Python blocks as scripts, its first commands in a shell."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BIN = Path(sys.executable).parent


def section(title):
    return re.search(rf"^##+ {title}\n(.*?)(?=^## )", README, flags=re.DOTALL | re.MULTILINE).group(1)


def blocks(title):
    return re.findall(r"^```python\n(.*?)^```", section(title), flags=re.DOTALL | re.MULTILINE)


def commands(title):
    joined = section(title).replace("\\\n", " ")
    return re.findall(r"^    (fedbandit .*?)(?:  +#.*)?$", joined, flags=re.MULTILINE)


def finished(command, folder):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("title", ["Quick start", "Environments", "Your own data"])
def test_python_blocks_run_when_pasted(title, tmp_path):
    assert blocks(title)
    for number, block in enumerate(blocks(title)):
        script = tmp_path / f"block_{number}.py"
        script.write_text(block)
        done = finished([sys.executable, script], tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_quick_start_of_the_shell_runs(tmp_path):
    lines = commands("Quick start")
    assert [line.split()[1] for line in lines] == ["run", "compare", "compare", "plot", "report", "sweep", "audit"]
    for line in lines:
        done = finished(["sh", "-c", f'PATH="{BIN}:$PATH" {line}'], tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout, line
    assert list((tmp_path / "results/paper").glob("*.png"))


def test_own_ratings_become_an_experiment_in_five_lines(tmp_path):
    lines = re.search(r"in five lines.*?:\n\n((?:    .*\n)+)", section("Your own data")).group(1)
    assert len(lines.splitlines()) == 5
    rng = np.random.default_rng(0)
    tastes, films = rng.uniform(0, 1, (150, 3)), rng.uniform(0, 1, (60, 3))
    rows = [
        f"u{user},f{film},{1 + 4 * tastes[user] @ films[film] / 3:.2f}"
        for user in range(150)
        for film in rng.choice(60, 30, replace=False)
    ]
    (tmp_path / "ratings.csv").write_text("\n".join(["user,film,stars", *rows]) + "\n")
    script = "import fedbandit_envs as fb\n\nif __name__ == '__main__':\n" + lines
    (tmp_path / "own.py").write_text(script)
    done = finished([sys.executable, tmp_path / "own.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "held-out" in done.stdout
    assert (tmp_path / "results/mine/experiment.toml").exists()
