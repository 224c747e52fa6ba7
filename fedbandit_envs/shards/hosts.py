"""Where shards live: in this process, each in a process of its own, or each as an actor of Ray."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

from fedbandit_envs.problems.regrets import REGRETS
from fedbandit_envs.shards.packing import Parts, packed, unpacked
from fedbandit_envs.shards.ray_session import RaySession
from fedbandit_envs.shards.shard import Shard, ShardTask
from fedbandit_envs.threads import ONE_THREAD_ENVIRONMENT, one_thread
from fedbandit_envs.validation import one_of

_GRACE = 5.0  # seconds in which a process that is no longer needed must end by itself


class ShardLost(RuntimeError):
    """The process of a shard has died."""


class Host(Protocol):
    """One shard wherever it lives: it is sent requests, and gives one answer to each of them.

    A host is made from the pickle of a `ShardTask`.
    """

    def send(self, request: Parts) -> None:
        """Send a request; the answer to the one before must have been received."""

    def receive(self) -> Parts:
        """Wait for the answer. If there will be none, the shard is ended, and `ShardLost` is raised."""

    def close(self) -> None:
        """End the shard."""


def answered(shard: Shard, request: Parts) -> Parts:
    """The answer of a shard to a request: what it found and None, or None and the error that it raised."""
    try:
        verb, *arguments = unpacked(request)
        with one_thread:  # in a cluster that somebody else has started, the process may have been given more threads
            return packed((shard.answer(verb, *arguments), None))
    except Exception as error:
        return packed((None, _sendable(error)))


def opened(task: bytes) -> Shard:
    """The shard of a task, made in another process, where the kinds of regret become those of the driver's process."""
    import cloudpickle

    found: ShardTask = cloudpickle.loads(task)
    REGRETS.clear()
    REGRETS.update(found.regrets)
    with one_thread:
        return Shard(found)


def _sendable(error: Exception) -> Exception:
    """The error itself if another process can receive it unchanged, else a `RuntimeError` with its name and words."""
    try:
        again = unpacked(packed(error))
        if type(again) is type(error) and str(again) == str(error):
            return error
    except Exception:
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


class Here:
    """A shard in this process. Requests and answers become bytes as with other hosts: tests see what would cross."""

    def __init__(self, task: bytes):
        import cloudpickle

        self._shard, self._answer = Shard(cloudpickle.loads(task)), Parts()

    def send(self, request: Parts) -> None:
        """Answer the request at once."""
        self._answer = answered(self._shard, [bytes(part) for part in request])

    def receive(self) -> Parts:
        """The answer."""
        return [bytes(part) for part in self._answer]

    def close(self) -> None:
        """There is nothing to end."""


class OwnProcess:
    """A shard in a process of its own: a new interpreter, with which it shares a pair of sockets and nothing else.

    It does not import the program that started the run, so a script needs no `if __name__ == "__main__":`. The process
    ends when its socket is closed, which also happens when the driver is killed.
    """

    def __init__(self, task: bytes):
        ours, theirs = Pipe()
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        command = [sys.executable, "-m", "fedbandit_envs.shards.process", str(theirs.fileno())]
        environment = {**os.environ, **ONE_THREAD_ENVIRONMENT, "PYTHONPATH": path}
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        theirs.close()
        self._pipe = ours
        self.send([task])

    def send(self, request: Parts) -> None:
        """Send a request. If the process has died, `receive` says so."""
        with suppress(OSError):
            send_parts(self._pipe, request)

    def receive(self) -> Parts:
        """Wait for the answer."""
        try:
            return receive_parts(self._pipe)
        except (EOFError, OSError) as error:
            self.close()
            raise ShardLost(f"process {self.process.pid} ended with code {self.process.returncode}") from error

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        try:
            self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()  # it may have been stopped, or be in the middle of a long computation
            self.process.wait()


def send_parts(pipe: Connection, parts: Parts) -> None:
    """Send the parts of a request or an answer, one after the other."""
    pipe.send_bytes(len(parts).to_bytes(8, "little"))
    for part in parts:
        pipe.send_bytes(part)


def receive_parts(pipe: Connection) -> Parts:
    """The parts that the other end has sent."""
    return [pipe.recv_bytes() for _ in range(int.from_bytes(pipe.recv_bytes(), "little"))]


class ActorBody:
    """What runs in an actor of Ray."""

    def __init__(self, task: bytes):
        self._shard = opened(task)

    def answer(self, request: Parts) -> Parts:
        """The answer to a request."""
        return [bytes(part) for part in answered(self._shard, request)]

    def pid(self) -> int:
        """The process of the actor."""
        return os.getpid()


class RayActor:
    """A shard that is an actor of Ray, on any machine of its cluster."""

    def __init__(self, task: bytes):
        self._ray: Any = import_module("ray")
        # No processor is reserved: all shards must live at the same time, also where there are fewer processors.
        options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        self.actor = self._ray.remote(ActorBody).options(**options).remote(task)
        self._answer: Any = None

    def send(self, request: Parts) -> None:
        """Ask the actor."""
        self._answer = self.actor.answer.remote([bytes(part) for part in request])

    def receive(self) -> Parts:
        """Wait for the answer."""
        errors = self._ray.exceptions
        # The machine of an actor may be lost before its answer is fetched, and an actor out of reach may still live.
        lost = errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError, errors.OutOfMemoryError
        try:
            answer: Parts = self._ray.get(self._answer)
        except lost as error:
            self.close()
            raise ShardLost(str(error)) from error
        return answer

    def close(self) -> None:
        """End the actor."""
        self._ray.kill(self.actor)


class HostKind(NamedTuple):
    """An entry of `HOSTS`."""

    session: Callable[[str], AbstractContextManager[Any]]  #: what must be there while shards live, by the address
    make: Callable[[bytes], Host]  #: makes a host from a task


def _nothing(argument: str) -> AbstractContextManager[Any]:
    if argument:
        raise ValueError(
            f"executor: expected nothing after the colon for the shards of a run, got {argument!r}; the number of "
            "shards is given by shards=N"
        )
    return nullcontext()


#: Where the shards of a run can live, by the name of the executor.
HOSTS: dict[str, HostKind] = {
    "processes": HostKind(_nothing, OwnProcess),
    "ray": HostKind(RaySession, RayActor),
    "serial": HostKind(_nothing, Here),
}


def host_of(executor: str) -> tuple[HostKind, str]:
    """The kind of host of an executor such as "processes" or "ray:ADDRESS", and what stands after the colon.

    >>> host_of("ray:auto")[1]
    'auto'
    """
    name, _, argument = str(executor).partition(":")
    return HOSTS[one_of("executor", name, HOSTS)], argument
