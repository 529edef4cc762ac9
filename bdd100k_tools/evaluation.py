"""Mean average precision, under three stated conventions.

The same predictions score differently under each, by about a point; a value without its
convention cannot be compared with anything.
"""

import contextlib
import importlib
import io
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bdd100k_tools import interpolated
from bdd100k_tools.classes import CLASSES
from bdd100k_tools.coco import CATEGORIES, Pixels, annotation
from bdd100k_tools.errors import EvaluationError
from bdd100k_tools.labels import Frame
from bdd100k_tools.partition import UNDEFINED
from bdd100k_tools.predictions import Detections

Convention = Literal["coco", "bdd100k", "ultralytics"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)

STATEMENTS = MappingProxyType(
    {
        "coco": (
            "COCO: IoU 0.50:0.05:0.95, 101 recall points, at most 100 detections per picture "
            "and class, crowd neither rewards nor punishes, a box is x2-x1 wide"
        ),
        "bdd100k": (
            "official BDD100K toolkit: as COCO, but boxes and predictions are both one pixel "
            "larger, x2-x1+1 wide"
        ),
        "ultralytics": (
            "as Ultralytics 8.4 validates: area under the interpolated precision envelope, at "
            "most 300 detections per picture with scores of 0.001 or more, crowd boxes taken away"
        ),
    }
)
"""What a value under each convention means."""

_METRICS = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")


@dataclass(frozen=True, slots=True)
class ClassScore:
    """One class: its boxes that are not crowd, AP over all IoU thresholds, and at 0.5.

    Both scores are NaN if there is no box: nothing can be said.
    """

    category: str
    n: int
    ap: float
    ap50: float


