"""Where the time of a run goes: samples say which function is at work."""

import itertools
import signal
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any

import fedbandit_envs as fb
from benchmarks.measure import Row, compiler

_OURS = ("fedbandit_envs.", "fedbandit_agents.", "fedbandit_baselines.")
_EVERY = 1e-3  # CPU seconds between two samples; on some systems it is longer


def profile(quick: bool) -> list[Row]:
    """Shares of the CPU time of Fed-PECD's runs by module, and the largest share of a single function."""
    samples = 100 if quick else 4000
    rows = _shares("Fed-PECD", samples)
    return rows + _shares("Fed-PECD, compiled", samples, compiled=True) if compiler() else rows


def _shares(name: str, samples: int, **parameters: bool) -> list[Row]:
    env = fb.make("fedbandit/Synthetic-v0", num_agents=100, max_cycles=2**17, error="classical")
    policy, seeds = fb.make_policy("Fed-PECD", **parameters), itertools.count()
    found = _sampled(lambda: fb.play(env, policy, seed=next(seeds)), samples)
    modules: Counter[str] = Counter()
    for (module, _), count in found.items():
        modules[module] += count
    total = found.total()
    (module, function), most = found.most_common(1)[0]
    return [
        *(
            Row(f"{name}: in {module}", "", f"{count / total:.0%}", None)
            for module, count in modules.most_common()
            if count >= 0.03 * total
        ),
        Row(f"{name}: the most in one function, {module}.{function}", "", f"{most / total:.0%}", None),
    ]


def _sampled(run: Callable[[], Any], samples: int) -> Counter[tuple[str, str]]:
    """How often each function of our packages was at work, including its calls of other libraries."""
    found: Counter[tuple[str, str]] = Counter()

    def note(_: int, frame: FrameType | None) -> None:
        while frame is not None and not frame.f_globals.get("__name__", "").startswith(_OURS):
            frame = frame.f_back
        if frame is not None:
            found[frame.f_globals["__name__"], frame.f_code.co_qualname] += 1

    run()  # only warms up
    before = signal.signal(signal.SIGPROF, note)
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    try:
        for _ in range(100 * samples):  # it ends even where the system takes no samples
            run()
            if found.total() >= samples:
                break
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return found
