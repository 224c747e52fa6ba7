"""What the README shows works as it stands there: its first Python blocks as scripts, its first commands in a shell."""

import re
import subprocess
import sys
from pathlib import Path

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


def test_the_quick_start_of_the_shell_runs(tmp_path):
    lines = commands("Quick start")
    assert [line.split()[1] for line in lines] == ["run", "compare", "plot", "audit"]
    for line in lines:
        done = finished(["sh", "-c", f'PATH="{BIN}:$PATH" {line}'], tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout, line
    assert list((tmp_path / "results/quick").glob("*.png"))
