"""Trying claims: runs, resumption, what is missing, what fails, and what is kept."""

import json
import re
from pathlib import Path

import pytest
from cards import CARD, card, figure, write

from testbed.claims.record import RECORD, keep, recall
from testbed.claims.trial import Trial, attempt
from testbed.claims.verdict import MET, MISSED, NOT_RUN
from testbed.config.cards import Card, load_card
from testbed.errors import ConfigError, ResultsError

EXECUTION = {"kind": "serial"}
TRAINED = {**CARD["study"], "settings": {}}


def tried(one: Card, folder: Path, scale: str = "smoke", **places: dict[str, object]) -> Trial:
    return attempt(one, scale, folder, places, EXECUTION)  # type: ignore[arg-type]


def test_a_claim_is_run_and_judged(tmp_path: Path) -> None:
    one = card(tmp_path)
    trial = tried(one, tmp_path / "out")
    (row,) = trial.rows
    assert (row.claim, row.figure, row.setting) == ("cheap", "time saved", "digits")
    assert (row.expected, row.unit, row.n, row.scale) == ("0 to 100", "%", 2, "smoke")
    assert (row.verdict, row.gap, row.why) == (MET, 0.0, "")
    assert row.value is not None
    assert 0 < row.value < 100
    assert trial.wall_s > 0
    assert trial.failed == {}
    assert len(list((tmp_path / "out" / "digits").rglob("manifest.json"))) == 4


def test_what_is_there_is_not_run_again(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    first = tried(one, out)
    files = {path: path.stat().st_mtime_ns for path in out.rglob("ledger.csv")}
    again = tried(one, out)
    assert again.rows == first.rows
    assert again.wall_s == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("ledger.csv")} == files


