"""The examples in the docstrings of the policies do what they say."""

import doctest
from importlib import import_module
from pkgutil import walk_packages

import pytest

import fedbandit_agents
import fedbandit_baselines
from fedbandit_envs.protocol.registry import policy_class, policy_names

MODULES = [
    found.name
    for package in (fedbandit_agents, fedbandit_baselines)
    for found in walk_packages(package.__path__, f"{package.__name__}.")
    if not found.name.endswith("_compiled")  # they need numba, and have no examples
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run_as_they_stand(name):
    assert doctest.testmod(import_module(name)).failed == 0


@pytest.mark.parametrize("name", policy_names())
def test_every_policy_has_an_example_and_a_first_line_that_stands_alone(name):
    text = policy_class(name).__doc__
    assert f'fb.make_policy("{name}")' in text
    assert text.splitlines()[0].endswith(".")
    assert not text.splitlines()[1]
