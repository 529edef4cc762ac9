"""Learning to detect objects: the task of vehicles that train YOLOv8 on BDD100K."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bdd100k_tools import PartitionError
from bdd100k_tools.partition import entry, groups
from bdd100k_tools.partition import partition as by_value
from testbed.config import Experiment
from testbed.data import IntArray, hold_out, partition
from testbed.errors import ConfigError, DataError
from testbed.learning.blocks import State
from testbed.learning.compression import Upload
from testbed.learning.conditioning import Conditioning
from testbed.learning.detection import network, scoring, weights
from testbed.learning.detection.fisher import fisher
from testbed.learning.detection.pictures import DetectionData, boxless, load
from testbed.learning.detection.training import DetectionRecipe, train
from testbed.learning.devices import choose
from testbed.learning.evaluation import Score
from testbed.learning.factors import Factor, Kind
from testbed.learning.fisher import Estimator
from testbed.learning.models import Shape
from testbed.learning.task import ONE_SHOT, Session, Task
from testbed.streams import Streams

_PAPER_MODEL = "yolov8s"
_NAMED = 5  # so many are named where it may be all


@dataclass(frozen=True, eq=False, kw_only=True)
class Detection(Task):
    """A task whose samples are pictures with boxes.

    Attributes
    ----------
    data : DetectionData
    recipe : DetectionRecipe
    start : Mapping
        Where the initial weights come from, for a run's manifest.
    """

    data: DetectionData
    recipe: DetectionRecipe
    start: Mapping[str, Any]

    @property
    def shape(self) -> Shape:
        """Channels, height and width of a letterboxed picture."""
        channels, height, width = self.data.train.pixels.shape[1:]
        return channels, height, width

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.data.classes

    @property
    def epochs(self) -> int:
        """Epochs of the recipe."""
        return self.recipe.epochs

    def train(self, part: int, start: State, session: Session = ONE_SHOT) -> dict[str, Tensor]:
        """See `Task.train`."""
        recipe = self.recipe
        if session.epochs is not None:
            recipe = replace(recipe, epochs=session.epochs)
        rng = self.streams.rng(*session.stream(part))
        chosen = self.parts[part]
        return train(self.model, start, self.data.train, chosen, recipe, rng, self.device)

    def information(
        self, part: int, state: State, kind: Kind, estimator: Estimator
    ) -> dict[str, Factor]:
        """See `Task.information`; the estimator is always the empirical one."""
        return fisher(self.model, state, self.data.train, self.parts[part], kind, self.device)

    def score(self, state: State) -> Score:
        """See `Task.score`."""
        return scoring.score(self.model, state, self.data.test, self.device)

    def show(self, state: State) -> list[Mapping[str, Any]]:
        """See `Task.show`: detections as Scalabel frames."""
        return scoring.show(self.model, state, self.data.test, self.device)

    def few(self) -> "Detection":
        """See `Task.few`."""
        recipe = replace(self.recipe, epochs=1, lr=0.0)
        return replace(self, parts=[self.parts[0][: recipe.batch]], recipe=recipe)

    def remarks(self) -> tuple[str, ...]:
        """See `Task.remarks`."""
        made = []
        if fresh := self.start.get("reinitialised"):
            made.append(
                f"{len(fresh)} tensors are not in {self.start['weights']} and start at random: "
                f"{fresh[0]} ... {fresh[-1]}."
            )
        if skipped := self.data.skipped:
            made.append(f"{len(skipped)} pictures were left out, the first is {skipped[0]}.")
        if empty := boxless(self.data.train, self.parts):
            made.append(
                f"{len(empty)} of {len(self.parts)} clients have not a single box and learn "
                f"background: partition {', '.join(map(str, empty[:_NAMED]))}"
                f"{', ...' if len(empty) > _NAMED else '.'}"
            )
        if shared := self.data.counts["test_in_train"]:
            made.append(f"{shared} test pictures are among the training pictures.")
        return tuple(made)

    def described(self) -> Mapping[str, Any]:
        """See `Task.described`."""
        return {
            "name": self.data.name,
            "fingerprint": self.data.fingerprint,
            "counts": dict(self.data.counts),
            "skipped": list(self.data.skipped),
            "boxless": list(boxless(self.data.train, self.parts)),
            "initial": dict(self.start),
        }


def prepare(experiment: Experiment, seed: int) -> Detection:
    """Read the pictures, split them among the pool and build the initial model.

    Raises
    ------
    DataError
        If pictures or labels are missing or too few for the pool.
    ConfigError
        If the extra ``yolo`` is not installed or a weight file does not fit.
    """
    streams, learning, detection = Streams(seed), experiment.learning, experiment.detection
    name = _PAPER_MODEL if learning.model == "auto" else learning.model
    device = choose(learning.device)
    scoring.check_evaluator()
    data = _load(experiment)
    model = network.build(name, len(data.classes), streams.integer("model"))
    initial = {key: value.detach().clone() for key, value in model.state_dict().items()}
    start: dict[str, Any] = {"weights": "random"}
    if detection.weights is not None:
        fitted = weights.fit(name, initial, weights.read_weights(detection.weights))
        initial = dict(fitted.state)
        start = {
            "weights": detection.weights.name,
            "reinitialised": [*fitted.missing, *fitted.mismatched],
            "unknown": len(fitted.unknown),
        }
    parts, holdouts = hold_out(_parts(data, experiment, streams), experiment.data.holdout, streams)
    return Detection(
        data=data,
        parts=parts,
        holdouts=holdouts,
        model=model,
        initial=initial,
        start=start,
        recipe=DetectionRecipe(
            epochs=learning.epochs,
            lr=learning.lr,
            batch=learning.batch,
            momentum=learning.momentum,
            optimiser=detection.optimiser,
            augment=detection.augment,
            precision=_precision(detection.precision, device),
            compile=detection.compile and device.type == "cuda",
        ),
        kind=experiment.fisher.kind,
        estimator=experiment.fisher.estimator,
        streams=streams,
        conditioning=Conditioning.from_config(experiment.fusion),
        upload=Upload(experiment.fisher.upload, experiment.fisher.rank),
        device=device,
    )


def _load(experiment: Experiment) -> DetectionData:
    data = experiment.data
    # The schema's rule:
    assert data.path
    assert data.labels
    assert data.test_path
    assert data.test_labels
    return load(
        data.path,
        data.labels,
        data.test_path,
        data.test_labels,
        experiment.detection.size,
        experiment.execution.cache or user_cache(),
        data.limit,
        data.test_limit,
    )


def user_cache() -> Path:
    """Return the folder in which a user's programs keep what they can make again."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fsosa-testbed"


