"""Writing small data sets in the published formats, independently of the readers."""

import io
import json
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from testbed.config.schema import DataConfig
from testbed.data import Dataset, load_dataset
from testbed.data.faults import faults_of
from testbed.errors import DataError

IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def load(name: str, path: Path | None, **keys: object) -> Dataset:
    return load_dataset(DataConfig.model_validate({"name": name, "path": path, **keys}))


def faults(name: str, path: Path | None, **keys: object) -> tuple[str, ...]:
    """Return the lines with which a data set is refused."""
    with pytest.raises(DataError) as caught:
        load(name, path, **keys)
    assert "\n" not in str(caught.value)
    return faults_of(caught.value)


def refusal(name: str, path: Path | None, **keys: object) -> str:
    (line,) = faults(name, path, **keys)
    return line


def random_bytes(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def write_idx(folder: Path, train: int = 20, test: int = 10) -> None:
    for part, size in ((0, train), (2, test)):
        x = random_bytes(size, 28, 28, seed=part)
        y = (np.arange(size) % 10).astype(np.uint8)
        (folder / IDX_NAMES[part]).write_bytes(struct.pack(">4I", 2051, *x.shape) + x.tobytes())
        (folder / IDX_NAMES[part + 1]).write_bytes(struct.pack(">2I", 2049, size) + y.tobytes())


def cifar_batch(number: int) -> tuple[np.ndarray, list[int]]:
    """Return four pictures of 3 planes x 32 rows x 32 columns, in a row, and labels."""
    return random_bytes(4, 3072, seed=number), [(number + i) % 10 for i in range(4)]


def write_cifar_python(folder: Path) -> None:
    for number, name in enumerate(BATCHES):
        x, y = cifar_batch(number)
        batch = {b"batch_label": b"a batch", b"labels": y, b"data": x, b"filenames": [b"a"] * 4}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_cifar_binary(folder: Path) -> None:
    for number, name in enumerate(BATCHES):
        x, y = cifar_batch(number)
        records = (
            struct.pack("B", label) + row.tobytes() for row, label in zip(x, y, strict=True)
        )
        (folder / f"{name}.bin").write_bytes(b"".join(records))


def leaf_shard(users: dict[str, list[tuple[int, int]]]) -> dict[str, object]:
    """Return a shard in which a picture is one grey byte everywhere: (byte, label)."""
    return {
        "users": list(users),
        "num_samples": [len(samples) for samples in users.values()],
        "user_data": {
            user: {"x": [[grey / 255] * 784 for grey, _ in samples], "y": [y for _, y in samples]}
            for user, samples in users.items()
        },
    }


def write_leaf(folder: Path) -> None:
    shards = {
        "train/all_data_2_niid_0_keep_0_train_9.json": {
            "w9": [(10, 0), (20, 35)],
            "w1": [(30, 61)],
        },
        "train/all_data_10_niid_0_keep_0_train_9.json": {"w5": [(40, 1), (50, 2), (60, 3)]},
        "test/all_data_2_niid_0_keep_0_test_9.json": {"w1": [(70, 5)], "w7": [(80, 6)]},
        "test/all_data_10_niid_0_keep_0_test_9.json": {"w9": [(90, 7)], "w5": [(91, 8)]},
    }
    for name, users in shards.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(json.dumps(leaf_shard(users)))


def write_svhn(folder: Path, **change: np.ndarray) -> None:
    from scipy.io import savemat

    for part, size in (("train", 11), ("test", 6)):
        content = {
            "X": random_bytes(32, 32, 3, size, seed=size),
            "y": np.arange(size, dtype=np.uint8)[:, None] % 10 + 1,
        }
        savemat(folder / f"{part}_32x32.mat", content | (change if part == "train" else {}))


def write_picture(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def jpeg(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=95)
    return stream.getvalue()
