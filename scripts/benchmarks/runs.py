"""Whole runs of Fed-PECD, the design inside them, and the paper's evaluation."""

import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fedbandit_envs as fb
from benchmarks.measure import NOT_COMPILED, Row, compiler, interleaved, ratio
from fedbandit_agents.phased.design import g_optimal

sys.path.append(str(Path(__file__).parents[2] / "tests" / "helpers"))
import reference

HORIZON = 2**17


def run(quick: bool) -> list[Row]:
    """A run beside drawing one normal per pull, also compiled and with more agents, and beside a naive reading."""
    repeats = 3 if quick else 21
    env, seconds, limit, share = _beside_normals(100, repeats)
    short = 2**4 if quick else 2**10
    times = _naive(env, short) / seconds
    what = f"naive reading (measured to T = 2^{short.bit_length() - 1}, its later designs taken as free) over Fed-PECD"
    rows = [
        Row("Fed-PECD, M = 100, K = 10, d = 3, T = 2^17", "", f"{seconds * 1e3:.1f} ms", None),
        Row("one normal per pull", "", f"{limit * 1e3:.1f} ms", None),
        Row("Fed-PECD over one normal per pull", "at most 0.10", f"{share:.3f}", share <= 0.10),
    ]
    if compiler():
        *_, share = _beside_normals(100, repeats, compiled=True)
        rows.append(Row("the same, compiled", "at most 0.05", f"{share:.3f}", share <= 0.05))
    else:
        rows.append(Row("the same, compiled", "at most 0.05", NOT_COMPILED, None))
    if not quick:
        for name, compiled in {"the first": False, "the second": True}.items():
            if compiler() or not compiled:
                *_, share = _beside_normals(1000, repeats=5, compiled=compiled)
                rows.append(Row(f"{name} with M = 1000", "", f"{share:.3f}", None))
    return [*rows, Row(what, "at least 3,000", f"{times:,.0f}", times >= 3000)]


