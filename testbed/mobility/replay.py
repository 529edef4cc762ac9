"""Membership events from a trace, read from a file or made in memory."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby, takewhile
from operator import attrgetter
from types import TracebackType
from typing import Self

import numpy as np

from testbed.config.schema import MobilityConfig
from testbed.errors import ConfigError, TraceError
from testbed.mobility.columns import AT, Columns, group_starts
from testbed.mobility.events import MobilityEvent, Provenance, Step, Trace
from testbed.mobility.headless import fingerprint
from testbed.mobility.trace import read_columns


class Ready:
    """What sources have in common that need no program: their facts, and nothing to close.

    Parameters
    ----------
    warmup : float
        Simulated second at which clients are counted.
    end : float
        Simulated second that is covered.
    provenance : mapping
    """

    def __init__(self, warmup: float, end: float, provenance: Provenance) -> None:
        self._warmup, self._end = warmup, end
        self._provenance: Provenance = {**provenance, "end": end}

    @property
    def warmup(self) -> float:
        """Simulated second, on the clock of the steps, at which clients are counted."""
        return self._warmup

    @property
    def end(self) -> float:
        """Simulated second that is covered."""
        return self._end

    @property
    def provenance(self) -> Provenance:
        """Say what the events were made from."""
        return self._provenance

    def close(self) -> None:
        """Do nothing: a file was closed when it had been read."""

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing."""


class Playback(Ready):
    """A trace, one `Step` for each distinct time of an event or a place.

    Parameters
    ----------
    columns : Columns
        The rows of the trace.
    covered : float
        Simulated seconds that they cover; the last step may be at this time itself.
    warmup : float
        Simulated second at which clients are counted.
    end : float or None
        Simulated second before which the steps stop, as live traffic does; None: all of them.
    provenance : mapping
        What the trace was made from, and which file it is.
    """

    def __init__(
        self,
        columns: Columns,
        covered: float,
        warmup: float,
        end: float | None,
        provenance: Provenance,
    ) -> None:
        super().__init__(warmup, covered if end is None else min(end, covered), provenance)
        self._columns = columns if end is None else columns.before(end)
        self._starts = [*group_starts(self._columns.time).tolist(), len(self._columns.time)]
        self._taken = self._events = 0

    def steps(self) -> Iterator[Step]:
        """Yield what is still to come, one step for each distinct time."""
        columns = self._columns
        while self._taken < len(self._starts) - 1:
            rows = slice(*self._starts[self._taken : self._taken + 2])
            self._taken += 1
            events = columns.events(rows)
            self._events += len(events)
            yield Step(float(columns.time[rows.start]), events, columns.places(rows))

    def counts(self) -> Mapping[str, int]:
        """Return how many events were read so far, and how many there are."""
        total = int(np.count_nonzero(self._columns.kind != AT))
        return {"events": self._events, "events_in_trace": total}


class MadeSource(Ready):
    """Events that are made up instead of observed, from simulated second 0 on.

    They are made as they are asked for, and no vehicle's name is used twice.

    Parameters
    ----------
    config : MobilityConfig
        ``warmup`` (default 0) and ``end`` (default: `covered`).
    events : callable
        Returns the events from the first on, the same ones at each call.
    covered : float
        Simulated seconds that they cover.
    provenance : mapping
        ``source``, the seed and whatever else they are made from.

    Raises
    ------
    ConfigError
        If the warm-up leaves nothing.
    """

    def __init__(
        self,
        config: MobilityConfig,
        events: Callable[[], Iterator[MobilityEvent]],
        covered: float,
        provenance: Provenance,
    ) -> None:
        end = covered if config.end is None else config.end
        warmup = config.warmup or 0.0
        if warmup >= end:
            raise ConfigError(
                f"the warm-up of {warmup:g} s leaves nothing of the {end:g} s of source "
                f"{config.source!r}; lower mobility.warmup or raise mobility.end"
            )
        fixed: Provenance = {"membership": config.membership, "begin": 0.0, "warmup": warmup}
        super().__init__(warmup, min(end, covered), {**provenance, **fixed})
        self._made = events
        self._rest = groupby(self._events(), attrgetter("time"))
        self._taken = 0

    @property
    def trace(self) -> Trace:
        """All of it."""
        return Trace(tuple(self._events()), self.end)

    def steps(self) -> Iterator[Step]:
        """Yield what is still to come, one step for each distinct time."""
        for time, group in self._rest:
            events = tuple(group)
            self._taken += len(events)
            yield Step(time, events)

    def counts(self) -> Mapping[str, int]:
        """Return how many events were taken so far, and how many there are."""
        return {"events": self._taken, "events_in_trace": sum(1 for _ in self._events())}

    def _events(self) -> Iterator[MobilityEvent]:
        return takewhile(lambda event: event.time < self.end, self._made())


class TraceSource(Playback):
    """A recorded trace.

    Parameters
    ----------
    config : MobilityConfig
        ``trace`` names the file; ``warmup`` and ``end`` override what it was recorded with.

    Raises
    ------
    ConfigError, TraceError
        If the file is malformed, or ends before the warm-up does.
    """

    def __init__(self, config: MobilityConfig) -> None:
        if config.trace is None:
            raise ConfigError("mobility.trace is not set; name the trace file to replay")
        columns, recorded, covered = read_columns(config.trace)
        begin = _number(config, recorded, "begin")
        length = _number(config, recorded, "warmup") if config.warmup is None else config.warmup
        super().__init__(
            columns,
            covered,
            begin + length,
            config.end,
            {
                **recorded,
                "source": "trace",
                "trace": config.trace.name,
                "trace_fingerprint": fingerprint([config.trace]),
                "begin": begin,
                "warmup": length,
            },
        )
        if self.warmup > self.end:
            raise ConfigError(
                f"the warm-up ends at {self.warmup:g} s but {config.trace} at {self.end:g} s; "
                "lower mobility.warmup"
            )


def _number(config: MobilityConfig, recorded: Provenance, key: str) -> float:
    value = recorded.get(key, 0)
    if not isinstance(value, int | float):
        raise TraceError(
            f"{config.trace}: the header's {key} {value!r} is not a number of seconds"
        )
    return float(value)
