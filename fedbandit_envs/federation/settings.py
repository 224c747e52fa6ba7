"""What server and clients must know of a run: plain values, written into the Flower app's configuration."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.registration import make
from fedbandit_envs.federation.constants import checked_constants
from fedbandit_envs.federation.texts import shown
from fedbandit_envs.protocol.knowledge import Constants, ServerView
from fedbandit_envs.protocol.network import Network
from fedbandit_envs.protocol.policy import Policy, agents_of, hidden_for, observe_for, partner_of
from fedbandit_envs.protocol.registry import make_policy
from fedbandit_envs.rounds.checks import check_changes, check_network, check_plays
from fedbandit_envs.rounds.relay import ViaGraph
from fedbandit_envs.rounds.state import STATE_FORMAT
from fedbandit_envs.seeding import checked_seed, fresh_seed
from fedbandit_envs.storage import write_whole

Config = dict[str, str | int | float | bool]  #: what a Flower configuration can hold
_LONGEST_SEED = 1000  # the most digits of a seed in a configuration
_COMPONENTS = {
    "serverapp": "fedbandit_envs.federation.flower:server_app",
    "clientapp": "fedbandit_envs.federation.flower:client_app",
}


@dataclass(frozen=True)
class Settings:
    """All that server and clients must know of a run.

    `Settings.simulated` makes the settings of a simulation. Flower carries settings as plain values: `config` writes
    them, `of` reads them.

    >>> problem = {"num_agents": 4, "max_cycles": 30}
    >>> settings = Settings.simulated("Uniform", {}, "fedbandit/Synthetic-v0", problem, seed=1)
    >>> Settings.of(settings.config()) == settings
    True
    """

    policy: str  #: the name of a registered policy
    parameters: Mapping[str, Any]  #: the policy's parameters
    constants: Constants  #: what everybody may know about the problem
    environment: str = ""  #: the id of the simulated environment; "" when the rewards are real
    arguments: Mapping[str, Any] = field(default_factory=dict)  #: the environment's arguments
    seed: int = 0  #: the seed of the run: a simulation, and what peers draw, come from it
    #: the edges of the network, pairs of agents, for a policy that talks to peers; None: there is no network
    network: Sequence[Sequence[int]] | None = None

    @classmethod
    def simulated(
        cls,
        policy: str,
        parameters: Mapping[str, Any],
        environment: str,
        arguments: Mapping[str, Any],
        seed: int | None,
        network: Any = None,
    ) -> "Settings":
        """The settings of a simulated run; the constants are those of the environment.

        Args:
            policy: the name of a registered policy.
            parameters: the policy's parameters.
            environment: the id of an environment.
            arguments: the environment's arguments.
            seed: the seed of the simulation; None: a fresh one.
            network: who can talk to whom, for a policy that talks to peers: what `Network.of` takes.
        """
        chosen = fresh_seed() if checked_seed(seed) is None else seed
        assert chosen is not None
        made = make_policy(policy, **parameters)
        env = _environment(environment, arguments, made)
        check_plays(made, env)
        if env.unwrapped.shared_arms:
            raise ValueError(
                f"environment: expected one whose rewards each client can draw alone, got {environment}, where rewards "
                "depend on how many agents of all clients play an arm; play it in one process, with fb.play"
            )
        env.reset(seed=chosen)
        view = env.view(hidden_for(made))
        constants, edges = view.constants, None
        check_network(made, network, constants.num_agents)
        if partner_of(type(made)) == "peers":
            graph = Network.of(network, constants.num_agents, chosen)
            view, edges = replace(view, network=graph.around(view.agents)), graph.edges.tolist()
        if env.segment_steps is not None:
            check_changes(made, agents_of(made, view), env)
        with_horizon = {**arguments, "max_cycles": env.max_cycles}
        return cls(policy, parameters, constants, environment, with_horizon, chosen, edges)

    def make_policy(self) -> Policy:
        """A new policy with these parameters."""
        return make_policy(self.policy, **self.parameters)

    @property
    def graph(self) -> Network | None:
        """Who can talk to whom; None: the policy does not talk to peers."""
        policy = self.make_policy()
        check_network(policy, self.network, self.constants.num_agents)
        return None if partner_of(type(policy)) != "peers" else Network(self.network, self.constants.num_agents)

    def relay(self) -> ViaGraph | None:
        """What carries the reports of agents to their neighbours; None: the policy does not talk to peers."""
        graph = self.graph
        if graph is None:
            return None
        policy = self.make_policy()
        refuses = partial(policy.refuses, constants=self.constants)
        return ViaGraph(graph, policy.delivery, self.constants, seed=self.seed, refuses=refuses)

    @property
    def server_view(self) -> ServerView:
        """What the server knows."""
        return ServerView.of_run(self.constants, self.seed)

    def make_environment(self) -> HiddenContextBandit:
        """The environment of a simulation, at the start of the run's episode."""
        env = _environment(self.environment, self.arguments, self.make_policy())
        env.reset(seed=self.seed)
        return env

    def source(self) -> dict[str, Any]:
        """What `SimulatedRewards` needs to know."""
        policy = self.make_policy()
        return {
            "environment": self.environment,
            "arguments": dict(self.arguments),
            "seed": self.seed,
            "observes": hidden_for(policy) or observe_for(policy),
        }

    def config(self) -> Config:
        """The settings as a Flower configuration."""
        return {
            "policy": self.policy,
            "parameters": json.dumps(dict(self.parameters)),
            "constants": json.dumps(asdict(self.constants)),
            "environment": self.environment,
            "arguments": json.dumps(dict(self.arguments)),
            "seed": str(self.seed),  # as text, because a seed may be longer than 64 bits
            "network": "" if self.network is None else json.dumps(self.network),
        }

    @property
    def run(self) -> str:
        """A hash of all settings, by which server and clients know the states of this run from those of others."""
        return hashlib.sha256(json.dumps([STATE_FORMAT, self.config()], sort_keys=True).encode()).hexdigest()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Settings":
        """The settings in a Flower configuration, which comes from outside: values that no run can have are refused."""
        for name in ("policy", "constants"):
            if not config.get(name):
                raise ValueError(
                    f"run-config: expected a value for {name!r}, got none; set it in the app's pyproject.toml"
                )
        return cls(
            policy=str(config["policy"]),
            parameters=_table("parameters", config),
            constants=checked_constants(_table("constants", config)),
            environment=str(config.get("environment") or ""),
            arguments=_table("arguments", config),
            seed=_seed(str(config.get("seed") or 0)),
            network=_edges(str(config.get("network") or "null")),
        )


