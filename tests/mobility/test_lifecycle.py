import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from traffic import children, gone_within, group_runs, record

from testbed.config.schema import MobilityConfig
from testbed.errors import ScenarioError
from testbed.mobility import open_source
from testbed.mobility.live import SumoSource

Make = Callable[..., Path]
SHORT: dict[str, Any] = {"end": 60, "warmup": 0}
BOTH = pytest.mark.parametrize("backend", ["libsumo", "traci"])

# Opens a traci source, says which process SUMO is, and goes on as the test asks.
SCRIPT = """
import os, sys, time
from testbed.config.schema import MobilityConfig
from testbed.mobility import open_source

def sumo():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = open(f"/proc/{{name}}/stat").read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                return int(name)

with open_source(MobilityConfig(backend="traci", end=60, warmup=0), 1) as source:
    steps = source.steps()
    next(steps)
    print(sumo(), flush=True)
    {then}
"""


@pytest.fixture
def _clean() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def run_script(then: str) -> tuple["subprocess.Popen[str]", int]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SCRIPT.format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_sumo_outlives_a_killed_python(sent: signal.Signals) -> None:
    process, sumo = run_script("time.sleep(60)")
    assert group_runs(sumo)
    assert os.getpgid(sumo) == sumo != os.getpgid(process.pid)
    process.send_signal(sent)
    process.communicate(timeout=10)
    assert gone_within(3, group=sumo)
    assert process.returncode == -sent


@pytest.mark.parametrize(
    ("then", "code"),
    [("raise ValueError", 1), ("sys.exit(3)", 3), ("os._exit(4)", 4), ("pass", 0)],
)
def test_no_sumo_outlives_a_python_that_ends(then: str, code: int) -> None:
    process, sumo = run_script(then)
    process.communicate(timeout=10)
    assert process.returncode == code
    assert gone_within(3, group=sumo)


