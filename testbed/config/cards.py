"""Claim cards: what a paper says, how it is tried, and within what tolerance it is met.

A card is a YAML file.  It names everything that decides its verdict before anything is run:
settings, scales, the figure that is measured, the tariff that prices bytes, and the band in
which the figure has to lie.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from testbed.config.base import NonNegative, Section
from testbed.config.documents import read
from testbed.config.loading import validated
from testbed.config.schema import DataConfig, Method
from testbed.errors import ConfigError

Scale = Literal["smoke", "small", "paper"]
Tariff = Literal["incremental", "broadcast", "paper"]
Settings = dict[str, Any]
Text = Annotated[str, Field(min_length=1)]


class FigureConfig(Section):
    """One number of a claim."""

    name: Text = Field(description="what it is, as the table says it")
    measure: Text = Field(description="the function that measures it, see docs/reproduction.md")
    options: Settings = Field({}, description="what that function is told")
    data: tuple[str, ...] | None = Field(None, description="default: all of the card's")
    where: Settings = Field({}, description="only settings of the study with these values")
    unit: str = Field("", description="%, points, s, ...")
    at: float | None = Field(None, description="the value that the paper gives")
    between: tuple[float, float] | None = Field(None, description="the range that it gives")
    at_least: float | None = Field(None, description="the bound that it gives")
    at_most: float | None = Field(None, description="the bound that it gives")
    within: NonNegative = Field(0.0, description="tolerance around value, range or bound")
    why: dict[Scale, Text] = Field({}, description="why it is missed at a scale, one sentence")

    @model_validator(mode="after")
    def _one_expectation(self) -> Self:
        given = [
            name
            for name in ("at", "between", "at_least", "at_most")
            if getattr(self, name) is not None
        ]
        if len(given) != 1:
            raise ValueError(
                f"{self.name}: name one of at, between, at_least, at_most, "
                f"not {' and '.join(given) or 'none'}"
            )
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError(f"{self.name}: between {list(self.between)} is an empty range")
        return self


class AuditConfig(Section):
    """The attacks on the released models of a claim's runs."""

    beside: tuple[Method, ...] = Field((), description="methods whose forgetting is tested too")
    shadows: int | None = Field(None, ge=16, description="shadow models; default: the audit's")
    releases: int | None = Field(None, ge=8, description="fresh models that are attacked")
    repeats: int | None = Field(None, ge=8, description="withdrawals of each client")
    clients: int | None = Field(None, ge=1, description="clients that withdraw")


class StudyConfig(Section):
    """The runs of a claim: one sweep for each data set."""

    config: Path = Field(description="configuration file, relative to the card")
    settings: Settings = Field({}, description="laid over it")
    grid: dict[str, tuple[Any, ...]] = Field(min_length=1, description="values of the sweep")
    methods: tuple[Method, ...] = Field(min_length=1)
    audit: AuditConfig | None = Field(None, description="attack what the runs release")


class ScaleConfig(Section):
    """How a claim is tried at one scale."""

    config: Path | None = Field(
        None, description="instead of the study's file; else that file's own scale is taken"
    )
    settings: Settings = Field({}, description="laid over the study's")
    grid: dict[str, tuple[Any, ...]] = Field({}, description="instead of the study's values")
    seeds: tuple[Annotated[int, Field(ge=0)], ...] = Field((0, 1, 2), min_length=1)
    audit: AuditConfig | None = Field(None, description="instead of the study's")


class Card(Section):
    """One claim of a paper."""

    name: Text = Field(description="of the file")
    says: Text = Field(description="the claim in a sentence")
    source: Text = Field(description="where the paper makes it")
    study: StudyConfig | None = Field(None, description="none: worked out and not run")
    data: dict[str, Settings] = Field({}, description="settings of each data set it is tried on")
    scales: dict[Scale, ScaleConfig] = Field(min_length=1, description="at which it can be run")
    tariff: Tariff | None = Field(None, description="prices the bytes of its figures")
    figures: tuple[FigureConfig, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.study is None) != (not self.data):
            raise ValueError(
                "data names the sets that a study is run on: give both, or neither where the "
                "claim is worked out"
            )
        known = get_args(DataConfig.model_fields["name"].annotation)
        for name in self.data:
            if name not in known:
                raise ValueError(f"data.{name}: no such data set; known: {', '.join(known)}")
        names = [figure.name for figure in self.figures]
        if len(set(names)) < len(names):
            raise ValueError("two figures have one name; their lines could not be told apart")
        for figure in self.figures:
            strange = [name for name in figure.data or () if name not in self.data]
            if strange:
                raise ValueError(f"{figure.name}: data: the card has no {strange[0]}")
        return self

    @property
    def trains(self) -> bool:
        """Whether trying it means training."""
        return self.study is not None and self.study.settings.get("fidelity") != "cost"


def load_card(path: Path) -> Card:
    """Read one card.

    Raises
    ------
    ConfigError
        If the file is missing or is not YAML, or a key or value is not allowed; names it.
    """
    document = read(path)
    if "name" in document:
        raise ConfigError(f"{path}: name: a card is named after its file; remove it")
    document["name"] = path.stem
    scales = document.get("scales")
    scales = scales.values() if isinstance(scales, dict) else ()
    for section in (document.get("study"), *scales):
        if isinstance(section, dict) and isinstance(section.get("config"), str):
            section["config"] = str(path.parent / section["config"])
    try:
        return validated(Card, document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def load_cards(folder: Path, names: tuple[str, ...] = ()) -> tuple[Card, ...]:
    """Read the cards of a folder, or those of some names, in order of name.

    Raises
    ------
    ConfigError
        If there is no such card, or one is not as it should be.
    """
    paths = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    if not paths:
        raise ConfigError(
            f"{folder}: holds no claim card; name a folder of such with --cards, as configs/claims"
        )
    for name in names:
        if name not in paths:
            raise ConfigError(f"{name}: no such claim; known: {', '.join(paths)}, or all")
    return tuple(load_card(paths[name]) for name in names or paths)
