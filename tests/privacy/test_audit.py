"""A whole audit: its verdicts, its rows, what it says it lacks, and its files."""

import csv
import re
from dataclasses import replace

import numpy as np
import pytest
from audited import QUICK, WRONG, Finished, settings

from testbed.editing.methods import METHODS
from testbed.errors import ResultsError
from testbed.experiments.run import run
from testbed.privacy.attacks import Attacker, against
from testbed.privacy.audit import audit
from testbed.privacy.bank import ignore, stock
from testbed.privacy.findings import COLUMNS
from testbed.privacy.pictures import gather, predict
from testbed.privacy.report import ROC_COLUMNS, attacked, interval, sentence, to_markdown, write
from testbed.privacy.roc import auc, curve
from testbed.privacy.shadow import learn

TRIED = {
    "fsosa": METHODS["fsosa"],
    "finetune": METHODS["finetune"],
    "keeping": WRONG["keeping"],
}


@pytest.fixture(scope="module")
def found(ran):
    return ran.audit(TRIED)


def rows(found, part, **wanted):
    return [
        row
        for row in found.findings.rows
        if row.part == part and all(getattr(row, key) == value for key, value in wanted.items())
    ]


def test_the_verdicts(found):
    findings = {name: verdict.finding for name, verdict in found.verdicts.items()}
    assert findings == {
        "fsosa": "indistinguishable",
        "finetune": "distinguishable",
        "keeping": "distinguishable",
    }


def test_those_who_withdrew_withdraw_again(found):
    subject = found.subject
    assert found.leaving
    assert set(found.leaving) <= set(subject.withdrawn)
    assert not any("no contributor has withdrawn" in each for each in found.findings.remarks)


def test_without_any_members_withdraw(ran):
    stayed = replace(ran.subject, withdrawn=())
    few = replace(QUICK, repeats=8, relearns=0)
    found = audit(stayed, ran.executor, {"fsosa": METHODS["fsosa"]}, few)
    assert set(found.leaving) <= set(stayed.members)
    assert any("no contributor has withdrawn" in each for each in found.findings.remarks)
    assert not rows(found, "relearning")


def test_with_nobody_left_of_the_contributors_anybody_withdraws(ran):
    alone = replace(ran.subject, withdrawn=(), members=())
    few = replace(QUICK, shadows=20, releases=2, repeats=8, clients=1, relearns=0)
    (client,) = audit(alone, ran.executor, {"fsosa": METHODS["fsosa"]}, few).leaving
    assert client in alone.population


def test_a_method_in_rounds_is_audited_by_its_own_models(ran):
    """Every model is a training, so there are few; the bank is of the method's own models."""
    few = replace(QUICK, shadows=20, releases=2, repeats=99, clients=1, relearns=0, pictures=10)
    found = audit(ran.subject, ran.executor, {"fedrr": METHODS["fedrr"]}, few)
    (edited,) = rows(found, "forgetting", target="all", who="edited")
    assert (edited.n, edited.m) == (12, 12)  # not 99
    assert found.verdicts["fedrr"].finding == "distinguishable"


def test_every_attack_is_measured_on_fresh_models(found):
    of = attacked(found.findings.rows)
    fresh = {key[2:] for key in of if key[:2] == ("fresh", "members")}
    assert fresh == {
        ("clients", "loss"),
        ("clients", "lira-offline"),
        ("clients", "lira-online"),
        ("pictures", "loss"),
        ("pictures", "shadow"),
        ("pictures", "lira-offline"),
    }
    for key, quantities in of.items():
        for row in quantities.values():
            if np.isfinite(row.low):
                assert row.low <= row.value <= row.high or row.quantity.startswith("balanced"), key
            assert row.n >= 8
            assert row.m >= 8


def test_clients_are_found_and_lira_beats_the_loss(found):
    area = {key[3]: of["auc"] for key, of in attacked(found.findings.rows).items()
            if key[:3] == ("fresh", "members", "clients")}  # fmt: skip
    assert area["lira-online"].low > 0.7
    assert area["lira-online"].value > area["loss"].value + 0.05
    # 30 models, of P = 4 among everybody.
    everyone = len(found.subject.everyone)
    assert (area["loss"].n, area["loss"].m) == (30 * 4, 30 * (everyone - 4))


def test_what_is_lacking_is_named_with_numbers(found):
    remarks = found.findings.remarks
    assert len(set(remarks)) == len(remarks)
    assert any(
        each.startswith("released model, members, clients: 4 members and") and "needs 8" in each
        for each in remarks
    )
    assert not rows(found, "attack", model="released", target="clients")


