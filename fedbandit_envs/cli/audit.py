"""The command `fedbandit audit`."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedbandit_envs.cli.options import add_experiment, experiment_of

if TYPE_CHECKING:
    from fedbandit_envs.protocol.claims import Claim
    from fedbandit_envs.rounds.auditing import Audit

HELP = "Check one run of each policy, or several, against what theory claims about it."
EXAMPLES = (
    "fedbandit audit --env Synthetic --policy Fed-PE",
    "fedbandit audit --env Synthetic --policy Fed-PE --trials 10",
    "fedbandit audit --env Synthetic --policy Fed-PE --set error=classical",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit audit`."""
    add_experiment(parser)
    parser.add_argument(
        "--trial", type=int, metavar="K", help="which trial (default: 0); --trials N checks trials 0 to N - 1"
    )


def run(options: argparse.Namespace) -> int:
    """Play trials of each policy with their messages recorded, and show what the audits say."""
    from fedbandit_envs.rounds.auditing import audit
    from fedbandit_envs.shards.playing import play
    from fedbandit_envs.validation import whole_number

    if options.trial is not None and options.trials is not None:
        raise ValueError("expected --trial or --trials, got both")
    experiment = experiment_of(options)
    experiment.check()
    first = whole_number("trial", options.trial or 0, at_least=0)
    trials = [first] if options.trials is None else range(experiment.trials)
    audits: list[Audit] = []
    for spec in experiment.policies:
        policy = spec.make()
        env = experiment.environment_for(policy)
        seeds = [experiment.trial_seed(trial) for trial in trials]
        faults, network = experiment.faults(policy), experiment.network or None
        reports = [audit(play(env, policy, seed=seed, record=True, faults=faults, network=network)) for seed in seeds]
        print(f"{spec.label}\n{reports[0] if len(reports) == 1 else _summary(reports)}\n")
        audits += reports
    return 0 if all(one.ok for one in audits) else 1


def _summary(audits: "Sequence[Audit]") -> str:
    """The audits of several trials: for each claim the largest measurement, and in how many trials it holds."""
    names = list(dict.fromkeys(claim.claim for one in audits for claim in one.claims))
    size = max(map(len, names))
    lines = [f"{'claim':<{size}}  {'bound':>12}  {'largest':>12}  verdict"]
    for name in names:
        rows = [claim for one in audits for claim in one.claims if claim.claim == name]
        worst = max(rows, key=_beyond_bound)
        held, claimed = sum(row.holds for row in rows), sum(row.claimed for row in rows)
        verdict = f"true in {held} of {len(rows)} trials, claimed in {claimed or 'none'}"
        reasons = list(dict.fromkeys(row.unless for row in rows if not row.claimed and row.unless))
        others = (
            f", and {len(reasons) - 1} other reasons"
            if len(reasons) > 2
            else "".join(f"; {one}" for one in reasons[1:])
        )
        verdict += f" ({reasons[0]}{others})" if reasons else ""
        lines.append(f"{name:<{size}}  {worst.bound:>12.6g}  {worst.measured:>12.6g}  {verdict}")
    return "\n".join(lines)


def _beyond_bound(claim: "Claim") -> float:
    return claim.measured - claim.bound
