"""The summary of a comparison: one line per method, from ledger and metrics."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev

from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS, Totals, add_up
from testbed.reporting import contact, detection
from testbed.reporting.comparison import by_method, column, costs, load, requests
from testbed.reporting.contact import Waiting, summarise_contact
from testbed.reporting.names import label
from testbed.reporting.output import save
from testbed.reporting.quality import measure
from testbed.reporting.units import bytes_text, count_text, saving_text, time_text

REFERENCE = "retrain"


@dataclass(frozen=True)
class Summary:
    """What one method reached and cost over the requests; the initial training is left out.

    Attributes
    ----------
    method, label : str
        Name in the configuration, and as printed.
    seeds : tuple of int
        All figures are means over these seeds.
    measure : str
        What is measured of a model, as printed; empty where nothing was trained.
    quality : float or None
        Of the last released model on the test set, a share.
    quality_spread : float or None
        Sample standard deviation over the seeds; None for a single one.
    requests, handled, triggered : float
        Requests made; times they were handled, a batch once; times the model changed.
    seconds : float
        Cumulative simulated time.
    seconds_saved : float or None
        Percent less time than Retrain on the same seeds; None without such a run.
    bytes : mapping of str to float
        Cumulative serialised bytes, by tariff.
    bytes_saved : mapping of str to (float or None)
        Percent fewer bytes than Retrain on the same seeds, by tariff.
    flagged : int
        Releases, over all seeds, whose projection missed its tolerance.
    """

    method: str
    label: str
    seeds: tuple[int, ...]
    measure: str
    quality: float | None
    quality_spread: float | None
    requests: float
    handled: float
    triggered: float
    seconds: float
    seconds_saved: float | None
    bytes: Mapping[str, float]
    bytes_saved: Mapping[str, float | None]
    flagged: int


def summarise(runs: Iterable[Run]) -> tuple[Summary, ...]:
    """Summarise the runs of one experiment, method by method in display order."""
    groups = by_method(runs)
    spent = {
        method: {run.seed: add_up(costs(run)) for run in group} for method, group in groups.items()
    }
    reference = spent.get(REFERENCE, {})
    return tuple(
        _summary(method, group, spent[method], reference) for method, group in groups.items()
    )


def _summary(
    method: str,
    group: Sequence[Run],
    spent: Mapping[int, Totals],
    reference: Mapping[int, Totals],
) -> Summary:
    by = measure(group)
    qualities = [float(column(run, by.column)[-1]) for run in group] if by else []
    # Savings compare the same traffic, so only seeds that both methods have.
    pairs = [(spent[seed], reference[seed]) for seed in spent if seed in reference]
    return Summary(
        method=method,
        label=label(method),
        seeds=tuple(spent),
        measure=by.name if by else "",
        quality=fmean(qualities) if qualities else None,
        quality_spread=stdev(qualities) if len(qualities) > 1 else None,
        requests=fmean(requests(run) for run in group),
        handled=fmean(cost.requests for cost in spent.values()),
        triggered=fmean(cost.triggered for cost in spent.values()),
        seconds=fmean(cost.seconds for cost in spent.values()),
        seconds_saved=_saved([(own.seconds, other.seconds) for own, other in pairs]),
        bytes={name: fmean(cost.bytes[name].total for cost in spent.values()) for name in TARIFFS},
        bytes_saved={
            name: _saved(
                [(own.bytes[name].total, other.bytes[name].total) for own, other in pairs]
            )
            for name in TARIFFS
        },
        flagged=sum(_flagged(run) for run in group),
    )


def _saved(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return by how many percent the first numbers undercut the second ones, summed."""
    reference = sum(other for _, other in pairs)
    return 100 * (1 - sum(own for own, _ in pairs) / reference) if reference else None


def _flagged(run: Run) -> int:
    """Count releases whose projection did not converge; a batch has one."""
    billed = {cost.request for cost in costs(run)}
    releases = run.metrics[run.metrics["request"].isin(billed)]
    return int((~releases["converged"].astype(bool)).sum())


def header(summaries: Sequence[Summary]) -> tuple[str, ...]:
    """Return the heads of the columns."""
    return (
        "method",
        f"final {summaries[0].measure or 'quality'}",
        "requests",
        "edits",
        "time",
        "saved",
        *(part for name in TARIFFS for part in (f"bytes ({name})", "saved")),
        "flagged",
    )


