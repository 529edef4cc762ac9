"""A trace as columns: what trace files hold, quick to check and to replay.

An hour of 200 members has 700 000 rows, so rows are checked all at once; the number of the
first bad one is found all the same.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from testbed.errors import TraceError
from testbed.mobility.events import (
    Codes,
    Kind,
    MobilityEvent,
    Numbers,
    Places,
    Sighting,
    Step,
    Trace,
)

Mask = npt.NDArray[np.bool_]

KINDS = ("join", "leave", "at")
JOIN, LEAVE, AT = range(3)
_CHANGE = np.array([1, -1, 0])
_TOLERANCE = 1e-6  # seconds
_TIME, _VEHICLE, _RSU, _METRES = map(itemgetter, range(len(Sighting._fields)))


@dataclass(frozen=True)
class Columns:
    """The rows of a trace, column by column; arrays have shape (rows,).

    Attributes
    ----------
    time : array of float
        Simulated seconds.
    vehicle, kind, rsu : array of int
        Positions in `vehicles`, in `KINDS` and in `rsus`.
    metres : array of float
        Distance to the roadside unit; NaN for joins and leaves.
    vehicles, rsus : tuple of str
    """

    time: Numbers
    vehicle: Codes
    kind: Codes
    rsu: Codes
    metres: Numbers
    vehicles: tuple[str, ...]
    rsus: tuple[str, ...]

    @property
    def located(self) -> bool:
        """Whether the rows say more than time, vehicle and kind."""
        return any(self.rsus) or bool(np.isfinite(self.metres).any())

    def events(self, rows: slice = slice(None)) -> tuple[MobilityEvent, ...]:
        """Return the joins and leaves among `rows`."""
        changes = self.kind[rows] != AT
        kinds: tuple[Kind, ...] = ("join", "leave")
        return tuple(
            MobilityEvent(time, self.vehicles[vehicle], kinds[kind], self.rsus[rsu])
            for time, vehicle, kind, rsu in zip(
                *(column[rows][changes].tolist() for column in self._described()), strict=True
            )
        )

    def sightings(self, rows: slice = slice(None)) -> tuple[Sighting, ...]:
        """Return the sightings among `rows`, each time sorted by vehicle."""
        seen = self.kind[rows] == AT
        found = (
            Sighting(time, self.vehicles[vehicle], self.rsus[rsu], metres)
            for time, vehicle, _, rsu, metres in zip(
                *(column[rows][seen].tolist() for column in (*self._described(), self.metres)),
                strict=True,
            )
        )
        return tuple(sorted(found, key=lambda sighting: sighting[:2]))

    def places(self, rows: slice) -> Places:
        """Return where each vehicle is that is seen among `rows`, which are of one time."""
        at = rows.start + np.flatnonzero(self.kind[rows] == AT)
        vehicles = [self.vehicles[code] for code in self.vehicle[at].tolist()]
        if (ordered := sorted(vehicles)) != vehicles:
            at = at[np.argsort(np.array(vehicles, object))]
        return Places(ordered, self.rsu[at], self.metres[at], self.rsus)

    def trace(self, end: float) -> Trace:
        """Return the same as events and sightings."""
        return Trace(self.events(), end, self.sightings())

    def before(self, end: float) -> "Columns":
        """Return the rows of times before `end`."""
        rows = slice(0, int(np.searchsorted(self.time, end)))
        return Columns(
            self.time[rows],
            self.vehicle[rows],
            self.kind[rows],
            self.rsu[rows],
            self.metres[rows],
            self.vehicles,
            self.rsus,
        )

    def _described(self) -> tuple[Any, ...]:
        return self.time, self.vehicle, self.kind, self.rsu


@dataclass(frozen=True, eq=False)
class Recording:
    """A `Trace` as columns; equal to another of the same rows.

    Attributes
    ----------
    columns : Columns
    end : float
        Simulated seconds covered.
    """

    columns: Columns
    end: float

    @property
    def events(self) -> tuple[MobilityEvent, ...]:
        """The joins and leaves."""
        return self.columns.events()

    @property
    def places(self) -> tuple[Sighting, ...]:
        """Where the members were."""
        return self.columns.sightings()

    def __eq__(self, other: object) -> bool:
        """Whether the other one is the same trace."""
        if not isinstance(other, Recording):
            return NotImplemented
        return self.columns.trace(self.end) == other.columns.trace(other.end)

    __hash__ = None  # type: ignore[assignment]


class Recorder:
    """Collects the rows of a trace, step by step."""

    def __init__(self) -> None:
        self._time, self._metres = array("d"), array("d")
        self._vehicle, self._kind, self._rsu = array("q"), array("q"), array("q")
        self._vehicles, self._rsus = _Numbering(), _Numbering()

    def add(self, step: Step) -> None:
        """Take in the next step."""
        for event in step.events:
            self._time.append(event.time)
            self._vehicle.append(self._vehicles[event.vehicle])
            self._kind.append(KINDS.index(event.kind))
            self._rsu.append(self._rsus[event.rsu])
            self._metres.append(np.nan)
        places = step.distances
        if count := len(places):
            self._time += array("d", (step.time,)) * count
            self._vehicle.extend(map(self._vehicles.__getitem__, places.vehicles))
            self._kind += array("q", (AT,)) * count
            rsu = np.array([self._rsus[name] for name in places.rsus], np.int64)
            self._rsu.frombytes(rsu[places.rsu].tobytes())
            self._metres.frombytes(places.metres.tobytes())

    def __len__(self) -> int:
        """Return how many rows there are so far."""
        return len(self._time)

    def columns(self) -> Columns:
        """Return the rows so far."""
        return Columns(
            np.array(self._time),
            np.array(self._vehicle, np.int64),
            np.array(self._kind, np.int64),
            np.array(self._rsu, np.int64),
            np.array(self._metres),
            tuple(self._vehicles),
            tuple(self._rsus),
        )


class _Numbering(dict[str, int]):
    """Numbers for names, in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self)
        return number


