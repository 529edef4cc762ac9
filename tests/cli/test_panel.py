import io
import re
import subprocess
import sys

import pytest
from rich.console import Console

from testbed.cli.panel import Watcher, show_summary
from testbed.ledger import TARIFFS
from testbed.reporting.table import Summary
from testbed.simulation.progress import Progress

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def state(phase="editing", done=0, wanted=31, method="fsosa", seed=0, **values):
    return Progress(
        **{
            "method": method, "seed": seed, "phase": phase, "time": 300.0 + 20 * done,
            "population": 21, "subset": 10, "done": done, "wanted": wanted,
            "triggered": done // 2, "quality": ("accuracy", 0.9124),
            "bytes": {"incremental": done * 10**6, "broadcast": 0, "paper": 999},
            **values,
        }
    )  # fmt: skip


def plain(width=80):
    stream = io.StringIO()
    return stream, Console(file=stream, force_terminal=False, width=width)


def terminal():
    stream = io.StringIO()
    return stream, Console(file=stream, force_terminal=True, width=80, _environ={"TERM": "xterm"})


def watched(states, tick=0.0):
    """Lines printed for `states`, `tick` seconds apart, where there is no terminal."""
    stream, console = plain()
    clock = Clock()
    with Watcher(console, clock) as watcher:
        for progress in states:
            watcher(progress)
            clock.now += tick
    return stream.getvalue().splitlines()


def test_each_phase_begins_with_a_line():
    lines = watched([
        state("warm-up", quality=None, population=3), state("warm-up"), state("training"),
        state("editing"), state("editing", done=1),
    ])  # fmt: skip
    assert [re.search(r"phase (\S+)", line)[1] for line in lines] == [
        "warm-up", "training", "editing", "editing",
    ]  # fmt: skip
    assert lines[0] == "F-SOSA-U/I, seed 0  phase warm-up  simulated time 300 s  population 3"


def test_a_line_says_everything_without_colour():
    line = watched([state(done=0), state(done=10)], tick=2.0)[-1]
    assert line == (
        "F-SOSA-U/I, seed 0  phase editing  simulated time 500 s  population 21  subset 10  "
        "accuracy 91.2 %  requests 10/31 (4.20 s left)  edits 5  "
        "bytes 10.0 MB (incremental), 0 B (broadcast), 999 B (paper)"
    )


def test_fast_requests_are_told_by_fives():
    lines = watched([state(done=k) for k in range(32)])
    assert [re.search(r"requests (\d+)/31", line)[1] for line in lines] == [
        "0", "5", "10", "15", "20", "25", "30", "31",
    ]  # fmt: skip


def test_slow_requests_are_told_every_five_seconds():
    lines = watched([state(done=k) for k in range(4)], tick=3.0)
    assert [re.search(r"requests (\d+)/31", line)[1] for line in lines] == ["0", "2", "3"]


def test_many_requests_are_no_flood():
    lines = watched([state(done=k, wanted=1000) for k in range(1001)])
    assert len(lines) == 21


def test_the_last_state_is_told_once_even_if_the_run_ends_early():
    lines = watched([state(done=0), state(done=2), state(done=0, seed=1), state(done=5, seed=1)])
    assert [re.search(r"seed (\d).*requests (\d)", line).groups() for line in lines] == [
        ("0", "0"), ("0", "2"), ("1", "0"), ("1", "5"),
    ]  # fmt: skip


def test_no_escape_codes_and_no_wrapping_without_a_terminal():
    stream, console = plain(width=20)
    with Watcher(console) as watcher:
        watcher(state(done=3))
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


def test_nothing_watched_nothing_said():
    assert watched([]) == []


def test_a_method_without_subset_has_a_dash():
    assert "subset –" in watched([state(subset=0)])[0]


def test_time_left_follows_the_pace_of_the_editing_phase():
    stream, console = plain()
    clock = Clock()
    with Watcher(console, clock) as watcher:
        watcher(state("training"))
        clock.now = 1000.0  # of training, which says nothing about requests
        watcher(state(done=0))
        clock.now = 1010.0
        watcher(state(done=5, wanted=25))
    assert "requests 5/25 (40.0 s left)" in stream.getvalue()


def test_on_a_terminal_the_panel_shows_the_run():
    stream, console = terminal()
    clock = Clock()
    with Watcher(console, clock) as watcher:
        watcher(state(done=0))
        clock.now = 12.0
        watcher(state(done=12))
        watcher._live.refresh()
    text = ANSI.sub("", stream.getvalue())
    for part in (
        "F-SOSA-U/I, seed 0", "540 s", "12/31 (19.0 s left)", "12.0 MB (incremental)",
        "91.2 %", "editing for 12.0 s",
    ):  # fmt: skip
        assert part in text
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is back


