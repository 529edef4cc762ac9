"""Joins and leaves at even intervals, for studies in which traffic plays no part."""

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
            plan(schedule, Streams(seed)),
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
    """Draw who joins and who leaves.

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
    events = [MobilityEvent(0.0, vehicle, "join") for vehicle in sorted(present)]
    for number in range(schedule.changes):
        time = (number + 1) * schedule.interval
        joins = schedule.kind == "joins" or (
            schedule.kind == "mixed" and (len(present) == 1 or rng.integers(2) == 1)
        )
        if joins:
            present.append(f"v{number}")
            events.append(MobilityEvent(time, present[-1], "join"))
        else:
            chosen = int(rng.integers(len(present)))
            present[chosen], present[-1] = present[-1], present[chosen]
            events.append(MobilityEvent(time, present.pop(), "leave"))
    return Trace(tuple(events), (schedule.changes + 1) * schedule.interval)
