"""One shard as the driver sees it: it is asked, it answers, and it is made anew when its process has died."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fedbandit_envs.protocol.messages import State
from fedbandit_envs.shards.hosts import Host, HostKind, ShardLost
from fedbandit_envs.shards.journal import Journal
from fedbandit_envs.shards.packing import Parts, packed, unpacked

# A shard is saved after this many requests: a new shard then has no more than these to catch up on.
_SAVED_EVERY = 1000
# A shard is also saved when its requests take this many bytes, or this multiple of the last snapshot if that is more,
# so that a long run does not fill the disk.
_SAVED_AFTER_BYTES, _SAVED_AFTER_SNAPSHOTS = 64 * 2**20, 2
# A shard is never saved before these requests: a plan that waits for its pulls, and a report that waits for its answer,
# are in no snapshot.
_GOING_ON = ("pull", "consult", "go_on")
_MOST_LOSSES = 5  # deaths in a row, without an answer between them, before the run gives up


@dataclass
class Keeper:
    """Keeps one shard alive.

    All requests to the shard are noted. When its process has died, a new one starts from the task, takes over the
    last snapshot, and gets all requests again that came after it. All of it is determined by the seed, so the new shard
    is the old one bit for bit, and the driver and the other shards notice nothing.
    """

    kind: HostKind  #: where the shard lives
    task: bytes  #: the pickle of its `ShardTask`
    losses: int = 0  #: how often its process has died
    _journal: Journal = field(default_factory=Journal)
    _snapshot: int = 0  # the bytes of the last snapshot in the journal
    _begun: Parts | None = None  # the request that made the agent side; a state can be restored only after it
    _looking: Parts | None = None  # the last request, if it changes nothing and so is not in the journal
    _host: Host | None = None

    def begin(self, *arguments: Any) -> None:
        """Ask the shard to make its agent side; `answer` gives what it says."""
        self._begun, self._looking = packed(("begin", *arguments)), None
        self._open().send(self._begun)

    def ask(self, verb: str, *arguments: Any) -> None:
        """Ask for something that changes the shard; `answer` must be called before the next request."""
        if verb not in _GOING_ON and self._long():
            self.save()
        request, self._looking = packed((verb, *arguments)), None
        self._journal.add(request)
        self._open().send(request)

    def _long(self) -> bool:
        """Whether enough has come since the last snapshot to make a new one."""
        most = max(_SAVED_AFTER_BYTES, _SAVED_AFTER_SNAPSHOTS * self._snapshot)
        return len(self._journal) >= _SAVED_EVERY or self._journal.size - self._snapshot > most

    def look(self, verb: str) -> None:
        """Ask for something that changes nothing; `answer` gives it."""
        self._looking = packed((verb,))
        self._open().send(self._looking)

    def save(self) -> State:
        """The state of the shard, which a new one starts from."""
        self.look("snapshot")
        state: State = self.answer()
        self._journal.clear()
        self._journal.add(packed(("restore", state)))
        self._snapshot = self._journal.size
        return state

    def restore(self, state: State) -> None:
        """Let the shard take over a state."""
        self._journal.clear()
        self._snapshot = 0
        self.ask("restore", state)
        self._snapshot = self._journal.size
        self.answer()

    def answer(self) -> Any:
        """The answer to the last request; an error of the shard is raised here."""
        deaths = 0
        while True:
            try:
                found, error = unpacked(self._open().receive())
                break
            except ShardLost as lost:
                self.losses += 1
                deaths += 1
                if deaths >= _MOST_LOSSES:
                    raise ShardLost(
                        f"shard: expected an answer, got none: its process died {deaths} times in a row ({lost}); if "
                        "the memory is too small, take more shards on more machines"
                    ) from lost
                self._catch_up()
        if error is not None:
            raise error
        return found

    def _open(self) -> Host:
        if self._host is None:
            self._host = self.kind.make(self.task)
        return self._host

    def _catch_up(self) -> None:
        """Start the shard anew, and bring it to where the answer that is missing can be received."""
        self._host = self.kind.make(self.task)
        last: Parts | None = None
        with suppress(ShardLost):  # the caller hears of it when it asks for the answer
            for request in self._all_requests():
                if last is not None:
                    self._host.send(last)
                    self._host.receive()
                last = request
            assert last is not None
            self._host.send(last)

    def _all_requests(self) -> Iterator[Parts]:
        """What a new shard must be asked, in this order; the last request is the one whose answer is missing."""
        if self._begun is not None:
            yield self._begun
        yield from self._journal
        if self._looking is not None:
            yield self._looking

    def close(self) -> None:
        """End the shard."""
        self._journal.close()
        if self._host is not None:
            self._host.close()
            self._host = None
