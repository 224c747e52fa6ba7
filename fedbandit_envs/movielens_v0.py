"""PettingZoo's module form of fedbandit/MovieLens-v0: MovieLens users."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "MovieLens")
env = partial(aec_env, "MovieLens")