@dataclass(frozen=True)
class Evaluation:
    """The scores of a set of predictions.

    Attributes
    ----------
    convention : str
    engine : str
        The library that computed them, with its version.
    pictures, boxes, crowd, detections : int
        What was compared; `boxes` are without the `crowd`.
    numbers : mapping of str to float
        ``AP`` (mAP50-95), ``AP50``, ``AP75``; but for ``ultralytics`` all twelve of COCO.
        Means over the classes that have boxes, NaN if there is none.
    classes : tuple of ClassScore
        Always all ten, in the official order.
    """

    convention: Convention
    engine: str
    pictures: int
    boxes: int
    crowd: int
    detections: int
    numbers: Mapping[str, float]
    classes: tuple[ClassScore, ...]

    @property
    def map50_95(self) -> float:
        """Mean AP over IoU 0.50 to 0.95."""
        return self.numbers["AP"]

    @property
    def map50(self) -> float:
        """Mean AP at IoU 0.50."""
        return self.numbers["AP50"]

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values, None for NaN."""
        return {
            "convention": self.convention,
            "statement": STATEMENTS[self.convention],
            "engine": self.engine,
            "pictures": self.pictures,
            "boxes": self.boxes,
            "crowd": self.crowd,
            "detections": self.detections,
            "numbers": {name: _or_none(value) for name, value in self.numbers.items()},
            "classes": {
                score.category: {
                    "n": score.n,
                    "ap": _or_none(score.ap),
                    "ap50": _or_none(score.ap50),
                }
                for score in self.classes
            },
        }


def evaluate(
    frames: Sequence[Frame], detections: Detections, convention: Convention = "coco"
) -> Evaluation:
    """Score predictions against labels.

    Parameters
    ----------
    frames : sequence of Frame
        Every picture counts, also one without predictions.
    detections : Detections
        `Detections.image` counts the places in `frames`.
    convention : {"coco", "bdd100k", "ultralytics"}

    Raises
    ------
    EvaluationError
        If there is no picture, or the evaluating library is not installed.
    """
    if not frames:
        raise EvaluationError("there is no picture to evaluate on")
    # Ties between scores are broken by picture; by name, as the official toolkit does.
    order = sorted(range(len(frames)), key=lambda place: frames[place].name)
    ranked, found = [frames[place] for place in order], detections.of(order)
    if convention == "ultralytics":
        engine, tables = "bdd100k_tools", interpolated.average_precision(ranked, found)
        numbers = {"AP": _mean(tables), "AP50": _mean(tables[0]), "AP75": _mean(tables[5])}
        ap, ap50 = tables.mean(axis=0), tables[0]
    else:
        engine, numbers, ap, ap50 = _coco(ranked, found, convention)
    n = [0] * len(CLASSES)
    crowd = 0
    for box in (box for frame in frames for box in frame.boxes):
        crowd += box.crowd
        n[box.index] += not box.crowd
    return Evaluation(
        convention,
        engine,
        len(frames),
        sum(n),
        crowd,
        len(detections),
        MappingProxyType(numbers),
        tuple(
            ClassScore(name, n[k], float(ap[k]), float(ap50[k])) for k, name in enumerate(CLASSES)
        ),
    )


def evaluate_by(
    frames: Sequence[Frame],
    detections: Detections,
    attribute: str,
    convention: Convention = "coco",
) -> dict[str, Evaluation]:
    """Score predictions apart for every value of an attribute, like night and daytime."""
    groups = defaultdict(list)
    for place, frame in enumerate(frames):
        groups[frame.attributes.get(attribute, UNDEFINED)].append(place)
    return {
        value: evaluate([frames[place] for place in places], detections.of(places), convention)
        for value, places in sorted(groups.items())
    }


def _coco(
    frames: Sequence[Frame], detections: Detections, pixels: Pixels
) -> tuple[str, dict[str, float], NDArray[np.float64], NDArray[np.float64]]:
    """Return the engine, COCO's twelve numbers, and AP and AP50 per class."""
    engine, COCO, COCOeval = _engine()
    pairs = [(image, box) for image, frame in enumerate(frames, 1) for box in frame.boxes]
    truth = COCO()
    truth.dataset = {
        "images": [{"id": image} for image in range(1, len(frames) + 1)],
        "annotations": [
            annotation(box, id_, image, pixels) for id_, (image, box) in enumerate(pairs, 1)
        ],
        "categories": list(CATEGORIES),
    }
    extra = 1.0 if pixels == "bdd100k" else 0.0
    table = np.column_stack(
        [
            detections.image + 1,
            detections.boxes[:, :2],
            detections.boxes[:, 2:] - detections.boxes[:, :2] + extra,
            detections.score,
            detections.category + 1,
        ]
    )
    present = {box.index for _, box in pairs if not box.crowd}
    if not len(table):  # which pycocotools refuses
        ap = np.array([0.0 if k in present else np.nan for k in range(len(CLASSES))])
        return engine, dict.fromkeys(_METRICS, 0.0 if present else math.nan), ap, ap
    with contextlib.redirect_stdout(io.StringIO()):  # the libraries print
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(table), "bbox")
        run.evaluate()
        run.accumulate()
    precision, recall = run.eval["precision"], run.eval["recall"]
    every = precision[:, :, :, 0, 2]  # IoU, recall, class; all areas, 100 detections
    numbers = {"AP": _valid(every), "AP50": _valid(every[0]), "AP75": _valid(every[5])}
    for area, name in enumerate(("s", "m", "l"), 1):
        numbers[f"AP{name}"] = _valid(precision[:, :, :, area, 2])
    for most, name in enumerate(("1", "10", "100")):
        numbers[f"AR{name}"] = _valid(recall[:, :, 0, most])
    for area, name in enumerate(("s", "m", "l"), 1):
        numbers[f"AR{name}"] = _valid(recall[:, :, area, 2])
    classes = range(len(CLASSES))
    ap = np.array([_valid(every[:, :, k]) for k in classes])
    return engine, numbers, ap, np.array([_valid(every[0, :, k]) for k in classes])


def _engine() -> tuple[str, Any, Any]:
    """Return the name of the library that is installed, its ``COCO`` and its ``COCOeval``."""
    with contextlib.suppress(ImportError):
        fast = importlib.import_module("faster_coco_eval")
        return f"faster-coco-eval {version('faster-coco-eval')}", fast.COCO, fast.COCOeval_faster
    try:
        data = importlib.import_module("pycocotools.coco")
        scoring = importlib.import_module("pycocotools.cocoeval")
    except ImportError:
        raise EvaluationError(
            "COCO's evaluation is not installed; pip install faster-coco-eval, or choose the "
            "convention ultralytics"
        ) from None
    return f"pycocotools {version('pycocotools')}", data.COCO, scoring.COCOeval


def _valid(values: NDArray[Any]) -> float:
    """Return the mean of what could be computed; the libraries mark the rest with -1."""
    good = values[values > -1]
    return float(good.mean()) if good.size else math.nan


def _mean(values: NDArray[np.float64]) -> float:
    good = values[~np.isnan(values)]
    return float(good.mean()) if good.size else math.nan


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
