"""Trying a claim: its runs, the audits of these, and its figures judged."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from testbed.claims.extent import too_little
from testbed.claims.measured import Evidence, Measured, Settings
from testbed.claims.measures import measure
from testbed.claims.verdict import MISSED, NOT_RUN, Row, expected, gap, judge, shown
from testbed.config.cards import Card, FigureConfig, Scale
from testbed.config.documents import merge
from testbed.errors import ConfigError, ResultsError
from testbed.experiments.grid import SHORT, Grid, read_grid
from testbed.experiments.rundir import Run
from testbed.experiments.sweep import Observer, Stage, sweep
from testbed.reporting.roc import draw_roc
from testbed.reporting.settings import configuration, grouped, read, text, varying
from testbed.verification.audited import audit_run, audited

OWN_DATA = ("digits", "fashion-mnist")
# Settings of data sets, by name: where they are, and what else they need.
Places = Mapping[str, Mapping[str, Any]]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """What came of trying a claim at one scale.

    Attributes
    ----------
    rows : tuple of Row
    wall_s : float
        Measured seconds of this attempt, where it did anything.
    failed : mapping of str to str
        The reason, in one line, of each run that failed.
    """

    rows: tuple[Row, ...]
    wall_s: float
    failed: Mapping[str, str]


def attempt(
    card: Card,
    scale: Scale,
    folder: Path,
    places: Places,
    execution: Mapping[str, Any],
    observer: Observer = lambda stage: None,
    say: Say = lambda line: None,
) -> Trial:
    """Run what a claim needs and is not there yet, and judge its figures.

    Parameters
    ----------
    card : Card
    scale : {"smoke", "small", "paper"}
    folder : Path
        Of the claim at this scale; each data set has a sweep in it.
    places : mapping
        Where data sets are, for all but `OWN_DATA`.
    execution : mapping
        The section ``execution``, which changes no result.
    observer : callable
        Told about progress.
    say : callable
        Told in one line when an audit has clients train, before they do.

    Raises
    ------
    ConfigError
        If the card, or the configuration that it names, has a mistake.
    ResultsError
        If the folder belongs to something else or cannot be written.
    """
    begin = time.perf_counter()
    if scale not in card.scales:
        return Trial(tuple(not_run(card, scale, _no_scale(card))), 0.0, {})
    if card.study is None:
        return Trial(tuple(_judged(card, scale, "", (), {})), time.perf_counter() - begin, {})
    rows: list[Row] = []
    failed: dict[str, str] = {}
    worked = False
    for name, grid in grids_of(card, scale, places, execution).items():
        if grid is None:
            why = f"{name} is not at hand; name it with --data {name}=PLACE"
            rows += not_run(card, scale, why, name)
            continue
        result = sweep(grid, folder / name, observer)
        worked |= result.cost.runs > 0
        if result.failed:
            failed |= {f"{name}, {cell}": reason for cell, reason in result.failed.items()}
            rows += not_run(card, scale, _failed(result.failed, grid.cells), name)
            continue
        worked |= _audited(card, scale, folder / name, observer, say)
        runs = read(folder / name)
        # The fewest of the sweep's keys that tell its settings apart.
        keys = varying(runs, [key for axis in grid.axes for key in axis.keys])
        rows += _judged(card, scale, name, keys, _settings(card, runs, keys))
    order = {figure.name: place for place, figure in enumerate(card.figures)}
    rows.sort(key=lambda row: order[row.figure])
    return Trial(tuple(rows), time.perf_counter() - begin if worked else 0.0, failed)


def grids_of(
    card: Card, scale: Scale, places: Places, execution: Mapping[str, Any]
) -> dict[str, Grid | None]:
    """Return the sweep of a claim on each data set, None where that is not at hand.

    Raises
    ------
    ConfigError
        If the configuration has a mistake.
    """
    if scale not in card.scales:
        return {}
    try:
        return {
            name: _grid(card, scale, name, places.get(name, {}), execution)
            if name in OWN_DATA or name in places
            else None
            for name in card.data
        }
    except ConfigError as error:
        raise ConfigError(f"claim {card.name}: {error}") from None


def _grid(
    card: Card, scale: Scale, name: str, place: Mapping[str, Any], execution: Mapping[str, Any]
) -> Grid:
    assert card.study is not None
    study, own = card.study, card.scales[scale]
    settings: dict[str, Any] = {} if own.config else {"scale": scale}
    for layer in (
        {"data": {"name": name}},
        study.settings,
        place,
        own.settings,
        card.data[name],
        {"execution": execution},
    ):
        settings = merge(settings, layer)
    values = {**study.grid, **own.grid}
    return read_grid(
        own.config or study.config,
        [f"{key}={json.dumps(each)[1:-1]}" for key, each in values.items()],
        [f"{section}={json.dumps(value, default=str)}" for section, value in settings.items()],
        ",".join(map(str, own.seeds)),
        ",".join(study.methods),
    )


def _audited(card: Card, scale: Scale, folder: Path, observer: Observer, say: Say) -> bool:
    """Audit the runs that are not audited yet; whether there were any."""
    assert card.study is not None
    wanted = card.scales[scale].audit or card.study.audit
    if wanted is None:
        return False
    sizes = wanted.model_dump(exclude={"beside"}, exclude_none=True)
    own = card.study.methods[0]
    left = [
        run.folder
        for run in read(folder)
        if run.method == own and not audited(run.folder, wanted.beside, sizes)
    ]
    for place in left:
        audit_run(place, wanted.beside, sizes, observer=_watching(observer), say=say)
        draw_roc(place)
    return bool(left)


def _watching(observer: Observer) -> Callable[[str, int, int], None]:
    return lambda what, done, total: observer(Stage("auditing", done, total, done / total, 0))


def _settings(card: Card, runs: Sequence[Run], keys: Sequence[str]) -> Settings:
    return {
        values: Evidence(some, card.tariff or "") for values, some in grouped(runs, keys).items()
    }


def _judged(
    card: Card, scale: Scale, name: str, keys: Sequence[str], settings: Settings
) -> Iterator[Row]:
    for figure in card.figures:
        if figure.data is not None and name not in figure.data:
            continue
        chosen = _chosen(figure, keys, settings)
        try:
            measured = measure(figure, chosen)
        except ResultsError as error:
            yield _unmeasured(card, figure, scale, name, str(error))
            continue
        runs = [run for each in chosen.values() for run in each.runs]
        little = too_little(figure, scale, name, runs)
        for values, found in measured:
            varied = text(keys, values) if values else ""
            setting = ", ".join(each for each in (name, varied) if each)
            row = _row(card, figure, scale, setting, found)
            if not isfinite(found.value.mean):
                yield _unmeasured(card, figure, scale, setting, "it came to no finite number")
            elif little:
                why = f"{little}, with which it is {shown(row)}"
                yield _unmeasured(card, figure, scale, setting, why)
            else:
                yield row


def _chosen(figure: FigureConfig, keys: Sequence[str], settings: Settings) -> Settings:
    """Return the settings that a figure is about.

    Raises
    ------
    ConfigError
        If there is none.
    """
    wanted = {SHORT.get(key, key): value for key, value in figure.where.items()}
    chosen = {
        values: each
        for values, each in settings.items()
        if configuration(each.runs[0]).items() >= wanted.items()
    }
    if settings and not chosen:
        raise ConfigError(
            f"figure {figure.name!r}: where: no run has {figure.where}; the study varies "
            f"{', '.join(keys) or 'nothing'}"
        )
    return chosen


def _row(card: Card, figure: FigureConfig, scale: Scale, setting: str, found: Measured) -> Row:
    value = float(found.value.mean)
    verdict = judge(figure, value)
    priced = bool(found.beside)
    beside = "; ".join(f"{tariff} {_digits(each)}" for tariff, each in found.beside.items())
    return Row(
        card.name,
        figure.name,
        setting,
        expected(figure),
        figure.unit,
        value,
        float(found.value.low),
        float(found.value.high),
        found.value.n,
        f"{card.tariff}, serialised" if priced else "",
        beside,
        scale,
        verdict,
        gap(figure, value),
        explained(figure, scale) if verdict == MISSED else "",
    )


def not_run(card: Card, scale: Scale, why: str, name: str = "") -> Iterator[Row]:
    """Return the rows of a claim that was not tried, on one data set or at all."""
    for figure in card.figures:
        if figure.data is None or not name or name in figure.data:
            yield _unmeasured(card, figure, scale, name, why)


def _unmeasured(card: Card, figure: FigureConfig, scale: Scale, name: str, why: str) -> Row:
    return Row(
        card.name,
        figure.name,
        name,
        expected(figure),
        figure.unit,
        value=None,
        low=None,
        high=None,
        n=0,
        basis="",
        beside="",
        scale=scale,
        verdict=NOT_RUN,
        gap=None,
        why=why,
    )


def explained(figure: FigureConfig, scale: Scale) -> str:
    """Say why a figure is missed, as far as its card knows."""
    return figure.why.get(scale, "not explained yet")


def _no_scale(card: Card) -> str:
    return f"it is tried at {' and '.join(card.scales)}"


def _failed(failed: Mapping[str, str], cells: int) -> str:
    cell, reason = next(iter(failed.items()))
    return f"{len(failed)} of {cells} runs failed, {cell} the first: {reason}"


def _digits(value: float) -> str:
    return f"{value:.3g}"
