"""PettingZoo's module form of fedbandit/Household-v0: MovieLens accounts shared by several people."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "Household")
env = partial(aec_env, "Household")
