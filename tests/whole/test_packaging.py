"""The packages as a whole: imports point one way, what is heavy comes late, and public names are there."""

import ast
import dataclasses
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import fedbandit_envs as fb

ROOT = Path(__file__).parents[2]
FOLDERS = {"fedbandit_envs": "fedbandit_envs", "fedbandit_agents": "agents", "fedbandit_baselines": "baselines"}
HEAVY = {"scipy", "matplotlib", "sklearn", "pandas", "tqdm"}

# A room imports only rooms named earlier. The modules on the ground floor import nothing of ours but each other.
GROUND = ("arrays", "ties", "validation", "seeding", "threads", "storage", "version", "joint")
ROOMS = (
    "ground",
    "contexts",
    "protocol",
    "problems",
    "envs",
    "rounds",
    "shards",
    "experiments",
    "reports",
    "testing",
    "federation",
    "paper",
    "cli",
)
FOR_POLICIES = ("ground", "contexts", "protocol")  # the rooms that a policy may enter


def room(module: str) -> str:
    """The room of a module of the library; the front door and the module forms count as the environments' room."""
    name = module.split(".")[1] if "." in module else ""
    if name in GROUND:
        return "ground"
    if name == "__main__":
        return "cli"
    return "envs" if not name or name.endswith("_v0") else name


class Import(NamedTuple):
    """One import statement's target."""

    name: str  # a module, of ours or of others
    lazy: bool  # inside a function
    typing: bool  # under `if TYPE_CHECKING`


