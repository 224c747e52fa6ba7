"""`fedbandit list NAME`, and the comments beside fields from which it explains parameters."""

from dataclasses import dataclass, field

import pytest

import fedbandit_envs as fb
from fedbandit_envs.cli.field_comments import field_comments
from fedbandit_envs.cli.main import main


@dataclass
class Base:
    """A base class."""

    same_line: int = 1  # beside the field
    #: Above the field,
    #: in two lines.
    above: str = "# no comment"
    bare: float = 0.5
    kept: int = 2  #: from the base class


@dataclass
class Derived(Base):
    """A class that has one field more."""

    kept: int = 3
    several_lines: list[int] = field(
        default_factory=list,
    )  # after the last line
    marked: "Missing" = 4  # noqa: F821


def test_comments_beside_and_above_fields_are_read_from_all_classes() -> None:
    assert field_comments(Derived) == {
        "same_line": "beside the field",
        "above": "Above the field, in two lines.",
        "kept": "from the base class",
        "several_lines": "after the last line",
    }


def test_a_class_without_source_has_no_comments() -> None:
    namespace: dict[str, type] = {}
    exec("class Typed:\n    field: int = 1  # not in a file\n", namespace)
    assert field_comments(namespace["Typed"]) == {}
    assert field_comments(int) == {}


def test_list_explains_a_policy_with_the_parameters_of_its_base_class(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "Fed-PECD"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Fed-PECD (contexts may stay hidden; talks to a server)"
    delta = lines.index("  delta=0.1")
    explanation = field_comments(type(fb.make_policy("Fed-PECD")))["delta"]
    assert "probability" in explanation
    assert lines[delta + 1] == f"      {explanation}"


@pytest.mark.parametrize("name", ["Synthetic", "fedbandit/Synthetic-v0"])
def test_list_explains_an_environment_by_name_or_id(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "fedbandit/Synthetic-v0"
    assert lines[2] == (fb.Synthetic.__doc__ or "").splitlines()[0]
    gap = lines.index("  gap=(0.2, 0.4)")
    assert lines[gap + 1] == f"      {field_comments(fb.Synthetic)['gap']}"
    assert lines[-2:] == ["  max_cycles=8192", "      the number of steps T"]


def test_list_refuses_an_unknown_name_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "Fed-PEDC"]) == 2
    assert "did you mean 'Fed-PECD'" in capsys.readouterr().err


def test_list_says_what_a_policy_needs_not_what_it_ignores_and_whom_it_talks_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "policies"]) == 0
    text = capsys.readouterr().out
    for line in (
        "  Local-UCB (contexts may stay hidden; talks to nobody)",
        "  Local-Thompson (contexts may stay hidden; talks to nobody)",
        "  Fed-PE (must be shown the contexts; talks to a server)",
        "  DisLinUCB (contexts may stay hidden; talks to a server)",
        "  coop-UCB2 (contexts may stay hidden; talks to peers)",
        "  Oracle (must be shown the true means; talks to nobody)",
    ):
        assert line in text.splitlines()


def test_a_policy_without_a_docstring_is_not_described_by_its_signature(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from fedbandit_envs.protocol import registry

    @dataclass(frozen=True)
    class Silent(fb.Policy):
        rate: float = 0.5

        def agents(self, view: fb.View) -> fb.AgentSide:
            raise NotImplementedError

    monkeypatch.setitem(registry._registered, "Silent", Silent)
    for arguments in (["list"], ["list", "Silent"]):
        assert main(arguments) == 0
        text = capsys.readouterr().out
        assert "Silent(rate" not in text
        assert "(no description)" in text
        assert "rate=0.5" in text