def _table(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    text = str(config.get(name) or "{}")
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise ValueError(f"run-config: expected a JSON object for {name!r}, got {shown(text)}")
    return table


def _seed(text: str) -> int:
    if not text.isdecimal() or len(text) > _LONGEST_SEED:
        raise ValueError(f"run-config: expected at most {_LONGEST_SEED} digits for 'seed', got {shown(text)}")
    return int(text)


def _edges(text: str) -> list[list[int]] | None:
    """The edges of a network in a configuration, as JSON; whether they make a network, `Network` checks later."""
    try:
        edges = json.loads(text)
    except (ValueError, RecursionError):
        edges = text
    if edges is not None and not isinstance(edges, list):
        raise ValueError(f"run-config: expected pairs of agents in JSON for 'network', got {shown(text)}")
    return edges


def _environment(environment: str, arguments: Mapping[str, Any], policy: Policy) -> HiddenContextBandit:
    observe = observe_for(policy)
    return make(environment, **arguments, observe=observe)


def write_app(folder: str | Path, config: Config) -> None:
    """Write the app that `flwr run` takes: a configuration that names the apps of this package, and no code.

    Beside the settings, the configuration lists the owners of the agents. It may hold the quorum, the timeout of a turn
    in seconds, and the server's folder for its state and its audit trail.

    Example: `write_app("app", {**settings.config(), "owners": json.dumps({"SHA256:...": [0, 1]})})`.
    """
    app = {
        "project": {
            "name": "fedbandit",
            "version": "1.0.0",
            "description": "A federated bandit",
            "license": "MIT",
            "dependencies": [],
        },
        "tool": {"flwr": {"app": {"publisher": "fedbandit", "components": _COMPONENTS, "config": config}}},
    }
    write_toml(Path(folder) / "pyproject.toml", app)


def write_toml(file: Path, content: Mapping[str, Any]) -> None:
    """Write a TOML file, and create its folder if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, tomli_w.dumps(content).encode())
