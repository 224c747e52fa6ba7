"""
Regret against communication
============================

Less regret can be bought with more messages. The ledger counts what every policy sends.
"""

import fedbandit_envs as fb

policies = ["Fed-CI", "Fed-PECD", "DisLinUCB", "Local-UCB", "KK-UCB"]
experiment = fb.Experiment("fedbandit/Synthetic-v0", policies, {"num_agents": 20, "max_cycles": 2**12}, trials=3)
result = fb.run(experiment, executor="serial")
figure = fb.plotting.communication(result)
