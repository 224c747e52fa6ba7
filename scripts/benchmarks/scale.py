"""One run of very many agents, in one process and over shards: time, peak memory of each process, the serial share."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Row, in_new_process

# One setting in a process of its own. It prints the wall seconds of a run, those seconds in which the server and the
# carrier of its messages were at work, the CPU seconds of the driver and of each shard, and their peak resident memory.
# What the driver took before the run, after all imports and a tiny run, is subtracted from its memory.
_RUN = """
import json, os, sys, time
from pathlib import Path
import fedbandit_envs as fb
from fedbandit_envs.shards.rounds import ShardedRounds
from fedbandit_envs.threads import one_thread

def resident(pid="self", what="VmHWM"):
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(what)]
    return int(line.split()[1]) * 1024

def busy(pid):
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

agents, horizon, shards, arms, dim = map(int, sys.argv[1:])
policy = fb.make_policy("Fed-PECD")
fb.play(fb.make("Synthetic", num_agents=10, max_cycles=4096), policy, seed=0)
before = resident(what="VmRSS")
start, cpu_start = time.perf_counter(), time.process_time()
env = fb.make("Synthetic", error="classical", num_agents=agents, num_arms=arms, dim=dim, max_cycles=horizon)
served = [0.0]

def finish(rounds):
    rounds.start(seed=0)
    carry = rounds.carrier.exchange
    def exchange(*arguments):
        begin = time.perf_counter()
        found = carry(*arguments)
        served[0] += time.perf_counter() - begin
        return found
    rounds.carrier.exchange = exchange
    rounds.finish()

peaks, cpu = [], []
with one_thread:
    if shards:
        with ShardedRounds(env, policy, shards=shards) as rounds:
            finish(rounds)
            history = rounds.history()
            pids = [keeper._host.process.pid for keeper in rounds._part.keepers]
            peaks, cpu = [resident(pid) for pid in pids], [busy(pid) for pid in pids]
    else:
        rounds = fb.CommunicationRounds(env, policy)
        finish(rounds)
        history = rounds.history()
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "served": served[0], "cpu": time.process_time() - cpu_start,
                  "shard_cpu": cpu, "driver": resident() - before, "shards": peaks,
                  "pulls": int(history.tables[-1].sum()), "scalars": history.ledger.scalars}))
