"""An experiment is data: what can be written, read back, resolved and refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from experiment_policies import small
from hypothesis import given
from hypothesis import strategies as st

import fedbandit_envs as fb
from fedbandit_envs.experiments.identity import run_identities
from fedbandit_envs.experiments.settings_files import ExperimentError


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_an_experiment_survives_the_way_through_a_file(tmp_path: Path, suffix: str) -> None:
    policies = ["Uniform", {"name": "Fed-PECD", "parameters": {"delta": 0.05}, "label": 'tight "δ"'}]
    written = fb.Experiment("fedbandit/Synthetic-v0", policies, {"gap": (0.1, 0.2), "dim": 4}, trials=7, seed=2**70)
    written.write(tmp_path / f"one{suffix}")
    assert fb.Experiment.read(tmp_path / f"one{suffix}") == written


# What can't be printed is refused: tests/experiments/test_labels.py.
printable = st.characters(codec="utf-8", exclude_categories=("C", "Z"), include_characters=" \n")
plain_values = st.recursive(
    st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(printable, max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.text(printable, min_size=1, max_size=6), plain_values, max_size=3))
def test_any_plain_data_that_can_be_printed_survives_toml(arguments: dict[str, Any]) -> None:
    import tomllib

    for name in ("observe", "render_mode"):
        arguments.pop(name, None)
    experiment = fb.Experiment("any", ["any"], arguments)
    assert fb.Experiment.from_table(tomllib.loads(experiment.text())) == experiment


def test_resolving_writes_out_every_default_and_changes_nothing() -> None:
    resolved = small().resolved()
    assert resolved.arguments["context_std"] == 0.05
    assert resolved.policies[1].parameters["delta"] == 0.1
    assert resolved.resolved() == resolved
    assert run_identities(resolved) == run_identities(small())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"policies": []}, "policies: expected a list of one or more"),
        ({"policies": "Oracle"}, r"got 'Oracle'; use \['Oracle'\]"),
        ({"policies": "Uniform"}, "policies: expected a list"),
        ({"policies": ["Uniform", "Uniform"]}, "expected different labels, got 'Uniform' 2 times"),
        ({"policies": [{"label": "x"}]}, "tables with a name"),
        ({"policies": [{"name": "Uniform", "parameter": {}}]}, "did you mean 'parameters'"),
        ({"policies": [{"name": ["x"]}]}, r"name of a policy: expected text, got \['x'\]"),
        ({"trials": 10**18}, "trials: expected at most 1,000,000"),
        ({"trials": 0}, "trials: expected a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"arguments": {"observe": "context"}}, "expected what every policy shares, got 'observe'"),
        ({"arguments": {"theta": object()}}, "an experiment is plain data"),
        ({"arguments": {"noise_std": float("nan")}}, "expected a finite number"),
    ],
)
def test_malformed_experiments_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fb.Experiment(**({"environment": "fedbandit/Synthetic-v0", "policies": ["Uniform"]} | fields))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environment": "fedbandit/Synthetc-v0"}, "did you mean 'fedbandit/Synthetic-v0'"),
        ({"policies": ["Fed-PEDC"]}, "did you mean 'Fed-PECD'"),
        ({"policies": [{"name": "Fed-PE", "parameters": {"dleta": 1}}]}, "did you mean 'delta'"),
        ({"arguments": {"num_agent": 3}}, "did you mean 'num_agents'"),
        ({"policies": ["Fed-PE"], "arguments": {"context": "resampled"}}, "expected 'distribution' with resampled"),
    ],
)
def test_what_would_fail_in_every_trial_is_refused_before_any(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    fields = {"environment": "fedbandit/Synthetic-v0", "policies": ["Uniform"]} | changes
    with pytest.raises(ValueError, match=message):
        fb.run(fb.Experiment(**fields), tmp_path / "out", "serial")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("environment = ", "expected TOML, got Invalid value"),
        ("environment = 'x'\n", "expected the key 'policies'"),
        ("environment = 'x'\npolicies = ['y']\ntrial = 3\n", "did you mean 'trials'"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ExperimentError, match=message) as caught:
        fb.Experiment.read(tmp_path / "bad.toml")
    assert "bad.toml" in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ExperimentError, match=r"nowhere\.toml: expected a readable experiment file, got No such file"):
        fb.Experiment.read("nowhere.toml")


def test_json_is_read_as_toml_is(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_text(json.dumps({"environment": "fedbandit/Synthetic-v0", "policies": ["Uniform"]}))
    assert fb.Experiment.read(tmp_path / "e.json").labels == ["Uniform"]
