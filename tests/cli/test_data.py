"""`fedbandit data`: from a csv file to a problem that runs."""

from pathlib import Path

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.cli.main import main


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    user, item = np.divmod(np.arange(400), 20)
    stars = 1 + 3 * (user % 2 == item % 2) + rng.integers(2, size=400)
    rows = "".join(f"{u};{i};{s}\n" for u, i, s in zip(user, item, stars, strict=True))
    path = tmp_path / "ratings.csv"
    path.write_text(f"who;film;stars\n{rows}")
    return path


COLUMNS = ["--user", "who", "--item", "film", "--rating", "stars", "--arms", "2", "--dim", "2"]


def test_ratings_become_a_problem_that_runs(
    ratings: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ratings.parent)
    assert main(["data", "ratings", "ratings.csv", *COLUMNS, "--agents", "6", "--out", "my.npz"]) == 0
    told = capsys.readouterr().out
    assert "400 ratings of 20 items by 20 users" in told
    assert "written to my.npz; next: fedbandit run --env File --set path=my.npz" in told
    names = {"user": "who", "item": "film", "rating": "stars"}
    problem = fb.from_ratings("ratings.csv", **names, num_arms=2, dim=2, num_agents=6)
    assert f"rewards are ratings times {problem.report.reward_per_rating:.3g}\n" in told
    assert f"noise_std of the rewards: {problem.noise_std:.3g}\n" in told
    assert f"--policy 'Fed-PECD sigma={problem.noise_std:.3g}'" in told
    problem.save("same.npz")
    assert Path("my.npz").read_bytes() == Path("same.npz").read_bytes()
    settings = ["--set", "path=my.npz", "--set", "max_cycles=64", "--trials", "1", "--executor", "serial"]
    assert main(["run", "--env", "File", "--policy", "Fed-PECD", *settings]) == 0
    assert "Fed-PECD" in capsys.readouterr().out


def test_every_option_of_ratings_has_its_effect(ratings: Path, tmp_path: Path) -> None:
    out = tmp_path / "my.npz"
    options = ["--hidden", "household", "--noise-std", "0.5", "--agents", "3", "--seed", "2", "--delimiter", ";"]
    assert main(["data", "ratings", str(ratings), *COLUMNS, *options, "--out", str(out)]) == 0
    rng = np.random.default_rng(0)
    instance = fb.File(str(out)).instance(rng, rng)
    assert isinstance(instance.distribution, fb.Discrete)
    assert (instance.num_agents, instance.noise_std) == (3, 0.5)
    assert main(["data", "ratings", str(ratings), *COLUMNS, "--context-std", "0.2", "--out", str(out)]) == 0
    spread = fb.File(str(out)).instance(rng, rng).distribution
    assert isinstance(spread, fb.Gaussian)
    assert np.all(spread.std == 0.2)


def test_a_labelled_table_becomes_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    rows = "".join(f"{a},{b},{c},{'yes' if a + b > 0 else 'no'}\n" for a, b, c in x)
    (tmp_path / "rows.csv").write_text(f"a,b,id,kind\n{rows}")
    words = ["--label", "kind", "--hide", "b", "--features", "a, b", "--out", str(tmp_path / "my.npz")]
    assert main(["data", "classification", str(tmp_path / "rows.csv"), *words]) == 0
    assert "60 rows, 2 labels" in capsys.readouterr().out
    assert fb.make("fedbandit/File-v0", path=str(tmp_path / "my.npz")).dim == 3  # a, b and the constant


def test_a_fault_of_the_table_is_told_in_one_line(
    ratings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "my.npz"
    wrong = ["--user", "woh", *COLUMNS[2:]]
    assert main(["data", "ratings", str(ratings), *wrong, "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        "fedbandit: error: user: expected a column among who, film, stars, got 'woh'; did you mean 'who'?\n"
    )
    assert not out.exists()
    made = tmp_path / "new folder" / "my.npz"
    assert main(["data", "ratings", str(ratings), *COLUMNS, "--out", str(made)]) == 0
    assert made.is_file()
