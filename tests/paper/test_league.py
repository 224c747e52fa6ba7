"""The league: every policy on every problem that it can play, and the reason where it can't."""

import csv
import json
import math
from dataclasses import replace

import pytest

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main
from fedbandit_envs.paper.league import CONTESTS, KINDS, LEAGUE_SCALE, fixtures, league

POLICIES = ("Fed-PECD", "Fed-PE", "KK-UCB", "KK-UCB-Observed", "coop-UCB2", "Uniform")
SMALL = replace(
    LEAGUE_SCALE,
    agents=4,
    steps=60,
    policies=POLICIES,
    contests={name: CONTESTS[name] for name in ("synthetic", "synthetic-revealed", "multi-armed")},
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("league")
    return league(folder, trials=2, executor="serial", scale=SMALL), folder


def rows(table):
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def test_every_policy_has_a_row_for_every_problem(found):
    named = [(row["problem"], row["policy"]) for row in rows(found[0].table)]
    assert named == [(problem, policy) for problem in SMALL.contests for policy in POLICIES]


def test_a_row_is_a_score_or_a_reason(found):
    for row in rows(found[0].table):
        assert math.isnan(row["regret"]) == bool(row["why not"]), row
    reasons = {(row["problem"], row["policy"]): row["why not"] for row in rows(found[0].table)}
    assert "reveals nothing" in reasons["synthetic", "KK-UCB-Observed"]
    assert "change at each step" in reasons["synthetic-revealed", "Fed-PECD"]
    assert not reasons["synthetic-revealed", "KK-UCB-Observed"]


def test_the_scores_are_those_of_the_results(found):
    results = found[0].results
    for row in rows(found[0].table):
        if row["why not"]:
            continue
        result = results[row["problem"]]
        for kind in KINDS:
            final = result.final(row["policy"], f"mean_{kind}").mean()
            assert (math.isnan(row[kind]) and math.isnan(final)) or row[kind] == final
        assert row["scalars"] == result.final(row["policy"], "scalars").mean()
        assert row["seconds"] > 0
    assert math.isnan(rows(found[0].table)[9]["group_regret"])  # KK-UCB-Observed, where contexts change


def test_every_problem_can_be_played():
    experiments, refused = fixtures(
        ["Uniform", "OrchExplore", "Shared-Uniform", "Shared-Oracle"], 1, 0, replace(LEAGUE_SCALE, agents=3, steps=20)
    )
    assert list(experiments) == list(CONTESTS)
    assert [problem for problem, name in refused if name == "Uniform"] == ["shared-arms"]
    assert experiments["shared-arms"].labels == ["OrchExplore", "Shared-Uniform", "Shared-Oracle"]


def test_more_agents_than_arms_with_room_for_several_are_a_reason_and_no_error():
    scale = replace(LEAGUE_SCALE, agents=31, steps=20, contests={"shared-arms": CONTESTS["shared-arms"]})
    experiments, refused = fixtures(["OrchExplore"], 1, 0, scale)
    assert not experiments
    assert "num_agents: expected at most 30" in refused["shared-arms", "OrchExplore"]


def test_peers_have_a_network_and_others_are_told_the_noise():
    experiments, _ = fixtures(POLICIES, 1, 0, SMALL)
    assert experiments["multi-armed"].network == "ring"
    sigma = {spec.name: spec.parameters.get("sigma") for spec in experiments["multi-armed"].policies}
    assert (sigma["Fed-PECD"], sigma["Uniform"]) == (0.5, None)


def test_what_is_written_is_read_by_the_other_commands(found, capsys):
    _, folder = found
    with (folder / "league.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(POLICIES) * len(SMALL.contests)
    assert len(json.loads((folder / "league.json").read_text())) == len(POLICIES) * len(SMALL.contests)
    assert (folder / "league.png").read_bytes().startswith(b"\x89PNG")
    assert main(["compare", str(folder / "trials" / "synthetic")]) == 0
    assert "Fed-PECD" in capsys.readouterr().out
    page = fb.report(folder).read_text()
    assert all(problem in page for problem in SMALL.contests)


def test_the_command(tmp_path, capsys):
    words = ["league", "--policy", "Uniform", "--policy", "Fed-PE", "--problem", "synthetic-stream"]
    sizes = ["--agents", "3", "--steps", "40", "--trials", "1", "--executor", "serial", "--out", str(tmp_path)]
    assert main([*words, *sizes]) == 0
    said = capsys.readouterr().out
    assert "synthetic-stream  Uniform" in said
    assert "1 times a policy can't play a problem" in said
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--problem", "sythetic"], "did you mean 'synthetic'"),
        (["--policy", "FedPECD"], "did you mean 'Fed-PECD'"),
        (["--agents", "0"], "--agents: expected a whole number of at least 1"),
        (["--trials", "0"], "trials: expected a whole number of at least 1"),
    ],
)
def test_mistakes_are_answered(words, said, tmp_path, capsys):
    assert main(["league", *words, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
