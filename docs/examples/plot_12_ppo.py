"""
PPO beside Fed-PECD
===================

PPO was trained on other problems of the same kind; here it plays beside the policies. Training takes a minute and needs
an extra, so the figure is a stored one: `scripts/examples/train_supersuit.py --figure ppo.png` draws it.
:doc:`/how-to/rl-libraries` tells how to train, and how a model becomes a policy.
"""

from pathlib import Path

from matplotlib import image, pyplot

here = Path.cwd()  # the folder of this example
stored = next(folder / "scripts/figures/ppo.png" for folder in here.parents if (folder / "scripts/figures").exists())
figure = pyplot.figure(figsize=(8, 4.6))
axes = figure.add_axes((0, 0, 1, 1))
axes.imshow(image.imread(stored))
off = axes.axis("off")
