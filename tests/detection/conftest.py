"""What tests of detectors need: the library they are built with."""

from importlib.util import find_spec

import pytest
from drawn import make
from drawn_folder import Folder
from torch import Tensor, nn

from testbed.learning.detection.network import build
from testbed.learning.detection.pictures import Pictures, load


@pytest.fixture(scope="session")
def yolo() -> None:
    """Skip where the extra is not installed; without importing it, which has side effects."""
    if find_spec("ultralytics") is None:
        pytest.skip("needs the extra yolo: pip install 'fsosa-testbed[yolo]'")


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "drawn")


# --- what small trainings share


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Pictures:
    folder = tmp_path_factory.mktemp("drawn")
    return load(*make(folder, train=6, test=1), (64, 64), folder / "cache").train


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """The scratch network of all clients."""
    return build("yolov8n", 10, 9)


@pytest.fixture(scope="module")
def start() -> dict[str, Tensor]:
    return {name: value.clone() for name, value in build("yolov8n", 10, 0).state_dict().items()}
