"""Labels and pictures in, letterboxed pictures with boxes out; bad input by stated rules."""

import json
import random
from dataclasses import fields

import numpy as np
import pytest
from drawn_folder import Folder, drawn_names, faults
from PIL import Image
from shared_data import bundle

from bdd100k_tools import CLASSES
from bdd100k_tools.contact import COLOURS
from testbed.errors import ConfigError
from testbed.learning.detection.letterbox import PADDING
from testbed.learning.detection.pictures import DetectionData, Pictures, load

# --- what is read


def test_a_data_set_is_two_parts_in_order_of_name(folder):
    data = folder.load((64, 96))
    assert (data.name, data.classes) == ("bdd100k", CLASSES)
    assert [frame.name for frame in data.train.frames] == [f"train_{i:03d}.jpg" for i in range(8)]
    assert [frame.name for frame in data.test.frames] == [f"test_{i:03d}.jpg" for i in range(4)]
    assert data.train.pixels.shape == (8, 3, 64, 96)
    assert data.test.pixels.shape == (4, 3, 64, 96)
    assert data.train.folder == folder.images.resolve()
    assert [len(each) for each in data.train.targets] == [1, 2, 3, 1, 2, 3, 1, 2]
    assert {each.dtype.str for each in data.train.targets} == {"<f4"}
    assert data.counts["train_boxes"] == 15
    assert data.counts["test_pictures"] == 4
    assert faults(data) == {}
    assert data.skipped == ()


def test_boxes_by_hand(folder):
    frames = folder.frames()
    frames[0]["labels"] = [
        {"category": "truck", "box2d": {"x1": 0, "y1": 0, "x2": 1280, "y2": 720}},
        {"category": "bike", "box2d": {"x1": 320, "y1": 180, "x2": 640, "y2": 360}},
    ]
    folder.relabel(frames)
    square, wide = folder.load((64, 64)).train, folder.load((64, 96)).train
    # 1280x720 becomes 64x36, 14 pixels down: at scale 1/20.
    assert (square.scale[0], *square.pad[0]) == (0.05, 0, 14)
    assert square.targets[0].tolist() == [
        [3, 0.5, 0.5, 1, 36 / 64],
        [7, 24 / 64, (13.5 + 14) / 64, 16 / 64, 9 / 64],
    ]
    # ... and 96x54, 5 pixels down.
    assert (wide.scale[0], *wide.pad[0]) == (0.075, 0, 5)
    expected = [[3, 0.5, 0.5, 1, 54 / 64], [7, 36 / 96, 25.25 / 64, 24 / 96, 13.5 / 64]]
    np.testing.assert_allclose(wide.targets[0], expected, rtol=1e-7)


def test_a_frame_may_state_its_own_size(folder):
    frames = folder.frames()
    frames[0]["size"] = {"width": 256, "height": 144}
    frames[0]["labels"][0]["box2d"] = {"x1": 64, "y1": 36, "x2": 128, "y2": 72}
    folder.relabel(frames)
    train = folder.load().train
    assert train.scale[:2].tolist() == [0.25, 0.05]
    assert train.targets[0][0, 1:].tolist() == [24 / 64, 27.5 / 64, 16 / 64, 9 / 64]


