"""PettingZoo's module form of fedbandit/Synthetic-v0: the paper's synthetic problems."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "Synthetic")
env = partial(aec_env, "Synthetic")