def _parts(data: DetectionData, experiment: Experiment, streams: Streams) -> tuple[IntArray, ...]:
    """Split the training pictures, each to exactly one partition."""
    config, clients = experiment.data, experiment.clients.pool
    entries = [entry(frame) for frame in data.train.frames]
    places = {each.name: place for place, each in enumerate(entries)}
    if config.partition != "attribute":
        values = np.empty(len(entries), np.int64)
        for value, names in enumerate(groups(entries, config.attribute).values()):
            values[[places[name] for name in names]] = value
        return partition(values, clients, config, streams)
    key = streams.integer("partition", "attribute")
    try:
        parts = by_value(entries, clients, config.attribute, seed=key, minimum=config.minimum)
    except PartitionError as error:
        fault = str(error).partition(";")[0]  # what follows speaks of another command's options
        raise DataError(
            f"data.partition: {config.labels}: {fault}; lower clients.pool or data.minimum"
        ) from error
    return tuple(np.array(sorted(places[name] for name in part)) for part in parts)


def _precision(name: str, device: torch.device) -> Literal["float32", "bf16"]:
    """Return the number format of the forward pass.

    Raises
    ------
    ConfigError
        If bf16 is asked for on the CPU.
    """
    if name == "bf16" and device.type == "cpu":
        raise ConfigError(
            "detection.precision: bf16 is for CUDA, and clients compute on the CPU; "
            "set it to auto or float32"
        )
    return "bf16" if name != "float32" and device.type == "cuda" else "float32"
