"""The form of a trial's file: which names it has, and of which kind and size its numbers are.

The checksums inside a file say that it is whole, not that this program wrote it. A file of another form is refused when
it is read, so nothing that uses results has to expect one.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedbandit_envs.experiments.trials import PRIVACY, Record
from fedbandit_envs.rounds.ledger import COUNTS

_LARGEST = 1e130  # no regret or count is larger: means are at most 1e100, and horizons at most 2^53
_MOST_ORIGINS, _LONGEST_ORIGIN = 50, 1000  # of a provenance: how many facts, and how many characters each
_RECORD = {"steps", "curves", "curve_rows", "agents", "agent_rows", "totals"}
_CLAIM = {"claim": str, "bound": float, "measured": float, "claimed": bool, "unless": str, "holds": bool}


def check_form(tree: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Refuse with a `ValueError` what `RunFolder.save` did not write.

    Args:
        tree: what a trial's file holds.
        settings: the arguments of the experiment's environment. The horizon and the number of agents that stand there
            must be those of the file.
    """
    _check_names("the file", tree, {"run", "identity", "trial", "seed", "record"})
    for name in ("run", "identity", "seed"):
        _check(isinstance(tree[name], str), f"{name}: expected a text")
    _check(_is_count(tree["trial"]), "trial: expected a whole number from 0 on")
    record = tree["record"]
    _check(isinstance(record, Mapping), "record: expected a table")
    _check_names("record", record, _RECORD | ({"audit", "privacy"} & record.keys()))
    steps, horizon = record["steps"], settings.get("max_cycles")
    _check(
        _is_array(steps, np.int64, 1) and bool((np.diff(steps, prepend=0) > 0).all()), "steps: expected growing steps"
    )
    _check(horizon is None or steps[-1] == horizon, f"steps: expected the last one at {horizon}")
    curves = record["curves"]
    _check(_is_array(curves, np.float64, 2) and curves.shape[1] == len(steps), "curves: expected one at each step")
    _check(_is_array(record["agents"], np.float64, 2), "agents: expected numbers of each agent")
    for name in ("curves", "agents"):  # NaN: this problem has no such number
        _check(not (np.abs(record[name]) > _LARGEST).any(), f"{name}: expected numbers that a run can have")
    agents = settings.get("num_agents")
    _check(agents is None or record["agents"].shape[1] == agents, f"agents: expected {agents} of them")
    _check_rows("curve_rows", record["curve_rows"], len(record["curves"]))
    _check_rows("agent_rows", record["agent_rows"], len(record["agents"]))
    totals = record["totals"]
    _check(isinstance(totals, Mapping), "totals: expected a table")
    _check_names("totals", totals, {*COUNTS, "rounds"})
    _check(all(map(_is_count, totals.values())), "totals: expected whole numbers from 0 on")
    _check_audit(record)
    _check_privacy(record)


def _check_privacy(record: Record) -> None:
    if "privacy" not in record:
        return
    budget = record["privacy"]
    _check(isinstance(budget, Mapping), "privacy: expected a table")
    _check_names("privacy", budget, set(PRIVACY))
    fine = all(type(value) is float and value >= 0 for value in budget.values())
    _check(fine, "privacy: expected numbers from 0 on")


def _check_audit(record: Record) -> None:
    audit = record.get("audit", {})
    _check(isinstance(audit, Mapping), "audit: expected a table")
    _check_names("audit", audit, {str(number) for number in range(len(audit))})
    for claim in audit.values():
        _check(isinstance(claim, Mapping), "audit: expected claims")
        _check_names("audit", claim, set(_CLAIM))
        _check(all(type(claim[name]) is kind for name, kind in _CLAIM.items()), "audit: expected claims")
        _check(claim["claim"].isprintable() and claim["unless"].isprintable(), "audit: expected words to be printed")


def check_provenance(provenance: Mapping[str, str]) -> None:
    """Refuse with a `ValueError` a provenance that can't be shown in a line."""
    _check(len(provenance) <= _MOST_ORIGINS, f"provenance: expected at most {_MOST_ORIGINS} facts")
    for text in (*provenance, *provenance.values()):
        fine = text.isprintable() and len(text) <= _LONGEST_ORIGIN
        _check(fine, f"provenance: expected at most {_LONGEST_ORIGIN} characters that can be printed")


def _check_rows(name: str, rows: Any, many: int) -> None:
    _check(isinstance(rows, Mapping), f"{name}: expected a table")
    _check(sorted(map(str, rows.values())) == sorted(map(str, range(many))), f"{name}: expected each row once")
    _check(all(map(_is_count, rows.values())), f"{name}: expected whole numbers")


def _check_names(where: str, table: Mapping[str, Any], names: set[str]) -> None:
    _check(table.keys() == names, f"{where}: expected {', '.join(sorted(names))}")


def _check(fine: bool, expected: str) -> None:
    if not fine:
        raise ValueError(f"{expected}, got something else")


def _is_array(value: Any, kind: type, dimensions: int) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == kind and value.ndim == dimensions and value.size > 0


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63
