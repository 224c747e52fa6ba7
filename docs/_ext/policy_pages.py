"""A page for each policy, from the registry, the docstrings, and a small run that shows what it sends."""

from dataclasses import dataclass
from pathlib import Path

from league_page import shortened
from markdown_text import docstring, heading, parameters, table, words
from matplotlib.figure import Figure
from policy_kinds import Home, home, kinds, network_of

import fedbandit_envs as fb
from fedbandit_envs.cli.list_names import Explanation, explanation
from fedbandit_envs.protocol.policy import partner_of

WITHOUT_FEATURES = "fedbandit/MultiArmed-v0", "fedbandit/SharedArms-v0"
INK = "#1f6fb4"
#: how the two ends of the scale are drawn
ENDS = {"Uniform": "--", "Oracle": "-", "Shared-Uniform": "--", "Shared-Oracle": "-"}
LOOK = {"--": "dashed", "-": "solid"}


@dataclass(frozen=True)
class Shown:
    """The run that a page shows."""

    name: str  #: the policy
    home: Home  #: the problem
    history: fb.History  #: the run, with its messages
    scale: dict[str, fb.History]  #: the two ends of the scale on the same problem, where they can play it

    @property
    def setting(self) -> str:
        """The sizes of the problem, in words."""
        constants = self.history.constants
        features = "" if self.home.environment in WITHOUT_FEATURES else f", dimension {constants.dim}"
        return f"{constants.num_agents} agents, {constants.num_arms} arms{features}, {constants.horizon:,} steps"


def pages(pictures: Path, ideas: Path) -> dict[str, str]:
    """The pages of all policies by name, and the page that lists them."""
    names = fb.policy_names()
    told = {name: explanation(name) for name in names}
    scales: dict[str, dict[str, fb.History]] = {}
    found = {f"policies/{name}": page(told[name], shown(name, scales), pictures, ideas) for name in names}
    return {**found, "policies/index": index(told)}


def shown(name: str, scales: dict[str, dict[str, fb.History]]) -> Shown:
    """Play a policy, and the ends of the scale unless they have been played on this problem before."""
    one = home(name)
    if one.told not in scales:
        ends = (end for end in ENDS if fb.why_not(policy := fb.make_policy(end), one.env(policy)) is None)
        scales[one.told] = {end: play(end, one) for end in ends}
    return Shown(name, one, play(name, one), scales[one.told])


def play(name: str, one: Home) -> fb.History:
    """One run with its messages; those between peers can be too many to keep."""
    policy = fb.make_policy(name)
    network = network_of(policy)
    return fb.play(one.env(policy), policy, seed=0, record=network is None, network=network)


def index(told: dict[str, Explanation]) -> str:
    """The page that lists the policies, kind by kind."""
    parts = []
    for kind, names in kinds(list(told)):
        rows = [[f"[{name}]({name}.md)", told[name].needs, words(heading(told[name]))] for name in names]
        parts.append(f"## {kind.title}\n\n{kind.told}\n\n{table(['name', 'what it needs', 'what it is'], rows)}")
    listed, menu = "\n".join(parts), "\n".join(name for _, names in kinds(list(told)) for name in names)
    return f"""# Policies

Each policy has a page with its idea, its parameters, what it sends and what is promised. In the shell, `fedbandit list
policies` shows all of them, and `fedbandit list Fed-PECD` explains one.
[Which policy should I use?](../../how-to/choose-a-policy.md) helps to choose.

{listed}

```{{toctree}}
:hidden:

{menu}
```
"""


def page(told: Explanation, run: Shown, pictures: Path, ideas: Path) -> str:
    """The page of one policy."""
    description, example = docstring(told.description)
    draw(run, pictures / f"{told.name}.svg")
    idea = ideas / f"{told.name}.md"
    written = f"\n## The steps\n\n{idea.read_text().strip()}\n" if idea.exists() else ""
    return f"""# {told.name}

*This policy: {told.needs}.*

{description}
{written}
## Parameters

{parameters(told)}

In Python: `fb.make_policy("{told.name}"{first_parameter(told, ", {}={!r}")})`. In the shell:
`--policy '{told.name}{first_parameter(told, " {}={}")}'`.

## What it sends

{sends(run)}

## What is promised

{promises(run.history)}

## A small run

```{{figure}} ../pictures/{told.name}.svg
:alt: regret of {told.name} over time

{figure_words(run)}
```

## Example

{example}
"""


def first_parameter(told: Explanation, form: str) -> str:
    """How the first parameter that is a plain value is given, or nothing."""
    for key, value in told.parameters.items():
        if isinstance(value, (bool, int, float, str)):
            return form.format(key, value)
    return ""


