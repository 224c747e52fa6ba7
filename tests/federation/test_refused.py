"""A report that the server refuses costs its sender that round, in a federation as in one process."""

import numpy as np
from federation_loop import EACH_ITS_OWN, Loop, federated, in_process, settings

from fedbandit_envs.federation.wire import Packet
from fedbandit_envs.rounds.faults import Faults


def a_hundredfold(packet: Packet) -> Packet:
    theta = packet["0/theta"]
    assert isinstance(theta, bytes)
    return {**packet, "0/theta": (100 * np.frombuffer(theta)).tobytes()}


def test_a_report_that_cannot_be_is_a_fault_of_the_turn_and_its_client_plays_on() -> None:
    of = settings("Fed-PECD")
    loop = Loop(of, EACH_ITS_OWN)
    loop.tampered[1, 4] = a_hundredfold
    coordinator = federated(loop)
    assert [(fault.agent, fault.round) for fault in coordinator.faults] == [(1, 4)]
    assert coordinator.faults[0].reason.startswith("sent an estimate of norm")
    without = in_process(of, Faults(schedule={1: [4]}))
    np.testing.assert_array_equal(loop.pulls(), without.pulls)
    assert coordinator.ledger.messages_up == without.ledger.messages_up + 1  # what is refused has crossed
