"""A new policy is a few lines: the example of the documentation, run as it stands there."""

import ast
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import fedbandit_envs as fb
from fedbandit_envs.protocol import registry
from fedbandit_envs.testing.check import check_policy

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-policy.md"


def block_with(text):
    """The first Python block of the page with this text in it."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    found = [block for block in blocks if text in block]
    assert found, f"{PAGE} has no Python block with {text}"
    return found[0]


@pytest.fixture(scope="module")
def example():
    return block_with("register_policy(")


@pytest.fixture(scope="module")
def played(example):
    """The name that the example registers, and what it prints."""
    before, printed = set(fb.policy_names()), StringIO()
    with redirect_stdout(printed):
        exec(compile(example, str(PAGE), "exec"), {"__name__": "example_of_the_page"})
    (name,) = set(fb.policy_names()) - before
    yield name, printed.getvalue()
    del registry._registered[name]  # other tests go through all registered policies


def test_the_policy_is_at_most_twenty_lines(example):
    lines = example.splitlines()
    classes = [node for node in ast.parse(example).body if isinstance(node, ast.ClassDef)]
    assert classes
    length = 0
    for node in classes:
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        length += sum(bool(line.strip()) for line in lines[first - 1 : node.end_lineno])
    assert length <= 20


def test_the_example_shows_its_result(example, played):
    _, printed = played
    assert re.search(r"\d", printed)
    assert all(len(line) <= 120 for line in example.splitlines())


def test_it_plays_by_name_and_speaks_through_the_channel(played):
    name, _ = played
    env = fb.make("fedbandit/Synthetic-v0", num_agents=6, num_arms=4, max_cycles=2**11)
    history = fb.play(env, fb.make_policy(name), seed=1)
    assert (history.pulls[-1].sum(axis=1) == 2**11).all()
    assert history.ledger.scalars > 0
    assert history.mean_regret()[-1] < fb.play(env, fb.make_policy("Uniform"), seed=1).mean_regret()[-1] / 2


def test_it_passes_check_policy(played):
    name, _ = played
    assert "no fault" in check_policy(fb.make_policy(name))


@pytest.mark.slow
def test_the_agents_that_decide_step_by_step_pass_check_policy_and_learn():
    names = {"__name__": "example_of_the_page", "fb": fb, "np": np, "dataclass": dataclass}
    exec(compile(block_with("fb.StepAgents"), str(PAGE), "exec"), names)
    policy = names["EpsilonGreedy"]()
    assert "no fault" in check_policy(policy)
    env = fb.make("fedbandit/Synthetic-v0", num_agents=20, num_arms=4, noise_std=0.1, max_cycles=500)
    uniform = fb.play(env, fb.make_policy("Uniform"), seed=1).mean_regret()[-1]
    assert fb.play(env, policy, seed=1).mean_regret()[-1] < uniform / 2
