"""The command `fedbandit federate`."""

import argparse
import time
from typing import Any

from fedbandit_envs.cli.options import id_of, pair_of, policy_of
from fedbandit_envs.federation.local import federate as run_federation
from fedbandit_envs.federation.settings import Settings


def federate(options: argparse.Namespace) -> int:
    """Run, show each turn as it ends, and what came of it."""
    arguments = dict(pair_of(text) for text in options.set)
    if options.agents is not None:
        arguments["num_agents"] = options.agents
    spec = policy_of(options.policy)
    settings = Settings.simulated(spec.name, spec.parameters, id_of(options.env), arguments, options.seed)
    constants = settings.constants
    clients = constants.num_agents if options.clients is None else options.clients
    start = time.monotonic()
    print(f"{spec.label}: {constants.num_agents} agents, {clients} clients, {constants.horizon} steps", flush=True)

    def show(turn: dict[str, Any]) -> None:
        seconds = f"{time.monotonic() - start:.0f} s"
        print(
            f"turn {turn['turn']}: step {turn['step']} of {constants.horizon}, heard {turn['heard']} of "
            f"{constants.num_agents} agents ({seconds})",
            flush=True,
        )
        for agent, number, reason in turn["faults"]:
            print(f"  agent {agent}, round {number}: {reason}", flush=True)

    history = run_federation(
        settings, clients, out=options.out, quorum=options.quorum, timeout=options.timeout, on_progress=show
    )
    ledger = history.ledger
    print(
        f"regret per agent {history.mean_regret()[-1]:.4g}, worst {history.worst_regret()[-1]:.4g}; {ledger.rounds} "
        f"rounds, {ledger.bytes_up} bytes up, {ledger.bytes_down} down; {len(history.faults)} reports lost"
    )
    return 0
