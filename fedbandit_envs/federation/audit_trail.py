"""The audit trail of a federation: who was refused or failed, in which round, and why."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

AUDIT_FILE = "audit.jsonl"


@dataclass(frozen=True)
class Refusal:
    """A refusal: one entry of the audit trail."""

    who: str  #: the key of the client
    agents: Sequence[int]  #: the agents that the key speaks for; none for a stranger
    round: int  #: the round of communication
    reason: str  #: what the client did, or what was missing


def write_refusal(folder: Path, refusal: Refusal) -> None:
    """Append a refusal to the audit trail in a folder, as a line of JSON with the time of day.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_refusal(folder, Refusal("SHA256:one", [0, 2], 4, "not connected"))
    >>> json.loads((folder / AUDIT_FILE).read_text())["reason"]
    'not connected'
    """
    line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **asdict(refusal)}
    with open(folder / AUDIT_FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
