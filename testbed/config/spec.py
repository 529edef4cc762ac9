"""What a configuration says, independent of how it was written: keys, hash, differences."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from testbed.config.schema import Experiment

_HASH_DIGITS = 8
_ABSENT = object()


def keys(model: type[BaseModel] = Experiment, prefix: str = "") -> dict[str, FieldInfo]:
    """Return every key of the configuration by its dotted path, in the schema's order."""
    found: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= keys(kind, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = field
    return found


def canonical(experiment: Experiment) -> str:
    """Render an experiment as canonical JSON: sorted keys, no spaces, floats by ``repr``."""
    return _canonical(experiment.model_dump(mode="json"))


def spec_hash(experiment: Experiment, method: str | None = None) -> str:
    """Hash everything that determines the outcome of one cell of an experiment.

    The name, the seeds and the way the work is spread over this machine are left out, and so
    is the scale, which stands in the sizes themselves.

    Parameters
    ----------
    experiment : Experiment
    method : str, optional
        The method of the cell, which takes the place of ``editing.methods``.

    Returns
    -------
    str
        Eight hexadecimal digits of a SHA-256 sum, the same in every process.
    """
    document = experiment.model_dump(mode="json", exclude={"name", "scale", "seeds", "execution"})
    if method is not None:
        document["editing"]["methods"] = method
    return hashlib.sha256(_canonical(document).encode()).hexdigest()[:_HASH_DIGITS]


def differences(there: Mapping[str, Any], here: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the keys in which two dumped experiments differ, one line each, sorted.

    Examples
    --------
    >>> differences({"editing": {"rho": 0.5}}, {"editing": {"rho": 0.3}})
    ['editing.rho: 0.5 there, 0.3 here']
    """
    lines: list[str] = []
    for key in sorted(there.keys() | here.keys()):
        a, b = there.get(key, _ABSENT), here.get(key, _ABSENT)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            lines += differences(a, b, f"{prefix}{key}.")
        elif a != b:
            lines.append(f"{prefix}{key}: {_word(a)} there, {_word(b)} here")
    return lines


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _word(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    if value is None:
        return "unset"
    return value if isinstance(value, str) else json.dumps(value)
