"""An experiment is data: an environment, policies, trials and a seed, readable and writable as TOML or JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedbandit_envs.arrays import short
from fedbandit_envs.envs.ids import id_of
from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.envs.registration import make, problem_class
from fedbandit_envs.experiments.settings_files import (
    ExperimentError,
    as_default,
    check_keys,
    check_label,
    check_text,
    defaults_of,
    plain,
    plain_table,
    read_table,
    shortened,
)
from fedbandit_envs.protocol.policy import Policy, observe_for, partner_of
from fedbandit_envs.protocol.registry import make_policy, policy_parameters
from fedbandit_envs.rounds.attacks import Attackers
from fedbandit_envs.rounds.faults import Faults
from fedbandit_envs.rounds.loop import CommunicationRounds
from fedbandit_envs.seeding import derived_seed
from fedbandit_envs.shards.hosts import HOSTS
from fedbandit_envs.shards.rounds import ShardedRounds
from fedbandit_envs.storage import write_whole
from fedbandit_envs.validation import one_of, whole_number

PACKAGE = "fedbandit-envs"
MOST_TRIALS = 10**6  # a larger number is a mistake, and listing so many trials can take all memory
_CHOSEN_BY_RUN = ("observe", "render_mode")
_OF_RUNS = ("dropout", "attackers", "attack", "network", "edge_dropout")  # what happens to reports on their way
_MAY_GROW = ("policies", "trials", "audited", "seed")  # a folder of results can get more of these
_CHANGES_NOTHING = ("shards", "shards_on")  # how runs are computed; their numbers are the same
_OF_FOLDERS = ("format", "checksum", "runs")  # keys that only the file in a folder of results has


@dataclass(frozen=True)
class PolicySpec:
    """A policy in an experiment: its name, its parameters, and what to call it in tables and figures.

    Use it where one policy appears twice with different parameters, or needs a shorter label. Labels name the rows of
    all tables, so those of an experiment must differ.

    >>> PolicySpec("Fed-PECD", {"delta": 0.05}).label
    'Fed-PECD (delta=0.05)'
    >>> PolicySpec("Fed-PECD", {"delta": 0.05}, label="tight").make().delta
    0.05
    """

    name: str  #: the name of an installed or registered policy, or "module:Class"
    parameters: Mapping[str, Any] = field(default_factory=dict)  #: the parameters that differ from their defaults
    label: str = ""  #: the name in tables and figures; by default the name and the parameters

    def __post_init__(self) -> None:
        check_text("name of a policy", self.name)
        check_label(f"label of {self.name}", self.label)
        object.__setattr__(self, "parameters", plain_table(f"parameters of {self.name}", self.parameters))
        object.__setattr__(self, "label", self.label or shortened(self._default_label()))

    def _default_label(self) -> str:
        changed = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        name = self.name.rpartition(":")[2]  # the class of "module:Class"
        return f"{name} ({changed})" if changed else name

    @classmethod
    def of(cls, value: "str | Mapping[str, Any] | PolicySpec") -> "PolicySpec":
        """From a name, a table with name, parameters and label, or a spec."""
        if isinstance(value, PolicySpec):
            return value
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, Mapping) or "name" not in value:
            raise ExperimentError(
                f"policies: expected names, or tables with a name, got {value!r}; "
                "use {'name': 'Fed-PECD', 'parameters': {'delta': 0.1}}"
            )
        check_keys("policies", value, ("name", "parameters", "label"))
        return cls(**value)

    def make(self) -> Policy:
        """The policy itself."""
        return make_policy(self.name, **self.parameters)


@dataclass(frozen=True)
class Experiment:
    """Policies that meet the same instances: trial k draws all its random numbers from (seed, k).

    An experiment is plain data: `write` and `read` keep it as TOML or JSON, and `run` computes it. What agents are
    shown (`observe`) is no argument here, because each policy gets what it `observes`.

    >>> arguments = {"num_agents": 100, "max_cycles": 2**17}
    >>> experiment = Experiment("fedbandit/Synthetic-v0", ["Fed-PECD", "Fed-PE"], arguments, trials=20)
    >>> experiment.labels
    ['Fed-PECD', 'Fed-PE']
    >>> experiment.with_argument("num_agents", 50).arguments["num_agents"]
    50
    """

    environment: str  #: the id of an environment; "Synthetic" stands for "fedbandit/Synthetic-v0"
    policies: Sequence[PolicySpec]  #: specs, names, or tables with name, parameters and label
    arguments: Mapping[str, Any] = field(default_factory=dict)  #: the environment's arguments that differ from defaults
    trials: int = 10  #: the number of trials
    seed: int = 0  #: the seed from which the seeds of all trials are derived
    audited: int = 0  #: the runs of the first `audited` trials are also checked against theory, which takes longer
    dropout: float = 0.0  #: the probability that an agent's report to the server is lost, in each round
    attackers: float = 0.0  #: the share of agents whose reports are false
    attack: str = "sign-flip"  #: what these agents report: see `Attackers.kind`
    network: str = ""  #: who can talk to whom, for policies that talk to peers: "ring", see `Network.of`; "": nobody
    edge_dropout: float = 0.0  #: the probability that an edge of this network fails, in each round
    shards: int = 0  #: over how many processes the agents of each run are spread; 0: none. Results are the same.
    shards_on: str = "processes"  #: where shards live: "processes", "ray", "ray:ADDRESS" or "serial", as for `play`

    if TYPE_CHECKING:  # A type checker would let `policies` be made of specs alone.

        def __init__(
            self,
            environment: str,
            policies: "Sequence[str | Mapping[str, Any] | PolicySpec]",
            arguments: Mapping[str, Any] = ...,
            trials: int = ...,
            seed: int = ...,
            audited: int = ...,
            dropout: float = ...,
            attackers: float = ...,
            attack: str = ...,
            network: str = ...,
            edge_dropout: float = ...,
            shards: int = ...,
            shards_on: str = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_text("environment", self.environment)
        object.__setattr__(self, "environment", id_of(self.environment))
        if isinstance(self.policies, (str, Mapping)) or not isinstance(self.policies, Sequence) or not self.policies:
            example = [self.policies] if isinstance(self.policies, str) else ["Fed-PECD"]
            raise ExperimentError(f"policies: expected a list of one or more, got {self.policies!r}; use {example}")
        specs = tuple(PolicySpec.of(value) for value in self.policies)
        labels = [spec.label for spec in specs]
        for label in labels:
            if labels.count(label) > 1:
                raise ExperimentError(
                    f"policies: expected different labels, got {label!r} {labels.count(label)} times; set label"
                )
        object.__setattr__(self, "policies", specs)
        object.__setattr__(self, "arguments", plain_table("arguments", self.arguments))
        if whole_number("trials", self.trials, at_least=1) > MOST_TRIALS:
            raise ExperimentError(f"trials: expected at most {MOST_TRIALS:,}, got {self.trials}")
        whole_number("seed", self.seed, at_least=0)
        whole_number("audited", self.audited, at_least=0)
        for name in ("dropout", "edge_dropout"):
            object.__setattr__(self, name, getattr(Faults(**{name: getattr(self, name)}), name))
        object.__setattr__(self, "attackers", Attackers(self.attack, self.attackers).share)
        check_text("network", self.network)
        whole_number("shards", self.shards, at_least=0)
        one_of("shards_on", str(self.shards_on).partition(":")[0], HOSTS)
        if self.shards_on != "processes" and not self.shards:
            raise ExperimentError(f"shards_on: expected a number of shards with it, got {self.shards_on!r} alone")
        if chosen := [name for name in self.arguments if name in _CHOSEN_BY_RUN]:
            raise ExperimentError(
                f"arguments: expected what every policy shares, got {chosen[0]!r}; drop it: each policy is shown what "
                "it observes"
            )

    def __repr__(self) -> str:
        settings = f"{short(self.arguments)}, trials={self.trials}, seed={self.seed}"
        return f"Experiment({self.environment!r}, {short(self.labels)}, {settings})"

    @property
    def labels(self) -> list[str]:
        """What the policies are called."""
        return [spec.label for spec in self.policies]

    def trial_seed(self, trial: int) -> int:
        """The seed from which everything of a trial is drawn."""
        return derived_seed(self.seed, trial)

    def environment_for(self, policy: Policy) -> HiddenContextBandit:
        """The environment that shows agents what `policy` observes."""
        return make(self.environment, **self.arguments, observe=observe_for(policy))

    def faults(self, policy: Policy) -> Faults | None:
        """The reports that are lost or false in each trial of a policy, and, if it talks to peers, edges that fail."""
        attackers = Attackers(self.attack, self.attackers) if self.attackers else None
        edges = self.edge_dropout if partner_of(type(policy)) == "peers" else 0.0
        faults = Faults(dropout=self.dropout, edge_dropout=edges, attackers=attackers)
        return None if faults == Faults() else faults

    def check(self) -> None:
        """Refuse now what would fail in every trial: unknown ids, policies, parameters, impossible settings."""
        if self.edge_dropout and not any(partner_of(type(spec.make())) == "peers" for spec in self.policies):
            raise ExperimentError(
                f"edge_dropout: expected 0 where nobody has peers, got {self.edge_dropout}; use dropout"
            )
        environments: dict[str, HiddenContextBandit] = {}  # by what agents are shown
        for spec in self.policies:
            policy = spec.make()
            if (observe := observe_for(policy)) not in environments:
                environments[observe] = self.environment_for(policy)
            environment = environments[observe]
            how: dict[str, Any] = {"faults": self.faults(policy), "network": self.network or None}
            if self.shards:
                ShardedRounds(environment, policy, shards=self.shards, executor=self.shards_on, **how)
            rounds = CommunicationRounds(environment, policy, **how)
            if environment.segment_steps is not None or type(policy).check_problem is not Policy.check_problem:
                rounds.start(seed=0)

    def resolved(self) -> "Experiment":
        """The same experiment with every default written out, so that it means the same under other defaults."""
        problem = problem_class(self.environment)
        defaults = defaults_of(problem) | {"max_cycles": defaults_of(HiddenContextBandit)["max_cycles"]}
        specs = [replace(spec, parameters=_parameters(spec.make())) for spec in self.policies]
        given = {name: as_default(value, defaults.get(name)) for name, value in self.pinned().arguments.items()}
        return replace(self, arguments={**defaults, **given}, policies=specs)

    def pinned(self) -> "Experiment":
        """The same experiment with the hash of a file that it takes a problem from, so that a changed file is refused.

        A class of problems that reads files has the method `pinned`, as `fedbandit_envs.problems.file.File` has it.
        """
        pin = getattr(problem_class(self.environment), "pinned", None)
        return self if pin is None else replace(self, arguments=pin(self.arguments))

    def problem(self) -> dict[str, Any]:
        """What all runs of a folder have in common: every setting but policies, trials, audits and the seed."""
        table = {name: value for name, value in self.table().items() if name not in (*_MAY_GROW, *_CHANGES_NOTHING)}
        if "sha256" in self.arguments:  # the content of a file decides then, and not where it lies
            table["arguments"] = {name: value for name, value in self.arguments.items() if name != "path"}
        return table

    def with_argument(self, name: str, value: Any) -> "Experiment":
        """The experiment with another value of one argument of the environment, or of "dropout", "network" ..."""
        if name in _OF_RUNS:
            return replace(self, **{name: value})
        return replace(self, arguments={**self.arguments, name: value})

    def argument(self, name: str) -> Any:
        """The value that `with_argument` sets."""
        return getattr(self, name) if name in _OF_RUNS else self.arguments[name]

    def table(self) -> dict[str, Any]:
        """The experiment as plain data."""
        policies = [{"name": s.name, "label": s.label, "parameters": dict(s.parameters)} for s in self.policies]
        return {
            "environment": self.environment,
            "trials": self.trials,
            "seed": self.seed,
            "audited": self.audited,
            **{name: getattr(self, name) for name in _OF_RUNS if name != "edge_dropout" or self.edge_dropout},
            **({name: getattr(self, name) for name in _CHANGES_NOTHING} if self.shards else {}),
            "arguments": dict(self.arguments),
            "policies": policies,
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any], source: str = "experiment") -> "Experiment":
        """The experiment of plain data; `source` names it in errors.

        What the file in a folder of results says about its files is left out: the experiment can be run anywhere.
        """
        known = ("environment", "policies", "arguments", "trials", "seed", "audited", *_OF_RUNS, *_CHANGES_NOTHING)
        check_keys(source, table, (*known, *_OF_FOLDERS))
        for name in ("environment", "policies"):
            if name not in table:
                raise ExperimentError(f"{source}: expected the key {name!r}, got {', '.join(table) or 'nothing'}")
        return cls(**{name: value for name, value in table.items() if name in known})

    @classmethod
    def read(cls, path: str | Path) -> "Experiment":
        """From a .toml or .json file."""
        return cls.from_table(read_table(path), str(path))

    def text(self, suffix: str = ".toml") -> str:
        """The experiment as the text of a .toml or .json file."""
        if suffix == ".json":
            return json.dumps(self.table(), indent=2) + "\n"
        if suffix == ".toml":
            import tomli_w

            return tomli_w.dumps(self.table())
        raise ExperimentError(f"experiment file: expected a name that ends in .toml or .json, got {suffix!r}")

    def write(self, path: str | Path) -> None:
        """To a .toml or .json file."""
        write_whole(Path(path), self.text(Path(path).suffix).encode())


def _parameters(policy: Policy) -> dict[str, Any]:
    defaults = policy_parameters(type(policy))
    values = {name: as_default(getattr(policy, name), default) for name, default in defaults.items()}
    return {name: plain(name, value) for name, value in values.items() if value is not None}
