"""The command ``bdd100k-tools``: parse, call, print."""

import io
import re
import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from bdd100k_tools.errors import ToolsError, UsageError
from bdd100k_tools.labels import SIZE, fingerprint, read
from bdd100k_tools.output import new_folder, to_json, write_text
from bdd100k_tools.printing import counted, say, say_report, say_scores, say_table, score, some
from bdd100k_tools.report import Report

_FOUND, _USER_ERROR = 1, 2
# Of Typer's own errors only those below this one have a public name.
_CommandError: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="bdd100k-tools",
    help="BDD100K detection labels: convert, count, share out, check, evaluate, look at.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


WHOLE = "{}x{}".format(*SIZE)

Labels = Annotated[
    Path, typer.Option("--labels", metavar="JSON", help="Label file, or a folder of them.")
]
Images = Annotated[Path, typer.Option("--images", metavar="DIR", help="Folder of the pictures.")]
FrameSize = Annotated[
    str,
    typer.Option(
        "--frame-size",
        metavar="WxH",
        help="What the boxes refer to where the file does not say.",
    ),
]
PictureSize = Annotated[
    str | None, typer.Option("--size", metavar="WxH", help="Size of the picture files.")
]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result too.")]


@app.command()
def convert(
    labels: Annotated[
        list[Path], typer.Option("--labels", metavar="JSON", help="Label file; once per split.")
    ],
    images: Annotated[
        list[Path], typer.Option("--images", metavar="DIR", help="Its pictures; once per split.")
    ],
    out: Annotated[Path, typer.Option(help="New folder.")],
    split: Annotated[
        list[str] | None, typer.Option(help="Name, once per split; default: train, val.")
    ] = None,
    link: Annotated[
        str, typer.Option(help="symlink, hardlink, or list: no links, only paths in the lists.")
    ] = "symlink",
    size: PictureSize = None,
    frame_size: FrameSize = WHOLE,
    pixels: Annotated[
        str, typer.Option(help="Width of COCO boxes: coco is x2-x1, bdd100k is x2-x1+1.")
    ] = "coco",
) -> None:
    """Write YOLO labels with data.yaml, COCO JSON, and links or lists instead of copies."""
    from bdd100k_tools.coco import Pixels
    from bdd100k_tools.convert import Link, Split, convert

    names = split or ["train", "val"][: len(labels)]
    if not len(labels) == len(images) == len(names):
        raise UsageError(
            f"--labels, --images and --split belong together: {len(labels)}, {len(images)} and "
            f"{len(names)} were given"
        )
    splits = [Split(*parts) for parts in zip(names, labels, images, strict=True)]
    done = convert(
        splits,
        out,
        link=_choice("--link", link, get_args(Link)),
        size=_size(size) if size else None,
        frame_size=_size(frame_size),
        pixels=_choice("--pixels", pixels, get_args(Pixels)),
    )
    for result in done:
        say(
            f"{result.split}: {result.pictures} pictures of {result.size[0]}x{result.size[1]}, "
            f"{result.boxes} boxes ({result.crowd} crowd, in the COCO file only)",
        )
        if result.missing:
            say(f"  {len(result.missing)} pictures missing, left out: "
                 + some(result.missing))  # fmt: skip
        say_report(result.report)
    say(f"written to {out}")


@app.command()
def stats(
    labels: Labels,
    figure: Annotated[
        Path | None, typer.Option(metavar="PNG", help="Draw the counts into this file.")
    ] = None,
    json: Json = None,
    frame_size: FrameSize = WHOLE,
) -> None:
    """Count boxes per class and size, and pictures per attribute."""
    from bdd100k_tools.statistics import count, draw

    report = Report()
    total = count(read(labels, report, _size(frame_size)))
    if json:
        write_text(json, to_json(total.as_dict() | {"read": report.as_dict()}))
    if figure:
        draw(total, figure, f"{labels.name}: {total.pictures:,} pictures, {report.boxes:,} boxes")
    say_table(
        ("class", "boxes", "small", "medium", "large", "crowd", "pictures"),
        [
            (name, c.boxes, c.small, c.medium, c.large, c.crowd, c.pictures)
            for name, c in total.classes.items()
        ],
    )
    for attribute, values in total.attributes.items():
        say_table((attribute, "pictures"), values.most_common())
    say(
        f"{total.pictures} pictures ({total.background} without a box), {report.boxes} boxes "
        f"({report.crowd} crowd), names of generation {report.generation}",
    )
    say_report(report)


