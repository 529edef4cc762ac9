"""What was found of claims, kept beside their runs: one file per claim and scale."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from testbed.claims.trial import Trial, explained, not_run
from testbed.claims.verdict import MISSED, NOT_RUN, Row
from testbed.config.cards import Card, Scale
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

    Raises
    ------
    ResultsError
        If the folder cannot be written, or what is in it is damaged.
    """
    before = _read(folder / RECORD)
    spent = before["wall_s"] if before else 0.0
    known = Known(trial.rows, spent + trial.wall_s)
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
            record = _read(out / scale / card.name / RECORD)
            if record is None:
                continue
            if record["card"] == _hash(card, scale) and record.get("columns") == _COLUMNS:
                rows = tuple(_explained(card, scale, Row(**row)) for row in record["rows"])
            else:
                rows = tuple(not_run(card, scale, _CHANGED))
            own[scale] = Known(rows, record["wall_s"])
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


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert {"card", "wall_s", "rows"} <= found.keys()
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AssertionError, AttributeError) as error:
        raise ResultsError(
            f"{path}: not a record of verdicts ({error}); remove it and run the command again"
        ) from error
    return dict(found)


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
    content = json.dumps([document, own], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:8]
