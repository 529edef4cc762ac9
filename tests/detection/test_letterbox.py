"""The letterbox: geometry and pixels by hand, and against OpenCV and ultralytics."""

import numpy as np
import pytest
from PIL import Image
from shared_data import bundle

from testbed.learning.detection.letterbox import PADDING, Fit, fit, letterbox, same_shape


@pytest.mark.parametrize(
    ("frame", "size", "place"),
    [
        ((1280, 720), (640, 640), Fit(0.5, 640, 360, 0, 140)),
        ((1280, 720), (384, 640), Fit(0.5, 640, 360, 0, 12)),
        ((1280, 720), (736, 1280), Fit(1.0, 1280, 720, 0, 8)),
        ((1280, 720), (64, 64), Fit(0.05, 64, 36, 0, 14)),
        ((720, 1280), (64, 64), Fit(0.05, 36, 64, 14, 0)),
        ((64, 31), (64, 128), Fit(2.0, 128, 62, 0, 1)),
        ((128, 70), (64, 64), Fit(0.5, 64, 35, 0, 14)),  # 29 left: 14 above, 15 below
        ((10000, 1), (32, 32), Fit(0.0032, 32, 1, 0, 15)),  # a line stays a line
    ],
)
def test_a_frame_is_scaled_to_fit_and_centred(frame, size, place):
    assert fit(frame, size) == place


def test_bilinear_at_half_size_is_the_mean_of_four_pixels():
    picture = np.zeros((32, 64, 3), np.uint8)
    picture[0::2, 0::2] = (8, 40, 200)
    picture[1::2, 1::2] = (16, 80, 100)
    boxed = letterbox(picture, (64, 32), (32, 32))
    assert boxed.shape == (3, 32, 32)
    assert (boxed[:, 8:24] == np.array([6, 30, 75], np.uint8)[:, None, None]).all()
    assert (boxed[:, :8] == 114).all()
    assert (boxed[:, 24:] == 114).all()


def test_doubling_weighs_neighbours_three_to_one():
    row = np.array([0, 100, 200, 40], np.uint8)
    picture = np.broadcast_to(row[None, :, None], (4, 4, 3))
    doubled = letterbox(np.tile(picture, (4, 4, 1)), (16, 16), (32, 32))
    # Edges repeat; between, 3/4 of the nearer and 1/4 of the other neighbour.
    assert doubled[0, 5, :9].tolist() == [0, 25, 75, 125, 175, 160, 80, 30, 10]


def test_a_picture_of_the_right_size_is_not_changed():
    picture = np.random.default_rng(0).integers(0, 256, (36, 64, 3), np.uint8)
    boxed = letterbox(picture, (1280, 720), (64, 64))
    assert (boxed[:, 14:50] == picture.transpose(2, 0, 1)).all()
    assert (boxed[:, :14] == PADDING).all()
    assert (boxed[:, 50:] == PADDING).all()


@pytest.mark.parametrize(
    ("picture", "same"),
    [
        ((1280, 720), True),
        ((640, 360), True),
        ((427, 240), True),  # 426.7
        ((320, 181), True),
        ((640, 358), False),
        ((640, 640), False),
        ((720, 1280), False),
    ],
)
def test_a_picture_must_have_the_shape_of_its_frame(picture, same):
    assert same_shape(picture, (1280, 720)) is same


@pytest.mark.parametrize("size", [(640, 640), (384, 640), (320, 320), (64, 64), (96, 1280)])
@pytest.mark.parametrize("shape", [(360, 640), (72, 128), (123, 77)])
def test_pixels_are_those_of_ultralytics_but_for_one_grey_level(yolo, shape, size):
    # `build` imports the library and puts back what that changes.
    from testbed.learning.detection.network import build

    build("yolov8n", 1, 0)
    from ultralytics.data.augment import LetterBox

    picture = np.random.default_rng(1).integers(0, 256, (*shape, 3), np.uint8)
    theirs = LetterBox(size, auto=False)(image=picture).transpose(2, 0, 1)
    ours = letterbox(picture, shape[::-1], size)
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs).max() <= 1


def test_real_pictures_decode_as_with_opencv():
    cv2 = pytest.importorskip("cv2", reason="comes with the extra yolo")
    for path in sorted((bundle("bdd100k_sample") / "images").iterdir())[:5]:
        with Image.open(path) as opened:
            picture = np.array(opened.convert("RGB"))
        theirs = cv2.imread(str(path))[:, :, ::-1]
        assert (picture == theirs).all()
        ours = letterbox(picture, (1280, 720), (320, 320))[:, 70:250].transpose(1, 2, 0)
        resized = cv2.resize(theirs, (320, 180), interpolation=cv2.INTER_LINEAR)
        assert np.abs(ours.astype(int) - resized).max() <= 1
