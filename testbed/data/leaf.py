"""FEMNIST as LEAF's scripts leave it: JSON shards of pictures by writer.

Source: S. Caldas et al., "LEAF: a benchmark for federated settings", 2019.  The folders
``train`` and ``test`` hold ``all_data_*.json`` with the keys ``users``, ``num_samples``
and ``user_data``: per user the lists ``x``, 784 grey values from 0 to 1 per picture, and
``y``.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.faults import gather, refuse
from testbed.data.kinds import CHARACTERS, Kind
from testbed.data.raw import Bytes, IntArray, Part, Raw, check_labels, held
from testbed.errors import DataError

_PARTS = ("train", "test")
_SHAPE = (1, 28, 28)
_PIXELS = 28 * 28
_WHITE = 255

HOLDS = "train/ and test/, each with LEAF's all_data_*.json"

_Samples = tuple[Bytes, IntArray]


def find(folder: Path) -> Path | None:
    """Return the folder if a part of it has JSON files."""
    return folder if any(_shards(folder / part) for part in _PARTS) else None


def read(folder: Path, kind: Kind) -> Raw:
    """Read all shards; writers keep the order of the files.

    Those who have pictures to learn from come first, then those who are only tested on.
    One shard's text is in memory at a time, beside the pictures read so far.

    Raises
    ------
    DataError
        If a part has no shard, or a shard is truncated or contradicts itself.
    """
    if missing := [part for part in _PARTS if not _shards(folder / part)]:
        raise DataError(f"{folder}: no JSON file in {missing[0]}/; the folder must hold {HOLDS}")
    classes = kind.classes or CHARACTERS
    train, test = gather(
        partial(_read_part, _shards(folder / part), len(classes) - 1) for part in _PARTS
    )
    writers = tuple(dict.fromkeys((*train, *test)))
    numbers = {writer: number for number, writer in enumerate(writers)}
    return Raw(_part(train, numbers), _part(test, numbers), classes, writers)


def _shards(folder: Path) -> list[Path]:
    """Return JSON files in the order of the numbers in their names."""
    return sorted(
        (path for path in folder.glob("*.json") if path.is_file()),
        key=lambda path: [
            (int(piece), "") if piece.isdigit() else (-1, piece)
            for piece in re.split(r"([0-9]+)", path.name)
        ],
    )


def _part(users: dict[str, _Samples], numbers: dict[str, int]) -> Part:
    pictures = np.concatenate([x for x, _ in users.values()])
    labels = np.concatenate([y for _, y in users.values()])
    writers = np.repeat(
        np.array([numbers[user] for user in users], np.int64), [len(y) for _, y in users.values()]
    )
    return Part(held(pictures), labels, writers)


def _read_part(paths: list[Path], most: int) -> dict[str, _Samples]:
    users: dict[str, _Samples] = {}
    for shard, path in zip(
        gather(partial(_read_shard, p, most) for p in paths), paths, strict=True
    ):
        if twice := users.keys() & shard.keys():
            raise DataError(f"{path}: user {min(twice)!r} is also in an earlier shard")
        users |= shard
    if not users:
        raise DataError(f"{paths[0].parent}: no users with pictures")
    return users


def _read_shard(path: Path, most: int) -> dict[str, _Samples]:
    try:
        with path.open(encoding="utf-8") as stream:
            content = json.load(stream, object_hook=_compact)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        reason = str(error).partition(";")[0]  # after which Python gives programmers advice
        raise DataError(f"{path}: truncated or not JSON: {reason}; copy it again") from None
    keys = ("users", "num_samples", "user_data")
    if not isinstance(content, dict) or not content.keys() >= set(keys):
        raise DataError(f"{path}: not a LEAF shard, it must have the keys {', '.join(keys)}")
    users, sizes, data = (content[key] for key in keys)
    if not isinstance(users, list) or not isinstance(sizes, list) or not isinstance(data, dict):
        raise DataError(f"{path}: users and num_samples must be lists, user_data an object")
    if not all(isinstance(user, str) for user in users):
        raise DataError(f"{path}: users must be strings, as the keys of user_data are")
    if len(users) != len(sizes) or sorted(users) != sorted(data):
        odd = sorted(set(users) ^ data.keys()) or [user for user in users if users.count(user) > 1]
        named = f"; look at user {odd[0]!r}" if odd else ""
        raise DataError(
            f"{path}: {len(users)} users, {len(sizes)} num_samples and {len(data)} entries of "
            f"user_data do not name the same users once each{named}"
        )
    faults = [
        f"{path}: user {user!r}: {fault}"
        for user, size in zip(users, sizes, strict=True)
        for fault in _faults(data[user], size, most)
    ]
    refuse(faults)
    return {user: _samples(data[user]) for user in users if len(data[user]["y"])}


def _compact(item: dict[str, Any]) -> dict[str, Any]:
    """Turn a user's lists into arrays as soon as they are read, a tenth of their size."""
    if isinstance(item.get("x"), list) and isinstance(item.get("y"), list):
        try:
            return {"x": np.asarray(item["x"], np.float32), "y": np.asarray(item["y"])}
        except (ValueError, TypeError, OverflowError):  # rows of different lengths, no numbers
            return {"x": None, "y": np.asarray(())}
    return item


def _faults(user: Any, size: Any, most: int) -> Iterator[str]:
    if not isinstance(user, dict) or not user.keys() >= {"x", "y"}:
        yield "no x and y"
        return
    x, y = user["x"], user["y"]
    if not isinstance(y, np.ndarray):
        yield "x and y must be lists"
    elif x is None or (len(y) and x.shape[1:] != (_PIXELS,)):
        yield f"x is not one list of {_PIXELS} numbers per picture"
    elif len(y) != size or len(x) != size:
        yield f"{len(x)} pictures and {len(y)} labels where num_samples promises {size}"
    elif len(y) and not ((x >= 0) & (x <= 1)).all():
        yield "a grey value is not in 0..1"
    elif len(y):
        try:
            check_labels(y, len(x), "y", most)
        except DataError as error:
            yield str(error)


def _samples(user: dict[str, Any]) -> _Samples:
    # LEAF divided bytes by 255: the bytes are what it read.
    pictures = np.rint(user["x"] * _WHITE).astype(np.uint8)
    return pictures.reshape(-1, *_SHAPE), user["y"].astype(np.int64)
