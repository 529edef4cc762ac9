"""BDD100K as the detection room sees it: letterboxed pictures, their boxes, and what was wrong.

What happens to bad input, all of it counted and every picture left out named:

* Labels are repaired or left out by the rules of `bdd100k_tools.report.REASONS`; the first
  entry of a picture listed twice counts.
* A picture without a file, one that cannot be decoded to its end, and one whose shape is not
  that of its frame are left out.  More than 5 % of such pictures (one is always allowed) are
  refused, as is a part without any box.
* A picture without a box is kept: it teaches what is background.
"""

import hashlib
import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bdd100k_tools import CLASSES, REASONS, Frame, Report, ToolsError, fingerprint, read, targets
from testbed.errors import ConfigError, DataError
from testbed.learning.detection.cache import Source, stored
from testbed.learning.detection.letterbox import STRIDE, VERSION, Fit, fit
from testbed.streams import Streams

_TOLERATED = 20  # one in so many pictures may be unusable
_FINGERPRINT_DIGITS = 16


@dataclass(frozen=True, eq=False)
class Pictures:
    """Letterboxed pictures and their boxes, in order of name.

    Attributes
    ----------
    frames : tuple of Frame
        The labels as the file has them; boxes in the frame's pixels, crowd included.
    folder : Path
        Where the picture files are.
    pixels : uint8 array, shape (n, 3, H, W)
        RGB, letterboxed, padded with 114; a read-only view of the cache file.
    targets : tuple of float32 array, shape (m, 5)
        Per picture: class, cx, cy, w, h as shares of the letterboxed W and H; no crowd.
    scale : float64 array, shape (n,)
        Letterbox pixels per pixel of the frame.
    pad : float64 array, shape (n, 2)
        Padding on the left and at the top, in letterbox pixels.
    """

    frames: tuple[Frame, ...]
    folder: Path
    pixels: NDArray[np.uint8]
    targets: tuple[NDArray[np.float32], ...]
    scale: NDArray[np.float64]
    pad: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DetectionData:
    """Pictures to learn from and pictures to test on.

    Attributes
    ----------
    name : str
    train, test : Pictures
    classes : tuple of str
        Fixed, also where a class has no box.
    fingerprint : str
        16 hexadecimal digits that name labels, picture files and the letterbox's size.
    counts : mapping of str to int
        ``train_`` and ``test_`` with: ``pictures``, ``boxes`` and ``crowd`` (used, and left
        out of the targets), ``background`` (pictures without a box), ``missing``,
        ``unreadable``, ``other_shape`` (pictures left out), and the label reader's
        `REASONS`, which count in the whole label file; ``test_in_train``, names in both.
    skipped : tuple of str
        Every picture left out, as "train/name: reason".
    """

    name: str
    train: Pictures
    test: Pictures
    classes: tuple[str, ...]
    fingerprint: str
    counts: Mapping[str, int]
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Part:
    """One part, and what it adds to the whole."""

    pictures: Pictures
    mark: str
    counts: Mapping[str, int]
    skipped: tuple[str, ...]


def load(
    images: Path,
    labels: Path,
    test_images: Path,
    test_labels: Path,
    size: tuple[int, int],
    cache: Path,
    limit: int | None = None,
    test_limit: int | None = None,
) -> DetectionData:
    """Read labels and pictures; decode and letterbox what the cache does not have.

    Parameters
    ----------
    images, test_images : Path
        Folders of the picture files, of any size.
    labels, test_labels : Path
        Label files, or folders of one file per picture.
    size : (int, int)
        Height and width of the letterbox, multiples of 32.
    cache : Path
        Folder of the decoded pictures; 3 H W bytes each.
    limit, test_limit : int, optional
        How many pictures to draw, by a hash of their names: the same ones whatever their
        order, and more of them when the limit grows.

    Raises
    ------
    DataError
        If labels or pictures are missing or unusable, see above.
    ConfigError
        If the size is not one that a YOLO model takes.
    ResultsError
        If the cache cannot be written.
    """
    if min(size) < STRIDE or any(side % STRIDE for side in size):
        raise ConfigError(
            f"detection.image_size: {size[0]}x{size[1]}; set height and width to multiples of "
            f"{STRIDE}"
        )
    train = _part("train", images, labels, size, cache, limit)
    test = _part("test", test_images, test_labels, size, cache, test_limit)
    names = {frame.name for frame in train.pictures.frames}
    shared = sum(frame.name in names for frame in test.pictures.frames)
    whole = f"{VERSION} {size} {CLASSES} {train.mark} {test.mark}"
    return DetectionData(
        name="bdd100k",
        train=train.pictures,
        test=test.pictures,
        classes=CLASSES,
        fingerprint=hashlib.sha256(whole.encode()).hexdigest()[:_FINGERPRINT_DIGITS],
        counts={**train.counts, **test.counts, "test_in_train": shared},
        skipped=train.skipped + test.skipped,
    )


