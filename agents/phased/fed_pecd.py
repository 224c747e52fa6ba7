"""Fed-PECD: federated phased elimination with context distributions (Lin and Moothedath)."""

from dataclasses import dataclass

from fedbandit_agents.phased.elimination import PhasedElimination


@dataclass(frozen=True)
class FedPECD(PhasedElimination):
    """Phased elimination on psi, the expected features under the context distribution that an agent is shown."""
