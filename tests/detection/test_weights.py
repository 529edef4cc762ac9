"""Weight files are read as data, and fit the model they are for or are refused."""

import collections
import copy
import datetime
import os
import pathlib
import resource
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from shared_data import bundle
from torch import Tensor, nn

from testbed.errors import ConfigError
from testbed.learning.detection.network import build
from testbed.learning.detection.weights import Weights, fit, read_weights

pytestmark = pytest.mark.usefixtures("yolo")

FIRST = "model.0.conv.weight"


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """A detector that has seen something: its normalisation layers have counted."""
    made = build("yolov8n", 10, 1)
    with torch.no_grad():
        for buffer in made.buffers():
            buffer.copy_(torch.full_like(buffer, 3))
    return made


def initial(seed: int = 0, name: str = "yolov8n") -> dict[str, Tensor]:
    return {key: value.clone() for key, value in build(name, 10, seed).state_dict().items()}


def stored(path: Path, **parts: object) -> Path:
    """Write a checkpoint as ultralytics' trainer does."""
    content = {
        "date": datetime.datetime(2026, 1, 1).isoformat(),
        "epoch": -1,
        "model": None,
        "ema": None,
        "updates": None,
        "optimizer": None,
        "train_args": {"data": pathlib.PosixPath("data.yaml"), "imgsz": 640},
        "train_metrics": {"fitness": np.float64(0.1)},
        **parts,
    }
    torch.save(content, path)
    return path


def half(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).half()


