"""The history of a federated run, put together from what server and clients have kept: for simulations, where one
machine may read all of it. In the world each client has its own record, and nobody has them all."""

from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs import storage
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.rounds.faults import faults_from_tree
from fedbandit_envs.rounds.history import History
from fedbandit_envs.rounds.ledger import Ledger


def collected(settings: Settings, folder: Path) -> History:
    """The history in the folder of a local federation. A client that never came back has the pulls that it had."""
    server = storage.load(folder / "server" / "state.npz")
    states = [storage.load(file) for file in sorted(folder.glob("clients/*/state.npz"))]
    constants = settings.constants
    steps = max((state["checkpoints"]["steps"] for state in states), key=len)
    shape = (len(steps), constants.num_agents)
    pulls = np.zeros((*shape, constants.num_arms), dtype=np.int64)
    active = np.full(shape, constants.num_arms, dtype=np.int64)
    for state in states:
        kept = state["checkpoints"]
        if len(kept["steps"]):
            pulls[:, state["agents"]] = _held(kept["pulls"], len(steps))
            active[:, state["agents"]] = _held(kept["active"], len(steps))
    instance = settings.make_environment().instance
    history = History(
        policy=settings.make_policy(),
        constants=constants,
        steps=steps,
        pulls=pulls,
        active=active,
        gaps={kind: instance.gaps(kind) for kind in REGRETS},
        ledger=Ledger.restored(server["ledger"]),
        faults=tuple(faults_from_tree(server["faults"])),
    )
    return history.counted_from(states[0]["uncounted"]) if len(steps) else history


def _held(values: Any, length: int) -> Any:
    """Values at the first checkpoints, the last of them repeated to `length`."""
    return np.concatenate([values, np.repeat(values[-1:], length - len(values), axis=0)])
