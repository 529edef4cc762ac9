"""Cards written on the spot."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from testbed.config.cards import Card, load_card

STUDY = """
mobility: {source: schedule, schedule: {vehicles: 6, changes: 8, kind: mixed, interval: 60}}
clients: {initial: 6, pool: 10}
data: {limit: 400, test_limit: 100}
learning: {model: mlp, width: 8, epochs: 1}
fisher: {kind: diagonal}
fusion: {preset: paper}
editing: {requests: 8}
execution: {kind: serial}
scales: {smoke: {}, small: {}}
"""
CARD: dict[str, Any] = {
    "says": "Edits are cheap.",
    "source": "section I",
    "study": {
        "config": "study.yaml",
        "settings": {"fidelity": "cost"},
        "grid": {"rho": [0.5]},
        "methods": ["fsosa", "retrain"],
    },
    "data": {"digits": {}},
    "scales": {"smoke": {"seeds": [0, 1]}},
    "tariff": "paper",
    "figures": [
        {
            "name": "time saved",
            "measure": "saved",
            "options": {"of": "time"},
            "unit": "%",
            "between": [0, 100],
        }
    ],
}


def document(**changes: Any) -> dict[str, Any]:
    """Return the card above with some keys changed; None takes one away."""
    made = {**deepcopy(CARD), **changes}
    return {key: value for key, value in made.items() if value is not None}


def figure(**changes: Any) -> dict[str, Any]:
    """Return the figure above with some keys changed; None takes one away."""
    made = {**deepcopy(CARD["figures"][0]), **changes}
    return {key: value for key, value in made.items() if value is not None}


def write(folder: Path, name: str = "cheap", **changes: Any) -> Path:
    """Write a card and its study; return the card's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(STUDY)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document(**changes), allow_unicode=True))
    return path


def card(folder: Path, **changes: Any) -> Card:
    """Write a card and read it."""
    return load_card(write(folder, **changes))
