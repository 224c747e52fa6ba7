"""How time and memory grow with agents, horizon, dimension and arms, and how long importing takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import fedbandit_envs as fb
from benchmarks.measure import Row, in_new_process, interleaved

# One setting in a process of its own. It prints the median CPU seconds of a run, the share of the design in them, the
# number of phases, the most memory that one run allocates, and the size of psi.
_RUN = """
import json, sys, time, tracemalloc
import numpy as np
import fedbandit_envs as fb
from fedbandit_agents.phased.server import PhasedServer
design, designing = PhasedServer._design, [0.0]
def timed(self, *arguments):
    start = time.process_time()
    made = yield from design(self, *arguments)
    designing[0] += time.process_time() - start
    return made
PhasedServer._design = timed
keywords, repeats = json.loads(sys.argv[1]), int(sys.argv[2])
policy = fb.make_policy("Fed-PECD")
fb.play(fb.make("fedbandit/Synthetic-v0", num_agents=10, max_cycles=4096), policy, seed=0)
env = fb.make("fedbandit/Synthetic-v0", error="classical", **keywords)
seconds = []
designing[0] = 0.0
for repeat in range(repeats):
    start = time.process_time()
    history = fb.play(env, policy, seed=repeat)
    seconds.append(time.process_time() - start)
phases = (history.ledger.rounds + 1) // 2
psi = 8 * history.constants.num_agents * history.constants.num_arms * history.constants.dim
found = {"seconds": float(np.median(seconds)), "design": designing[0] / sum(seconds)}
del env, history
tracemalloc.start()
history = fb.play(fb.make("fedbandit/Synthetic-v0", error="classical", **keywords), policy, seed=0)
peak = tracemalloc.get_traced_memory()[1]
print(json.dumps(found | {"phases": phases, "peak": peak, "psi": psi}))
"""

_HELP = """
import time
start = time.process_time()
import contextlib, io
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    from fedbandit_envs.cli.main import main
    main(["--help"])
