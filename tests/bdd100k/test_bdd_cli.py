"""The command ``bdd100k-tools``: figures on stdout, one line and status 2 for a mistake."""

import json
import subprocess
import sys

import pytest

from bdd100k_tools import CLASSES
from bdd100k_tools.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command in this process; return its status, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bdd100k-tools", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def labels(write, frame, label):
    return write(
        [
            frame(
                "a.jpg",
                label("car"),
                label("car"),
                label("lane", box2d=None),
                attributes={"weather": "rainy", "scene": "[bold]odd[/bold]", "timeofday": "night"},
            ),
            frame("b.jpg", label("trailer"), label("bus"), attributes={"weather": "clear"}),
            frame("c.jpg"),
        ]
    )


def cells(output, first):
    """Return the cells of the row that begins with `first`."""
    (row,) = [line for line in output.splitlines() if line.strip().startswith(first + " ")]
    return row.strip().removeprefix(first).split()


def test_stats(run, labels, tmp_path):
    figure, result = tmp_path / "counts.png", tmp_path / "counts.json"
    code, output, _ = run("stats", "--labels", labels, "--figure", figure, "--json", result)
    assert code == 0
    # boxes, small, medium, large, crowd, pictures
    assert cells(output, "car") == ["2", "2", "0", "0", "0", "1"]
    assert cells(output, "truck") == ["0", "0", "0", "0", "1", "0"]
    assert all(cells(output, name) for name in CLASSES)
    assert cells(output, "rainy") == ["1"]
    assert cells(output, "[bold]odd[/bold]") == ["1"]
    assert "3 pictures (1 without a box), 4 boxes (1 crowd), names of generation unknown" in output
    assert "1 labels without a box (lanes, drivable areas), left out; first: " in output
    assert "names that are no detection class: lane 1" in output
    assert figure.stat().st_size > 10_000
    assert json.loads(result.read_text())["read"]["counts"]["no_box"] == 1


def test_convert(run, labels, folder, tmp_path):
    images = folder("a.jpg", "b.jpg")
    out = tmp_path / "set"
    code, output, _ = run("convert", "--labels", labels, "--images", images, "--out", out)
    assert code == 0
    assert "train: 2 pictures of 64x36, 4 boxes (1 crowd, in the COCO file only)" in output
    assert "1 pictures missing, left out: c.jpg" in output
    assert (out / "labels" / "train" / "b.txt").read_text().startswith("4 ")
    both = ("--labels", labels, "--images", images) * 2
    code, _, errors = run("convert", *both, "--split", "x", "--out", tmp_path / "y")
    assert code == 2
    assert errors == (
        "bdd100k-tools: --labels, --images and --split belong together: 2, 2 and 1 were given\n"
    )
    code, output, _ = run("convert", *both, "--out", tmp_path / "y", "--link", "list")
    assert code == 0
    assert (tmp_path / "y" / "val.txt").read_text().splitlines()[0] == str(images / "a.jpg")


def test_partition(run, labels, folder, tmp_path):
    out, images = tmp_path / "clients", folder("a.jpg")
    arguments = ("partition", "--labels", labels, "--clients", 3, "--by", "weather")
    code, output, _ = run(*arguments, "--images", images, "--out", out)
    assert code == 0
    assert cells(output, "client_001") == ["1", "2", "rainy", "1"]
    assert "1 clients have no box to train on: client_002" in output
    assert (out / "client_001.txt").read_text() == f"{images}/a.jpg\n"
    summary = json.loads((out / "partition.json").read_text())
    assert (summary["by"], summary["alpha"], summary["seed"]) == ("weather", None, 0)
    assert [row["pictures"] for row in summary["clients"]] == [1, 1, 1]
    again = tmp_path / "again"
    assert run(*arguments, "--images", images, "--out", again)[0] == 0
    for file in out.iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes()


def test_check(run, labels, folder, tmp_path):
    images = folder("a.jpg", "b.jpg", "c.jpg")
    checking = ("check", "--labels", labels, "--images", images)
    code, output, _ = run(*checking, "--size", "64x36", "--json", tmp_path / "found.json")
    assert code == 0
    assert "0 missing" in output
    assert json.loads((tmp_path / "found.json").read_text())["missing"] == []
    code, output, _ = run(*checking, "--no-decode")
    assert code == 1
    assert "3 wrong size: a.jpg: found 64x36, expected 1280x720" in output