@pytest.mark.parametrize("size", [(64, 64), (64, 128), (96, 64), (128, 128)])
@pytest.mark.parametrize("files", [(128, 72), (320, 180)])
def test_boxes_lie_around_what_they_name(tmp_path, size, files):
    looked_at = 0
    for part in parts(Folder(tmp_path / "drawn", size=files).load(size)):
        for pixels, targets, pad in zip(part.pixels, part.targets, part.pad, strict=True):
            left, top = pad.astype(int)
            shown = pixels[:, top : size[0] - top, left : size[1] - left].astype(int)
            night = (shown == 0x20).mean() > 0.5
            other = (np.abs(shown - (0x20 if night else 0x80)) > 40).any(0)
            if len(targets) == 1:
                rows, columns = (np.flatnonzero(other.any(axis)) for axis in (1, 0))
                _, cx, cy, w, h = targets[0]
                seen = (columns[0], columns[-1] + 1, rows[0], rows[-1] + 1)
                x1, x2 = ((cx + side * w / 2) * size[1] - left for side in (-1, 1))
                y1, y2 = ((cy + side * h / 2) * size[0] - top for side in (-1, 1))
                assert np.abs(np.array(seen) - (x1, x2, y1, y2)).max() <= 1
                middle = shown[:, (rows[0] + rows[-1]) // 2, (columns[0] + columns[-1]) // 2]
                colour = tuple(bytes.fromhex(COLOURS[int(targets[0, 0])][1:]))
                assert np.abs(middle - colour).max() < 10
                looked_at += 1
    assert looked_at == 5


def parts(data: DetectionData) -> tuple[Pictures, Pictures]:
    return data.train, data.test


def test_the_size_of_the_files_does_not_matter(tmp_path):
    small = Folder(tmp_path / "small", size=(128, 72)).load((64, 128)).train
    large = Folder(tmp_path / "large", size=(640, 360)).load((64, 128)).train
    for one, other in zip(small.targets, large.targets, strict=True):
        assert (one == other).all()
    assert (small.scale == large.scale).all()
    assert (small.pad == large.pad).all()
    assert np.median(np.abs(small.pixels.astype(int) - large.pixels)) <= 1


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("L", "jpg"), ("CMYK", "jpg"), ("RGBA", "png"), ("P", "png"), ("1", "png")],
)
def test_any_kind_of_jpeg_and_png_becomes_rgb(folder, mode, suffix):
    name = f"train_000.{suffix}"
    Image.new("RGB", (128, 72), "white").convert(mode).save(folder.images / name)
    frames = folder.frames()
    frames[0]["name"] = name
    folder.relabel(frames)
    pixels = folder.load().train.pixels[0]
    assert (pixels[:, 14:50] == 255).all()
    assert (pixels[:, :14] == PADDING).all()


def test_crowd_is_kept_in_the_frames_and_left_out_of_the_targets(folder):
    frames = folder.frames()
    frames[1]["labels"][0]["category"] = "trailer"
    frames[2]["labels"][1]["attributes"] = {"crowd": True}
    folder.relabel(frames)
    data = folder.load()
    assert [len(frame.boxes) for frame in data.train.frames[:3]] == [1, 2, 3]
    assert [len(each) for each in data.train.targets[:3]] == [1, 1, 2]
    assert (data.counts["train_boxes"], data.counts["train_crowd"]) == (13, 2)


def test_a_folder_of_one_label_file_per_picture(folder):
    whole = folder.load()
    split = folder.place / "split"
    split.mkdir()
    for frame in folder.frames():
        (split / f"{frame['name']}.json").write_text(json.dumps(frame))
    folder.labels = split
    single = folder.load()
    for one, other in zip(whole.train.targets, single.train.targets, strict=True):
        assert (one == other).all()


# --- how much is read


def test_a_limit_draws_by_name_whatever_the_order(tmp_path):
    folder = Folder(tmp_path / "drawn", train=40)
    first = folder.load(limit=10)
    assert len(first.train.pixels) == 10
    assert drawn_names(first) == sorted(drawn_names(first))
    assert drawn_names(first) != [f"train_{i:03d}.jpg" for i in range(10)]
    frames = folder.frames()
    random.Random(3).shuffle(frames)
    folder.relabel(frames)
    again = folder.load(limit=10)
    assert drawn_names(again) == drawn_names(first)
    assert (again.train.pixels == first.train.pixels).all()
    more = folder.load(limit=20)
    assert set(drawn_names(first)) < set(drawn_names(more))
    folder.relabel(frames[:35])  # five fewer to draw from
    kept = {frame["name"] for frame in frames[:35]} & set(drawn_names(first))
    assert kept <= set(drawn_names(folder.load(limit=10)))


def test_limits_are_per_part(folder):
    data = folder.load(limit=3, test_limit=2)
    assert (len(data.train.frames), len(data.test.frames)) == (3, 2)
    assert (data.counts["train_pictures"], data.counts["test_pictures"]) == (3, 2)