"""

Measured = dict[str, Any]
_PSI = 8 * 10 * 3  # bytes of psi per agent
HORIZON = 2**17
Points = dict[tuple[int, int], Measured]


def measure(agents: int, shards: int, arms: int = 10, dim: int = 3) -> Measured:
    """Measure one setting; with 0 shards the run is in one process."""
    numbers = (agents, HORIZON, shards, arms, dim)
    found: Measured = json.loads(in_new_process(_RUN, *map(str, numbers)))
    return found


def scale(quick: bool) -> tuple[list[Row], Points]:
    """M = 10^4, 10^5 and 10^6 in one process and in two shards; K = 10, d = 3, T = 2^17."""
    return of_sizes((1000, 10_000) if quick else (10_000, 100_000, 1_000_000))


def of_sizes(sizes: tuple[int, ...]) -> tuple[list[Row], Points]:
    """The rows of these numbers of agents."""
    points = {(agents, shards): measure(agents, shards) for agents in sizes for shards in (0, 2)}
    rows = []
    for agents in sizes:
        one, two = points[agents, 0], points[agents, 2]
        share, faster = two["cpu"] / one["cpu"], one["seconds"] / two["seconds"]
        in_turn = _in_turn(one) / _in_turn(two)
        most = 1 / (share + (1 - share) / 2)
        same = (one["pulls"], one["scalars"]) == (two["pulls"], two["scalars"])
        psi = _PSI * agents
        peaks = ", ".join(_mib(peak) for peak in (one["driver"], two["driver"], *two["shards"]))
        rows += [
            Row(
                f"M = {agents:,}: the server's share of one process", "", f"{one['served'] / one['seconds']:.0%}", None
            ),
            Row("what is serial: CPU of the driver over that of one process", "", f"{share:.1%}", None),
            Row("so 2 shards can be faster by, at most", "", f"{most:.2f}", None),
            Row("seconds in one process, in 2 shards", "", f"{one['seconds']:.1f}, {two['seconds']:.1f}", None),
            Row("2 shards are faster by", "at least 1.6 at 10^6", f"{faster:.2f}", _goal(agents, faster)),
            Row(
                "CPU seconds: one process; driver; shards",
                "",
                _seconds(one["cpu"], two["cpu"], *two["shard_cpu"]),
                None,
            ),
            Row(
                "CPU seconds: one process over driver and longest shard",
                "at least 1.6 at 10^6",
                f"{in_turn:.2f}",
                _goal(agents, in_turn),
            ),
            Row("peak MiB: one process; driver; shards", "", peaks, None),
            Row("one process over the size of psi", "", f"{one['driver'] / psi:.1f}", None),
            Row("the same pulls and scalars", "", "yes" if same else "no", same),
        ]
    for what, name in (("time", "seconds"), ("memory of one process", "driver")):
        values = [points[agents, 0][name] for agents in sizes]
        slope = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
        rows.append(Row(f"exponent of {what} in M", "about 1", f"{slope:.2f}", None))
    return rows, points


def millions(quick: bool) -> list[Row]:
    """Ten million agents in 16 shards, with K = 2 and d = 2, so that it fits into 24 GiB."""
    return in_sixteen(10**5 if quick else 10**7)


def in_sixteen(agents: int) -> list[Row]:
    """The rows of `agents` agents in 16 shards."""
    found = measure(agents, 16, arms=2, dim=2)
    peaks = f"{_mib(found['driver'])}, {_mib(max(found['shards']))}, {_mib(sum(found['shards']))}"
    cpu = _seconds(found["cpu"], max(found["shard_cpu"]), sum(found["shard_cpu"]))
    return [
        Row(f"M = {agents:,}, K = 2, d = 2, in 16 shards: seconds", "", f"{found['seconds']:.1f}", None),
        Row("CPU seconds: driver, longest shard, all shards", "", cpu, None),
        Row("peak MiB: driver, largest shard, all shards", "", peaks, None),
        Row(
            "bytes per agent: driver, all shards",
            "",
            f"{found['driver'] / agents:.0f}, {sum(found['shards']) / agents:.0f}",
            None,
        ),
    ]


def _goal(agents: int, faster: float) -> bool | None:
    return faster >= 1.6 if agents >= 10**6 else None


def _seconds(*values: float) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f}"


def _in_turn(point: Measured) -> float:
    """CPU seconds of the driver and of its longest shard: about the time of a run if each has its own processor."""
    return float(point["cpu"] + max(point["shard_cpu"], default=0.0))


def picture(points: Points, path: Path) -> None:
    """CPU time and memory against M, in one process and in two shards."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    time, memory = figure.subplots(1, 2)
    for shards, label in ((0, "one process"), (2, "two shards")):
        sizes = [agents for agents, number in points if number == shards]
        found = [points[agents, shards] for agents in sizes]
        time.loglog(sizes, [_in_turn(point) for point in found], "o-", label=label)
        memory.loglog(sizes, [point["driver"] / 2**20 for point in found], "o-", label=f"{label}: driver")
    sizes = [agents for agents, number in points if number == 2]
    memory.loglog(sizes, [max(points[M, 2]["shards"]) / 2**20 for M in sizes], "s--", label="two shards: a shard")
    memory.loglog(sizes, [_PSI * M / 2**20 for M in sizes], ":", color="gray", label="psi")
    time.set(title="Driver and longest shard, T = 2^17", xlabel="agents M", ylabel="CPU seconds")
    memory.set(title="Peak memory of a process", xlabel="agents M", ylabel="MiB")
    time.legend()
    memory.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
