"""Traffic that several runs share: simulated once, then heard by each from the beginning.

What a run hears from a tape is what live traffic would have told it, step by step and count
by count, so its files are the same byte for byte.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from testbed.config.schema import MobilityConfig
from testbed.errors import ScenarioError
from testbed.files import write_bytes
from testbed.mobility import MobilitySource, Provenance, Step, open_source

Counts = Mapping[str, int]
OpenSource = Callable[[MobilityConfig, int], MobilitySource]


class EndOfTapeError(Exception):
    """A run asked for more traffic than there is on a tape; live traffic has it."""


class Tape:
    """What a source said so far; as long as the source is open, as much more as is asked for.

    Parameters
    ----------
    source : MobilitySource
        Open, and read by nobody else.
    """

    def __init__(self, source: MobilitySource) -> None:
        self.warmup, self.end, self.provenance = source.warmup, source.end, source.provenance
        self._source: MobilitySource | None = source
        self._live = source.steps()
        self._steps: list[Step] = []
        self._counts: list[Counts | ScenarioError] = [_counted(source)]
        # How the traffic ended, when it has.
        self._ending: Exception | None = None

    def step(self, number: int) -> Step:
        """Return a step, counted from 0.

        Raises
        ------
        StopIteration
            If the traffic ended before it.
        TestbedError
            If the traffic could not be followed so far.
        EndOfTapeError
            If the source said more, but not to this tape.
        """
        while number >= len(self._steps):
            if self._ending is not None:
                raise self._ending
            if self._source is None:
                raise EndOfTapeError
            try:
                self._steps.append(next(self._live))
                self._counts.append(_counted(self._source))
            except Exception as ending:
                self._ending = ending
        return self._steps[number]

    def counts(self, steps: int) -> Counts:
        """Return what the source had counted after so many steps."""
        counted = self._counts[steps]
        if isinstance(counted, ScenarioError):
            raise counted
        return counted

    def play(self) -> "Player":
        """Return a source that says it all again."""
        return Player(self)

    def save(self, path: Path) -> None:
        """Write the tape to a file, for other processes of this program.

        Raises
        ------
        ResultsError
            If it cannot be written.
        """
        write_bytes(path, pickle.dumps(self))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the source behind."""
        return {**self.__dict__, "_source": None, "_live": None}


def load(path: Path) -> Tape:
    """Read a tape that `Tape.save` wrote."""
    tape: Tape = pickle.loads(path.read_bytes())
    return tape


def _counted(source: MobilitySource) -> Counts | ScenarioError:
    """Count what there was so far; that this fails matters to those who stop here only."""
    try:
        return source.counts()
    except ScenarioError as error:
        return error


class Player:
    """A tape as a `MobilitySource`."""

    def __init__(self, tape: Tape) -> None:
        self._tape, self._taken = tape, 0

    @property
    def warmup(self) -> float:
        """Simulated second at which clients are counted."""
        return self._tape.warmup

    @property
    def end(self) -> float:
        """Simulated second before which the steps stop; infinite when none is known."""
        return self._tape.end

    @property
    def provenance(self) -> Provenance:
        """Say what the traffic was made from."""
        return self._tape.provenance

    def steps(self) -> Iterator[Step]:
        """Yield the steps that are still to come."""
        while True:
            try:
                step = self._tape.step(self._taken)
            except StopIteration:
                return
            self._taken += 1
            yield step

    def counts(self) -> Counts:
        """Return what the source had counted after as many steps as were taken."""
        return self._tape.counts(self._taken)

    def close(self) -> None:
        """Do nothing: the tape stays for others."""

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


class Traffic:
    """The traffic of runs of one mobility configuration and seed.

    SUMO simulates it once; other sources are quick, and opened for each run.

    Parameters
    ----------
    tape : Tape, optional
        What SUMO said, if that is known.
    """

    def __init__(self, tape: Tape | None = None) -> None:
        self.tape = tape
        self._source: MobilitySource | None = None

    def open(self, config: MobilityConfig, seed: int) -> MobilitySource:
        """Open the traffic for one run, from its beginning; raises as `open_source`."""
        if config.source != "sumo":
            return open_source(config, seed)
        if self.tape is None:
            self._source = open_source(config, seed)
            self.tape = Tape(self._source)
        return self.tape.play()

    def __enter__(self) -> Self:
        """Return the traffic itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End SUMO, whatever happened."""
        if self._source:
            self._source.close()