def test_the_test_of_forgetting_is_in_the_rows(found):
    for name in TRIED:
        (edited,) = rows(found, "forgetting", model=name, target="all", who="edited")
        (control,) = rows(found, "forgetting", model=name, target="all", who="control")
        verdict = found.verdicts[name]
        assert (edited.value, control.value) == (verdict.p_value, verdict.control_p)
        statistics = {row.statistic for row in rows(found, "forgetting", model=name, who="edited")}
        assert statistics == {"loss", "lira-online", "all"}
        (smallest,) = {
            min(
                row.value
                for row in rows(found, "forgetting", model=name, who="edited")
                if row.quantity in ("ks_p", "auc_p")
            )
        }
        tests = 4 * len(found.leaving)
        assert verdict.p_value == pytest.approx(min(1, smallest * tests))


def test_influence_and_relearning_are_in_the_rows(found):
    assert len(rows(found, "influence")) == 3 * len(found.subject.everyone)
    own = [row.value for row in rows(found, "influence", who="own")]
    assert np.mean(own) > 0  # a client's loss is lower where it takes part
    for client in found.leaving:
        name = f"{client.vehicle}/{client.partition}"
        kept, anew = (
            rows(found, "relearning", model="finetune", target=name, who=who)[0].value
            for who in ("edited", "retrained")
        )
        assert kept == 0
        assert anew > 0


def test_the_same_run_gives_the_same_files(ran, found, tmp_path):
    write(tmp_path / "a", found)
    write(tmp_path / "b", Finished.of(ran.folder).audit(TRIED))
    names = ("audit.csv", "audit-roc.csv", "audit.md")
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(names)
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_tables_hold_the_rows(found, tmp_path):
    write(tmp_path, found)
    with (tmp_path / "audit.csv").open(newline="") as stream:
        read = list(csv.DictReader(stream))
    assert tuple(read[0]) == COLUMNS
    assert len(read) == len(found.findings.rows)
    for text, row in zip(read, found.findings.rows, strict=True):
        assert text["quantity"] == row.quantity
        assert (text["value"] == "") == bool(np.isnan(row.value))
        if text["value"]:
            assert float(text["value"]) == pytest.approx(row.value, rel=1e-5)
    with (tmp_path / "audit-roc.csv").open(newline="") as stream:
        points = list(csv.DictReader(stream))
    assert tuple(points[0]) == ROC_COLUMNS
    for line in found.findings.lines:
        of = [
            (float(each["fpr"]), float(each["tpr"]))
            for each in points
            if (each["panel"], each["label"]) == (line.panel, line.label)
        ]
        assert of == sorted(of)
        assert of[-1] == (1.0, 1.0)
        for fpr, tpr in of:  # corners of the curve and no others
            assert np.isclose([fpr, tpr], np.column_stack([line.curve.fpr, line.curve.tpr]),
                              rtol=1e-5).all(axis=1).any()  # fmt: skip


def test_the_page_says_it_in_words(found):
    page = to_markdown(found)
    assert "fsosa: models edited when a client withdraws cannot be told" in page
    assert "keeping: models edited when a client withdraws are NOT retrained ones" in page
    assert "they fit its data better" in page
    assert "![ROC curves](figures/audit-roc.png)" in page
    for remark in found.findings.remarks:
        assert f"* {remark}." in page
    widths = {}
    for line in page.splitlines():
        if line.startswith("|"):
            widths.setdefault(line.count("|"), 0)
    assert set(widths) == {10, 9, 6}


def test_sentences_of_the_three_findings(found):
    verdict = found.verdicts["fsosa"]
    undecided = sentence("mine", replace(verdict, finding="undecided"))
    assert "undecided" in undecided
    assert undecided.endswith("raise --repeats")
    worse = sentence("mine", replace(verdict, finding="distinguishable", auc=0.1))
    assert "data worse (AUC 0.10" in worse
    never = sentence("mine", replace(verdict, finding="distinguishable", auc=0.0))
    assert "data worse (AUC < 0.01, p" in never


def test_of_tiny_p_values_only_a_bound_is_said(found):
    verdict = replace(found.verdicts["fsosa"], p_value=0.086, control_p=3e-14)
    assert sentence("mine", verdict).endswith("(p = 0.086; control, which keeps it: p < 0.0001)")
    assert not re.search(r"p = 0\b(?!\.)|e-\d", sentence("mine", replace(verdict, p_value=0.0)))
    page = to_markdown(found)
    assert "| < 0.0001 |" in page  # fine-tuning, and the control
    of_tests = page[page.index("## Forgetting") : page.index("Epochs until")]
    assert not re.search(r"\| 0(\.0*)? \||e-\d", of_tests)
    assert all(row.value > 0 for row in rows(found, "forgetting") if row.quantity.endswith("_p"))


def test_an_interval_reads_well(found):
    row = next(iter(attacked(found.findings.rows).values()))["auc"]
    assert interval(replace(row, value=float("nan"))) == "–"
    assert interval(replace(row, value=0.25, low=float("nan"))) == "0.250"
    assert interval(replace(row, value=0.25, low=0.1, high=0.5), 1) == "0.2 [0.1, 0.5]"


