"""Standard output that is closed, full, or cannot spell: one line, and nothing left behind."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import TESTBED, everything

from testbed.cli.output import OutputClosedError, OutputError, guarded, unfinished

FULL = Path("/dev/full")
NO_SPACE = "error: cannot write to standard output: No space left on device\n"
RUN = "run tiny.yaml --set editing.methods=[finetune]"


def shell(place: Path, line: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a line of bash, in which ``testbed`` is the command of this environment."""
    return subprocess.run(
        ["bash", "-c", f'set -o pipefail; testbed() {{ {TESTBED} "$@"; }}; {line}'],
        cwd=place,
        env={**os.environ, "PYTHONWARNINGS": "error", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    "arguments", ["--help", "run --help", "--version", "scenario list", "data list", RUN]
)
def test_a_full_device_is_one_line(place: Path, arguments: str) -> None:
    done = shell(place, f"testbed {arguments} >{FULL}")
    assert (done.returncode, done.stderr) == (2, NO_SPACE)
    assert not list(place.glob("results/*/*/seed=*"))


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")
def test_a_mistake_that_cannot_be_told_keeps_its_exit_code(place: Path) -> None:
    assert shell(place, f"testbed run nowhere.yaml 2>{FULL}").returncode == 2
    assert shell(place, f"testbed dance 2>{FULL}").returncode == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_do_not_matter_to_sumo(place: Path, closed: str) -> None:
    done = shell(place, f"testbed scenario inspect city_grid --end 60 --warmup 20 {closed}")
    assert (done.returncode, done.stderr) == (0, "")
    assert ("departed" in done.stdout) == (closed == "2>&-")


def test_a_run_without_any_stream_is_whole(place: Path) -> None:
    assert shell(place, f"testbed {RUN} <&- >&- 2>&-").returncode == 0
    assert len(list(place.glob("results/tiny/*/seed=0/manifest.json"))) == 1
    assert (place / "results" / "tiny" / "report.html").is_file()


def test_a_reader_that_leaves_ends_the_run_with_a_word(place: Path) -> None:
    done = shell(place, f"testbed {RUN} | head -1")
    assert done.returncode == 141
    assert done.stdout.count("\n") == 1
    assert done.stderr == (
        "standard output was closed; what is done is kept, run the same command again to go on\n"
    )
    hidden = [path for path in everything(place) if "/." in path]
    assert all("/.store" in path or path.endswith(".journal") for path in hidden)


@pytest.mark.parametrize("arguments", ["data list", "scenario list", "--help"])
def test_a_reader_that_leaves_a_list_hears_nothing(place: Path, arguments: str) -> None:
    # `true` never reads; the pause lets it end first.
    done = shell(place, f"(sleep 0.3; testbed {arguments}) | true")
    assert (done.returncode, done.stderr) == (141, "")


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_a_terminal_that_knows_ascii_alone_is_enough(place: Path) -> None:
    done = shell(place, f"testbed {RUN}", **ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "subset ?" in done.stdout  # a dash elsewhere


@pytest.mark.parametrize("variables", [{"PYTHONIOENCODING": "ascii"}, ASCII])
def test_tables_and_mistakes_are_told_in_ascii(place: Path, variables: dict[str, str]) -> None:
    done = shell(place, "testbed scenario list", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    done = shell(place, "testbed run zoë.yaml", **variables)
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot read config zo")
    assert done.stderr.count("\n") == 1


def test_streams_in_memory_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stdout", kept)
    with guarded():
        assert sys.stdout is kept
        print("heard")  # noqa: T201
    assert kept.getvalue() == "heard\n"


def test_a_closed_pipe_says_what_became_of_the_work() -> None:
    words = r"^standard output was closed; all is well$"
    with pytest.raises(OutputClosedError, match=words), unfinished("all is well"):
        raise OutputClosedError
    with pytest.raises(OutputError, match=r"^full$"), unfinished("all is well"):
        raise OutputError("full")
