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
        for key in _leaves(section, ""):
            if key not in SCALABLE:
                raise ConfigError(
                    f"{path}: scales.{name}.{key}: a scale changes sizes only: {_listed(SCALABLE)}"
                )
    wanted = overrides.get("scale", document.get("scale", _DEFAULT))
    if wanted in scales:
        return merge(document, scales[wanted] or {})
    if wanted != _DEFAULT and wanted in NAMES:
        where = f"{path} has {_listed(scales)}" if scales else f"{path or 'this'} has no scales"
        raise ConfigError(f"scale: {show(wanted)} is not described; {where}")
    return document


def _leaves(section: Any, prefix: str) -> list[str]:
    """Return the dotted keys of a section."""
    if not isinstance(section, Mapping):
        return [prefix[:-1]] if prefix else []
    return [key for name, value in section.items() for key in _leaves(value, f"{prefix}{name}.")]


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))
