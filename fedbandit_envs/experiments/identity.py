"""What produced a run, and its address: everything that decides the numbers of a run, as a text and as its hash."""

import hashlib
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from fedbandit_envs.envs.registration import problem_class
from fedbandit_envs.experiments.code import class_path, code_digest
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.protocol.registry import policy_class

#: The number of the result format. It changes whenever the files change, or the numbers of the same run do.
RESULT_FORMAT = 4
_TOKEN = secrets.token_hex(16)  # a forked process has the same, but another id
_DIGITS = 12  # how many digits of the hash stand in the name of a folder


@dataclass(frozen=True)
class RunIdentity:
    """All that decides the numbers of a policy's trials in an experiment; its label and the number of trials do not."""

    policy: str  #: the name of the policy, which makes the folder's name readable and decides nothing
    text: str  #: what produced the run, as JSON

    @cached_property
    def digest(self) -> str:
        """The hash of the text."""
        return digest_of(self.text)

    @property
    def folder(self) -> str:
        """The name of the folder that holds the run's trials."""
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', self.policy).strip('-.') or 'policy'}-{self.digest[:_DIGITS]}"


def digest_of(text: str) -> str:
    """The hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_run_folder(name: str) -> bool:
    """Whether a name is of the form that `RunIdentity.folder` gives.

    >>> is_run_folder("Fed-PECD-1a2b3c4d5e6f"), is_run_folder("../Fed-PECD-1a2b3c4d5e6f")
    (True, False)
    """
    return re.fullmatch(rf"[A-Za-z0-9.-]+-[0-9a-f]{{{_DIGITS}}}", name) is not None


def run_identities(experiment: Experiment) -> list[RunIdentity]:
    """The identity of each policy's run, in the order of the policies.

    >>> from fedbandit_envs import PolicySpec
    >>> policies = ["Uniform", PolicySpec("Uniform", label="again"), "Oracle"]
    >>> first, again, other = run_identities(Experiment("fedbandit/Synthetic-v0", policies))
    >>> first == again, first == other
    (True, False)
    """
    resolved = experiment.resolved()
    codes = codes_of(resolved)
    found = []
    for spec, code in zip(resolved.policies, codes.policies, strict=True):
        decides = known_without_code(resolved, spec.parameters)
        decides |= {"policy": class_path(policy_class(spec.name)), "code": code, "problem_code": codes.problem}
        found.append(RunIdentity(spec.name, json.dumps(decides, sort_keys=True)))
    return found


class Codes(NamedTuple):
    """The code of an experiment where its run was started, which workers compare with their own."""

    process: str  #: the process that started the run
    problem: str  #: the hash of the problem's class
    policies: tuple[str, ...]  #: the hash of each policy's class, in the order of the policies


class OtherCodeError(RuntimeError):
    """A worker has other code than the process that started the run."""


def codes_of(experiment: Experiment) -> Codes:
    """The code of an experiment in this process."""
    policies = tuple(code_digest(policy_class(spec.name)) for spec in experiment.policies)
    return Codes(_process(), code_digest(problem_class(experiment.environment)), policies)


_compared: set[tuple[type, str]] = set()  # classes that have been found to be those of the process with that hash


def check_codes(experiment: Experiment, places: Sequence[int], codes: Codes) -> None:
    """In a worker: refuse to compute with other code than that of the process that started the run."""
    if codes.process == _process():
        return
    names = {experiment.policies[place].name: codes.policies[place] for place in places}
    wanted = [(name, policy_class(name), code) for name, code in names.items()]
    for name, one, code in [*wanted, (experiment.environment, problem_class(experiment.environment), codes.problem)]:
        if (one, code) in _compared:
            continue
        # What follows a blank is random: it stands for objects that can't be compared.
        if code_digest(one).partition(" ")[0] != code.partition(" ")[0]:
            raise OtherCodeError(
                f"{name}: expected the code of the process that started the run, got other code in a worker; a file "
                "was edited after one of them had imported it: start that process, or the workers, again"
            )
        _compared.add((one, code))


def _process() -> str:
    return f"{os.getpid()} {_TOKEN}"


def known_without_code(resolved: Experiment, parameters: Any) -> dict[str, Any]:
    """The part of an identity that a reader can check where the policy is not installed."""
    problem = resolved.problem()
    return {"format": RESULT_FORMAT, "problem": problem, "seed": resolved.seed, "parameters": dict(parameters)}
