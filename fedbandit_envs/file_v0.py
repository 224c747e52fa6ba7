"""PettingZoo's module form of fedbandit/File-v0: a problem that was saved as a file."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "File")
env = partial(aec_env, "File")
