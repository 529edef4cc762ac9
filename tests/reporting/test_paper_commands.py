"""``testbed plot`` and ``testbed table``, and real runs of two values of ρ behind them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli.app import app
from testbed.config import load
from testbed.errors import ResultsError
from testbed.experiments.run import run

REAL = (
    "mobility.source=schedule", "mobility.schedule.vehicles=8", "mobility.schedule.changes=6",
    "mobility.schedule.kind=mixed", "clients.pool=14", "learning.model=mlp", "learning.width=8",
    "learning.epochs=1", "fisher.kind=diagonal", "editing.requests=6",
    "editing.methods=fsosa,retrain", "data.limit=400",
)  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Really trained: two values of ρ, one seed."""
    root = tmp_path_factory.mktemp("real")
    for rho in (0.25, 0.5):
        experiment = load(None, [*REAL, f"editing.rho={rho}"])
        assert len(list(run(experiment, root / f"rho={rho}"))) == 2
    return root


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_real_sweep_is_drawn(real, tmp_path):
    done = call("plot", real, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    files = {path.name for path in tmp_path.iterdir()}
    for name in ("accuracy", "time", "bytes", "savings-rho", "tradeoff", "trigger", "waiting"):
        assert {f"{name}.pdf", f"{name}.png"} <= files
    told = dict(line.split(": ", 1) for line in done.output.splitlines())
    assert told["heterogeneity"].startswith("skipped: heterogeneity needs runs with several")
    assert told["time"] == f"{tmp_path / 'time.pdf'}, {tmp_path / 'time.png'}"
    assert not list(real.rglob("figures"))


def test_one_figure_in_the_width_asked_for(sweep, tmp_path):
    sizes = {}
    for width in ("single", "double"):
        done = call("plot", sweep, "--figure", "trigger", "--width", width, "--out", tmp_path)
        assert done.output.splitlines() == [
            str(tmp_path / "trigger.pdf"), str(tmp_path / "trigger.png")
        ]  # fmt: skip
        header = (tmp_path / "trigger.png").read_bytes()[16:20]
        sizes[width] = int.from_bytes(header, "big")
    # 200 dots per inch.
    assert sizes == {"single": 700, "double": 1432}


def test_a_condition_narrows_the_runs(sweep, tmp_path):
    arguments = ("plot", sweep, "--figure", "bytes", "--out", tmp_path)
    one = call(*arguments, "--where", "rho=0.5", "--where", "density=1.8")
    assert one.exit_code == 0
    with pytest.raises(ResultsError, match=r"no run has that; rho is 0.3, 0.5 here"):
        CliRunner().invoke(
            app, [*map(str, arguments), "--where", "rho=0.4"], catch_exceptions=False
        )


def test_figures_go_beside_the_runs_and_do_not_disturb_the_next_reading(sweep, tmp_path):
    copy = shutil.copytree(sweep, tmp_path / "copy")
    for _ in range(2):
        done = call("plot", copy, "--figure", "time")
        assert done.exit_code == 0
    assert {path.name for path in (copy / "figures").iterdir()} == {"time.pdf", "time.png"}
    assert not (copy / "report.html").exists()


def test_one_experiment_gets_table_and_report_again(experiment, tmp_path):
    copy = shutil.copytree(experiment, tmp_path / "copy")
    done = call("plot", copy, "--width", "double")
    assert done.exit_code == 0, done.output
    for name in ("report.html", "summary.md", "summary.csv", "figures/population.pdf"):
        assert (copy / name).is_file()
    assert "report:" in done.output
    wide = (copy / "figures" / "time.png").read_bytes()[16:20]
    assert int.from_bytes(wide, "big") == 1432


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        ((), "| ρ = 0.3, departure gap 1.8 s | accuracy (%) |"),
        (("--markdown",), "| ρ = 0.3, departure gap 1.8 s | accuracy (%) |"),
        (("--csv",), "editing.rho,mobility.density,method,n,quality,quality_half,"),
        (("--latex",), "% \\usepackage{booktabs}"),
    ],
)
def test_the_table_is_printed(sweep, flags, first):
    done = call("table", sweep, *flags)
    assert done.exit_code == 0
    assert done.output.startswith(first)
    assert done.output.endswith("\n")
    assert not done.output.endswith("\n\n")


def test_two_formats_at_once_are_a_mistake(sweep):
    done = call("table", sweep, "--csv", "--latex")
    assert done.exit_code == 2
    assert "name one of --latex, --csv and --markdown" in done.output


def test_neither_command_loads_torch(sweep, tmp_path):
    code = (
        "import sys\n"
        "from testbed.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted({'torch', 'libsumo', 'ray', 'sklearn'} & set(sys.modules)))"
    )
    for arguments in (("plot", sweep, "--figure", "time", "--out", tmp_path), ("table", sweep)):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


def test_a_mistake_is_one_line_without_traceback(tmp_path):
    testbed = Path(sys.executable).with_name("testbed")
    for arguments, told in (
        (("plot", tmp_path / "nowhere"), "no such results folder"),
        (("plot", tmp_path, "--figure", "x"), "holds no finished run"),
        (("table", tmp_path), "holds no finished run"),
    ):
        done = subprocess.run(
            [testbed, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert told in done.stderr
        assert done.stderr.count("\n") == 1
