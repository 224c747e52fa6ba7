"""
Gymnasium: agents as rows
=========================

The agents of one problem are the rows of a native vector environment, so any learner of Gymnasium can train on it.
Here a rule of three lines plays: the arm with the best mean reward, and sometimes any arm.
"""

import gymnasium
import numpy as np
from matplotlib import pyplot

env = gymnasium.make_vec("fedbandit_envs:fedbandit/Synthetic-Agent-v0", num_envs=50, max_cycles=1000, noise_std=0.3)
env.reset(seed=0)
rng = np.random.default_rng(0)
arms = env.single_action_space.n
pulls, sums, paid = np.zeros((50, arms)), np.zeros((50, arms)), []
for _ in range(999):
    best = np.where(pulls == 0, np.inf, sums / np.maximum(pulls, 1)).argmax(axis=1)
    actions = np.where(rng.random(50) < 0.05, rng.integers(arms, size=50), best)
    _, rewards, *_ = env.step(actions)
    pulls[np.arange(50), actions] += 1
    sums[np.arange(50), actions] += rewards
    paid.append(rewards.mean())

# %%
# The mean reward of all agents, over windows of 50 steps.

figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
axes.plot(np.convolve(paid, np.ones(50) / 50, mode="valid"))
axes.set_xlabel("step")
label = axes.set_ylabel("mean reward")
