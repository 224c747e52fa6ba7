"""The report as a file: what is in it, that it stands alone, and that equal results give equal pages."""

import dataclasses
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_policies import register, small

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.experiments.sweeps import sweep
from fedbandit_envs.reports.sections import advice_lines
from fedbandit_envs.reports.svg import inline_svg

HOSTILE = "<script>alert('&')</script>"


class Page(HTMLParser):
    """The elements of a page: their names, their attributes, and all text outside of scripts and styles."""

    def __init__(self, text: str):
        super().__init__()
        self.names: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self._skipped = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        self._skipped = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._skipped = False

    def handle_data(self, data: str) -> None:
        self.text += data * (not self._skipped)


@pytest.fixture(scope="module")
def result() -> fb.Result:
    register()
    policies = ["Fed-PECD", "Fed-PE", fb.PolicySpec("Test-One-Arm", label=HOSTILE), "Oracle"]
    arguments = {"num_agents": 6, "num_arms": 4, "max_cycles": 512}
    experiment = fb.Experiment("fedbandit/Synthetic-v0", policies, arguments, trials=3, audited=1)
    return fb.run(experiment, executor="serial")


@pytest.fixture(scope="module")
def text(result: fb.Result, tmp_path_factory: pytest.TempPathFactory) -> str:
    return fb.report(result, tmp_path_factory.mktemp("report") / "a" / "report.html").read_text(encoding="utf-8")


def test_the_page_has_every_section(text: str) -> None:
    found = re.findall(r'<section id="([\w-]+)"', text)
    assert found == ["summary", "regret", "differences", "communication", "agents", "active", "audits", "settings"]
    assert text.count('<p class="how">') == len(found)
    assert "<summary>All pairs</summary>" not in text  # only a long table is folded


def test_an_audit_says_why_a_claim_is_not_made(text: str) -> None:
    section = Page(text[text.index('<section id="audits"') : text.index('<section id="settings"')]).text
    assert "Fed-PECD: a claim is not made where, for example, contexts are hidden and fixed" in section


def test_the_headline_says_who_lost_least_and_what_held(text: str, result: fb.Result) -> None:
    header = Page(text[text.index("<header>") : text.index("</header>")]).text
    rivals = sorted(["Fed-PECD", HOSTILE], key=lambda label: result.final(label).mean())
    assert re.search(f"Least regret per agent at the end: {re.escape(rivals[0])} [0-9]", header)
    assert f"; then {rivals[1]} " in header
    assert "All 3 trials are finished." in header
    assert "pairs of policies differ" in header
    assert "claims of theory held" in header


def test_policies_that_are_shown_more_are_yardsticks_and_no_rivals(text: str) -> None:
    header = Page(text[text.index("<header>") : text.index("</header>")]).text
    least, others = header[header.index("Least regret") :].split("Yardsticks, which are shown more than the others: ")
    assert "Oracle" not in least
    assert "Fed-PE " not in least
    assert re.match(r"Fed-PE [\d.]+ \[.*\], shown the contexts; Oracle 0 \[0, 0\], shown the true means\.", others)


def test_the_page_gives_advice_on_runs_that_are_too_short(text: str) -> None:
    header = Page(text[text.index("<header>") : text.index("</header>")]).text
    assert "Fed-PECD: at T = 512 only 0% of the agents have one arm left" in header


@pytest.mark.usefixtures("plain_plots")
@pytest.mark.parametrize(
    ("name", "parameters"), [("no_such_module:Policy", {}), ("Not-Installed", {}), ("Fed-PECD", {"of_later": 1})]
)
def test_a_result_of_policies_that_are_not_here_has_a_report_without_advice(
    result: fb.Result, tmp_path: Path, name: str, parameters: dict[str, Any]
) -> None:
    assert advice_lines(result)
    stranger = fb.PolicySpec(name, parameters, label="Fed-PECD")
    policies = [stranger, *result.experiment.policies[3:]]
    elsewhere = fb.Result(dataclasses.replace(result.experiment, policies=policies), result.records)
    assert advice_lines(elsewhere) == []
    assert fb.report(elsewhere, tmp_path / "report.html").is_file()


@pytest.mark.usefixtures("plain_plots")
def test_unfinished_trials_are_told(tmp_path: Path) -> None:
    part = fb.run(small(trials=5), executor="serial", only=[0, 3])
    page = fb.report(part, tmp_path / "part.html").read_text()
    assert "2 of 5 trials are finished." in page


