"""PettingZoo's module form of fedbandit/Linear-v0: your own arrays."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "Linear")
env = partial(aec_env, "Linear")
