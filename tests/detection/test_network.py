"""YOLOv8 as a network: its weights, its loss, what it finds, and what its import leaves."""

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed.errors import ConfigError
from testbed.learning.detection import network
from testbed.learning.detection.network import MODELS, boxes_of, build, loss

pytestmark = pytest.mark.usefixtures("yolo")

BOXES = torch.tensor([[0, 1, 0.5, 0.5, 0.3, 0.4], [1, 2, 0.4, 0.6, 0.7, 0.5]])


def pictures(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """A detector whose normalisation layers are not as they are made."""
    made = build("yolov8n", 10, 0)
    with torch.no_grad():
        for index, layer in enumerate(made.modules()):
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.fill_(0.01 * (index % 7))
                layer.running_var.fill_(0.5 + 0.1 * (index % 5))
    return made


def test_the_seed_determines_the_weights():
    one, same, other = (build("yolov8n", 10, seed).state_dict() for seed in (1, 1, 2))
    assert len(one) == 355
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["model.0.conv.weight"], other["model.0.conv.weight"])


def test_building_leaves_the_callers_randomness_alone():
    def states() -> tuple[list[int], str, object]:
        return (
            torch.get_rng_state().tolist(),
            str(np.random.get_state()),  # noqa: NPY002
            random.getstate(),
        )

    before = states()
    build("yolov8n", 10, 1)
    assert states() == before


@pytest.mark.parametrize(("name", "parameters"), [("yolov8n", 3_157_200), ("yolov8s", 11_166_560)])
def test_with_the_classes_of_coco_it_has_the_published_size(name, parameters):
    assert sum(weight.numel() for weight in build(name, 80, 0).parameters()) == parameters


def test_every_model_is_another_scale_of_one_layout():
    assert tuple(f"yolov8{scale}" for scale in "nsmlx") == MODELS
    widths = {}
    for name in ("yolov8n", "yolov8s", "yolov8m"):
        widths[name] = len(build(name, 10, 0).state_dict()["model.0.conv.weight"])
    assert widths == {"yolov8n": 16, "yolov8s": 32, "yolov8m": 48}


def test_strides_biases_and_normalisation_are_set():
    model = build("yolov8n", 10, 0)
    assert model.stride.tolist() == [8, 16, 32]
    for level, stride in enumerate((8, 16, 32)):
        # An object in a hundred cells of a 640-pixel picture, spread over 80 classes.
        expected = math.log(5 / 10 / (640 / stride) ** 2)
        head = model.state_dict()[f"model.22.cv3.{level}.2.bias"]
        assert torch.allclose(head, torch.full((10,), expected))
        assert torch.equal(
            model.state_dict()[f"model.22.cv2.{level}.2.bias"], torch.full((64,), 2.0)
        )
    layers = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    assert {(layer.eps, layer.momentum) for layer in layers} == {(1e-3, 0.03)}


def test_a_file_of_its_name_in_the_working_folder_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "yolov8n.yaml").write_text("nc: 1\nbackbone: []\nhead: []\n")
    (tmp_path / "yolov8.yaml").write_text("nc: 1\nbackbone: []\nhead: []\n")
    monkeypatch.chdir(tmp_path)
    assert len(build("yolov8n", 10, 0).state_dict()) == 355


