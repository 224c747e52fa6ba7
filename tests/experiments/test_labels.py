"""Labels that would break a table, a figure or a terminal: they are refused, or shown letter by letter."""

from pathlib import Path

import pytest
from experiment_policies import small

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main, tell_error
from fedbandit_envs.experiments.folder import FolderError
from fedbandit_envs.experiments.settings_files import ExperimentError
from fedbandit_envs.reports.canvas import fitting_label

UNPRINTABLE = {
    "an escape": "\x1b[31mred\x1b[0m",
    "the title of the terminal": "\x1b]0;own\x07",
    "an escape in one character": "a\x9b31mb",
    "a return": "a\rb",
    "zero": "a\0b",
    "half a letter": "a\ud800b",
    "another direction": "a\u202eb",
    "delete": "a\x7fb",
    "a line end of Unicode": "a\u2028b",
}
ODD = [
    "a | b",
    "a\nb",
    "_hidden",
    "$\\frac{a$",
    "$" + "{" * 90 + "x" + "}" * 90 + "$",
    "=1+1",
    "5$",
    " ",
    "\\input{x}",
    "<b>",
]


@pytest.mark.parametrize("what", UNPRINTABLE)
def test_what_can_not_be_printed_is_no_label(what: str) -> None:
    with pytest.raises(ExperimentError, match="label of Uniform: expected characters that can be printed") as caught:
        fb.PolicySpec("Uniform", label=UNPRINTABLE[what])
    assert str(caught.value).isprintable()
    assert str(caught.value).isascii()


def test_a_label_has_room_beside_a_figure() -> None:
    with pytest.raises(ExperimentError, match="expected at most 200 characters, got 201"):
        fb.PolicySpec("Uniform", label="x" * 201)
    made = fb.PolicySpec("my_module:Mine", {"text": "\n" + "x" * 1000})
    assert len(made.label) == 200
    assert made.label.isprintable()


@pytest.mark.parametrize("what", UNPRINTABLE)
@pytest.mark.parametrize("where", ["environment", "network", "an argument", "a name", "a parameter", "a policy"])
def test_no_other_text_of_an_experiment_can_hold_what_can_not_be_printed(what: str, where: str) -> None:
    """Each of them is shown in some table, title or page."""
    text = UNPRINTABLE[what]
    environment, network, arguments, name = "Synthetic", "", {"num_agents": 3}, "Uniform"
    parameters: dict[str, object] = {}
    if where == "environment":
        environment = text
    elif where == "network":
        network = text
    elif where == "a policy":
        name = text
    elif where == "a parameter":
        parameters = {"kind": [1, text]}
    else:
        arguments = {"num_agents": 3} | ({"error": text} if where == "an argument" else {text: 1})  # type: ignore[assignment]
    with pytest.raises(ExperimentError, match="expected characters that can be printed") as caught:
        fb.Experiment(environment, [{"name": name, "parameters": parameters}], arguments, network=network)
    assert str(caught.value).isprintable()


def test_odd_labels_are_in_every_table_and_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = [fb.PolicySpec("Uniform", label=label) for label in ODD]
    result = fb.run(small(trials=2, policies=policies), tmp_path, "serial")
    for draw in (fb.plotting.regret, fb.plotting.communication):
        legends = draw(result).legends or draw(result).axes[0].get_children()
        shown = [text.get_text() for legend in legends if hasattr(legend, "get_texts") for text in legend.get_texts()]
        assert {fitting_label(label) for label in ODD} <= set(shown), draw.__name__
    assert main(["plot", str(tmp_path), "--figure", "regret"]) == 0
    for form in ("text", "markdown", "csv", "latex", "json"):
        assert main(["compare", str(tmp_path), "--format", form]) == 0
        assert "\x1b" not in capsys.readouterr().out


def test_no_escape_of_a_file_or_an_error_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fb.run(small(trials=1, policies=["Uniform"]), tmp_path, "serial")
    (run,) = tmp_path.glob("runs/*")
    (run / "trial\x1b[2J.npz").touch()
    assert main(["compare", str(tmp_path)]) == 1
    old = tmp_path / "runs" / "old\x1b[2J"
    (run / "trial\x1b[2J.npz").unlink()
    old.mkdir()
    (old / "trial_000000.npz").touch()
    assert main(["compare", str(tmp_path)]) == 0
    assert tell_error(FolderError("gone\x1b[2J")) == 1
    written = capsys.readouterr()
    assert "\\x1b[2J" in written.err
    assert "\x1b" not in written.out + written.err
