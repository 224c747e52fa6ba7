"""Every example in a docstring of the packages does what it says."""

import doctest
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

import pytest

import fedbandit_agents
import fedbandit_baselines
import fedbandit_envs

# These modules have no examples, and import a library that may not be here.
WITHOUT_EXAMPLES = ("_compiled", ".flower", ".federation.keys", ".__main__")


def modules_of(package: ModuleType) -> list[str]:
    found = [module.name for module in walk_packages(package.__path__, f"{package.__name__}.")]
    return [name for name in found if not name.endswith(WITHOUT_EXAMPLES)]


@pytest.mark.parametrize(
    "name",
    [name for package in (fedbandit_envs, fedbandit_agents, fedbandit_baselines) for name in modules_of(package)],
)
def test_examples_give_what_they_show(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


def test_examples_are_found() -> None:
    """An import that finds nothing would make the test above pass for ever."""
    assert doctest.testmod(import_module("fedbandit_agents.phased.fed_pecd")).attempted > 0
