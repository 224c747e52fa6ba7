"""The state of a run between two turns, as a tree that can be stored, and whether a state belongs to a run."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.messages import State
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.policy import Policy
from fedbandit_envs.protocol.registry import address, policy_parameters
from fedbandit_envs.rounds.faults import Faults

#: Raised when sides keep what they know in another form: a run that was stopped before does not go on then.
STATE_FORMAT = 2


def numbered(values: Sequence[Any]) -> State:
    """A list as a tree, whose branches are numbers.

    >>> numbered(["a", "b"])
    {'0': 'a', '1': 'b'}
    """
    return {str(number): value for number, value in enumerate(values)}


def in_order(tree: State) -> list[Any]:
    """The list of a `numbered` tree, whatever the order of its branches.

    >>> in_order({"10": "c", "9": "b"})
    ['b', 'c']
    """
    return [tree[number] for number in sorted(tree, key=int)]


def check_same_form(state: State, blocks: Sequence[IntArray], record: bool) -> None:
    """Refuse a state of agents in other blocks, and one without messages for a run that records them."""
    mine, got = ([rows.tolist() for rows in own] for own in (blocks, in_order(state["blocks"])))
    if got != mine:
        raise ValueError(f"state: expected the blocks {mine}, got {got}; use the same blocks")
    if record and not state["recorded"]:
        raise ValueError("state: expected one of a run with record=True, got one without its messages; record both")


def run_fingerprint(policy: Policy, constants: Constants, network: Network | None, faults: Faults | None) -> str:
    """A hash of all that decides a run but its seed, by which a state knows its run.

    That is the policy, its parameters, the constants of its problem, its network and its faults, and the form in which
    sides keep what they know. A parameter that is no plain value counts with the name of its class.
    """
    parameters = {name: getattr(policy, name) for name in policy_parameters(type(policy))}
    shared = [asdict(constants), network.digest if network else None, (faults or Faults()).plain()]
    deciding = [STATE_FORMAT, address(type(policy)), parameters, *shared]
    return hashlib.sha256(json.dumps(deciding, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else address(type(value))


def check_same_run(expected: str, got: Any, what: str) -> None:
    """Refuse the state of another run.

    Args:
        expected: the hash of this run.
        got: the hash in the state.
        what: what must be the same in both runs, for the message.
    """
    if got != expected:
        raise ValueError(
            f"state: expected one of this run ({expected[:12]}), got one of another run ({str(got)[:12]}): {what} must "
            "be the same; start anew, or go on with the settings of that run"
        )
