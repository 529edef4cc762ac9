"""Traffic of any length: made as it is asked for, and written as it comes."""

import tracemalloc
from itertools import islice
from pathlib import Path

import pytest

from testbed.config.schema import MobilityConfig
from testbed.errors import ResultsError
from testbed.mobility import (
    MadeSource,
    MobilityEvent,
    Recorder,
    Recording,
    Step,
    open_source,
    read_trace,
    write_trace,
)
from testbed.mobility.spool import Spool

SCHEDULE = {"source": "schedule", "schedule": {"vehicles": 4, "changes": 30, "kind": "mixed"}}
GENERATED = {"source": "generated", "end": 300, "arrivals": {"per_minute": 20, "mean_stay": 40}}
MADE = pytest.mark.parametrize("made", [SCHEDULE, GENERATED], ids=["schedule", "generated"])


@MADE
def test_a_spool_leaves_the_file_that_is_written_at_once(tmp_path: Path, made: object) -> None:
    recorder = Recorder()
    with open_source(MobilityConfig.model_validate(made), 3) as source:
        with Spool(tmp_path / "spool.csv") as spool:
            for step in source.steps():
                recorder.add(step)
                spool.add(step)
            assert not (tmp_path / "spool.csv").exists()
            spool.finish({**source.provenance, "end": 7000.5})
        facts = dict(source.provenance)
    write_trace(tmp_path / "once.csv", Recording(recorder.columns(), 7000.5), facts)
    assert (tmp_path / "spool.csv").read_bytes() == (tmp_path / "once.csv").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["once.csv", "spool.csv"]
    assert len(read_trace(tmp_path / "spool.csv")[0].events) > 30


def test_names_with_commas_stand_in_quotes(tmp_path: Path) -> None:
    event = MobilityEvent(1.0, 'a,"b', "join")
    with Spool(tmp_path / "t.csv") as spool:
        spool.add(Step(1.0, (event,)))
        spool.finish({"end": 2.0})
    assert read_trace(tmp_path / "t.csv")[0].events == (event,)


def test_a_failure_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Spool(tmp_path / "t.csv"):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ResultsError, match="cannot write"):
        Spool(tmp_path / "absent" / "t.csv")


@MADE
def test_steps_go_on_where_they_stopped_and_are_counted(made: object) -> None:
    config = MobilityConfig.model_validate(made)
    with open_source(config, 5) as source:
        assert isinstance(source, MadeSource)
        head = list(islice(source.steps(), 10))
        total = len(source.trace.events)
        taken = sum(len(step.events) for step in head)
        assert source.counts() == {"events": taken, "events_in_trace": total}
        rest = list(source.steps())
        assert source.counts() == {"events": total, "events_in_trace": total}
        assert list(source.steps()) == []
    with open_source(config, 5) as again:
        assert list(again.steps()) == head + rest
    assert [event for step in head + rest for event in step.events] == list(source.trace.events)


def test_generated_traffic_is_never_in_memory_at_once() -> None:
    """Two hours of arrivals, a hundred megabytes of events, pass through a few."""
    busy = {"per_minute": 3000, "mean_stay": 60}
    config = MobilityConfig(source="generated", end=7200.0, arrivals=busy)
    tracemalloc.start()
    try:
        with open_source(config, 0) as source:
            seen = sum(len(step.events) for step in islice(source.steps(), 100_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen > 100_000
    assert peak < 5e6
