"""Federated bandits with hidden contexts: environments, policies, and honest comparisons between them.

>>> import fedbandit_envs as fb
>>> env = fb.make("fedbandit/Synthetic-v0", num_agents=10, max_cycles=1000)
>>> history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0)
>>> print(f"{history.mean_regret()[-1]:.0f} regret per agent, {history.ledger.scalars} numbers sent")
310 regret per agent, 14268 numbers sent

The public names are those of the stub `__init__.pyi`. Each is imported at its first use, so that `import
fedbandit_envs`, which gymnasium.make() does for its users, costs little more than Gymnasium and PettingZoo themselves.
"""

import lazy_loader

from fedbandit_envs.envs.ids import register_environments

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

register_environments()
