"""Fetches the ratings of MovieLens-100K from their public home; nothing reaches the disk before it is checked."""

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedbandit_envs.problems.movielens.ratings import RATINGS_SHA256
from fedbandit_envs.storage import write_whole
from fedbandit_envs.validation import real_number, whole_number

MOVIELENS_URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
RATINGS_FILE = "u.data"
_CHUNK = 1 << 16
_LARGEST = 1 << 26  # bytes; ml-100k.zip has 5 million, its u.data 2 million


class DownloadError(RuntimeError):
    """The ratings could not be fetched, and nothing was left behind."""


class _PassingError(Exception):
    """A fault that another attempt may not meet."""


def download(
    destination: str | Path,
    url: str = MOVIELENS_URL,
    *,
    sha256: str = RATINGS_SHA256,
    attempts: int = 3,
    backoff: float = 1.0,
    timeout: float = 30.0,
    say: Callable[[str], None] = print,
) -> Path:
    """The path of u.data in the folder `destination`, fetched from the zip file at `url` unless it is there already.

    A lost connection is tried again, `attempts` times in all, after `backoff`, twice `backoff`, ... seconds;
    `timeout` is the longest silence, in seconds, that is not taken for a lost one. Another file by the name of u.data
    is not overwritten.
    """
    attempts = whole_number("attempts", attempts, at_least=1)
    backoff = real_number("backoff", backoff, at_least=0)
    timeout = real_number("timeout", timeout, above=0)
    target = Path(destination) / RATINGS_FILE
    if target.is_file():
        _require_checksum(target.read_bytes(), sha256, str(target), "remove it, or choose another folder")
        say(f"{target} is already there, with the right checksum")
        return target
    with _written_to(target.parent):  # a folder that can't be written is known before the download
        target.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=target.parent).close()
    ratings = _member(_fetched(url, attempts, backoff, timeout), url)
    _require_checksum(ratings, sha256, f"{RATINGS_FILE} of {url}", "try again later, or give another url")
    with _written_to(target.parent):
        write_whole(target, ratings)
    say(f"{target} downloaded, with the right checksum")
    return target


def _require_checksum(content: bytes, sha256: str, source: str, remedy: str) -> None:
    got = hashlib.sha256(content).hexdigest()
    if got != sha256:
        raise DownloadError(f"wrong checksum of {source}: expected sha256 {sha256}, got {got}; {remedy}")


@contextmanager
def _written_to(folder: Path) -> Iterator[None]:
    """Explains why a folder can't be written."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise DownloadError(
            f"expected a folder that can be written, got {folder} ({reason}); free or unlock it, or choose another"
        ) from problem


def _fetched(url: str, attempts: int, backoff: float, timeout: float) -> bytes:
    for attempt in range(1, attempts + 1):
        try:
            return _response(url, timeout)
        except _PassingError as problem:
            if attempt == attempts:
                raise DownloadError(
                    f"could not download {url}: {problem} ({attempts} attempts); "
                    f"check the network, or get the zip file by other means and use the {RATINGS_FILE} in it"
                ) from problem
            time.sleep(backoff * 2 ** (attempt - 1))
    raise AssertionError("attempts is at least 1")


def _response(url: str, timeout: float) -> bytes:
    """The body of one answer; `_PassingError` for what may go better next time, `DownloadError` for what won't."""
    from http.client import HTTPException, InvalidURL
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=timeout) as response:
            length = response.headers.get("Content-Length")
            return _body(response.read, int(length) if length and length.isdigit() else None)
    except HTTPError as problem:
        with problem:
            answer = f"expected status 200, got {problem.code} {problem.reason}"
        if problem.code >= 500 or problem.code in (408, 429):
            raise _PassingError(answer) from problem
        raise DownloadError(f"could not download {url}: {answer}; check the url") from problem
    except URLError as problem:
        raise _PassingError(f"no connection, {problem.reason}") from problem
    except (InvalidURL, ValueError) as problem:
        raise DownloadError(f"expected an http or https url, got {url!r}; check the url") from problem
    except (HTTPException, OSError) as problem:
        raise _PassingError(f"the connection was cut, {str(problem) or type(problem).__name__}") from problem


def _body(read: Callable[[int], bytes], length: int | None) -> bytes:
    from tqdm import tqdm

    body = bytearray()
    # disable=None: only on a terminal; delay: only when there is something to wait for.
    with tqdm(total=length, unit="B", unit_scale=True, desc="MovieLens-100K", disable=None, delay=1) as progress:
        while chunk := read(_CHUNK):
            body += chunk
            progress.update(len(chunk))
            if len(body) > _LARGEST:
                raise DownloadError(f"expected at most {_LARGEST} bytes, got more; check the url")
    if length is not None and len(body) != length:  # read() does not tell a cut connection from the end
        raise _PassingError(f"the connection was cut, after {len(body)} of {length} bytes")
    return bytes(body)


def _member(archive: bytes, url: str) -> bytes:
    """The bytes of u.data, wherever it is in the zip file."""
    import io
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as content:
            found = [entry for entry in content.infolist() if Path(entry.filename).name == RATINGS_FILE]
            sizes = [entry.file_size for entry in found]
            if len(sizes) != 1 or sizes[0] > _LARGEST:
                raise DownloadError(
                    f"expected one {RATINGS_FILE} of at most {_LARGEST} bytes in {url}, got sizes {sizes}; check it"
                )
            return content.read(found[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as problem:
        raise DownloadError(f"expected a zip file at {url}, got something else ({problem}); check the url") from problem
