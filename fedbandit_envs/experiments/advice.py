"""What to know before a result is read: policies that assume other noise, and runs too short to learn in."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from fedbandit_envs.envs.parallel import HiddenContextBandit
from fedbandit_envs.experiments.experiment import PolicySpec
from fedbandit_envs.experiments.results import Result
from fedbandit_envs.protocol.knowledge import Constants
from fedbandit_envs.protocol.policy import Policy, observe_for

_NEAR = 1.01  # a scale of noise that is rounded to three digits is still the right one
_FAR = 2.0  # widths for noise that is this many times larger than the true noise cost four times the steps
_LONG = 22  # runs of more than two to this power steps take hours


def advice(result: Result, specs: Iterable[PolicySpec] | None = None) -> list[str]:
    """A line for each policy that assumes less noise than there is, or whose run is too short.

    A run is too short if it ended before most agents could rule out their second-best arm. Its regret is the price of
    exploration, so the policy looks no better than one that never learns. How many steps are needed is what the policy
    itself says in `Policy.steps_to_separate`.

    Args:
        result: what was found.
        specs: the policies that are looked at; None: all of the experiment.

    >>> from fedbandit_envs import Experiment, run
    >>> short = Experiment("fedbandit/Synthetic-v0", ["Fed-PECD", "Uniform"], {"max_cycles": 1024}, trials=1)
    >>> (line,) = advice(run(short, executor="serial"))
    >>> line.endswith("for which it needs about 8,320 steps; max_cycles=2**16 shows the gain.")
    True
    """
    experiment = result.experiment
    begun: dict[str, HiddenContextBandit] = {}  # the first trial, drawn once for all policies that are shown the same
    lines: list[str] = []
    for spec in experiment.policies if specs is None else specs:
        policy = spec.make()
        if (observe := observe_for(policy)) not in begun:
            begun[observe] = env = experiment.environment_for(policy)
            if env.unwrapped.shared_arms:  # the loss of a step is one of all agents: no agent has gaps of its own
                return []
            env.start(experiment.trial_seed(result.trials[0]))
        lines += _about(result, spec, policy, begun[observe])
    return lines


def _about(result: Result, spec: PolicySpec, policy: Policy, env: HiddenContextBandit) -> Iterator[str]:
    """The advice about one policy of a result, in the environment of its first trial."""
    constants = env.view().constants
    sigma, noise = getattr(policy, "sigma", None), constants.noise_std
    if isinstance(sigma, (int, float)) and sigma < noise / _NEAR:
        yield (
            f"{spec.label}: it assumes noise of scale sigma = {sigma:g}, the noise here is {noise:.3g}, so its bounds "
            f"need not hold: try sigma={noise:.3g}."
        )
        return
    settled = float(result.final(spec.label, "settled_share").mean())
    if settled >= 0.5:
        return
    gaps = env.instance.gaps()
    smallest = np.where(gaps > 0, gaps, np.inf).min(axis=1)  # (M,) the gap of each agent's second-best arm
    gap = float(np.median(smallest))
    needed = policy.steps_to_separate(constants, gap) if math.isfinite(gap) else None
    if needed is not None and needed > constants.horizon:
        yield (
            f"{spec.label}: at T = {constants.horizon:,} only {settled:.0%} of the agents have one arm left, so its "
            f"regret is the price of exploration. {_remedy(policy, constants, gap, needed)}"
        )


def _remedy(policy: Policy, constants: Constants, gap: float, needed: int) -> str:
    """What to change: widths that assume too much noise, or else the number of steps."""
    sigma, noise = getattr(policy, "sigma", None), constants.noise_std
    if isinstance(sigma, (int, float)) and sigma > _FAR * noise > 0:
        return f"Its widths assume sigma = {sigma:g}, the noise here is {noise:.3g}: try sigma={noise:.3g}."
    # Four times as long, as a power of two: then most steps are played once the best arms are known.
    enough = math.ceil(math.log2(4 * needed))
    reason = f"Gaps here are about {gap:.2g}, for which it needs about {needed:,} steps; "
    if enough > _LONG:
        return f"{reason}so small gaps take max_cycles=2**{enough} to show a gain, and a problem with larger gaps less."
    return f"{reason}max_cycles=2**{enough} shows the gain."
