"""
First run
=========

One run of Fed-PECD on the paper's synthetic problem, and the regret of its agents over time.
"""

import fedbandit_envs as fb

env = fb.make("fedbandit/Synthetic-v0", num_agents=50, max_cycles=2**15)
history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
print(history)

# %%
# The history keeps the pulls of each agent. Regret is derived from them.

figure = fb.plotting.regret(history)
