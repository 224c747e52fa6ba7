"""The hash of a policy's code changes with all that its numbers can depend on, and with nothing else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedbandit_envs as fb

TYPED = """
import functools, sys, threading
import numpy as np
import fedbandit_envs as fb
from dataclasses import dataclass
from fedbandit_envs.experiments.code import code_digest
from fedbandit_baselines.yardsticks import Uniform

LIST, MAP, SET, ARRAY = [0], {"a": [1]}, {"x", "y", "z"}, np.arange(3)
def used(view, *, share=0.5):
    return [LIST, MAP, SET, ARRAY, view in {"p", "q", "r", "s"}, share]

@functools.lru_cache
def kept():
    return 1

@dataclass(frozen=True)
class Mine(Uniform):
    share: float = 0.5
    options = [1, 2]
    def agents(self, view):
        used(view)
        kept()
        return [self.half for _ in view if (lambda: LIST)()]
    @functools.cached_property
    def half(self):
        return 0.5

def made(mine=Mine):
    return code_digest(mine)
before = made()
"""
CHANGES = {
    "a list": "LIST[0] = 3",
    "a list in a map": "MAP['a'].append(2)",
    "a set": "SET.add('w')",
    "an array": "ARRAY[1] = 7",
    "a list of the class": "Mine.options.append(3)",
    "a default by keyword": "used.__kwdefaults__['share'] = 0.25",
    "a cached property": "Mine.half.func.__code__ = (lambda self: 0.25).__code__",
    "a wrapped function": "kept.__wrapped__.__code__ = (lambda: 2).__code__",
}


def typed(program: str, *folders: Path, site: bool = True) -> list[str]:
    """What a program prints that is no file, as a notebook's is none; sets are in another order each time.

    Args:
        program: the program.
        folders: where modules are looked for first.
        site: whether installed packages can come before these folders, as those that can be edited do.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*map(str, folders), *filter(None, sys.path)])}
    # -B: no bytecode is kept. A text that is edited within a second, with as many letters, would pass for the old one.
    command = [sys.executable, "-B", *([] if site else ["-S"]), "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split("\n")[:-1]


def test_whatever_changes_in_a_typed_class_changes_its_hash() -> None:
    program = TYPED
    for number, change in enumerate(CHANGES.values()):
        program += f"{change}\nafter = made()\nprint({number}, after != before, made() == after)\nbefore = after\n"
    assert typed(program) == [f"{number} True True" for number in range(len(CHANGES))]


def test_the_hash_of_a_typed_class_is_the_same_in_every_process_and_on_every_line() -> None:
    (first,) = typed(TYPED + "print(before)")
    assert typed("\n# A comment.\n" + TYPED + "print(before)") == [first]
    assert " " not in first


def test_a_typed_class_that_uses_what_can_not_be_hashed_shares_its_hash_with_no_run() -> None:
    program = TYPED.replace("\nLIST", "\nLOCK = threading.Lock()\nLIST")
    program = program.replace("[LIST, MAP", "[LOCK, LIST, MAP")
    first, second = typed(program + "print(before)\nprint(made())")
    assert first != second
    assert first.split(" ")[0] == second.split(" ")[0] == typed(program + "print(before)")[0].split(" ")[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["import own_steps", "", "global own_steps; import own_steps"])
def test_an_edit_in_a_module_that_a_typed_class_imports_changes_its_hash(tmp_path: Path, how: str) -> None:
    program = "import own_steps\n" * (not how) + TYPED.replace(
        "    used(view)", f"    {how or 'own_steps'}\n        used(view)"
    )
    (tmp_path / "own_steps.py").write_text("import own_more\n")
    (tmp_path / "own_more.py").write_text("SHARE = 0.5\n")
    (first,) = typed(program + "print(before)", tmp_path)
    assert typed(program + "print(before)", tmp_path) == [first]
    (tmp_path / "own_more.py").write_text("SHARE = 0.25\n")
    assert typed(program + "print(before)", tmp_path) != [first]


FILED = """
from fedbandit_envs.experiments.code import code_digest
from fedbandit_envs.protocol.registry import policy_class
print(code_digest(policy_class("own_policy:Mine")))
"""
OWN = "from fedbandit_baselines.yardsticks import Uniform\n{}\n\nclass Mine(Uniform):\n    share = 0.5\n"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["import parts.steps", "from parts.steps import ready", "from parts import steps"])
def test_modules_of_a_folder_without_an_init_file_are_part_of_the_hash(tmp_path: Path, how: str) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "own_policy.py").write_text(OWN.format(how))
    (tmp_path / "parts" / "steps.py").write_text("ready = 1\n")
    first = typed(FILED, tmp_path)
    assert typed(FILED, tmp_path) == first
    (tmp_path / "parts" / "steps.py").write_text("ready = 2\n")
    assert typed(FILED, tmp_path) != first


@pytest.mark.slow
def test_modules_that_are_imported_late_are_part_of_the_hash_and_are_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "own" / "inner" / "deep"  # neither folder has an __init__.py
    folder.mkdir(parents=True)
    (tmp_path / "own_policy.py").write_text(
        "from fedbandit_baselines.yardsticks import Uniform\n"
        "class Mine(Uniform):\n"
        "    def late(self):\n"
        "        from own.inner.deep.slow import THING\n"
        "        from fedbandit_agents.phased.design_compiled import first_order\n"
    )
    program = (
        "import sys\nfrom own_policy import Mine\nfrom fedbandit_envs.experiments.code import code_digest\n"
        "print(code_digest(Mine))\nprint('fedbandit_agents.phased.design_compiled' in sys.modules)\n"
    )
    digests = set()
    for number in (1, 2):
        (folder / "slow.py").write_text(f"print('it was run')\nTHING = {number}\n")
        digest, compiled = typed(program, tmp_path)
        digests.add(digest)
        assert compiled == "False"
    assert len(digests) == 2


