"""The files that people look for in a repository agree with each other and with what CI runs."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())


def commands_of_nox() -> list[str]:
    """The commands of the noxfile, without what stands behind a star."""
    calls = [node for node in ast.walk(ast.parse((ROOT / "noxfile.py").read_text())) if isinstance(node, ast.Call)]
    runs = [call.args for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "run"]
    return [" ".join(word.value for word in words if isinstance(word, ast.Constant)) for words in runs]


def test_the_citation_has_the_version_of_the_package_and_a_year() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    versions = re.findall(r"^ *version: (.+)$", citation, flags=re.MULTILINE)
    assert versions == [PROJECT["project"]["version"]] * 2
    preferred = citation.partition("preferred-citation:")[2].partition("references:")[0]
    assert re.search(r"^  year: 20\d\d$", preferred, flags=re.MULTILINE)


def test_dependency_groups_are_made_of_extras_that_exist() -> None:
    groups, extras = PROJECT["dependency-groups"], PROJECT["project"]["optional-dependencies"]
    assert set(groups) == {"test", "docs", "dev"}
    for members in groups.values():
        for member in members:
            if isinstance(member, dict):
                assert member["include-group"] in groups
            elif member.startswith("fedbandit-envs["):
                assert set(re.findall(r"\[(.*)\]", member)[0].split(",")) <= set(extras), member


def test_the_install_page_says_of_each_python_how_it_was_tried() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    listed = [name.rpartition(" ")[2] for name in classifiers if "Python :: 3." in name]
    assert PROJECT["project"]["requires-python"] == f">={listed[0]}"
    page = (ROOT / "docs/start/install.md").read_text()
    for version in listed:
        assert re.search(rf"\b{re.escape(version)}\b", page), version
    assert [name for name in classifiers if "Operating System" in name] == ["Operating System :: POSIX :: Linux"]
    assert re.search(r"Nothing was ever run with Python 3\.14, on Windows or on\s+macOS", page)


def test_nox_runs_what_ci_runs() -> None:
    ci = (ROOT / ".ci/run").read_text().replace(".venv-lint/bin/", "")
    commands = commands_of_nox()
    for command in ("ruff check .", "ruff format --check .", "mypy -p fedbandit_envs -p fedbandit_agents"):
        assert any(one.startswith(command) for one in commands), command
        assert command in ci
    assert "-m sphinx -q -W --keep-going -b html" in (ROOT / "scripts/docs").read_text()
    assert '"-q", "-W", "--keep-going", "-b", "html"' in (ROOT / "noxfile.py").read_text()


def test_the_hooks_run_the_linter_that_is_installed() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"entry: (.+)", hooks) == ["ruff check --force-exclude", "ruff format --force-exclude"]
    assert "repo: local" in hooks
    assert "://" not in hooks  # nothing is fetched