def test_a_trial_that_was_broken_off_goes_on(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    whole = tried(one, tmp_path / "whole")
    tried(one, out)
    (lost, *_) = out.rglob("manifest.json")
    lost.unlink()  # as if it had been killed before the last file of a run
    assert tried(one, out).rows == whole.rows
    assert lost.is_file()


def test_a_missed_figure_says_by_how_much_and_why(tmp_path: Path) -> None:
    strict = figure(between=None, at=-50, within=1, why={"smoke": "the radio is slow"})
    plain = figure(name="again", between=None, at_most=0)
    rows = tried(card(tmp_path, figures=[strict, plain]), tmp_path / "out").rows
    assert [row.verdict for row in rows] == [MISSED, MISSED]
    assert rows[0].value is not None
    assert rows[0].gap == rows[0].value + 49
    assert rows[1].gap == rows[0].value
    assert [row.why for row in rows] == ["the radio is slow", "not explained yet"]


def test_bytes_show_the_tariff_and_the_others(tmp_path: Path) -> None:
    (row,) = tried(
        card(tmp_path, figures=[figure(options={"of": "bytes"})]), tmp_path / "out"
    ).rows
    assert row.basis == "paper, serialised"
    assert [part.split()[0] for part in row.beside.split("; ")] == ["incremental", "broadcast"]


def test_each_setting_has_a_row_and_rows_stand_figure_by_figure(tmp_path: Path) -> None:
    study = {**CARD["study"], "grid": {"rho": [1.0, 0.5]}}
    some = figure(name="at a half", where={"editing.rho": 0.5})
    one = card(tmp_path, study=study, figures=[figure(), some])
    rows = tried(one, tmp_path / "out").rows
    assert [(row.figure, row.setting) for row in rows] == [
        ("time saved", "digits, ρ = 0.5"),
        ("time saved", "digits, ρ = 1"),
        ("at a half", "digits, ρ = 0.5"),
    ]
    assert rows[0].value == rows[2].value
    assert rows[1].value is not None
    assert rows[0].value is not None
    assert rows[1].value < rows[0].value


def test_a_figure_about_no_setting_is_a_mistake(tmp_path: Path) -> None:
    one = card(tmp_path, figures=[figure(where={"editing.rho": 0.7})])
    with pytest.raises(ConfigError, match=r"where: no run has .*0.7.*; the study varies nothing"):
        tried(one, tmp_path / "out")


def test_sections_change_together(tmp_path: Path) -> None:
    sizes = [
        {"mobility": {"schedule": {"vehicles": n}}, "clients": {"initial": n, "pool": 2 * n}}
        for n in (4, 8)
    ]
    study = {**CARD["study"], "grid": {"*": sizes}}
    rows = tried(card(tmp_path, study=study), tmp_path / "out").rows
    assert [row.setting for row in rows] == ["digits, M0 = 4", "digits, M0 = 8"]


def test_settings_that_differ_in_a_later_key_are_apart(tmp_path: Path) -> None:
    both = [{"editing": {"handling": "sequential", "rho": rho}} for rho in (0.5, 1.0)]
    one = card(tmp_path, study={**CARD["study"], "grid": {"*": both}})
    rows = tried(one, tmp_path / "out").rows
    assert [row.setting for row in rows] == ["digits, ρ = 0.5", "digits, ρ = 1"]
    alone = card(tmp_path, study={**CARD["study"], "grid": {"rho": [0.5]}})
    assert tried(alone, tmp_path / "alone").rows[0].value == rows[0].value


def test_a_figure_may_say_rho_where_the_grid_does(tmp_path: Path) -> None:
    study = {**CARD["study"], "grid": {"rho": [0.5, 1.0]}}
    one = card(tmp_path, study=study, figures=[figure(where={"rho": 1.0})])
    (row,) = tried(one, tmp_path / "out").rows
    assert row.setting == "digits, ρ = 1"


def test_a_scale_of_the_card_changes_settings_grid_and_seeds(tmp_path: Path) -> None:
    own = {"seeds": [3], "grid": {"rho": [0.4, 0.8]}, "settings": {"editing": {"requests": 3}}}
    one = card(tmp_path, scales={"smoke": own})
    rows = tried(one, tmp_path / "out").rows
    assert [(row.setting, row.n) for row in rows] == [
        ("digits, ρ = 0.4", 1),
        ("digits, ρ = 0.8", 1),
    ]
    manifests = [json.loads(p.read_text()) for p in (tmp_path / "out").rglob("manifest.json")]
    assert {m["seed"] for m in manifests} == {3}
    assert {m["config"]["editing"]["requests"] for m in manifests} == {3}


def test_a_scale_that_the_card_does_not_have_is_never_met(tmp_path: Path) -> None:
    trial = tried(card(tmp_path), tmp_path / "out", scale="paper")
    (row,) = trial.rows
    assert (row.verdict, row.value, row.scale) == (NOT_RUN, None, "paper")
    assert row.why == "it is tried at smoke"
    assert not (tmp_path / "out").exists()


def test_data_that_are_not_at_hand_are_named(tmp_path: Path) -> None:
    one = card(tmp_path, data={"digits": {}, "mnist": {}}, figures=[figure(), figure(name="b")])
    rows = tried(one, tmp_path / "out").rows
    assert [(row.figure, row.setting, row.verdict) for row in rows] == [
        ("time saved", "digits", MET), ("time saved", "mnist", NOT_RUN),
        ("b", "digits", MET), ("b", "mnist", NOT_RUN),
    ]  # fmt: skip
    assert rows[1].why == "mnist is not at hand; name it with --data mnist=PLACE"


def test_runs_that_fail_leave_the_claim_unjudged(tmp_path: Path) -> None:
    one = card(tmp_path, data={"digits": {"data": {"limit": 10_000}}})
    trial = tried(one, tmp_path / "out")
    (row,) = trial.rows
    assert row.verdict == NOT_RUN
    assert row.why.startswith("4 of 4 runs failed, rho=0.5 fsosa seed=0 the first: data.limit")
    assert len(trial.failed) == 4
    assert next(iter(trial.failed)) == "digits, rho=0.5 fsosa seed=0"


def test_what_the_runs_do_not_hold_is_not_run(tmp_path: Path) -> None:
    needs = figure(measure="triggered", options={"kind": "batch"}, unit="")
    (row,) = tried(card(tmp_path, figures=[needs]), tmp_path / "out").rows
    assert (row.verdict, row.why) == (
        NOT_RUN,
        "no batch was handled, so there is nothing to count",
    )


def test_a_place_says_where_data_are_and_the_card_how_they_are_shared(tmp_path: Path) -> None:
    one = card(tmp_path, data={"mnist": {"data": {"partition": "iid"}}})
    place = {"data": {"name": "digits", "partition": "shards"}}
    (row,) = tried(one, tmp_path / "out", mnist=place).rows
    assert (row.setting, row.verdict) == ("mnist", MET)
    (path, *_) = (tmp_path / "out").rglob("manifest.json")
    config = json.loads(path.read_text())["config"]
    assert (config["data"]["name"], config["data"]["partition"]) == ("digits", "iid")


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    tried(card(tmp_path), tmp_path / "out")
    other = card(
        tmp_path,
        study={**CARD["study"], "settings": {"fidelity": "cost", "editing": {"requests": 2}}},
    )
    with pytest.raises(ResultsError, match=r"editing\.requests"):
        tried(other, tmp_path / "out")


def test_runs_of_another_schema_are_done_again(tmp_path: Path) -> None:
    one = card(tmp_path)
    rows = tried(one, tmp_path / "out").rows
    (path, *_) = (tmp_path / "out").rglob("manifest.json")
    content = path.read_text()
    path.write_text(json.dumps({**json.loads(content), "schema": 2}))
    again = tried(one, tmp_path / "out")
    assert again.rows == rows
    assert again.wall_s > 0
    assert json.loads(path.read_text())["schema"] == json.loads(content)["schema"]


def test_a_claim_that_is_worked_out_needs_no_runs(tmp_path: Path) -> None:
    exact = figure(
        measure="unstable",
        options={"rhos": [0.5], "populations": [2, 9]},
        between=None,
        at_most=1,
        unit="",
    )
    one = card(tmp_path, study=None, data=None, tariff=None, figures=[exact])
    (row,) = tried(one, tmp_path / "out").rows
    assert (row.value, row.verdict, row.setting) == (1.0, MET, "")


# Audits.


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What is told while the claim below is tried."""
    return []


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> tuple[Card, Path, Trial]:
    folder = tmp_path_factory.mktemp("audited")
    ask = {"beside": ["finetune"], "shadows": 16, "releases": 8, "repeats": 24, "clients": 1}
    study = {
        **TRAINED, "methods": ["fsosa"], "audit": ask,
        "settings": {
            "mobility": {"schedule": {"vehicles": 18}}, "clients": {"initial": 18, "pool": 24},
            "data": {"limit": 1200}, "learning": {"epochs": 20},
        },
    }  # fmt: skip
    figures = [
        figure(name=name, measure="told-apart", options=options, unit="", between=None, **band)
        for name, options, band in (
            ("edited", {"what": "p"}, {"at_least": 0.01}),
            ("kept", {"what": "control"}, {"at_most": 0.01}),
            ("auc", {"what": "auc"}, {"at": 0.5, "within": 0.25}),
            ("fine-tuned", {"what": "p", "method": "finetune"}, {"at_most": 0.01}),
        )
    ]
    one = card(folder, study=study, figures=figures, scales={"smoke": {"seeds": [0]}})
    trial = attempt(one, "smoke", folder / "out", {}, EXECUTION, say=said.append)
    return one, folder / "out", trial


def test_clients_that_train_for_an_audit_are_announced(
    audited: tuple[Card, Path, Trial], said: list[str]
) -> None:
    # The run had half of the clients' contributions, and the sweep's store has kept them.
    assert re.fullmatch(
        r"\d+ of \d+ clients' contributions are not in the store .*: these clients train", said[0]
    )


def test_an_audit_tells_editing_from_keeping(audited: tuple[Card, Path, Trial]) -> None:
    _, _, trial = audited
    values = {row.figure: row.value for row in trial.rows}
    assert {row.figure: row.verdict for row in trial.rows} == dict.fromkeys(values, MET), values


def test_an_audit_is_done_once_and_drawn(audited: tuple[Card, Path, Trial]) -> None:
    one, out, trial = audited
    assert len(list(out.rglob("audit-roc.png"))) == 1
    again = tried(one, out)
    assert (again.rows, again.wall_s) == (trial.rows, 0)


# Records.


def test_a_record_is_what_was_found_and_adds_up_seconds(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    folder = out / "smoke" / "cheap"
    trial = tried(one, folder)
    assert keep(one, "smoke", folder, trial).wall_s == trial.wall_s
    keep(one, "smoke", folder, Trial(trial.rows, 2.0, {}))
    known = recall([one], out)
    assert list(known) == [("cheap", "smoke")]
    assert known["cheap", "smoke"].rows == trial.rows
    assert known["cheap", "smoke"].wall_s == pytest.approx(trial.wall_s + 2, abs=0.2)


def test_a_scale_without_a_verdict_is_left_out_where_another_has_one(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    keep(one, "paper", out / "paper" / "cheap", tried(one, out / "paper" / "cheap", scale="paper"))
    assert list(recall([one], out)) == [("cheap", "paper")]
    keep(one, "smoke", out / "smoke" / "cheap", tried(one, out / "smoke" / "cheap"))
    assert list(recall([one], out)) == [("cheap", "smoke")]


def test_a_card_that_changed_after_the_fact_is_not_met(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    folder = out / "smoke" / "cheap"
    keep(one, "smoke", folder, tried(one, folder))
    for changes in (
        {"tariff": "broadcast"}, {"figures": [figure(within=5)]}, {"study": TRAINED},
        {"scales": {"smoke": {"seeds": [0]}}},
    ):  # fmt: skip
        (row,) = recall([card(tmp_path, **changes)], out)["cheap", "smoke"].rows
        assert row.verdict == NOT_RUN
        assert "has changed since" in row.why
    scales = {**CARD["scales"], "paper": {"seeds": [7]}}  # of which nothing is known
    for changes in ({"says": "Edits are very cheap."}, {"scales": scales}):
        (row,) = recall([card(tmp_path, **changes)], out)["cheap", "smoke"].rows
        assert row.verdict == MET


def test_a_study_that_changed_after_the_fact_is_not_met(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    keep(one, "smoke", out / "smoke" / "cheap", tried(one, out / "smoke" / "cheap"))
    study = tmp_path / "study.yaml"
    study.write_text(study.read_text().replace("epochs: 1", "epochs: 2"))
    (row,) = recall([one], out)["cheap", "smoke"].rows
    assert row.verdict == NOT_RUN
    assert "has changed since" in row.why


def test_what_was_measured_stays_while_its_data_are_away(tmp_path: Path) -> None:
    one, out = card(tmp_path, data={"digits": {}, "mnist": {}}), tmp_path / "out"
    folder, place = out / "smoke" / "cheap", {"data": {"name": "digits"}}
    whole = keep(one, "smoke", folder, tried(one, folder, mnist=place))
    assert [row.verdict for row in whole.rows] == [MET, MET]
    assert keep(one, "smoke", folder, tried(one, folder)).rows == whole.rows
    other = card(tmp_path, data={"digits": {}, "mnist": {}}, figures=[figure(within=3)])
    rows = keep(other, "smoke", folder, tried(other, folder)).rows
    assert [row.verdict for row in rows] == [MET, NOT_RUN]


def test_an_explanation_may_be_found_later(tmp_path: Path) -> None:
    out = tmp_path / "out"
    strict = figure(between=None, at_most=0)
    one = card(tmp_path, figures=[strict])
    keep(one, "smoke", out / "smoke" / "cheap", tried(one, out / "smoke" / "cheap"))
    explained = card(tmp_path, figures=[{**strict, "why": {"smoke": "edits save time"}}])
    (row,) = recall([explained], out)["cheap", "smoke"].rows
    assert (row.verdict, row.why) == (MISSED, "edits save time")


def test_cards_may_lie_elsewhere(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    keep(one, "smoke", out / "smoke" / "cheap", tried(one, out / "smoke" / "cheap"))
    moved = load_card(write(tmp_path / "elsewhere"))
    assert recall([moved], out)["cheap", "smoke"].rows[0].verdict == MET


def test_a_record_whose_numbers_are_none_is_named(tmp_path: Path) -> None:
    one, out = card(tmp_path), tmp_path / "out"
    folder = out / "smoke" / "cheap"
    keep(one, "smoke", folder, tried(one, folder))
    content = json.loads((folder / RECORD).read_text())
    for rows in ("abc", [3], [{}], [{**content["rows"][0], "value": "x"}]):
        (folder / RECORD).write_text(json.dumps({**content, "rows": rows}))
        with pytest.raises(ResultsError, match=r"verdicts\.json: not a record of verdicts"):
            recall([one], out)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows": []}'])
def test_a_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    one = card(tmp_path)
    folder = tmp_path / "out" / "smoke" / "cheap"
    folder.mkdir(parents=True)
    (folder / RECORD).write_text(content)
    with pytest.raises(ResultsError, match=r"verdicts.json: not a record of verdicts .*remove it"):
        recall([one], tmp_path / "out")