def test_no_sumo_waits_for_a_python_that_died_before_it_connected(tmp_path: Path) -> None:
    net = Path(__file__).resolve().parents[2] / "sumo_scenarios" / "city_grid" / "net.net.xml.gz"
    script = f"""
        import pathlib, sys, tempfile, time
        from testbed.mobility.link import _reserved_port
        from testbed.mobility.sumo import start_tethered
        with _reserved_port() as port, tempfile.TemporaryFile() as log:
            arguments = ["-n", {str(net)!r}, "--remote-port", str(port)]
            print(start_tethered(arguments, pathlib.Path({str(tmp_path)!r}), log).pid, flush=True)
            time.sleep(60)
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        sumo = int(process.stdout.readline())
        time.sleep(0.5)
        assert group_runs(sumo)
        process.kill()
    assert gone_within(3, group=sumo)


def descendants(parent: int) -> dict[int, str]:
    """Return the name of every process below one."""
    below = {}
    for child in children(parent):
        below[child] = Path(f"/proc/{child}/comm").read_text().strip()
        below |= descendants(child)
    return below


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_router_outlives_a_python_that_ends_while_routes_are_made(
    sent: signal.Signals,
) -> None:
    script = """
        from testbed.mobility.building import cached_routes
        from testbed.mobility.scenarios import find
        cached_routes(find("city_grid"), 0.03)
        """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.DEVNULL
    ) as process:
        below: dict[int, str] = {}
        deadline = time.monotonic() + 60
        while "duarouter" not in below.values() and time.monotonic() < deadline:
            time.sleep(0.05)
            with suppress(FileNotFoundError, ProcessLookupError):
                below = descendants(process.pid)
        router = next(pid for pid, name in below.items() if name == "duarouter")
        group = os.getpgid(router)
        assert group in children(process.pid)
        process.send_signal(sent)
    assert gone_within(3, group=group)
    assert process.returncode == -sent


@BOTH
def test_nothing_is_printed(backend: str) -> None:
    script = f"""
        from testbed.config.schema import MobilityConfig
        from testbed.mobility import open_source
        with open_source(MobilityConfig(backend={backend!r}, end=9, warmup=0), 1) as source:
            print(len(list(source.steps())))
        """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("9\n", "")


def test_importing_the_room_loads_no_sumo() -> None:
    script = (
        "import sys, testbed.mobility, testbed.cli.scenario;"
        "print({'libsumo', 'traci', 'sumo', 'sumolib', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"set()\n"


@BOTH
@pytest.mark.usefixtures("_clean")
def test_closing_is_final_and_twice_does_no_harm(backend: str) -> None:
    source = open_source(MobilityConfig(backend=backend, **SHORT), 1)
    steps = source.steps()
    next(steps)
    departed = source.counts()["departed"]
    source.close()
    source.close()
    assert source.counts()["departed"] == departed == 1
    with pytest.raises(ScenarioError, match="the simulation is closed"):
        next(steps)
    assert len(record(MobilityConfig(backend=backend, **SHORT))) > 0


@BOTH
@pytest.mark.usefixtures("_clean")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ScenarioError, GeneratorExit])
def test_sumo_ends_when_the_user_of_a_source_fails(
    backend: str, error: type[BaseException]
) -> None:
    def fail() -> None:
        with open_source(MobilityConfig(backend=backend, **SHORT), 1) as source:
            next(source.steps())
            raise error

    with pytest.raises(error):
        fail()
    assert len(record(MobilityConfig(backend=backend, **SHORT))) > 0


def test_one_libsumo_at_a_time_but_traci_beside_it() -> None:
    config = MobilityConfig(**SHORT)
    expected = record(config)
    with open_source(config, 1) as first:
        steps = first.steps()
        events = list(next(steps).events)
        with pytest.raises(ScenarioError, match=r"already open in this process.*close it first"):
            open_source(config, 1)
        assert record(config.model_copy(update={"backend": "traci"})) == expected
        events += [event for step in steps for event in step.events]
    assert events == expected
    assert record(config) == expected


def test_several_sumo_processes_do_not_mix() -> None:
    configs = [MobilityConfig(backend="traci", **SHORT)] * 3
    sources = [open_source(config, seed) for seed, config in enumerate(configs)]
    try:
        runs = [source.steps() for source in sources]
        together = [[], [], []]
        for _ in range(60):
            for events, run in zip(together, runs, strict=True):
                events += next(run).events
    finally:
        for source in sources:
            source.close()
    assert together == [record(config, seed) for seed, config in enumerate(configs)]


def test_sixteen_sumo_processes_start_at_the_same_time() -> None:
    config = MobilityConfig(backend="traci", end=20, warmup=0)
    code = (
        "from testbed.config.schema import MobilityConfig\n"
        "from testbed.mobility import open_source\n"
        "with open_source(MobilityConfig(backend='traci', end=20, warmup=0), 1) as source:\n"
        "    print(sum(len(step.events) for step in source.steps()))"
    )
    runs = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(16)
    ]
    said = [run.communicate(timeout=60)[0].strip() for run in runs]
    assert said == [str(len(record(config)))] * 16


def test_a_forked_child_may_use_libsumo_while_its_parent_does() -> None:
    import multiprocessing

    config = MobilityConfig(**SHORT)
    expected = record(config)
    with open_source(config, 1) as source, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        next(source.steps())
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert pool.apply(record, (config,)) == expected
            pool.close()
            pool.join()


def test_sumo_killed_in_mid_run_is_told() -> None:
    before = children()
    with open_source(MobilityConfig(backend="traci", **SHORT), 1) as source:
        steps = source.steps()
        next(steps)
        (sumo,) = children() - before
        os.kill(sumo, signal.SIGKILL)
        with pytest.raises(ScenarioError, match="SUMO stopped: its process was ended by signal 9"):
            list(steps)
        assert source.counts()["departed"] >= 1
    assert children() == before


def test_a_source_can_live_in_a_thread_of_its_own() -> None:
    found = []
    config = MobilityConfig(backend="traci", **SHORT)
    worker = threading.Thread(target=lambda: found.extend(record(config)))
    worker.start()
    worker.join()
    assert found == record(config)


@BOTH
@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ("<routes><vehicle", "SUMO .*end of input.*demand.rou.xml"),
        (
            '<routes><vehicle id="b" depart="0"><route edges="A0A1 nope"/></vehicle></routes>',
            "SUMO .*edge 'nope'",
        ),
    ],
)
@pytest.mark.usefixtures("_clean")
def test_a_broken_demand_is_told_in_sumos_words(
    make_scenario: Make, backend: str, routes: str, message: str
) -> None:
    path = make_scenario(routes=routes)
    config = MobilityConfig(scenario=str(path), backend=backend)
    with pytest.raises(ScenarioError, match=message) as caught:
        record(config)
    assert "\n" not in str(caught.value)


@BOTH
@pytest.mark.usefixtures("_clean")
def test_demand_that_breaks_in_mid_run_is_told_in_sumos_words(
    make_scenario: Make, backend: str
) -> None:
    good = '<vehicle id="a" depart="5"><route edges="A0A1 A1A2"/></vehicle>'
    late = '<vehicle id="b" depart="400"><route edges="A0A1 A1A2"/></vehicle>'
    bad = '<vehicle id="c" depart="900"><route edges="A0A1 nope"/></vehicle>'
    path = make_scenario(routes=f"<routes>{good}{late}{bad}</routes>")
    with open_source(MobilityConfig(scenario=str(path), backend=backend), 1) as source:
        steps = source.steps()
        assert next(steps).time == 0
        with pytest.raises(ScenarioError, match=r"SUMO stopped: .*edge 'nope'.*vehicle 'c'"):
            list(steps)


@BOTH
def test_a_broken_network_is_told_and_leaves_nothing_open(
    make_scenario: Make, backend: str
) -> None:
    path = make_scenario()
    (path.parent / "net.net.xml.gz").write_bytes(b"not a network")
    with pytest.raises(ScenarioError, match=r"net\.net\.xml\.gz"):
        open_source(MobilityConfig(scenario=str(path), backend=backend), 1)
    assert len(record(MobilityConfig(backend=backend, **SHORT))) > 0


@BOTH
def test_a_wrong_sumo_home_does_not_matter(
    backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = MobilityConfig(backend=backend, density=6.0, **SHORT)
    expected = record(config)
    wrong = tmp_path / "old-sumo"
    (wrong / "bin").mkdir(parents=True)
    for name in ("sumo", "duarouter", "netgenerate"):
        (wrong / "bin" / name).write_text("#!/bin/sh\nexit 9\n")
        (wrong / "bin" / name).chmod(0o755)
    monkeypatch.setenv("SUMO_HOME", str(wrong))
    monkeypatch.setenv("DUAROUTER_BINARY", str(wrong / "bin" / "duarouter"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty-cache"))
    assert record(config) == expected
    monkeypatch.delenv("SUMO_HOME")
    assert record(config) == expected


def test_a_clock_that_does_not_follow_the_steps_is_noticed() -> None:
    with open_source(MobilityConfig(backend="traci", **SHORT), 1) as source:
        assert isinstance(source, SumoSource)
        steps = source.steps()
        next(steps)
        # A step that the source does not know of: its clock and SUMO's part.
        source._link._api.simulationStep()
        with pytest.raises(ScenarioError, match=r"clock shows 3 s after step 2, .* at 2 s"):
            next(steps)


def test_starting_is_quick() -> None:
    record(MobilityConfig(backend="traci", end=1, warmup=0))
    begun = time.perf_counter()
    record(MobilityConfig(backend="traci", end=1, warmup=0))
    # traci.start alone would wait a full second.
    assert time.perf_counter() - begun < 0.9
