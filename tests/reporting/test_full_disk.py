"""A drawing that cannot be written is told apart from a run that failed."""

import shutil

import pytest

from testbed.errors import ResultsError
from testbed.experiments.rundir import find_runs
from testbed.reporting import contact
from testbed.reporting.figures import draw
from testbed.reporting.html import write_report
from testbed.reporting.table import summarise, to_csv, to_markdown, write_summary


@pytest.fixture
def folder(experiment, tmp_path):
    return shutil.copytree(experiment, tmp_path / "copy")


def test_the_summary_is_written_beside_the_runs(folder):
    runs = find_runs(folder)
    summaries, waiting = summarise(runs), contact.summarise_contact(runs)
    assert write_summary(folder) == (folder / "summary.csv", folder / "summary.md")
    assert (folder / "summary.csv").read_text() == to_csv(summaries, waiting)
    assert (folder / "summary.md").read_text() == (
        f"{to_markdown(summaries)}\n{contact.to_markdown(waiting)}"
    )


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (draw, "figures/accuracy.pdf"),
        (write_summary, "summary.csv"),
        (write_report, "report.html"),
    ],
)
def test_a_full_disk_loses_no_result(folder, monkeypatch, write, name):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ResultsError) as caught:
        write(folder)
    assert str(caught.value) == (
        f"cannot write {folder / name}: No space left on device; "
        f"the results in {folder} are complete, `testbed plot {folder}` draws them"
    )
    monkeypatch.undo()
    assert len(find_runs(folder)) == 6
    write(folder)
    assert (folder / name).is_file()
