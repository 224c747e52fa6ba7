"""The ratings file of MovieLens-100K, u.data: checked and read. Nothing of it ships with the package."""

import hashlib
from pathlib import Path

import numpy as np

from fedbandit_envs.arrays import FloatArray, IntArray
from fedbandit_envs.storage import read_whole

RATINGS_SHA256 = "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490"
HIGHEST_RATING = 5
_MOST_BYTES = 100_000_000  # 50 times u.data


def read_ratings(path: str | Path, sha256: str | None = RATINGS_SHA256) -> FloatArray:
    """The (users, items) matrix of ratings 1 to 5, with 0 for a missing one.

    Args:
        path: The file u.data.
        sha256: The checksum that the file must have, by default that of MovieLens-100K. None accepts every file of
            that form: rows of user, item, rating and time, separated by tabs, with ids counted from 1.

    Raises:
        ValueError: it is another file, no file but for example a pipe, or one of more than 100 MB, which is not read.
    """
    content = read_whole(Path(path), _MOST_BYTES)
    if sha256 is not None and (got := hashlib.sha256(content).hexdigest()) != sha256:
        raise ValueError(
            f"{path} is not the u.data of MovieLens-100K: expected sha256 {sha256}, got {got}; "
            "download it again, or pass sha256=None for ratings of your own"
        )
    users, items, ratings = _parsed(content, path)
    matrix = np.zeros((users.max(), items.max()))
    matrix[users - 1, items - 1] = ratings
    return matrix


def _parsed(content: bytes, path: str | Path) -> tuple[IntArray, IntArray, IntArray]:
    """The columns of users, items and ratings, each row valid and each pair of user and item there once."""
    rows = []
    for number, line in enumerate(content.splitlines(), start=1):
        fields = line.split(b"\t")
        if len(fields) != 4 or not all(field.isdigit() and len(field) < 19 for field in fields):
            raise ValueError(
                f"{path}, line {number}: expected 4 whole numbers separated by tabs (user, item, rating, time), "
                f"got {line[:80].decode(errors='replace')!r}; correct the line"
            )
        rows.append([int(field) for field in fields[:3]])
    if not rows:
        raise ValueError(f"{path}: expected rows of user, item, rating and time, got an empty file")
    users, items, ratings = np.array(rows, dtype=np.int64).T
    wrong = np.flatnonzero((ratings < 1) | (ratings > HIGHEST_RATING))
    if wrong.size:
        raise ValueError(
            f"{path}, line {wrong[0] + 1}: expected a rating from 1 to {HIGHEST_RATING}, "
            f"got {ratings[wrong[0]]}; rescale the ratings"
        )
    # Ids without holes: no row of the matrix is empty, and one stray id can't ask for a matrix of any size.
    for name, ids in (("user", users), ("item", items)):
        present = np.unique(ids)
        if present[0] != 1 or present[-1] != present.size:
            raise ValueError(
                f"{path}: expected every {name} id from 1 to the number of {name}s, "
                f"got {present.size} ids from {present[0]} to {present[-1]}; number them anew"
            )
    _, first = np.unique(users * (items.max() + 1) + items, return_index=True)
    if first.size != users.size:
        again = int(np.setdiff1d(np.arange(users.size), first)[0])
        raise ValueError(
            f"{path}, line {again + 1}: expected one rating for each user and item, "
            f"got another for user {users[again]}, item {items[again]}; keep one"
        )
    return users, items, ratings