def test_eval(run, golden, tmp_path):
    files = (
        "--labels", golden / "labels_2018.json", "--predictions", golden / "predictions.json",
    )  # fmt: skip
    result = tmp_path / "map.json"
    code, output, _ = run("eval", *files, "--by", "timeofday", "--json", result)
    assert code == 0
    official = json.loads((golden / "official.json").read_text())["evaluation"]["AP"]["OVERALL"]
    means = cells(output, "mAP of 9")
    assert means[0] == "145"
    assert means[3] == f"{official / 100:.4f}"
    assert cells(output, "train") == ["0", *["-"] * 6]
    assert "bdd100k: official BDD100K toolkit" in output
    stated = json.loads(result.read_text())
    assert [one["convention"] for one in stated["results"]] == ["coco", "bdd100k", "ultralytics"]
    assert set(stated["by"]) == {"daytime", "night", "dawn/dusk"}
    code, output, _ = run("eval", *files, "--convention", "coco", "--size", "640x360")
    assert code == 0
    assert float(cells(output, "mAP of 9")[1]) < 0.05  # scaled though they were not small


def test_show(run, labels, folder, golden, tmp_path):
    images = folder("a.jpg", "b.jpg", "c.jpg")
    predictions = tmp_path / "after.json"
    predictions.write_text("[]")
    out = tmp_path / "sheet.png"
    showing = ("show", "--labels", labels, "--images", images, "--out", out)
    code, output, _ = run(*showing, "--predictions", predictions, "--count", 2)
    assert (code, output) == (0, f"2 pictures drawn into {out}\n")
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stats", "--labels", "no.json"], "cannot read no.json: No such file or directory"),
        (["stats", "--labels", "LABELS", "--frame-size", "0x5"], "a size is WIDTHxHEIGHT"),
        (["stats", "--labels", "LABELS", "--json", "LABELS/x"], "cannot write"),
        (
            ["partition", "--labels", "LABELS", "--clients", "9", "--out", "x"],
            "3 pictures cannot give 9 clients 1 each; take fewer clients",
        ),
        (
            ["partition", "--labels", "LABELS", "--clients", "2", "--out", "x", "--by", "size"],
            "--by must be iid, class, weather, scene or timeofday, not 'size'",
        ),
        (
            ["convert", "--labels", "LABELS", "--images", ".", "--out", "x", "--link", "copy"],
            "--link must be symlink, hardlink or list, not 'copy'",
        ),
        (["check", "--labels", "LABELS", "--images", "no"], "cannot read no: No such file"),
        (
            ["eval", "--labels", "LABELS", "--predictions", "no.json"],
            "cannot read no.json: No such file or directory",
        ),
        (
            ["eval", "--labels", "LABELS", "--predictions", "LABELS", "--convention", "voc"],
            "--convention must be coco, bdd100k or ultralytics, not 'voc'",
        ),
        (
            ["eval", "--labels", "LABELS", "--predictions", "LABELS"],
            "every prediction needs a score in [0, 1], not None",
        ),
        (
            ["show", "--labels", "LABELS", "--images", ".", "--out", "x.png"],
            "cannot read the picture a.jpg",
        ),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    run, labels, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    code, output, errors = run(*(part.replace("LABELS", str(labels)) for part in arguments))
    assert code == 2
    assert output == ""
    assert errors.startswith("bdd100k-tools: ")
    assert message in errors
    assert errors.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before


def test_the_command_as_a_process(tmp_path):
    tool = [sys.executable, "-c", "from bdd100k_tools.cli import main; main()"]
    missing = tmp_path / ("long" * 30 + ".json")
    done = subprocess.run([*tool, "stats", "--labels", missing], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"bdd100k-tools: cannot read {missing}: No such file or directory\n"
    done = subprocess.run([*tool], capture_output=True, text=True)
    assert done.returncode in (0, 2)
    assert "partition" in done.stdout + done.stderr
    for arguments, told in {
        ("nope",): "No such command 'nope'; see",
        ("stats",): "Missing option '--labels'; see",
        ("stats", "--lables", "a"): "No such option: --lables",
        ("stats", "--json"): "Option '--json' requires an argument; see",
    }.items():
        done = subprocess.run([*tool, *arguments], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"bdd100k-tools: {told}")
        assert done.stderr.count("\n") == 1


def test_stats_of_the_real_file(run, real):
    code, output, _ = run("stats", "--labels", real / "bdd100k_labels_train.json")
    assert code == 0
    assert cells(output, "train")[0] == "2"
    assert cells(output, "car")[0] == "11107"
    assert cells(output, "rainy") == ["75"]
