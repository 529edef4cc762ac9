"""``testbed reproduce`` as it is typed, and every real card at the smallest scale."""

import csv
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from bundles import places
from cards import CARD, figure, write
from typer.testing import CliRunner, Result

from testbed.cli.app import app
from testbed.config.cards import load_cards

REPOSITORY = Path(__file__).parents[2]
TESTBED = Path(sys.executable).with_name("testbed")


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def told(*words: object) -> tuple[int, str]:
    """Type a command in a process of its own; return its status and what it complained."""
    done = subprocess.run(
        [TESTBED, "reproduce", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "reproduction.csv").open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Every card of the project at the scale smoke, on small data of every kind."""
    if find_spec("ultralytics") is None:  # whose import changes what others import
        pytest.skip("needs the extra yolo: pip install 'fsosa-testbed[yolo]'")
    folder = tmp_path_factory.mktemp("smoke")
    words = ["--set", "execution.kind=serial", "--set", f"execution.cache={folder / 'cache'}"]
    for each in places(folder):
        words += ["--data", each]
    cards = REPOSITORY / "configs" / "claims"
    out = folder / "out"
    return out, call(
        "reproduce", "all", "--scale", "smoke", "--cards", cards, "--out", out, *words
    )


@pytest.mark.timeout(900)
def test_all_claims_are_tried(everything: tuple[Path, Result]) -> None:
    out, said = everything
    assert (said.exit_code, said.exception) == (0, None)
    names = {one.name for one in load_cards(REPOSITORY / "configs" / "claims")}
    found = rows(out)
    assert {row["claim"] for row in found} == names
    for row in found:
        assert row["scale"] == "smoke"
        assert bool(row["why"]) == (row["verdict"] != "met"), row
    assert all(row["value"] for row in found), [row for row in found if not row["value"]]


def test_what_does_not_depend_on_size_is_met_at_any(everything: tuple[Path, Result]) -> None:
    found = [row for row in rows(everything[0]) if row["claim"] == "stability"]
    assert [row["verdict"] for row in found] == ["met", "met"]


def test_the_page_and_the_screen_say_the_same(everything: tuple[Path, Result]) -> None:
    out, said = everything
    page = (out / "reproduction.md").read_text()
    counts = [line for line in page.splitlines() if line.startswith("smoke: ")]
    assert counts == [line for line in said.output.splitlines() if line.startswith("smoke: ")][-1:]
    for one in load_cards(REPOSITORY / "configs" / "claims"):
        assert f"## {one.name}\n\n{one.says}" in page
    assert page.count("paper, serialised") > 10


# Small cards.


def test_the_same_command_does_nothing_twice(tmp_path: Path) -> None:
    write(tmp_path / "claims", study={**CARD["study"], "config": "../study.yaml"})
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    words = ("reproduce", "all", "--scale", "smoke", "--cards", tmp_path / "claims",
             "--out", tmp_path / "out", "--set", "execution.kind=serial")  # fmt: skip
    first, files = call(*words), {}
    assert first.exit_code == 0
    for name in ("reproduction.md", "reproduction.csv"):
        files[name] = (tmp_path / "out" / name).read_bytes()
    again = call(*words)
    assert "running" in first.output
    assert "running" not in again.output
    for name, content in files.items():
        assert (tmp_path / "out" / name).read_bytes() == content
    assert "smoke: 1 met." in again.output.splitlines()


@pytest.mark.parametrize("width", [80, 140])
def test_the_screen_has_all_that_a_verdict_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    sent = figure(name="bytes saved", options={"of": "bytes"}, between=None, at=-500,
                  why={"smoke": "no method costs that much"})  # fmt: skip
    write(tmp_path / "claims", study={**CARD["study"], "config": "../study.yaml"}, figures=[sent])
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    said = call("reproduce", "all", "--scale", "smoke", "--cards", tmp_path / "claims",
                "--out", tmp_path / "out", "--set", "execution.kind=serial").output  # fmt: skip
    (row,) = rows(tmp_path / "out")
    lines = said.splitlines()
    assert "above the band: no method costs that much" in said
    assert any(line.startswith("* bytes by paper, serialised") for line in lines)
    (told,) = (line for line in lines if "bytes saved: digits" in line)
    for word in ("-500 %", f"{float(row['value']):.1f} [", " 2 ", "missed"):
        assert word in told, told
    if width == 80:
        assert "cheap, smoke:" in lines
    else:
        assert all(word in said for word in ("(incremental ", "broadcast "))
        assert all(word in told for word in ("cheap", "smoke", "paper, serialised"))


def test_claims_of_other_commands_stay_in_the_table(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / "claims", name, study={**CARD["study"], "config": "../study.yaml"})
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    words = ("--cards", tmp_path / "claims", "--out", tmp_path / "out",
             "--set", "execution.kind=serial")  # fmt: skip
    call("reproduce", "one", "--scale", "smoke", *words)
    call("reproduce", "two", "--scale", "paper", *words)
    assert [(row["claim"], row["scale"], row["verdict"]) for row in rows(tmp_path / "out")] == [
        ("one", "smoke", "met"), ("two", "paper", "not run at this scale"),
    ]  # fmt: skip


def test_untrained_leaves_out_what_trains(tmp_path: Path) -> None:
    study = {**CARD["study"], "config": "../study.yaml"}
    write(tmp_path / "claims", "cheap", study=study)
    write(tmp_path / "claims", "dear", study={**study, "settings": {}})
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    said = call("reproduce", "all", "--untrained", "--scale", "smoke", "--cards",
                tmp_path / "claims", "--out", tmp_path / "out",
                "--set", "execution.kind=serial")  # fmt: skip
    assert said.exit_code == 0
    assert {row["claim"] for row in rows(tmp_path / "out")} == {"cheap"}


def test_a_run_that_fails_makes_the_command_fail(tmp_path: Path) -> None:
    study = {**CARD["study"], "config": "../study.yaml"}
    write(tmp_path / "claims", study=study, data={"digits": {"data": {"limit": 10_000}}})
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    said = call("reproduce", "cheap", "--scale", "smoke", "--cards", tmp_path / "claims",
                "--out", tmp_path / "out", "--set", "execution.kind=serial")  # fmt: skip
    assert said.exit_code == 1
    assert "failed: 4 runs, digits, rho=0.5 fsosa seed=0 the first: data.limit" in said.output
    (row,) = rows(tmp_path / "out")
    assert row["verdict"] == "not run at this scale"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["magic"], "magic: no such claim; known: cheap, or all"),
        (["all", "--scale", "huge"], "--scale 'huge': no such scale; known: smoke, small, paper"),
        (["all", "--data", "mnist"], "--data 'mnist': write NAME=PLACE, as mnist=DATA/mnist"),
        (["all", "--data", "mist=."], "--data mist: no such data set; known: digits, mnist"),
        (["all", "--data", "mnist=nowhere"], "--data mnist: there is no 'nowhere'"),
        (["all", "--set", "editing.rho=1"], "--set editing.rho=1: a claim is tried as its card"),
        (["all", "--set", "execution.kin=x"], "execution.kin: unknown key; did you mean"),
        (["all", "--cards", "nowhere"], "nowhere: holds no claim card"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    tmp_path: Path, words: list[str], line: str
) -> None:
    study = {**CARD["study"], "config": "../study.yaml"}
    write(tmp_path / "claims", study=study)
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    given = words if "--cards" in words else [*words, "--cards", str(tmp_path / "claims")]
    status, complaint = told(*given, "--out", tmp_path / "out")
    assert status == 2
    assert complaint.startswith(f"error: {line}")
    assert complaint.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_card_with_an_unknown_figure_is_one_line(tmp_path: Path) -> None:
    study = {**CARD["study"], "config": "../study.yaml"}
    write(tmp_path / "claims", study=study, figures=[figure(measure="magic")])
    (tmp_path / "claims" / "study.yaml").unlink()
    status, complaint = told("all", "--cards", tmp_path / "claims", "--out", tmp_path / "out")
    assert status == 2
    assert complaint.startswith("error: claim cheap, figure 'time saved': measure 'magic' is not")


def test_a_file_of_settings_says_where_data_are_and_nothing_else(tmp_path: Path) -> None:
    study = {**CARD["study"], "config": "../study.yaml"}
    write(tmp_path / "claims", study=study)
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    (tmp_path / "mnist.yaml").write_text("editing: {rho: 1}\n")
    status, complaint = told("all", "--cards", tmp_path / "claims", "--out", tmp_path / "out",
                             "--data", f"mnist={tmp_path / 'mnist.yaml'}")  # fmt: skip
    assert status == 2
    assert "editing.rho: says where data are" in complaint


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    study = {**CARD["study"], "config": "../study.yaml"}
    study["settings"] = {"learning": {"epochs": 40}}
    write(tmp_path / "claims", study=study)
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    words = ("reproduce", "all", "--scale", "smoke", "--cards", tmp_path / "claims",
             "--set", "execution.kind=serial")  # fmt: skip
    process = subprocess.Popen(
        [TESTBED, *map(str, words), "--out", tmp_path / "out"],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(tmp_path.glob("out/.store/*/??/*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (
        130, "stopped; what is done is kept, run the same command again to go on\n",
    )  # fmt: skip
    assert call(*words, "--out", tmp_path / "out").exit_code == 0
    assert call(*words, "--out", tmp_path / "whole").exit_code == 0
    assert rows(tmp_path / "out") == rows(tmp_path / "whole")


def test_two_commands_do_not_share_a_folder(tmp_path: Path) -> None:
    from testbed.experiments.lock import exclusive

    study = {**CARD["study"], "config": "../study.yaml"}
    write(tmp_path / "claims", study=study)
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    with exclusive(tmp_path / "out"):
        status, complaint = told("all", "--cards", tmp_path / "claims", "--out", tmp_path / "out")
    assert status == 2
    assert "another testbed run" in complaint


def test_the_command_is_known() -> None:
    assert "reproduce" in call("--help").output
