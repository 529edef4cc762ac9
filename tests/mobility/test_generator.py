"""Generated traffic: Little's law, steady from the first second, and the same for one seed."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from testbed.config import load
from testbed.config.schema import ArrivalsConfig, MobilityConfig
from testbed.errors import ConfigError
from testbed.mobility import open_source, read_trace, write_trace
from testbed.mobility.events import check_order
from testbed.mobility.generator import GeneratedSource, expected_population, generate
from testbed.mobility.statistics import population, stays
from testbed.streams import Streams

BOTH = pytest.mark.parametrize("stay", ["exponential", "log-normal"])


@BOTH
def test_the_population_is_poisson_at_every_time(stay: str) -> None:
    arrivals = ArrivalsConfig(per_minute=12, mean_stay=100, stay=stay, sigma=1.0)
    assert expected_population(arrivals) == pytest.approx(20)
    seeds = 400
    counts = np.array(
        [
            [population(generate(arrivals, 400.0, Streams(seed)).events).at(t) for t in TIMES]
            for seed in range(seeds)
        ]
    )
    for column in counts.T:
        # Four standard errors of mean and variance of a Poisson variable, mean 20.
        assert abs(column.mean() - 20) < 4 * math.sqrt(20 / seeds)
        assert abs(column.var(ddof=1) - 20) < 4 * math.sqrt((20 + 2 * 20**2) / seeds)


TIMES = (1e-9, 60.0, 399.0)


def test_littles_law_over_time() -> None:
    arrivals = ArrivalsConfig(per_minute=60, mean_stay=50)
    _, members, lengths = population(generate(arrivals, 20_000.0, Streams(4)).events).between(
        0, 20_000
    )
    # The variance of the mean over T seconds is lambda E[stay^2] / T, with E[stay^2] = 2 mean^2.
    deviation = math.sqrt(2 * 1.0 * 50**2 / 20_000)
    assert abs(members @ lengths / 20_000 - 50) < 4 * deviation


def test_gaps_are_exponential_and_stays_have_their_distribution() -> None:
    for stay, law in (
        ("exponential", stats.expon(scale=80)),
        ("log-normal", stats.lognorm(s=0.6, scale=80 * math.exp(-0.18))),
    ):
        arrivals = ArrivalsConfig(per_minute=60, mean_stay=80, stay=stay, sigma=0.6)
        # Only those that come in the first part, whose stays are over at the end.
        events = [
            event
            for event in generate(arrivals, 6000.0, Streams(1)).events
            if event.vehicle.startswith("v") and int(event.vehicle[1:]) < 3000
        ]
        assert len(stays(events)) == 3000
        assert stats.kstest(stays(events), law.cdf).pvalue > 0.001
        gaps = np.diff([event.time for event in events if event.kind == "join"])
        assert stats.kstest(gaps, stats.expon(scale=1).cdf).pvalue > 0.001


def test_a_stay_without_spread_is_the_mean() -> None:
    arrivals = ArrivalsConfig(per_minute=60, mean_stay=30, stay="log-normal", sigma=0)
    events = generate(arrivals, 300.0, Streams(2)).events
    lasted = stays(event for event in events if event.vehicle.startswith("v"))
    assert lasted == pytest.approx(30, abs=2e-6)
    rests = stays(event for event in events if event.vehicle.startswith("first"))
    assert 0 < rests.min() < 6
    assert 24 < rests.max() <= 30


@BOTH
def test_a_later_end_adds_events_and_changes_none(stay: str) -> None:
    arrivals = ArrivalsConfig(stay=stay)
    short, long = (generate(arrivals, end, Streams(7)).events for end in (300.0, 5000.0))
    assert [event for event in long if event.time < 300] == list(short)
    assert generate(arrivals, 300.0, Streams(8)).events != short
    check_order(long)


def test_the_source_is_a_source_and_its_trace_replays_the_same(tmp_path: Path) -> None:
    experiment = load(
        None,
        [
            "mobility.source=generated",
            "mobility.end=500",
            "mobility.warmup=100",
            "mobility.arrivals.per_minute=20",
        ],
    )
    with open_source(experiment.mobility, 3) as source:
        assert isinstance(source, GeneratedSource)
        assert (source.warmup, source.end) == (100, 500)
        assert source.provenance["arrivals_per_minute"] == 20
        assert source.provenance["seed"] == 3
        steps = list(source.steps())
        write_trace(tmp_path / "t.csv", source.trace, source.provenance)
    times = [step.time for step in steps]
    assert times == sorted(set(times))
    assert times[0] == 0
    assert times[-1] < 500
    replay = MobilityConfig(source="trace", trace=tmp_path / "t.csv")
    with open_source(replay, 0) as again:
        assert list(again.steps()) == steps
        assert (again.warmup, again.end) == (100, 500)
    assert read_trace(tmp_path / "t.csv")[1]["arrivals_sigma"] is None


def test_what_cannot_be_generated_is_refused() -> None:
    generated = "mobility.source=generated"
    with pytest.raises(
        ConfigError, match="'rsu' needs positions, which source 'generated' has not"
    ):
        load(None, [generated, "mobility.membership=rsu"])
    with pytest.raises(ConfigError, match=r"arrivals.per_minute: 0 must be greater than 0"):
        load(None, [generated, "mobility.arrivals.per_minute=0"])
    with pytest.raises(ConfigError, match=r"the warm-up of 60 s leaves nothing of the 60 s"):
        open_source(MobilityConfig(source="generated", warmup=60, end=60), 0)
    with pytest.raises(ConfigError, match=r"asks for 6.17e\+07 vehicles in 3600 s, the most are"):
        open_source(MobilityConfig(source="generated", arrivals=ArrivalsConfig(per_minute=1e6)), 0)
