"""Batches: exact coordinates, pixels that follow their boxes, changes keyed by picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from drawn import make
from hypothesis import given, settings
from hypothesis import strategies as st

from bdd100k_tools import Frame
from testbed.learning.detection.augment import batch, joined, mirrored, mosaic, plain
from testbed.learning.detection.letterbox import PADDING, fit
from testbed.learning.detection.pictures import Pictures, load
from testbed.streams import Streams

SIDE = 64  # a frame of 1280x720 lies in rows 14 to 49


def by_hand(boxes, size=(SIDE, SIDE), frame=(1280, 720)) -> Pictures:
    """Return pictures of which number k is of value 10 + k and its boxes of 100 + k.

    Boxes are class, x1, y1, x2, y2 in letterbox pixels.
    """
    height, width = size
    place = fit(frame, size)
    pixels = np.full((len(boxes), 3, height, width), PADDING, np.uint8)
    targets = []
    for k, each in enumerate(boxes):
        rows = slice(place.top, place.top + place.height)
        pixels[k, :, rows, place.left : place.left + place.width] = 10 + k
        for _, x1, y1, x2, y2 in each:
            pixels[k, :, y1:y2, x1:x2] = 100 + k
        targets.append(
            np.array(
                [
                    (c, (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1)
                    for c, x1, y1, x2, y2 in each
                ],
                np.float32,
            ).reshape(-1, 5)
            / np.array([1, width, height, width, height], np.float32)
        )
    pixels.flags.writeable = False
    count = len(boxes)
    return Pictures(
        tuple(Frame(f"{k}.jpg", {}, (), *frame) for k in range(count)),
        Path(),
        pixels,
        tuple(targets),
        np.full(count, place.scale),
        np.tile((float(place.left), float(place.top)), (count, 1)),
    )


def corners(targets, size=(SIDE, SIDE)) -> list[list[float]]:
    """Return class and corners in pixels."""
    unit = np.array(size[::-1])
    centres, sides = targets[:, 1:3] * unit, targets[:, 3:5] * unit
    return np.concatenate([targets[:, :1], centres - sides / 2, centres + sides / 2], 1).tolist()


ONE = by_hand([[(3, 8, 16, 24, 48)], [], [(1, 0, 14, 64, 50), (9, 60, 30, 63, 40)]])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drawn")
    return load(*make(folder, train=12), (64, 96), folder / "cache").train


def keys(epoch: int = 0):
    streams = Streams(7)
    return lambda picture: streams.rng("client", 3, "augment", epoch, picture)


# --- as they are


def test_a_batch_is_a_copy_and_a_list_of_boxes():
    images, targets = plain(ONE, np.array([2, 1, 0]))
    assert (images.dtype, targets.dtype) == (torch.uint8, torch.float32)
    assert (images.numpy() == ONE.pixels[[2, 1, 0]]).all()
    assert targets.tolist() == [
        [0, 1, 0.5, 0.5, 1, 36 / 64],
        [0, 9, 61.5 / 64, 35 / 64, 3 / 64, 10 / 64],
        [2, 3, 0.25, 0.5, 0.25, 0.5],
    ]
    images.zero_()
    targets.zero_()
    assert ONE.pixels[2].max() == 114
    assert ONE.targets[0][0, 0] == 3


@pytest.mark.parametrize(("chosen", "shape"), [([1, 1], (2, 3, 64, 64)), ([], (0, 3, 64, 64))])
def test_a_batch_may_be_without_boxes(chosen, shape):
    images, targets = plain(ONE, np.array(chosen, np.int64))
    assert images.shape == shape
    assert targets.shape == (0, 6)


def test_no_augmentation_asks_for_no_key(drawn):
    def key(picture):
        raise AssertionError(picture)

    chosen = np.array([5, 2])
    for made, expected in zip(
        batch(drawn, chosen, "none", key, chosen), plain(drawn, chosen), strict=True
    ):
        assert made.equal(expected)


# --- flip


def test_left_and_right_change_places():
    pixels = np.arange(8, dtype=np.uint8).repeat(8)
    pictures = by_hand([[(3, 8, 16, 24, 48), (4, 0, 20, 2, 30)]])
    pixels = np.broadcast_to(pixels, (1, 3, 64, 64))  # columns of 8 pixels: 0 to 7
    pictures = Pictures(
        pictures.frames, Path(), pixels, pictures.targets, pictures.scale, pictures.pad
    )
    flipping = next(seed for seed in range(99) if np.random.default_rng(seed).random() < 0.5)
    chosen = np.array([0])
    images, targets = batch(
        pictures, chosen, "flip", lambda _: np.random.default_rng(flipping), chosen
    )
    assert images[0, 0, 0, ::8].tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    assert corners(targets[:, 1:].numpy()) == [[3, 40, 16, 56, 48], [4, 62, 20, 64, 30]]
    assert pictures.targets[0][0, 1] == 0.25


def test_the_key_decides(drawn):
    pool, key = np.arange(12), keys()
    images, targets = batch(drawn, pool, "flip", key, pool)
    count = 0
    for i in range(12):
        own = targets[targets[:, 0] == i, 1:].numpy()
        if key(i).random() < 0.5:
            assert (images[i].numpy() == drawn.pixels[i][:, :, ::-1]).all()
            assert (own == mirrored(drawn.targets[i])).all()
            count += 1
        else:
            assert (images[i].numpy() == drawn.pixels[i]).all()
            assert (own == drawn.targets[i]).all()
    assert 0 < count < 12


def test_every_other_form_is_flipped():
    pool, count = np.array([0]), 1000
    centres = [batch(ONE, pool, "flip", keys(epoch), pool)[1][0, 2] for epoch in range(count)]
    assert set(map(float, centres)) == {0.25, 0.75}
    assert abs(np.mean(centres) - 0.5) < 4 * 0.25 / count**0.5


def test_mirroring_twice_changes_nothing():
    targets = ONE.targets[2]
    assert (mirrored(mirrored(targets)) == targets).all()


# --- mosaic


def test_a_mosaic_by_hand():
    # Pictures show 64x36 in rows 14 to 49.  The centre is (40, 30).
    pictures = by_hand(
        [
            [(0, 30, 40, 50, 48)],
            [(1, 0, 44, 10, 50)],
            [(2, 50, 14, 64, 20)],
            [(3, 20, 30, 28, 40)],
        ]
    )
    pixels, targets = joined(pictures, (0, 1, 2, 3), (40, 30))
    assert corners(targets) == [
        [0, 6, 20, 26, 28],  # moved by (40 - 64, 30 - 50) = (-24, -20)
        [1, 40, 24, 50, 30],  # by (40, 30 - 50)
        [2, 26, 30, 40, 36],  # by (40 - 64, 30 - 14)
        [3, 60, 46, 64, 56],  # by (40, 16), and half cut off at the edge
    ]
    expected = np.full((SIDE, SIDE), PADDING)
    expected[:30, :40], expected[:30, 40:], expected[30:, :40], expected[30:, 40:] = 10, 11, 12, 13
    expected[20:28, 6:26], expected[24:30, 40:50] = 100, 101
    expected[30:36, 26:40], expected[46:56, 60:] = 102, 103
    assert (pixels == expected).all()


def test_what_no_picture_covers_is_padding():
    pixels, targets = joined(by_hand([[]] * 4), (3, 2, 1, 0), (10, 60))
    expected = np.full((SIDE, SIDE), PADDING)
    # 36 rows above the centre's, 4 below it; 10 columns left of it and all 54 right of it.
    expected[24:60, :10], expected[24:60, 10:], expected[60:, :10], expected[60:, 10:] = (
        13,
        12,
        11,
        10,
    )
    assert (pixels == expected).all()
    assert targets.shape == (0, 5)


def test_centre_in_the_corner_shows_the_last_picture_only():
    pixels, targets = joined(by_hand([[(k, 10, 20, 20, 30)] for k in range(4)]), range(4), (0, 0))
    assert corners(targets) == [[3, 10, 6, 20, 16]]
    assert set(np.unique(pixels)) == {13, 103, PADDING}


@pytest.mark.parametrize(
    ("box", "kept"),
    [
        ((4, 20, 24, 40), [0, 20, 20, 40]),  # 4 pixels past the edge, of 20
        ((0, 20, 5, 40), None),  # of 5 pixels 1 is left: too narrow
        ((0, 20, 6, 40), [0, 20, 2, 40]),  # 2 are enough, a third of the area
        ((0, 20, 3, 40), None),  # nothing left
        ((30, 20, 31, 40), None),  # never was two pixels wide
        ((30, 20, 32, 22), [26, 20, 28, 22]),
    ],
)
def test_boxes_of_which_little_is_left_are_dropped(box, kept):
    # The centre (60, 50) moves the first picture by (-4, 0).
    pictures = by_hand([[(0, *box)], [], [], []])
    _, targets = joined(pictures, range(4), (60, 50))
    assert corners(targets) == ([] if kept is None else [[0, *kept]])


@pytest.mark.parametrize(("x", "kept"), [(4, 1), (3, 0)])
def test_a_tenth_of_the_area_must_be_left(x, kept):
    # In the upper right, of a box 40 wide, 64 - 60 = 4 columns are left, or 3.
    pictures = by_hand([[], [(0, 0, 20, 40, 40)], [], []])
    _, targets = joined(pictures, range(4), (64 - x, 50))
    assert len(targets) == kept


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 95),
    st.integers(0, 63),
    st.sampled_from([(1280, 720), (720, 1280), (1000, 300)]),
    st.data(),
)
def test_boxes_of_a_mosaic_frame_their_pixels(x, y, frame, data):
    size = (64, 96)
    place = fit(frame, size)
    boxes = []
    for k in range(4):
        x1 = data.draw(st.integers(0, place.width - 4)) + place.left
        y1 = data.draw(st.integers(0, place.height - 4)) + place.top
        x2 = data.draw(st.integers(x1 + 3, place.left + place.width))
        y2 = data.draw(st.integers(y1 + 3, place.top + place.height))
        boxes.append([(k, x1, y1, x2, y2)])
    pixels, targets = joined(by_hand(boxes, size, frame), range(4), (x, y))
    found = {int(row[0]): row[1:] for row in corners(targets, size)}
    for k in range(4):
        _, x1, y1, x2, y2 = boxes[k][0]
        ((rows, columns),) = (np.nonzero(pixels[0] == 100 + k),)
        width, height = (np.ptp(each) + 1 if len(each) else 0 for each in (columns, rows))
        least, share = min(width, height), width * height / ((x2 - x1) * (y2 - y1))
        if least == 2 or abs(share - 0.1) < 1e-5:
            continue  # float32 shares decide either way
        assert (k in found) == (least > 2 and share > 0.1)
        if k in found:
            edges = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
            np.testing.assert_allclose(found[k], edges, atol=1e-4)


def test_a_mosaic_shows_four_different_pictures_of_the_client():
    pictures = by_hand([[]] * 20)
    pool = np.array([1, 4, 5, 9, 16])
    partners, quarters = set(), set()
    for epoch in range(200):
        pixels, _ = mosaic(pictures, 4, pool, keys(epoch)(4))
        draws = keys(epoch)(4)
        x, y = int(draws.integers(SIDE)), int(draws.integers(SIDE))
        shown = {value - 10 for value in np.unique(pixels).tolist()} - {PADDING - 10}
        assert len(shown) == (2 if x else 1) * (2 if y else 1)
        assert (4 in shown) == (x > 0 and y > 0)  # upper left
        partners |= shown
        quarters.add((x // 32, y // 32))
    assert partners == set(pool.tolist())
    assert len(quarters) == 4


@pytest.mark.parametrize("pool", [[2], [2, 0], [2, 0, 1]])
def test_few_pictures_are_repeated(pool):
    pictures = by_hand([[(k, 0, 14, 64, 50)] for k in range(5)])
    shown = set()
    for epoch in range(50):
        _, targets = mosaic(pictures, 2, np.array(pool), keys(epoch)(2))
        shown |= set(targets[:, 0].astype(int).tolist())
    assert shown == set(pool)


# --- the key is all that counts


def whole(pictures, augment, pool, epoch=0):
    """Return every picture's augmented form, made alone."""
    made = {}
    for i in pool.tolist():
        images, targets = batch(pictures, np.array([i]), augment, keys(epoch), pool)
        made[i] = images[0], targets[:, 1:]
    return made