@app.command()
def partition(
    labels: Labels,
    clients: Annotated[int, typer.Option(help="How many.")],
    out: Annotated[Path, typer.Option(help="New folder: a list per client, partition.json.")],
    by: Annotated[str, typer.Option(help="iid, class, weather, scene or timeofday.")] = "iid",
    alpha: Annotated[
        float | None, typer.Option(help="Dirichlet over --by; without: one value per client.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same partition.")] = 0,
    minimum: Annotated[int, typer.Option("--min", help="Pictures a client must have.")] = 1,
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="List paths into this folder; default: bare names."),
    ] = None,
    frame_size: FrameSize = WHOLE,
) -> None:
    """Share the pictures out to clients: a list file each, no copies."""
    from bdd100k_tools import partition as rooms

    way = _choice("--by", by, get_args(rooms.By))
    report = Report()
    entries = [rooms.entry(frame) for frame in read(labels, report, _size(frame_size))]
    parts = rooms.partition(entries, clients, way, alpha=alpha, seed=seed, minimum=minimum)
    rows = rooms.describe(entries, parts)
    prefix = f"{images.absolute()}/" if images else ""
    with new_folder(out) as folder:
        for row, names in zip(rows, parts, strict=True):
            text = "".join(f"{prefix}{name}\n" for name in names)
            (folder / f"{row['client']}.txt").write_text(text, encoding="utf-8")
        summary = {
            "labels": str(labels), "sha256": fingerprint(labels), "by": by, "alpha": alpha,
            "seed": seed, "minimum": minimum, "clients": rows, "read": report.as_dict(),
        }  # fmt: skip
        (folder / "partition.json").write_text(to_json(summary), encoding="utf-8")
    mix = "classes" if by == "class" else by if by in rooms.ATTRIBUTES else "timeofday"
    say_table(
        ("client", "pictures", "boxes", mix),
        [(row["client"], row["pictures"], row["boxes"], counted(row[mix])) for row in rows],
    )
    if bare := [row["client"] for row in rows if not row["boxes"]]:
        say(f"{len(bare)} clients have no box to train on: {some(bare)}")
    say_report(report)
    say(f"written to {out}")


@app.command()
def check(
    labels: Labels,
    images: Images,
    size: PictureSize = None,
    decode: Annotated[
        bool, typer.Option(help="Decode every picture, or only read the headers.")
    ] = True,
    json: Json = None,
    frame_size: FrameSize = WHOLE,
) -> None:
    """Compare labels with pictures: missing, extra, corrupt, wrong size; exit 1 if any is."""
    from dataclasses import asdict

    from bdd100k_tools.pictures import check

    report = Report()
    found = check(
        read(labels, report, _size(frame_size)), images, _size(size) if size else None, decode
    )
    if json:
        write_text(json, to_json(asdict(found) | {"read": report.as_dict()}))
    say(f"{found.pictures} labelled pictures")
    for title, names in (
        ("missing", found.missing),
        ("extra", found.extra),
        ("corrupt", found.corrupt),
        ("wrong size", found.wrong_size),
    ):
        say(f"{len(names):>6} {title}{': ' if names else ''}{some(names)}")
    say_report(report)
    raise typer.Exit(0 if found.clean else _FOUND)


