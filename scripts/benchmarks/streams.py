"""Contexts that are new at each step: the time of a step beside that of its parts, and beside a loop over agents."""

import math
import sys
from pathlib import Path

import numpy as np

import fedbandit_envs as fb
from benchmarks.measure import Row, interleaved
from fedbandit_envs.problems.generator import draw_instance
from fedbandit_envs.problems.segments import Segments

sys.path.append(str(Path(__file__).parents[2] / "tests" / "helpers"))
import reference

AGENTS, ARMS, DIM = 100, 10, 3


def stream(quick: bool) -> list[Row]:
    """Streaming runs of DisLinUCB and KK-UCB, M = 100, K = 10, d = 3."""
    return [*_beside_its_parts(quick), *_beside_loops(quick)]


def _beside_its_parts(quick: bool) -> list[Row]:
    """A step of DisLinUCB on a stream beside drawing its random numbers, and beside a step with the general index.

    The general index is that of any ridge regression, as on a stream; on fixed contexts the policy has a closed form,
    which is shown beside it.
    """
    T, repeats = (256, 3) if quick else (1024, 11)
    policy = fb.make_policy("DisLinUCB")
    sizes = {"num_agents": AGENTS, "num_arms": ARMS, "dim": DIM}
    streaming = fb.make("fedbandit/Synthetic-v0", context="streaming", max_cycles=T, **sizes)
    fixed = fb.make("fedbandit/Synthetic-v0", max_cycles=T, **sizes)
    general = fb.make("fedbandit/Synthetic-v0", change_every=T - 1, max_cycles=T, **sizes)
    problem = fb.Synthetic(context="streaming", **sizes)

    def draw(call: int) -> None:
        drawn = Segments(problem, draw_instance(problem, call), call, None, T)
        for step in range(T):
            segment = drawn.at(step)
            _ = segment.psi, segment.contexts

    seconds = interleaved(
        {
            "stream": lambda call: fb.play(streaming, policy, seed=call),
            "draw": draw,
            "general": lambda call: fb.play(general, policy, seed=call),
            "fixed": lambda call: fb.play(fixed, policy, seed=call),
        },
        calls=1,
        repeats=repeats,
    )
    whole, drawn, index, closed = (np.array(seconds[name]) / T * 1e6 for name in ("stream", "draw", "general", "fixed"))
    share = float(np.median(whole / (drawn + index)))
    what = "DisLinUCB, M = 100, K = 10, d = 3, a step on a stream"
    return [
        Row(what, "", f"{np.median(whole):.0f} us", None),
        Row("drawing its psi and contexts", "", f"{np.median(drawn):.0f} us", None),
        Row("its step on lasting contexts, with the general index", "", f"{np.median(index):.0f} us", None),
        Row("and with the closed form", "", f"{np.median(closed):.0f} us", None),
        Row(f"{what}, over the draw and the general index together", "at most 2", f"{share:.2f}", share <= 2),
    ]


def _beside_loops(quick: bool) -> list[Row]:
    """Steps of streaming runs beside a plain loop over agents and arms, the slow oracle of the tests.

    A run draws its stream and keeps its history, and the loop is given psi and rewards. A step of the loop costs the
    same at every time, so the loop is timed on fewer steps.
    """
    T, few, repeats = (256, 4, 2) if quick else (1024, 16, 7)
    rng = np.random.default_rng(0)
    psi, rewards = rng.uniform(-0.5, 0.5, (few, AGENTS, ARMS, DIM)), rng.standard_normal((AGENTS, few))
    env = fb.make(
        "fedbandit/Synthetic-v0", num_agents=AGENTS, num_arms=ARMS, dim=DIM, context="streaming", max_cycles=T
    )
    rows = []
    for name, threshold in {"KK-UCB": math.inf, "DisLinUCB": 1.0}.items():
        policy = fb.make_policy(name)
        seconds = interleaved(
            {
                "loop": lambda _, D=threshold: reference.linear_stream(psi, rewards, R=2.0, delta=0.1, threshold=D),
                "it": lambda call, policy=policy: fb.play(env, policy, seed=call),
            },
            calls=1,
            repeats=repeats,
        )
        loop, own = np.array(seconds["loop"]) / few, np.array(seconds["it"]) / T
        times = float(np.median(loop / own))
        what = f"{name}, M = {AGENTS}, on a stream"
        rows += [
            Row(f"{what}, an agent's step", "", f"{np.median(own) / AGENTS * 1e6:.1f} us", None),
            Row(f"{what}, loop over agents and arms over it", "at least 30", f"{times:.1f}", times >= 30),
        ]
    return rows
