"""A page for each environment, from the registry and the docstrings."""

import re
from pathlib import Path

import numpy as np
from markdown_text import docstring, heading, parameters, table, words
from matplotlib import image
from matplotlib.figure import Figure

import fedbandit_envs as fb
from fedbandit_envs.cli.list_names import Explanation, explanation
from fedbandit_envs.envs.ids import COUPLED

SHOWN_STEPS = 2000
FORMS = """## Every form that its users expect

```python
import gymnasium
import pettingzoo

import fedbandit_envs as fb

fb.make("fedbandit/Synthetic-v0", num_agents=100)  # PettingZoo's parallel form
pettingzoo.make("parallel", "fedbandit/Synthetic-v0", num_agents=100)  # the same; also "aec"
fb.synthetic_v0.parallel_env(num_agents=100)  # PettingZoo's module form
gymnasium.make("fedbandit_envs:fedbandit/Synthetic-v0")  # joint view: all agents act at once
gymnasium.make("fedbandit_envs:fedbandit/Synthetic-Agent-v0", agent=3)  # the view of one agent
gymnasium.make_vec("fedbandit_envs:fedbandit/Synthetic-Agent-v0", num_envs=100)  # agents as rows of a vector
```

## Wrappers

| wrapper | what it does |
|---|---|
| `fb.ExpectedFeatures` | shows psi, the expected features, in place of the distribution |
| `fb.PullStatistics` | adds an agent's own pulls and mean rewards, which a learner without memory needs |
| `fb.RecordRegret` | puts the regret of the episode into the last info |

A problem of your own is an environment too: see [your own data](../../how-to/own-data.md) and
[your own environment](../../how-to/own-environment.md)."""
OBSERVATION = """The observation is the distribution of the agent's context, never the context itself.
`observe="context"` shows the context (the exact setting)."""
SHARED_OBSERVATION = """There are no contexts: `total` is what the agent's arm has paid in all, `load` how many agents
were on it."""
REWARD = r"An agent that pulls arm $a$ is paid $\langle\theta_a, \phi(a, c_i)\rangle$ plus noise."
SHARED_REWARD = r"An agent on arm $a$ is paid its equal part of what the arm pays to all agents there."
SHARED_REGRET = """There is one kind: what all agents together lose against the best assignment. Each agent carries the
same part of it."""
CHANGING = """Contexts are new at each step here, and nobody can see them: `regret` is the same as
`distribution_regret`."""
SHARED_ARGUMENTS = 'It takes `render_mode` ("ansi") too.'
COMMON_ARGUMENTS = """Every environment takes three more: `observe` ("distribution" or "context"), `reveal` ("never" or
"after": whether contexts that change at each step are revealed after it), and `render_mode` ("ansi", "rgb_array" or
"human")."""
RENDERED = """What `render_mode="rgb_array"` shows after {steps:,} steps of {name} with the default arguments: a row is
an agent, a column an arm, and a mark is at the arm that is best for the agent. Of many agents only some are shown."""
LOADS = """How many agents were on each arm, on average over the second half of {steps:,} steps of {name}, beside the
best assignment, which no agent knows."""


def slug(id: str) -> str:
    """The name of the page of an id."""
    return re.sub(r"[^A-Za-z0-9]+", "-", id.removeprefix("fedbandit/"))


def pages(pictures: Path) -> dict[str, str]:
    """The pages of all environments by name, and the page that lists them."""
    told = [explanation(id) for id in fb.environment_ids()]
    found = {f"environments/{slug(one.name)}": page(one, pictures) for one in told}
    return {**found, "environments/index": index(told)}


def index(told: list[Explanation]) -> str:
    """The page that lists the environments."""
    rows = [[f"[`{one.name}`]({slug(one.name)}.md)", words(heading(one))] for one in told]
    menu = "\n".join(f"{short(one.name)} <{slug(one.name)}>" for one in told)
    return f"""# Environments

Each environment has a page with its spaces, rewards and arguments. In the shell, `fedbandit list environments` shows
all of them, and `fedbandit list Synthetic` explains one.
How the pieces fit together is told in [the model](../../concepts/model.md).

{table(["id", "what it is"], rows)}

{FORMS}

```{{toctree}}
:hidden:

{menu}
```
"""


def short(id: str) -> str:
    """The name in the menu."""
    return id.removeprefix("fedbandit/")