def test_on_a_terminal_every_finished_run_leaves_one_line():
    stream, console = terminal()
    with Watcher(console) as watcher:
        for method in ("fsosa", "retrain"):
            for done in (0, 5, 31):
                watcher(state(done=done, method=method))
    text = ANSI.sub("", stream.getvalue())
    lines = re.findall(r"(\S+), seed 0  phase editing .*requests (\d+)/31", text)
    assert lines == [("F-SOSA-U/I", "31"), ("Retrain", "31")]


def test_the_panel_starts_before_there_is_news():
    stream, console = terminal()
    with Watcher(console) as watcher:
        watcher._live.refresh()
    assert "starting" in stream.getvalue()


def test_the_terminal_is_restored_after_a_failure():
    stream, console = terminal()

    def fail():
        with Watcher(console) as watcher:
            watcher(state(done=3))
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail()
    assert "\x1b[?25h" in stream.getvalue()
    assert "requests 3/31" in ANSI.sub("", stream.getvalue())


def test_a_dumb_terminal_gets_lines():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, _environ={"TERM": "dumb"})
    with Watcher(console) as watcher:
        watcher(state(done=3))
    assert "\x1b[?25" not in stream.getvalue()
    assert "requests 3/31" in stream.getvalue()


def summary(method="fsosa", label="F-SOSA-U/I", **values):
    return Summary(
        **{
            "method": method, "label": label, "seeds": (0, 1, 2),
            "measure": "accuracy", "quality": 0.97249, "quality_spread": 0.0026,
            "requests": 31, "handled": 31, "triggered": 14.5,
            "seconds": 150.0, "seconds_saved": 36.664,
            "bytes": dict.fromkeys(TARIFFS, 25e6),
            "bytes_saved": {"incremental": 98.0, "broadcast": -7.5, "paper": 25.0},
            "flagged": 0, **values,
        }
    )  # fmt: skip


RETRAIN = summary("retrain", "Retrain", seconds_saved=0.0, bytes_saved=dict.fromkeys(TARIFFS, 0.0))


def shown(*summaries):
    stream, console = plain()
    show_summary(console, summaries)
    return stream.getvalue()


def test_the_summary_fits_eighty_columns_in_full():
    text = shown(summary(), RETRAIN)
    table = text[: text.index("Means")].splitlines()
    assert max(map(len, table)) <= 80
    assert "…" not in text
    assert table[0].split() == ["method", "accuracy", "requests", "edits", "time", *TARIFFS]
    assert table[2].split("  ")[0].startswith("F-SOSA-U/I 97.2 ± 0.3 %")
    assert re.findall(r"\S+ MB|\S+ min", table[2]) == ["2.50 min", *["25.0 MB"] * 3]
    assert re.findall(r"[+-]\S+ %", table[3]) == ["-36.66 %", "-98.00 %", "+7.50 %", "-25.00 %"]


@pytest.mark.parametrize("width", [20, 40, 60, 69])
def test_on_a_narrow_terminal_every_method_has_a_block(width):
    stream, console = plain(width)
    show_summary(console, [summary(handled=11), RETRAIN])
    lines = stream.getvalue().splitlines()
    assert lines[:8] == [
        "F-SOSA-U/I",
        "  accuracy     97.2 ± 0.3 %",
        "  requests     31  11 batches",
        "  edits        14.5",
        "  time         2.50 min  -36.66 %",
        "  incremental  25.0 MB  -98.00 %",
        "  broadcast    25.0 MB  +7.50 %",
        "  paper        25.0 MB  -25.00 %",
    ]
    assert lines[8:10] == ["Retrain", "  accuracy     97.2 ± 0.3 %"]
    assert lines[12] == "  time         2.50 min"
    assert "Beside time and bytes: change against Retrain." in lines[16]


def test_retrain_is_not_compared_with_itself():
    assert "0.00 %" not in shown(summary(), RETRAIN)


def test_without_retrain_nothing_is_compared():
    alone = summary(seconds_saved=None, bytes_saved=dict.fromkeys(TARIFFS))
    assert not re.search(r"[+-]\d", shown(alone))


def test_batches_are_counted():
    assert "11 batches" in shown(summary(handled=11))
    assert "batches" not in shown(summary())


def test_flagged_projections_are_never_silent():
    text = shown(summary(flagged=2), RETRAIN)
    assert text.splitlines()[-1] == (
        "F-SOSA-U/I: 2 releases whose projection missed its tolerance; raise fusion.max_iterations"
    )
    assert "missed" not in shown(summary(), RETRAIN)


def test_the_summary_names_tariffs_and_basis():
    text = " ".join(shown(summary()).split())
    assert "serialised bytes (1 MB = 1e6 bytes)" in text
    assert "Means over seeds 0, 1, 2" in text


def test_importing_the_panel_is_light():
    code = (
        "import sys, testbed.cli.panel, testbed.simulation.progress\n"
        "print([m for m in ('torch', 'simpy', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
