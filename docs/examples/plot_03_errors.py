"""
Berkson and classical error
===========================

With the Berkson error contexts vary around what is shown. With the classical error what is shown varies around the
context. The same spread gives different problems: :doc:`/concepts/hidden-contexts` has the pictures.
"""

from matplotlib import pyplot

import fedbandit_envs as fb

figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for axes, error in zip(panels, ("berkson", "classical"), strict=True):
    problem = {"num_agents": 50, "max_cycles": 2**13, "context_std": 0.2, "error": error}
    experiment = fb.Experiment("fedbandit/Synthetic-v0", ["Fed-CI", "Federated-Thompson"], problem, trials=5)
    result = fb.run(experiment, executor="serial")
    fb.plotting.regret(result, axes=axes)
    axes.set_title(error)

# %%
# `Federated-Thompson` takes expected features for the true ones. `Fed-CI` infers the hidden context, and gains with
# both kinds of error.
