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

ROOT = Path(__file__).parent.parent
FOLDERS = {"fedbandit_envs": "fedbandit_envs", "fedbandit_agents": "agents", "fedbandit_baselines": "baselines"}
HEAVY = {"scipy", "matplotlib", "sklearn", "pandas", "tqdm"}

# Each line may import from the lines above it only. Modules that are not here must only be free of cycles.
ORDER = """
validation
seeding features storage movielens movielens_ratings
contexts
knowledge plans
messages
instance protocol
rewards channel
core history
generators
episodes
env
rounds registration wrappers
experiment
trials
folder
results
running
plotting
""".strip().splitlines()
RANKS = {f"fedbandit_envs.{name}": rank for rank, line in enumerate(ORDER) for name in line.split()}

# What `protocol` and policies may build on.
VALUES = {"knowledge", "contexts", "features", "observations", "seeding", "validation", "plans", "messages", "threads"}


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
        "import scipy.stats\nfrom . import env\nfrom .core import Episode\nfrom fedbandit_envs import rounds, make\n"
        "if TYPE_CHECKING:\n    import pandas\nelse:\n    import numpy\n"
        "class A:\n    import tqdm\n    def f(self):\n        import matplotlib\n"
    )
    assert list(imports("fedbandit_envs.views", source, is_package=False)) == [
        Import("scipy.stats", False, False),
        Import("fedbandit_envs.env", False, False),
        Import("fedbandit_envs.core", False, False),
        Import("fedbandit_envs.rounds", False, False),
        Import("fedbandit_envs", False, False),
        Import("pandas", False, True),
        Import("numpy", False, False),
        Import("tqdm", False, False),
        Import("matplotlib", True, False),
    ]


def test_the_order_names_modules_that_exist():
    assert set(RANKS) <= set(MODULES)
    assert {f"fedbandit_envs.{name}" for name in VALUES} <= set(MODULES)


def test_imports_form_no_cycle():
    graph = {
        module: {found.name for found in ALL[module] if found.name in MODULES and not (found.lazy or found.typing)}
        for module in MODULES
    }
    list(TopologicalSorter(graph).static_order())  # raises CycleError, and names the cycle


@pytest.mark.parametrize("module", sorted(RANKS))
def test_imports_point_one_way(module):
    upward = [found.name for found in ALL[module] if not found.lazy and RANKS.get(found.name, -1) >= RANKS[module]]
    assert not upward


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


def test_the_protocol_is_made_of_values_only():
    used = {found.name for found in ALL["fedbandit_envs.protocol"] if found.name in MODULES}
    assert used <= {f"fedbandit_envs.{name}" for name in VALUES}


POLICIES = sorted(module for module in MODULES if not module.startswith("fedbandit_envs"))


@pytest.mark.parametrize("module", POLICIES)
def test_policies_know_the_protocol_and_values_never_an_environment(module):
    allowed = {f"fedbandit_envs.{name}" for name in VALUES | {"protocol"}}
    used = {found.name for found in ALL[module] if found.name.startswith("fedbandit_envs")}
    assert used <= allowed
    if module.startswith("fedbandit_agents"):
        assert not [found.name for found in ALL[module] if found.name.startswith("fedbandit_baselines")]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_heavy_packages_are_imported_where_they_are_used(module):
    early = {found.name.split(".")[0] for found in ALL[module] if not (found.lazy or found.typing)} & HEAVY
    if module in ("fedbandit_envs.plotting", "fedbandit_envs.rendering"):
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
    "audit",
    "testing",
    "make",
    "make_policy",
    "play",
    "register_policy",
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
    "Constants",
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
    with pytest.raises(AttributeError, match="no attribute 'maek'"):
        _ = fb.maek


COMMON = {"num_agents", "context", "noise_std"}
HIDDEN = {"context_std", "error"}
ARGUMENTS = {
    "Synthetic": COMMON | HIDDEN | {"num_arms", "dim"},
    "MovieLens": COMMON | HIDDEN | {"factors", "hidden"},
    "Household": COMMON | {"factors"},
    "Linear": COMMON | {"theta", "features", "contexts", "feature_map"},
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
