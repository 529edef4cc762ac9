"""How ``testbed run`` ends, what it leaves, and what its import costs."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import LIVE, children, everything, processes, start
from damage import flip_bits

Call = Callable[..., tuple[int, list[str], list[str]]]
HEAVY = {"torch", "libsumo", "traci", "sumo", "ultralytics", "pandas", "matplotlib", "sklearn"}
TRACI = (*LIVE, "--set", "mobility.backend=traci")
# Long enough to be met in the middle.
LONG = {
    "warm-up": ("--set", "mobility.warmup=3000"),
    "editing": ("--set", "editing.requests=900", "--set", "mobility.warmup=60"),
}


def until(process: "subprocess.Popen[str]", phase: str) -> None:
    """Read what the run says up to a phase."""
    assert process.stdout is not None
    for line in process.stdout:
        if f"phase {phase}" in line:
            return
    raise AssertionError(process.communicate())


def sumo_of(process: "subprocess.Popen[str]") -> int:
    (found,) = (child for child in children(process.pid) if processes()[child][1] == "sumo")
    return found


def gone(process: int) -> bool:
    """Wait up to three seconds for a process to end."""
    for _ in range(60):
        if process not in processes():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("phase", "sent", "code"),
    [("warm-up", signal.SIGINT, 130), ("editing", signal.SIGINT, 130),
     ("warm-up", signal.SIGTERM, 143)],
)  # fmt: skip
def test_an_interrupted_run_leaves_no_sumo_and_no_half_files(
    place: Path, phase: str, sent: signal.Signals, code: int
) -> None:
    before = everything(place)
    process = start(place, "run", "tiny.yaml", *TRACI, *LONG[phase])
    until(process, phase)
    sumo = sumo_of(process)
    process.send_signal(sent)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err == "stopped; what is done is kept, run the same command again to go on\n"
    assert gone(sumo)
    left = {Path(path).name for path in everything(place) - before}
    # What the next command goes on from; before anybody has learned anything there is nothing.
    kept = {".seed=0.journal", ".store", "experiment.json"}
    assert kept <= left if phase == "editing" else not left
    assert not any("partial" in name for name in left)


def test_a_killed_run_leaves_no_sumo(place: Path) -> None:
    process = start(place, "run", "tiny.yaml", *TRACI, *LONG["warm-up"])
    until(process, "warm-up")
    sumo = sumo_of(process)
    process.kill()
    process.communicate()
    assert gone(sumo)


def test_sumo_killed_in_mid_run_is_one_line(place: Path) -> None:
    process = start(place, "run", "tiny.yaml", *TRACI, *LONG["warm-up"])
    until(process, "warm-up")
    sumo = sumo_of(process)
    time.sleep(0.2)
    subprocess.run(["kill", "-KILL", str(sumo)], check=True)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert err.startswith("error: SUMO stopped: its process was ended by signal 9")
    assert err.count("\n") == 1
    assert gone(sumo)
    assert not list(place.glob("results/*"))


def test_an_interrupted_experiment_goes_on_with_what_is_left(place: Path) -> None:
    # The first method takes no time, the second is met in the middle.
    settings = (*TRACI, *LONG["editing"], "--set", "editing.methods=[finetune,retrain]")
    settings += ("--set", "editing.requests=40")
    process = start(place, "run", "tiny.yaml", *settings)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("Retrain") and "phase editing" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    left = everything(place / "results")
    assert any(re.fullmatch(r"tiny/finetune-.*/seed=0/manifest\.json", path) for path in left)
    assert any(re.fullmatch(r"tiny/retrain-.*/\.seed=0\.journal", path) for path in left)
    assert not any(re.fullmatch(r"tiny/retrain-.*/seed=0.*", path) for path in left)
    process = start(place, "run", "tiny.yaml", *settings)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    left = everything(place / "results")
    assert any(re.fullmatch(r"tiny/retrain-.*/seed=0/manifest\.json", path) for path in left)
    assert not any("/." in path for path in left)


LATE = """
import atexit, signal
from testbed.cli import main

