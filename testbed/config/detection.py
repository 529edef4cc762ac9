"""What is particular to clients that learn to detect objects."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from testbed.config.base import Section

_STRIDE = 32  # of YOLOv8's coarsest feature map
Side = Annotated[int, Field(ge=_STRIDE, le=4096, multiple_of=_STRIDE)]

DETECTORS = ("yolov8n", "yolov8s", "yolov8m", "yolov8l", "yolov8x")
DETECTION_METHODS = (
    "fsosa",
    "retrain",
    "finetune",
    "federaser",
    "fats-cu",
    "fedavg",
    "fisher-merging",
)


class DetectionConfig(Section):
    """How detectors are trained; used where data.name is bdd100k."""

    image_size: Side | tuple[Side, Side] = Field(
        640, description="height and width, multiples of 32; one number for both"
    )
    augment: Literal["none", "flip", "mosaic"] = "none"
    optimiser: Literal["sgd", "adamw"] = "sgd"
    weights: Path | None = Field(
        None, description="initial weights, .pt or .safetensors; default: random by the seed"
    )
    precision: Literal["auto", "float32", "bf16"] = Field(
        "auto", description="auto: bf16 on CUDA, float32 on the CPU"
    )
    compile: bool = Field(False, description="compile the network where it runs on CUDA")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        given = self.image_size
        return (given, given) if isinstance(given, int) else given
