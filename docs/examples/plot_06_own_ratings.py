"""
Your own ratings
================

A table of ratings becomes a problem: users are agents, groups of items are arms. The ratings here are made up.
"""

import tempfile
from pathlib import Path

import numpy as np

import fedbandit_envs as fb

rng = np.random.default_rng(0)
tastes, films = rng.uniform(0, 1, (150, 3)), rng.uniform(0, 1, (60, 3))
pairs = [(user, film) for user in range(150) for film in rng.choice(60, 30, replace=False)]
table = {
    "user": [f"u{user}" for user, _ in pairs],
    "film": [f"f{film}" for _, film in pairs],
    "stars": [1 + 4 * tastes[user] @ films[film] / 3 for user, film in pairs],
}

# %%
# A fit says how well it explains ratings that were held out.

problem = fb.from_ratings(table, user="user", item="film", rating="stars", num_arms=10, dim=3)
print(problem)

# %%
# Saved to a file, it is an environment.

file = Path(tempfile.mkdtemp()) / "my.npz"
problem.save(file)
arguments = {"path": str(file), "num_agents": 40, "max_cycles": 2**12}
experiment = fb.Experiment("fedbandit/File-v0", ["Fed-CI", "Local-UCB", "Uniform"], arguments, trials=3)
figure = fb.plotting.regret(fb.run(experiment, executor="serial"))
