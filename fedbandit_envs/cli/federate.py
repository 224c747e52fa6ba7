"""The command `fedbandit federate`."""

import argparse
import time
from typing import Any

from fedbandit_envs.cli.options import pair_of, policy_of
from fedbandit_envs.envs.ids import id_of

HELP = "Run agents in processes of their own, over Flower, on this machine; needs the extra `flower`."
EXAMPLES = ("fedbandit federate --policy Fed-PECD --agents 8 --clients 4 --set max_cycles=30",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit federate`."""
    parser.add_argument("--policy", required=True, metavar="'NAME KEY=VALUE ...'", help="with its parameters")
    parser.add_argument("--env", default="Synthetic", metavar="ID", help="the environment (default: %(default)s)")
    parser.add_argument("--agents", type=int, metavar="M", help="default: the environment's")
    parser.add_argument("--clients", type=int, metavar="N", help="default: one for each agent")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an environment's argument")
    parser.add_argument(
        "--network", metavar="GRAPH", help="who can talk to whom, for policies that talk to peers, such as ring"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="default: %(default)s")
    parser.add_argument(
        "--quorum",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="the least share of agents that must be heard in a turn (default: %(default)s)",
    )
    parser.add_argument(
        "--timeout", type=float, default=120, metavar="SECONDS", help="how long a turn may take (default: %(default)s)"
    )
    parser.add_argument(
        "--shared-network",
        action="store_true",
        help="let Flower listen where every user of this machine can submit code to it (default: a private network)",
    )
    parser.add_argument("--out", metavar="FOLDER", help="states and logs; a run that stopped goes on from there")


def run(options: argparse.Namespace) -> int:
    """Run the federation, show each turn as it ends, and show the regret and the communication at the end."""
    from fedbandit_envs.federation.one_machine import federate
    from fedbandit_envs.federation.settings import Settings

    arguments = dict(pair_of(text) for text in options.set)
    if options.agents is not None:
        arguments["num_agents"] = options.agents
    spec = policy_of(options.policy)
    problem = id_of(options.env), arguments, options.seed
    settings = Settings.simulated(spec.name, spec.parameters, *problem, network=options.network)
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

    history = federate(
        settings,
        clients,
        out=options.out,
        quorum=options.quorum,
        timeout=options.timeout,
        private_network=not options.shared_network,
        on_progress=show,
    )
    ledger = history.ledger
    between = f", {ledger.bytes_peer} between peers" if ledger.bytes_peer else ""
    print(
        f"regret per agent {history.mean_regret()[-1]:.4g}, worst {history.worst_regret()[-1]:.4g}; {ledger.rounds} "
        f"rounds, {ledger.bytes_up} bytes up, {ledger.bytes_down} down{between}; {len(history.faults)} reports lost"
    )
    return 0
