"""From a label file to a data set for YOLO and COCO tools, without copying a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from bdd100k_tools.coco import Pixels, write_coco
from bdd100k_tools.errors import LabelError, PictureError
from bdd100k_tools.labels import SIZE, Frame, fingerprint, read
from bdd100k_tools.output import new_folder, to_json
from bdd100k_tools.pictures import listing, picture_size
from bdd100k_tools.report import Report
from bdd100k_tools.yolo import data_yaml, label_text

Link = Literal["symlink", "hardlink", "list"]
"""How the data set refers to the pictures: links in it, or a list of their paths."""

_EXAMPLES = 5


@dataclass(frozen=True)
class Split:
    """One part of a data set: its name, its label file, the folder of its pictures."""

    name: str
    labels: Path
    images: Path


@dataclass(frozen=True)
class Converted:
    """What became of a split.

    Attributes
    ----------
    split : str
    report : Report
        Of the label file; `missing` pictures are part of its frames and boxes.
    pictures, boxes : int
        Written to the COCO file; `pictures` is also the number of YOLO label files.
    crowd : int
        Boxes in the COCO file only.
    missing : tuple of str
        Labelled pictures that are not in the folder and were left out.
    size : (int, int)
        Of the picture files, in whose pixels the COCO boxes are.
    """

    split: str
    report: Report
    pictures: int
    boxes: int
    crowd: int
    missing: tuple[str, ...]
    size: tuple[int, int]


def convert(
    splits: Sequence[Split],
    out: Path,
    *,
    link: Link = "symlink",
    size: tuple[int, int] | None = None,
    frame_size: tuple[int, int] = SIZE,
    pixels: Pixels = "coco",
) -> tuple[Converted, ...]:
    """Write ``data.yaml``, labels, links, lists, COCO files and ``report.json`` into `out`.

    Parameters
    ----------
    splits : sequence of Split
        The first is what one trains on, the last what one validates on.
    out : Path
        A new or empty folder; it appears only when everything in it is complete.
    link : {"symlink", "hardlink", "list"}
    size : (int, int), optional
        Of the picture files; by default the size of the first one.
    frame_size : (int, int)
        What the boxes refer to where the label file does not say.
    pixels : {"coco", "bdd100k"}
        Of the COCO files.

    Raises
    ------
    LabelError, PictureError, OutputError
    """
    names = [split.name for split in splits]
    if not splits or len(set(names)) < len(names):
        raise LabelError(f"every split needs a name of its own, got {', '.join(names) or 'none'}")
    with new_folder(out) as folder:
        done = [_split(split, folder, link, size, frame_size, pixels) for split in splits]
        lists = {name: f"{name}.txt" for name in names}
        both = {"train": lists[names[0]], "val": lists[names[-1]]}
        (folder / "data.yaml").write_text(data_yaml(both | lists), encoding="utf-8")
        summary = {
            split.name: {
                "labels": str(split.labels),
                "sha256": fingerprint(split.labels),
                "pictures": result.pictures,
                "boxes": result.boxes,
                "crowd_boxes_not_in_yolo": result.crowd,
                "missing_pictures": len(result.missing),
                "first_missing": result.missing[:_EXAMPLES],
                "size": result.size,
                "pixels": pixels,
                "read": result.report.as_dict(),
            }
            for split, result in zip(splits, done, strict=True)
        }
        (folder / "report.json").write_text(to_json(summary), encoding="utf-8")
    return tuple(done)


def _split(
    split: Split,
    folder: Path,
    link: Link,
    size: tuple[int, int] | None,
    frame_size: tuple[int, int],
    pixels: Pixels,
) -> Converted:
    labels, pictures = folder / "labels" / split.name, folder / "images" / split.name
    for place in (labels, folder / "coco", *([] if link == "list" else [pictures])):
        place.mkdir(parents=True, exist_ok=True)
    source = split.images.absolute()
    there = listing(source)
    report, missing, lines = Report(), [], []
    crowd = 0
    first: list[tuple[int, int]] = []

    def present() -> Iterator[tuple[int, Frame]]:
        nonlocal crowd
        for number, frame in enumerate(read(split.labels, report, frame_size), 1):
            if frame.name not in there:
                missing.append(frame.name)
                continue
            if not first:
                first.append(size or picture_size(source / frame.name))
                _check_shape(first[0], frame, source)
            with (labels / f"{Path(frame.name).stem}.txt").open("x", encoding="utf-8") as stream:
                stream.write(label_text(frame))
            if link == "symlink":
                (pictures / frame.name).symlink_to(source / frame.name)
            elif link == "hardlink":
                (pictures / frame.name).hardlink_to(source / frame.name)
            lines.append(f"{source if link == 'list' else f'./images/{split.name}'}/{frame.name}")
            crowd += sum(box.crowd for box in frame.boxes)
            yield number, frame

    # The size is known once the first picture has been seen, hence the peek.
    frames = present()
    begin = next(frames, None)
    if begin is None:
        raise PictureError(
            f"none of the {len(missing)} pictures of {split.labels} is in {split.images}; "
            "give the folder of this split's pictures with --images"
        )

    boxes = write_coco(
        chain([begin], frames), folder / "coco" / f"{split.name}.json", first[0], pixels
    )
    (folder / f"{split.name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Converted(split.name, report, len(lines), boxes, crowd, tuple(missing), first[0])


def _check_shape(size: tuple[int, int], frame: Frame, source: Path) -> None:
    across, down = size[0] / frame.width, size[1] / frame.height
    if abs(across / down - 1) > 0.01:
        raise PictureError(
            f"{source / frame.name} has {size[0]}x{size[1]} pixels, which is not the shape of the "
            f"labels' {frame.width}x{frame.height}; give the size of the pictures with --size"
        )
