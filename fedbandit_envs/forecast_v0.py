"""PettingZoo's module form of fedbandit/Forecast-v0: sites that act on forecasts of the weather."""

from functools import partial

from fedbandit_envs.envs.registration import aec_env
from fedbandit_envs.envs.registration import parallel_env as _parallel_env

parallel_env = partial(_parallel_env, "Forecast")
env = partial(aec_env, "Forecast")