def columns_of(trace: Trace) -> Columns:
    """Return the rows of a trace: of each time its events, then its sightings."""
    events, places = trace.events, trace.places
    time = np.array([*(e.time for e in events), *map(_TIME, places)], float)
    order = np.argsort(time, kind="stable")
    names = [*(e.vehicle for e in events), *map(_VEHICLE, places)]
    areas = [*(e.rsu for e in events), *map(_RSU, places)]
    kind = np.full(len(order), AT, np.int64)
    kind[: len(events)] = [KINDS.index(e.kind) for e in events]
    metres = np.full(len(order), np.nan)
    metres[len(events) :] = [*map(_METRES, places)]
    vehicle, vehicles = encoded(np.array(names, object)[order])
    rsu, rsus = encoded(np.array(areas, object)[order])
    return Columns(time[order], vehicle, kind[order], rsu, metres[order], vehicles, rsus)


def encoded(names: Iterable[str]) -> tuple[Codes, tuple[str, ...]]:
    """Return a number for each name, and the names by number."""
    names = list(names)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    codes = np.fromiter(map(numbers.__getitem__, names), np.int64, len(names))
    return codes, tuple(numbers)


def check(
    columns: Columns, where: Callable[[int], str], earliest: float, step: float | None
) -> None:
    """Refuse rows that are not a possible history.

    Parameters
    ----------
    columns : Columns
    where : callable
        Names the row of a position, for the message.
    earliest : float
        The first second that events may have.
    step : float or None
        Seconds between sightings, where known.

    Raises
    ------
    TraceError
        If time is no number, too early or runs backwards, a vehicle has no printable name,
        joins twice, leaves before it joined, or is seen without being a member; if a row
        stands twice, or sightings of members are missing.
    """
    time, kind = columns.time, columns.kind
    seen = kind == AT
    _refuse(~np.isfinite(time), where, lambda row: "time is not a number of seconds")
    _refuse(
        time < earliest,
        where,
        lambda row: (
            f"time {time[row]:g} is before {earliest:g}; a clock that starts below "
            "zero needs '# begin: SECONDS' in the header"
        ),
    )
    _check_names("vehicle", columns.vehicle, columns.vehicles, where)
    _check_names("roadside unit", columns.rsu, columns.rsus, where)
    _refuse(
        _among([code for code, name in enumerate(columns.vehicles) if not name], columns.vehicle),
        where,
        lambda row: "the vehicle has no name",
    )
    _refuse(
        np.diff(time, prepend=-np.inf) < 0,
        where,
        lambda row: f"time {time[row]:g} comes after {time[row - 1]:g}; sort the events by time",
    )
    with np.errstate(invalid="ignore"):
        misplaced = np.isfinite(columns.metres) != seen
        misplaced |= columns.metres < 0
    _refuse(
        misplaced,
        where,
        lambda row: (
            "an 'at' row needs a distance in metres, from 0"
            if seen[row]
            else "a join or a leave has no distance; leave the field empty"
        ),
    )
    _check_changes(columns, where)
    if seen.any():
        _check_sightings(columns, where, step)


