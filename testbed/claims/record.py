"""What was found of claims, kept beside their runs: one file per claim and scale."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from testbed.claims.trial import Trial, explained, not_run
from testbed.claims.verdict import MISSED, NOT_RUN, Row
from testbed.config.cards import Card, Scale
from testbed.config.documents import read
from testbed.errors import ResultsError
from testbed.files import to_json, write_text

RECORD = "verdicts.json"
SCALES: tuple[Scale, ...] = get_args(Scale)
_COLUMNS = [field.name for field in fields(Row)]
_CHANGED = "the card or the table has changed since; run the command again"


@dataclass(frozen=True)
class Known:
    """What is known of a claim at one scale.

    Attributes
    ----------
    rows : tuple of Row
    wall_s : float
        Measured seconds of all attempts together.
    """

    rows: tuple[Row, ...]
    wall_s: float


def keep(card: Card, scale: Scale, folder: Path, trial: Trial) -> Known:
    """Write what came of a trial, adding its seconds to those of earlier ones.

    What was measured on data that are not at hand this time stays, if the card is the same.

    Raises
    ------
    ResultsError
        If the folder cannot be written, or what is in it is damaged.
    """
    before = _read(folder / RECORD, card, scale)
    rows: list[Row] = []
    for row in trial.rows:
        earlier = [
            each
            for each in (before.rows if before else ())
            if row.verdict == NOT_RUN
            and each.verdict != NOT_RUN
            and each.figure == row.figure
            and f"{each.setting},".startswith(f"{row.setting},")
        ]
        rows += earlier or [row]
    known = Known(tuple(rows), trial.wall_s + (before.wall_s if before else 0.0))
    content = {
        "card": _hash(card, scale),
        "wall_s": round(known.wall_s, 1),
        "columns": _COLUMNS,
        "rows": [asdict(row) for row in known.rows],
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / RECORD, to_json(content))
    return known


def recall(cards: Sequence[Card], out: Path) -> dict[tuple[str, Scale], Known]:
    """Return what is known of claims that were tried, by claim and scale.

    A scale at which a claim was not run is left out where it was run at another one.

    Parameters
    ----------
    cards : sequence of Card
    out : Path
        Holds a folder for each scale, and in it one for each claim.

    Raises
    ------
    ResultsError
        If a record is damaged.
    """
    found: dict[tuple[str, Scale], Known] = {}
    for card in cards:
        own: dict[Scale, Known] = {}
        for scale in SCALES:
            record = _read(out / scale / card.name / RECORD, card, scale)
            if record is not None:
                rows = tuple(_explained(card, scale, row) for row in record.rows)
                own[scale] = Known(rows, record.wall_s)
        run = {
            scale: each
            for scale, each in own.items()
            if any(row.verdict != NOT_RUN for row in each.rows)
        }
        found |= {(card.name, scale): each for scale, each in (run or own).items()}
    return found


def _explained(card: Card, scale: Scale, row: Row) -> Row:
    """Give a row the explanation that its card has by now."""
    for figure in card.figures:
        if row.verdict == MISSED and figure.name == row.figure:
            return replace(row, why=explained(figure, scale))
    return row


def _read(path: Path, card: Card, scale: Scale) -> Known | None:
    """Read a record; one that belongs to another card has verdicts of nothing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        spent = float(found["wall_s"])
        if found["card"] != _hash(card, scale) or found["columns"] != _COLUMNS:
            return Known(tuple(not_run(card, scale, _CHANGED)), spent)
        return Known(tuple(map(_row, found["rows"])), spent)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise ResultsError(
            f"{path}: not a record of verdicts ({' '.join(str(error).split())[:80]}); remove it "
            "and run the command again"
        ) from error


def _row(content: Mapping[str, Any]) -> Row:
    row = Row(**content)
    for value in (row.value, row.low, row.high, row.gap):
        if not isinstance(value, int | float | None):
            raise TypeError(f"{value!r} is no number")
    return row


def _hash(card: Card, scale: Scale) -> str:
    """Return a sum of all that decides a claim's verdict at a scale, explanations left out."""
    figures = {"__all__": {"why"}}
    document = card.model_dump(mode="json", exclude={"figures": figures, "says": True})
    # Other scales decide nothing, and neither does where the configurations lie.
    own = document.pop("scales").get(scale)
    study = document["study"]
    for section in (study, own):
        if section and section["config"]:
            section["config"] = Path(section["config"]).name
    # What the configuration holds decides, paths that it names and who extends whom do not.
    config = (own and card.scales[scale].config) or (card.study and card.study.config)
    content = json.dumps([document, own, config and read(config)], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:8]
