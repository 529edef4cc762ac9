"""A contact sheet of an edit: labels, and what the models before and after it found."""

import json
from pathlib import Path

from bdd100k_tools import Frame, OutputError, PredictionError, ToolsError, read
from bdd100k_tools.contact import draw_sheet
from bdd100k_tools.predictions import Detections, read_predictions
from testbed.errors import DataError, ResultsError
from testbed.experiments.detection import AFTER, BEFORE
from testbed.experiments.rundir import Run, read_run
from testbed.experiments.validation import damaged
from testbed.reporting.comparison import manifest_value


def draw_edit_sheet(folder: Path, out: Path) -> Path:
    """Draw what a run's detector found before and after the last edit.

    Parameters
    ----------
    folder : Path
        Of the run.  The test pictures and their labels must still be where it found them.
    out : Path
        Folder of the drawing, ``edit-<request>.png``, whose path is returned.

    Raises
    ------
    ResultsError
        If the run is damaged or changed no detector, or `out` cannot be written.
    DataError
        If pictures or labels are not there any more.
    """
    run = read_run(folder)
    for name in (BEFORE, AFTER):
        if not (folder / name).is_file():
            raise ResultsError(
                f"{folder}: no {name}, so there is no edit to show; name the folder of a run in "
                "which a request changed a detector"
            )
    names = _names(folder / AFTER)
    frames = _frames(run, names)
    request = max(run.metrics.loc[run.metrics["triggered"], "request"], default=0)
    found = {
        f"before request {request}": _found(folder / BEFORE, names),
        f"after request {request}": _found(folder / AFTER, names),
    }
    path = out / f"edit-{request}.png"
    try:
        draw_sheet(frames, _place(run, "test_path"), path, found, least_score=0.0)
    except OutputError as error:
        raise ResultsError(str(error)) from error
    except ToolsError as error:
        raise _gone(run, error) from error
    return path


def _names(path: Path) -> list[str]:
    """Return the names of the pictures that predictions were made on."""
    try:
        names = [str(frame["name"]) for frame in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise damaged(path, f"no predictions: {error}") from error
    if not names:
        raise damaged(path, "no pictures")
    return names


def _found(path: Path, names: list[str]) -> Detections:
    try:
        return read_predictions(path, names)[0]
    except PredictionError as error:
        raise damaged(path, error) from error


def _frames(run: Run, names: list[str]) -> list[Frame]:
    """Return the labels of pictures, in the order of their names."""
    path = _place(run, "test_labels")
    try:
        known = {frame.name: frame for frame in read(path) if frame.name in names}
    except ToolsError as error:
        raise _gone(run, error) from error
    for name in names:
        if name not in known:
            raise _gone(run, f"{path} has no labels of {name}")
    return [known[name] for name in names]


def _place(run: Run, key: str) -> Path:
    return Path(str(manifest_value(run, "config", "data", key)))


def _gone(run: Run, what: object) -> DataError:
    return DataError(
        f"{what}; the sheet of {run.folder} needs the test pictures and labels where the run "
        "found them, put them back or draw it from the same working folder"
    )