def test_the_hash_does_not_depend_on_where_the_package_is_installed(tmp_path: Path) -> None:
    import fedbandit_agents
    import fedbandit_baselines

    policies = ("Local-UCB", "DisLinUCB", "Fed-PECD", "Uniform")
    program = "\n".join(FILED.replace("own_policy:Mine", policy) for policy in policies)
    program += "import fedbandit_baselines; print(fedbandit_baselines.__file__)\n"
    found = []
    for folder in (tmp_path / "site-packages", tmp_path / "elsewhere"):
        for package in (fb, fedbandit_agents, fedbandit_baselines):
            source = Path(str(package.__file__)).parent
            shutil.copytree(source.resolve(), folder / package.__name__, ignore=shutil.ignore_patterns("__pycache__"))
        *digests, file = typed(program, folder, site=False)
        assert Path(file).is_relative_to(folder)
        found.append(digests)
    assert found[0] == found[1] == typed(program)[:-1]
    assert len(set(found[0])) == len(policies)


EDITED = """
import functools, sys
from pathlib import Path
from fedbandit_envs.experiments.code import code_digest
import own_policy
file = Path(own_policy.__file__).with_name(NAME)
print(code_digest(own_policy.Mine))
file.write_text(file.read_text().replace(OLD, NEW))
print(code_digest(own_policy.Mine))
"""
STEPS = """
import functools
LIMIT = 0.5
counted = 0

def ready():
    global counted
    counted += 1
    return counted in {"p", "q", "r"}

class Step:
    size: float = 2.0

    @functools.cached_property
    def half(self):
        return [step / 2 for step in self.steps]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("own_policy.py", "share = 0.5", "share = 0.25"),
        ("own_steps.py", "return counted", "return not counted"),
        ("own_steps.py", "step / 2", "step / 3"),
        ("own_steps.py", "LIMIT = 0.5", "LIMIT = 0.25"),
        ("own_steps.py", "2.0", "3.0"),
    ],
)
def test_an_edit_after_the_import_gives_neither_the_hash_of_the_old_text_nor_of_the_new_one(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    (tmp_path / "own_policy.py").write_text(OWN.format("import own_steps"))
    (tmp_path / "own_steps.py").write_text(STEPS)
    program = EDITED.replace("NAME", repr(name))
    program = program.replace("OLD", repr(old)).replace("NEW", repr(new))
    before, after = typed(program, tmp_path)
    (imported_later,) = typed(FILED, tmp_path)
    assert len({before, after, imported_later}) == 3


def test_a_module_that_is_imported_and_used_keeps_its_hash(tmp_path: Path) -> None:
    """It is imported late, its functions have run, and a number of it has changed."""
    (tmp_path / "own_policy.py").write_text(OWN.format("def later():\n    import own_steps\n    own_steps.ready()"))
    (tmp_path / "own_steps.py").write_text(STEPS)
    first, second = typed(FILED + "import own_policy\nfor _ in range(99): own_policy.later()\n" + FILED, tmp_path)
    assert first == second


LONG_LIVED = """
import sys
import fedbandit_envs as fb
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from fedbandit_envs.experiments.executors.clusters import _informed
from fedbandit_envs.experiments.executors.known import known_here

class Cluster:
    "One worker that outlives runs, as those of a cluster do."
    workers = 1
    def __init__(self):
        self.pool = ProcessPoolExecutor(1, get_context("spawn"))
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass
    def submit(self, fn, *args):
        return self.pool.submit(_informed, known_here(), fn, *args)

def run(policy, cluster):
    experiment = fb.Experiment("Synthetic", [policy], {"num_agents": 2, "max_cycles": 8}, trials=2)
    return fb.run(experiment, executor=cluster).final(experiment.labels[0]).tolist()
"""


def test_a_long_lived_worker_gets_the_class_that_was_typed_anew() -> None:
    program = LONG_LIVED + (
        "from experiment_policies import OneArm, OneArmAgents\n"
        "cluster = Cluster()\nfound = []\n"
        "for chosen in (0, 1):\n"
        "    class Mine(OneArm):\n"
        "        arm = 0\n"
        "        def agents(self, view):\n"
        "            return OneArmAgents(OneArm(arm=chosen), view)\n"
        "    fb.register_policy('Mine', Mine)\n"
        "    found.append(run('Mine', cluster))\n"
        "    print(found[-1] == run('Mine', 'serial'))\n"
        "print(found[0] != found[1])\n"
    )
    assert typed(program) == ["True", "True", "True"]


def test_a_worker_that_holds_other_code_than_the_file_refuses_to_compute(tmp_path: Path) -> None:
    (tmp_path / "own_policy.py").write_text(OWN.format(""))
    program = LONG_LIVED + (
        "cluster = Cluster()\nprint(len(run('own_policy:Mine', cluster)))\n"
        f"file = Path({str(tmp_path / 'own_policy.py')!r})\n"
        "file.write_text(file.read_text().replace('0.5', '0.25'))\n"
        "del sys.modules['own_policy']\n"
        "try:\n    run('own_policy:Mine', cluster)\n"
        "except fb.FailedTrials as error:\n    print(str(error).splitlines()[0])\n"
    )
    first, second = typed(program, tmp_path)
    assert first == "2"
    assert "OtherCodeError: own_policy:Mine: expected the code of the process that started the run, got other" in second
