"""The built site: links lead somewhere, and a browser without a network opens every page."""

import html
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from built_site import DOCS, SITE, SITE_TESTS
from chromium import CHROMIUM, Browser
from matplotlib import image

PAGES = sorted(file for file in SITE.rglob("*.html") if "_static" not in file.parts)
pytestmark = SITE_TESTS
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the path")


class Links(HTMLParser):
    """The places that a page can be linked to, where it links to, and what it loads."""

    def __init__(self, file: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.followed: list[str] = []
        self.loaded: list[str] = []
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.followed.append(given["href"])
        elif tag == "link" and "href" in given:
            self.loaded.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def pages() -> dict[Path, Links]:
    return {file: Links(file) for file in PAGES}


# What a reader of such sites looks for.
NAMED = {
    "start": "install first-run",
    "concepts": "model hidden-contexts communication regret networks",
    "how-to": "own-policy own-data own-environment sweeps-and-tables notebooks clusters federation rl-libraries "
    "tracking",
    "results": "paper open-points beyond speed calibration",
    "generated/results": "league",
    "reference": "index files",
    "generated/reference": "command-line problems protocol agents baselines",
    "generated/project": "contributing security changelog",
}


def test_the_site_has_its_pages() -> None:
    found = {str(file.relative_to(SITE)) for file in PAGES}
    assert {"index.html", "generated/policies/Fed-PECD.html", "generated/environments/Synthetic-v0.html"} <= found
    for room, names in NAMED.items():
        assert {f"{room}/{name}.html" for name in names.split()} <= found
    assert len([name for name in found if name.startswith("generated/gallery/plot_")]) >= 10


@pytest.mark.parametrize("example", sorted(file.stem for file in (DOCS / "examples").glob("plot_*.py")))
def test_every_example_shows_a_figure_that_is_not_empty(pages: dict[Path, Links], example: str) -> None:
    page = SITE / "generated" / "gallery" / f"{example}.html"
    figures = [link for link in pages[page].loaded if f"sphx_glr_{example}_0" in link]
    assert figures
    pictures = [image.imread(page.parent / figure) for figure in figures]
    for picture in pictures:
        assert np.ptp(picture) > 0.5  # light paper and dark ink
    assert len({picture.tobytes() for picture in pictures}) == len(pictures)  # none is shown twice
    for told in re.findall(r'<img alt="([^"]*)"[^>]*sphx_glr_', page.read_text()):
        assert len(told.split()) >= 3, "the first sentence of an example is the alternative text of its figures"


def test_internal_links_lead_somewhere(pages: dict[Path, Links]) -> None:
    broken = []
    for file, links in pages.items():
        for link in [*links.followed, *links.loaded]:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].ids):
                broken.append((str(file.relative_to(SITE)), link))
    assert broken == []


def test_no_page_loads_anything_from_elsewhere(pages: dict[Path, Links]) -> None:
    outside = {link for links in pages.values() for link in links.loaded if urlsplit(link).scheme not in ("", "data")}
    assert outside == set()
    for style in SITE.rglob("*.css"):
        assert re.findall(r"url\(['\"]?https?:|@import", style.read_text()) == [], style


def test_types_in_the_reference_have_the_names_of_aliases() -> None:
    shown = [file.read_text() for file in (SITE / "generated" / "reference").glob("*.html")]
    text = html.unescape(re.sub("<[^>]+>", "", "".join(shown)))
    assert "psi: FloatArray" in text
    for spelt_out in ("ndarray[tuple", "<factory>", "~numpy", "~collections", "~typing"):
        assert spelt_out not in text, spelt_out


def test_the_reference_lists_each_page_once_and_no_internals() -> None:
    index = (SITE / "reference" / "index.html").read_text()
    listed = re.findall(r'class="toctree-l1"><a class="reference internal" href="([^"]+)"', index.split("<article")[1])
    assert len(listed) == len(set(listed)) > 5
    reports = (SITE / "generated" / "reference" / "reports.html").read_text()
    assert "plotting.regret_against" in reports
    for internal in ("plotting.blank", "plotting.number_axes", "tracking.needs", "plotting.one_of"):
        assert internal not in reports, internal
    assert not (SITE / "generated" / "reference" / "other.html").exists()
    assert "write_app" in (SITE / "generated" / "reference" / "federation.html").read_text()