@pytest.mark.parametrize("augment", ["none", "flip", "mosaic"])
@settings(max_examples=25, deadline=None)
@given(st.permutations(range(2, 11)), st.permutations(range(2, 11)), st.integers(1, 9))
def test_a_picture_is_the_same_in_any_batch(drawn, augment, order, pool, size):
    alone = whole(drawn, augment, np.arange(2, 11))
    for part in np.array_split(np.array(order), range(size, 9, size)):
        images, targets = batch(drawn, part, augment, keys(), np.array(pool))
        for place, i in enumerate(part.tolist()):
            assert images[place].equal(alone[i][0])
            assert targets[targets[:, 0] == place, 1:].equal(alone[i][1])


@pytest.mark.parametrize("augment", ["flip", "mosaic"])
def test_another_epoch_is_another_form(drawn, augment):
    pool = np.arange(12)
    first, second = whole(drawn, augment, pool, 0), whole(drawn, augment, pool, 1)
    assert any(not first[i][0].equal(second[i][0]) for i in range(12))


def test_another_clients_pictures_change_nothing(drawn):
    mine = np.arange(5)
    made = whole(drawn, "mosaic", mine)
    others = Pictures(
        drawn.frames,
        drawn.folder,
        np.concatenate([drawn.pixels[:5], np.zeros_like(drawn.pixels[5:])]),
        drawn.targets[:5] + drawn.targets[:7],
        drawn.scale,
        drawn.pad,
    )
    for i, (image, targets) in whole(others, "mosaic", mine).items():
        assert image.equal(made[i][0])
        assert targets.equal(made[i][1])
