"""A tape says what the traffic said: to the first who listens, to the next, from a file."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from minute import MINUTE

from testbed.config.schema import MobilityConfig
from testbed.errors import ScenarioError
from testbed.experiments.traffic import EndOfTapeError, Tape, load
from testbed.mobility import MobilitySource, Step, open_source

MOBILITY = MobilityConfig(scenario="city_grid", membership="rsu", warmup=5, end=40)
Told = list[tuple[Step, dict[str, object], Mapping[str, int]]]


def told(source: MobilitySource, most: int = 1000) -> Told:
    """Listen to so many steps: each, where everybody is, and what was counted until then."""
    steps: Iterator[Step] = source.steps()
    heard: Told = []
    while len(heard) < most and (step := next(steps, None)) is not None:
        heard.append((step, dict(step.distances), dict(source.counts())))
    return heard


@pytest.fixture(scope="module")
def live() -> Told:
    with open_source(MOBILITY, 3) as source:
        return told(source)


def test_there_is_something_to_tell(live: Told) -> None:
    assert [step.time for step, _, _ in live] == [float(second) for second in range(40)]
    assert sum(len(step.events) for step, _, _ in live) > 3
    assert any(places for _, places, _ in live)
    assert any(not step.events for step, _, _ in live)
    assert live[-1][2]["departed"] > live[0][2]["departed"]


def test_every_listener_hears_the_traffic_from_the_beginning(live: Told) -> None:
    with open_source(MOBILITY, 3) as source:
        tape = Tape(source)
        assert told(tape.play(), 10) == live[:10]
        # The second goes beyond the first, and a third hears what both have.
        assert told(tape.play(), 25) == live[:25]
        assert told(tape.play(), 5) == live[:5]
        assert told(tape.play()) == live
        assert told(tape.play()) == live


def test_a_listener_knows_what_the_source_knows() -> None:
    with open_source(MOBILITY, 3) as source:
        player = Tape(source).play()
        facts = (source.warmup, source.end, source.provenance, source.counts())
        assert (player.warmup, player.end, player.provenance, player.counts()) == facts
    assert facts[0] == 5.0
    assert facts[2]["source"] == "sumo"
    with player as same:
        assert same is player
    player.close()


def test_a_tape_on_disk_says_the_same_to_another_process(live: Told, tmp_path: Path) -> None:
    with open_source(MOBILITY, 3) as source:
        tape = Tape(source)
        told(tape.play())
        tape.save(tmp_path / "deep" / "0.tape")
    assert told(load(tmp_path / "deep" / "0.tape").play()) == live
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["0.tape"]


def test_a_tape_that_was_cut_short_says_so(live: Told, tmp_path: Path) -> None:
    with open_source(MOBILITY, 3) as source:
        tape = Tape(source)
        told(tape.play(), 7)
        tape.save(tmp_path / "0.tape")
    player = load(tmp_path / "0.tape").play()
    steps = player.steps()
    assert [next(steps).time for _ in range(7)] == [step.time for step, _, _ in live[:7]]
    with pytest.raises(EndOfTapeError):
        next(steps)


def test_a_source_of_rows_can_be_taped_too(tmp_path: Path) -> None:
    (tmp_path / "minute.csv").write_text(MINUTE)
    config = MobilityConfig(source="trace", trace=tmp_path / "minute.csv")
    with open_source(config, 0) as source:
        heard = told(source)
    with open_source(config, 0) as source:
        assert told(Tape(source).play()) == heard != []


class Faulty:
    """Three steps, then what SUMO says when it dies; vehicles go missing at the second."""

    warmup, end, provenance = 0.0, 9.0, dict[str, str]()

    def __init__(self) -> None:
        self._told = 0

    def steps(self) -> Iterator[Step]:
        for number in range(3):
            self._told += 1
            yield Step(float(number), ())
        raise ScenarioError("SUMO died")

    def counts(self) -> Mapping[str, int]:
        if self._told == 2:
            raise ScenarioError("one vehicle is missing")
        return {"departed": self._told}


def test_the_traffic_fails_for_every_listener_at_the_same_step(tmp_path: Path) -> None:
    tape = Tape(Faulty())  # type: ignore[arg-type]
    for _ in range(2):
        steps = tape.play().steps()
        assert [next(steps).time for _ in range(3)] == [0.0, 1.0, 2.0]
        with pytest.raises(ScenarioError, match="SUMO died"):
            next(steps)
    tape.save(tmp_path / "0.tape")
    steps = load(tmp_path / "0.tape").play().steps()
    assert len([next(steps) for _ in range(3)]) == 3
    with pytest.raises(ScenarioError, match="SUMO died"):
        next(steps)


def test_counts_fail_only_where_the_source_failed_to_count() -> None:
    player = Tape(Faulty()).play()  # type: ignore[arg-type]
    steps = player.steps()
    assert player.counts() == {"departed": 0}
    next(steps)
    assert player.counts() == {"departed": 1}
    next(steps)
    with pytest.raises(ScenarioError, match="one vehicle is missing"):
        player.counts()
    next(steps)
    assert player.counts() == {"departed": 3}
