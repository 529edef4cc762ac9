"""The scales of an experiment: one file, several sizes.

``scales:`` in a configuration file holds up to three sections, ``smoke``, ``small`` and
``paper``; the one that `scale` names is laid over the file, under ``--set``.  A scale may
change sizes and epochs and nothing else, so that all of them are the same experiment.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from testbed.config.documents import Document, merge, show
from testbed.config.schema import Experiment
from testbed.errors import ConfigError

SCALABLE = (
    "clients.initial",
    "clients.pool",
    "data.limit",
    "data.test_limit",
    "data.users",
    "detection.image_size",
    "editing.requests",
    "learning.epochs",
    "mobility.schedule.changes",
    "mobility.schedule.vehicles",
    "rounds.distillation",
    "rounds.retraining",
    "rounds.rounds",
    "seeds",
)
NAMES = get_args(Experiment.model_fields["scale"].annotation)
_DEFAULT = Experiment.model_fields["scale"].default


def scaled(path: Path | None, document: Document, overrides: Document) -> Document:
    """Take ``scales`` out of a file's document and lay the one chosen over the rest.

    Parameters
    ----------
    path : Path or None
        The file, for messages.
    document : dict
        Its content; ``scales`` is removed.
    overrides : dict
        ``--set`` values, which may name the scale.

    Raises
    ------
    ConfigError
        If the file has no such scale, or a scale holds a key that is no size.
    """
    scales = document.pop("scales", {})
    if not isinstance(scales, Mapping):
        raise ConfigError(f"{path}: scales: {show(scales)} must hold sections {_listed(NAMES)}")
    for name, section in scales.items():
        if name not in NAMES:
            raise ConfigError(f"{path}: scales.{name}: unknown scale; known: {_listed(NAMES)}")
        if not isinstance(section, Mapping | None):
            raise ConfigError(
                f"{path}: scales.{name}: {show(section)} must be a section with keys"
            )
        for key in _leaves(section, ""):
            if key not in SCALABLE:
                raise ConfigError(
                    f"{path}: scales.{name}.{key}: a scale changes sizes only: {_listed(SCALABLE)}"
                )
    wanted = overrides.get("scale", document.get("scale", _DEFAULT))
    if not isinstance(wanted, str):
        return document  # the schema refuses it
    if wanted in scales:
        section = scales[wanted] or {}
        _no_mix(document, section, "")
        return merge(document, section)
    if wanted != _DEFAULT and wanted in NAMES:
        where = f"{path} has {_listed(scales)}" if scales else f"{path or 'this'} has no scales"
        raise ConfigError(f"scale: {show(wanted)} is not described; {where}")
    return document


def _no_mix(document: Mapping[str, Any], section: Mapping[str, Any], prefix: str) -> None:
    """Refuse to lay a section over what is none, which would hide a mistake of the file."""
    for key, value in section.items():
        below = document.get(key)
        if isinstance(value, Mapping) and below is not None:
            if not isinstance(below, Mapping):
                raise ConfigError(
                    f"{prefix}{key}: {show(below)} must be a section with keys of its own"
                )
            _no_mix(below, value, f"{prefix}{key}.")


def _leaves(section: Any, prefix: str) -> list[str]:
    """Return the dotted keys of a section."""
    if not isinstance(section, Mapping):
        return [prefix[:-1]] if prefix else []
    return [key for name, value in section.items() for key in _leaves(value, f"{prefix}{name}.")]


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))
