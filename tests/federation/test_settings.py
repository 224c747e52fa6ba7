"""The files that Flower reads say what was meant, whatever is in a path."""

import tomllib
from pathlib import Path

import pytest

from fedbandit_envs.federation.local import write_node
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


def test_a_supernode_may_name_its_own_reward_source(tmp_path: Path) -> None:
    assert tomllib.loads(write_node(tmp_path, [1], "mine:Rewards").read_text())["rewards"] == "mine:Rewards"
