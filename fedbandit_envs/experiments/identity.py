"""What produced a run, and its address: everything that decides the numbers of a run, as a text and as its hash."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fedbandit_envs.envs.registration import problem_class
from fedbandit_envs.experiments.code import class_path, code_digest
from fedbandit_envs.experiments.experiment import Experiment
from fedbandit_envs.protocol.registry import policy_class

#: The number of the result format. It changes whenever the files change, or the numbers of the same run do.
RESULT_FORMAT = 2
_DIGITS = 12  # of the hash, in the name of a folder


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


def run_identities(experiment: Experiment) -> list[RunIdentity]:
    """The identity of each policy's run, in the order of the policies.

    >>> from fedbandit_envs import PolicySpec
    >>> policies = ["Uniform", PolicySpec("Uniform", label="again"), "Oracle"]
    >>> first, again, other = run_identities(Experiment("fedbandit/Synthetic-v0", policies))
    >>> first == again, first == other
    (True, False)
    """
    resolved = experiment.resolved()
    problem_code = code_digest(problem_class(resolved.environment))
    found = []
    for spec in resolved.policies:
        policy = policy_class(spec.name)
        decides = known_without_code(resolved, spec.parameters)
        decides |= {"policy": class_path(policy), "code": code_digest(policy), "problem_code": problem_code}
        found.append(RunIdentity(spec.name, json.dumps(decides, sort_keys=True)))
    return found


def known_without_code(resolved: Experiment, parameters: Any) -> dict[str, Any]:
    """The part of an identity that a reader can check where the policy is not installed."""
    problem = resolved.problem()
    return {"format": RESULT_FORMAT, "problem": problem, "seed": resolved.seed, "parameters": dict(parameters)}
