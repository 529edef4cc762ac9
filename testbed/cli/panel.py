"""What a run looks like on the terminal: a live panel while it runs, a table at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from testbed.reporting.names import label
from testbed.reporting.units import bytes_text, count_text, time_text

if TYPE_CHECKING:
    from testbed.reporting.table import Summary
    from testbed.simulation.progress import Progress

_REFRESHES = 4  # per second
_LINE_SECONDS = 5.0
_LINE_REQUESTS = 5
_LINES_PER_RUN = 20
_ENDLESS = 1000  # columns


class Watcher:
    """Shows the progress of runs; an observer of the simulation.

    On a terminal it keeps a live panel of the run under way and leaves the last state of
    every finished one above it.  Anywhere else it prints plain lines: at each new phase,
    then every few requests or seconds, and at the end of a run.

    Parameters
    ----------
    console : Console, optional
        Where to show it; default: standard output.
    clock : callable, optional
        Wall-clock seconds; a test brings its own.

    Examples
    --------
    >>> with Watcher() as watcher:  # doctest: +SKIP
    ...     run(experiment, observer=watcher)
    """

    def __init__(
        self, console: Console | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console or Console()
        self._clock = clock
        self._last: Progress | None = None
        self._shown: Progress | None = None
        self._shown_at = self._phase_began = clock()
        animated = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = (
            Live(
                console=self._console,
                get_renderable=self._panel,
                refresh_per_second=_REFRESHES,
                transient=True,
            )
            if animated
            else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live:
            self._live.stop()
        self._leave_behind()

    def __call__(self, progress: Progress) -> None:
        """Take note of a new state and show it if it is time to."""
        last = self._last
        same_run = last is not None and _run(last) == _run(progress)
        same_phase = same_run and last is not None and last.phase == progress.phase
        if not same_run:
            self._leave_behind()
        if not same_phase:
            self._phase_began = self._clock()
        self._last = progress
        if self._live is None and (not same_phase or self._due(progress)):
            self._line(progress)

    def _due(self, progress: Progress) -> bool:
        """Whether enough has happened since the last plain line."""
        done = self._shown.done if self._shown else 0
        stride = max(_LINE_REQUESTS, progress.wanted // _LINES_PER_RUN)
        return progress.done - done >= stride or self._clock() - self._shown_at >= _LINE_SECONDS

    def _leave_behind(self) -> None:
        """Print the last state of a run that ends, unless that was done."""
        if self._last is not None and self._last is not self._shown:
            self._line(self._last)

    def _line(self, progress: Progress) -> None:
        self._shown, self._shown_at = progress, self._clock()
        facts = (f"{name} {text}" for name, text in self._facts(progress))
        _say(self._console, "  ".join((_run(progress), *facts)))

    def _facts(self, progress: Progress) -> list[tuple[str, str]]:
        """Return what is worth saying of a state, as name and text."""
        facts = [("phase", progress.phase), ("simulated time", f"{progress.time:.0f} s")]
        if progress.phase == "warm-up":
            return [*facts, ("population", str(progress.population))]
        facts += [
            ("population", str(progress.population)),
            # Some methods keep no subset.
            ("subset", str(progress.subset) if progress.subset else "–"),
        ]
        if progress.quality is not None:
            name, value = progress.quality
            facts.append((name, f"{100 * value:.1f} %"))
        if progress.phase == "training":
            return facts
        priced = ", ".join(
            f"{bytes_text(count)} ({name})" for name, count in progress.bytes.items()
        )
        facts += [
            ("requests", f"{progress.done}/{progress.wanted}{self._remaining(progress)}"),
            ("edits", str(progress.triggered)),
            ("bytes", priced),
        ]
        return facts

    def _remaining(self, progress: Progress) -> str:
        """Estimate the wall-clock time left from the requests handled so far."""
        left = progress.wanted - progress.done
        if left <= 0 or progress.done == 0:
            return ""
        elapsed = self._clock() - self._phase_began
        return f" ({time_text(elapsed / progress.done * left)} left)"

    def _panel(self) -> Panel:
        progress = self._last
        if progress is None:
            return Panel("starting", expand=False)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        for name, text in self._facts(progress):
            grid.add_row(name, text)
        if progress.phase == "editing":
            grid.add_row("", ProgressBar(total=progress.wanted, completed=progress.done, width=40))
        waited = time_text(self._clock() - self._phase_began)
        return Panel(
            grid, title=_run(progress), subtitle=f"{progress.phase} for {waited}", expand=False
        )


def _run(progress: Progress) -> str:
    return f"{label(progress.method)}, seed {progress.seed}"


def _say(console: Console, line: str) -> None:
    # Soft wrapping keeps one state on one line, however narrow the terminal is.
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def show_summary(console: Console, summaries: Sequence[Summary]) -> None:
    """Print the summary as a table of 80 columns, or in blocks where that does not fit."""
    from testbed.reporting.table import basis

    names = (summaries[0].measure or "quality", "requests", "edits", "time", *summaries[0].bytes)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0)
    table.add_column("method", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for summary in summaries:
        table.add_row(summary.label, *map("\n".join, _cells(summary)))
    unlimited = console.options.update(width=_ENDLESS)
    fits = console.measure(table, options=unlimited).maximum <= console.width
    if fits:
        console.print(table)
    else:
        for summary in summaries:
            _say(console, summary.label)
            for name, cell in zip(names, _cells(summary), strict=True):
                _say(console, f"  {name:<12} {'  '.join(cell).rstrip()}")
    where = "Below" if fits else "Beside"
    _say(console, f"{basis(summaries)} {where} time and bytes: change against Retrain.")
    for summary in summaries:
        if summary.flagged:
            _say(
                console,
                f"{summary.label}: {summary.flagged} releases whose projection missed its "
                "tolerance; raise fusion.max_iterations",
            )


def _cells(summary: Summary) -> list[tuple[str, ...]]:
    """Write what the table says of a method: per column a value and perhaps a remark."""
    from testbed.reporting.table import REFERENCE, quality_text

    requests = [count_text(summary.requests)]
    if summary.handled != summary.requests:
        requests.append(f"{count_text(summary.handled)} batches")
    costs = [(time_text(summary.seconds), summary.seconds_saved)]
    costs += [
        (bytes_text(cost), summary.bytes_saved[name]) for name, cost in summary.bytes.items()
    ]
    own = summary.method == REFERENCE
    return [
        (quality_text(summary),),
        tuple(requests),
        (count_text(summary.triggered),),
        *((cost, "" if own else _change(percent)) for cost, percent in costs),
    ]


def _change(saved: float | None) -> str:
    """Write a saving in percent as the change it is."""
    # Adding zero turns a negative zero into a plain one.
    return "" if saved is None else f"{round(-saved, 2) + 0.0:+.2f} %"
