"""The folder of a federation belongs to one federation at a time, and to one user."""

import multiprocessing
from pathlib import Path

import pytest

from fedbandit_envs.federation.isolation import FederationError
from fedbandit_envs.federation.one_machine import _folder


def test_two_federations_in_one_folder_are_refused_and_one_after_the_other_is_not(tmp_path: Path) -> None:
    out, refused = tmp_path / "out", pytest.raises(FederationError, match="got one in which another runs now")
    with _folder(out), refused, _folder(out):
        pass
    with _folder(tmp_path / "out") as folder:
        assert folder == tmp_path / "out"


def _hold(out: Path) -> None:
    with _folder(out):
        pass


def test_a_federation_that_was_killed_leaves_no_lock(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_hold, args=(tmp_path,))
    process.start()
    process.kill()
    process.join()
    with _folder(tmp_path):
        pass


def test_nobody_else_can_enter_the_parts_of_the_folder_even_if_they_were_there_before(tmp_path: Path) -> None:
    (tmp_path / "flower").mkdir(mode=0o755)
    with _folder(tmp_path) as folder:
        modes = {part.name: part.stat().st_mode & 0o777 for part in folder.iterdir()}
    assert modes == dict.fromkeys(["server", "clients", "app", "flower", "logs"], 0o700)
