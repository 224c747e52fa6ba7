"""Tests for policies of one's own: `check_policy` says what is wrong with one."""

from fedbandit_envs.testing.check import check_policy
from fedbandit_envs.testing.watching import PolicyFault

__all__ = ["PolicyFault", "check_policy"]
