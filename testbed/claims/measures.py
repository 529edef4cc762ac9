"""The measures by name, and what a card may ask of each."""

from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from typing import Any, get_type_hints

from testbed.claims.attacks import told_apart
from testbed.claims.costs import relative, saved, share, unselected
from testbed.claims.law import replaced, triggered, unstable, violations
from testbed.claims.measured import Evidence, Measure, Measured, Settings
from testbed.claims.quality import difference, lead, quality
from testbed.claims.trends import rise
from testbed.config.cards import Card, FigureConfig
from testbed.config.loading import checked
from testbed.config.spec import keys
from testbed.errors import ConfigError
from testbed.experiments.grid import SHORT

# Of the runs of one setting.
EACH: Mapping[str, Measure] = {
    "saved": saved,
    "relative": relative,
    "share": share,
    "unselected": unselected,
    "quality": quality,
    "difference": difference,
    "lead": lead,
    "triggered": triggered,
    "replaced": replaced,
    "told-apart": told_apart,
}
# Of the runs of all settings.
ACROSS: Mapping[str, Measure] = {"rise": rise}
# Of nothing that was run.
WORKED_OUT: Mapping[str, Measure] = {"unstable": unstable, "violations": violations}
ALL = {**EACH, **ACROSS, **WORKED_OUT}


def check(card: Card) -> None:
    """Refuse a card that asks for what cannot be measured, before anything is run.

    Raises
    ------
    ConfigError
        If a measure is unknown, is told what it does not know, or does not fit the card.
    """
    for figure in card.figures:
        where = f"claim {card.name}, figure {figure.name!r}"
        known = sorted(WORKED_OUT if card.study is None else {**EACH, **ACROSS})
        if figure.measure not in known:
            raise ConfigError(
                f"{where}: measure {figure.measure!r} is not known"
                f"{' without a study' if card.study is None else ''}; known: {', '.join(known)}"
            )
        _check_where(figure, where)
        options = _options(figure, where)
        _check_methods(card, figure, options, where)
        priced = figure.options.get("of") == "bytes" or figure.measure == "share"
        if priced and card.tariff is None:
            raise ConfigError(f"{where}: bytes are priced by a tariff; name it in the card")
        audited = card.study is not None and card.study.audit is not None
        if figure.measure == "told-apart" and not audited:
            raise ConfigError(f"{where}: asks for an audit; give the card study.audit")


def _options(figure: FigureConfig, where: str) -> dict[str, Any]:
    """Return a figure's options as its measure wants them."""
    function = ALL[figure.measure]
    _, *parameters = signature(function).parameters.values()
    names = [each.name for each in parameters]
    kinds = get_type_hints(function, include_extras=True)
    for name in figure.options:
        if name not in names:
            raise ConfigError(
                f"{where}: {figure.measure} has no option {name!r}; known: {', '.join(names)}"
            )
    for each in parameters:
        if each.default is Parameter.empty and each.name not in figure.options:
            raise ConfigError(f"{where}: {figure.measure} needs the option {each.name}")
    return {
        name: checked(kinds[name], value, f"{where}: options.{name}")
        for name, value in figure.options.items()
    }


def _check_methods(
    card: Card, figure: FigureConfig, options: Mapping[str, Any], where: str
) -> None:
    if card.study is None:
        return
    known: Sequence[str] = card.study.methods
    if figure.measure == "told-apart" and card.study.audit is not None:
        known = (known[0], *card.study.audit.beside)
        for own in card.scales.values():
            if own.audit is not None:
                known = [each for each in known if each in (known[0], *own.audit.beside)]
    _, *parameters = signature(ALL[figure.measure]).parameters.values()
    given = {each.name: each.default for each in parameters} | dict(options)
    asked = [given[name] for name in ("method", "against") if name in given]
    for method in (*asked, *given.get("over", ())):
        if method not in known:
            raise ConfigError(
                f"{where}: the study has no {method}; known: {', '.join(known)}, see study.methods"
            )


def _check_where(figure: FigureConfig, where: str) -> None:
    for key in figure.where:
        if SHORT.get(key, key) not in keys():
            raise ConfigError(f"{where}: where: {key}: no such key of a configuration")


def measure(figure: FigureConfig, settings: Settings) -> Sequence[tuple[Any, Measured]]:
    """Measure a figure: in each setting, or once over all of them (setting None)."""
    options = _options(figure, f"figure {figure.name!r}")
    if figure.measure in ACROSS:
        return [(None, ACROSS[figure.measure](settings, **options))]
    if figure.measure in WORKED_OUT:
        return [(None, WORKED_OUT[figure.measure](Evidence(), **options))]
    function = EACH[figure.measure]
    return [(values, function(each, **options)) for values, each in settings.items()]
