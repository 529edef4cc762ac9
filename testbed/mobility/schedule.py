"""Joins and leaves at even intervals, for studies in which traffic plays no part."""

from collections.abc import Iterator

from testbed.config.schema import MobilityConfig, ScheduleConfig
from testbed.mobility.events import MobilityEvent, Trace
from testbed.mobility.replay import MadeSource
from testbed.streams import Streams


class ScheduledSource(MadeSource):
    """A population that changes by one vehicle every `mobility.schedule.interval` seconds.

    Parameters
    ----------
    config : MobilityConfig
        ``schedule`` and, beside it, ``warmup`` (default 0) and ``end`` (default: one
        interval after the last change).
    seed : int

    Raises
    ------
    ConfigError
        If the warm-up leaves nothing.
    """

    def __init__(self, config: MobilityConfig, seed: int) -> None:
        schedule = config.schedule
        super().__init__(
            config,
            lambda: events(schedule, Streams(seed)),
            _covered(schedule),
            {
                "source": "schedule",
                "seed": seed,
                "schedule_vehicles": schedule.vehicles,
                "schedule_changes": schedule.changes,
                "schedule_kind": schedule.kind,
                "schedule_interval": schedule.interval,
            },
        )


def plan(schedule: ScheduleConfig, streams: Streams) -> Trace:
    """Return who joins and who leaves, see `events`."""
    return Trace(tuple(events(schedule, streams)), _covered(schedule))


def events(schedule: ScheduleConfig, streams: Streams) -> Iterator[MobilityEvent]:
    """Draw who joins and who leaves, one after the other.

    A vehicle that leaves is drawn uniformly from those present; a mixed schedule tosses a
    fair coin at each change, and lets somebody join while only one vehicle is left.

    Parameters
    ----------
    schedule : ScheduleConfig
    streams : Streams
        Of the run.
    """
    rng = streams.rng("schedule")
    present = [f"first{number}" for number in range(schedule.vehicles)]
    for vehicle in sorted(present):
        yield MobilityEvent(0.0, vehicle, "join")
    for number in range(schedule.changes):
        time = (number + 1) * schedule.interval
        joins = schedule.kind == "joins" or (
            schedule.kind == "mixed" and (len(present) == 1 or rng.integers(2) == 1)
        )
        if joins:
            present.append(f"v{number}")
            yield MobilityEvent(time, present[-1], "join")
        else:
            chosen = int(rng.integers(len(present)))
            present[chosen], present[-1] = present[-1], present[chosen]
            yield MobilityEvent(time, present.pop(), "leave")


def _covered(schedule: ScheduleConfig) -> float:
    """Return the simulated seconds up to one interval after the last change."""
    return (schedule.changes + 1) * schedule.interval
