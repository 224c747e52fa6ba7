"""The reference of all public names, a page for each room, from the one list of names and the docstrings."""

import inspect
from collections.abc import Callable
from types import ModuleType

import fedbandit_agents
import fedbandit_baselines
import fedbandit_envs as fb
from fedbandit_envs.federation import settings

ROOMS = {
    "contexts": "Context distributions and feature maps",
    "protocol": "The contract of policies",
    "problems": "Problems, own data and regrets",
    "envs": "Environments and wrappers",
    "rounds": "Runs: rounds, ledger, history, faults",
    "experiments": "Experiments, results and sweeps",
    "reports": "Figures, reports and trackers",
    "testing": "Checks of policies",
    "federation": "Federations on real machines",
    "agents": "The package fedbandit_agents",
    "baselines": "The package fedbandit_baselines",
    "other": "Other names",
}


def pages() -> dict[str, str]:
    """The pages of all rooms, and the page that lists them."""
    rooms: dict[str, list[str]] = {room: [] for room in ROOMS}
    for name in sorted(fb.__all__):
        thing = getattr(fb, name)
        rooms[room_of(name, thing)] += [section("fedbandit_envs", name, thing)]
    for room, package in (("agents", fedbandit_agents), ("baselines", fedbandit_baselines)):
        for name in package.__all__:
            rooms[room] += [section(package.__name__, name, getattr(package, name))]
    for name in ("Settings", "write_app"):  # no part of `fb`, but how-to/federation needs them
        rooms["federation"] += [section(settings.__name__, name, getattr(settings, name))]
    used = {room: [one for one in sections if one] for room, sections in rooms.items()}
    used = {room: sections for room, sections in used.items() if sections}
    return {f"reference/{room}": f"# {ROOMS[room]}\n\n{''.join(sections)}" for room, sections in used.items()}


def room_of(name: str, thing: object) -> str:
    """The room in which a public name lives."""
    path: str = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", "")
    if name == "REGRETS":
        return "problems"
    parts = ["rounds" if part == "shards" else part for part in path.split(".")]  # `play` is one run, also over shards
    if len(parts) > 1 and parts[1].endswith("_v0"):
        return "envs"
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "other"


def own(function: Callable[..., object]) -> bool:
    """Whether a function belongs to these packages."""
    return function.__module__.startswith("fedbandit_")


def section(package: str, name: str, thing: object) -> str:
    """The directive that shows one name, below a heading to link to."""
    full = f"{package}.{name}"
    if isinstance(thing, ModuleType):
        if name.endswith("_v0"):  # PettingZoo's form of an environment, which has a page of its own
            return ""
        listed = [one for one in getattr(thing, "__all__", vars(thing)) if not one.startswith("_")]
        functions = [one for one in listed if inspect.isfunction(function := getattr(thing, one)) and own(function)]
        return "".join(section(thing.__name__, one, getattr(thing, one)) for one in functions)
    if inspect.isclass(thing):
        kind, options = "autoclass", "   :members:\n   :undoc-members:\n"
    elif inspect.isfunction(thing):
        kind, options = "autofunction", ""
    elif isinstance(thing, dict):
        return f"## {name}\n\nA table with the entries {', '.join(f'`{key}`' for key in thing)}.\n\n"
    else:  # the version, a text
        return ""
    return f"## {name}\n\n```{{eval-rst}}\n.. {kind}:: {full}\n{options}```\n\n"