def page(told: Explanation, pictures: Path) -> str:
    """The page of one environment."""
    description, example = docstring(told.description)
    env = fb.make(told.name)
    agent = env.possible_agents[0]
    env.reset(seed=0)
    constants = env.view().constants
    shared = told.name in COUPLED
    history, caption = (draw_loads if shared else draw)(told.name, pictures / f"{slug(told.name)}.png")
    version = told.name.rpartition("-v")[2]
    name = told.name.partition("/")[2].rpartition("-")[0]
    one_agent = f"{told.name.partition('/')[0]}/{name}-Agent-v{version}"
    views = f"""
gymnasium.make("fedbandit_envs:{told.name}")  # Gymnasium: all agents act at once
gymnasium.make("fedbandit_envs:{one_agent}", agent=0)  # the view of one agent
gymnasium.make_vec("fedbandit_envs:{one_agent}", num_envs={min(constants.num_agents, 10)})  # agents as rows"""
    forms = f'''{"import pettingzoo" if shared else "import gymnasium, pettingzoo"}
import fedbandit_envs as fb

env = fb.make("{told.name}")  # PettingZoo's parallel form: all agents act at once
pettingzoo.make("aec", "{told.name}")  # one agent after the other{"" if shared else views}

history = fb.play(env, fb.make_policy("{players(told.name)[0]}"), seed=0)
print(history.mean_regret()[-1])  # regret per agent at the end'''
    spaces_rows = [
        ["agents", f"`{env.possible_agents[0]}` to `{env.possible_agents[-1]}`"],
        ["actions of an agent", f"`{env.action_space(agent)}`"],
        ["observations of an agent", f"`{env.observation_space(agent)}`"],
        ["end of an episode", "all agents together, after `max_cycles` steps (truncation)"],
    ]
    facts = [
        ["agents M, arms K, dimension d", f"{constants.num_agents}, {constants.num_arms}, {constants.dim}"],
        ["noise of a reward", f"standard deviation {constants.noise_std:g}"],
        ["feature norms", f"from {constants.ell:.3g} to {constants.L:.3g}"],
    ]
    regrets = [[f"`{kind}`", words(fb.REGRETS[kind].help)] for kind in recorded(history)]
    return f"""# {short(told.name)}

{description}

```{{figure}} ../pictures/{slug(told.name)}.png
:alt: {"loads of the arms" if shared else "pulls of each arm by each agent"}
:class: wide

{caption}
```

## Spaces

{table(["", ""], spaces_rows)}

{SHARED_OBSERVATION if shared else OBSERVATION}

## Rewards

{SHARED_REWARD if shared else REWARD} With the default arguments:

{table(["", ""], facts[:1] if shared else facts)}

## Arguments

{parameters(told)}

{SHARED_ARGUMENTS if shared else COMMON_ARGUMENTS}

## Regret

{SHARED_REGRET if shared else table(["kind", "what a pull is compared with"], regrets)}
{CHANGING if env.segment_steps == 1 else ""}

See [the kinds of regret](../../concepts/regret.md).

## Use it

```python
{forms}
```

{example}
## Versions

{versions(int(version))}
"""


def versions(newest: int) -> str:
    """The version history, which begins with v0."""
    if newest == 0:
        return "- v0: the first version. An id gets a new version when the same seed no longer gives the same problem."
    return f"- v{newest}: the present version. CHANGELOG.md says what was changed."


def players(id: str) -> list[str]:
    """The policies that play on the pages and can play this environment with its default arguments."""
    names = ["Uniform", "KK-UCB", "Fed-PECD", "OrchExplore"]
    return [name for name in names if fb.why_not(fb.make_policy(name), fb.make(id, max_cycles=SHOWN_STEPS)) is None]


def recorded(history: fb.History) -> list[str]:
    """The kinds of regret that a run of this environment has."""
    found = []
    for kind in fb.REGRETS:
        try:
            history.mean_regret(kind)
        except ValueError:  # contexts change, and this kind needs one problem for the whole run
            continue
        found.append(kind)
    return found


def draw(id: str, file: Path) -> tuple[fb.History, str]:
    """Draw what an environment shows in the middle of a run; the run, and the words below the picture."""
    env, name = fb.make(id, max_cycles=SHOWN_STEPS, render_mode="rgb_array"), players(id)[-1]
    history = fb.play(env, fb.make_policy(name), seed=0)
    image.imsave(file, np.asarray(env.render()))
    return history, RENDERED.format(steps=SHOWN_STEPS, name=name)


def draw_loads(id: str, file: Path) -> tuple[fb.History, str]:
    """Draw how full the arms were in a run of an environment whose arms are shared."""
    env, name = fb.make(id, max_cycles=SHOWN_STEPS), players(id)[-1]
    history = fb.play(env, fb.make_policy(name), seed=0)
    late = history.pulls[-1] - history.pulls[len(history.steps) // 2]  # the second half of the run
    loads = late.sum(axis=0) / late.sum(axis=1)[0]
    figure = Figure(figsize=(7, 3), layout="constrained")
    axes, arms = figure.subplots(), np.arange(len(loads))
    axes.bar(arms - 0.2, loads, 0.4, color="#1f6fb4", label="agents on the arm")
    axes.bar(arms + 0.2, env.truth.best_loads, 0.4, color="#d9730d", label="agents in the best assignment")
    axes.set_xlabel("arm")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=120)
    return history, LOADS.format(steps=SHOWN_STEPS, name=name)
