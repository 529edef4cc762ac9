"""What was tried on a part of the data was not tried at the paper's scale."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from cards import CARD, card, figure, write

from testbed.claims.extent import PUBLISHED, too_little
from testbed.claims.trial import Trial, attempt
from testbed.claims.verdict import MET, NOT_RUN
from testbed.config.cards import Card, load_card
from testbed.experiments.rundir import Run
from testbed.reporting.settings import read


def tried(one: Card, folder: Path, scale: str = "smoke") -> Trial:
    return attempt(one, scale, folder, {}, {"kind": "serial"})  # type: ignore[arg-type]


def test_a_part_of_the_data_is_not_the_papers_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = figure(name="bytes saved", options={"of": "bytes"}, between=[-1000, 1000])
    scales = {"paper": {"seeds": [0], "config": "study.yaml"}, "smoke": {"seeds": [0]}}
    one = card(tmp_path, figures=[*CARD["figures"], sent], scales=scales)
    monkeypatch.setitem(PUBLISHED, "digits", 1797)
    time, sizes = tried(one, tmp_path / "out", "paper").rows
    assert (time.verdict, time.value) == (NOT_RUN, None)
    assert re.fullmatch(
        r"only 400 of 1,797 training pictures were at hand, with which it is [-\d.]+ %", time.why
    )
    # What is sent does not depend on them.
    assert (sizes.verdict, sizes.scale) == (MET, "paper")
    assert [row.verdict for row in tried(one, tmp_path / "smoke").rows] == [MET, MET]
    monkeypatch.setitem(PUBLISHED, "digits", 400)
    assert [row.verdict for row in tried(one, tmp_path / "out", "paper").rows] == [MET, MET]


def test_runs_that_do_not_say_how_much_they_had_are_not_the_papers_scale(tmp_path: Path) -> None:
    (time, *_), runs = load_card(write(tmp_path)).figures, sorted_runs(tmp_path)
    assert too_little(time, "paper", "mnist", runs) == (
        "only 400 of 60,000 training pictures were at hand"
    )
    data = {key: value for key, value in runs[0].manifest["data"].items() if key != "pictures"}
    silent = replace(runs[0], manifest={**runs[0].manifest, "data": data})
    assert "do not say" in str(too_little(time, "paper", "mnist", [*runs, silent]))
    assert too_little(time, "small", "mnist", runs) is None


def sorted_runs(folder: Path) -> list[Run]:
    tried(card(folder), folder / "out")
    return list(read(folder / "out"))