def figure_words(run: Shown) -> str:
    """What stands below the figure."""
    ends = " and ".join(f"{end} ({LOOK[ENDS[end]]})" for end in run.scale if end != run.name)
    beside = f", beside {ends}" if ends else ""
    other = [(end, one) for end, one in run.scale.items() if end.endswith("Uniform") and end != run.name]
    against = "".join(f", against {shortened(one.mean_regret()[-1])} of {end}" for end, one in other)
    return f"""Regret per agent over time on {run.home.told}: {run.setting}, seed 0{beside}.
It is one run of a small problem. At its end regret is {shortened(run.history.mean_regret()[-1])}{against}."""


def sends(run: Shown) -> str:
    """A table of the messages that crossed, and their sum."""
    history, ledger = run.history, run.history.ledger
    if not ledger.messages:
        return "Nothing. Its agents never communicate, and its ledger shows zeros.\n"
    rows: dict[tuple[str, str, str], int] = {}
    peers = partner_of(type(history.policy)) == "peers"
    if peers:
        kind, arrays, drawn = form_between_peers(run)
        rows["to one neighbour at most" if drawn else "to each neighbour", kind, arrays] = ledger.rounds
    for exchange in history.exchanges or ():
        for direction, message in (("to the server", exchange.up), ("to the agents", exchange.down)):
            if message is not None:
                key = (direction, message.kind, arrays_of(message))
                rows[key] = rows.get(key, 0) + 1
    lines = [[direction, f"`{kind}`", arrays, str(times)] for (direction, kind, arrays), times in rows.items()]
    crossed = f"{ledger.scalars_up:,} scalars up and {ledger.scalars_down:,} down"
    if peers:
        crossed = f"{ledger.scalars_peer:,} scalars over the edges of a ring"
    return f"""This is what crossed in a run on {run.home.told} ({run.setting}). Shapes are those of one agent's
share where a message belongs to agents, and of the whole message where it goes to all of them alike. Entries that are
left out, as those of arms that an agent did not explore, are not charged.

{table(["direction", "message", "arrays", "times"], lines)}

In all {ledger.rounds} rounds, {crossed}. Every scalar is counted by
[the ledger](../../concepts/communication.md), which reads the messages themselves.
"""


def form_between_peers(run: Shown) -> tuple[str, str, bool]:
    """The kind and the arrays of what neighbours send each other, and whether all arrays go to one neighbour at most.

    They are those of the last message of a short run.
    """
    policy = run.history.policy
    short = fb.play(run.home.env(policy, steps=100), policy, seed=0, record=True, network=network_of(policy))
    message = [exchange.down for exchange in short.exchanges or () if exchange.down is not None][-1]
    drawn = set(message.arrays) <= set(policy.delivery)
    arrays = arrays_of(message, rows=2)  # what arrives has an axis for the receiver and one for the sender
    return message.kind, arrays, drawn


def arrays_of(message: fb.Message, rows: int = 1) -> str:
    """The arrays of a message with their shapes, without the first axes where a message belongs to agents."""
    rows = 0 if message.agents is None else rows
    shapes = {name: array.shape[rows:] for name, array in message.arrays.items()}
    return ", ".join(f"`{name}` {shape or 'one number'}" for name, shape in shapes.items()) or "none: a mere call"


def promises(history: fb.History) -> str:
    """What an audit of the run checks, and what is not claimed."""
    claims = list(history.policy.claims(history))
    if not claims:
        return "`fedbandit audit` has nothing to check. The description above says what is proved and what is not.\n"
    rows = [
        [words(claim.claim), f"{claim.bound:.4g}", f"{claim.measured:.4g}", words(claim.verdict)] for claim in claims
    ]
    return f"""`fedbandit audit` checks a run against theory. For the run below it says:

{table(["claim", "bound", "measured", "verdict"], rows)}

"Not claimed" names the condition that this run does not meet. See
[what the paper leaves open](../../results/open-points.md).
"""


def draw(run: Shown, file: Path) -> None:
    """Draw the regret of the policy between uniform play and the oracle."""
    figure = Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.subplots()
    for name, one in {**run.scale, run.name: run.history}.items():
        if name == run.name:
            look = {"color": INK, "linewidth": 2.0}
        else:
            look = {"color": "#777777", "linewidth": 1.2, "linestyle": ENDS[name]}
        axes.plot([0, *one.steps], [0.0, *one.mean_regret()], label=name, **look)
    axes.set_xlabel("step")
    axes.set_ylabel("regret per agent")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, metadata={"Date": None})