@app.command("eval")
def evaluate(
    labels: Labels,
    predictions: Annotated[
        Path, typer.Option(metavar="JSON", help="Scalabel frames with scores, or COCO results.")
    ],
    convention: Annotated[
        list[str] | None, typer.Option(help="coco, bdd100k, ultralytics; default: all three.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Also apart per value of weather, scene or timeofday.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(metavar="WxH", help="Pixels the predictions are in, if other."),
    ] = None,
    json: Json = None,
    frame_size: FrameSize = WHOLE,
) -> None:
    """Print mAP50-95, mAP50 and each class, with the conventions they were computed under."""
    from bdd100k_tools.evaluation import CONVENTIONS, STATEMENTS, evaluate, evaluate_by
    from bdd100k_tools.partition import ATTRIBUTES
    from bdd100k_tools.predictions import read_predictions

    chosen = [_choice("--convention", name, CONVENTIONS) for name in convention or CONVENTIONS]
    if by is not None:
        _choice("--by", by, ATTRIBUTES)
    report = Report()
    frames = list(read(labels, report, _size(frame_size)))
    (width, height), (across, down) = _size(frame_size), _size(size or frame_size)
    scale = width / across, height / down
    detections, dropped = read_predictions(predictions, [f.name for f in frames], scale)
    results = [evaluate(frames, detections, name) for name in chosen]
    groups = evaluate_by(frames, detections, by, chosen[0]) if by else {}
    if json:
        write_text(
            json,
            to_json(
                {
                    "results": [result.as_dict() for result in results],
                    "by": {value: result.as_dict() for value, result in groups.items()},
                    "predictions_dropped": dict(dropped),
                    "read": report.as_dict(),
                }
            ),
        )
    say_scores(results)
    if groups:
        say_table(
            (f"{by} ({chosen[0]})", "pictures", "boxes", "mAP50-95", "mAP50"),
            [
                (value, r.pictures, r.boxes, score(r.map50_95), score(r.map50))
                for value, r in groups.items()
            ],
        )
    for result in results:
        say(f"{result.convention}: {STATEMENTS[result.convention]} ({result.engine})")
    first = results[0]
    say(f"{first.pictures} pictures, {first.boxes} boxes and {first.crowd} crowd, "
         f"{first.detections} predictions")  # fmt: skip
    for reason, number in dropped.items():
        say(f"{number:>6} predictions left out: {reason.replace('_', ' ')}")
    say_report(report)


@app.command()
def show(
    labels: Labels,
    images: Images,
    out: Annotated[Path, typer.Option(metavar="PNG", help="The contact sheet.")],
    predictions: Annotated[
        list[Path] | None,
        typer.Option(metavar="JSON", help="A column each, such as before and after an edit."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=100, help="Pictures on the sheet.")] = 8,
    seed: Annotated[int, typer.Option(help="Which pictures.")] = 0,
    score: Annotated[float, typer.Option(help="Weaker predictions are not drawn.")] = 0.25,
    frame_size: FrameSize = WHOLE,
) -> None:
    """Draw a contact sheet: pictures with their labels and with predictions beside them."""
    from bdd100k_tools.contact import choose, draw_sheet
    from bdd100k_tools.predictions import read_predictions

    report = Report()
    frames = list(read(labels, report, _size(frame_size)))
    names = [frame.name for frame in frames]
    places = choose(names, count, seed)
    columns = {
        path.stem if sum(p.stem == path.stem for p in predictions or []) == 1 else str(path): (
            read_predictions(path, names)[0].of(places)
        )
        for path in predictions or []
    }
    chosen = [frames[place] for place in places]
    draw_sheet(chosen, images, out, columns, least_score=score)
    say(f"{len(chosen)} pictures drawn into {out}")


def main() -> None:
    """Run the command; a user's mistake is one line and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may lack some characters
            stream.reconfigure(errors="replace")
    try:
        # Otherwise Typer would print a mistake itself, in four lines.
        sys.exit(app(standalone_mode=False, prog_name=app.info.name))
    except _CommandError as error:
        typer.echo(_wrong_command(error), err=True)
        sys.exit(_USER_ERROR)
    except ToolsError as error:
        typer.echo(f"bdd100k-tools: {' '.join(str(error).split())}", err=True)
        sys.exit(_USER_ERROR)


def _wrong_command(error: Any) -> str:
    """Return what is wrong with the arguments; where there are none, the help."""
    message: str = error.format_message()
    if "\n" in message:
        return message
    command = error.ctx.command_path if error.ctx else app.info.name
    return f"bdd100k-tools: {message.rstrip('.')}; see '{command} --help'"


def _choice(option: str, value: str, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        known = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        raise UsageError(f"{option} must be {known}, not {value!r}")
    return value


def _size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d{0,4})x([1-9]\d{0,4})", text)
    if not match:
        raise UsageError(f"a size is WIDTHxHEIGHT, like 640x360, not {text!r}")
    return int(match[1]), int(match[2])