def test_labels_stay_text(text: str) -> None:
    page = Page(text)
    assert page.names["script"] == 3  # the values, and the page's own two scripts
    assert page.text.count(HOSTILE) > 10
    assert "alert('&')</script>" not in text


def test_the_page_needs_nothing_from_outside(text: str) -> None:
    page = Page(text)
    for name, value in page.attributes:
        if name in ("src", "href", "xlink:href", "action", "data"):
            assert value.startswith("#")
    assert not {"img", "link", "iframe", "object", "base"} & set(page.names)
    assert "url(http" not in text
    assert "@import" not in text
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


def test_names_are_used_once_and_references_are_there(text: str) -> None:
    names = Counter(value for name, value in Page(text).attributes if name == "id")
    assert max(names.values()) == 1
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text))
    assert len(used) > 20
    assert {first or second for first, second in used} <= set(names)


@pytest.mark.slow
def test_equal_results_give_equal_pages_whatever_matplotlib_is_set_to(
    result: fb.Result, text: str, tmp_path: Path
) -> None:
    import matplotlib

    with matplotlib.rc_context({"lines.linewidth": 9.0, "figure.facecolor": "red", "font.size": 20.0}):
        again = fb.report(result, tmp_path / "again.html").read_text(encoding="utf-8")
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
    assert again == text


def test_text_in_plots_is_text(text: str) -> None:
    svg = text[text.index("<svg") : text.index("</svg>")]
    assert "Fed-PECD</text>" in svg
    assert "<style" not in svg
    assert "<metadata" not in svg


def test_thinned_curves_stay_where_they_were() -> None:
    figure, axes = fb.plotting.blank()
    x = np.linspace(0, 1, 1000)
    axes.plot(x, np.sin(9 * x), gid="series-curve-0")
    svg = inline_svg(figure, "one", [], "a sine")
    (path,) = re.findall(r'id="one-series-curve-0"><path d="M ([^"]*)"', svg)
    kept = np.array(path.split(), dtype=float).reshape(-1, 2)
    assert 20 < len(kept) < 200
    drawn = axes.transData.transform(np.column_stack([x, np.sin(9 * x)])) * 72 / figure.dpi
    height = 72 * figure.get_figheight()
    shown = height - np.interp(drawn[:, 0], kept[:, 0], kept[:, 1])
    steepest = 9 * np.hypot(*(axes.bbox.size)) / axes.bbox.width  # a distance across the line is longer upwards
    assert np.abs(shown - drawn[:, 1]).max() < 0.2 * steepest
    flat = np.abs(np.cos(9 * x)) < 0.05
    assert np.abs(shown - drawn[:, 1])[flat].max() < 0.1


@pytest.mark.slow
def test_ten_policies_take_less_than_a_megabyte(tmp_path: Path) -> None:
    names = ["Uniform", "Oracle", "Local-UCB", "Local-Thompson", "DisLinUCB"]
    policies = [fb.PolicySpec(name, label=f"{name}, number {turn}") for turn in (1, 2) for name in names]
    arguments = {"num_agents": 30, "num_arms": 5, "max_cycles": 2**10}
    found = fb.run(fb.Experiment("fedbandit/Synthetic-v0", policies, arguments, trials=5), executor="serial")
    file = fb.report(found, tmp_path / "ten.html")
    assert file.stat().st_size < 1_000_000
    assert "<details><summary>All pairs</summary>" in file.read_text()


