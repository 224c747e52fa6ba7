"""Servers that can be spread: where agents live in shards, each shard then holds the server's part about its agents."""

from abc import abstractmethod

from fedbandit_envs.joint import Jointly, alone
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import ServerSide


class SpreadServer(ServerSide):
    """A server that works agent by agent, and needs sums or little else over all of them.

    It is written once, as a generator. In one process this is an ordinary server. Over shards there is one object in
    each shard: `view.constants.num_agents` counts the shard's agents alone, reports have the rows of these, and answers
    are for these or for all. Messages then stay in the shards. The driver answers each `Joint`, so that sums are the
    same bit for bit. Sums go by groups of rows, and shards hold whole groups. Where a report is refused or missing, or
    may be lost, the driver takes over: it joins the states of all parts and goes on with one object. So each array that
    the server keeps must have a row for each agent, and all else must be the same in all parts.

    >>> import numpy as np
    >>> from fedbandit_envs.joint import sum_jointly
    >>> class Summing(SpreadServer):
    ...     def answering(self, up):
    ...         total = yield from sum_jointly(lambda rows: up["sums"][rows].sum(axis=0), len(up.agents))
    ...         return Message("total", {"total": total})
    >>> Summing().answer(Message("sums", {"sums": np.eye(2)}, np.arange(2)))["total"]
    array([1., 1.])
    """

    @abstractmethod
    def answering(self, up: Message) -> Jointly[Message | None]:
        """The reply to a report, which may be that of the agents of one shard."""

    def answer(self, up: Message) -> Message | None:
        """The reply, where all agents are here."""
        return alone(self.answering(up))

    def can_spread(self, up: Message) -> bool:
        """Whether shards may answer this report, in which all their agents speak and nothing is refused.

        Where one of them may not, this report and all later ones go to the driver.
        """
        return True
