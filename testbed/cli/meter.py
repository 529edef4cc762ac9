"""Progress of a sweep on the terminal: a bar for each stage, or plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from testbed.reporting.units import time_text

if TYPE_CHECKING:
    from testbed.experiments.sweep import Stage

_LINE_SECONDS = 10.0
_UNITS = {"planning": "runs", "training": "clients", "running": "runs", "auditing": "models"}


class Meter:
    """Shows the stages of a sweep; an observer of it.

    Parameters
    ----------
    console : Console
    clock : callable, optional
        Wall-clock seconds; a test brings its own.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._stage: str | None = None
        self._began = self._shown = 0.0
        animated = console.is_terminal and not console.is_dumb_terminal
        self._bars = (
            Progress(
                TextColumn("{task.description:8}"),
                BarColumn(),
                TextColumn("{task.fields[text]}"),
                console=console,
            )
            if animated
            else None
        )
        self._bar = TaskID(0)

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars:
            self._bars.stop()

    def __call__(self, stage: Stage) -> None:
        """Take note of how far a stage is, and show it if it is time to."""
        now = self._clock()
        if stage.name != self._stage:
            self._stage, self._began = stage.name, now
            self._shown = float("-inf")
            if self._bars:
                self._bar = self._bars.add_task(stage.name, total=1.0, text="")
        text = self._text(stage, now - self._began)
        if self._bars:
            self._bars.update(self._bar, completed=stage.share, text=text)
        elif stage.done == stage.total or now - self._shown >= _LINE_SECONDS:
            self._shown = now
            line = f"{stage.name}  {text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _text(self, stage: Stage, elapsed: float) -> str:
        parts = [f"{stage.done}/{stage.total} {_UNITS[stage.name]}"]
        if stage.failed:
            parts.append(f"{stage.failed} failed")
        if stage.done == stage.total:
            parts.append(f"in {time_text(elapsed)}")
        elif stage.share > 0 and elapsed > 0:
            parts.append(f"{time_text(elapsed / stage.share * (1 - stage.share))} left")
        return ", ".join(parts)
