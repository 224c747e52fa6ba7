"""Every example in a docstring of the packages does what it says."""

import doctest
import inspect
from dataclasses import fields, is_dataclass
from importlib import import_module
from pkgutil import walk_packages
from types import FunctionType, ModuleType

import pytest

import fedbandit_agents
import fedbandit_baselines
import fedbandit_envs
from fedbandit_envs.cli.field_comments import field_comments
from fedbandit_envs.cli.list_names import explanation

# These modules have no examples, and import a library that may not be here.
WITHOUT_EXAMPLES = ("_compiled", ".flower", ".federation.keys", ".__main__")


def modules_of(package: ModuleType) -> list[str]:
    found = [module.name for module in walk_packages(package.__path__, f"{package.__name__}.")]
    return [package.__name__, *(name for name in found if not name.endswith(WITHOUT_EXAMPLES))]


PACKAGES = (fedbandit_envs, fedbandit_agents, fedbandit_baselines)


@pytest.mark.parametrize("name", [name for package in PACKAGES for name in modules_of(package)])
def test_examples_give_what_they_show(name: str) -> None:
    assert doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS).failed == 0


NEEDS_TORCH = {"from_sb3", "from_torchrl"}  # their examples are run by the tests of these libraries


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_class_and_function_shows_how_it_is_used(package: ModuleType) -> None:
    things = {name: getattr(package, name) for name in package.__all__}
    documented = {
        name: thing.__doc__ or "" for name, thing in things.items() if isinstance(thing, (type, FunctionType))
    }
    without = {name for name, text in documented.items() if ">>>" not in text}
    assert without - NEEDS_TORCH == set()
    assert {name for name, text in documented.items() if not text.split("\n")[0].endswith(".")} == set()


def prose(thing: object) -> list[str]:
    """The lines of a docstring but for blank ones, its Args and its examples."""
    paragraphs = inspect.getdoc(thing).split("\n\n")
    told = [paragraph for paragraph in paragraphs if not paragraph.startswith((">>>", "Args:"))]
    return [line for paragraph in told for line in paragraph.splitlines() if line]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_class_says_in_three_to_eight_lines_what_it_is_for(package: ModuleType) -> None:
    classes = {name: thing for name in package.__all__ if isinstance(thing := getattr(package, name), type)}
    lines = {name: len(prose(one)) for name, one in classes.items()}
    assert {name: number for name, number in lines.items() if not 3 <= number <= 8} == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_field_of_a_public_dataclass_is_explained(package: ModuleType) -> None:
    classes = {name: thing for name in package.__all__ if is_dataclass(thing := getattr(package, name))}
    assert len(classes) > 3
    asked_for = {name: [one.name for one in fields(thing) if one.init] for name, thing in classes.items()}
    explained = {name: set(field_comments(thing)) for name, thing in classes.items()}
    silent = {name: set(asked_for[name]) - explained[name] for name in classes}
    assert {name: missing for name, missing in silent.items() if missing} == {}


# Other tests register policies and problems of their own, when the whole suite runs.
REGISTERED = [*fedbandit_envs.policy_names(), *fedbandit_envs.environment_ids()]


@pytest.mark.parametrize("name", [name for name in REGISTERED if "Test-" not in name])
def test_every_parameter_of_each_policy_and_problem_is_explained_where_it_stands(name: str) -> None:
    about = explanation(name)
    assert {parameter for parameter in about.parameters if len(about.comments.get(parameter, "").split()) < 2} == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_function_explains_what_it_takes(package: ModuleType) -> None:
    functions = {name: thing for name in package.__all__ if isinstance(thing := getattr(package, name), FunctionType)}
    takes = {name: function for name, function in functions.items() if inspect.signature(function).parameters}
    assert {name for name, function in takes.items() if "Args:" not in (function.__doc__ or "")} == set()


def test_examples_are_found() -> None:
    """An import that finds nothing would make the test above pass for ever."""
    assert doctest.testmod(import_module("fedbandit_agents.phased.fed_pecd")).attempted > 0
