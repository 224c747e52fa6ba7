"""The most that a run allocates, beside the size of psi: what the agents are shown, d numbers for each arm."""

from benchmarks.measure import Row, in_new_process

# One run in a process of its own, after a tiny run, so that what is imported or made only once does not count.
_RUN = """
import sys, tracemalloc
import fedbandit_envs as fb
from fedbandit_envs.protocol.policy import observe_for
name, agents, horizon, dim = sys.argv[1], *map(int, sys.argv[2:])
policy = fb.make_policy(name)
def play(num_agents):
    env = fb.make("Synthetic", num_agents=num_agents, dim=dim, max_cycles=horizon, observe=observe_for(policy))
    return fb.play(env, policy, seed=0, network="ring")
play(10)
tracemalloc.start()
history = play(agents)
print(tracemalloc.get_traced_memory()[1] / (8 * agents * history.constants.num_arms * dim))
"""
MOST = 12
_STEPS, _PHASES = 600, 2**17  # the horizons of agents that decide step by step, and in long plans
_POLICIES = {
    "Local-UCB": _STEPS,
    "KK-UCB": _STEPS,
    "DisLinUCB": _STEPS,
    "FedLinUCB": _STEPS,
    "FedUCB": _STEPS,
    "Private-FedLinUCB": _STEPS,
    "Residual-LinUCB": _STEPS,
    "coop-UCB2": _STEPS,
    "Dec-UCB": _STEPS,
    "DDUCB": _STEPS,
    "Gossip-UCB": _STEPS,
    "Fed-PECD": _PHASES,
    "Fed-PE": _PHASES,
    "Enhanced-Fed-PE": _PHASES,
    "Collaborative": _PHASES,
    "Fed-CI": _PHASES,
    "Fed-CI-Elimination": _PHASES,
    "Federated-Thompson": _PHASES,
    "Exact-Thompson": _PHASES,
    "Local-Thompson": _PHASES,
    "Theta-Told": _PHASES,
}
# Policies without a goal: what their agents must remember is larger, or takes most of it.
_LARGER = {"Private-Gossip-UCB": _STEPS, "DCB": 60}


def memory(quick: bool) -> list[Row]:
    """Runs on Synthetic with M = 10^4, K = 10, d = 3."""
    agents = 1000 if quick else 10_000
    return of_policies(_POLICIES, agents, None if quick else MOST) + of_policies(_LARGER, agents, None)


def of_policies(horizons: dict[str, int], agents: int, most: float | None) -> list[Row]:
    """The rows of these policies, each with its horizon; without a goal where there are few agents."""
    rows = []
    for name, horizon in horizons.items():
        times = peak(name, agents, horizon)
        what = f"{name}, M = {agents:,}, T = {horizon:,}: most allocated in a run over the size of psi"
        goal, reached = ("", None) if most is None else (f"at most {most}", times <= most)
        rows.append(Row(what, goal, f"{times:.1f}", reached))
    return rows


def peak(name: str, agents: int, horizon: int, dim: int = 3) -> float:
    """The most that a run of a policy allocates, over the size of psi."""
    return float(in_new_process(_RUN, name, str(agents), str(horizon), str(dim)))
