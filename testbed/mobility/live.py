"""Membership events from SUMO while it runs."""

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from testbed.config.schema import MobilityConfig
from testbed.errors import ConfigError, ResultsError, ScenarioError
from testbed.files import write_bytes
from testbed.mobility import coverage
from testbed.mobility.building import cached_routes, demand
from testbed.mobility.events import Provenance, Step
from testbed.mobility.headless import headless
from testbed.mobility.link import Link, Reading, start
from testbed.mobility.membership import as_events
from testbed.mobility.scenarios import Scenario, find
from testbed.mobility.sumo import QUIET

_LARGEST_SEED = 2**31 - 1
_RESOLUTION = 0.001
_CLOCK_TOLERANCE = 1e-6
_WARMUP_SHARE = 0.25
_PATIENCE_SECONDS = 3600.0


class SumoSource:
    """Traffic simulated by SUMO, one `Step` for each of its steps.

    Parameters
    ----------
    config : MobilityConfig
    seed : int
        SUMO's seed, and nothing else's.

    Raises
    ------
    ConfigError, ScenarioError
        If the configuration does not fit the scenario, or SUMO refuses it.

    Notes
    -----
    The time of an event is SUMO's own stamp of a departure or an arrival: the *start* of
    the step in which it happened, one step before the clock that TraCI shows afterwards.
    """

    def __init__(self, config: MobilityConfig, seed: int) -> None:
        if seed > _LARGEST_SEED:
            raise ConfigError(f"seed {seed} is beyond SUMO's largest, {_LARGEST_SEED}")
        self._step_length = _on_grid(config.step_length)
        scenario = find(config.scenario)
        density = _density(scenario, config.density)
        scale = _scale(scenario, config.scale)
        areas = coverage.areas(config, scenario.rsu, scenario.name)
        self._rule = coverage.rule(config, areas)
        self._domain = coverage.followed(config) or ""
        self._counts = Counter[str]()
        # SUMO keeps its input files open, so the folder is needed for the start alone.
        with tempfile.TemporaryDirectory(prefix="testbed-sumo-") as folder:
            quiet = headless(
                scenario.config, Path(folder), _routes(scenario, density, Path(folder))
            )
            arguments = ["-c", str(quiet.config), *QUIET, "--device.ssm.file", "/dev/null"]
            arguments += ["--seed", str(seed), "--step-length", f"{self._step_length!r}"]
            arguments += ["--scale", f"{scale!r}"] if scale is not None else []
            self._link: Link = start(config.backend, arguments, Path(folder))
            try:
                version = self._link.version()
                self._last: Reading = self._link.watch(areas)
                self._standing = self._link.standing()
                self._begin = self._last.clock
                self._end = self._find_end(config)
                self._warmup = self._find_warmup(config, scenario)
            except BaseException:
                self._link.close()
                raise
        self._count(self._last)
        # A saved state that the scenario loads has vehicles on the road already.
        self._found = self._link.vehicles() if self._standing.running else ()
        self._counts["departed"] += len(self._found)
        self._provenance: Provenance = {
            "source": "sumo",
            "scenario": scenario.name,
            "fingerprint": quiet.fingerprint,
            "sumo": version,
            "backend": config.backend,
            "seed": seed,
            "density": density,
            "scale": scale,
            "step_length": self._step_length,
            "begin": self._begin,
            "warmup": self._warmup - self._begin,
            "end": None if math.isinf(self._end) else self._end,
            **coverage.described(config, areas),
        }
        self._taken = 0
        self._stirred = self._begin

    @property
    def warmup(self) -> float:
        """Simulated second, on SUMO's clock, at which clients are counted."""
        return self._warmup

    @property
    def end(self) -> float:
        """Simulated second before which the steps stop; infinite when none is known."""
        return self._end

    @property
    def provenance(self) -> Provenance:
        """Say what the traffic was made from."""
        return self._provenance

    def steps(self) -> Iterator[Step]:
        """Simulate on, one step at a time, until the end or until all traffic is over.

        Raises
        ------
        ScenarioError
            If SUMO dies, refuses an input it comes to read, or its clock stands still; or if
            no end is set and vehicles wait in vain for room.
        """
        while self._last.expected > 0:
            time = self._grid_time(self._taken)
            if time >= self._end:
                return
            reading = self._link.step()
            self._taken += 1
            clock = self._grid_time(self._taken)
            if abs(reading.clock - clock) > _CLOCK_TOLERANCE:
                raise ScenarioError(
                    f"SUMO's clock shows {reading.clock:g} s after step {self._taken}, which "
                    f"ends at {clock:g} s; the simulation does not advance as it should"
                )
            self._last = reading
            self._count(reading)
            self._watch_out(time, reading)
            departed, self._found = (*self._found, *reading.departed), ()
            leaves, joins = self._rule.update(time, departed, reading.arrived, reading.positions)
            events = as_events(time, leaves, joins, self._domain)
            yield Step(time, events, self._rule.places())

    def counts(self) -> Mapping[str, int]:
        """Return how many vehicles there were so far.

        ``loaded`` counts vehicles read from the demand, some of them ahead of their time;
        ``teleports`` every jump of a stuck one; ``colliding`` every step of every vehicle in
        a collision.  ``running`` drive, park or jump now and ``pending`` wait for room, or did
        when this was last asked before the source was closed.  ``dropped`` had waited too long
        and were given up.

        Raises
        ------
        ScenarioError
            If a vehicle was lost: SUMO has other vehicles than have departed and not arrived.
        """
        counts = self._counts
        with suppress(ScenarioError):
            self._standing = self._link.standing()
            counts["missing"] = counts["departed"] - counts["arrived"] - self._standing.running
            counts["dropped"] = counts["loaded"] - counts["arrived"] - self._standing.known
        if counts["missing"]:
            raise ScenarioError(
                f"{counts['departed']} vehicles departed and {counts['arrived']} arrived but SUMO "
                f"has {self._standing.running} on the road; the traffic cannot be followed"
            )
        names = ("loaded", "departed", "arrived", "dropped", "teleports", "colliding")
        return {
            **{name: counts[name] for name in names},
            "running": self._standing.running,
            "pending": self._standing.pending,
        }

    def close(self) -> None:
        """End SUMO; closing twice does no harm."""
        self._link.close()

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End SUMO, whatever happened."""
        self.close()

    def _grid_time(self, steps: int) -> float:
        return round(self._begin + steps * self._step_length, 6)

    def _watch_out(self, time: float, reading: Reading) -> None:
        """Refuse to follow for ever a traffic in which nothing comes or goes any more."""
        if reading.departed or reading.arrived or math.isfinite(self._end):
            self._stirred = time
        elif time - self._stirred >= _PATIENCE_SECONDS:
            self._stirred = time
            if waiting := self._link.standing().pending:
                raise ScenarioError(
                    f"{waiting} vehicles wait for room and none departed or arrived in the "
                    f"{_PATIENCE_SECONDS:g} s before {time:g} s; set mobility.end, or "
                    "max-depart-delay in the scenario"
                )

    def _count(self, reading: Reading) -> None:
        self._counts["loaded"] += reading.loaded
        self._counts["departed"] += len(reading.departed)
        self._counts["arrived"] += len(reading.arrived)
        self._counts["teleports"] += reading.teleports
        self._counts["colliding"] += reading.colliding

    def _find_end(self, config: MobilityConfig) -> float:
        declared = self._link.end()
        end = min(
            declared if declared >= 0 else math.inf,
            math.inf if config.end is None else config.end,
        )
        if end <= self._begin:
            raise ConfigError(
                f"mobility.end is {end:g} but the scenario begins at {self._begin:g} s"
            )
        return end

    def _find_warmup(self, config: MobilityConfig, scenario: Scenario) -> float:
        length = self._end - self._begin
        given = scenario.warmup if config.warmup is None else config.warmup
        if given is None:
            given = 0.0 if math.isinf(length) else _WARMUP_SHARE * length
        if given >= length:
            raise ConfigError(
                f"the warm-up of {given:g} s leaves nothing of the {length:g} s simulated; "
                "lower mobility.warmup or raise mobility.end"
            )
        return self._begin + given


def _on_grid(step_length: float) -> float:
    """Return a step length as SUMO can keep it, whole milliseconds."""
    steps = round(step_length / _RESOLUTION)
    if steps < 1 or abs(steps * _RESOLUTION - step_length) > 1e-9:
        raise ConfigError(
            f"mobility.step_length is {step_length!r} s; SUMO counts in whole milliseconds"
        )
    return round(steps * _RESOLUTION, 3)


def _density(scenario: Scenario, density: float | None) -> float | None:
    if scenario.generator is not None:
        return scenario.generator.density if density is None else density
    if density is not None:
        raise ConfigError(
            f"mobility.density is only for generated scenarios and {scenario.name!r} is not "
            "one; leave it out and set mobility.scale, a factor on the scenario's own traffic"
        )
    return None


def _scale(scenario: Scenario, scale: float | None) -> float | None:
    if scale is not None and scenario.generator is not None:
        raise ConfigError(
            f"mobility.scale is for scenarios with traffic of their own and {scenario.name!r} is "
            "generated; set mobility.density instead, the seconds between departures"
        )
    return scale


def _routes(scenario: Scenario, density: float | None, folder: Path) -> Path | None:
    if density is None:
        return None
    try:
        return cached_routes(scenario, density)
    except ResultsError:  # no writable cache: make them for this run alone
        path = folder / "routes.rou.xml.gz"
        write_bytes(path, demand(scenario, density))
        return path
