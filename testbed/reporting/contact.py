"""The second table of a comparison: waiting, contact and waste, from the manifests."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from testbed.experiments.rundir import Run
from testbed.reporting.comparison import by_method, manifest_value
from testbed.reporting.names import label
from testbed.reporting.units import bytes_text, count_text, time_text

PERCENTILES = ("p10", "p50", "p90")
_MEANS = ("asked", "delivered", "wasted_s", "wasted_bytes", "queue_mean", "batch_mean")
_LARGEST = ("queue_max", "batch_max")
HEADER = (
    "method",
    "time to forget",
    "time to include",
    "contact long enough",
    "wasted time",
    "wasted bytes",
    "queue",
    "batch",
)
NOTE = (
    "Time to forget and to include: from a leave or a join to the release of the model that "
    "follows from it, 10th / 50th / 90th percentile. Contact long enough: share of the clients "
    "asked for an upload who delivered it before they left. Wasted: spent by the others, the "
    "initial training included. Queue: requests that wait when one arrives; batch: requests "
    "handled together; both largest (mean)."
)


@dataclass(frozen=True)
class Waiting:
    """What contact and waiting came to for one method; means over its seeds.

    Attributes
    ----------
    method : str
    forget, include : mapping of str to (float or None)
        Seconds by percentile; None where no such request was made.
    asked, delivered : float
    wasted_s, wasted_bytes : float
    queue_max, queue_mean, batch_max, batch_mean : float
        Of the largest the largest over the seeds.
    """

    method: str
    forget: Mapping[str, float | None]
    include: Mapping[str, float | None]
    asked: float
    delivered: float
    wasted_s: float
    wasted_bytes: float
    queue_max: float
    queue_mean: float
    batch_max: float
    batch_mean: float


def summarise_contact(runs: Iterable[Run]) -> tuple[Waiting, ...]:
    """Summarise waiting and contact, method by method in display order.

    Raises
    ------
    ResultsError
        If a manifest lacks them.
    """
    return tuple(_waiting(method, group) for method, group in by_method(runs).items())


def _waiting(method: str, group: Sequence[Run]) -> Waiting:
    def of(*keys: str) -> list[Any]:
        return [manifest_value(run, "contact", *keys) for run in group]

    def spread(kind: str) -> dict[str, float | None]:
        return {percentile: _mean(of(kind, percentile)) for percentile in PERCENTILES}

    return Waiting(
        method=method,
        forget=spread("forget"),
        include=spread("include"),
        **{key: fmean(of(key)) for key in _MEANS},
        **{key: max(of(key)) for key in _LARGEST},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def cells(waiting: Waiting) -> tuple[str, ...]:
    """Return the printed line of a method, in the order of `HEADER`."""
    return (
        label(waiting.method),
        _spread_text(waiting.forget),
        _spread_text(waiting.include),
        f"{100 * waiting.delivered / waiting.asked:.1f} %",
        time_text(waiting.wasted_s),
        bytes_text(waiting.wasted_bytes),
        f"{count_text(waiting.queue_max)} ({waiting.queue_mean:.2f})",
        f"{count_text(waiting.batch_max)} ({waiting.batch_mean:.2f})",
    )


def _spread_text(spread: Mapping[str, float | None]) -> str:
    values = [spread[percentile] for percentile in PERCENTILES]
    return " / ".join("–" if value is None else time_text(value) for value in values)


def columns(waiting: Waiting) -> dict[str, float | None]:
    """Return the figures with full precision, by the names of their CSV columns."""
    return {
        **{f"forget_{key}_s": waiting.forget[key] for key in PERCENTILES},
        **{f"include_{key}_s": waiting.include[key] for key in PERCENTILES},
        **{key: getattr(waiting, key) for key in (*_MEANS, *_LARGEST)},
    }


def to_markdown(table: Sequence[Waiting]) -> str:
    """Return the table in Markdown, followed by how to read it."""
    lines = [HEADER, ("---", *("---:" for _ in HEADER[1:])), *map(cells, table)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + f"\n\n{NOTE}\n"
