"""A sweep's runs are those of `testbed run`, with every client trained once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from specs import contents, folder, stamps
from sweeps import CITY, alone, manifest, results, summary, swept, write

from testbed.errors import ResultsError
from testbed.experiments import cells, traffic
from testbed.experiments.cells import perform
from testbed.experiments.grid import Grid, read_grid
from testbed.experiments.plan import Ask, asks
from testbed.experiments.rundir import find_runs
from testbed.experiments.sweep import Result, Stage, store_of
from testbed.experiments.traffic import Tape
from testbed.mobility import open_source

METHODS = ["fsosa", "retrain", "finetune", "federaser", "fats-cu", "fedavg"]
AXES = ["rho=0.34,0.67", "density=2,4"]
Swept = tuple[Grid, Result, list[Stage]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("city")


@pytest.fixture(scope="module")
def opened(place: Path) -> list[int]:
    """Seeds of the traffic that SUMO simulated."""
    return []


@pytest.fixture(scope="module")
def city(place: Path, opened: list[int]) -> Swept:
    """A sweep of live traffic by six methods; read-only."""
    config = write(place, CITY, editing={"methods": METHODS, "requests": 3}, rounds={"rounds": 2},
                   learning={"epochs": 2})  # fmt: skip
    real = traffic.open_source

    def counting(mobility, seed):
        opened.append(seed)
        return real(mobility, seed)

    with pytest.MonkeyPatch.context() as patch:
        for module in (traffic, cells):
            patch.setattr(module, "open_source", counting)
        return swept(config, AXES, place / "swept")


# What a sweep leaves behind.


def test_every_run_is_finished(city: Swept, place: Path) -> None:
    grid, result, _ = city
    assert (result.skipped, result.failed, result.cost.runs) == (0, {}, 4 * 6)
    assert len(results(place / "swept", grid.points)) == 24
    assert len(find_runs(place / "swept" / grid.points[0].name)) == 6


def test_a_point_is_what_run_makes_of_it_byte_for_byte(city: Swept, place: Path) -> None:
    grid, *_ = city
    (point,) = (each for each in grid.points if each.name == "rho=0.67,density=2")
    alone(place / "alone", [point])
    own, other = (results(place / name, [point]) for name in ("swept", "alone"))
    assert own == other
    assert len(own) == 6
    for run in find_runs(place / "alone"):
        path = run.folder.relative_to(place / "alone")
        assert manifest(place / "swept" / path) == manifest(run.folder)
        assert sorted(contents(place / "swept" / path)) == sorted(contents(run.folder))
    mark = Path(point.name) / "experiment.json"
    assert (place / "swept" / mark).read_bytes() == (place / "alone" / mark).read_bytes()


def test_sumo_simulates_each_traffic_once(city: Swept, opened: list[int]) -> None:
    # Two densities, and not twenty-four runs.
    assert opened == [0, 0]


def test_every_client_is_trained_once(city: Swept, place: Path) -> None:
    grid, result, _ = city
    trained = [
        row
        for point in grid.points
        for run in find_runs(place / "swept" / point.name)
        for row in run.ledger
        if row.phase == "train" and row.round == 0 and not row.reused
    ]
    # There are six partitions, whose models serve all runs.
    assert 4 <= result.cost.trained <= 6 < len(trained)
    assert result.cost.reused == 0


def test_nothing_is_left_beside_the_points_and_the_store(city: Swept, place: Path) -> None:
    grid, *_ = city
    found = {path.name for path in (place / "swept").iterdir()}
    assert found == {"sweep.json", ".store", *(point.name for point in grid.points)}
    assert not list((place / "swept").glob("*/*/.*"))


def test_the_summary_says_what_was_swept_and_what_it_cost(city: Swept, place: Path) -> None:
    grid, result, _ = city
    told = summary(place / "swept")
    assert told["grid"] == {"editing.rho": [0.34, 0.67], "mobility.density": [2, 4]}
    assert (told["seeds"], told["methods"]) == ([0], METHODS)
    assert told["config"] == grid.points[0].experiment.model_dump(mode="json")
    assert told["failed"] == {}
    cost = told["cost"]
    unique = cost["trainings_s"] + cost["tunings_s"] + cost["fusions_s"]
    assert cost["ratio"] == pytest.approx(cost["wall_s"] / unique, rel=1e-2)
    assert all(cost[name] > 0 for name in ("trainings_s", "tunings_s", "fusions_s", "releases_s"))
    assert unique < cost["wall_s"]  # one worker
    assert (cost["runs"], cost["trained"], cost["workers"]) == (24, result.cost.trained, 1)


def test_progress_is_told_stage_by_stage(city: Swept) -> None:
    *_, result, stages = city
    names = list(dict.fromkeys(stage.name for stage in stages))
    assert names == ["planning", "training", "running"]
    for name, total in (("planning", 24), ("training", result.cost.trained), ("running", 24)):
        own = [stage for stage in stages if stage.name == name]
        assert {stage.total for stage in own} == {total}
        shares = [stage.share for stage in own]
        assert shares == sorted(shares)
        assert shares[-1] == pytest.approx(1)
        assert own[-1].done == total
    assert {stage.failed for stage in stages} == {0}


# The same folder again.


def test_what_is_finished_is_left_alone(tmp_path: Path) -> None:
    config = write(tmp_path)
    swept(config, ["rho=0.5,0.75"], tmp_path / "out")
    before = stamps(tmp_path / "out" / "rho=0.5")
    cost = summary(tmp_path / "out")["cost"]
    # Neither the traffic nor the data are looked at.
    (tmp_path / "minute.csv").unlink()
    _, result, _ = swept(config, ["rho=0.5,0.75"], tmp_path / "out")
    assert (result.skipped, result.cost.runs, result.failed) == (4, 0, {})
    assert result.cost.ratio is None
    after = stamps(tmp_path / "out" / "rho=0.5")
    inside = [path for path in before if "seed=" in path]
    assert [after[path] for path in inside] == [before[path] for path in inside]
    assert summary(tmp_path / "out")["cost"] == cost


def test_a_grid_can_grow(tmp_path: Path) -> None:
    config = write(tmp_path)
    swept(config, ["rho=0.5"], tmp_path / "out", methods="fsosa")
    _, result, _ = swept(config, ["rho=0.5,0.75"], tmp_path / "out", seeds="0:2")
    assert (result.skipped, result.cost.runs) == (1, 7)
    assert result.cost.reused > 0
    grid, *_ = swept(config, ["rho=0.5,0.75"], tmp_path / "at-once", seeds="0:2")
    assert results(tmp_path / "out", grid.points) == results(tmp_path / "at-once", grid.points)
    assert summary(tmp_path / "out")["grid"] == {"editing.rho": [0.5, 0.75]}


def test_a_run_with_a_damaged_manifest_is_done_again(tmp_path: Path) -> None:
    config = write(tmp_path)
    grid, *_ = swept(config, ["rho=0.5"], tmp_path / "out")
    before = results(tmp_path / "out", grid.points)
    (folder(tmp_path / "out" / "rho=0.5", "fsosa") / "manifest.json").write_text("{")
    _, result, _ = swept(config, ["rho=0.5"], tmp_path / "out")
    assert (result.skipped, result.cost.runs) == (1, 1)
    assert results(tmp_path / "out", grid.points) == before


# Where the work is done, and what is known, changes nothing.


def test_a_store_serves_other_sweeps_and_results_are_the_same(tmp_path: Path) -> None:
    config = write(tmp_path, execution={"store": "kept"})
    grid, cold, _ = swept(config, ["rho=0.5,0.75"], tmp_path / "cold")
    _, warm, _ = swept(config, ["rho=0.5,0.75"], tmp_path / "warm")
    assert (cold.cost.trained, cold.cost.reused) == (5, 0)
    assert (warm.cost.trained, warm.cost.reused) == (0, 5)
    assert (warm.cost.trainings_s, cold.cost.trainings_s > 0) == (0, True)
    assert results(tmp_path / "cold", grid.points) == results(tmp_path / "warm", grid.points)
    assert not (tmp_path / "cold" / ".store").exists()
    assert (tmp_path / "kept").is_dir()


def test_processes_give_what_one_process_gives(tmp_path: Path) -> None:
    config = write(tmp_path, CITY)
    axes = ["rho=0.5", "learning.lr=0.05,0.02"]
    grid, *_ = swept(config, axes, tmp_path / "one")
    settings = ["execution.kind=processes", "execution.workers=2"]
    _, result, _ = swept(config, axes, tmp_path / "two", settings=settings)
    assert (result.failed, result.cost.workers) == ({}, 2)
    assert results(tmp_path / "one", grid.points) == results(tmp_path / "two", grid.points)


def test_a_run_that_needs_more_traffic_than_was_taped_gets_it(tmp_path: Path) -> None:
    config = write(tmp_path, CITY)
    grid = read_grid(config, ["rho=0.5"], methods="fsosa")
    (ask,) = asks(grid, tmp_path / "out")
    with open_source(ask.experiment.mobility, 0) as source:
        tape = Tape(source)
        for number in range(62):  # two seconds after the warm-up
            tape.step(number)
        tape.save(tmp_path / "short")
    store = store_of(grid, tmp_path / "out")
    (done,) = perform((ask,), tmp_path / "short", (store.folder, store.limit_bytes))
    assert done.failed is None
    alone(tmp_path / "alone", grid.points)
    assert results(tmp_path / "out", grid.points) == results(tmp_path / "alone", grid.points)


def test_measured_time_is_swept_too(tmp_path: Path) -> None:
    config = write(tmp_path, CITY, time={"mode": "measured"})
    _, result, _ = swept(config, ["rho=0.5"], tmp_path / "out")
    assert result.failed == {}
    for run in find_runs(tmp_path / "out" / "rho=0.5"):
        trained = [row for row in run.ledger if row.phase == "train"]
        assert trained
        assert all(row.compute_s_measured for row in trained)
    # Both methods bill what a client's training took when it was done.
    bills = [
        {row.compute_s_measured for row in run.ledger if row.phase == "train"}
        for run in find_runs(tmp_path / "out" / "rho=0.5")
    ]
    assert bills[0] & bills[1]


def test_without_learning_everything_is_worked_out_and_nothing_trained(tmp_path: Path) -> None:
    config = write(tmp_path, CITY)
    axes = ["rho=0.5,0.75", "fidelity=cost,train"]
    _, result, _ = swept(config, axes, tmp_path / "out")
    assert result.failed == {}
    for rho in ("0.5", "0.75"):
        cheap, dear = (
            {run.method: run for run in find_runs(tmp_path / "out" / f"rho={rho},fidelity={each}")}
            for each in ("cost", "train")
        )
        assert set(cheap) == set(dear) == {"fsosa", "retrain"}
        for method, run in cheap.items():
            assert run.metrics["accuracy"].isna().all()
            other = [row.t_end for row in dear[method].ledger]
            assert [row.t_end for row in run.ledger] == other
    _, alone_result, _ = swept(config, ["fidelity=cost"], tmp_path / "cheap")
    assert (alone_result.cost.trained, alone_result.cost.ratio) == (0, None)


# Folders that belong to something else.


def refusal(config: Path, out: Path, *axes: str, **options: object) -> str:
    before = stamps(out)
    with pytest.raises(ResultsError) as raised:
        swept(config, list(axes), out, **options)
    assert stamps(out) == before
    (line,) = str(raised.value).splitlines()
    return line


def test_another_sweep_is_refused_with_the_key(tmp_path: Path) -> None:
    swept(write(tmp_path), ["rho=0.5"], tmp_path / "out", methods="fsosa")
    said = refusal(write(tmp_path, learning={"epochs": 2}), tmp_path / "out", "rho=0.5")
    assert "holds a sweep of another configuration (learning.epochs: 1 there, 2 here)" in said
    # What is swept over, who is asked and where it runs may change.
    config = write(tmp_path, editing={"rho": 0.9}, execution={"workers": 1})
    _, result, _ = swept(config, ["rho=0.75"], tmp_path / "out", methods="retrain", seeds="1:2")
    assert (result.failed, result.cost.runs) == ({}, 1)


def test_after_a_sweep_without_a_finished_run_all_may_change(tmp_path: Path) -> None:
    config = write(tmp_path, clients={"initial": 6})
    _, result, _ = swept(config, ["rho=0.5"], tmp_path / "out")
    assert len(result.failed) == 2
    _, result, _ = swept(write(tmp_path), ["rho=0.5"], tmp_path / "out")
    assert result.failed == {}
    assert summary(tmp_path / "out")["config"]["clients"]["initial"] == 4


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("chapter one")
    assert "not empty and not of a sweep" in refusal(config, out, "rho=0.5")
    (out / "thesis.tex").unlink()
    for broken in ("{", "[]", '{"grid": {}}'):
        (out / "sweep.json").write_text(broken)
        assert "sweep.json: unreadable" in refusal(config, out, "rho=0.5")


def test_a_sweep_of_another_schema_is_refused(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    swept(config, ["rho=0.5"], out, methods="fsosa")
    content = json.dumps({**summary(out), "schema": 9})
    (out / "sweep.json").write_text(content)
    assert refusal(config, out, "rho=0.5", methods="fsosa") == (
        f"{out / 'sweep.json'}: schema version 9, this testbed reads 1; name another with --out, "
        f"or remove {out}"
    )
    assert (out / "sweep.json").read_text() == content


def test_the_results_of_run_are_not_a_sweep(tmp_path: Path) -> None:
    config = write(tmp_path)
    (point,) = read_grid(config, ["rho=0.5"]).points
    alone(tmp_path, [point])
    assert "not empty and not of a sweep" in refusal(config, tmp_path / "rho=0.5", "rho=0.5")


HOLDER = (
    "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX);"
    "print('held', flush=True); sys.stdin.read()"
)


def test_two_sweeps_do_not_write_to_one_folder(tmp_path: Path) -> None:
    config, out = write(tmp_path), tmp_path / "out"
    out.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, out], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert f"another testbed run (process {other.pid})" in refusal(config, out, "rho=0.5")
    assert swept(config, ["rho=0.5"], out)[1].failed == {}


def test_the_plan_of_a_sweep_is_what_its_runs_ask_for(city: Swept, place: Path) -> None:
    grid, *_ = city
    asked = asks(grid, place / "swept")
    assert len(asked) == 24
    assert all(isinstance(ask, Ask) and ask.cell.folder.is_dir() for ask in asked)
    assert str(asked[0]) == "rho=0.34,density=2 fsosa seed=0"
    assert json.loads((asked[0].cell.folder / "manifest.json").read_text())["method"] == "fsosa"
