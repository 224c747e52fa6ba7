"""The program of a process that holds one shard: `python -m fedbandit_envs.shards.process FILE_DESCRIPTOR`."""

import signal
import sys
from multiprocessing.connection import Connection

from fedbandit_envs.shards.hosts import answered, opened, receive_parts, send_parts
from fedbandit_envs.shards.packing import packed
from fedbandit_envs.shards.shard import Shard

_END_WITH_PARENT = 1  # the number of PR_SET_PDEATHSIG


def main(descriptor: int) -> None:
    """Answer requests until the driver closes its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the driver, which then ends its shards
    if sys.platform == "linux":  # a long computation notices no closed socket: the kernel ends it with the driver
        import ctypes

        ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    with Connection(descriptor) as pipe:
        try:
            (task,) = receive_parts(pipe)
            shard: Shard | None = None
            while True:
                request = receive_parts(pipe)
                try:
                    shard = shard or opened(task)
                except Exception as error:  # the problem or the policy can't be made: the driver is told why
                    send_parts(pipe, packed((None, RuntimeError(f"{type(error).__name__}: {error}"))))
                    return
                send_parts(pipe, answered(shard, request))
        except (EOFError, OSError):  # the driver has gone
            return


if __name__ == "__main__":
    main(int(sys.argv[1]))
