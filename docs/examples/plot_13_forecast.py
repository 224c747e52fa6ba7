"""
Acting on forecasts
===================

Sites choose an action by the forecast of tomorrow's weather, and are paid by the weather that comes. The forecast is
new at each step, so only policies that decide at each step can play.
"""

import numpy as np
from matplotlib import pyplot

import fedbandit_envs as fb

env = fb.make("fedbandit/Forecast-v0", num_agents=20, max_cycles=1000, reveal="after")
policies = ("Uniform", "KK-UCB", "KK-UCB-Observed", "DisLinUCB")
runs = {
    name: fb.play(env, fb.make_policy(name, **({} if name == "Uniform" else {"sigma": 0.5})), seed=0)
    for name in policies
}

figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
for name, style in fb.plotting.styles(policies).items():
    axes.plot(runs[name].steps, runs[name].mean_regret(), label=name, markevery=20, **style)
axes.set(xlabel="step", ylabel="regret per site", yscale="log")
legend = axes.legend(frameon=False)

# %%
# KK-UCB learns at each site alone. KK-UCB-Observed also uses tomorrow's weather once it is known, and DisLinUCB what
# all sites have seen.
#
# Is the forecast honest? An ensemble shows several scenarios. If they have the law of the weather, then the weather
# has each rank among them equally often. With `dispersion` below 1 the forecast is overconfident: the weather often
# lies outside.

figure, both = pyplot.subplots(1, 2, figsize=(7, 2.8), layout="constrained", sharey=True)
for axes, dispersion in zip(both, (1.0, 0.5), strict=True):
    env = fb.make(
        "fedbandit/Forecast-v0", num_agents=20, max_cycles=200, members=9, dispersion=dispersion, reveal="after"
    )
    observations, _ = env.reset(seed=0)
    ranks = []
    while env.agents:
        scenarios = np.stack([shown["support"] for shown in observations.values()])  # (20, 9, 4): 1 and three variables
        observations, *_, infos = env.step(dict.fromkeys(env.agents, 0))
        weather = np.stack([info["context"] for info in infos.values()])
        ranks.append((scenarios < weather[:, None]).sum(axis=1)[:, 1:].clip(max=8))
    axes.bar(range(9), np.bincount(np.ravel(ranks), minlength=9) / np.size(ranks))
    axes.axhline(1 / 9, color="black", linewidth=1, linestyle="--")
    axes.set(title=f"dispersion {dispersion:g}", xlabel="rank of the weather among 9 scenarios")
label = both[0].set_ylabel("share")
