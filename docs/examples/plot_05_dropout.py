"""
Dropout
=======

Reports get lost. How much regret does that cost?
"""

import fedbandit_envs as fb

problem = {"num_agents": 30, "max_cycles": 2**13}
experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Fed-CI", "DisLinUCB"], problem, trials=5)
results = fb.sweep(experiment, {"dropout": [0.0, 0.2, 0.5]}, executor="serial")
figure = fb.plotting.regret_against({dropout: result for (dropout,), result in results.items()}, "dropout")

# %%
# A bar is the 95 % interval of the mean over trials. Where half of all reports are lost, one trial can differ much
# from another.
#
# One run in detail: which reports were lost, and when.

env = fb.make("fedbandit/Synthetic-v0", **problem)
history = fb.play(env, fb.make_policy("Fed-CI"), seed=0, faults=fb.Faults(dropout=0.2))
print(len(history.faults), "reports lost, the first:", history.faults[0])
