"""How many samples keep their client when there is one more, as docs/partitions.md has it."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from bdd100k_tools.partition import Entry
from bdd100k_tools.partition import partition as by_value
from testbed.config.schema import DataConfig
from testbed.data import partition
from testbed.streams import Streams

PAGE = Path(__file__).parents[2].joinpath("docs", "partitions.md").read_text(encoding="utf-8")
SAMPLES = 60_000
HOURS = {"dawn/dusk": 4_200, "daytime": 31_800, "night": 24_000}


def kept(before: Iterable[Iterable[int]], after: Iterable[Iterable[int]]) -> float:
    """Return the share of samples that have the same client in both."""
    first, second = (owners(parts) for parts in (before, after))
    return float((first == second).mean())


def owners(parts: Iterable[Iterable[int]]) -> np.ndarray:
    owner = np.full(SAMPLES, -1)
    for client, part in enumerate(parts):
        owner[np.asarray(part)] = client
    assert owner.min() == 0
    return owner


def divided(form: str, clients: int) -> list[np.ndarray]:
    labels, writers = np.arange(SAMPLES) % 10, np.arange(SAMPLES) // 20
    return list(partition(labels, clients, DataConfig(partition=form), Streams(0), writers))


def by_hour(clients: int) -> list[np.ndarray]:
    hours = np.repeat(list(HOURS), list(HOURS.values()))
    pictures = [
        Entry(f"{number:05d}", {"timeofday": str(hour)}, (0,) * 10)
        for number, hour in enumerate(hours)
    ]
    parts = by_value(pictures, clients, "timeofday", seed=0)
    return [np.array(sorted(map(int, part))) for part in parts]


def on_page(form: str) -> str:
    """Return the last cell of a form's row."""
    table = PAGE.partition("## Forms")[2].partition("Stable means")[0]
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{form}` |")]
    return row.split("|")[-2].strip()


@pytest.mark.parametrize("form", ["dirichlet", "dirichlet-classes", "iid", "writers", "shards"])
def test_the_share_that_stays_is_the_one_on_the_page(form: str) -> None:
    assert f"{kept(divided(form, 20), divided(form, 21)):.2f}" == on_page(form)


def test_a_further_client_of_one_value_of_an_attribute() -> None:
    """Its pictures are dealt anew; later values' clients keep theirs and get other numbers."""
    twenty, more, most = (by_hour(clients) for clients in (20, 21, 22))
    assert f"{kept(twenty, more):.2f}, {kept(more, most):.2f}" == on_page("attribute")
    first, second, third = ({frozenset(part.tolist()) for part in parts} for parts in (
        twenty, more, most,
    ))  # fmt: skip
    # From 20 to 21 all clients that drive by day get other pictures, then those by night.
    assert {hour(part) for part in first - second} == {"daytime"}
    assert {hour(part) for part in second - third} == {"night"}
    assert first - second == {part for part in first if hour(part) == "daytime"}
    # Whoever is after them is numbered one higher.
    moved = [number for number, part in enumerate(twenty) if hour(part) == "night"]
    assert all(np.array_equal(twenty[number], more[number + 1]) for number in moved)


def hour(part: Iterable[int]) -> str:
    """Return when a client drives."""
    (only,) = {
        "dawn/dusk" if number < 4_200 else "daytime" if number < 36_000 else "night"
        for number in part
    }
    return only
