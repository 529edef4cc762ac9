"""What a run measures of its released models: accuracy, mAP, or nothing."""

from collections.abc import Iterable
from dataclasses import dataclass

from testbed.experiments.rundir import Run


@dataclass(frozen=True)
class Measure:
    """A measure of a released model's quality, a share.

    Attributes
    ----------
    column : str
        Of the metrics.
    figure : str
        Name of the figure over the requests.
    name : str
        As printed.
    caption : str
        What the figure shows, one sentence.
    """

    column: str
    figure: str
    name: str
    caption: str


ACCURACY = Measure(
    "accuracy",
    "accuracy",
    "accuracy",
    "Accuracy on the test set of the model released after each request.",
)
MAP = Measure(
    "map50_95",
    "map",
    "mAP50-95",
    "Mean average precision over IoU 0.50 to 0.95 (convention coco) on the test pictures, of "
    "the model released after each request.",
)


def measure(runs: Iterable[Run]) -> Measure | None:
    """Return what the runs measure; None where nothing was trained."""
    runs = tuple(runs)
    for each in (ACCURACY, MAP):
        if all(run.metrics[each.column].notna().all() for run in runs):
            return each
    return None
