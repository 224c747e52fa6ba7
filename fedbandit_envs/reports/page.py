"""The report: one HTML file about a result, a sweep, or a folder of several results, which needs no network.

Its plots are the package's own figures, so that print and screen agree, and they show without scripts. The script
adds what a screen can: switches for policies, scales and kinds of regret, values under the pointer, zoom, and sorting.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedbandit_envs.experiments.description import EXPERIMENT_FILE
from fedbandit_envs.experiments.folder import FolderError, make_folder, write_whole
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.reports import plotting
from fedbandit_envs.reports.html import colours_of, facts, section, table
from fedbandit_envs.reports.sections import (
    SCALES,
    Plots,
    advice_lines,
    audit_section,
    curve_data,
    differences_section,
    headline,
    kinds_of,
    other_plots,
    regret_section,
    settings_section,
    summary_section,
    verdict_lines,
    verdict_section,
    wide,
)
from fedbandit_envs.reports.series import series_key
from fedbandit_envs.storage import read_whole

REPORT_FILE = "report.html"
_MOST_NAMED = 6  # how many results the headline mentions
_MOST_BYTES = 10**7  # the largest file of verdicts that is read


def report(source: Result | str | Path, path: str | Path | None = None) -> Path:
    """Write a report as one HTML file that needs nothing else.

    Args:
        source: a result, or a folder that `run`, `sweep` or `reproduce` wrote.
        path: the file; by default `report.html` in the folder.

    Returns:
        The file.

    >>> import tempfile
    >>> from fedbandit_envs import Experiment, run
    >>> arguments = {"num_agents": 4, "max_cycles": 32}
    >>> result = run(Experiment("fedbandit/Synthetic-v0", ["Uniform"], arguments, trials=2), executor="serial")
    >>> report(result, Path(tempfile.mkdtemp()) / "mine.html").name
    'mine.html'
    """
    if path is None and isinstance(source, Result):
        raise ValueError("path: expected the file to write, got None; only a folder has a place for its report")
    if path is not None and Path(path).is_dir():
        raise ValueError(f"{path}: expected the file to write, got a folder; write {Path(path) / REPORT_FILE}")
    results = {"": source} if isinstance(source, Result) else load_results(Path(source))
    verdicts = [] if isinstance(source, Result) else _verdicts(Path(source))
    target = Path(source) / REPORT_FILE if path is None and not isinstance(source, Result) else Path(str(path))
    make_folder(target.parent)
    name = "" if isinstance(source, Result) else Path(source).resolve().name
    write_whole(target, page(results, verdicts, name).encode())
    return target


def load_results(folder: Path) -> dict[str, Result]:
    """The results in a folder and below it, by the names of their folders; "" if the folder itself has one."""
    if (folder / EXPERIMENT_FILE).exists():
        return {"": Result.load(folder)}
    # What `reproduce` computed beside the paper's panels has folders of its own, and reports of its own.
    top = folder / "trials" if (folder / "trials").is_dir() else folder
    folders = sorted((path.parent for path in top.rglob(EXPERIMENT_FILE)), key=_by_numbers)
    if not folders:
        got = "a folder without any" if folder.exists() else "no such folder"
        raise FolderError(f"{folder}: expected results of run, sweep or reproduce, got {got}; check the path")
    return {path.relative_to(top).as_posix(): Result.load(path) for path in folders}


def _by_numbers(path: Path) -> list[tuple[float, str]]:
    """A key that sorts names by the numbers in them: M=4 comes before M=16."""
    parts = re.split(r"(\d+(?:\.\d+)?)", path.as_posix())
    return [(float(part), "") if place % 2 else (0.0, part) for place, part in enumerate(parts)]


def _verdicts(folder: Path) -> list[dict[str, Any]]:
    """The verdicts that `reproduce` has written into a folder."""
    file = folder / "verdicts.json"
    if not file.exists():
        return []
    try:
        rows: list[dict[str, Any]] = json.loads(read_whole(file, _MOST_BYTES))
        if not all(_is_verdict(row) for row in rows):
            raise ValueError("other rows")
    except (ValueError, TypeError, RecursionError) as error:
        raise FolderError(f"{file}: expected the verdicts of reproduce, got {error}; move it away") from error
    return rows


def _is_verdict(row: Any) -> bool:
    """Whether a row of a file is a verdict: a table of texts and numbers, with the verdict in words."""
    if not isinstance(row, dict) or not isinstance(row.get("verdict"), str) or not row["verdict"].strip():
        return False
    small = [value for value in row.values() if not isinstance(value, int) or abs(value) < 2**63]
    return len(small) == len(row) and all(value is None or isinstance(value, (int, float, str)) for value in small)


def page(results: Mapping[str, Result], verdicts: list[dict[str, Any]], folder: str = "") -> str:
    """The whole page on results by name; a single result has the name "". `folder` is the name of their folder."""
    plots = Plots()
    if list(results) == [""]:
        result = results[""]
        title = f"{result.experiment.environment.partition('/')[2]}: {', '.join(result.labels[:3])}"
        title += f" and {len(result.labels) - 3} more" * (len(result.labels) > 3)
        lines, kinds = [*headline(result), *advice_lines(result)], kinds_of(result)
        data = {f"regret-{kind}": curve_data(result, kind) for kind in kinds}
        body = [
            summary_section(result, kinds),
            regret_section(result, plots, kinds),
            differences_section(result, plots, kinds),
            *other_plots(result, plots),
            audit_section(result),
        ]
    else:
        title, kinds = f"{folder}: {len(results)} results", ["regret"]
        first = [f"{name}: {headline(result)[0]}" for name, result in list(results.items())[:_MOST_NAMED]]
        lines = verdict_lines(verdicts) if verdicts else first
        data = {f"regret{place}-regret": curve_data(result, "regret") for place, result in enumerate(results.values())}
        body = [verdict_section(verdicts) if verdicts else "", *_sweep_sections(results, plots)]
        body += [_one_of_many(name, place, result, plots) for place, (name, result) in enumerate(results.items())]
    body.append(settings_section(results))
    return _document(title, lines, _switches(results, kinds), "".join(body), data)


def _one_of_many(name: str, place: int, result: Result, plots: Plots) -> str:
    """A result among others, folded: its headline, its curves and its summary."""
    curves = regret_section(result, plots, ["regret"], f"regret{place}")
    summary = summary_section(result, ["regret"], f"summary{place}")
    folded = f"<summary>{escape(name)}</summary>{facts(headline(result))}{curves}{summary}"
    return f'<details class="result">{folded}</details>'


def _sweep_sections(results: Mapping[str, Result], plots: Plots) -> list[str]:
    """Final regret against the swept parameter, if the folders are those of a sweep; a plot for each other value."""
    parts = {name: [part.partition("=") for part in name.split(",")] for name in results}
    columns = {"setting": [name for name, result in results.items() for _ in result.labels]}
    for result in results.values():
        for column, cells in result.table().items():
            if column in ("policy", "trials", "regret", "regret_low", "regret_high", "worst_agent", "scalars_up"):
                columns.setdefault(column, []).extend(cells)
    body = [table(columns, "All settings")]
    if all(equals for split in parts.values() for _, equals, _ in split):
        groups: dict[str, dict[Any, Result]] = {}
        for name, result in results.items():
            (_, _, value), *others = parts[name]
            rest = ", ".join(f"{parameter} = {at}" for parameter, _, at in others)
            groups.setdefault(rest, {})[_value(value)] = result
        parameter = next(iter(parts.values()))[0][0]
        for rest, group in groups.items():
            ordered = dict(sorted(group.items(), key=lambda pair: (isinstance(pair[0], str), pair[0])))
            labels = next(iter(group.values())).labels
            for scale, log in {"linear": "", "logarithmic": "y"}.items():
                title = rest or None  # with None the title says the problem and its sizes
                size = wide(labels)
                keywords = {"results": ordered, "parameter": parameter, "log": log, "size": size, "title": title}
                caption = f"final regret against {parameter}{f', at {rest}' if rest else ''}; {scale} axis"
                body.insert(-1, plots.draw(plotting.regret_against, labels, caption, keywords, scale=scale))
    how = "Each row is a policy in one setting; bars in a plot are Student's 95 % intervals of the mean over trials."
    return [section("settings-table", "All settings", how, *body)]


def _value(text: str) -> int | float | str:
    for form in (int, float):
        try:
            return form(text)
        except ValueError:
            continue
    return text


def _switches(results: Mapping[str, Result], kinds: list[str]) -> str:
    """The switches, which the script shows."""
    colours = {label: colour for result in results.values() for label, colour in colours_of(result).items()}
    policies = "".join(
        f'<label><input type="checkbox" name="policy" value="{series_key(label)}" checked>'
        f'<span class="swatch" style="background:{colour}"></span>{escape(label)}</label>'
        for label, colour in colours.items()
    )
    scales = "".join(
        f'<label><input type="radio" name="scale" value="{scale}"{" checked" * (scale == "linear")}>{scale}</label>'
        for scale in SCALES
    )
    options = "".join(f'<option value="{escape(kind)}">{escape(REGRETS[kind].help)}</option>' for kind in kinds)
    of_kinds = f'<fieldset><legend>regret</legend><select name="kind">{options}</select></fieldset>'
    one_kind = f'<input type="hidden" name="kind" value="{escape(kinds[0])}">'
    return (
        f'<form id="switches" hidden autocomplete="off"><fieldset><legend>policies</legend>{policies}'
        '<button type="button" id="all">all</button><button type="button" id="none">none</button></fieldset>'
        f"<fieldset><legend>axes</legend>{scales}</fieldset>{of_kinds if len(kinds) > 1 else one_kind}</form>"
    )


def _document(title: str, lines: list[str], switches: str, body: str, data: Mapping[str, Any]) -> str:
    parts = files("fedbandit_envs.reports")
    style, *scripts = ((parts / name).read_text(encoding="utf-8") for name in ("report.css", "switches.js", "plots.js"))
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # In a script element only "<" can end the text, so it is written as its number.
    values = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><header><h1>{escape(title)}</h1>{facts(lines)}</header>{switches}<main>{body}</main>"
        f'<div id="values" hidden></div><script type="application/json" id="data">{values}</script>'
        f"{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>\n"
    )
