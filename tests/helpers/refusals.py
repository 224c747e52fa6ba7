"""What a refusal must say: what was expected and what came; a remedy only where there is one."""

from collections.abc import Callable
from typing import Any

import pytest


def assert_refused(call: Callable[[], Any], *parts: str) -> str:
    """`call` raises a ValueError whose message has both, and each of `parts`."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is checked below
        call()
    message = str(caught.value)
    expected, _, rest = message.partition("got ")
    assert "expected " in expected, message
    assert rest, message
    for part in parts:
        assert part in message, f"{part!r} is not in: {message}"
    return message
