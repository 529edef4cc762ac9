"""Small data sets under the names that the cards ask for."""

from pathlib import Path

import numpy as np
from drawn import make

_SHAPES = {"mnist": (28, 28), "svhn": (32, 32, 3), "cifar10": (32, 32, 3)}
_WRITERS, _CLASSES = 90, 62


def places(folder: Path, train: int = 6000, test: int = 500) -> list[str]:
    """Make a bundle of each; return ``NAME=PLACE`` of all, bdd100k included."""
    rng = np.random.default_rng(0)
    given = []
    for name, shape in _SHAPES.items():
        y, y_test = np.arange(train) % 10, np.arange(test) % 10
        _bundle(folder, name, rng, shape, y, y_test)
        given.append(_settings(folder, name))
    writers = np.repeat(np.arange(_WRITERS), train // _WRITERS + 1)[:train]
    classes = np.arange(train) % _CLASSES, np.arange(test) % _CLASSES
    _bundle(folder, "femnist", rng, (28, 28), *classes, writer_train=writers.astype(str))
    given.append(_settings(folder, "femnist"))
    images, labels, test_images, test_labels = make(folder / "drawn", train=48, test=8)
    (folder / "bdd100k.yaml").write_text(
        f"data: {{path: {images}, labels: {labels}, "
        f"test_path: {test_images}, test_labels: {test_labels}}}\n"
    )
    return [*given, f"bdd100k={folder / 'bdd100k.yaml'}"]


def _bundle(folder, name, rng, shape, y, y_test, **more) -> None:  # type: ignore[no-untyped-def]
    """Write pictures whose brightness tells their class, with noise."""

    def pictures(labels: np.ndarray) -> np.ndarray:
        noise = rng.integers(0, 100, size=(len(labels), *shape))
        level = (labels * 155 // labels.max()).reshape(-1, *[1] * len(shape))
        return (noise + level).astype(np.uint8)

    np.savez(
        folder / f"{name}.npz",
        x_train=pictures(y),
        y_train=y.astype(np.uint8),
        x_test=pictures(y_test),
        y_test=y_test.astype(np.uint8),
        **more,
    )


def _settings(folder: Path, name: str) -> str:
    place = folder / f"{name}.yaml"
    place.write_text(f"data: {{name: npz, path: {folder / name}.npz}}\n")
    return f"{name}={place}"
