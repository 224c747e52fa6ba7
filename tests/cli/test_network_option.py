"""The option --network: what it plays, what it prints, and what it refuses."""

from pathlib import Path

import pytest

from fedbandit_envs.cli.main import main

pytestmark = pytest.mark.usefixtures("plain_plots")  # every run with --out writes a report
QUICK = ["--env", "Synthetic", "--set", "num_agents=4", "--set", "num_arms=3", "--set", "max_cycles=20"]
QUICK += ["--trials", "2"]


def table_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The first row of the table that was printed, by column: the last five, which are never empty."""
    names, row = (line.split() for line in capsys.readouterr().out.splitlines()[:2])
    return dict(zip(names[-5:], row[-5:], strict=True))


def test_peers_on_a_network_are_played_and_the_table_says_what_crossed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", *QUICK, "--executor", "serial", "--out", str(tmp_path / "out")]
    assert main([*command, "--policy", "coop-UCB2", "--network", "path"]) == 0
    found = table_of(capsys)
    assert (found["scalars_up"], found["scalars_peer"]) == ("0", str(2 * 3 * 2 * 3 * 17))


def test_tables_without_peers_have_no_column_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *QUICK, "--executor", "serial", "--out", str(tmp_path), "--policy", "Fed-PECD"]) == 0
    found = table_of(capsys)
    assert "scalars_up" in found
    assert "scalars_peer" not in found


def test_an_audit_plays_on_the_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *QUICK, "--policy", "DDUCB", "--network", "ring"]) == 0
    assert "scalars between peers" in capsys.readouterr().out


def test_peers_without_a_network_are_refused_with_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *QUICK, "--policy", "Gossip-UCB", "--executor", "serial", "--dry-run"]) == 2
    assert "--network" in capsys.readouterr().err


@pytest.mark.parametrize(("network", "words"), [([], "network: expected one"), (["--network", "rings"], "'ring'")])
def test_a_federation_of_peers_without_a_network_of_its_agents_is_refused(
    network: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["federate", "--policy", "coop-UCB2", "--agents", "3", "--set", "max_cycles=9", *network]) == 2
    assert words in capsys.readouterr().err


def test_a_sweep_over_networks_needs_no_other_network(tmp_path: Path) -> None:
    swept = ["--over", "network=ring,complete", "--executor", "serial", "--out", str(tmp_path / "out")]
    assert main(["sweep", *QUICK, "--policy", "Gossip-UCB", *swept]) == 0
    assert {folder.name for folder in (tmp_path / "out").iterdir() if folder.is_dir()} == {
        "network=ring",
        "network=complete",
    }
    assert main(["sweep", *QUICK, "--policy", "Gossip-UCB", "--over", "dropout=0,0.1", "--executor", "serial"]) == 2
