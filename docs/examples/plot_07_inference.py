"""
What Fed-CI infers
==================

The posterior of one agent's mean rewards over time. The agent does not know its context, but its rewards tell.
"""

import numpy as np
from matplotlib import pyplot

import fedbandit_envs as fb

env = fb.make("fedbandit/Synthetic-v0", num_agents=30, num_arms=4, context_std=0.2, max_cycles=2**12)
rounds = fb.CommunicationRounds(env, fb.make_policy("Fed-CI"))
rounds.start(seed=2)
steps, means, spreads = [], [], []
while not rounds.done:
    rounds.advance()
    side = rounds.sides[0]
    belief = side.posterior()
    steps.append(side.pulls[0].sum())
    means.append(belief.expected_rewards()[0])
    own = belief.variance[0] + (belief.factors[0] ** 2).sum(axis=2)  # (S, K) of each component
    spreads.append(np.sqrt((belief.weights[0][:, None] * own).sum(axis=0)))

# %%
# Bands are plus and minus two standard deviations, dashed lines the truth, which the agent never sees.

figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
for arm, (mean, spread) in enumerate(zip(np.transpose(means), np.transpose(spreads), strict=True)):
    axes.plot(steps, mean, color=f"C{arm}", label=f"arm {arm}")
    axes.fill_between(steps, mean - 2 * spread, mean + 2 * spread, color=f"C{arm}", alpha=0.15, linewidth=0)
    axes.axhline(env.instance.means[0, arm], color=f"C{arm}", linestyle="--", linewidth=1)
axes.set_xscale("log")
axes.set_xlabel("step")
axes.set_ylabel("mean reward")
legend = axes.legend(frameon=False, ncols=4)
