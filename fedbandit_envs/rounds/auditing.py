"""What a recorded run can prove about itself: its accounts, and the claims of its policy."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedbandit_envs.protocol.claims import Claim
from fedbandit_envs.protocol.policy import partner_of
from fedbandit_envs.rounds.history import History


@dataclass(frozen=True)
class Audit:
    """The claims about one run; `print(audit(history))` shows them as a table.

    >>> print(Audit((Claim("pulls of each agent differ from T by", 0, 0),)))
    claim                                        bound      measured  verdict
    pulls of each agent differ from T by             0             0  holds
    """

    claims: tuple[Claim, ...]  #: what holds for every policy, then what the policy's theory says

    @property
    def ok(self) -> bool:
        """Whether everything that theory promises for the run holds."""
        return all(claim.holds for claim in self.claims if claim.claimed)

    def __getitem__(self, claim: str) -> Claim:
        return next(row for row in self.claims if row.claim == claim)

    def __repr__(self) -> str:
        held = sum(claim.holds for claim in self.claims)
        return f"Audit({held} of {len(self.claims)} claims hold, ok={self.ok})"

    def __str__(self) -> str:
        size = max(len(row.claim) for row in self.claims)
        lines = [f"{'claim':<{size}}  {'bound':>12}  {'measured':>12}  verdict"]
        lines += [
            f"{row.claim:<{size}}  {row.bound:>12.6g}  {row.measured:>12.6g}  {row.verdict}" for row in self.claims
        ]
        return "\n".join(lines)


def audit(history: History) -> Audit:
    """Check a recorded run: that its accounts are right, and what theory claims of its policy (`Policy.claims`).

    Args:
        history: what `play(..., record=True)` returned.

    >>> import fedbandit_envs as fb
    >>> env = fb.make("fedbandit/Synthetic-v0", num_agents=5, max_cycles=200, observe="context", error="classical")
    >>> fb.audit(fb.play(env, fb.make_policy("Fed-PE"), seed=0, record=True)).ok
    True
    """
    if not isinstance(history, History):
        raise ValueError(f"history: expected a History, got {type(history).__name__}; use play(..., record=True)")
    if history.exchanges is None or history.view is None:
        raise ValueError("history: expected one with its messages, got one without; use play(..., record=True)")
    # Theory speaks about the gaps of each agent. Where agents share arms there are none: accounts alone are checked.
    claims = () if history.instance is None else history.policy.claims(history)
    return Audit((*_accounts(history), *claims))


def _accounts(history: History) -> Iterator[Claim]:
    """What holds for every policy."""
    assert history.exchanges is not None
    pulls = np.sum([exchange.feedback.pulls() for exchange in history.exchanges], axis=0).sum(axis=1)
    yield Claim("pulls of each agent differ from T by", 0, float(np.abs(pulls - history.constants.horizon).max()))
    sent = sum(int(exchange.up.scalars().sum()) for exchange in history.exchanges if exchange.up is not None)
    yield Claim("scalars up in the ledger differ from the messages by", 0, abs(sent - history.ledger.scalars_up))
    if partner_of(type(history.policy)) == "peers":
        arrived = sum(int(exchange.down.scalars().sum()) for exchange in history.exchanges if exchange.down is not None)
        claim = "scalars between peers in the ledger differ from the messages by"
        yield Claim(claim, 0, abs(arrived - history.ledger.scalars_peer))
