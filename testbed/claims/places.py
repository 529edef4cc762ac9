"""Where data sets are, and how work is done: what a card leaves to who tries its claim."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from testbed.claims.record import SCALES
from testbed.claims.trial import Places
from testbed.config.cards import Scale
from testbed.config.documents import merge, parse_override, read, show
from testbed.config.loading import validated
from testbed.config.schema import DataConfig, Experiment
from testbed.errors import ConfigError

_YAML = (".yaml", ".yml")
_FORMS = ("npz", "folder")  # in which any data set may come
_WHERE = (
    "data.name",
    "data.path",
    "data.labels",
    "data.test_path",
    "data.test_labels",
    "detection.weights",
)


def scale_of(name: str) -> Scale:
    """Return a scale by its name.

    Raises
    ------
    ConfigError
    """
    for scale in SCALES:
        if scale == name:
            return scale
    raise ConfigError(f"--scale {show(name)}: no such scale; known: {', '.join(SCALES)}")


def places_of(given: Sequence[str]) -> Places:
    """Return the settings of data sets from ``NAME=PLACE``.

    A place that ends in ``.yaml`` holds settings, as bdd100k needs several; any other is the
    folder or the bundle of the data.

    Raises
    ------
    ConfigError
        If one is written otherwise, is not there, or names no data set.
    """
    names = get_args(DataConfig.model_fields["name"].annotation)
    found: dict[str, Mapping[str, Any]] = {}
    for each in given:
        name, sign, written = (part.strip() for part in each.partition("="))
        if not sign or not written:
            raise ConfigError(f"--data {show(each)}: write NAME=PLACE, as mnist=DATA/mnist")
        if name not in names:
            raise ConfigError(f"--data {name}: no such data set; known: {', '.join(names)}")
        if name in found:
            raise ConfigError(f"--data {name} stands twice; name one place")
        place = Path(written)
        if not os.path.exists(place):  # where pathlib would stumble over a name that is too long
            raise ConfigError(f"--data {name}: there is no {show(written)}")
        found[name] = (
            _settings(name, place) if place.suffix in _YAML else {"data": {"path": written}}
        )
    return found


def _settings(name: str, path: Path) -> Mapping[str, Any]:
    document = read(path)
    for section, content in document.items():
        for key in content if isinstance(content, Mapping) else ("",):
            if f"{section}.{key}" not in _WHERE:
                raise ConfigError(
                    f"{path}: {section}.{key}: says where data are and nothing else, or it "
                    f"would be another claim; known: {', '.join(_WHERE)}"
                )
    form = document.get("data", {}).get("name", name)
    if form not in (name, *_FORMS):
        raise ConfigError(
            f"{path}: data.name: {show(form)} is another data set than {name}; known: "
            f"{', '.join((name, *_FORMS))}"
        )
    return document


def execution_of(given: Sequence[str], out: Path) -> Mapping[str, Any]:
    """Return the section ``execution`` from ``KEY=VALUE``.

    Clients train once for all claims: their work is kept in `out` unless it says otherwise.

    Raises
    ------
    ConfigError
        If another section is named, which would be another claim.
    """
    found: dict[str, Any] = {"execution": {"kind": "processes", "store": str(out / ".store")}}
    for each in given:
        layer = parse_override(each)
        if layer.keys() != {"execution"}:
            raise ConfigError(
                f"--set {each}: a claim is tried as its card says; only execution.* may be set"
            )
        found = merge(found, layer)
    # A mistake is told before anything is run.
    validated(Experiment, {"execution": found["execution"]})
    return dict(found["execution"])
