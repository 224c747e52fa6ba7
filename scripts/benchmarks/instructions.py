"""How many instructions a run takes, counted by valgrind: unlike times, this number hardly varies between runs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Row

# Counting is switched on between the two lines that the program reads, so imports and a first run are not counted.
_RUN = """
import sys
import fedbandit_envs as fb
policy, agents, horizon, runs = sys.argv[1], *map(int, sys.argv[2:])
env = fb.make("Synthetic", num_agents=agents, max_cycles=horizon, error="classical")
chosen = fb.make_policy(policy)
fb.play(env, chosen, seed=0)
print("ready", flush=True)
sys.stdin.readline()
for run in range(runs):
    fb.play(env, chosen, seed=run)
print("done", flush=True)
sys.stdin.readline()
"""
_RUNS = 4
_SETTINGS = (("Fed-PECD", 100, 2**17), ("Fed-CI", 100, 2**17), ("Local-UCB", 100, 256), ("DisLinUCB", 100, 64))


def instructions(quick: bool) -> list[Row]:
    """Millions of instructions of one run; on the same machine they differ between counts by some tenths only."""
    if shutil.which("valgrind") is None:
        return [Row("instructions of a run", "", "not measured: needs valgrind", None)]
    rows = []
    for policy, agents, horizon in _SETTINGS[: 1 if quick else None]:
        each = _counted(policy, agents, horizon) / _RUNS
        what = f"{policy}, M = {agents}, T = {horizon}: millions of instructions of a run"
        rows.append(Row(what, "", f"{each / 1e6:.1f}", None))
    return rows


def _counted(policy: str, agents: int, horizon: int) -> int:
    """The instructions of some runs."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        callgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        program = [sys.executable, "-c", _RUN, policy, str(agents), str(horizon), str(_RUNS)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen([*callgrind, *program], env=os.environ | {"PYTHONHASHSEED": "0"}, **pipes) as process:
            for switch, word in (("on", "ready"), ("off", "done")):
                if process.stdout.readline().strip() != word:
                    raise RuntimeError(f"expected {word!r} from the program under valgrind: {process.stderr.read()}")
                subprocess.run(["callgrind_control", "-i", switch, str(process.pid)], check=True, capture_output=True)
                process.stdin.write("\n")
                process.stdin.flush()
            _, errors = process.communicate()
    (found,) = re.findall(r"Collected\s*:\s*(\d+)", errors)
    return int(found)
