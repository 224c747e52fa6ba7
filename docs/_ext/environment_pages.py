"""A page for each environment, from the registry and the docstrings."""

import re
from pathlib import Path

import numpy as np
from markdown_text import docstring, heading, parameters, table, words
from matplotlib import image

import fedbandit_envs as fb
from fedbandit_envs.cli.list_names import Explanation, explanation

SHOWN_STEPS = 2000


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

Each environment has a page with its spaces, rewards and arguments. `fedbandit list environments` shows the same in the
shell. How the pieces fit together is told in [the model](../../concepts/model.md).

{table(["id", "what it is"], rows)}

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
    draw(told.name, pictures / f"{slug(told.name)}.png")
    version = told.name.rpartition("-v")[2]
    name = told.name.partition("/")[2].rpartition("-")[0]
    forms = f'''import gymnasium, pettingzoo
import fedbandit_envs as fb

env = fb.make("{told.name}")  # PettingZoo's parallel form
pettingzoo.make("aec", "{told.name}")  # one agent after the other
gymnasium.make("fedbandit_envs:{told.name}")  # all agents act at once
gymnasium.make("fedbandit_envs:{told.name.partition("/")[0]}/{name}-Agent-v{version}", agent=0)  # the view of one agent

history = fb.play(env, fb.make_policy("Uniform"), seed=0)
print(history.mean_regret()[-1])'''
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
    regrets = [[f"`{kind}`", words(one.help)] for kind, one in fb.REGRETS.items()]
    return f"""# {short(told.name)}

{description}

```{{figure}} ../pictures/{slug(told.name)}.png
:alt: pulls of each arm by each agent
:class: wide

What `render_mode="rgb_array"` shows after {SHOWN_STEPS} steps of Fed-PECD with the default arguments: a row is an
agent, a column an arm, and a mark stands at the arm that is best for the agent. Of many agents only some are shown.
```

## Spaces

{table(["", ""], spaces_rows)}

The observation is the distribution of the agent's context, never the context itself. `observe="context"` shows the
context (the exact setting).

## Rewards

An agent that pulls arm $a$ is paid $\\langle\\theta_a, \\phi(a, c_i)\\rangle$ plus noise. With the default arguments:

{table(["", ""], facts)}

## Arguments

{parameters(told)}

Every environment takes `observe` ("distribution" or "context") and `render_mode` ("ansi", "rgb_array" or "human") too.

## Regret

{table(["kind", "what a pull is compared with"], regrets)}

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


def draw(id: str, file: Path) -> None:
    """Draw what an environment shows in the middle of a run."""
    env = fb.make(id, max_cycles=SHOWN_STEPS, render_mode="rgb_array")
    env.reset(seed=0)
    fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
    picture = np.asarray(env.render())
    image.imsave(file, picture)
