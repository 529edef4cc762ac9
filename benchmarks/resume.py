"""What it costs that a run can be killed at any moment, and what going on costs.

The quickstart with FedEraser beside F-SOSA, whose every round is another training, is run with
the journal and the store that a run keeps, and without; then it is stopped at its very end and
started again, when all answers are known.  Ratios of seconds, by turns, the median of each.
Usage: python benchmarks/resume.py
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from testbed.config import Experiment, load
from testbed.experiments import run as running
from testbed.experiments.run import run

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "quickstart.yaml"
SETTINGS = ("editing.methods=fsosa,federaser",)
TURNS = 3
GOAL = 1.1
RUN = "testbed.experiments.run"


@contextmanager
def unjournalled(*order: Any) -> Iterator[tuple[Any, None]]:
    """Answer orders without a journal."""
    yield order[-1], None


def seconds(experiment: Experiment, out: Path) -> float:
    """Run what is not finished in a folder; return how long that took."""
    begin = time.perf_counter()
    for _ in run(experiment, out):
        pass
    return time.perf_counter() - begin


def stopped(experiment: Experiment, out: Path) -> float:
    """Stop a run before its manifest is written; return how long the rest took."""
    one = experiment.model_copy(
        update={"editing": experiment.editing.model_copy(update={"methods": ("federaser",)})}
    )
    with (
        patch.object(running, "conclude", side_effect=KeyboardInterrupt),
        suppress(KeyboardInterrupt),
    ):
        seconds(one, out)
    return seconds(one, out)


def main() -> None:
    """Print seconds and ratios."""
    experiment = load(CONFIG, SETTINGS)
    kept, plain, again = [], [], []
    with tempfile.TemporaryDirectory() as place:
        seconds(experiment, Path(place, "warm"))
        for turn in range(TURNS):
            kept.append(seconds(experiment, Path(place, f"kept-{turn}")))
            with (
                patch(f"{RUN}.journalled", unjournalled),
                patch(f"{RUN}.with_store", lambda wanted, out: wanted),
            ):
                plain.append(seconds(experiment, Path(place, f"plain-{turn}")))
        again.append(stopped(experiment, Path(place, "stopped")))
    print(f"without  {median(plain):6.1f} s")
    print(f"with     {median(kept):6.1f} s   ratio {median(kept) / median(plain):.3f}")
    print(f"again    {median(again):6.1f} s   FedEraser, whose answers are all known")
    print(f"goal: at most {GOAL} of a run without")


if __name__ == "__main__":
    main()
