"""Processor time and peak memory of bdd100k_tools on a label file as large as the official one.

A synthetic file of 2018 in the official layout, lanes included, with empty files for
pictures, is made in a temporary folder; every command runs in a process of its own.  Peak
memory is the kernel's count of that process.  Usage: python benchmarks/bdd100k_reader.py
[PICTURES], by default 70,000 (0.7 GB of disk).
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

BOXES, LANES, VARIANTS = 18, 8, 200
CATEGORIES = ("car", "person", "traffic sign", "traffic light", "truck", "bike")


def labels(draw: random.Random) -> str:
    """Return the labels of one picture."""
    made: list[dict[str, object]] = []
    for index in range(BOXES):
        x, y = draw.uniform(0, 1200), draw.uniform(0, 650)
        made.append(
            {
                "category": draw.choice(CATEGORIES),
                "attributes": {"occluded": False, "truncated": False, "trafficLightColor": "none"},
                "manualShape": True,
                "manualAttributes": True,
                "box2d": {"x1": x, "y1": y, "x2": x + 60.5, "y2": y + 50.25},
                "id": index,
            }
        )
    for index in range(LANES):
        vertices = [[draw.uniform(0, 1280), draw.uniform(0, 720)] for _ in range(6)]
        polygon = [{"vertices": vertices, "types": "LLLLLL", "closed": False}]
        made.append({"category": "lane", "poly2d": polygon, "id": BOXES + index})
    return json.dumps(made)


def make(folder: Path, pictures: int) -> Path:
    """Write the label file and the empty pictures; return the label file."""
    draw = random.Random(0)
    variants = [labels(draw) for _ in range(VARIANTS)]
    weather = ("clear", "rainy", "snowy", "overcast")
    (folder / "images").mkdir()
    path = folder / "labels.json"
    with path.open("w", encoding="utf-8") as stream:
        for number in range(pictures):
            name = f"{number:08x}-{number:08x}.jpg"
            (folder / "images" / name).touch()
            stream.write("," if number else "[")
            attributes = {"weather": weather[number % 4], "timeofday": "night"}
            head = {"name": name, "attributes": attributes, "timestamp": 10000}
            stream.write(f'{json.dumps(head)[:-1]}, "labels": {variants[number % VARIANTS]}}}')
        stream.write("]")
    return path


def measure(title: str, *command: str) -> None:
    """Run a command and print its processor seconds and peak memory."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = usage.ru_utime + usage.ru_stime
    print(f"{title:24} {seconds:6.1f} s  {usage.ru_maxrss / 1024:6.0f} MiB", flush=True)
    if process.returncode:
        raise SystemExit(process.returncode)


def main() -> None:
    """Make the files, run the commands, print a line for each."""
    pictures = int(sys.argv[1]) if len(sys.argv) > 1 else 70_000
    tool = (sys.executable, "-c", "from bdd100k_tools.cli import main; main()")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        path = make(folder, pictures)
        print(f"{pictures} pictures, {path.stat().st_size / 1e6:.0f} MB")
        source = ("--labels", str(path))
        reading = f"import bdd100k_tools as b; [0 for _ in b.read(b.labels.Path({str(path)!r}))]"
        measure("nothing but imports", sys.executable, "-c", "import bdd100k_tools")
        measure("read", sys.executable, "-c", reading)
        measure("stats", *tool, "stats", *source)
        shares = ("--by", "weather", "--clients", "20", "--out", str(folder / "clients"))
        measure("partition", *tool, "partition", *source, *shares)
        links = ("--images", str(folder / "images"), "--size", "1280x720")
        measure("convert", *tool, "convert", *source, *links, "--out", str(folder / "converted"))


if __name__ == "__main__":
    main()