def told(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_weights(path)
    line = str(caught.value)
    assert line.startswith(f"detection.weights: {path}: ")
    assert "\n" not in line
    return line


def test_a_checkpoint_of_ultralytics(tmp_path, model):
    weights = read_weights(stored(tmp_path / "last.pt", model=half(model)))
    assert weights.origin == "model"
    expected = {
        name: value.half().float() if value.is_floating_point() else value
        for name, value in model.state_dict().items()
    }
    assert list(weights.tensors) != []
    assert set(weights.tensors) == set(expected)
    for name, value in weights.tensors.items():
        assert value.dtype in (torch.float32, torch.int64)
        assert value.is_contiguous()
        assert torch.equal(value, expected[name])
    fitted = fit("yolov8n", initial(), weights)
    assert (fitted.missing, fitted.mismatched, fitted.unknown) == ((), (), ())
    assert all(torch.equal(fitted.state[name], value) for name, value in expected.items())


def test_the_running_mean_is_taken_where_there_is_one(tmp_path, model):
    mean = half(model)
    with torch.no_grad():
        mean.model[0].conv.weight.fill_(0.25)
    weights = read_weights(stored(tmp_path / "best.pt", model=half(model), ema=mean))
    assert weights.origin == "ema"
    assert (weights.tensors[FIRST] == 0.25).all()


def test_what_unsafe_loading_gives_is_what_is_read(tmp_path, model):
    trained = copy.deepcopy(model).to(memory_format=torch.channels_last)
    trained.register_buffer("step", torch.arange(6)[::2])
    trained.model[0].conv.weight.data = trained.model[0].conv.weight.data.bfloat16()
    trained.model[1].conv.weight.data = trained.model[1].conv.weight.data.double()
    path = stored(tmp_path / "x.pt", model=trained)
    expected = torch.load(path, weights_only=False)["model"].state_dict()
    tensors = read_weights(path).tensors
    assert set(tensors) == set(expected)
    for name, value in expected.items():
        assert torch.equal(tensors[name], value.float() if value.is_floating_point() else value)
    assert tensors["step"].tolist() == [0, 2, 4]


@pytest.mark.parametrize("nested", [True, False])
def test_a_state_dict_alone(tmp_path, model, nested):
    path = tmp_path / "state.pt"
    state = model.state_dict()
    torch.save({"model": state} if nested else state, path)
    weights = read_weights(path)
    assert weights.origin == ("model" if nested else "tensors")
    assert torch.equal(weights.tensors[FIRST], state[FIRST])


def test_a_network_alone(tmp_path, model):
    torch.save(model, tmp_path / "net.pt")
    weights = read_weights(tmp_path / "net.pt")
    assert weights.origin == "model"
    assert len(weights.tensors) == 355


def test_safetensors(tmp_path, model):
    path = tmp_path / "w.safetensors"
    save_file({name: v.contiguous() for name, v in half(model).state_dict().items()}, path)
    weights = read_weights(path)
    assert (weights.path, weights.origin) == (path, "tensors")
    assert weights.tensors[FIRST].dtype == torch.float32
    assert torch.equal(weights.tensors[FIRST], model.state_dict()[FIRST].half().float())


def test_heads_of_other_classes_stay_as_the_seed_made_them(tmp_path):
    coco = build("yolov8n", 80, 1)
    own = initial()
    fitted = fit("yolov8n", own, read_weights(stored(tmp_path / "n.pt", model=half(coco))))
    # With 80 classes the smallest model's class branches are wider throughout.
    assert fitted.missing == ()
    assert all(name.startswith("model.22.cv3.") for name in fitted.mismatched)
    for level in range(3):
        for layer in ("0.conv.weight", "1.bn.running_var", "2.weight", "2.bias"):
            assert f"model.22.cv3.{level}.{layer}" in fitted.mismatched
    for name, value in fitted.state.items():
        expected = own[name] if name in fitted.mismatched else coco.state_dict()[name]
        assert torch.allclose(value, expected, rtol=1e-3, atol=1e-4)


def test_a_part_for_something_else_is_named(model):
    tensors = {**model.state_dict(), "model.22.cv4.0.weight": torch.zeros(3)}
    fitted = fit("yolov8n", initial(), Weights(Path("seg.pt"), "model", tensors))
    assert fitted.unknown == ("model.22.cv4.0.weight",)
    assert set(fitted.state) == set(initial())


def test_the_warm_start_fits_the_model_it_is_of_and_no_other():
    path = bundle("yolov8s_start.safetensors")
    weights = read_weights(path)
    own = initial(3, "yolov8s")
    fitted = fit("yolov8s", own, weights)
    heads = tuple(
        f"model.22.cv3.{level}.2.{part}" for level in range(3) for part in ("weight", "bias")
    )
    assert (fitted.missing, fitted.mismatched, fitted.unknown) == (heads, (), ())
    for name, value in fitted.state.items():
        assert torch.equal(value, own[name] if name in heads else weights.tensors[name])
    build("yolov8s", 10, 0).load_state_dict(fitted.state)
    with pytest.raises(ConfigError) as caught:
        fit("yolov8n", initial(), weights)
    assert str(caught.value) == (
        f"detection.weights: {path}: not the weights of yolov8n: 91 of 355 tensors fit, and "
        "model.0.conv.weight is (32, 3, 3, 3), expected (16, 3, 3, 3); name another file or "
        "set learning.model to the file's model"
    )


def test_a_missing_tensor_beside_the_heads_is_refused(model):
    tensors = dict(model.state_dict())
    del tensors["model.9.cv1.bn.weight"]
    with pytest.raises(ConfigError, match=r"354 of 355 .* model\.9\.cv1\.bn\.weight is missing"):
        fit("yolov8n", initial(), Weights(Path("w.pt"), "model", tensors))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(model, value):
    tensors = {**model.state_dict(), FIRST: torch.full((16, 3, 3, 3), value)}
    with pytest.raises(ConfigError, match=f"w.pt: {FIRST} has numbers that are not finite"):
        fit("yolov8n", initial(), Weights(Path("w.pt"), "model", tensors))


class Runs:
    """Calls a function with arguments when it is unpickled."""

    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self):
        return self.call[0], tuple(self.call[1:])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Runs(os.system, "touch ran"), "posix.system"),
        (Runs(eval, "open('ran', 'w')"), "__builtin__.eval"),
        (Runs(exec, "open('ran', 'w')"), "__builtin__.exec"),
        (Runs(getattr, "a text", "upper"), "__builtin__.getattr"),
        (Runs(shutil.rmtree, "."), "shutil.rmtree"),
        (Runs(os.unlink, "last.pt"), "posix.unlink"),
    ],
)
@pytest.mark.parametrize("hidden", [True, False])
def test_a_malicious_checkpoint_is_refused_and_nothing_runs(
    tmp_path, monkeypatch, model, value, name, hidden
):
    monkeypatch.chdir(tmp_path)
    trained = half(model)
    if hidden:
        trained.model[4].extra = value
        path = stored(tmp_path / "last.pt", model=trained)
    else:
        path = stored(tmp_path / "last.pt", model=value)
    assert told(path) == (
        f"detection.weights: {path}: refused, it asks for {name}, which no checkpoint needs; "
        "nothing of it was run, do not trust this file"
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.pt"]


def test_functions_of_the_libraries_do_not_run_either(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    calls = [
        Runs(torch.save, 1, "ran"),
        Runs(np.save, "ran", np.zeros(1)),
        Runs(torch.hub.load, "owner/name", "model"),
        Runs(pathlib.Path, "ran"),
    ]
    path = stored(tmp_path / "last.pt", model=half(model), callbacks=calls)
    assert len(read_weights(path).tensors) == 355
    assert [entry.name for entry in tmp_path.iterdir()] == ["last.pt"]


def test_objects_of_any_class_are_passed_over(tmp_path, model):
    trained = half(model)
    trained.names = collections.OrderedDict({0: "car"})
    trained.tags = {"a", 1, (2,), frozenset({3})}
    trained.counts = collections.Counter("abca")
    trained.queue = collections.deque([1, 2])
    trained.nested = collections.defaultdict(list, a=[1])
    trained.when = datetime.datetime(2026, 1, 1)
    trained.shape = torch.Size([1, 2])
    trained.device, trained.kind = torch.device("cpu"), torch.float16
    path = stored(tmp_path / "last.pt", model=trained, results=np.arange(3))
    assert len(read_weights(path).tensors) == 355


def test_a_missing_file_and_one_of_another_kind(tmp_path):
    line = told(tmp_path / "yolov8s.pt")
    assert line.endswith("no such file, and nothing is downloaded; name one that is there")
    (tmp_path / "yolov8s.onnx").write_bytes(b"")
    assert "neither .pt nor .safetensors" in told(tmp_path / "yolov8s.onnx")


def test_broken_files_end_in_one_line(tmp_path, model):
    whole = stored(tmp_path / "whole.pt", model=half(model)).read_bytes()
    for name, content in {
        "truncated.pt": whole[: len(whole) // 2],
        "empty.pt": b"",
        "text.pt": b"version https://git-lfs.github.com/spec/v1\n",
        "damaged.pt": whole[:5000] + bytes(100) + whole[5100:],
        "truncated.safetensors": b"\x10\x00\x00\x00\x00\x00\x00\x00{",
        "empty.safetensors": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        line = told(tmp_path / name)
        assert "not a readable weight file: " in line
        assert line.endswith("; copy it again")
    stored(tmp_path / "other.pt", model=3, note="x")
    assert "not a readable weight file: " in told(tmp_path / "other.pt")


def archive(path: Path, pickled: bytes, kind: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as made:
        made.writestr("w/data.pkl", pickled)
        made.writestr("w/data/0", np.arange(6, dtype=np.float32).tobytes())
    return path


def small(size: str = "K\x02K\x03\x86", stride: str = "K\x03K\x01\x86", offset: int = 0) -> bytes:
    """Pickle {"a": a tensor of six numbers} by hand."""
    return (
        b"\x80\x02}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQK"
        + bytes([offset])
        + size.encode("latin1")
        + stride.encode("latin1")
        + b"\x89}tRs."
    )


def test_a_tensor_is_within_its_storage(tmp_path):
    path = tmp_path / "w.pt"
    assert read_weights(archive(path, small())).tensors["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    turned = small("K\x03K\x02\x86", "K\x01K\x03\x86")
    assert read_weights(archive(path, turned)).tensors["a"].tolist() == [[0, 3], [1, 4], [2, 5]]
    # Too far, too large, and so large that it would fill the memory.
    assert "out of bounds" in told(archive(path, small(offset=1)))
    assert "a tensor of shape (3, 3) out of 6 numbers" in told(
        archive(path, small("K\x03K\x03\x86", "K\x00K\x01\x86"))
    )
    huge = "J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86"
    assert "out of 6 numbers" in told(archive(path, small(huge, "K\x00K\x00\x86")))


def test_archives_that_pytorch_does_not_write(tmp_path):
    assert "compressed" in told(archive(tmp_path / "w.pt", small(), zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(tmp_path / "no.pt", "w") as made:
        made.writestr("w/data/0", b"")
    assert "no data.pkl" in told(tmp_path / "no.pt")
    with zipfile.ZipFile(archive(tmp_path / "big.pt", small()), "a") as made:
        made.writestr("w/byteorder", b"big")
    assert "byte order" in told(tmp_path / "big.pt")


def test_a_memo_of_two_thousand_million_entries_takes_no_memory(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    told(archive(tmp_path / "w.pt", b"\x80\x02K\x01r\xff\xff\xff\x7f."))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 10**5  # in kB


@settings(max_examples=200, deadline=None)
@given(place=st.integers(0, 200), byte=st.integers(0, 255))
def test_a_damaged_byte_never_ends_in_a_traceback(tmp_path_factory, place, byte):
    content = bytearray(small())
    content[place % len(content)] = byte
    path = archive(tmp_path_factory.getbasetemp() / "damaged.pt", bytes(content))
    line, tensors = "", {}
    try:
        tensors = read_weights(path).tensors
    except ConfigError as error:
        line = str(error)
    assert "\n" not in line
    assert all(isinstance(value, Tensor) for value in tensors.values())
    assert bool(line) or set(tensors)  # what is still readable has its tensor