def test_without_boxes_the_loss_is_that_of_the_background(model):
    model.eval()
    x = pictures(3)
    scores = model(x)[1]["scores"]
    # Binary cross-entropy against zero, weighed 0.5, over a sum of targets of at least one,
    # times the number of pictures.
    expected = 3 * 0.5 * functional.softplus(scores).sum()
    assert torch.allclose(loss(model, x, BOXES[:0]), expected, rtol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_is_ultralytics_own(model, training):
    model.train(training)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x = pictures(2)
    batch = {"img": x, "batch_idx": BOXES[:, 0], "cls": BOXES[:, 1], "bboxes": BOXES[:, 2:]}
    expected = model.loss(batch)[0]
    assert expected.shape == (3,)
    assert (expected > 0).all()
    model.load_state_dict(state)
    total = loss(model, x, BOXES)
    assert total.shape == ()
    assert torch.allclose(total, expected.sum(), rtol=1e-6)


def test_the_loss_counts_every_picture(model):
    model.eval()
    # Boxes so large that the sum of target scores is above one, its least value as a divisor.
    x, one = pictures(1), torch.tensor([[0, each, 0.5, 0.5, 1, 1] for each in range(10)])
    other = one + torch.eye(6)[0]
    twice = loss(model, x.expand(2, -1, -1, -1), torch.cat([one, other]))
    assert torch.allclose(twice, 2 * loss(model, x, one), rtol=1e-5)


def test_all_weights_but_the_constant_ones_have_a_gradient(model):
    model.train()
    model.zero_grad()
    loss(model, pictures(2), BOXES).backward()
    without = [name for name, weight in model.named_parameters() if weight.grad is None]
    assert without == ["model.22.dfl.conv.weight"]
    model.zero_grad()


def test_under_autocast_the_loss_itself_is_exact(model):
    model.eval()
    x = pictures(2)
    with torch.autocast("cpu", torch.bfloat16):
        predicted = model(x)[1]
        assert predicted["scores"].dtype == torch.bfloat16
        total = loss(model, x, BOXES)
    assert total.dtype == torch.float32
    exact = loss(model, x, BOXES)
    assert torch.allclose(total, exact, rtol=0.05)
    assert not torch.equal(total, exact)


# cx, cy, w, h and a score a class.
CANDIDATES = (
    [10, 10, 8, 8, 0.9, 0.0],
    [10, 10, 8, 7, 0.8, 0.0],  # overlaps the first by 7/8, of the same class
    [10, 10, 8, 4, 0.7, 0.0],  # by 1/2, which is no more than 0.7
    [30, 30, 4, 6, 0.3, 0.6],  # counts for both classes
    [50, 50, 4, 4, 0.0005, 0.0],
)


def answers(pictures: int) -> Tensor:
    """The same candidates for each picture."""
    return torch.tensor(CANDIDATES).T.expand(pictures, -1, -1).clone()


def test_what_is_detected():
    first, second = boxes_of(answers(2))
    assert torch.equal(first, second)
    expected = [
        [6, 6, 14, 14, 0.9, 0],
        [6, 8, 14, 12, 0.7, 0],
        [28, 27, 32, 33, 0.6, 1],
        [28, 27, 32, 33, 0.3, 0],
    ]
    assert torch.allclose(first, torch.tensor(expected))


def test_confidence_overlap_and_number_of_detections_can_be_set():
    def found(**settings: float) -> list[float]:
        (boxes,) = boxes_of(answers(1), **settings)
        return [round(score, 4) for score in boxes[:, 4].tolist()]

    assert found(confidence=0.0001) == [0.9, 0.7, 0.6, 0.3, 0.0005]
    assert found(confidence=0.65) == [0.9, 0.7]
    assert found(iou=0.4) == [0.9, 0.6, 0.3]
    assert found(iou=0.9) == [0.9, 0.8, 0.7, 0.6, 0.3]
    assert found(most=2) == [0.9, 0.7]
    assert found(confidence=0.95) == []


def test_a_slow_machine_drops_no_picture(monkeypatch):
    from ultralytics.utils import nms

    clock = iter(range(0, 10**9, 10**6))
    monkeypatch.setattr(nms.time, "time", lambda: next(clock))
    found = boxes_of(answers(4))
    assert [len(boxes) for boxes in found] == [4, 4, 4, 4]


def test_what_is_detected_needs_no_gradient_and_keeps_the_model(model):
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = pictures(2)
    found = boxes_of(model(x)[0])
    assert not model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    for boxes in found:
        assert not boxes.requires_grad
        assert boxes.shape[1] == 6
        assert (boxes[:, 4].diff() <= 0).all()
        assert set(boxes[:, 5].tolist()) <= set(range(10))
    # The anchors it keeps may take part in a backward pass.
    loss(model, x, BOXES).backward()
    model.zero_grad()


def test_without_ultralytics_one_line_says_what_to_install(monkeypatch):
    network._library.cache_clear()
    monkeypatch.setitem(sys.modules, "ultralytics", None)
    with pytest.raises(ConfigError) as caught:
        build("yolov8s", 10, 0)
    assert str(caught.value) == (
        "learning.model: 'yolov8s' needs the extra yolo; install it with: "
        "pip install 'fsosa-testbed[yolo]'"
    )
    monkeypatch.undo()
    assert len(build("yolov8n", 10, 0).state_dict()) == 355


def test_a_users_own_settings_folder_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    with network._contained():
        assert os.environ["YOLO_CONFIG_DIR"] == str(tmp_path)
    assert tmp_path.is_dir()
    monkeypatch.delenv("YOLO_CONFIG_DIR")
    with network._contained():
        lent = Path(os.environ["YOLO_CONFIG_DIR"])
        assert lent.is_dir()
    assert not lent.exists()
    assert "YOLO_CONFIG_DIR" not in os.environ


ALONE = """
import os, signal, socket, sys, warnings
import numpy, PIL.Image, torch

def refuse(*_, **__):
    raise AssertionError("the network was used")

socket.socket.connect = socket.getaddrinfo = refuse
from testbed.learning.detection import network
assert "ultralytics" not in sys.modules

def shown():
    return {
        "environment": {k: v for k, v in os.environ.items() if not k.startswith("YOLO_")},
        "formats": (numpy.get_printoptions(), vars(torch._tensor_str.PRINT_OPTS).copy()),
        "replaced": (torch.save, torch.load, PIL.Image.open),
        "threads": torch.get_num_threads(),
        "warnings": list(warnings.filters),
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
        "stdout": sys.stdout,
        "random": torch.get_rng_state().tolist(),
    }

before = shown()
model = network.build("yolov8n", 10, 0)
network.boxes_of(model.eval()(torch.zeros(1, 3, 64, 64))[0])
assert "ultralytics" in sys.modules
after = shown()
assert before == after, [key for key in before if before[key] != after[key]]
print({k: v for k, v in sorted(os.environ.items()) if k.startswith("YOLO_")})
"""


def test_its_import_leaves_no_trace(tmp_path):
    home, temporary, here = (tmp_path / name for name in ("home", "temporary", "here"))
    for folder in (home, temporary, here):
        folder.mkdir()
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("YOLO_", "XDG_"))
    }
    environment |= {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "YOLO_VERBOSE": "1",
    }
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", ALONE],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    # What the user has set is left, the rest keeps ultralytics off the network.
    assert done.stdout.splitlines()[-1] == str(
        {"YOLO_AUTOINSTALL": "0", "YOLO_OFFLINE": "1", "YOLO_VERBOSE": "1"}
    )
    left = [path for folder in (home, temporary, here) for path in folder.rglob("*")]
    assert [path for path in left if not path.name.startswith("torchinductor_")] == []  # torch's
