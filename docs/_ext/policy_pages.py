"""A page for each policy, from the registry, the docstrings, and a small run that shows what it sends."""

from pathlib import Path

from markdown_text import docstring, heading, parameters, table, words
from matplotlib.figure import Figure

import fedbandit_envs as fb
from fedbandit_envs.cli.list_names import Explanation, explanation
from fedbandit_envs.protocol.policy import observe_for, partner_of

AGENTS, STEPS = 20, 2**13
PROBLEM = {"num_agents": AGENTS, "max_cycles": STEPS, "error": "classical"}
INK = {"Uniform": "#999999", "Oracle": "#999999"}


def pages(pictures: Path, ideas: Path) -> dict[str, str]:
    """The pages of all policies by name, and the page that lists them."""
    told = [explanation(name) for name in fb.policy_names()]
    scale = {name: run(name) for name in ("Uniform", "Oracle")}
    found = {f"policies/{one.name}": page(one, pictures, ideas, scale) for one in told}
    return {**found, "policies/index": index(told)}


def run(name: str) -> fb.History:
    """The run from which the page tells what was sent and what was promised."""
    policy = fb.make_policy(name)
    shown = {"observe": observe_for(policy)}
    if policy.observes == "delayed":
        shown |= {"context": "streaming", "reveal": "after", "error": "berkson"}
    env = fb.make("fedbandit/Synthetic-v0", **{**PROBLEM, **shown})
    network = "ring" if partner_of(type(policy)) == "peers" else None
    return fb.play(env, policy, seed=0, record=True, network=network)


def index(told: list[Explanation]) -> str:
    """The page that lists the policies."""
    rows = [[f"[{one.name}]({one.name}.md)", one.needs, words(heading(one))] for one in told]
    menu = "\n".join(one.name for one in told)
    return f"""# Policies

Each policy has a page with its idea, its parameters, what it sends and what is promised. `fedbandit list policies`
shows the same in the shell. [Which policy should I use?](../../how-to/choose-a-policy.md) helps to choose.

{table(["name", "what it needs", "what it is"], rows)}

```{{toctree}}
:hidden:

{menu}
```
"""


def page(told: Explanation, pictures: Path, ideas: Path, scale: dict[str, fb.History]) -> str:
    """The page of one policy."""
    description, example = docstring(told.description)
    history = scale.get(told.name) or run(told.name)
    draw(told.name, history, scale, pictures / f"{told.name}.svg")
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

{sends(history)}

## What is promised

{promises(history)}

## A small run

```{{figure}} ../pictures/{told.name}.svg
:alt: regret of {told.name} over time

Regret per agent over time on `fedbandit/Synthetic-v0` with {AGENTS} agents, {STEPS} steps and classical error, seed 0,
beside the two ends of the scale. It is one run of a small problem: phased elimination needs longer runs to
show its strength.
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


def sends(history: fb.History) -> str:
    """A table of the messages that crossed, and their sum."""
    ledger = history.ledger
    if not ledger.messages:
        return "Nothing. Its agents never communicate, and its ledger shows zeros.\n"
    rows: dict[tuple[str, str, str], int] = {}
    peers = partner_of(type(history.policy)) == "peers"
    for exchange in history.exchanges or ():
        both = (("to the server", exchange.up), ("to the agents", exchange.down))
        for direction, message in (("to each neighbour", exchange.up),) if peers else both:
            if message is not None:
                key = (direction, message.kind, arrays_of(message))
                rows[key] = rows.get(key, 0) + 1
    lines = [[direction, f"`{kind}`", arrays, str(times)] for (direction, kind, arrays), times in rows.items()]
    crossed = f"{ledger.scalars_up:,} scalars up and {ledger.scalars_down:,} down"
    if peers:
        crossed = f"{ledger.scalars_peer:,} scalars over the edges of a ring"
    steps = f"{AGENTS} agents, {history.constants.num_arms} arms, dimension {history.constants.dim}, {STEPS} steps"
    return f"""This is what crossed in a run on Synthetic ({steps}). Shapes are those of one agent's
share where a message belongs to agents, and of the whole message where it goes to all of them alike. Entries that are
left out, as those of arms that an agent did not explore, are not charged.

{table(["direction", "message", "arrays", "times"], lines)}

In all {ledger.rounds} rounds, {crossed}. Every scalar is counted by
[the ledger](../../concepts/communication.md), which reads the messages themselves.
"""


def arrays_of(message: fb.Message) -> str:
    """The arrays of a message with their shapes, for one agent where a message belongs to agents."""
    rows = 0 if message.agents is None else 1
    shapes = {name: array.shape[rows:] for name, array in message.arrays.items()}
    return ", ".join(f"`{name}` {shape or 'one number'}" for name, shape in shapes.items()) or "none: a mere call"


def promises(history: fb.History) -> str:
    """What an audit of the run checks, and what is not claimed."""
    claims = list(history.policy.claims(history))
    if not claims:
        return "Nothing is claimed that an audit could check. The description above says what is known.\n"
    rows = [
        [words(claim.claim), f"{claim.bound:.4g}", f"{claim.measured:.4g}", words(claim.verdict)] for claim in claims
    ]
    return f"""`fedbandit audit` checks a run against theory. For the run below it says:

{table(["claim", "bound", "measured", "verdict"], rows)}

"Not claimed" names the condition that this run does not meet. See
[what the paper leaves open](../../results/open-points.md).
"""


def draw(name: str, history: fb.History, scale: dict[str, fb.History], file: Path) -> None:
    """Draw the regret of the policy between uniform play and the oracle."""
    figure = Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.subplots()
    for label, one in {**scale, name: history}.items():
        ink = "#1f6fb4" if label == name else INK[label]
        axes.plot(one.steps, one.mean_regret(), color=ink, label=label, linewidth=2 if label == name else 1.2)
    axes.set_xlabel("step")
    axes.set_ylabel("regret per agent")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, metadata={"Date": None})
