"""Membership events from a trace file."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from types import TracebackType
from typing import Self

from testbed.config.schema import MobilityConfig
from testbed.errors import ConfigError, TraceError
from testbed.mobility.events import MobilityEvent, Provenance, Step
from testbed.mobility.headless import fingerprint
from testbed.mobility.trace import read_trace


class TraceSource:
    """A recorded trace, one `Step` for each distinct time.

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
        trace, recorded = read_trace(config.trace)
        begin = _number(config, recorded, "begin")
        length = _number(config, recorded, "warmup") if config.warmup is None else config.warmup
        self._warmup = begin + length
        # Live traffic stops before its end; what a trace holds at its own end is its last.
        self._events = [
            event for event in trace.events if config.end is None or event.time < config.end
        ]
        self._end = trace.end if config.end is None else min(config.end, trace.end)
        if self._warmup > self._end:
            raise ConfigError(
                f"the warm-up ends at {self._warmup:g} s but {config.trace} at {self._end:g} s; "
                "lower mobility.warmup"
            )
        self._taken = 0
        self._provenance: Provenance = {
            **recorded,
            "source": "trace",
            "trace": config.trace.name,
            "trace_fingerprint": fingerprint([config.trace]),
            "begin": begin,
            "warmup": length,
            "end": self._end,
        }

    @property
    def warmup(self) -> float:
        """Simulated second, on the trace's clock, at which clients are counted."""
        return self._warmup

    @property
    def end(self) -> float:
        """Simulated second that the trace covers."""
        return self._end

    @property
    def provenance(self) -> Provenance:
        """Say what the trace was made from, and which file it is."""
        return self._provenance

    def steps(self) -> Iterator[Step]:
        """Yield what is still to come, one step for each distinct time."""
        rest = self._events[self._taken :]
        for time, group in groupby(rest, key=lambda event: event.time):
            events: tuple[MobilityEvent, ...] = tuple(group)
            self._taken += len(events)
            yield Step(time, events)

    def counts(self) -> Mapping[str, int]:
        """Return how many events were read so far, and how many there are."""
        return {"events": self._taken, "events_in_trace": len(self._events)}

    def close(self) -> None:
        """Do nothing: the file was closed when it had been read."""

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


def _number(config: MobilityConfig, recorded: Provenance, key: str) -> float:
    value = recorded.get(key, 0)
    if not isinstance(value, int | float):
        raise TraceError(
            f"{config.trace}: the header's {key} {value!r} is not a number of seconds"
        )
    return float(value)
