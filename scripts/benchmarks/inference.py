"""Fed-CI beside Fed-PECD: time and memory of a run, and how both grow with the number of arms."""

import tracemalloc

import fedbandit_envs as fb
from benchmarks.measure import Row, ratio

HORIZON = 2**17
MOST = 3  # the goal: at most this many times the CPU time of Fed-PECD


def inference(quick: bool) -> list[Row]:
    """The rows for MovieLens with K = 30 arms, and for Synthetic with M = 100 and 1000 and K = 10, 30, 90."""
    movielens = fb.make("fedbandit/MovieLens-v0", num_agents=100, max_cycles=HORIZON, context_std=0.1, noise_std=0.1)
    times, ours, theirs = _beside(movielens, 0.1, 2 if quick else 15)
    rows = [
        Row("Fed-CI over Fed-PECD, MovieLens (K = 30), M = 100", f"at most {MOST}", f"{times:.1f}", times <= MOST),
        Row("CPU of the two", "", f"{ours * 1e3:.0f}, {theirs * 1e3:.0f} ms", None),
        Row("memory of the two", "", f"{_peak(movielens, 'Fed-CI'):.1f}, {_peak(movielens, 'Fed-PECD'):.1f} MiB", None),
    ]
    arms = (10, 30) if quick else (10, 30, 90)
    listed = ", ".join(map(str, arms))
    for num_agents in (100,) if quick else (100, 1000):
        found = []
        for num_arms in arms:
            sizes = {"num_agents": num_agents, "num_arms": num_arms}
            env = fb.make("fedbandit/Synthetic-v0", max_cycles=HORIZON, context_std=0.1, **sizes)
            found.append((*_beside(env, 1.0, 1 if quick else 5), _peak(env, "Fed-CI")))
        where, reached = f"Synthetic, M = {num_agents}, K = {listed}", max(point[0] for point in found) <= MOST
        rows += [
            Row(f"Fed-CI over Fed-PECD, {where}", f"at most {MOST}", _list(found, 0, 1, ".1f"), reached),
            Row("CPU of Fed-CI there", "", f"{_list(found, 1, 1e3, '.0f')} ms", None),
            Row("memory of Fed-CI there", "", f"{_list(found, 3, 1, '.1f')} MiB", None),
        ]
    return rows


def _beside(env: fb.HiddenContextBandit, sigma: float, repeats: int) -> tuple[float, float, float]:
    """The CPU time of Fed-CI over that of Fed-PECD, which is told the noise scale, and both times in seconds."""
    ours, theirs = fb.make_policy("Fed-CI"), fb.make_policy("Fed-PECD", sigma=sigma)
    tasks = {"ours": lambda call: fb.play(env, ours, seed=call), "theirs": lambda call: fb.play(env, theirs, seed=call)}
    return ratio(tasks, calls=3, repeats=repeats)


def _peak(env: fb.HiddenContextBandit, name: str) -> float:
    """The most memory that one run allocates, in MiB."""
    tracemalloc.start()
    fb.play(env, fb.make_policy(name), seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak / 2**20)


def _list(found: list[tuple[float, ...]], place: int, unit: float, form: str) -> str:
    return ", ".join(format(point[place] * unit, form) for point in found)
