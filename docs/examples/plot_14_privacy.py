"""
What privacy costs
==================

The agents of Private-FedLinUCB report noisy sums, so that nobody else learns much about any single observation of
theirs. The smaller the budget epsilon, the more noise, and the more regret.
"""

import numpy as np
from matplotlib import pyplot

import fedbandit_envs as fb

steps, agents, arms, dim = 800, 50, 8, 3
budgets = (0.1, 0.5, 2.0, 10.0)
private = {
    (scale, epsilon): fb.make_policy("Private-FedLinUCB", epsilon=epsilon, width_scale=scale, sigma=0.3)
    for scale in (1.0, 0.1)
    for epsilon in budgets
}
others = {"no privacy": fb.make_policy("DisLinUCB", sigma=0.3), "no communication": fb.make_policy("KK-UCB", sigma=0.3)}

# %%
# Arms are new at each step, and all share one unknown theta. All policies play the same problems.

found = {policy: [] for policy in (*private, *others)}
for seed in range(2):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, (steps, agents, arms, dim)) / np.sqrt(dim)
    theta = rng.normal(size=dim)
    theta = np.tile(theta / np.linalg.norm(theta), (arms, 1))
    env = fb.make(
        "fedbandit/Linear-v0",
        theta=theta,
        features=features,
        context="streaming",
        shared_theta=True,
        noise_std=0.3,
        max_cycles=steps,
    )
    for name, policy in (private | others).items():
        found[name].append(fb.play(env, policy, seed=seed).mean_regret()[-1])

figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
for scale, label in ((1.0, "Private-FedLinUCB"), (0.1, "with a tenth of the width")):
    axes.plot(budgets, [np.mean(found[scale, epsilon]) for epsilon in budgets], "o-", label=label)
for name, line in zip(others, ("--", ":"), strict=True):
    axes.axhline(np.mean(found[name]), color="black", linewidth=1, linestyle=line, label=name)
axes.set(
    xlabel="budget epsilon, at delta = 1e-5", ylabel=f"regret per agent after {steps} steps", xscale="log", yscale="log"
)
legend = axes.legend(frameon=False)

# %%
# With the width that theory asks for, privacy costs more here than agents gain from each other: not to talk at all is
# better. With a tenth of that width, as the authors of the policy also use, talking pays from a budget of about 5 on.
# More agents and more steps make up for more noise.
#
# A history says what was promised, and the tables of an experiment do.

print(fb.play(env, private[1.0, 2.0], seed=0))
