"""The examples in the docstrings of experiments and reports say what happens."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "experiments.executors.local",
        "experiments.experiment",
        "experiments.results",
        "experiments.running",
        "reports.plotting",
    ],
)
def test_examples_give_what_they_show(module: str) -> None:
    found = doctest.testmod(import_module(f"fedbandit_envs.{module}"))
    assert found.attempted
    assert not found.failed