def cells(summary: Summary) -> tuple[str, ...]:
    """Return the printed line of a method, in the order of `header`."""
    priced = (
        text
        for name in TARIFFS
        for text in (bytes_text(summary.bytes[name]), saving_text(summary.bytes_saved[name]))
    )
    return (
        summary.label,
        quality_text(summary),
        requests_text(summary),
        count_text(summary.triggered),
        time_text(summary.seconds),
        saving_text(summary.seconds_saved),
        *priced,
        str(summary.flagged),
    )


def quality_text(summary: Summary) -> str:
    """Write the final quality with its spread over the seeds, where there are several."""
    if summary.quality is None:
        return "–"
    spread = summary.quality_spread
    return f"{100 * summary.quality:.1f}{'' if spread is None else f' ± {100 * spread:.1f}'} %"


def requests_text(summary: Summary) -> str:
    """Write the number of requests and, where they were handled in batches, of batches."""
    made, handled = count_text(summary.requests), count_text(summary.handled)
    return made if made == handled else f"{made} in {handled} batches"


def basis(summaries: Sequence[Summary]) -> str:
    """Say what the figures of the table are based on."""
    seeds = sorted({seed for summary in summaries for seed in summary.seeds})
    several = len(seeds) > 1
    means = "Means over seeds" if several else "Seed"
    spread = "; ± is the sample standard deviation" if several else ""
    asked = any(summary.requests for summary in summaries)
    what = (
        "sums over the requests, without the initial training"
        if asked
        else "those of the initial training: there were no requests"
    )
    return (
        f"{means} {', '.join(map(str, seeds))}{spread}. "
        "Time is simulated; bytes are serialised bytes (1 MB = 1e6 bytes), priced by the tariffs "
        f"{', '.join(TARIFFS)}. Both are {what}."
    )


def note(summaries: Sequence[Summary]) -> str:
    """Say in a few sentences how to read the table."""
    return (
        f"{basis(summaries)} Saved: against Retrain on the same seeds. "
        "Flagged: releases whose projection missed its tolerance."
    )


def to_markdown(summaries: Sequence[Summary]) -> str:
    """Return the summary as a Markdown table, followed by how to read it."""
    heads = header(summaries)
    lines = [heads, ("---", *("---:" for _ in heads[1:])), *map(cells, summaries)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{table}\n\n{note(summaries)}\n"


def to_csv(summaries: Sequence[Summary], waiting: Sequence[Waiting] = ()) -> str:
    """Return the summary as CSV with full precision; a missing value is empty.

    Parameters
    ----------
    summaries : sequence of Summary
    waiting : sequence of Waiting
        Of the same methods in the same order; their figures follow those of the summary.
    """
    further = [contact.columns(one) for one in waiting] or [{} for _ in summaries]
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        (
            "method",
            "seeds",
            "measure",
            "quality",
            "quality_spread",
            "requests",
            "handled",
            "triggered",
            "seconds",
            "seconds_saved_percent",
            *(f"bytes_{name}" for name in TARIFFS),
            *(f"bytes_{name}_saved_percent" for name in TARIFFS),
            "flagged",
            *(further[0] if further else ()),
        )
    )
    for s, figures in zip(summaries, further, strict=True):
        writer.writerow(
            (
                s.method,
                " ".join(map(str, s.seeds)),
                s.measure,
                s.quality,
                s.quality_spread,
                s.requests,
                s.handled,
                s.triggered,
                s.seconds,
                s.seconds_saved,
                *(s.bytes[name] for name in TARIFFS),
                *(s.bytes_saved[name] for name in TARIFFS),
                s.flagged,
                *figures.values(),
            )
        )
    return stream.getvalue()


def write_summary(folder: Path) -> tuple[Path, Path]:
    """Write ``summary.csv`` and ``summary.md`` of the runs below `folder` into it.

    Raises
    ------
    ResultsError
        If there are no comparable runs below it, or it cannot be written.
    """
    runs = load(folder)
    summaries, waiting = summarise(runs), summarise_contact(runs)
    parts = (
        to_markdown(summaries),
        contact.to_markdown(waiting),
        detection.to_markdown(detection.tables(runs)),
    )
    text = "\n".join(filter(None, parts))
    return (
        save(folder, "summary.csv", to_csv(summaries, waiting).encode()),
        save(folder, "summary.md", text.encode()),
    )
