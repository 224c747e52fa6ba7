"""Every registered policy explains itself: `help`, `fedbandit list NAME` and its page are made of its docstring."""

import re

import pytest

from fedbandit_envs.protocol.registry import policy_class, policy_names

NAMES = [name for name in policy_names() if not name.startswith("Test-")]
YARDSTICKS = {"Oracle", "Uniform", "Shared-Oracle", "Shared-Uniform"}


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_has_an_example_and_a_first_line_that_stands_alone(name: str) -> None:
    text = policy_class(name).__doc__ or ""
    assert f'fb.make_policy("{name}"' in text
    assert text.splitlines()[0].endswith(".")
    assert not text.splitlines()[1]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in YARDSTICKS])
def test_every_policy_says_where_it_comes_from_and_what_is_proved(name: str) -> None:
    text = " ".join((policy_class(name).__doc__ or "").split())
    assert re.search(r"\b(Reference: |belongs to this library)", text)
    assert re.search(r"\b(proves|proved|proof|promise[sd]?|theorem|no guarantee)\b", text)
