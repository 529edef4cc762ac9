"""Where data sets are, and how work is done: what a card leaves to who tries its claim."""

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
        place = Path(written)
        if not place.exists():
            raise ConfigError(f"--data {name}: there is no {written}")
        found[name] = _settings(place) if place.suffix in _YAML else {"data": {"path": written}}
    return found


def _settings(path: Path) -> Mapping[str, Any]:
    document = read(path)
    strange = document.keys() - {"data", "detection"}
    if strange:
        raise ConfigError(
            f"{path}: {min(strange)}: says where data are, so it holds the sections data and "
            "detection only"
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
