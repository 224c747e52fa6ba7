"""
The best arm for me, for these agents, or for all
=================================================

In a federated multi-armed bandit the agents' means differ by hidden deviations. Then "the best arm" has three meanings:
the best one for each agent itself, the best one on average over these agents, and the best one in the population that
they come from. Policies look for one of them. The more the agents differ, the more it costs to be judged by another.
"""

from matplotlib import pyplot

import fedbandit_envs as fb

spreads = (0.0, 0.05, 0.1, 0.2, 0.4)
means = (0.3, 0.4, 0.5, 0.55, 0.6, 0.7)
policies = {
    "Fed1-UCB": fb.make_policy("Fed1-UCB"),
    "PF-UCB, alpha 0.2": fb.make_policy("PF-UCB", alpha=0.2),
    "PF-UCB, alpha 0.5": fb.make_policy("PF-UCB", alpha=0.5),
    "PF-UCB, alpha 0.9": fb.make_policy("PF-UCB", alpha=0.9),
    "Fed-PECD": fb.make_policy("Fed-PECD"),
    "Fed-CI": fb.make_policy("Fed-CI"),
}
panels = {
    "regret": "against each agent's own best arm",
    "group_regret": "against the best arm of these agents",
    "distribution_regret": "against the best arm of the population",
}

# %%
# Every policy plays the same problems. One run gives all three kinds of regret.

found = {label: {kind: [] for kind in panels} for label in policies}
for spread in spreads:
    env = fb.make(
        "fedbandit/MultiArmed-v0", num_agents=20, means=means, local_std=spread, noise_std=0.5, max_cycles=2**15
    )
    for label, policy in policies.items():
        runs = [fb.play(env, policy, seed=seed) for seed in range(3)]
        for kind in panels:
            found[label][kind].append(sum(run.mean_regret(kind)[-1] for run in runs) / len(runs))

figure, axes = pyplot.subplots(1, 3, figsize=(11, 4.2), layout="constrained", sharey=True)
styles = fb.plotting.styles(list(policies), ["Fed1-UCB", "PF-UCB", "PF-UCB", "PF-UCB", "Fed-PECD", "Fed-CI"])
for axis, (kind, title) in zip(axes, panels.items(), strict=True):
    for label, style in styles.items():
        axis.plot(spreads, found[label][kind], label=label, **style)
    axis.set_title(title, fontsize="medium")
    axis.set(xlabel="spread of the agents' means (local_std)", yscale="log")
axes[0].set_ylabel("regret per agent after 32 768 steps")
legend = figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)

# %%
# Fed1-UCB and Fed-PECD look for the arm of the group: their group regret hardly depends on the spread, and their
# personal regret grows with it. Fed-CI infers the deviations, so its personal regret stays small, and its group regret
# grows. Where agents differ most, PF-UCB stands between the two, in the order of `alpha`. Where they are nearly alike,
# its wide bounds cost it more than the others lose. Once agents differ, no policy is good by all three.
