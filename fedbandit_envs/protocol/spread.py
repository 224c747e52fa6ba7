"""Servers that can be spread: where agents live in shards, each shard then holds the server's part about its agents."""

from abc import abstractmethod

from fedbandit_envs.joint import Jointly, alone
from fedbandit_envs.protocol.messages import Message
from fedbandit_envs.protocol.policy import ServerSide


class SpreadServer(ServerSide):
    """A server that works agent by agent, and needs sums or little else over all of them.

    It is written once, as a generator. In one process this is an ordinary server. Over shards each shard has an object
    of its own, for its own agents: `view.constants.num_agents` counts these alone, and reports have their rows. But
    `up.agents` holds the numbers that they have among all agents, so it is no index into the server's arrays. What the
    server yields, the driver answers for all shards: sums go by groups of rows, and shards hold whole groups, so that
    sums are the same bit for bit. Messages then stay in the shards.

    Where a report is refused or missing, the driver joins the states of all objects and goes on with one. So each array
    that the server keeps must have a row for each agent, and all else must be the same in all shards. It must not draw
    random numbers, because they would be the same in all shards.

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
