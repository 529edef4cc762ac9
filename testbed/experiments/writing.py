"""The files of a run: tables and trace grow while it goes on, the manifest says that it is over.

Those of a run without learning are not waited for until they are on the disk, which would
take longer than the run.  Until its manifest is there, a folder is hidden and no run; what a
process has written survives however it ends.  Should the whole machine stop, files may be
lost after all: so the manifest names their sizes, and a run that lacks a byte is not finished.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.config import Experiment, spec_hash
from testbed.experiments import provenance
from testbed.experiments.detection import write_detection, write_predictions
from testbed.experiments.rundir import write_manifest
from testbed.experiments.tables import Table
from testbed.experiments.validation import MODEL
from testbed.files import write_bytes
from testbed.learning.contribution import serialise_model
from testbed.learning.task import Task
from testbed.ledger import LedgerRow
from testbed.mobility import MadeSource, MobilitySource, Recorder, Recording, write_trace
from testbed.mobility.spool import Spool
from testbed.simulation.books import Books
from testbed.simulation.metric import Metric
from testbed.simulation.world import Outcome

SIZES = "sizes"


@dataclass(frozen=True)
class Pages:
    """What is written of a run while it goes on.

    Attributes
    ----------
    folder : Path
    safe : bool
        Wait until files are on the disk.
    ledger, metrics : Table
    traffic : Spool or Recorder
        Traffic that is made up may go on for ever; any other is held by its source anyway.
    """

    folder: Path
    safe: bool
    ledger: Table
    metrics: Table
    traffic: Spool | Recorder

    @property
    def books(self) -> Books:
        """Where a world writes it down."""
        return Books(self.ledger.add, self.metrics.add, self.traffic.add)

    def finish(self, covered: float, mobility: Mapping[str, Any]) -> None:
        """Write the trace of a run that is over.

        Parameters
        ----------
        covered : float
            Simulated seconds of traffic that were used.
        mobility : mapping
            The source's provenance.
        """
        if isinstance(self.traffic, Spool):
            self.traffic.finish({**mobility, "end": covered}, self.safe)
        else:
            trace = Recording(self.traffic.columns(), covered)
            write_trace(self.folder / "trace.csv", trace, mobility, self.safe)


@contextmanager
def pages(folder: Path, source: MobilitySource, safe: bool) -> Iterator[Pages]:
    """Open the tables and the trace of a run; the tables are whole when the block ends.

    Raises
    ------
    ResultsError
        If they cannot be written.
    """
    with (
        Table(folder, "ledger", LedgerRow, safe) as ledger,
        Table(folder, "metrics", Metric, safe) as metrics,
    ):
        if isinstance(source, MadeSource):
            with Spool(folder / "trace.csv") as spool:
                yield Pages(folder, safe, ledger, metrics, spool)
        else:
            yield Pages(folder, safe, ledger, metrics, Recorder())


def write_models(folder: Path, task: Task, outcome: Outcome) -> None:
    """Write the model that was released last and, of detectors, how good all were."""
    if outcome.judged:
        write_detection(folder, outcome.judged)
        if outcome.before is not None:
            write_predictions(folder, task.show(outcome.before), task.show(outcome.model))
    write_bytes(folder / MODEL, serialise_model(outcome.model))


def conclude(
    folder: Path,
    experiment: Experiment,
    method: str,
    task: Task,
    outcome: Outcome,
    facts: Mapping[str, Any],
    safe: bool,
) -> None:
    """Write the manifest, the last file of a run.

    Parameters
    ----------
    folder : Path
        With all other files.
    experiment : Experiment
    method : str
    task : Task
    outcome : Outcome
    facts : mapping
        Further entries.
    safe : bool
        As for `pages`.
    """
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    write_manifest(
        folder,
        {
            "status": "finished",
            "method": method,
            "seed": task.streams.seed,
            "hash": spec_hash(experiment, method),
            "config": experiment.model_dump(mode="json"),
            "population_initial": outcome.population_initial,
            "subset_size": outcome.subset_size,
            "counts": dict(outcome.counts),
            "contact": asdict(outcome.contact),
            "notes": [*outcome.notes, *task.remarks()],
            "warnings": list(outcome.warnings),
            "data": {
                **task.described(),
                "pictures": sum(map(len, (*task.parts, *task.holdouts))),
                "smallest_client": min(map(len, task.parts)),
                "largest_client": max(map(len, task.parts)),
            },
            "versions": provenance.versions(),
            "commit": provenance.commit(),
            "host": provenance.host(),
            "device": str(task.device),
            **({} if safe else {SIZES: sizes}),
            **facts,
        },
        safe,
    )


def whole(folder: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the files of a run are as long as its manifest says, where it does."""
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == size
        for name, size in manifest.get(SIZES, {}).items()
    )
