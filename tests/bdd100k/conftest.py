"""Small label files and pictures, made on the spot; the real ones where they are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from shared_data import bundle

BOX = {"x1": 10, "y1": 20.5, "x2": 30, "y2": 40}


@pytest.fixture(scope="session")
def golden() -> Path:
    return Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def real() -> Path:
    """The folder of 1,361 real pictures with labels."""
    return bundle("bdd100k_640")


@pytest.fixture(scope="session")
def originals() -> Path:
    """The folder of 60 real pictures in their original size."""
    return bundle("bdd100k_sample")


@pytest.fixture(scope="session")
def all_labels() -> Path:
    """The labels of the 10,000 official validation pictures."""
    return bundle("bdd100k_val_labels_10k.npz")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a JSON document and return its path."""

    def write(document: Any, name: str = "labels.json") -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return write


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Make a folder of plain pictures and return its path."""

    def folder(*names: str, size: tuple[int, int] = (64, 36), where: str = "pictures") -> Path:
        place = tmp_path / where
        place.mkdir(exist_ok=True)
        for name in names:
            Image.new("RGB", size, "#406080").save(place / name)
        return place

    return folder


@pytest.fixture
def label() -> Callable[..., dict[str, Any]]:
    """Return a label as the files have it."""

    def label(category: str, **more: Any) -> dict[str, Any]:
        return {"id": 0, "category": category, "box2d": BOX} | more

    return label


@pytest.fixture
def frame() -> Callable[..., dict[str, Any]]:
    """Return a picture as the files have it."""

    def frame(name: str = "a.jpg", *labels: Any, **more: Any) -> dict[str, Any]:
        return {"name": name, "labels": list(labels)} | more

    return frame
