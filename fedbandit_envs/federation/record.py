"""The history of a simulated federation, put together from the states of its server and clients.

This is for simulations, where one machine may read all states. In a real federation each client keeps its own record.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fedbandit_envs import storage
from fedbandit_envs.federation.settings import Settings
from fedbandit_envs.problems.regrets import all_gaps
from fedbandit_envs.problems.segments import summed_regrets
from fedbandit_envs.rounds.checkpoints import Marks
from fedbandit_envs.rounds.count_tables import CountTables
from fedbandit_envs.rounds.faults import faults_from_tree
from fedbandit_envs.rounds.history import History
from fedbandit_envs.rounds.ledger import Ledger


def collected(settings: Settings, folder: Path) -> History:
    """The history of the run in the folder of a local federation.

    The pulls of a client that never came back end where the client ended.

    Args:
        settings: the run.
        folder: the folder that `federate` was given as `out`.
    """
    server = storage.load(folder / "server" / "state.npz")
    states = [storage.load(file) for file in sorted(folder.glob("clients/*/state.npz"))]
    constants = settings.constants
    steps = max((state["checkpoints"]["steps"] for state in states), key=len)
    shape = (len(steps), constants.num_agents)
    kind = states[0]["checkpoints"]["pulls"]["start"].dtype
    pulls = np.zeros((*shape, constants.num_arms), dtype=kind)
    regrets = np.zeros((len(summed_regrets()), *shape))
    marks = Marks(*(np.full(shape, value, dtype=np.int64) for value in (constants.num_arms, 1, -1)))
    for state in states:
        kept = state["checkpoints"]
        if len(kept["steps"]):
            own = np.array(list(CountTables.from_tree(kept["pulls"])))
            pulls[:, state["agents"]] = _held(own, len(steps))
            if len(kept["regret"]):  # regret is kept only where contexts change
                regrets[:, :, state["agents"]] = _held(kept["regret"], len(steps)).swapaxes(0, 1)
            for name, mark in marks._asdict().items():
                mark[:, state["agents"]] = _held(kept[name], len(steps))
    env = settings.make_environment()
    changing = env.episode.segments is not None
    tables = CountTables(np.zeros(pulls.shape[1:], dtype=kind))
    for table in pulls:
        tables.add(table)
    history = History(
        policy=settings.make_policy(),
        constants=constants,
        steps=steps,
        tables=tables,
        **marks._asdict(),
        gaps={} if changing else all_gaps(env.instance),
        ledger=Ledger.restored(server["ledger"]),
        faults=tuple(faults_from_tree(server["faults"])),
        summed=dict(zip(summed_regrets(), regrets, strict=True)) if changing else {},
    )
    return history.counted_from(states[0]["uncounted"]) if len(steps) else history


def _held(values: Any, length: int) -> Any:
    """The values (C, ...) of the first checkpoints, with the last value repeated up to `length` checkpoints."""
    return np.concatenate([values, np.repeat(values[-1:], length - len(values), axis=0)])