def _check_names(
    what: str, codes: Codes, names: Sequence[str], where: Callable[[int], str]
) -> None:
    odd = [code for code, name in enumerate(names) if unprintable(name)]
    _refuse(
        _among(odd, codes),
        where,
        lambda row: f"the {what}'s name {names[codes[row]]!r} has control characters",
    )


def _check_changes(columns: Columns, where: Callable[[int], str]) -> None:
    members: dict[int, int] = {}
    last: dict[int, int] = {}
    rows = np.flatnonzero(columns.kind != AT)
    listed = (column[rows].tolist() for column in (columns.vehicle, columns.kind))
    for row, vehicle, kind in zip(rows.tolist(), *listed, strict=True):
        name = columns.vehicles[vehicle]
        before = last.get(vehicle)
        if (
            before is not None
            and columns.time[before] == columns.time[row]
            and columns.kind[before] == kind
        ):
            _fail(where(row), f"repeats {where(before)}, the {KINDS[kind]} of {name!r}; keep one")
        last[vehicle] = row
        if kind == JOIN:
            if vehicle in members:
                _fail(where(row), f"{name!r} joins but is a member")
            members[vehicle] = row
        elif members.pop(vehicle, None) is None:
            _fail(where(row), f"{name!r} leaves but never joined")


def _check_sightings(columns: Columns, where: Callable[[int], str], step: float | None) -> None:
    time, vehicle, kind = columns.time, columns.vehicle, columns.kind
    seen = kind == AT
    starts = group_starts(time)
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(time)))
    _refuse(
        ~seen & (np.diff(group, prepend=-1) == 0) & np.roll(seen, 1),
        where,
        lambda row: "joins and leaves come before the 'at' rows of their time",
    )
    # The last change of the same vehicle before each sighting has to be a join.
    rows, changes = np.flatnonzero(seen), np.flatnonzero(~seen)
    keys = vehicle[changes] * len(time) + changes
    order = np.argsort(keys)
    found = np.searchsorted(keys[order], vehicle[rows] * len(time) + rows) - 1
    latest = changes[order][found] if len(changes) else np.zeros_like(rows)
    member = (found >= 0) & (vehicle[latest] == vehicle[rows]) & (kind[latest] == JOIN)
    outside = np.zeros(len(time), bool)
    outside[rows[~member]] = True

    def name(row: int) -> str:
        return repr(columns.vehicles[vehicle[row]])

    _refuse(outside, where, lambda row: f"{name(row)} has an 'at' row but is no member")
    places = group[rows] * len(columns.vehicles) + vehicle[rows]
    order = np.argsort(places, kind="stable")
    again = np.zeros(len(time), bool)
    again[rows[order][1:][np.diff(places[order]) == 0]] = True
    _refuse(again, where, lambda row: f"{name(row)} is seen twice at {time[row]:g} s; keep one")
    members = np.cumsum(_CHANGE[kind])[np.append(starts[1:], len(time)) - 1]
    sightings = np.bincount(group[rows], minlength=len(starts))
    lacking = np.zeros(len(time), bool)
    lacking[starts[sightings < members]] = True
    _refuse(
        lacking,
        where,
        lambda row: (
            f"of {members[group[row]]} members at {time[row]:g} s only "
            f"{sightings[group[row]]} have an 'at' row; record it again"
        ),
    )
    if step is not None:
        gap = np.zeros(len(time), bool)
        late = np.diff(time[starts]) > step + _TOLERANCE
        gap[starts[1:][late & (members[:-1] > 0)]] = True
        _refuse(
            gap,
            where,
            lambda row: (
                f"'at' rows are missing between {time[row - 1]:g} and {time[row]:g} s, "
                f"steps are {step:g} s apart; record it again"
            ),
        )


def group_starts(time: Numbers) -> Codes:
    """Return the positions at which a time begins that differs from the one before."""
    return np.flatnonzero(np.diff(time, prepend=np.nan) != 0)


def _among(few: Sequence[int], codes: Codes) -> Mask:
    return np.isin(codes, few) if few else np.zeros(len(codes), bool)


def unprintable(name: str) -> bool:
    """Whether a name has control characters, which could garble a file or a terminal."""
    return not name.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in name)


def _refuse(bad: Mask, where: Callable[[int], str], message: Callable[[int], str]) -> None:
    if bad.any():
        row = int(bad.argmax())
        _fail(where(row), message(row))


def _fail(place: str, what: str) -> NoReturn:
    raise TraceError(f"{place}: {what}")
