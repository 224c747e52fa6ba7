"""What a round between neighbours costs, beside the numpy that it can't do without, and how it grows with the edges."""

import numpy as np

import fedbandit_envs as fb
from benchmarks.measure import Row, interleaved, ratio
from fedbandit_envs.protocol.network import Network

ARMS, DEGREE = 10, 4


def _rounds(network: Network) -> fb.CommunicationRounds:
    """Rounds of coop-UCB2 that are past their start."""
    env = fb.make("fedbandit/MultiArmed-v0", num_agents=network.num_agents, num_arms=ARMS, max_cycles=10**6)
    rounds = fb.CommunicationRounds(env, fb.make_policy("coop-UCB2"), network=network)
    rounds.start(seed=0)
    rounds.advance()
    return rounds


def peers(quick: bool) -> list[Row]:
    """A round of coop-UCB2 on a ring of 1,000 agents, and on random graphs of degree 4 up to 10^5 agents."""
    ring = Network.of("ring", 1000)
    rounds, sent = _rounds(ring), np.random.default_rng(0).random((1000, 2 * ARMS))
    receivers, senders = np.concatenate([ring.edges, ring.edges[:, ::-1]]).T
    order = np.argsort(receivers, kind="stable")
    senders, starts = senders[order], np.searchsorted(receivers[order], np.arange(1000))
    calls, repeats = (50, 9) if quick else (100, 31)
    by_edge, seconds, bare = ratio(
        {"round": lambda _: rounds.advance(), "numpy": lambda _: np.add.reduceat(sent[senders], starts)}, calls, repeats
    )
    by_table, *_ = ratio(
        {"round": lambda _: rounds.advance(), "numpy": lambda _: sent[ring.neighbours].sum(axis=1)}, calls, repeats
    )

    sizes = (1000, 10_000) if quick else (1000, 10_000, 100_000)
    grown = {M: _rounds(Network.of(f"random-regular:{DEGREE}", M)) for M in sizes}
    tasks = {str(M): lambda _, rounds=rounds: rounds.advance() for M, rounds in grown.items()}
    found = interleaved(tasks, calls=2, repeats=5 if quick else 15)
    each = np.array([np.median(found[str(M)]) / (M * DEGREE) for M in sizes])
    exponent = 1 + float(np.polyfit(np.log(sizes), np.log(each), 1)[0])
    listed = ", ".join(f"{value * 1e9:.0f}" for value in each)
    return [
        Row("round of coop-UCB2 on a ring of 1,000", "", f"{seconds * 1e6:.0f} us (numpy {bare * 1e6:.0f} us)", None),
        Row("over gathering and summing over its edges", "at most 5", f"{by_edge:.1f}", by_edge <= 5),
        Row("over a sum over a table of neighbours", "reported", f"{by_table:.1f}", None),
        Row(f"CPU per directed edge at M = {', '.join(map(str, sizes))}, degree 4", "", f"{listed} ns", None),
        Row("the exponent of a round in the edges", "at most 1.1", f"{exponent:.2f}", exponent <= 1.1),
    ]
