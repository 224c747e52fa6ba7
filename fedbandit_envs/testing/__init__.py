"""Tests for policies of one's own: `check_policy` says what is wrong with one."""

from fedbandit_envs.testing.check import PolicyFault, check_policy

__all__ = ["PolicyFault", "check_policy"]