@atexit.register
def late():
    signal.raise_signal(signal.{signal})
    print("went on")

main()
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_while_python_shuts_down_ends_it_quietly(sent: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE.format(signal=sent.name), "--version"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-sent, "")
    assert re.fullmatch(r"testbed \S+\n", done.stdout)


SHOW = """
import sys
import testbed
from testbed.cli import main
after = set(sys.modules)
sys.argv = ["testbed", *sys.argv[1:]]
try:
    main()
finally:
    print(sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("run", "--help"), ("scenario", "--help")]
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW, *arguments], capture_output=True, text=True, check=True
    )
    loaded = set(re.findall(r"'(\w+)'", done.stderr))
    assert "typer" in loaded
    assert not loaded & HEAVY
    assert "testbed" in done.stdout


def test_help_is_immediate() -> None:
    """Prints the time; the machine that runs the tests may be busy, so it is no bound."""
    spans = []
    for _ in range(3):
        begin = time.perf_counter()
        process = start(Path.cwd(), "--help")
        out, err = process.communicate()
        spans.append(time.perf_counter() - begin)
        assert (process.returncode, err) == (0, "")
        assert "doctor" in out
    sys.stdout.write(f"testbed --help: {min(spans):.2f} s, best of 3\n")


def test_a_usage_mistake_exits_with_2(call: Call) -> None:
    for arguments in (("run",), ("dance",), ("run", "x.yaml", "--colour")):
        code, out, err = call(*arguments)
        assert (code, out) == (2, [])
        assert err


def test_errors_of_several_lines_become_one(
    call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from testbed.errors import DataError

    def fail(*_: object) -> None:
        raise DataError("first\n  second\nthird")

    monkeypatch.setattr("testbed.cli.running.run_experiment", fail)
    assert call("run", "tiny.yaml") == (2, [], ["error: first second third"])


def test_settings_reach_the_run(call: Call, place: Path) -> None:
    code, out, err = call(
        "run", "tiny.yaml", "--out", "out", "--set", "editing.requests=2",
        "--set", "editing.methods=[finetune]", "--set", "seeds=3",
    )  # fmt: skip
    assert (code, err) == (0, [])
    (method,) = (place / "out").glob("*-*")
    assert method.name.startswith("finetune-")
    assert {path.name for path in method.iterdir()} == {"seed=3"}
    assert any("requests 2/2" in line for line in out)


def test_warnings_of_a_run_are_printed(call: Call) -> None:
    code, out, _ = call(
        "run", "tiny.yaml", "--set", "editing.requests=9", "--set", "editing.methods=[finetune]"
    )
    assert code == 0
    assert "note: Fine-tune, seed 0: The traffic ended after 4 of 9 requests." in out


def test_damaged_entries_of_the_store_are_told(call: Call, place: Path) -> None:
    words = ("run", "tiny.yaml", "--out", "out", "--set", "execution.store=kept")
    code, out, _ = call(*words)
    assert code == 0
    assert not any("Entries of the store" in line for line in out)
    clients = flip_bits(place / "kept") // 2  # behind a damaged model nobody looks
    code, out, _ = call(*words, "--force")
    assert code == 0
    assert f"note: Entries of the store that were damaged and made again: {clients}." in out


def test_figures_that_were_never_drawn_are_drawn_by_the_next_command(
    call: Call, place: Path
) -> None:
    """As after a command that was stopped between a run and its figures."""
    one = ("run", "tiny.yaml", "--out", "out", "--set", "editing.methods=[finetune]")
    assert call(*one)[0] == 0
    (own,) = (place / "out").glob("finetune-*/seed=0/report.html")
    before = own.read_bytes()
    own.unlink()
    assert call(*one)[0] == 0
    assert own.read_bytes() == before
