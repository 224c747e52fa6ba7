"""Every registered policy explains itself: `help`, `fedbandit list NAME` and its page are made of its docstring."""

import pytest

from fedbandit_envs.protocol.registry import policy_class, policy_names


@pytest.mark.parametrize("name", [name for name in policy_names() if not name.startswith("Test-")])
def test_every_policy_has_an_example_and_a_first_line_that_stands_alone(name: str) -> None:
    text = policy_class(name).__doc__ or ""
    assert f'fb.make_policy("{name}"' in text
    assert text.splitlines()[0].endswith(".")
    assert not text.splitlines()[1]
