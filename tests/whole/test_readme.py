"""The README is one page that is easy to read, and what it shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedbandit_envs as fb

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BIN = Path(sys.executable).parent


def section(title: str) -> str:
    found = re.search(rf"^##+ {title}\n(.*?)(?=^## |\Z)", README, flags=re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def blocks(title: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", section(title), flags=re.DOTALL | re.MULTILINE)


def finished(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_quick_start_runs_when_pasted(tmp_path: Path) -> None:
    (block,) = blocks("Quick start", "python")
    script = tmp_path / "quick_start.py"
    script.write_text(block)
    done = finished([sys.executable, str(script)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\d+", done.stdout)) >= 3
    assert (tmp_path / "results/quick/regret.png").exists()


@pytest.mark.slow
def test_the_quick_start_of_the_shell_runs(tmp_path: Path) -> None:
    (block,) = blocks("In the shell", "bash")
    lines = block.splitlines()
    assert [line.split()[:2] for line in lines] == [["fedbandit", x] for x in ("run", "compare", "plot", "report")]
    for line in lines:
        done = finished(["sh", "-c", f'PATH="{BIN}:$PATH" {line}'], tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout, line
    assert (tmp_path / "results/paper/regret.png").exists()
    assert (tmp_path / "results/paper/report.html").exists()


def test_the_tables_name_every_environment_and_policies_that_exist() -> None:
    tables = re.findall(r"^\|(.*)\|$", section("What is inside"), flags=re.MULTILINE)
    ids = [found for line in tables for found in re.findall(r"`(fedbandit/[^`]+)`", line)]
    ours = [id for id in fb.environment_ids() if id.startswith("fedbandit/")]  # not those that other tests register
    assert sorted(ids) == sorted(ours)
    names = [found for line in tables for found in re.findall(r"`([^`/]+)`", line)]
    assert len(names) > 20
    assert set(names) <= set(fb.policy_names())


def test_links_lead_to_files_of_the_repository() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(links) > 15
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_it_is_one_page_in_plain_english() -> None:
    """Flesch's reading ease: 60 to 70 is plain English, and numbers below 50 are difficult."""
    assert len(README.splitlines()) <= 150
    assert reading_ease(prose(README)) >= 60
    assert reading_ease("The cat sat on the mat.") > 100 > 0 > reading_ease("Institutional internationalisation.")


def prose(text: str) -> str:
    """The words that are read: no code, tables, headings and addresses."""
    for left_out in (r"^```.*?^```", r"^\|.*?$", r"^#.*?$", r"!\[[^\]]*\]\([^)]*\)"):
        text = re.sub(left_out, "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # the words of a link
    return re.sub(r"^- ", "\n", re.sub(r"`[^`]*`", "name", text), flags=re.MULTILINE)


def reading_ease(text: str) -> float:
    """206.835 - 1.015 words per sentence - 84.6 syllables per word (Flesch 1948); groups of vowels are syllables."""
    parts = re.split(r"[.!?:;](?:\s|$)|\n\s*\n", text)
    sentences = [words for part in parts if (words := re.findall(r"[A-Za-z][A-Za-z'-]*", part))]
    words = [word for sentence in sentences for word in sentence]
    return 206.835 - 1.015 * len(words) / len(sentences) - 84.6 * sum(map(syllables, words)) / len(words)


def syllables(word: str) -> int:
    """The groups of vowels, without an e that is silent at the end."""
    groups = len(re.findall(r"[aeiouy]+", word.lower()))
    silent = re.search(r"[^aeiouyl]ed?$", word.lower()) and not re.search(r"[td]ed$", word.lower())
    return max(groups - bool(silent), 1)
