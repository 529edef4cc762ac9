"""A solve that misses its tolerance is told in every file of a run."""

from pathlib import Path

import pandas as pd
from specs import finish, folder, replayed, rows

from testbed.experiments.rundir import read_run
from testbed.reporting.html import write_report
from testbed.reporting.table import summarise


def test_too_few_iterations_stand_in_ledger_metrics_warning_table_and_report(
    trace: Path, tmp_path: Path
) -> None:
    """One step of conjugate gradients does not solve what several clients disagree on."""
    wanted = replayed(trace, fisher={"kind": "kfac"}, fusion={"max_iterations": 1})
    finish(wanted, tmp_path / "out")
    place = folder(tmp_path / "out", "fsosa")
    run = read_run(place)
    missed = [metric.request for metric in run.metrics.itertuples() if not metric.converged]
    assert missed
    assert [row.request for row in run.ledger if row.result == "unconverged"] == missed
    assert {row.phase for row in run.ledger if row.result == "unconverged"} == {"solve"}
    written = rows(place)
    assert list(written[written["result"] == "unconverged"]["request"]) == list(map(str, missed))
    assert list(pd.read_parquet(place / "ledger.parquet")["result"]) == list(written["result"])
    (warning,) = [each for each in run.manifest["warnings"] if "projections stopped" in each]
    assert warning.startswith(f"{len(missed)} projections stopped above fusion.rtol")
    (summary,) = summarise([run])
    assert summary.flagged == len(missed)
    write_report(place)
    assert warning in (place / "report.html").read_text()


def test_enough_iterations_leave_no_mark(trace: Path, tmp_path: Path) -> None:
    wanted = replayed(trace, fisher={"kind": "kfac"}, fusion={"max_iterations": 500})
    finish(wanted, tmp_path / "out")
    run = read_run(folder(tmp_path / "out", "fsosa"))
    assert {row.result for row in run.ledger} == {"ok"}
    assert not any("projections stopped" in each for each in run.manifest["warnings"])
    assert summarise([run])[0].flagged == 0


def test_a_ledger_keeps_its_words_in_their_places(live: Path) -> None:
    """The result of a row is one that its phase can have, in all three methods."""
    for method in ("fsosa", "retrain", "finetune"):
        for row in read_run(folder(live, method)).ledger:
            assert row.result == "ok" or (row.phase, row.result) == ("solve", "unconverged")
