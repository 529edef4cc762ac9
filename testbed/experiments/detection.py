"""What the run of a detector keeps beside ledger and metrics.

``detection.csv`` has the average precision of every released model, by convention, class and
attribute.  ``predictions/before.json`` and ``predictions/after.json`` have what the models
before and after the last edit found on a few test pictures, as Scalabel frames.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bdd100k_tools.classes import CLASSES
from bdd100k_tools.evaluation import CONVENTIONS
from testbed.experiments.rundir import Run, write_table
from testbed.experiments.validation import damaged
from testbed.files import to_json, write_text
from testbed.simulation.metric import Judged

Frame = Mapping[str, Any]

TABLE = "detection"
BEFORE, AFTER = "predictions/before.json", "predictions/after.json"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``detection.csv``: one figure of one released model.

    Attributes
    ----------
    request : int
        After which the model was released; 0 for the initial training, the last of a batch.
    convention : {"coco", "bdd100k", "ultralytics"}
    group : str
        ``"all"`` test pictures, or those of an attribute's value as in ``"timeofday=night"``.
    category : str
        A class, or ``"all"``: the mean over the classes that have boxes.
    pictures, n : int
        Pictures of the group, and boxes on them that are not crowd.
    map50_95, map50 : float
        Average precision over IoU 0.50 to 0.95, and at 0.5; NaN without a box.
    """

    request: int
    convention: str
    group: str
    category: str
    pictures: int
    n: int
    map50_95: float
    map50: float


COLUMNS = tuple(Row.__dataclass_fields__)


def write_detection(folder: Path, judged: Sequence[Judged]) -> None:
    """Write ``detection.csv`` and ``.parquet`` of a run that released the `judged` models."""
    rows = [
        Row(
            one.request,
            detail.convention,
            detail.group,
            detail.category,
            detail.pictures,
            detail.n,
            detail.ap,
            detail.ap50,
        )
        for one in judged
        for detail in one.details
    ]
    write_table(folder, TABLE, rows, COLUMNS)


def write_predictions(folder: Path, before: Sequence[Frame], after: Sequence[Frame]) -> None:
    """Write what the models before and after the last edit found on the same pictures."""
    for name, frames in ((BEFORE, before), (AFTER, after)):
        write_text(folder / name, to_json(frames))


def read_detection(run: Run) -> pd.DataFrame | None:
    """Return a run's table, the columns of `Row`; None if it released no detector.

    Raises
    ------
    ResultsError
        If the table is missing, damaged, or does not fit the metrics.
    """
    if run.metrics["map50_95"].isna().all():
        return None
    path = run.folder / f"{TABLE}.parquet"
    if not path.is_file():
        raise damaged(path, "missing")
    try:
        frame = pd.read_parquet(path)
    except Exception as error:  # damaged bytes make pandas and pyarrow raise almost anything
        raise damaged(path, error) from error
    _check_columns(path, frame)
    _check_values(path, frame)
    _check_releases(path, frame, run.metrics)
    return frame


def _check_columns(path: Path, frame: pd.DataFrame) -> None:
    if tuple(frame.columns) != COLUMNS:
        raise damaged(path, f"columns are {', '.join(map(str, frame.columns))}")
    for name, kind in Row.__annotations__.items():
        values = frame[name]
        text = values.dtype != object and pd.api.types.is_string_dtype(values)
        if not (text if kind is str else values.dtype.kind == {int: "i", float: "f"}[kind]):
            raise damaged(path, f"{name} has the type {values.dtype}")


def _check_values(path: Path, frame: pd.DataFrame) -> None:
    """Refuse the first row with a value that cannot be."""
    known = frame["n"] > 0
    fine = {
        "convention": frame["convention"].isin(CONVENTIONS),
        "category": frame["category"].isin(["all", *CLASSES]),
        "group": ~frame.duplicated(["request", "convention", "group", "category"]),
        "pictures": frame["pictures"] > 0,
        "n": frame["n"] >= 0,
        # There is a value exactly where there is a box.
        **{
            name: (frame[name].between(0, 1) & known) | (frame[name].isna() & ~known)
            for name in ("map50_95", "map50")
        },
    }
    for name, right in fine.items():
        if not right.all():
            row = int((~right).to_numpy().argmax())
            raise damaged(path, f"{name} cannot be {frame[name].iloc[row]} in row {row}")


def _check_releases(path: Path, frame: pd.DataFrame, metrics: pd.DataFrame) -> None:
    """Refuse a table whose requests or mAP are not those of the metrics."""
    scores = overall(frame, "coco")["map50_95"]
    released = metrics[metrics["triggered"]].set_index("request")["map50_95"]
    # The members of a batch share one release, which is judged with the last of them.
    needed = {0, *released.index[-1:]}
    if not needed <= set(scores.index) <= set(released.index):
        raise damaged(path, "its requests are not those that released a model")
    if not np.array_equal(scores, released[scores.index]):
        raise damaged(path, "its mAP50-95 are not those of the metrics")
    for convention in CONVENTIONS:
        if not overall(frame, convention).index.equals(scores.index):
            raise damaged(path, f"no mAP by {convention} after some requests")


def overall(frame: pd.DataFrame, convention: str) -> pd.DataFrame:
    """Return the rows over all classes and pictures by one convention, indexed by request."""
    chosen = (
        (frame["convention"] == convention)
        & (frame["group"] == "all")
        & (frame["category"] == "all")
    )
    return frame[chosen].set_index("request")
