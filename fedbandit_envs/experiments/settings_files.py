"""Tables of settings as TOML and JSON hold them: reading them, and refusing what they can't be."""

import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs.storage import StoredFileError, check_regular
from fedbandit_envs.validation import nearest, visible

MOST_BYTES = 50_000_000  # a larger file is no experiment, and would fill the memory
_SHOWN = 300  # characters of a text that an error shows


class ExperimentError(ValueError):
    """An experiment that can't be read or run as it is written.

    Making an `Experiment` raises it for what is wrong in any case, and `run` for what only a look at the policies and
    the environment shows. It names the setting, so a file of settings can be corrected by it.

    >>> import fedbandit_envs as fb
    >>> fb.Experiment("fedbandit/Synthetic-v0", policies=[])
    Traceback (most recent call last):
        ...
    fedbandit_envs.experiments.settings_files.ExperimentError: policies: expected a list of one or more, got []; ...
    """


def read_table(path: str | Path) -> Mapping[str, Any]:
    """The table of settings in a .toml or .json file."""
    path = Path(path)
    if path.suffix == ".py":
        raise ExperimentError(
            f"{path}: expected an experiment as .toml or .json, got a program; start it with `python {path}`, or use a "
            f"policy of it with --policy {path.stem}:NAME_OF_ITS_CLASS"
        )
    try:
        check_regular(path)
        if (size := path.stat().st_size) > MOST_BYTES:
            raise ExperimentError(f"{path}: expected an experiment of at most {MOST_BYTES:,} bytes, got {size:,}")
        text = path.read_text(encoding="utf-8")
    except StoredFileError as error:
        raise ExperimentError(str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ExperimentError(f"{path}: expected a readable experiment file, got {reason}; check the path") from error
    return _parsed(text, path)


def _parsed(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:  # both decoders' errors are ValueErrors
        raise ExperimentError(f"{path}: expected {path.suffix.lstrip('.').upper() or 'TOML'}, got {error}") from error
    except RecursionError as error:
        raise ExperimentError(
            f"{path}: expected a table of settings, got lists or tables in too many others"
        ) from error
    if not isinstance(table, dict):
        raise ExperimentError(f"{path}: expected a table of settings, got {type(table).__name__}")
    return table


def check_text(name: str, value: Any) -> None:
    """Refuse what is no text, or can't be shown in tables and on a terminal; `name` names the setting in the error."""
    if not isinstance(value, str):
        raise ExperimentError(f"{name}: expected text, got {value!r}")
    if not value.replace("\n", "").isprintable():
        raise ExperimentError(
            f"{visible(name)}: expected characters that can be printed, got {value[:_SHOWN]!a}; leave control "
            "characters out"
        )


_LONGEST_LABEL = 200  # characters; longer ones would leave no room for a figure


def check_label(name: str, label: Any) -> None:
    """Refuse what can't be shown in a table, in a figure and on a terminal alike; `name` names the setting."""
    check_text(name, label)
    if len(label) > _LONGEST_LABEL:
        raise ExperimentError(f"{name}: expected at most {_LONGEST_LABEL} characters, got {len(label)}; say it shorter")


def shortened(text: str) -> str:
    """A text that can be a label: what can't be printed is escaped, and the end of a long text is left out.

    >>> shortened("Fed-PECD (delta=0.05)")
    'Fed-PECD (delta=0.05)'
    >>> len(shortened("x" * 1000))
    200
    """
    text = visible(text)
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}..."


def check_keys(source: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse a table that has other keys than `known`; `source` names the table in the error."""
    for key in table:
        if key not in known:
            raise ExperimentError(f"{source}: expected keys among {', '.join(known)}, got {key!r}{nearest(key, known)}")


def plain_table(name: str, table: Any) -> dict[str, Any]:
    """A table whose values TOML and JSON can hold; anything else is refused."""
    if not isinstance(table, Mapping):
        raise ExperimentError(f"{name}: expected a table of names and values, got {table!r}")
    for key in table:
        check_text(f"{name}, a name", str(key))
    return {str(key): plain(f"{name}, {key}", value) for key, value in table.items()}


def plain(name: str, value: Any) -> Any:
    """`value` as numbers, strings, booleans and lists of them: what TOML and JSON can hold."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(name, item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        raise ExperimentError(f"{name}: expected a finite number, got {value}")
    if not isinstance(value, (bool, int, float, str)):
        raise ExperimentError(
            f"{name}: expected numbers, strings, booleans or lists of them, got {type(value).__name__}; an experiment "
            "is plain data, so play other objects with fb.play"
        )
    if isinstance(value, str):
        check_text(name, value)
    return value


def defaults_of(function: Any) -> dict[str, Any]:
    """The defaults of a function or class as plain data, where there are any but None."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: plain(p.name, p.default) for p in parameters if p.default is not None and p.default is not p.empty}


def as_default(value: Any, default: Any) -> Any:
    """A number as its default is written: 1 and 1.0 are one setting.

    >>> as_default(1, 0.5), as_default(1000.0, 10), as_default(0.5, 1), as_default(True, 1.0)
    (1.0, 1000, 0.5, True)
    """
    if {type(value), type(default)} == {int, float} and type(default)(value) == value:
        return type(default)(value)
    return value