QUESTIONS = {
    "what is T here?": ("concepts/model.html", "the number of steps of an episode"),
    "how do I use my own ratings?": ("how-to/own-data.html", "from_ratings"),
    "what does Fed-PECD send?": ("generated/policies/Fed-PECD.html", "scalars up"),
    "which policy for contexts that are revealed later?": ("how-to/choose-a-policy.html", "KK-UCB-Observed"),
    "how do I run it on SLURM?": ("how-to/clusters.html", "#SBATCH"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_answered_within_three_clicks(pages: dict[Path, Links], question: str) -> None:
    page, words = QUESTIONS[question]
    reached, clicks = {SITE / "index.html"}, 0
    while SITE / page not in reached:
        clicks += 1
        assert clicks <= 3
        ends = {(file.parent / urlsplit(link).path).resolve() for file in reached for link in pages[file].followed}
        reached |= ends & set(pages)
    assert words in re.sub("<[^>]+>", "", (SITE / page).read_text())  # code is coloured, a tag for each word


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        cut = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
        browser.call("Network.emulateNetworkConditions", **cut)
        yield browser


@needs_browser
@pytest.mark.browser
def test_search_works_on_a_page_that_is_a_file(browser: Browser) -> None:
    browser.look()
    browser.errors.clear()
    browser.open(SITE / "search.html", "?q=ratings")
    found = "[...document.querySelectorAll('#search-results li a')].map(e => e.textContent)"
    deadline = time.monotonic() + 20
    while "Use your own data" not in (titles := browser.run(found)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "Use your own data" in titles
    time.sleep(0.5)  # what a result asks for would fail after it is shown
    assert browser.errors == []


UNSET = "[...document.querySelectorAll('.math')].filter(e => !e.querySelector('mjx-container')).length"
# The words of a page without code, which has stars and dollars of its own. Equations are set by then, and have no text.
PROSE = """(() => {
    const page = document.querySelector('article').cloneNode(true);
    page.querySelectorAll('pre, code, dt.sig, script, style').forEach(e => e.remove());
    return page.textContent;
})()"""
BROKEN = "[...document.images].filter(e => e.loading != 'lazy' && !(e.complete && e.naturalWidth)).map(e => e.src)"


@needs_browser
@pytest.mark.browser
@pytest.mark.parametrize("file", PAGES or [SITE / "index.html"], ids=lambda file: str(file.relative_to(SITE)))
def test_every_page_opens_without_a_network(browser: Browser, file: Path) -> None:
    browser.look()
    browser.errors.clear()
    browser.requests.clear()
    browser.open(file)
    deadline = time.monotonic() + 20
    while browser.run(UNSET) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert browser.run(UNSET) == 0  # each equation was set
    assert browser.run("document.querySelectorAll('mjx-merror').length") == 0
    assert browser.run(BROKEN) == []
    assert unrendered(browser.run(PROSE)) == []
    assert [request for request in browser.requests if not request.startswith(("file:", "data:"))] == []
    assert browser.errors == []
    browser.look(width=390)  # a phone: what is wider scrolls in a box of its own
    assert browser.run("document.documentElement.scrollWidth") <= 390


def unrendered(words: str) -> list[str]:
    """Marks of the sources that a reader should not see: roles, mathematics, links, pairs of backticks and of stars."""
    return re.findall(r":[a-z]+:`|\{[a-z]+\}`|\$[^$\n]+\$|\\[a-zA-Z]+\{|\]\([^)\s]+\)|``|(?<!\d)\*\*", words)


def test_marks_of_sources_are_found() -> None:
    assert unrendered("see :doc:`x`, {ref}`y`, $x_i$, \\hat{a}, [z](z.md), ``w`` and **v**") == [
        *(":doc:`", "{ref}`", "$x_i$", "\\hat{", "](z.md)", "``", "``", "**", "**")
    ]
    assert unrendered("costs $3, [0, 1] (K,), 2**17 and a `b`") == []


@needs_browser
@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("page", ["index", "generated/policies/Fed-PECD", "generated/environments/Synthetic-v0"])
def test_nothing_is_wider_than_a_narrow_window(browser: Browser, page: str, dark: bool) -> None:
    browser.look(width=400, dark=dark)
    browser.open(SITE / f"{page}.html")
    assert browser.run("document.documentElement.scrollWidth") <= 400
