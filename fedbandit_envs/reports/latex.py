r"""Tables for papers: LaTeX with the rules of booktabs, made from the tables of results and nothing else.

>>> table = {"policy": ["Uniform", "Fed_PE"], "regret": [31.0, 12.5]}
>>> print(booktabs({"": table}, ["policy", "regret"], "Regret."))
% needs \usepackage{booktabs}
\begin{table}
\centering
\caption{Regret.}
\begin{tabular}{lr}
\toprule
policy & regret \\
\midrule
Uniform & $31.0$ \\
Fed\_PE & $12.5$ \\
\bottomrule
\end{tabular}
\end{table}
"""

from collections.abc import Collection, Mapping, Sequence

from fedbandit_envs.experiments.text import Columns, number_format
from fedbandit_envs.validation import one_of

SUMMARY_COLUMNS = ("policy", "regret", "worst_agent", "wrong_share", "scalars_up", "scalars_down", "rounds")
SIGNIFICANT = 0.05  # a Holm-corrected p-value below this tells two policies apart
Place = tuple[str, int]  # a row of a table: the name of its group, and its number there

_ESCAPES = {character: f"\\{character}" for character in "_&%#${}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


def escaped(text: str) -> str:
    r"""The text as LaTeX prints it letter by letter; what can't be printed becomes a space.

    >>> escaped("50 % of x_i")
    '50 \\% of x\\_i'
    """
    return "".join(_ESCAPES.get(character, character if character.isprintable() else " ") for character in text)


def summary_table(
    groups: Mapping[str, tuple[Columns, Columns]],
    names: Sequence[str] = SUMMARY_COLUMNS,
    *,
    regret: str = "regret per agent",
    references: Collection[str] = (),
) -> str:
    """The summaries of one or several results as one LaTeX table.

    In each group the lowest mean regret is bold, and policies that can't be distinguished from it are marked. The
    caption says by which rule.

    Args:
        groups: for each result its summary and its comparisons, by a title that stands above its rows; an empty title
            is left out.
        names: the columns to show. A mean and its interval are one column.
        regret: what the regret is, in LaTeX, for the caption.
        references: policies that don't compete for the best, as one that is shown the true means.
    """
    bold: set[Place] = set()
    marked: set[Place] = set()
    for title, (summary, comparisons) in groups.items():
        rivals = [row for row, label in enumerate(summary["policy"]) if label not in references]
        if rivals:
            best = min(rivals, key=lambda row: summary["regret"][row])
            equal = _not_told_from(summary["policy"][best], comparisons)
            bold.add((title, best))
            marked |= {(title, row) for row in rivals if summary["policy"][row] in equal}
    return booktabs(
        {title: summary for title, (summary, _) in groups.items()},
        names,
        _caption(regret, [number for summary, _ in groups.values() for number in summary["trials"]], references),
        bold,
        marked,
    )


def _not_told_from(label: str, comparisons: Columns) -> set[str]:
    """The policies whose difference from this one is not significant at the last step that is compared."""
    end = max(comparisons["step"], default=0)
    pairs = zip(*(comparisons[name] for name in ("policy", "against", "step", "p_holm")), strict=True)
    return {
        second if first == label else first
        for first, second, step, p_value in pairs
        if label in (first, second) and step == end and not p_value < SIGNIFICANT  # NaN: no test was possible
    }


def _caption(regret: str, trials: Sequence[int], references: Collection[str]) -> str:
    few, many = min(trials), max(trials)
    over = "one trial" if many == 1 else f"{many} trials" if few == many else f"{few} to {many} trials"
    interval = "mean" if many == 1 else r"mean with Student's 95\,\% interval"
    shown = ", ".join(escaped(label) for label in references)
    without = f", without {shown}" if shown else ""
    rule = "paired $t$-tests over the same trials, Holm's correction over all pairs of policies"
    return (
        f"{regret[:1].upper()}{regret[1:]}: {interval} over {over}. Bold: the lowest mean{without}. "
        rf"$^{{\ast}}$: not significantly different from it ({rule}, level {SIGNIFICANT:g})."
    )


def booktabs(
    groups: Mapping[str, Columns],
    names: Sequence[str],
    caption: str,
    bold: Collection[Place] = (),
    marked: Collection[Place] = (),
) -> str:
    r"""A LaTeX table of one or several tables with the same columns, one below the other.

    A mean whose interval is in the table, as in `regret`, `regret_low`, `regret_high`, is one column with it.

    Args:
        groups: the tables by a title that stands above their rows; an empty title is left out.
        names: the columns to show.
        caption: the caption, in LaTeX.
        bold: rows in which the regret is bold.
        marked: rows in which the regret has an asterisk.
    """
    known = next(iter(groups.values()))
    ends = {name: _ends(name, known) for name in names}
    shown = [one_of("column", name, tuple(known)) for name in names if not any(name in pair for pair in ends.values())]
    cells = {name: _column(name, ends[name], groups, bold, marked) for name in shown}
    texts = [all(isinstance(value, str) for table in groups.values() for value in table[name]) for name in shown]
    lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
    lines += [rf"\begin{{tabular}}{{{''.join('l' if text else 'r' for text in texts)}}}", r"\toprule"]
    lines.append(" & ".join(escaped(name.replace("_", " ")) for name in shown) + r" \\")
    for title, table in groups.items():
        lines.append(r"\midrule")
        if title:
            lines.append(rf"\multicolumn{{{len(shown)}}}{{l}}{{{escaped(title)}}} \\")
        rows = len(table[shown[0]])
        lines += [" & ".join(cells[name][title, row] for name in shown) + r" \\" for row in range(rows)]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _ends(name: str, columns: Columns) -> tuple[str, ...]:
    """The columns with the interval of a mean, if there are any."""
    pair = ("low", "high") if name == "difference" else (f"{name}_low", f"{name}_high")
    return pair if pair[0] in columns else ()


def _column(
    name: str,
    ends: tuple[str, ...],
    groups: Mapping[str, Columns],
    bold: Collection[Place],
    marked: Collection[Place],
) -> dict[Place, str]:
    """The cells of a column by their places; all its numbers, those of intervals too, have one format."""
    places = [(title, row) for title, table in groups.items() for row in range(len(table[name]))]
    values = [value for table in groups.values() for part in (name, *ends) for value in table[part]]
    if not all(isinstance(value, (int, float)) for value in values):
        return {(title, row): escaped(str(groups[title][name][row])) for title, row in places}
    written = number_format(values)
    cells = {}
    for title, row in places:
        mean, *interval = (written(groups[title][part][row]) for part in (name, *ends))
        special = [name == "regret" and (title, row) in rows for rows in (bold, marked)]
        cell = _math(mean, *special) if mean else ""
        cells[title, row] = cell + (f" $[{', '.join(map(_in_math, interval))}]$" if any(interval) else "")
    return cells


def _math(number: str, bold: bool, marked: bool) -> str:
    body = _in_math(number)
    body = rf"\mathbf{{{body}}}" if bold else body
    return rf"${body}^{{\ast}}$" if marked else f"${body}$"


def _in_math(number: str) -> str:
    """A formatted number for mathematics: no space after the comma of thousands, and powers of ten as such."""
    mantissa, _, exponent = number.replace(",", "{,}").partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa
