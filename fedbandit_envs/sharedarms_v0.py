"""PettingZoo's module form of fedbandit/SharedArms-v0: arms with room for several agents."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "SharedArms")
env = partial(aec_env, "SharedArms")
