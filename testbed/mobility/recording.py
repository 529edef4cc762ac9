"""Writing traffic to trace files."""

import hashlib
from pathlib import Path

from testbed.config.schema import MobilityConfig
from testbed.errors import ScenarioError
from testbed.mobility import coverage
from testbed.mobility.columns import Recorder, Recording
from testbed.mobility.events import Provenance, Trace
from testbed.mobility.fcd import import_fcd
from testbed.mobility.lists import import_list, is_list
from testbed.mobility.scenarios import find
from testbed.mobility.source import open_source
from testbed.mobility.trace import write_columns, write_trace


def record(config: MobilityConfig, seed: int, path: Path) -> Provenance:
    """Run the traffic to its end, write it to the trace file `path`, and return its header.

    All vehicles are recorded, whatever share of them takes part.

    Raises
    ------
    ConfigError, ScenarioError, TraceError
        If the traffic cannot be run.
    ResultsError
        If the file cannot be written.
    """
    recorder = Recorder()
    latest = None
    with open_source(config, seed) as source:
        for step in source.steps():
            recorder.add(step)
            latest = step.time
        counts, facts, end = source.counts(), source.provenance, source.end
    if latest is None:
        raise ScenarioError(f"{config.scenario}: there is no traffic; give it vehicles or an end")
    length = facts.get("step_length")
    covered = latest + (length if isinstance(length, int | float) else 0)
    header = {**facts, **counts, "end": round(min(end, covered), 6)}
    write_columns(path, recorder.columns(), header)
    return header


def import_file(
    source: Path,
    config: MobilityConfig,
    path: Path,
    scenario: str | None = None,
    bridge: bool = False,
) -> Provenance:
    """Turn SUMO's FCD output, or a list, into the trace file `path`, and return its header.

    Parameters
    ----------
    source : Path
        FCD output (see `import_fcd`), or a list (see `import_list`).
    config : MobilityConfig
        Its membership decides who joins and leaves in FCD output; its ``warmup`` is kept in the
        header.
    path : Path
    scenario : str, optional
        A scenario whose roadside unit is the default.
    bridge : bool
        As for `import_fcd`.

    Raises
    ------
    ConfigError, ScenarioError, TraceError
        If the file is malformed, or the roadside unit is not known.
    ResultsError
        If the trace cannot be written.
    """
    trace: Trace | Recording
    facts: Provenance
    if is_list(source):
        trace, facts = import_list(source)
        facts = {**facts, "source": "list"}
    else:
        default = find(scenario).rsu if scenario else None
        areas = coverage.areas(config, default, scenario or source.name)
        rule = coverage.rule(config, areas)
        domain = coverage.followed(config) or ""
        trace, facts = import_fcd(source, rule, bool(areas), domain, bridge)
        facts = {**facts, **coverage.described(config, areas), "source": "fcd"}
    header = {
        **facts,
        "imported": source.name,
        "fingerprint": _digest(source),
        "warmup": config.warmup or 0.0,
    }
    write_trace(path, trace, header)
    return {**header, "end": trace.end}


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file that may be large."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