def modules() -> dict[str, Path]:
    """All modules of the three packages by their installed name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def imports(module: str, source: str, is_package: bool) -> Iterator[Import]:
    """Every import of a module, relative ones resolved, `from package import module` as that module."""
    base = module.split(".") if is_package else module.split(".")[:-1]

    def names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        start = base[: len(base) - node.level + 1] if node.level else []
        origin = ".".join([*start, *([node.module] if node.module else [])])
        for alias in node.names:
            yield f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in MODULES else origin

    def walk(node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (Import(name, lazy, typing) for name in names(node))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from walk(child, lazy, True)
            for child in node.orelse:
                yield from walk(child, lazy, typing)
            return
        inside = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside, typing)

    yield from walk(ast.parse(source), False, False)


ALL = {
    module: list(imports(module, path.read_text(encoding="utf-8"), path.name == "__init__.py"))
    for module, path in MODULES.items()
}


def test_the_reader_of_imports_sees_every_kind_of_import():
    source = (
        "import scipy.stats\nfrom . import parallel\nfrom .episode import Episode\n"
        "from fedbandit_envs.rounds import loop, no_module\n"
        "if TYPE_CHECKING:\n    import pandas\nelse:\n    import numpy\n"
        "class A:\n    import tqdm\n    def f(self):\n        import matplotlib\n"
    )
    assert list(imports("fedbandit_envs.envs.views", source, is_package=False)) == [
        Import("scipy.stats", False, False),
        Import("fedbandit_envs.envs.parallel", False, False),
        Import("fedbandit_envs.envs.episode", False, False),
        Import("fedbandit_envs.rounds.loop", False, False),
        Import("fedbandit_envs.rounds", False, False),
        Import("pandas", False, True),
        Import("numpy", False, False),
        Import("tqdm", False, False),
        Import("matplotlib", True, False),
    ]


def test_every_module_is_in_a_room_and_every_room_has_modules():
    assert {room(module) for module in MODULES if module.startswith("fedbandit_envs")} == set(ROOMS)


def test_imports_form_no_cycle():
    graph = {
        module: {found.name for found in ALL[module] if found.name in MODULES and not (found.lazy or found.typing)}
        for module in MODULES
    }
    list(TopologicalSorter(graph).static_order())  # raises CycleError, and names the cycle


@pytest.mark.parametrize("module", sorted(module for module in MODULES if module.startswith("fedbandit_envs.")))
def test_a_room_imports_only_rooms_named_earlier(module):
    used = {found.name for found in ALL[module] if found.name in MODULES and found.name != "fedbandit_envs"}
    upward = [name for name in used if ROOMS.index(room(name)) > ROOMS.index(room(module))]
    assert not upward


def test_a_federation_is_built_on_rounds_and_not_on_experiments():
    used = {found.name for module in MODULES if room(module) == "federation" for found in ALL[module]} & set(MODULES)
    assert not {"experiments", "reports", "testing"} & {room(name) for name in used}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_nothing_imports_the_paper_or_the_command_line_but_the_command_line(module):
    if module.startswith("fedbandit_envs") and room(module) in ("cli", "paper"):
        return
    assert not [
        found.name for found in ALL[module] if found.name.startswith(("fedbandit_envs.paper", "fedbandit_envs.cli"))
    ]


@pytest.mark.parametrize("module", sorted(module for module in MODULES if module.startswith("fedbandit_envs.")))
def test_no_module_of_the_library_imports_the_library_as_a_whole_or_a_policy(module):
    assert "fedbandit_envs" not in {found.name for found in ALL[module]}
    assert not [
        found.name for found in ALL[module] if found.name.startswith(("fedbandit_agents", "fedbandit_baselines"))
    ]


def test_the_library_itself_imports_no_policy():
    assert not [
        found.name for found in ALL["fedbandit_envs"] if found.name.startswith(("fedbandit_agents", "fedbandit_base"))
    ]


POLICIES = sorted(module for module in MODULES if not module.startswith("fedbandit_envs"))


@pytest.mark.parametrize("module", POLICIES)
def test_policies_know_the_protocol_and_values_never_an_environment(module):
    used = {found.name for found in ALL[module] if found.name.startswith("fedbandit_envs")}
    assert "fedbandit_envs" not in used
    assert {room(name) for name in used} <= set(FOR_POLICIES)
    if module.startswith("fedbandit_agents"):
        assert not [found.name for found in ALL[module] if found.name.startswith("fedbandit_baselines")]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_heavy_packages_are_imported_where_they_are_used(module):
    early = {found.name.split(".")[0] for found in ALL[module] if not (found.lazy or found.typing)} & HEAVY
    if module in ("fedbandit_envs.reports.canvas", "fedbandit_envs.envs.rendering"):
        early -= {"matplotlib"}
    assert not early


def loaded_by(statement: str) -> set[str]:
    """The top-level packages that a new interpreter holds after `statement`."""
    program = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_library_loads_nothing_heavy_that_its_foundations_do_not():
    heavy = HEAVY | {"ray", "dask", "distributed", "flwr", "torch", "fedbandit_agents", "fedbandit_baselines"}
    assert not (loaded_by("import fedbandit_envs") - loaded_by("import gymnasium, pettingzoo")) & heavy


def test_everything_in_all_is_there():
    for package in FOLDERS:
        module = import_module(package)
        for name in getattr(module, "__all__", []):
            assert hasattr(module, name), f"{package}.{name}"
    assert len(set(fb.__all__)) == len(fb.__all__)


# What users rely on.
PUBLIC = [
    "make",
    "make_policy",
    "play",
    "register_policy",
    "register_environment",
    "save_problem",
    "from_ratings",
    "from_classification",
    "run",
    "Experiment",
    "plotting",
    "testing",
    "audit",
    "synthetic_v0",
    "Gaussian",
    "PointMass",
    "Discrete",
    "Table",
    "Identity",
    "ContextDistribution",
    "FeatureMap",
    "BanditInstance",
    "Plan",
    "Feedback",
    "Message",
    "History",
    "HiddenContextBandit",
    "CommunicationRounds",
    "Policy",
    "AgentSide",
    "ServerSide",
    "ProtocolError",
    "View",
    "ServerView",
    "Constants",
    "Claim",
    "Regret",
    "REGRETS",
    "LinearMap",
    "Ledger",
    "ExpectedFeatures",
    "PullStatistics",
    "RecordRegret",
]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_exported(name):
    assert name in fb.__all__
    assert getattr(fb, name) is not None


def test_a_history_and_its_ledger_have_their_public_names():
    assert {"steps"} <= {field.name for field in dataclasses.fields(fb.History)}
    assert callable(fb.History.regret)
    for name in ("scalars_up", "scalars_down", "bytes_up", "bytes_down", "messages", "rounds"):
        assert hasattr(fb.Ledger(1), name)


def test_an_unknown_name_of_the_library_is_an_attribute_error():
    with pytest.raises(AttributeError, match="attribute maek"):
        _ = fb.maek


COMMON = {"num_agents", "context", "noise_std"}
HIDDEN = {"context_std", "error"}
ARGUMENTS = {
    "Synthetic": COMMON | HIDDEN | {"num_arms", "dim"},
    "MovieLens": COMMON | HIDDEN | {"factors", "hidden"},
    "Household": COMMON | {"factors"},
    "Linear": COMMON | {"theta", "features", "contexts", "feature_map"},
    "MultiArmed": COMMON | {"num_arms", "means", "local_std", "local_means", "rewards"},
    "File": COMMON | {"path", "sha256"},
}


@pytest.mark.parametrize("problem", ARGUMENTS)
def test_the_common_arguments_of_the_environments_keep_their_names(problem):
    assert f"fedbandit/{problem}-v0" in fb.environment_ids()
    assert ARGUMENTS[problem] <= {field.name for field in dataclasses.fields(getattr(fb, problem)) if field.init}


ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["fedbandit.policies"]


@pytest.mark.parametrize("name", sorted(ENTRY_POINTS))
def test_each_policy_of_the_distribution_is_a_policy(name):
    module, _, attribute = ENTRY_POINTS[name].partition(":")
    assert issubclass(getattr(import_module(module), attribute), fb.Policy)


def test_the_policies_have_their_public_names():
    assert set(ENTRY_POINTS) >= {
        "Fed-PECD",
        "Fed-PE",
        "Enhanced-Fed-PE",
        "Collaborative",
        "Shared-Theta-Fed-PE",
        "Local-UCB",
        "KK-UCB",
        "DisLinUCB",
        "Oracle",
        "Uniform",
    }


def test_every_package_says_that_it_is_typed():
    for folder in FOLDERS.values():
        assert (ROOT / folder / "py.typed").exists()
