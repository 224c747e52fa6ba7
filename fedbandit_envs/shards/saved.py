"""The folder in which a run is saved while it goes on."""

import contextlib
import os
from pathlib import Path
from typing import Any, Self

from fedbandit_envs import storage
from fedbandit_envs.protocol.messages import State

_FILE = "run.npz"


class SavedRun:
    """A folder that holds the state of one run. Within a `with` block no other run can use it.

    The folder is locked by the operating system, which takes the lock away when the process dies. Where there are no
    such locks (Windows, some network drives), two runs can meet in one folder.

    >>> import tempfile
    >>> with SavedRun(tempfile.mkdtemp()) as saved:
    ...     saved.save({"steps": 3})
    ...     saved.load()
    ...     saved.remove()
    ...     saved.exists
    {'steps': 3}
    False

    Args:
        folder: the folder; it is made if there is none.
    """

    def __init__(self, folder: str | Path):
        self._folder = Path(folder)
        self._locked: int | None = None  # the file descriptor that holds the lock
        self.file = self._folder / _FILE  #: where the state is

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ValueError(f"state: expected a folder, got a file in {self._folder}; choose another path") from error
        self._lock()
        self._remove_leftovers()
        return self

    def __exit__(self, *_: object) -> None:
        if self._locked is not None:
            import fcntl

            fcntl.flock(self._locked, fcntl.LOCK_UN)  # closing alone keeps a lock that a child shares
            os.close(self._locked)
            self._locked = None

    def _lock(self) -> None:
        """Lock the folder, where that is possible; refuse one that another run has locked."""
        try:
            import fcntl
        except ImportError:
            return
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ValueError(
                f"state: expected a folder that no other run is using, got {self._folder}, which is in use; wait "
                "until that run is over, or choose another folder"
            ) from error
        except OSError:  # this file system has no locks
            os.close(descriptor)
            return
        self._locked = descriptor

    def _remove_leftovers(self) -> None:
        """Remove the half-written files of killed processes, if the lock shows that no process writes them now."""
        if self._locked is not None:
            for part in self._folder.glob(f".{_FILE}.*.part"):
                part.unlink(missing_ok=True)

    @property
    def exists(self) -> bool:
        """Whether a run is saved here."""
        return self.file.exists()

    def load(self) -> dict[str, Any]:
        """The state."""
        return storage.load(self.file)

    def save(self, state: State) -> None:
        """Save a state in the place of the one before."""
        storage.save(self.file, state)

    def remove(self) -> None:
        """Remove the state, because the run is over."""
        self.file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._remove_leftovers()