def boxless(pictures: Pictures, parts: Sequence[NDArray[np.int64]]) -> tuple[int, ...]:
    """Return which of the parts, given by their pictures, have not a single box to learn from."""
    boxes = np.array([len(each) for each in pictures.targets])
    return tuple(number for number, part in enumerate(parts) if not boxes[part].any())


def _part(
    part: str,
    images: Path,
    labels: Path,
    size: tuple[int, int],
    cache: Path,
    limit: int | None,
) -> _Part:
    key = _key(part)
    if not images.is_dir():
        raise DataError(f"{key}path: there is no folder {images}; set it to the pictures")
    images = images.resolve()
    report = Report()
    try:
        frames = _drawn(read(labels, report), limit, labels, f"{key}limit")
        mark = fingerprint(labels)
    except ToolsError as error:
        raise DataError(f"{key}labels: {error}") from error
    sources = {frame.name: _source(images, frame) for frame in frames}
    faults = {name: "missing" for name, source in sources.items() if source is None}
    _refuse(faults, len(frames), images, f"{key}path")
    there = [source for source in sources.values() if source is not None]
    made = stored(there, size, cache)
    faults |= {there[place].path.name: fault for place, fault in made.faults.items()}
    _refuse(faults, len(frames), images, f"{key}path")
    kept = tuple(frame for frame in frames if frame.name not in faults)
    pictures = _pictures(kept, images, made.pixels)
    if not any(map(len, pictures.targets)):
        raise DataError(
            f"{key}labels: no picture of {labels} has a box of a detection class; "
            "check it with: bdd100k-tools stats"
        )
    return _Part(
        pictures,
        f"{mark} {made.digest}",
        {f"{part}_{what}": n for what, n in _counts(pictures, faults, report).items()},
        tuple(f"{part}/{name}: {fault}" for name, fault in sorted(faults.items())),
    )


def _key(part: str) -> str:
    """Return the beginning of what the configuration calls a part's inputs."""
    return "data." if part == "train" else f"data.{part}_"


def _drawn(frames: Iterator[Frame], limit: int | None, labels: Path, key: str) -> list[Frame]:
    """Return the frames, or `limit` of them, in order of name."""
    if limit is None:
        return sorted(frames, key=lambda frame: frame.name)
    ranks = Streams(0)
    drawn = heapq.nsmallest(limit, frames, lambda frame: ranks.uniform("limit", frame.name))
    if len(drawn) < limit:
        raise DataError(
            f"{key} is {limit} but {labels} names only {len(drawn)} pictures; lower it, or leave "
            "it out to use them all"
        )
    return sorted(drawn, key=lambda frame: frame.name)


def _source(images: Path, frame: Frame) -> Source | None:
    """Return where a frame's picture is; None if it is not there."""
    path = images / frame.name
    try:
        state = path.stat()
    except OSError:
        return None
    return Source(path, (frame.width, frame.height), (state.st_size, state.st_mtime_ns))


def _refuse(faults: Mapping[str, str], count: int, images: Path, key: str) -> None:
    """Refuse a part of which too much is unusable."""
    tolerated = min(max(count // _TOLERATED, 1), count - 1)
    if len(faults) > tolerated:
        name, fault = min(faults.items())
        raise DataError(
            f"{key}: {len(faults)} of {count} labelled pictures in {images} cannot be "
            f"used ({name}: {fault.replace('_', ' ')}, ...) where {tolerated} may be; list them "
            "with: bdd100k-tools check"
        )


def _pictures(frames: tuple[Frame, ...], folder: Path, pixels: NDArray[np.uint8]) -> Pictures:
    size = (pixels.shape[2], pixels.shape[3])
    places = [fit((frame.width, frame.height), size) for frame in frames]
    return Pictures(
        frames,
        folder,
        pixels,
        tuple(_targets(frame, place, size) for frame, place in zip(frames, places, strict=True)),
        np.array([place.scale for place in places]),
        np.array([(place.left, place.top) for place in places], np.float64),
    )


def _targets(frame: Frame, place: Fit, size: tuple[int, int]) -> NDArray[np.float32]:
    """Return a frame's boxes as shares of the letterbox."""
    boxes = np.array(targets(frame), np.float64).reshape(-1, 5)
    frame_size = np.array([frame.width, frame.height] * 2)
    boxes[:, 1:] *= frame_size * place.scale
    boxes[:, 1:3] += place.left, place.top
    boxes[:, 1:] /= [size[1], size[0]] * 2
    return boxes.astype(np.float32)


def _counts(pictures: Pictures, faults: Mapping[str, str], report: Report) -> dict[str, int]:
    kinds = list(faults.values())
    return {
        "pictures": len(pictures.frames),
        "boxes": sum(map(len, pictures.targets)),
        "crowd": sum(box.crowd for frame in pictures.frames for box in frame.boxes),
        "background": sum(not len(each) for each in pictures.targets),
        **{kind: kinds.count(kind) for kind in ("missing", "unreadable", "other_shape")},
        **{reason: report.counts[reason] for reason in REASONS},
    }