# --- attacks, one by one ---------------------------------------------------------------


@pytest.fixture(scope="module")
def attacker(ran):
    clients = ran.subject.everyone
    pictures = gather(ran.task, [client.partition for client in clients], most=40)
    shadows = stock(ran.federation(), ran.task, clients, pictures, 60, 8, ignore)
    return Attacker(pictures, shadows, ran.task.streams)


def test_who_is_scored_against_whom(ran, attacker):
    """One model with clients 0 and 1 inside, 2 and 3 eligible as outsiders."""
    pictures, clients = attacker.pictures, attacker.shadows.inside.shape[1]
    scores = attacker.score(predict(ran.task, ran.subject.model, pictures))
    inside, eligible = (np.isin(np.arange(clients), who) for who in ([0, 1], [2, 3]))
    found = against([scores], inside[None], eligible, pictures)
    of_pictures = found["pictures", "loss"]
    assert of_pictures.members == (inside[pictures.owner] & pictures.trained).sum()
    assert of_pictures.others == (inside[pictures.owner] & ~pictures.trained).sum()
    assert set(of_pictures.groups[0].tolist()) == {0, 1}
    assert len(of_pictures.groups) == 1
    of_clients = found["clients", "loss"]
    assert (of_clients.members, of_clients.others) == (2, 2)
    assert of_clients.score.tolist() == scores["clients", "loss"][:4].tolist()
    two = against([scores, scores], np.stack([inside, ~inside]), eligible, pictures)
    of_clients, of_models = two["clients", "loss"].groups
    assert set(of_clients.tolist()) == set(range(clients))
    assert set(of_models.tolist()) == {0, 1}
    assert two["clients", "loss"].members == clients


def test_no_trees_attack_a_picture_they_have_seen(ran, attacker):
    attack = learn(attacker.shadows, attacker.pictures, ran.task.streams)
    assert sorted(np.bincount(attack.half).tolist()) == sorted(
        [len(attack.half) // 2, -(-len(attack.half) // 2)]
    )
    said = attacker.shadows.predicted[0]
    scores = attack.score(said, attacker.pictures)
    assert ((scores >= 0) & (scores <= 1)).all()
    # Each half is scored by the other's trees alone.
    swapped = replace(attack, trees=attack.trees[::-1]).score(said, attacker.pictures)
    assert not np.allclose(scores, swapped)


def test_the_shadow_attack_finds_who_learned_by_heart(ran, attacker):
    """Of a client's own model, over-fitted by design, training pictures stand out."""
    pictures = attacker.pictures
    task = ran.task
    own = task.train(0, task.initial)
    part = [client.partition for client in ran.subject.everyone].index(0)
    inside = np.zeros((1, attacker.shadows.inside.shape[1]), dtype=bool)
    inside[0, part] = True
    found = against([attacker.score(predict(task, own, pictures))], inside, ~inside[0], pictures)
    assert auc(curve(found["pictures", "loss"])) > 0.5
    assert auc(curve(found["clients", "loss"])) == 1.0


def test_without_hold_outs_there_is_no_attack_on_pictures(tmp_path):
    experiment = settings(tmp_path, data={"holdout": 0.0}, editing={"methods": ["fsosa"]})
    (done,) = run(experiment, tmp_path / "results")
    found = Finished.of(done.cell.folder).audit(
        {"fsosa": METHODS["fsosa"]}, replace(QUICK, repeats=8, relearns=0)
    )
    assert not rows(found, "attack", target="pictures")
    assert rows(found, "attack", target="clients", model="fresh")
    (remark,) = [
        each for each in found.findings.remarks if each.startswith("fresh model, members, p")
    ]
    assert "and 0 non-members are there; an attack needs 8 of each" in remark
    assert "shadow" not in {row.statistic for row in found.findings.rows}


def test_where_everybody_is_a_member_lira_is_silent(ran):
    whole = replace(ran.subject, size=len(ran.subject.everyone))
    found = audit(whole, ran.executor, {"fsosa": METHODS["fsosa"]}, replace(QUICK, repeats=8))
    (first, *_) = [each for each in found.findings.remarks if "lira" in each]
    assert "raise --shadows, or editing.rho is too near to 1" in first
    statistics = {row.statistic for row in rows(found, "forgetting")}
    assert statistics == {"loss", "all"}


def test_two_clients_are_too_few(ran):
    subject = ran.subject
    pair = replace(subject, population=subject.population[:2], withdrawn=())
    with pytest.raises(ResultsError, match=r"2 clients .* an audit needs 3"):
        audit(pair, ran.executor, {"fsosa": METHODS["fsosa"]}, QUICK)
