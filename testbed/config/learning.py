"""What clients learn from, how, and what they send."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from testbed.config.base import NonNegative, Positive, Section, Share, filled


class DataConfig(Section):
    """Which pictures are learned from and how they are spread over the clients."""

    name: Literal[
        "digits",
        "mnist",
        "fashion-mnist",
        "cifar10",
        "svhn",
        "femnist",
        "npz",
        "folder",
        "bdd100k",
    ] = "digits"
    path: Path | None = Field(None, description="file or folder with the official files")
    labels: Path | None = Field(None, description="bdd100k: label file of the pictures in path")
    test_path: Path | None = Field(None, description="bdd100k: folder of the test pictures")
    test_labels: Path | None = Field(None, description="bdd100k: label file of those")
    limit: int | None = Field(
        None, ge=1, description="pictures to learn from, by class or name; default: all"
    )
    test_limit: int | None = Field(None, ge=1, description="the same of the test pictures")
    users: float = Field(1.0, gt=0, le=1, description="share of a data set's writers to use")
    partition: Literal[
        "dirichlet", "dirichlet-classes", "iid", "shards", "writers", "attribute"
    ] = "dirichlet"
    alpha: Positive = Field(0.5, description="Dirichlet concentration")
    attribute: Literal["class", "weather", "scene", "timeofday"] = Field(
        "class", description="bdd100k: what Dirichlet draws, shards and attribute go by"
    )
    shards: int = Field(2, ge=1, description="shards a client gets when partition is shards")
    minimum: int = Field(2, ge=1, description="least number of samples per client")
    holdout: float = Field(
        0.1, ge=0, lt=1, description="share of its samples that a client never trains on"
    )
    test_share: float = Field(
        0.2, gt=0, lt=1, description="test share where the data set has no official test part"
    )


class LearningConfig(Section):
    """The local training recipe, the same for every client."""

    model: Literal[
        "auto",
        "lenet",
        "cnn",
        "small-cnn",
        "femnist-cnn",
        "resnet18",
        "resnet18-batchnorm",
        "resnet18-plain",
        "mlp",
        "yolov8n",
        "yolov8s",
        "yolov8m",
        "yolov8l",
        "yolov8x",
    ] = "auto"
    width: int = Field(512, ge=1, le=1_000_000, description="hidden units of the model mlp")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where clients train; auto takes CUDA where there is one"
    )
    epochs: int = Field(30, ge=1)
    lr: Positive = 0.01
    batch: int = Field(64, ge=1)
    momentum: float = Field(0.9, ge=0, lt=1)


class FisherConfig(Section):
    """Which Fisher information a client uploads."""

    kind: Literal["kfac", "diagonal"] = "kfac"
    estimator: Literal["exact", "sampled", "empirical"] = "exact"
    upload: Literal["full", "half", "low-rank"] = Field(
        "full", description="form in which the Fisher is sent"
    )
    rank: int = Field(32, ge=1, description="rank kept by the low-rank form")


# `robust` was chosen on Fashion-MNIST and confirmed elsewhere, see docs/fusion.md; `paper`
# is the plain Fisher with just enough damping to be solvable.
PRESETS: dict[str, dict[str, Any]] = {
    "robust": {
        "temper": 0.55,
        "temper_inputs": 0.8,
        "normalise": 0.4,
        "shrink": 0.75,
        "damping": 0.2,
        "output_damping": 1.0,
    },
    "paper": {
        "temper": 1.0,
        "temper_inputs": 1.0,
        "normalise": 0.0,
        "shrink": 1.0,
        "damping": 1e-4,
        "output_damping": 1e-4,
    },
}


class FusionConfig(Section):
    """How contributions are conditioned and projected onto {F W = b}."""

    preset: Literal["robust", "paper"] = Field(
        "robust", description="fills the next six keys where they are not given"
    )
    temper: float = Field(0.55, gt=0, le=1, description="p: clients upload G^p, or f^p")
    temper_inputs: float = Field(0.8, gt=0, le=1, description="a: clients upload A^a")
    normalise: Share = Field(0.4, description="q: blocks are divided by their mean diagonal^q")
    shrink: Share = Field(0.75, description="s: off-diagonal entries of A are multiplied by s")
    damping: NonNegative = Field(0.2, description="c in tau = c tr(F) / n, per layer")
    output_damping: NonNegative = Field(1.0, description="c of the output layer")
    rtol: float = Field(1e-6, gt=0, lt=1, description="relative residual at which CG stops")
    max_iterations: int = Field(2000, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        return filled(given, PRESETS, "robust")