def test_a_limit_beyond_the_pictures_is_refused(folder):
    advice = "; lower it, or leave it out to use them all"
    for how, told in (
        ({"limit": 9}, f"data.limit is 9 but {folder.labels} names only 8 pictures"),
        (
            {"test_limit": 5},
            f"data.test_limit is 5 but {folder.test_labels} names only 4 pictures",
        ),
    ):
        assert folder.refusal(**how) == told + advice


# --- what names the content


def test_the_fingerprint_names_labels_pictures_and_size(folder):
    first = folder.load()
    assert len(first.fingerprint) == 16
    assert int(first.fingerprint, 16) >= 0
    assert folder.load().fingerprint == first.fingerprint
    marks = {
        first.fingerprint,
        folder.load((64, 96)).fingerprint,
        folder.load(limit=7).fingerprint,
    }
    (folder.test_images / "test_003.jpg").write_bytes(
        (folder.test_images / "test_002.jpg").read_bytes()
    )
    marks.add(folder.load().fingerprint)
    frames = folder.frames()
    frames[0]["labels"][0]["box2d"]["x1"] += 1
    folder.relabel(frames)
    marks.add(folder.load().fingerprint)
    assert len(marks) == 5


def test_the_fingerprint_does_not_name_the_place(tmp_path):
    one, other = (Folder(tmp_path / place).load() for place in ("one", "other"))
    assert one.fingerprint == other.fingerprint


def test_new_labels_do_not_decode_again(folder):
    folder.load()
    before = sorted(folder.cache.iterdir())
    frames = folder.frames()
    frames[0]["labels"].append(frames[1]["labels"][0])
    folder.relabel(frames)
    assert len(folder.load().train.targets[0]) == 2
    assert sorted(folder.cache.iterdir()) == before


@pytest.mark.parametrize("size", [(64, 100), (0, 64), (-32, 64), (16, 16)])
def test_a_size_no_model_takes_is_refused(folder, size):
    with pytest.raises(ConfigError, match=r"detection.image_size: .* multiples of 32"):
        folder.load(size)
    assert not folder.cache.exists()


def test_values_are_frozen(folder):
    data = folder.load()
    for value in (data, data.train):
        for field in fields(value):
            with pytest.raises(AttributeError):
                setattr(value, field.name, None)


# --- real pictures


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    folder = bundle("bdd100k_640")
    return load(
        folder / "images" / "train",
        folder / "bdd100k_labels_train.json",
        folder / "images" / "test",
        folder / "bdd100k_labels_test.json",
        (384, 640),
        tmp_path_factory.mktemp("real"),
        limit=12,
        test_limit=4,
    )


def test_real_pictures_of_that_size_are_only_padded(real):
    train = real.train
    assert train.pixels.shape == (12, 3, 384, 640)
    assert set(train.scale) == {0.5}
    assert (train.pad == (0, 12)).all()
    for pixels, frame in zip(train.pixels, train.frames, strict=True):
        with Image.open(train.folder / frame.name) as picture:
            assert (pixels[:, 12:372].transpose(1, 2, 0) == np.asarray(picture)).all()
    assert (train.pixels[:, :, :12] == PADDING).all()
    assert (train.pixels[:, :, 372:] == PADDING).all()


def test_real_boxes_go_back_to_the_frame(real):
    for part in parts(real):
        for frame, targets, scale, pad in zip(
            part.frames, part.targets, part.scale, part.pad, strict=True
        ):
            corners = np.array([(box.x1, box.y1, box.x2, box.y2) for box in frame.boxes])
            size = np.array([640, 384])
            low = ((targets[:, 1:3] - targets[:, 3:5] / 2) * size - pad) / scale
            high = ((targets[:, 1:3] + targets[:, 3:5] / 2) * size - pad) / scale
            np.testing.assert_allclose(np.concatenate([low, high], 1), corners, atol=1e-3)
    assert real.counts["train_boxes"] > 100
