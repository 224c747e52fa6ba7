"""Tables in LaTeX, against texts written by hand."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit_envs.reports.latex import booktabs, escaped, summary_table

NAN = float("nan")
SUMMARY: dict[str, list[Any]] = {
    "policy": ["Fed_PE", "50 % & more", "Uniform", "Oracle"],
    "trials": [10, 10, 10, 10],
    "regret": [1234.4, 1250.2, 20000.0, 0.0],
    "regret_low": [1200.0, 1225.6, 19000.0, 0.0],
    "regret_high": [1269.0, 1275.0, 21000.0, 0.0],
    "rounds": [17.0, 16.0, 0.0, 0.0],
}
COMPARISONS: dict[str, list[Any]] = {
    "policy": ["Fed_PE", "Fed_PE", "Fed_PE", "50 % & more", "50 % & more", "Uniform"],
    "against": ["50 % & more", "Uniform", "Oracle", "Uniform", "Oracle", "Oracle"],
    "step": [64] * 6,
    "p_holm": [0.21, 0.001, 0.001, 0.001, 0.001, 0.9],
}
RULE = (
    r"$^{\ast}$: not significantly different from it (paired $t$-tests over the same trials, "
    "Holm's correction over all pairs of policies, level 0.05)."
)
EXPECTED = rf"""% needs \usepackage{{booktabs}}
\begin{{table}}
\centering
\caption{{Regret per agent: mean with Student's 95\,\% interval over 10 trials. Bold: the lowest mean, without Oracle. {RULE}}}
\begin{{tabular}}{{lrr}}
\toprule
policy & regret & rounds \\
\midrule
Fed\_PE & $\mathbf{{1{{,}}234}}$ $[1{{,}}200, 1{{,}}269]$ & $17$ \\
50 \% \& more & $1{{,}}250^{{\ast}}$ $[1{{,}}226, 1{{,}}275]$ & $16$ \\
Uniform & $20{{,}}000$ $[19{{,}}000, 21{{,}}000]$ & $0$ \\
Oracle & $0$ $[0, 0]$ & $0$ \\
\bottomrule
\end{{tabular}}
\end{{table}}"""  # noqa: E501


def balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"(?<!\\)(?:\\\\)*([{}])", text):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def test_a_summary_is_the_text_written_by_hand() -> None:
    found = summary_table({"": (SUMMARY, COMPARISONS)}, ["policy", "regret", "rounds"], references=["Oracle"])
    assert found == EXPECTED
    assert balanced(found)


def test_the_best_is_found_in_each_group() -> None:
    turned = SUMMARY | {"regret": [1300.0, 1250.0, 20000.0, 0.0]}
    groups = {"M = 2": (SUMMARY, COMPARISONS), "M = 4": (turned, COMPARISONS)}
    lines = summary_table(groups, ["policy", "regret"], references=["Oracle"]).splitlines()
    assert [line[:6] for line in lines if "mathbf" in line] == ["Fed\\_P", "50 \\% "]
    assert [line[:6] for line in lines if r"^{\ast}$ $[" in line] == ["50 \\% ", "Fed\\_P"]
    assert lines.count(r"\midrule") == 2
    assert r"\multicolumn{2}{l}{M = 4} \\" in lines


def test_without_a_test_nobody_is_told_from_the_best() -> None:
    one = SUMMARY | {"trials": [1] * 4, "regret_low": [NAN] * 4, "regret_high": [NAN] * 4}
    untested = COMPARISONS | {"p_holm": [NAN] * 6}
    found = summary_table({"": (one, untested)}, ["policy", "regret"], references=["Oracle"])
    assert r"Fed\_PE & $\mathbf{1{,}234}$ \\" in found
    assert found.count(r"^{\ast}$ \\") == 2
    assert "mean over one trial." in found
    assert "[" not in found


def test_numbers_of_very_different_sizes_are_powers_of_ten() -> None:
    found = booktabs({"": {"policy": ["a", "b"], "p_value": [0.5, 3e-9]}}, ["policy", "p_value"], "")
    assert r"a & $5.00 \cdot 10^{-1}$ \\" in found
    assert r"b & $3.00 \cdot 10^{-9}$ \\" in found


def test_a_difference_and_its_interval_are_one_column() -> None:
    table = {"policy": ["a"], "difference": [-1.5], "low": [-2.5], "high": [-0.5]}
    assert r"a & $-1.500$ $[-2.500, -0.500]$ \\" in booktabs({"": table}, list(table), "")


def test_every_special_letter_is_escaped() -> None:
    expected = r"\_\&\%\#\$\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}\textless{}\textgreater{}\textbar{}"
    assert escaped("_&%#${}~^\\<>|") == expected
    assert escaped("a\nb") == "a b"


@given(st.text(alphabet="ab_&%#${}~^\\<>|\n", max_size=20))
def test_no_label_breaks_a_table(label: str) -> None:
    found = booktabs({label: {"policy": [label], "regret": [1.5]}}, ["policy", "regret"], "")
    assert balanced(found)
    line = found.splitlines()[-4]  # the last row of the table
    assert line.endswith(r" \\")
    assert len(re.findall(r"(?<!\\)&", line)) == 1
    assert not re.search(r"(?<!\\)[#%]", line)


def test_a_wrong_column_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'regret'"):
        booktabs({"": SUMMARY}, ["policy", "regert"], "")
