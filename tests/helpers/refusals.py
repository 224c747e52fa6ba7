"""What a refusal must say: what was expected, what came, and what to do."""

from collections.abc import Callable
from typing import Any

import pytest


def assert_refused(call: Callable[[], Any], *parts: str) -> str:
    """`call` raises a ValueError whose message has all three, and each of `parts`."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is checked below
        call()
    message = str(caught.value)
    expected, _, rest = message.partition("got ")
    assert "expected " in expected, message
    assert rest, message
    assert "; " in rest, f"no remedy: {message}"
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"
    return message
