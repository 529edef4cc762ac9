"""The points of a sweep: which there are, what they are called, what is refused."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from sweeps import TINY, write

from testbed.config import load, spec_hash
from testbed.errors import ConfigError
from testbed.experiments.grid import SHORT, Grid, read_grid


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(
        "name: base\n"
        "mobility: {source: schedule, schedule: {vehicles: 6, changes: 3}}\n"
        "clients: {initial: 6, pool: 9}\n"
        "editing: {rho: 0.5, methods: [fsosa, retrain], requests: 3}\n"
        "seeds: [4]\n"
        "scales: {smoke: {learning: {epochs: 1}}}\n"
    )
    return path


def names(grid: Grid) -> list[str]:
    return [point.name for point in grid.points]


def refusal(config: Path, axes: Sequence[str], **options: object) -> str:
    with pytest.raises(ConfigError) as raised:
        read_grid(config, axes, **options)  # type: ignore[arg-type]
    (line,) = str(raised.value).splitlines()
    return line


# What is in a grid.


def test_every_combination_is_a_point_and_the_last_axis_is_the_fastest(config: Path) -> None:
    grid = read_grid(config, ["rho=0.3,0.5", "mobility.schedule.interval=60,90.5"])
    assert names(grid) == [
        "rho=0.3,mobility.schedule.interval=60",
        "rho=0.3,mobility.schedule.interval=90.5",
        "rho=0.5,mobility.schedule.interval=60",
        "rho=0.5,mobility.schedule.interval=90.5",
    ]
    values = [
        (each.experiment.editing.rho, each.experiment.mobility.schedule.interval)
        for each in grid.points
    ]
    assert values == [(0.3, 60.0), (0.3, 90.5), (0.5, 60.0), (0.5, 90.5)]
    assert grid.cells == 4 * 2 * 1


def test_a_point_is_what_run_would_load_with_set(config: Path) -> None:
    (point,) = read_grid(config, ["rho=0.3"], ["learning.epochs=2"], "1:3", "fsosa").points
    settings = ["editing.rho=0.3", "learning.epochs=2", "seeds=1,2", "editing.methods=fsosa"]
    assert point.experiment == load(config, settings)
    assert point.cells == 2


@pytest.mark.parametrize(("short", "path"), SHORT.items())
def test_short_names_stand_for_keys_and_name_the_point(
    config: Path, short: str, path: str
) -> None:
    section, key = path.split(".")
    (one,) = read_grid(config, [f"{short}=0.4"]).points
    (other,) = read_grid(config, [f"{path}=0.4"]).points
    assert getattr(getattr(one.experiment, section), key) == 0.4
    assert one.experiment == other.experiment
    assert (one.name, other.name) == (f"{short}=0.4", f"{path}=0.4")


def test_seeds_and_methods_default_to_the_file(config: Path) -> None:
    (point,) = read_grid(config, ["rho=0.5"]).points
    assert point.experiment.seeds == (4,)
    assert point.experiment.editing.methods == ("fsosa", "retrain")


@pytest.mark.parametrize(("text", "seeds"), [("0:3", (0, 1, 2)), ("7:8", (7,)), ("5,0", (5, 0))])
def test_seeds_are_a_range_or_a_list(config: Path, text: str, seeds: tuple[int, ...]) -> None:
    (point,) = read_grid(config, ["rho=0.5"], seeds=text).points
    assert point.experiment.seeds == seeds


def test_a_setting_and_a_scale_lie_below_the_grid(config: Path) -> None:
    grid = read_grid(config, ["learning.epochs=2,3"], ["scale=smoke", "editing.requests=1"])
    assert [point.experiment.learning.epochs for point in grid.points] == [2, 3]
    assert {point.experiment.editing.requests for point in grid.points} == {1}
    (point,) = read_grid(config, ["rho=0.5"], ["scale=smoke"]).points
    assert point.experiment.learning.epochs == 1


def test_a_preset_in_the_grid_fills_its_keys(config: Path) -> None:
    grid = read_grid(config, ["fusion.preset=robust,paper"])
    assert [point.experiment.fusion.damping for point in grid.points] == [0.2, 1e-4]


def test_a_section_changes_several_keys_together(config: Path, tmp_path: Path) -> None:
    axis = f"data={{name: mnist, path: {tmp_path}/a b.npz}},{{name: digits}}"
    grid = read_grid(config, [axis])
    assert names(grid) == [
        "data.name=mnist,data.path=a_b.npz", "data.name=digits,data.path=unset",
    ]  # fmt: skip
    first, second = (point.experiment.data for point in grid.points)
    assert (first.name, first.path) == ("mnist", tmp_path / "a b.npz")
    assert (second.name, second.path) == ("digits", None)


def test_a_key_that_the_file_gets_wrong_may_be_in_the_grid(config: Path) -> None:
    config.write_text(config.read_text().replace("rho: 0.5", "rho: 5"))
    assert names(read_grid(config, ["rho=0.5"])) == ["rho=0.5"]


# What points are called.


@pytest.mark.parametrize(
    ("axis", "name"),
    [
        ("rho=0.30", "rho=0.3"),
        ("learning.lr=1e-2", "learning.lr=0.01"),
        ("mobility.schedule.interval=60", "mobility.schedule.interval=60"),
        ("clients.initial=null", "clients.initial=unset"),
        ("network.fading=no", "network.fading=False"),
        ("data.path=../x/mnist.npz", "data.path=mnist.npz"),
        ("detection.image_size=[320, 640]", "detection.image_size=320+640"),
        ("mobility.scenario=../odd/näme!", "mobility.scenario=.._odd_n_me_"),
    ],
)
def test_names_are_values_as_they_were_understood(config: Path, axis: str, name: str) -> None:
    assert names(read_grid(config, [axis])) == [name]


def test_points_that_would_share_a_folder_are_told_apart(config: Path) -> None:
    found = names(read_grid(config, ["data.path=a/x.npz,b/x.npz,y.npz"]))
    assert len(set(found)) == 3
    assert [name.startswith("data.path=x.npz~") for name in found] == [True, True, False]


def test_a_folder_is_never_too_long_for_a_file_system(config: Path) -> None:
    (name,) = names(read_grid(config, [f"mobility.scenario={'x' * 500}"]))
    assert len(name) < 200
    assert name == names(read_grid(config, [f"mobility.scenario={'x' * 500}"]))[0]


# What is refused, in one line.


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("rhoo=0.5", "rhoo: unknown key; did you mean editing.rho?"),
        ("mobility.densty=2", "mobility.densty: unknown key; did you mean mobility.density?"),
        ("rho=0.5,1.5", "editing.rho: 1.5 must be at most 1"),
        ("rho=half", "editing.rho: 'half' must be a number"),
        ("rho", "--grid 'rho': write KEY=V1,V2, for example rho=0.1,0.5"),
        ("=1", "--grid '=1': write KEY=V1,V2, for example rho=0.1,0.5"),
        ("rho=", "--grid rho has no values, so the grid has 0 cells; name at least one"),
        ("rho=[0.1", "--grid rho: '[0.1', line 1 is not valid YAML"),
        ("rho=0.3,0.30", "two points of the grid are the same, rho=0.3; name each value once"),
        ("seeds=0,1", "--grid seeds: not a key to sweep over; give them with --seeds"),
        ("editing.methods=fsosa", "not a key to sweep over; give them with --methods"),
        ("name=a,b", "--grid name: not a key to sweep over; it changes no result"),
        ("execution.workers=1,2", "not a key to sweep over; it changes no result; use --set"),
        ("editing=3", "editing: 3 must be a section with keys of its own"),
        ("clients.initial=1,6", "gives an empty subset (P = 0)"),
    ],
)
def test_a_bad_axis_is_refused(config: Path, axis: str, message: str) -> None:
    assert message in refusal(config, [axis])


def test_a_grid_without_axes_or_with_one_twice_is_refused(config: Path) -> None:
    assert "needs at least one --grid" in refusal(config, [])
    said = refusal(config, ["rho=0.1", "editing.rho=0.2"])
    assert said == "--grid editing.rho stands twice; write all its values in one"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": "3:3"}, "--seeds 3:3 names no seed, so the grid has 0 cells; 0:3 is 0, 1, 2"),
        ({"seeds": "a"}, "--seeds 'a': write FIRST:END, for example 0:3, or a list 0,1,2"),
        ({"seeds": "-1:1"}, "seeds[0]: -1 must be at least 0"),
        ({"seeds": "0,0"}, "seeds must name at least one seed, each once"),
        ({"methods": ""}, "methods must name at least one method, each once"),
        ({"methods": "fsosa,retran"}, "editing.methods[1]: 'retran' must be 'fsosa', 'retrain'"),
    ],
)
def test_bad_seeds_and_methods_are_refused(
    config: Path, options: dict[str, str], message: str
) -> None:
    assert message in refusal(config, ["rho=0.5"], **options)


def test_a_huge_grid_asks_for_yes_before_it_is_made(config: Path) -> None:
    values = ",".join(str(n / 1e6) for n in range(400_000, 401_000))
    axes = [f"rho={values}", f"learning.lr={values}"]
    said = refusal(config, axes)
    assert said == (
        "the grid has 2,000,000 cells, more than 10,000; name fewer values, or say --yes"
    )


def test_yes_lifts_the_limit(config: Path) -> None:
    axes = ["rho=0.4,0.5"]
    assert "4 cells, more than 3" in refusal(config, axes, most=3)
    assert read_grid(config, axes, most=4).cells == 4
    assert read_grid(config, axes, most=None).cells == 4


# Sections that change together.


def test_several_sections_change_together(config: Path) -> None:
    sizes = (
        "*={clients: {pool: 24}, editing: {rho: 0.3}},{clients: {pool: 120}, editing: {rho: 0.6}}"
    )
    grid = read_grid(config, [sizes, "learning.lr=0.1,0.2"])
    assert [point.name for point in grid.points] == [
        "clients.pool=24,editing.rho=0.3,learning.lr=0.1",
        "clients.pool=24,editing.rho=0.3,learning.lr=0.2",
        "clients.pool=120,editing.rho=0.6,learning.lr=0.1",
        "clients.pool=120,editing.rho=0.6,learning.lr=0.2",
    ]
    last = grid.points[-1].experiment
    assert (last.clients.pool, last.editing.rho, last.learning.lr) == (120, 0.6, 0.2)
    assert grid.axes[0].keys == ("clients.pool", "editing.rho")
    assert grid.axes[1].keys == ("learning.lr",)


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        ("*=1,2", r"--grid \*: each value holds sections, as {clients: {pool: 50}}, not '1,2'"),
        ("*={seeds: [1]}", r"--grid \*: not a key to sweep over; give them with --seeds"),
        ("*={execution: {workers: 1}}", "it changes no result; use --set"),
        ("*={editing: {methods: [fsosa]}}", "give them with --methods"),
        ("*={clients: {pol: 3}}", "clients.pol: unknown key; did you mean clients.pool?"),
    ],
)
def test_sections_that_cannot_be_swept_are_named(config: Path, axis: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_grid(config, [axis])


def test_a_key_does_not_change_twice(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"editing\.rho stands twice"):
        read_grid(config, ["rho=0.3,0.5", "*={editing: {rho: 0.1}}"])


def test_a_section_and_sections_that_change_together_are_laid_over_each_other(
    config: Path,
) -> None:
    together = "*={editing: {handling: sequential}},{editing: {handling: batch}}"
    for axes in (["editing={rho: 0.9}", together], [together, "editing={rho: 0.9}"]):
        points = read_grid(config, axes).points
        assert {point.experiment.editing.rho for point in points} == {0.9}
        assert {point.experiment.editing.handling for point in points} == {"sequential", "batch"}


@pytest.mark.parametrize(
    "axis",
    [
        "rho=2020-13-45", "rho=!!int abc", "rho=!!timestamp x", f"rho={'9' * 5000}", "rho=&a [*a]",
        "data=&a {x: *a}", "data={2020-01-01: 1}", f"rho={'[' * 3000}", "*={}", "*=",
    ],
)  # fmt: skip
def test_values_that_are_no_yaml_are_one_line(config: Path, axis: str) -> None:
    assert refusal(config, [axis]).startswith("--grid ")


def test_more_seeds_than_anybody_runs_are_refused_at_once(config: Path) -> None:
    line = refusal(config, ["rho=0.5"], seeds="0:1000000000")
    assert line == "--seeds 0:1000000000 names 1,000,000,000 seeds, more than 1,000,000"


def test_processes_do_the_work_unless_something_else_is_named(tmp_path: Path) -> None:
    config = write(tmp_path, {key: TINY[key] for key in TINY if key != "execution"})
    for settings, kind in (
        ([], "processes"),
        (["execution.workers=3"], "processes"),
        (["execution.kind=serial"], "serial"),
        (["execution.kind=ray"], "ray"),
    ):
        grid = read_grid(config, ["rho=0.5,0.75"], settings)
        spread = grid.spread()
        assert {point.experiment.execution.kind for point in spread.points} == {kind}
        assert spread.execution.workers == grid.execution.workers
        # It changes no result, so no folder's name either.
        assert [spec_hash(point.experiment) for point in spread.points] == [
            spec_hash(point.experiment) for point in grid.points
        ]