print(time.process_time() - start)
"""

Measured = dict[str, Any]


def measure(repeats: int, **keywords: int) -> Measured:
    """Measure one setting of Fed-PECD on Synthetic."""
    return json.loads(in_new_process(_RUN, json.dumps(keywords), str(repeats)))


def agents(quick: bool) -> tuple[list[Row], dict[int, Measured]]:
    """Time and memory of a run for M = 10^2 to 10^5, at K = 10, d = 3, T = 2^17."""
    sizes = (100, 1000, 10_000) if quick else (100, 1000, 10_000, 100_000)
    points = {M: measure(9 if M <= 1000 else 1, num_agents=M, max_cycles=2**17) for M in sizes}
    each = {M: point["seconds"] / M for M, point in points.items()}
    growth = max(each[M] / each[100] for M in sizes)
    memory = [point["peak"] / point["psi"] for point in points.values()]
    listed = ", ".join(f"{each[M] * 1e6:.0f}" for M in sizes)
    peaks = ", ".join(f"{multiple:.1f}" for multiple in memory)
    within = max(memory) <= 25 and (quick or memory[-1] <= 12)  # few agents have small arrays beside large ones
    return [
        Row(f"CPU per agent at M = {', '.join(map(str, sizes))}", "", f"{listed} us", None),
        Row("its growth over M = 100", "at most 1.5", f"{growth:.2f}", growth <= 1.5),
        Row("peak memory of a run over the size of psi, at the same M", "25, and 12 at 10^5", peaks, within),
    ], points


def horizon(quick: bool) -> tuple[list[Row], dict[int, Measured]]:
    """The time of a phase for T = 2^12 to 2^24 at M = 100, by turns, and the memory of a run in its own process."""
    powers = (12, 18, 24) if quick else (12, 15, 18, 21, 24)
    points = {2**power: measure(1, num_agents=100, max_cycles=2**power) for power in powers}
    policy = fb.make_policy("Fed-PECD")
    tasks = {}
    for T in points:
        env = fb.make("fedbandit/Synthetic-v0", error="classical", num_agents=100, max_cycles=T)
        tasks[str(T)] = lambda call, env=env: fb.play(env, policy, seed=call)
    seconds = interleaved(tasks, calls=3, repeats=7 if quick else 31)
    each = np.array([np.array(seconds[str(T)]) / point["phases"] for T, point in points.items()])  # (T, repeats)
    for point, phase in zip(points.values(), each, strict=True):
        point["seconds"] = float(np.median(phase)) * point["phases"]
    growth = float(np.median(each / each[0], axis=1).max())
    listed = ", ".join(f"{phase * 1e3:.2f}" for phase in np.median(each, axis=1))
    return [
        Row(f"CPU per phase at T = {', '.join(f'2^{power}' for power in powers)}", "", f"{listed} ms", None),
        Row("its growth over T = 2^12", "at most 1.2", f"{growth:.2f}", growth <= 1.2),
    ], points


def sizes(quick: bool) -> list[Row]:
    """The time of a run for d = 3 to 30 and for K = 10 to 300, with the measured exponents."""
    rows = []
    largest = (("dim", (3, 10, 30)), ("num_arms", (10, 100, 300)))
    for name, values in (("dim", (3, 10)), ("num_arms", (10, 30))) if quick else largest:
        points = [measure(3, num_agents=100, max_cycles=2**13, **{name: value}) for value in values]
        seconds = [point["seconds"] for point in points]
        slope = float(np.polyfit(np.log(values), np.log(seconds), 1)[0])
        shares = ", ".join(f"{point['design']:.0%}" for point in points)
        listed = ", ".join(f"{second:.2g}" for second in seconds)
        rows.append(Row(f"CPU of a run to 2^13 at {name} = {', '.join(map(str, values))}", "", f"{listed} s", None))
        rows.append(Row(f"its exponent in {name}", "reported", f"{slope:.2f}", None))
        rows.append(Row("the design's share of it", "reported", shares, None))
    return rows


def imports(quick: bool) -> list[Row]:
    """`import fedbandit_envs` and `fedbandit --help` beside the imports they can't do without."""
    clock = "import time; start = time.process_time(); {}; print(time.process_time() - start)"
    programs = {
        "base": clock.format("import numpy, gymnasium, pettingzoo"),
        "ours": clock.format("import fedbandit_envs"),
        "help": _HELP,
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(5 if quick else 15):
        for name, program in programs.items():
            seconds[name].append(float(in_new_process(program)))
    base, ours, shown = (float(np.median(seconds[name])) for name in programs)
    share = ours / base
    return [
        Row("import fedbandit_envs over numpy, gymnasium and pettingzoo", "at most 1.3", f"{share:.2f}", share <= 1.3),
        Row("fedbandit --help over the same", "at most 1.3", f"{shown / base:.2f}", shown / base <= 1.3),
    ]


def picture(by_agents: dict[int, Measured], by_horizon: dict[int, Measured], path: Path) -> None:
    """Time and memory against M and T."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    (time_m, memory_m), (time_t, memory_t) = figure.subplots(2, 2)
    M, T = np.array(list(by_agents)), np.array(list(by_horizon))
    time_m.loglog(M, [point["seconds"] for point in by_agents.values()], "o-")
    time_m.set(title="Time of a run, T = 2^17", xlabel="agents M", ylabel="CPU seconds")
    memory_m.loglog(M, [point["peak"] / 2**20 for point in by_agents.values()], "o-", label="peak of a run")
    memory_m.loglog(M, [12 * point["psi"] / 2**20 for point in by_agents.values()], "--", label="12 times psi")
    memory_m.set(title="Memory of a run, T = 2^17", xlabel="agents M", ylabel="MiB")
    memory_m.legend()
    time_t.semilogx(T, [1e3 * point["seconds"] / point["phases"] for point in by_horizon.values()], "o-", base=2)
    time_t.set(title="Time of a phase, M = 100", xlabel="horizon T", ylabel="CPU milliseconds")
    time_t.set_ylim(0, 1.1 * time_t.get_ylim()[1])
    memory_t.semilogx(T, [point["peak"] / 2**20 for point in by_horizon.values()], "o-", base=2)
    memory_t.set(title="Memory of a run, M = 100", xlabel="horizon T", ylabel="MiB")
    memory_t.set_ylim(0, 1.1 * memory_t.get_ylim()[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
