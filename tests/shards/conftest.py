"""Groups of rows that are so small that the shards of a short run hold whole groups."""

import pytest

from fedbandit_envs import arrays, seeding
from fedbandit_envs.shards import bandit


@pytest.fixture
def small_groups(monkeypatch):
    """Groups of random numbers and of sums have 4 rows instead of 4096, in this process, where the shards live too."""
    for module in (seeding, bandit):
        monkeypatch.setattr(module, "GROUP", 4)
    monkeypatch.setattr(arrays, "ROWS", 4)
