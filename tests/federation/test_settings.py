"""The files that Flower reads say what was meant, whatever is in a path."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from refusals import assert_refused

from fedbandit_envs.federation.launch import write_node
from fedbandit_envs.federation.one_machine import client_blocks
from fedbandit_envs.federation.settings import write_app


@pytest.mark.parametrize("name", ["plain", 'a"b', "a'b", "a b=c", "a\\nb", "ψ"])
def test_any_path_comes_back_from_the_files(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    node = write_node(folder / "clients" / "000", [0, 2])
    assert node.suffix == ".toml"  # or else Flower takes it for a list of values
    assert tomllib.loads(node.read_text("utf-8")) == {"agents": "0,2", "folder": str(folder / "clients" / "000")}
    config: dict[str, str | int | float | bool] = {"folder": str(folder), "clients": 3, "quorum": 0.5}
    write_app(folder / "app", config)
    app = tomllib.loads((folder / "app" / "pyproject.toml").read_text("utf-8"))["tool"]["flwr"]["app"]
    assert app["config"] == config
    assert app["components"]["serverapp"] == "fedbandit_envs.federation.flower:server_app"


@pytest.mark.parametrize("clients", [0, 4, True, [[0], [1]], [[0, 1], [1, 2]], [[0, 1, 2], []], [["0", "1", "2"]], "3"])
def test_clients_that_do_not_hold_each_agent_once_are_refused(clients: Any) -> None:
    assert_refused(lambda: client_blocks(clients, 3), "clients: expected")
