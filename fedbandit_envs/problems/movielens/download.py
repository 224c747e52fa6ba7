"""Fetches the ratings of MovieLens-100K from their public home. Needs pooch, of the extra `data`."""

import contextlib
import hashlib
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbandit_envs.problems.movielens.ratings_file import RATINGS_SHA256
from fedbandit_envs.storage import UNREADABLE, read_whole, write_whole
from fedbandit_envs.validation import needs

MOVIELENS_URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
MOVIELENS_SHA256 = "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229"
RATINGS_MEMBER = "ml-100k/u.data"
_SILENCE = 30.0  # seconds without a byte after which a server is given up
_LONGEST = 1800.0  # seconds for the whole file of 5 MB
_MOST_BYTES = 20_000_000  # the largest size of the whole file, and of what is unpacked from it


class DownloadError(RuntimeError):
    """The ratings could not be fetched, and nothing was left behind."""


def download(destination: str | Path) -> Path:
    """The path of u.data in the folder `destination`; the file is fetched unless it is there already.

    The folder is created if need be. Another file by the name of u.data is not overwritten. After an error
    (`DownloadError`) neither a part of the file nor a new folder is left.
    """
    target = Path(destination) / Path(RATINGS_MEMBER).name
    if target.is_file():
        got = hashlib.sha256(read_whole(target)).hexdigest()
        if got != RATINGS_SHA256:
            raise DownloadError(
                f"{target}: expected sha256 {RATINGS_SHA256}, got {got}; remove it, or choose another folder"
            )
        print(f"{target} is already there, with the right checksum")
        return target
    with _folder(target.parent) as folder, tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as place:
        write_whole(target, _ratings(_archive(Path(place))))
    print(f"{target} downloaded, with the right checksum")
    return target


def _ratings(archive: Path) -> bytes:
    """The content of u.data in the zip file."""
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(RATINGS_MEMBER) as member:
            ratings = member.read(_MOST_BYTES + 1)
    except UNREADABLE as error:
        raise DownloadError(
            f"{MOVIELENS_URL}: expected a zip file that can be read, with {RATINGS_MEMBER} in it, got "
            f"{type(error).__name__}: {error}; get the file by other means"
        ) from error
    if (got := hashlib.sha256(ratings).hexdigest()) != RATINGS_SHA256:
        raise DownloadError(f"{MOVIELENS_URL}: expected sha256 {RATINGS_SHA256} for {RATINGS_MEMBER}, got {got}")
    return ratings


@contextmanager
def _folder(folder: Path) -> Iterator[Path]:
    """Creates a folder, and removes it again after an error; explains why nothing can be written to it."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
    except BaseException as error:
        for place in new:
            with contextlib.suppress(OSError):  # the error may be that it could not be created
                place.rmdir()
        if not isinstance(error, OSError):
            raise
        reason = error.strerror or str(error)
        raise DownloadError(
            f"expected a folder that can be written, got {folder} ({reason}); free or unlock it, or choose another"
        ) from error


def _archive(place: Path) -> Path:
    """The zip file of MovieLens-100K, downloaded into the folder `place` and checked."""
    needs("pooch", extra="data", instead="get the zip file by other means and use the u.data in it")
    import pooch
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError  # requests does not translate it when the answer itself is read

    try:
        return Path(pooch.retrieve(MOVIELENS_URL, MOVIELENS_SHA256, fname="ml-100k.zip", path=place, downloader=_fetch))
    except (RequestException, HTTPError) as error:  # the first is an OSError too, but not one of the disk
        raise DownloadError(
            f"{MOVIELENS_URL}: expected to download it, got {error}; check the network, or get the zip file by other "
            "means and use the u.data in it"
        ) from error
    except ValueError as error:
        # The error holds both checksums.
        raise DownloadError(
            f"{MOVIELENS_URL}: expected its checksum, got another ({error}); try again later"
        ) from error


def _fetch(url: str, file: str, _: object) -> None:
    """Fetch a file within a time limit for the whole, which a server that sends byte after byte does not escape."""
    import requests
    from tqdm.auto import tqdm

    end = time.monotonic() + _LONGEST
    with requests.get(url, stream=True, timeout=_SILENCE) as answer, Path(file).open("wb") as target:
        answer.raise_for_status()
        length = int(answer.headers.get("content-length") or 0)
        with tqdm(total=length or None, unit="B", unit_scale=True, disable=not sys.stderr.isatty()) as bar:
            while part := answer.raw.read1(1 << 16):
                bar.update(target.write(part))
                if target.tell() > _MOST_BYTES:
                    raise requests.ConnectionError(f"expected at most {_MOST_BYTES:,} bytes, got more")
                if time.monotonic() > end:
                    raise requests.Timeout(f"expected the file within {_LONGEST:g} s, got {target.tell()} bytes of it")
        if length and target.tell() != length:
            raise requests.ConnectionError(f"expected {length} bytes, got {target.tell()}")
