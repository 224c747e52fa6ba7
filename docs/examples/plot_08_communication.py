"""
Regret against communication
============================

The ledger counts what every policy sends. Policies that send much do not always lose little: look for those that are
below and on the left.
"""

import fedbandit_envs as fb

policies = ["Fed-CI", "Fed-PECD", "DisLinUCB", "Local-UCB", "KK-UCB"]
experiment = fb.Experiment("fedbandit/Synthetic-v0", policies, {"num_agents": 20, "max_cycles": 2**12}, trials=3)
result = fb.run(experiment, executor="serial")
figure = fb.plotting.communication(result)
