"""Another user of the machine, who knows all that is public about a federation, tries to run code in it."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from federation_loop import settings
from proc import private_network_is_possible
from strangers import Stranger, as_nobody

from fedbandit_envs.federation.isolation import FederationError
from fedbandit_envs.federation.one_machine import federate

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("default")]  # Flower's warnings are not ours
pytest.importorskip("flwr")
if os.geteuid() != 0:
    pytest.skip("only root can try it as another user", allow_module_level=True)
if not private_network_is_possible():
    pytest.skip("this machine does not let us make a network namespace", allow_module_level=True)


OF = settings(num_agents=2, num_arms=10, max_cycles=13)


def test_another_user_can_neither_submit_an_app_nor_enter_the_network_nor_read_the_folder(place: Path) -> None:
    stranger, out = Stranger(place), place / "out"
    tried: dict[str, subprocess.CompletedProcess[str]] = {}

    def on_progress(turn: dict[str, Any]) -> None:
        if turn["turn"] == 0:
            stranger.submit(out)
            below = psutil.Process().children(recursive=True)  # another test may have a federation of its own
            alive = [child for child in below if child.status() != psutil.STATUS_ZOMBIE]
            (holder,) = (str(child.pid) for child in alive if "fedbandit_envs.federation.isolation" in child.cmdline())
            for flags in (["--net"], ["--user", "--net"], ["--user", "--net", "--preserve-credentials"]):
                tried[" ".join(flags)] = as_nobody("nsenter", "--target", holder, *flags, "true")
            for part in ("flower", "server", "clients", "app", "logs"):
                tried[part] = as_nobody("ls", str(out / part))

    federate(OF, 2, out=out, on_progress=on_progress)
    (submitted,) = stranger.submitted
    assert submitted.returncode != 0
    assert "Connection to the SuperLink is unavailable" in submitted.stdout + submitted.stderr
    assert not stranger.mark.exists()
    assert len(tried) == 8
    assert all(attempt.returncode != 0 for attempt in tried.values()), tried
    assert json.loads((out / "server" / "progress.jsonl").read_text().splitlines()[-1]) == {"done": True}


def test_on_the_shared_network_the_same_attack_runs_code_as_the_owner(place: Path) -> None:
    """This is why the shared network must be asked for, and it shows that the attack is a real one."""
    stranger, out = Stranger(place), place / "out"

    def on_progress(turn: dict[str, Any]) -> None:
        if turn["turn"] == 0:
            stranger.submit(out)
            deadline = time.monotonic() + 60
            while not stranger.mark.exists() and time.monotonic() < deadline:
                time.sleep(0.2)

    federate(OF, 2, out=out, on_progress=on_progress, private_network=False)
    assert "Successfully started run" in stranger.submitted[0].stdout
    assert stranger.mark.read_text() == "0"  # the user whose code it was


def test_where_no_private_network_can_be_made_nothing_starts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "unshare").write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
    (place / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    with pytest.raises(FederationError, match=r"(?s)private network .* Operation not permitted.*--shared-network"):
        federate(settings(num_agents=2), 2, out=place / "out")
    assert not (place / "out" / "logs" / "superlink.log").exists()
