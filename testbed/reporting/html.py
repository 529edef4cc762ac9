"""One self-contained HTML page per comparison: table, figures, warnings, provenance."""

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from testbed.experiments.rundir import Run
from testbed.ledger import TARIFFS
from testbed.reporting import contact, detection
from testbed.reporting.comparison import by_method, load, manifest_value, notes
from testbed.reporting.figures import figures
from testbed.reporting.names import label
from testbed.reporting.output import save
from testbed.reporting.quality import ACCURACY, MAP
from testbed.reporting.style import render
from testbed.reporting.table import (
    REFERENCE,
    Summary,
    note,
    quality_text,
    requests_text,
    summarise,
)
from testbed.reporting.units import bytes_text, count_text, saving_text, time_text

_TEMPLATE = "report.html.j2"
_CAPTIONS = {
    **{
        each.figure: f"{each.caption} Request 0 is the initial training."
        for each in (ACCURACY, MAP)
    },
    "time": (
        "Simulated time spent on requests so far. Steps of different vehicles overlap, so a "
        "request counts from the start of its handling to the end of its last step."
    ),
    "bytes": (
        "Serialised bytes moved for requests so far. The three panels price the same ledger rows "
        "by the three tariffs explained below."
    ),
    "population": (
        "Clients in the federation, and when vehicles joined, left, and the model was edited. "
        "The distance between a join or leave and its edit is the time to include or to forget."
    ),
}
_DIGITS = 16  # of a fingerprint
_BAND = " Lines are means over the seeds, bands their 95 % bootstrap intervals."
TARIFF_NOTES = {
    "incremental": (
        "What the algorithm needs: newly sampled clients download the initial model and upload "
        "their weights and Fisher information; the new model is sent to every active client "
        "when it changed."
    ),
    "broadcast": "The same, and every request sends the model to every active client.",
    "paper": (
        "Every request sends the model to every active client, and a request that changed the "
        "model is charged the uploads of the whole subset, as a recomputation would be. "
        "Downloads of the initial model are not charged. This is the accounting that fits the "
        "published savings."
    ),
}


def write_report(folder: Path) -> Path:
    """Write ``report.html`` for the runs below `folder` into it and return its path.

    Raises
    ------
    ResultsError
        If there are no comparable runs below it, or it cannot be written.
    """
    return save(folder, "report.html", to_html(load(folder)).encode())


def to_html(runs: Sequence[Run]) -> str:
    """Return the report as one HTML document without external resources."""
    summaries = summarise(runs)
    several = any(len(summary.seeds) > 1 for summary in summaries)
    environment = Environment(
        loader=PackageLoader("testbed.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE).render(
        title=str(manifest_value(runs[0], "config", "name")),
        setting=setting(runs[0]),
        costs=("time", *(f"bytes ({name})" for name in TARIFFS)),
        lines=[_line(summary) for summary in summaries],
        note=note(summaries),
        measure=summaries[0].measure or "quality",
        contact_header=contact.HEADER,
        contact_lines=list(map(contact.cells, contact.summarise_contact(runs))),
        contact_note=contact.NOTE,
        tables=detection.tables(runs),
        figures=[
            (
                name,
                b64encode(render(draw(runs), "png")).decode(),
                _CAPTIONS[name] + (_BAND if several and name != "population" else ""),
            )
            for name, draw in figures(runs).items()
        ],
        tariffs=TARIFF_NOTES,
        notes=notes(runs),
        warnings=[
            f"{label(run.method)}, seed {run.seed}: {sentence}"
            for run in runs
            for sentence in manifest_value(run, "warnings")
        ],
        provenance=_provenance(runs),
    )


def setting(run: Run) -> str:
    """Describe the experiment in one sentence, from the configuration in the manifest."""

    def of(*keys: str) -> Any:
        return manifest_value(run, "config", *keys)

    spread = (
        "evenly" if of("data", "partition") == "iid" else f"Dirichlet α = {of('data', 'alpha')}"
    )
    traffic = {
        "sumo": f"SUMO scenario {of('mobility', 'scenario')}",
        "trace": f"trace {Path(str(of('mobility', 'trace'))).name}",
    }.get(of("mobility", "source"), "traffic drawn at random")
    handled = "one by one" if of("editing", "handling") == "sequential" else "in batches"
    return (
        f"{of('data', 'name')} spread over {of('clients', 'pool')} partitions ({spread}); "
        f"M0 = {manifest_value(run, 'population_initial')} clients at the start, "
        f"ρ = {of('editing', 'rho')}; up to {of('editing', 'requests')} requests "
        f"from the {traffic}, handled {handled}; {of('learning', 'epochs')} local epochs, "
        f"{of('fisher', 'kind')} Fisher, {of('time', 'mode')} time."
    )


def _line(summary: Summary) -> Mapping[str, Any]:
    """Return a method's line of the table; its costs are pairs of value and saving."""
    values = (
        time_text(summary.seconds),
        *(bytes_text(summary.bytes[name]) for name in TARIFFS),
    )
    saved = (summary.seconds_saved, *(summary.bytes_saved[name] for name in TARIFFS))
    own = summary.method == REFERENCE
    return {
        "method": summary.label,
        "quality": quality_text(summary),
        "requests": requests_text(summary),
        "edits": count_text(summary.triggered),
        "costs": [
            (value, "" if own or percent is None else f"saved {saving_text(percent)}")
            for value, percent in zip(values, saved, strict=True)
        ],
        "flagged": summary.flagged,
    }


def _provenance(runs: Sequence[Run]) -> Sequence[tuple[str, str, str]]:
    """Return what is needed to repeat the runs: fact, whose it is, value."""
    facts: Mapping[str, Callable[[Run], str]] = {
        "configuration": lambda run: str(manifest_value(run, "hash")),
        "data": lambda run: (
            f"{manifest_value(run, 'data', 'name')} {manifest_value(run, 'data', 'fingerprint')}"
        ),
        "traffic": lambda run: _listed(manifest_value(run, "mobility")),
        "versions": lambda run: _listed(manifest_value(run, "versions")),
    }
    return [
        (fact, _named([run for run in runs if value(run) == text], runs), text)
        for fact, value in facts.items()
        for text in dict.fromkeys(map(value, runs))
    ]


def _named(some: Sequence[Run], runs: Sequence[Run]) -> str:
    """Name `some` of the runs: by method or seed alone, where that says it."""
    if len(some) == len(runs):
        return "all"
    methods = [label(method) for method in by_method(some)]
    seeds = sorted({run.seed for run in some})
    if sum(label(run.method) in methods for run in runs) == len(some):
        return ", ".join(methods)
    if sum(run.seed in seeds for run in runs) == len(some):
        return f"seed {', '.join(map(str, seeds))}"
    return "; ".join(f"{label(run.method)}, seed {run.seed}" for run in some)


def _listed(values: Mapping[str, Any]) -> str:
    """Write entries that have a value; of a fingerprint the first digits."""
    return ", ".join(
        f"{key.replace('_', ' ')} {_short(value) if 'fingerprint' in key else _plain(value)}"
        for key, value in sorted(values.items())
        if value is not None
    )


def _short(value: Any) -> str:
    return str(value)[:_DIGITS]


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