@pytest.mark.usefixtures("plain_plots")
def test_the_command_writes_into_the_folder_and_prints_the_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fb.run(small(trials=2), tmp_path / "mine", "serial")
    capsys.readouterr()
    assert main(["report", str(tmp_path / "mine")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine' / 'report.html'}\n"
    assert main(["report", str(tmp_path / "mine"), "--out", str(tmp_path / "other.html")]) == 0
    assert (tmp_path / "other.html").read_bytes() == (tmp_path / "mine" / "report.html").read_bytes()
    assert main(["report", str(tmp_path / "nothing")]) == 1
    assert "got no such folder" in capsys.readouterr().err


def test_a_folder_is_no_file_to_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fb.run(small(trials=2), tmp_path / "mine", "serial")
    (tmp_path / "pages").mkdir()
    assert main(["report", str(tmp_path / "mine"), "--out", str(tmp_path / "pages")]) != 0
    message = capsys.readouterr().err
    assert f"{tmp_path / 'pages'}: expected the file to write, got a folder" in message
    assert f"write {tmp_path / 'pages' / 'report.html'}" in message
    assert list((tmp_path / "pages").iterdir()) == []


def test_a_result_without_a_folder_needs_a_path(result: fb.Result) -> None:
    with pytest.raises(ValueError, match="path: expected the file to write"):
        fb.report(result)


@pytest.mark.usefixtures("plain_plots")
def test_the_page_says_what_computed_the_runs(tmp_path: Path) -> None:
    fb.run(small(trials=2), tmp_path, "serial")
    (found,) = fb.Result.load(tmp_path).provenance
    text = " ".join(fb.report(tmp_path).read_text().split())
    assert f"Runs were computed with {', '.join(f'{name} {value}' for name, value in found.items())}." in text


def test_a_sweep_is_drawn_against_its_values(tmp_path: Path) -> None:
    sweep(small(trials=2), {"num_agents": [2, 10]}, tmp_path, "serial")
    text = fb.report(tmp_path).read_text()
    assert "final regret against num_agents; linear axis" in text
    assert "num_agents=10: Least regret per agent at the end:" in text
    assert f"<title>{tmp_path.name}: 2 results</title>" in text
    assert re.findall(r'<details class="result"><summary>([^<]*)', text) == ["num_agents=2", "num_agents=10"]
    svg = text[text.index("<svg") : text.index("</svg>")]
    assert svg.index(">2</text>") < svg.index(">10</text>")


def test_a_grid_has_a_plot_for_each_value_of_the_other_parameters(tmp_path: Path) -> None:
    for agents in (2, 4):
        for dropout in (0.0, 0.5):
            experiment = small(trials=2, dropout=dropout).with_argument("num_agents", agents)
            fb.run(experiment, tmp_path / f"num_agents={agents},dropout={dropout}", "serial")
    text = fb.report(tmp_path).read_text()
    for dropout in (0.0, 0.5):
        assert f"final regret against num_agents, at dropout = {dropout}; linear axis" in text
        assert f">dropout = {dropout}</text>" in text  # the title of the plot
    assert text.count("final regret against num_agents") == 8  # two plots on two scales, each with words and caption


def test_several_results_and_their_verdicts_share_a_page(tmp_path: Path) -> None:
    for name in ("synthetic-M4", "movielens-M4"):
        fb.run(small(trials=2), tmp_path / "trials" / name, "serial")
    (tmp_path / "verdicts.json").write_text(
        '[{"claim": "exact <b>below</b> hidden", "measured": 1.5, "low": NaN, "verdict": "holds"},'
        ' {"claim": "falls", "measured": 0.1, "low": 0.0, "verdict": "fails"}]'
    )
    text = fb.report(tmp_path).read_text()
    assert "2 statements of the paper: 1 holds, 1 fails, 0 undecided, 0 not claimed." in text
    assert text.index('id="verdicts"') < text.index('id="settings-table"') < text.index('<details class="result">')
    assert re.findall(r'<details class="result"><summary>([^<]*)', text) == ["movielens-M4", "synthetic-M4"]
    assert "<b>below" not in text
    assert max(Counter(re.findall(r'\bid="([^"]*)"', text)).values()) == 1


def test_one_trial_and_one_policy_have_a_report_too(tmp_path: Path) -> None:
    found = fb.run(small(trials=1, policies=["Oracle"]), executor="serial")
    text = fb.report(found, tmp_path / "one.html").read_text()
    assert "All 1 trials" not in text
    assert 'id="differences"' not in text


def test_a_notebook_shows_a_table_of_a_result(result: fb.Result) -> None:
    shown = Page(result._repr_html_())
    assert shown.names["tr"] == 1 + len(result.labels)
    assert shown.names["script"] == 0
    assert HOSTILE in shown.text
    assert "3 of 3 trials" in shown.text


def test_a_printed_result_has_the_same_table(result: fb.Result) -> None:
    about, names, *lines = str(result).splitlines()
    assert about == repr(result)
    assert names.split()[:4] == ["policy", "regret", "regret_low", "regret_high"]
    assert [line.partition("  ")[0] for line in lines[: len(result.labels)]] == result.labels
    assert lines[len(result.labels)] == "low and high: Student's 95 % interval of the mean regret"
    assert lines[len(result.labels) + 1 :] == result.notes
