"""What a folder of results is for: one run or one sweep, and never both."""

from collections.abc import Sequence
from pathlib import Path

from fedbandit_envs.experiments.description import EXPERIMENT_FILE
from fedbandit_envs.experiments.folder import FolderError


def sweep_folders(folder: Path) -> dict[Path, tuple[str, ...]]:
    """The folders of a sweep's points inside a folder, each with the parameters that its name tells."""
    folders = sorted(path.parent for path in folder.glob(f"*=*/{EXPERIMENT_FILE}"))
    return {path: tuple(part.partition("=")[0] for part in path.name.split(",")) for path in folders}


def check_place(folder: str | Path, parameters: Sequence[str] = ()) -> None:
    """Refuse a folder that holds something else, which the new results would hide or be hidden by.

    Args:
        folder: where results shall go; it need not be there yet.
        parameters: the swept parameters; none: the results are those of a single run.

    Raises:
        FolderError: The folder holds a run and a sweep shall go there, or a sweep and a run shall go there, or a sweep
            over other parameters.
    """
    folder = Path(folder)
    others = [names for names in sweep_folders(folder).values() if names != tuple(parameters)]
    expected = f"a sweep over {', '.join(parameters)}" if parameters else "a run"
    if others:
        got = f"a sweep over {', '.join(others[0])}"
    elif parameters and (folder / EXPERIMENT_FILE).exists():
        got = "a run"
    else:
        return
    raise FolderError(f"{folder}: expected a folder for {expected}, got one that holds {got}; choose another folder")
