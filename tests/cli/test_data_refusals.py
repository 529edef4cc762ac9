"""Too few pictures for what is asked: one line that names the file and what to do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import everything
from PIL import Image

Call = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def one(place: Path) -> Path:
    """Folders of classes of which `b` has one picture."""
    for name, count in (("a", 4), ("b", 1), ("c", 4)):
        (place / "one" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (12, 12), 20 * number).save(place / "one" / name / f"{number}.png")
    return place


def test_a_class_with_one_picture(call: Call, one: Path) -> None:
    code, out, err = call("data", "check", "one")
    assert (code, out) == (2, [])
    assert err == [
        "error: one: class 'b' has 1 picture, it needs 2: one to learn from and one for the test "
        "part that is drawn; add a picture, take the class out, or give the data a test part of "
        "their own"
    ]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            "data.limit=2",
            "data.limit is 2, too few for one picture of each of the 3 classes of small.npz; "
            "raise it to 3 or more",
        ),
        (
            "data.test_limit=40",
            "data.test_limit is 40 but small.npz has only 6 pictures to draw; lower it, or leave "
            "it out to use them all",
        ),
        (
            "clients.pool=19",
            "36 samples of small.npz cannot give 19 clients data.minimum = 2 each; lower "
            "clients.pool or data.minimum",
        ),
        (
            "data.partition=shards data.shards=7",
            "36 samples of small.npz cannot be cut into 6 x 7 shards; lower clients.pool or "
            "data.shards",
        ),
    ],
)
def test_more_than_there_is(call: Call, place: Path, setting: str, told: str) -> None:
    pictures = np.zeros((42, 8, 8), np.uint8)
    labels = np.arange(42) % 3
    np.savez(
        place / "small.npz",
        x_train=pictures[:36],
        y_train=labels[:36],
        x_test=pictures[36:],
        y_test=labels[36:],
    )
    before = everything(place)
    where = ("--set", "data.name=npz", "--set", "data.path=small.npz")
    settings = [part for each in setting.split() for part in ("--set", each)]
    code, _, err = call("run", "tiny.yaml", *where, *settings)
    assert (code, err) == (2, [f"error: {told}"])
    assert everything(place) == before
