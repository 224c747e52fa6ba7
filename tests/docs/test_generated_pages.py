"""The pages that are made from the code: each environment and policy has one, and it says what the shell says."""

import doctest
import re
import sys

import numpy as np
import pytest
from built_site import DOCS, SITE_TESTS

import fedbandit_envs as fb
from fedbandit_envs.cli.main import COMMANDS, main

pytestmark = SITE_TESTS
YARDSTICKS = {"Oracle", "Uniform", "Shared-Oracle", "Shared-Uniform"}
sys.path.insert(0, str(DOCS / "_ext"))

import command_pages  # noqa: E402
import concept_pictures  # noqa: E402
import environment_pages  # noqa: E402
import markdown_text  # noqa: E402
import name_pages  # noqa: E402
import policy_pages  # noqa: E402


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return policy_pages.pages(tmp_path_factory.mktemp("pictures"), DOCS / "policies" / "ideas")


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return environment_pages.pages(tmp_path_factory.mktemp("pictures"))


def told_by_the_shell(name: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The words of `fedbandit list NAME` below its title, without the examples."""
    assert main(["list", name]) == 0
    paragraphs = capsys.readouterr().out.split("\n\n")[1:]
    words = [paragraph for paragraph in paragraphs if not paragraph.startswith(">>>")]
    return [line.strip() for paragraph in words for line in paragraph.splitlines()]


def assert_told(page: str, lines: list[str]) -> None:
    for line in lines:
        name, equals, default = line.partition("=")
        if line in ("parameters", "no parameters"):
            continue
        if equals and name.isidentifier():
            assert f"| `{name}` | `{default}` |" in page
        else:
            assert markdown_text.words(line) in page


def test_every_policy_has_a_page_that_says_what_the_shell_says(
    policies: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in fb.policy_names():
        assert_told(policies[f"policies/{name}"], told_by_the_shell(name, capsys))
        assert f"]({name}.md)" in policies["policies/index"]


def test_every_environment_has_a_page_that_says_what_the_shell_says(
    environments: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for id in fb.environment_ids():
        page = environments[f"environments/{environment_pages.slug(id)}"]
        assert_told(page, told_by_the_shell(id, capsys))


def test_every_policy_says_what_is_proved_or_claims_what_can_be_checked(policies: dict[str, str]) -> None:
    for name in sorted(set(fb.policy_names()) - YARDSTICKS):
        page = policies[f"policies/{name}"]
        assert "checks a run against theory" in page or re.search(
            r"\b(proves?|proved|proof|promise[sd]?|theorems?|no guarantee)\b", docstring_of(name)
        ), name


def docstring_of(name: str) -> str:
    return str(type(fb.make_policy(name)).__doc__)


def test_every_policy_but_the_yardsticks_has_steps(policies: dict[str, str]) -> None:
    without = {name for name in fb.policy_names() if "\n## The steps\n" not in policies[f"policies/{name}"]}
    assert without == YARDSTICKS


def test_every_policy_has_a_kind(policies: dict[str, str]) -> None:
    listed = policies["policies/index"]
    assert "## Others" not in listed, "name the new policy in KINDS of docs/_ext/policy_kinds.py"
    assert listed.index("Fed-PECD.md") < listed.index("UCB1.md")


def test_examples_of_generated_pages_run_when_pasted(policies: dict[str, str], environments: dict[str, str]) -> None:
    runner, parser = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS), doctest.DocTestParser()
    for name, page in {**policies, **environments}.items():
        for number, block in enumerate(re.findall(r"^```pycon\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)):
            runner.run(parser.get_doctest(block, {}, f"{name} {number}", name, 0))
    assert runner.tries > 100
    assert runner.failures == 0


def test_snippets_of_environments_run_when_pasted(
    environments: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    for id in fb.environment_ids():
        (snippet,) = re.findall(
            r"^```python\n(.*?)^```",
            environments[f"environments/{environment_pages.slug(id)}"],
            flags=re.DOTALL | re.MULTILINE,
        )
        exec(compile(snippet, id, "exec"), {"__name__": "__main__"})
        assert float(capsys.readouterr().out) >= 0


def test_the_words_below_a_figure_tell_where_its_curves_end(policies: dict[str, str]) -> None:
    name, env = "Local-UCB", fb.make("fedbandit/Synthetic-v0", num_agents=20, error="classical", max_cycles=8192)
    own, uniform = (fb.play(env, fb.make_policy(one), seed=0).mean_regret()[-1] for one in (name, "Uniform"))
    told = f"At its end regret is {own:.0f}, against {float(f'{uniform:.3g}'):,.0f} of Uniform."
    assert told in policies[f"policies/{name}"]


def test_a_page_tells_what_is_sent_and_what_is_not(policies: dict[str, str]) -> None:
    assert "to the server" in policies["policies/Fed-PECD"]
    assert "Nothing. Its agents never communicate" in policies["policies/Local-UCB"]


def test_the_command_line_has_every_command_with_its_options() -> None:
    (page,) = command_pages.pages().values()
    for name in COMMANDS:
        assert f"## fedbandit {name}\n" in page
    assert "`--dry-run`\n: " in page


def test_every_public_name_has_its_place() -> None:
    text = "".join(name_pages.pages().values())
    for name in fb.__all__:
        thing = getattr(fb, name)
        if isinstance(thing, type) or type(thing).__name__ == "function":
            assert f"fedbandit_envs.{name}\n" in text, name
    assert "fedbandit_envs.testing.check_policy" in text


def test_the_picture_of_regrets_shows_what_its_caption_says() -> None:
    figure = concept_pictures.regrets()
    (axes,) = figure.axes
    lines = {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}
    assert set(fb.REGRETS) <= set(lines)
    half = len(lines["regret"]) // 2
    late = {kind: lines[kind][-1] - lines[kind][half] for kind in fb.REGRETS}
    assert lines["distribution_regret"][-1] < 0.2 * lines["regret"][-1]
    assert max(late["distribution_regret"], abs(late["paper_regret"])) < 0.2 * late["regret"]
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())


def test_ideas_belong_to_policies_that_exist() -> None:
    found = {file.stem for file in (DOCS / "policies" / "ideas").glob("*.md")}
    assert found <= set(fb.policy_names())
    assert "Fed-PECD" in found
