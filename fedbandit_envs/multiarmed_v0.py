"""PettingZoo's module form of fedbandit/MultiArmed-v0: multi-armed bandits without features."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "MultiArmed")
env = partial(aec_env, "MultiArmed")
