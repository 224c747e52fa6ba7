"""
Gossip on networks
==================

Agents without a server average with their neighbours. How much does the network between them matter?
"""

from matplotlib import pyplot

import fedbandit_envs as fb

networks = ["path", "ring", "star", "grid:4x5", "random-regular:4", "complete"]
policies = ["coop-UCB2", "DDUCB", "Dec-UCB"]
env = fb.make("fedbandit/MultiArmed-v0", num_agents=20, means=[1.0, *[0.7] * 7], noise_std=1.0, max_cycles=1500)

# %%
# How fast a network mixes is a number: the second eigenvalue of the matrix with which agents average. On a path of 20
# agents it is near 1, on a complete network it is 0.

for name in networks:
    network = fb.Network.of(name, 20)
    print(f"{name}: {len(network.edges)} edges, second eigenvalue {network.second_eigenvalue:.2f}")

# %%
# Every policy plays the same problem on each network.

found = {name: [fb.play(env, fb.make_policy(name), seed=0, network=one) for one in networks] for name in policies}
alone = fb.play(env, fb.make_policy("UCB1"), seed=0).mean_regret()[-1]
pooled = fb.play(env, fb.make_policy("Pooled-UCB"), seed=0).mean_regret()[-1]

figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained", sharey=True)
styles = fb.plotting.styles(policies)
for name, runs in found.items():
    regret = [run.mean_regret()[-1] for run in runs]
    left.plot(networks, regret, label=name, **styles[name])
    right.plot([run.ledger.scalars_peer for run in runs], regret, **{**styles[name], "linestyle": ""})
for level, label in ((alone, "UCB1: nobody talks"), (pooled, "Pooled-UCB: a server adds up")):
    left.axhline(level, color="grey", linewidth=1)
    left.annotate(label, (0, level), (0, 3), textcoords="offset points", color="grey", fontsize="small")
left.set(ylabel="regret per agent after 1,500 steps", ylim=(0, None), title="on each network")
left.tick_params(axis="x", labelrotation=20)
right.set(xlabel="scalars over all edges", xscale="log", title="and what crossed")
legend = left.legend(frameon=False)

# %%
# coop-UCB2 is about as good as a server on every network: a few neighbours are enough. DDUCB decides by averages that
# are finished, and on networks that mix slowly these take longer. Of the network an agent of Dec-UCB knows only the
# number of its neighbours. On most of these networks it loses more than agents that do not talk at all.
