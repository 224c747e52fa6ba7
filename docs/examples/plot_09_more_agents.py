"""
More agents, less regret for each
=================================

The server pools what agents learn. The more there are, the less each of them must explore.
"""

from matplotlib import pyplot

import fedbandit_envs as fb

figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
for agents in (10, 30, 90):
    env = fb.make("fedbandit/Synthetic-v0", num_agents=agents, max_cycles=2**15, observe="context")
    history = fb.play(env, fb.make_policy("Fed-PE"), seed=0)
    axes.plot(history.steps, history.mean_regret(), label=f"{agents} agents")
axes.set_xlabel("step")
axes.set_ylabel("regret per agent")
legend = axes.legend(frameon=False)
