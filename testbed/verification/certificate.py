"""The certificate: all parts, as values, as JSON and as a short page."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from testbed.config import Experiment, load, spec_hash
from testbed.errors import EditError, FusionError
from testbed.experiments import provenance
from testbed.files import to_json, write_text
from testbed.learning.client import prepare
from testbed.learning.task import Task
from testbed.streams import Streams
from testbed.verification.bitwise import bitwise
from testbed.verification.erasure import erasure
from testbed.verification.exact import exact
from testbed.verification.federation import plan
from testbed.verification.part import Part
from testbed.verification.statistics import law, rate
from testbed.verification.trials import Trial, trial

SCHEMA = 1
NAMES = ("exact", "law", "rate", "bitwise", "erasure")

# The task that is edited when no configuration is given: seconds, and no traffic simulator.
DEFAULTS = (
    "name=certificate",
    "data.name=digits",
    "clients.pool=12",
    "clients.initial=8",
    "learning.model=small-cnn",
    "learning.epochs=2",
    "learning.lr=0.05",
    "learning.batch=16",
)
_CHANGES = 12  # edits of the real federation
_SEQUENCES, _LENGTH, _SUBSETS = 4, 50, 400
# (M, P): the paper's scale for the law; where P / M and P / (M + 1) differ most, for the rate.
_LARGE, _SMALL = (50, 25), (6, 3)


def configured(config: Path | None, overrides: Sequence[str] = ()) -> Experiment:
    """Read the configuration; without one, take the built-in task."""
    return load(config, [*(() if config else DEFAULTS), *overrides])


def parts(experiment: Experiment) -> Iterator[Part]:
    """Verify one property after the other, for the experiment's first seed.

    Raises
    ------
    TestbedError
        If the configured task cannot be set up.
    """
    # As in every run: results must not depend on how many cores the machine has.
    torch.set_num_threads(1)
    seed = experiment.seeds[0]
    task = prepare(experiment, seed)
    plan(experiment, task.streams, _CHANGES, "edits")  # refuses a mistake before the long work
    trials = cache(partial(_trials, task.streams))
    checks: tuple[Callable[[], Part], ...] = (
        exact,
        lambda: law(trials(*_LARGE)),
        lambda: rate([trials(*_LARGE), trials(*_SMALL)]),
        lambda: bitwise(experiment, task, _CHANGES),
        lambda: _erasure(experiment, task),
    )
    for name, check in zip(NAMES, checks, strict=True):
        yield attempt(name, check)


def attempt(name: str, check: Callable[[], Part]) -> Part:
    """Verify one property; an edit or a fusion that ends with an error fails it."""
    try:
        return check()
    except (EditError, FusionError) as error:
        return Part(name, False, f"It ended with an error: {error}.", {})


def _trials(streams: Streams, M: int, P: int) -> list[Trial]:
    return [trial(streams, number, M, P, _LENGTH, _SUBSETS) for number in range(_SEQUENCES)]


def _erasure(experiment: Experiment, task: Task) -> Part:
    with TemporaryDirectory(prefix="testbed-verify-") as work:
        return erasure(experiment, task, _CHANGES, Path(work))


def certificate(experiment: Experiment, verified: Sequence[Part]) -> dict[str, Any]:
    """Return the certificate as values that JSON can hold; equal seeds give equal ones."""
    return {
        "schema": SCHEMA,
        "passed": all(part.passed for part in verified),
        "seed": experiment.seeds[0],
        "hash": spec_hash(experiment),
        "config": experiment.model_dump(mode="json"),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "parts": [asdict(part) for part in verified],
    }


def write(out: Path, experiment: Experiment, verified: Sequence[Part]) -> None:
    """Write ``certificate.json`` and ``certificate.md``.

    Raises
    ------
    ResultsError
        If the folder cannot be written.
    """
    values = certificate(experiment, verified)
    write_text(out / "certificate.json", to_json(values))
    write_text(out / "certificate.md", to_markdown(values))


def to_markdown(values: dict[str, Any]) -> str:
    """Render the certificate as a page that stands on its own."""
    rows = [
        f"| {part['name']} | {'passed' if part['passed'] else '**FAILED**'} | {part['sentence']} |"
        for part in values["parts"]
    ]
    verdict = (
        "Every part passed: in this configuration an edited model is distributed as a retrained "
        "one, and its state is the same to the last bit."
        if values["passed"]
        else "At least one part failed: the edits are **not** exact."
    )
    return "\n".join(
        [
            "# Certificate of exact editing",
            "",
            verdict,
            "",
            "| part | result | finding |",
            "|---|---|---|",
            *rows,
            "",
            f"Seed {values['seed']}, configuration {values['hash']}, "
            f"testbed {values['versions']['fsosa-testbed']}, "
            f"PyTorch {values['versions']['torch']}, commit {values['commit'] or 'unknown'}. "
            "All numbers are in `certificate.json`; the same seed gives the same file.",
            "",
        ]
    )
