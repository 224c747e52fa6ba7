"""The report in a real browser: it complains about nothing, asks for nothing, and its switches do what they say."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import CHROMIUM, Browser
from experiment_policies import register

import fedbandit_envs as fb
from fedbandit_envs.arrays import FloatArray
from fedbandit_envs.reports.canvas import fitting_label

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path"),
]
HOSTILE = "<script>document.title = 'broken'</script><img src=x onerror=alert(1)>"
LABELS = ["Fed-PECD", HOSTILE, "_hidden", "Oracle"]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    register()
    policies = ["Fed-PECD", fb.PolicySpec("Test-One-Arm", label=HOSTILE), fb.PolicySpec("Uniform", label="_hidden")]
    arguments = {"num_agents": 6, "num_arms": 4, "max_cycles": 512}
    experiment = fb.Experiment("fedbandit/Synthetic-v0", [*policies, "Oracle"], arguments, trials=3, audited=1)
    return fb.report(fb.run(experiment, executor="serial"), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(one_browser: Browser, file: Path) -> Browser:
    one_browser.look()
    one_browser.errors.clear()
    one_browser.requests.clear()
    one_browser.open(file)
    return one_browser


def shown(browser: Browser, selector: str) -> list[str]:
    """The texts of the elements that can be seen."""
    # The first condition finds what is not laid out, also in SVG, the second what a folded element hides.
    found: list[str] = browser.run(
        f"[...document.querySelectorAll({selector!r})]"
        ".filter(e => e.getClientRects().length && e.checkVisibility()).map(e => e.textContent)"
    )
    return found


def key(browser: Browser, label: str) -> str:
    boxes: list[Any] = browser.run(
        "[...document.querySelectorAll('input[name=policy]')].map(e => [e.value, e.parentElement.textContent])"
    )
    return str(next(value for value, text in boxes if text == label))


def test_the_page_complains_about_nothing_and_asks_for_nothing(browser: Browser, file: Path) -> None:
    assert browser.requests == [file.resolve().as_uri()]
    assert browser.errors == []
    assert len(shown(browser, "figure")) == 5  # one of each kind and scale


def test_the_browser_sees_errors_and_requests(browser: Browser, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<script>console.error('no'); missing();</script><img src='http://127.0.0.1:9/x.png'>")
    browser.open(bad)
    assert len(browser.errors) >= 2
    assert "http://127.0.0.1:9/x.png" in browser.requests


def test_labels_with_tags_stay_text(browser: Browser) -> None:
    assert browser.run("document.title").startswith("Synthetic-v0")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.querySelectorAll('script').length") == 3
    assert HOSTILE in shown(browser, "#switches label")
    assert HOSTILE in shown(browser, "#summary td")
    assert fitting_label(HOSTILE) in shown(browser, "#regret svg text")  # figures leave out the end of long labels


def test_a_policy_is_switched_off_in_all_plots_at_once(browser: Browser) -> None:
    for label in LABELS:
        name = key(browser, label)
        of_it = f'.plot [data-policy="{name}"]:not(.legend *)'
        before = len(shown(browser, of_it))
        assert before >= 5
        browser.run(f"document.querySelector('input[value=\"{name}\"]').click()")
        assert shown(browser, of_it) == []
        assert browser.run(f"document.querySelectorAll('tr.off[data-policy=\"{name}\"]').length") >= 1
        browser.run(f"document.querySelector('input[value=\"{name}\"]').click()")
        assert len(shown(browser, of_it)) == before
    browser.run("document.getElementById('none').click()")
    assert shown(browser, ".plot .series:not(.legend *)") == []
    browser.run("document.getElementById('all').click()")
    assert len(shown(browser, ".plot .series:not(.legend *)")) > 20


def test_a_click_on_a_legend_switches_too(browser: Browser) -> None:
    name = key(browser, "Oracle")
    entry = f'.legend [data-policy="{name}"]'
    browser.run(f"document.querySelector('{entry}').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert browser.run(f"document.querySelector('input[value=\"{name}\"]').checked") is False
    assert shown(browser, f'.plot [data-policy="{name}"]:not(.legend *)') == []


def test_scale_and_kind_choose_one_plot(browser: Browser) -> None:
    before = shown(browser, "#regret figcaption")
    assert before == ["against the best arm for the true context; linear axes"]
    browser.run("document.querySelector('input[value=logarithmic]').click()")
    assert shown(browser, "#regret figcaption") == ["against the best arm for the true context; logarithmic axes"]
    browser.run(
        "(() => { const s = document.querySelector('select'); s.value = 'paper_regret';"
        "s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    (caption,) = shown(browser, "#regret figcaption")
    assert "Eq. 2" in caption
    assert caption.endswith("logarithmic axes")
    regrets, others = shown(browser, "#summary caption")
    assert "Eq. 2" in regrets
    assert "communication" in others


def test_tables_are_sorted_by_number_and_by_name(browser: Browser) -> None:
    column = "[...document.querySelectorAll('#summary [data-kind=regret] tbody tr')].map(r => r.cells[{0}].{1})"
    head = "[...document.querySelectorAll('#summary [data-kind=regret] th button')].find(b => b.textContent == {0!r})"
    browser.run(head.format("regret") + ".click()")
    values = [float(value) for value in browser.run(column.format(1, "dataset.value"))]
    assert values == sorted(values)
    assert len(set(values)) > 2
    browser.run(head.format("regret") + ".click()")
    values = [float(value) for value in browser.run(column.format(1, "dataset.value"))]
    assert values == sorted(values, reverse=True)
    browser.run(head.format("policy") + ".click()")
    assert browser.run(column.format(0, "textContent"))[-1] == "Oracle"


def place_in_plot(browser: Browser, across: float, up: float, section: str = "regret") -> tuple[float, float]:
    """A place of the window inside the shown plot of a section, by its shares of the axes."""
    x, y = browser.run(
        f"(() => {{ const g = [...document.querySelectorAll('#{section} [data-box]')]"
        ".find(e => e.getClientRects().length);"
        "g.closest('figure').scrollIntoView();"
        "const [l, t, w, h] = g.dataset.box.split(' ').map(Number);"
        f"const p = new DOMPoint(l + w * {across}, t + h * (1 - {up}));"
        "const q = p.matrixTransform(g.ownerSVGElement.getScreenCTM()); return [q.x, q.y]; })()"
    )
    return float(x), float(y)


def test_values_are_shown_under_the_pointer(browser: Browser) -> None:
    browser.mouse("mouseMoved", *place_in_plot(browser, 0.5, 0.5))
    lines = browser.run("[...document.querySelectorAll('#values div')].map(e => e.textContent)")
    step = int(lines[0].removeprefix("step ").replace(",", ""))
    assert 240 < step < 272  # the middle of 512, up to the margins of the axes
    assert any(line.startswith(f"{HOSTILE}: ") for line in lines)
    assert "Oracle: 0 [0, 0]" in lines
    assert len(lines) == 1 + len(LABELS)
    browser.mouse("mouseMoved", 1, 1)
    assert browser.run("document.getElementById('values').hidden") is True


def numbers(text: str) -> FloatArray:
    return np.array(re.findall(r"-?[\d.]+", text), dtype=float)


def test_a_box_zooms_in_and_a_double_click_out(browser: Browser) -> None:
    figure = "[...document.querySelectorAll('#regret figure')].find(e => e.getClientRects().length)"
    points = f"[...{figure}.querySelectorAll('.series path')].map(e => e.getAttribute('d')).join(' ')"
    before = numbers(browser.run(points))
    (left, top), (right, bottom) = place_in_plot(browser, 0.25, 0.75), place_in_plot(browser, 0.5, 0.25)
    browser.mouse("mouseMoved", left, top)
    browser.mouse("mousePressed", left, top, clicks=1)
    browser.mouse("mouseMoved", right, bottom, clicks=1)
    browser.mouse("mouseReleased", right, bottom, clicks=1)
    ticks = browser.run(f"[...{figure}.querySelectorAll('.ticks:not(:last-child) text')].map(e => e.textContent)")
    steps = [int(text.replace(",", "")) for text in ticks]
    assert len(steps) >= 3
    assert all(100 <= step <= 260 for step in steps)
    assert np.abs(numbers(browser.run(points)) - before).max() > 50
    browser.mouse("mouseMoved", *place_in_plot(browser, 0.5, 0.5))
    told = browser.run("document.querySelector('#values div').textContent")
    assert 170 < int(told.removeprefix("step ")) < 210  # three eighths of 512
    x, y = place_in_plot(browser, 0.5, 0.5)
    for clicks in (1, 2):
        browser.mouse("mousePressed", x, y, clicks=clicks)
        browser.mouse("mouseReleased", x, y, clicks=clicks)
    assert browser.run(f"{figure}.querySelectorAll('.ticks, .back').length") == 0
    np.testing.assert_allclose(numbers(browser.run(points)), before, atol=0.011)
    assert browser.errors == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1300, 400])
def test_nothing_is_wider_than_the_window_and_text_stands_out(browser: Browser, dark: bool, width: int) -> None:
    browser.look(width=width, dark=dark)
    assert browser.run("document.documentElement.scrollWidth") <= width
    ground, text, plot = browser.run(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color,"
        "getComputedStyle(document.querySelector('.plot text')).fill]"
    )
    assert brightness(ground) < 60 if dark else brightness(ground) > 200
    assert abs(brightness(ground) - brightness(text)) > 150
    assert abs(brightness(ground) - brightness(plot)) > 150


def test_the_summary_fits_the_page(browser: Browser) -> None:
    browser.look(width=900)
    hidden = "[...document.querySelectorAll('#summary .wide')].map(e => e.scrollWidth - e.clientWidth)"
    assert max(browser.run(hidden)) <= 0


def brightness(colour: str) -> float:
    """The mean of red, green and blue in "rgb(1, 2, 3)"."""
    parts = [float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    return sum(parts) / 3


def test_all_plots_show_without_scripts(browser: Browser, file: Path) -> None:
    browser.look(scripts=False)
    browser.open(file)
    browser.look()
    figures = shown(browser, "figure")
    assert len(figures) == 18  # regret: 5 kinds on 2 scales, differences: 5 kinds, and three more
    assert shown(browser, "#switches") == []


def test_a_sweep_has_values_and_switches_in_every_plot(browser: Browser, tmp_path: Path) -> None:
    experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Uniform", "Oracle"], {"max_cycles": 64}, trials=2)
    for agents in (2, 4):
        fb.run(experiment.with_argument("num_agents", agents), tmp_path / f"num_agents={agents}", "serial")
    browser.open(fb.report(tmp_path))
    assert len(shown(browser, "figure")) == 1  # the others are folded
    browser.run("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert len(shown(browser, "figure")) == 3
    browser.mouse("mouseMoved", *place_in_plot(browser, 0.9, 0.5, "regret1"))
    lines = browser.run("[...document.querySelectorAll('#values div')].map(e => e.textContent)")
    assert [line.partition(":")[0] for line in lines[1:]] == ["Uniform", "Oracle"]
    name = key(browser, "Uniform")
    assert len(shown(browser, f'.plot [data-policy="{name}"]:not(.legend *)')) >= 6
    browser.run(f"document.querySelector('input[value=\"{name}\"]').click()")
    assert shown(browser, f'.plot [data-policy="{name}"]:not(.legend *)') == []
    browser.mouse("mouseMoved", *place_in_plot(browser, 0.8, 0.5, "regret1"))
    lines = browser.run("[...document.querySelectorAll('#values div')].map(e => e.textContent)")
    assert [line.partition(":")[0] for line in lines[1:]] == ["Oracle"]
    assert browser.errors == []