def _beside_normals(
    agents: int, repeats: int, **parameters: bool
) -> tuple[fb.HiddenContextBandit, float, float, float]:
    """The environment, CPU seconds of a run and of its pulls' normals, and their ratio.

    Some runs take turns with drawing the normals of as many runs. The normals fill 100 MB, so a single run that always
    came right after them would find empty caches, which no run in a sweep does.
    """
    env = fb.make("fedbandit/Synthetic-v0", num_agents=agents, max_cycles=HORIZON, error="classical")
    policy = fb.make_policy("Fed-PECD", **parameters)
    rng, seeds = (
        np.random.default_rng(0),
        itertools.count(),
    )  # each run is on another problem, because some take longer than others

    def normals(_: int) -> None:
        for _ in range(agents // 100):  # few runs, because they must fit into memory
            rng.standard_normal(100 * HORIZON)

    share, seconds, limit = ratio(
        {"run": lambda _: fb.play(env, policy, seed=next(seeds)), "normals": normals},
        calls=max(1, 500 // agents),
        repeats=repeats,
    )
    return env, seconds, limit, share


def _naive(env: fb.HiddenContextBandit, short: int) -> float:
    """A lower bound of the CPU seconds of a naive run to T = 2^17: a short run in full, and only pulls for the rest.

    Later phases would solve designs too. They are left out, so that the bound holds however much eliminated arms save.
    """
    env.reset(seed=0)
    psi, means = env.view().psi, env.instance.means
    start = time.process_time()
    reference.naive_run(means, psi, short, 0, ell=0.5)
    whole = time.process_time() - start
    rng = np.random.default_rng(0)
    table = means.tolist()

    def pull(agent: int, arm: int, *_: int) -> float:
        return table[agent][arm] + rng.standard_normal()

    def evenly(phase: int, active: np.ndarray) -> np.ndarray:
        return reference.allocate(active / active.sum(axis=1, keepdims=True), active, 2**phase)

    start = time.process_time()
    reference.fed_pecd(psi, 2**10, reward=pull, exploit=pull, allocation=evenly, ell=0.5)
    each = (time.process_time() - start) / (len(psi) * 2**10)
    return whole + each * len(psi) * (HORIZON - short)


def design(quick: bool) -> list[Row]:
    """The time of all designs of one MovieLens run, beside that of a naive block solver, and with a tighter gap."""
    env = fb.make("fedbandit/MovieLens-v0", num_agents=150, max_cycles=HORIZON, error="classical")
    history = fb.play(env, fb.make_policy("Fed-PECD"), seed=0, record=True)
    assert history.view is not None
    assert history.exchanges is not None
    e = history.view.psi / np.linalg.norm(history.view.psi, axis=-1, keepdims=True)
    sets = [x.up.present["arms"] for x in history.exchanges if x.up is not None and x.up.kind == "active"]
    different = [now for before, now in zip([None, *sets], sets, strict=False) if not np.array_equal(before, now)]

    def solve(gap: float, compiled: bool = False) -> None:
        start = None
        for active in different:
            start = g_optimal(e, active, gap=gap, start=start, compiled=compiled).pi

    tasks = {"0.1": lambda _: solve(0.1), "1e-3": lambda _: solve(1e-3)}
    seconds = interleaved(tasks, calls=1, repeats=5 if quick else 15)
    coarse, fine = (float(np.median(seconds[task])) for task in tasks)
    sample = different[:1] if quick else different
    start = time.process_time()
    for active in sample:
        reference.g_optimal_slsqp(e, active)
    naive = time.process_time() - start
    start = time.process_time()
    warm = None
    for active in sample:
        warm = g_optimal(e, active, gap=0.1, start=warm).pi
    ours = time.process_time() - start if quick else coarse
    times = naive / ours
    compiled = []
    if compiler():
        seconds = interleaved(
            {"numpy": lambda _: solve(0.1), "compiled": lambda _: solve(0.1, compiled=True)},
            calls=1,
            repeats=5 if quick else 15,
        )
        faster = float(np.median(np.array(seconds["numpy"]) / np.array(seconds["compiled"])))
        compiled = [Row("ours over the same compiled", "", f"{faster:.1f}", None)]
    which = f"{len(sample)} of {len(different)}" if quick else f"all {len(different)}"
    return [
        Row(f"{len(different)} designs of a MovieLens run, M = 150, gap 0.1", "", f"{coarse * 1e3:.1f} ms", None),
        Row(f"naive block solver over ours ({which} designs)", "at least 200", f"{times:,.0f}", times >= 200),
        *compiled,
        Row("gap 1e-3 over gap 0.1", "at most 10", f"{fine / coarse:.1f}", fine / coarse <= 10),
    ]


def evaluation(quick: bool) -> list[Row]:
    """The wall time of all of `fedbandit reproduce` on two processes; with `--compiled`, compiling is included."""
    trials = 5 if quick else 100
    rows = []
    for options, most in (([], 60), (["--compiled"], 30)):
        if options and (quick or not compiler()):
            continue  # compiling takes longer than a few trials
        seconds = _reproduced(trials, options)
        what = f"fedbandit reproduce {' '.join(options)}".strip() + f", {trials} trials, 2 processes, wall time"
        goal, met = ("", None) if quick else (f"at most {most} s", seconds <= most)
        rows.append(Row(what, goal, f"{seconds:.1f} s", met))
    return rows


def _reproduced(trials: int, options: list[str]) -> float:
    """The wall seconds of `fedbandit reproduce` with these options."""
    words = ["reproduce", "--workers", "2", "--trials", str(trials), *options]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fedbandit_envs", *words, "--out", folder]
        start = time.perf_counter()
        finished = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if finished.returncode not in (0, 1) or not Path(folder, "figure.png").exists():
            raise RuntimeError(f"expected fedbandit reproduce to draw its figure, got none: {finished.stderr}")
    return seconds
