"""What a client's work depends on, as keys: equal keys mean equal results.

A key is a SHA-256 sum over canonical JSON.  What the code contributes is not in it but in
`code_version`, so that work of another version of the code can be told from work that was
never done.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from testbed.learning.contribution import serialise_model
from testbed.learning.task import ONE_SHOT, Task

_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCES = ("learning", "streams.py")
_LIBRARIES = ("torch", "numpy")
# Whose code a detector and its loss are.
_DETECTION, _DETECTION_LIBRARY = "bdd100k", "ultralytics"
# The only part of a statistic that asks the task for form and conditioning.
_CONFIGURED = "fisher"


@cache
def code_version() -> str:
    """Return 16 digits that name the code of training and of statistics.

    They cover the sources of `testbed.learning` and of the random streams, and the versions of
    torch and NumPy.
    """
    digest = hashlib.sha256()
    for source in _SOURCES:
        path = _PACKAGE / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            content = file.read_bytes()
            digest.update(f"{file.relative_to(_PACKAGE).as_posix()}:{len(content)}:".encode())
            digest.update(content)
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()[:16]


def model_key(task: Task, part: int) -> str:
    """Return the key of the model that a partition's client trains: 64 digits."""
    return _key(
        {
            **_shared(task),
            "samples": _digest(np.asarray(task.parts[part], np.int64).tobytes()),
            # A client's streams are named by its partition.
            "streams": [task.streams.seed, part],
            "session": asdict(ONE_SHOT),
        }
    )


def statistic_key(task: Task, part: int, statistic: str) -> str:
    """Return the key of what a partition's client sends beside its model: 64 digits.

    Parameters
    ----------
    task : Task
    part : int
    statistic : str
        See `testbed.learning.statistics`.
    """
    held = task.holdouts[part] if task.holdouts else ()
    document = {
        "model": model_key(task, part),
        "statistic": statistic,
        "holdout": _digest(np.asarray(held, np.int64).tobytes()),
        "pool": len(task.parts),
    }
    if _CONFIGURED in statistic.split("+"):
        document |= {
            "kind": task.kind,
            "estimator": task.estimator,
            "conditioning": asdict(task.conditioning),
            "upload": asdict(task.upload),
        }
    return _key(document)


_known: WeakKeyDictionary[Task, Mapping[str, Any]] = WeakKeyDictionary()


def _shared(task: Task) -> Mapping[str, Any]:
    """Return what is the same for all clients of a task."""
    if task not in _known:
        data = task.described()
        _known[task] = {
            "initial": _digest(serialise_model(task.initial)),
            "network": _digest(repr(task.model).encode()),
            "data": data["fingerprint"],
            # Every kind of task has a recipe of a type of its own.
            "recipe": asdict(vars(task)["recipe"]),
            "device": _device(task.device),
            "library": _installed(_DETECTION_LIBRARY) if data["name"] == _DETECTION else None,
        }
    return _known[task]


def _key(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return _digest(text.encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _device(device: torch.device) -> str:
    """Name the kind of device; two models of GPU round differently."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _installed(package: str) -> str | None:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None
