"""The command `fedbandit audit`."""

import argparse

from fedbandit_envs.cli.options import add_experiment, experiment_of

HELP = "Check a run against what theory claims about it."
EXAMPLES = (
    "fedbandit audit --env Synthetic --policy Fed-PE",
    "fedbandit audit --env Synthetic --policy Fed-PE --set error=classical",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fedbandit audit`."""
    add_experiment(parser)
    parser.add_argument("--trial", type=int, default=0, metavar="K", help="which trial (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Play one trial of each policy with its messages recorded, and show what its audit says."""
    from fedbandit_envs.rounds.auditing import audit
    from fedbandit_envs.rounds.loop import play
    from fedbandit_envs.validation import whole_number

    experiment = experiment_of(options)
    seed = experiment.trial_seed(whole_number("trial", options.trial, at_least=0))
    audits = []
    for spec in experiment.policies:
        policy = spec.make()
        env = experiment.environment_for(policy)
        audits.append(audit(play(env, policy, seed=seed, record=True, faults=experiment.faults())))
        print(f"{spec.label}\n{audits[-1]}\n")
    return 0 if all(one.ok for one in audits) else 1
