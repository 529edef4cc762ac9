"""Models made at will are those a run makes; the run's own membership is found again."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from audited import QUICK, Finished, Spoiling, fleet, settings

from testbed.editing.methods import METHODS
from testbed.errors import EditError, ResultsError
from testbed.execution import Clients
from testbed.experiments.run import run
from testbed.experiments.rundir import read_run
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import blocks
from testbed.privacy.audit import audit
from testbed.privacy.bank import ignore, stock
from testbed.privacy.pictures import confidence, gather, loss, predict
from testbed.privacy.subject import auditable


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


# --- the subject of an audit -----------------------------------------------------------


def test_the_members_found_again_make_the_released_model_bit_for_bit(ran):
    subject = ran.subject
    sent = ran.federation().contributions(subject.members)
    fused = fuse(
        list(sent.values()),
        blocks(ran.task.model),
        Projection.from_config(ran.experiment.fusion),
    )
    assert len(subject.members) == subject.size == 4
    assert same(fused.model, subject.model)


def test_who_is_there_and_who_withdrew(ran):
    """By the trace v1, v3, v5 and v6 leave and v1 returns; at most eight requests count."""
    subject = ran.subject
    assert [client.vehicle for client in subject.population] == [
        "v0", "v1", "v10", "v2", "v4", "v7", "v8", "v9"
    ]  # fmt: skip
    ledger = read_run(ran.folder).ledger
    uploaded = {row.vehicle for row in ledger if row.phase == "upload"}
    gone = {"v3", "v5", "v6"} & uploaded
    held = {client.partition for client in subject.population}
    assert {client.vehicle for client in subject.withdrawn} <= gone
    assert not held & {client.partition for client in subject.withdrawn}
    partitions = [client.partition for client in subject.everyone]
    assert len(set(partitions)) == len(partitions)


def test_a_method_without_a_subset_has_its_contributors_as_members(results):
    (folder,) = results.glob("finetune-*/seed=0")
    subject = Finished.of(folder).subject
    uploaded = {row.vehicle for row in read_run(folder).ledger if row.phase == "upload"}
    assert {client.vehicle for client in subject.members} == uploaded & {
        client.vehicle for client in subject.population
    }
    assert len(subject.members) > 4  # newcomers were averaged in


def test_a_run_with_refused_uploads_is_followed_with_its_clients(tmp_path, monkeypatch):
    """Who was refused departs, so who is in the subset depends on what was sent."""
    experiment = settings(tmp_path, editing={"methods": ["fsosa"]})

    @contextmanager
    def spoiled(experiment, seed, task, *more):
        yield Spoiling(Clients(task), bad=(0, 1, 2, 3))

    monkeypatch.setattr("testbed.experiments.run.open_executor", spoiled)
    (done,) = run(experiment, tmp_path / "results")
    ran = Finished.of(done.cell.folder)
    assert read_run(ran.folder).manifest["counts"]["refused"] > 0
    with pytest.raises(ResultsError, match="cannot be followed again"):
        _ = ran.subject  # with clients of whom all is usable it was another run
    honest = replace(ran, executor=Spoiling(ran.executor, bad=(0, 1, 2, 3)))
    subject = honest.subject
    assert {client.partition for client in subject.members} <= set(range(4, 12))
    found = audit(subject, honest.executor, {"fsosa": METHODS["fsosa"]}, replace(QUICK, repeats=8))
    (remark,) = [each for each in found.findings.remarks if "left out" in each]
    assert remark.endswith("clients are left out: their contributions cannot be used")


def test_nobody_may_leave_a_strict_federation_that_is_too_small(tmp_path, ran):
    strict = settings(tmp_path, editing={"below_subset": "strict"})
    subject = replace(ran.subject, experiment=strict, size=len(ran.subject.everyone))
    with pytest.raises(EditError, match="below_subset"):
        audit(subject, ran.executor, {"fsosa": METHODS["fsosa"]}, QUICK)


@pytest.fixture
def copied(ran, tmp_path):
    shutil.copytree(ran.folder, tmp_path / "seed=0")
    return replace(ran, folder=tmp_path / "seed=0")


def test_another_history_is_refused(copied):
    path = copied.folder / "trace.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "v9" not in line))
    with pytest.raises(ResultsError, match="requests cannot be followed again") as error:
        _ = copied.subject
    assert "\n" not in str(error.value)


def test_other_data_are_refused(copied):
    path = copied.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["data"]["fingerprint"] = "0123456789abcdef"
    path.write_text(json.dumps(manifest))
    with pytest.raises(ResultsError, match="learned from data 0123456789abcdef"):
        _ = copied.subject


def test_what_was_never_trained_or_detects_is_refused(ran):
    for settings_, words in (
        ({"fidelity": "cost"}, "nothing was trained"),
        ({"data": ran.experiment.data.model_copy(update={"name": "bdd100k"})}, "detects objects"),
    ):
        with pytest.raises(ResultsError, match=words):
            auditable(ran.experiment.model_copy(update=settings_), ran.folder)
    auditable(ran.experiment, ran.folder)


# --- models at will --------------------------------------------------------------------


# DENSE trains a generator for minutes.
@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"dense"}))
def test_every_method_makes_edits_and_leaves_the_client_out(ran, method):
    federation = ran.federation(method)
    clients = fleet(7)
    before = federation.including(clients[2], clients, "before", method)
    assert clients[2] in before.population
    after = federation.without(before, clients[2], "after", method)
    assert after.population == (*clients[:2], *clients[3:])
    assert clients[2] not in after.subset
    assert all(value.isfinite().all() for value in after.fused.model.values())


def test_a_release_names_who_is_in_it(ran):
    clients = fleet(9)
    for method, most in (("fsosa", 4), ("finetune", 4), ("fedrr", 4), ("fats-cu", 9)):
        state, members = ran.federation(method).release(clients, "named", method)
        assert 4 <= len(members) <= most
        if state.subset:
            assert set(state.subset) == members


def test_including_draws_the_others_uniformly(ran):
    clients, federation = fleet(7), ran.federation()
    counts = np.zeros(7)
    for number in range(140):
        state = federation.including(clients[0], clients, "uniform", number)
        counts[[client.partition for client in state.subset]] += 1
    assert counts[0] == 140
    # Each of the six others with probability 3/6: four deviations are 24.
    assert np.abs(counts[1:] - 70).max() < 24


def test_names_decide_and_nothing_else(ran):
    clients, federation = fleet(8), ran.federation()
    first, _ = federation.release(clients, "a", 1)
    federation.release(clients, "b", 1)
    again, _ = ran.federation().release(clients, "a", 1)
    other, _ = federation.release(clients, "a", 2)
    assert first.subset == again.subset
    assert same(first.fused.model, again.fused.model)
    assert other.subset != first.subset


def test_sized_keeps_the_contributions_and_never_grows(ran):
    federation = ran.federation()
    federation.contributions(fleet(3))
    small = federation.sized(2)
    assert small.release(fleet(8), "small")[0].subset.__len__() == 2
    assert small._known is federation._known
    assert federation.sized(99).parameters.size == 4


def test_nobody_is_asked_twice(ran, monkeypatch):
    asked = []
    train = type(ran.executor).train
    monkeypatch.setattr(
        type(ran.executor), "train", lambda self, *a: asked.append(tuple(a[0])) or train(self, *a)
    )
    federation = ran.federation()
    for number in range(5):
        federation.release(fleet(6), "asked", number)
    parts = [part for each in asked for part in each]
    assert len(parts) == len(set(parts)) <= 6


# --- pictures and the bank -------------------------------------------------------------


def test_only_own_pictures_are_looked_at(ran):
    task = ran.task
    pictures = gather(task, [5, 2], most=7)
    for number, part in enumerate((5, 2)):
        for trained, indices in ((True, task.parts[part]), (False, task.holdouts[part])):
            chosen = (pictures.owner == number) & (pictures.trained == trained)
            assert chosen.sum() == min(7, len(indices))
            own = {row.tobytes() for row in task.dataset.x_train[indices]}
            assert {row.numpy().tobytes() for row in pictures.x[torch.from_numpy(chosen)]} <= own
    mine = pictures.of(1)
    assert len(mine.y) == min(7, len(task.parts[2]))
    assert mine.trained.all()


def test_means_are_of_each_client_and_kind(ran):
    pictures = gather(ran.task, [0, 1, 2], most=5)
    values = np.arange(2.0 * len(pictures.y)).reshape(2, -1)
    for trained in (True, False):
        found = pictures.means(values, trained)
        expected = [
            [
                row[(pictures.owner == number) & (pictures.trained == trained)].mean()
                for number in range(3)
            ]
            for row in values
        ]
        assert found == pytest.approx(np.array(expected))


def test_confidence_and_loss_by_hand():
    said = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    labels = torch.tensor([0, 2])
    found = confidence(said, labels)
    assert found == pytest.approx([0.0, np.log(1 / 9)], abs=1e-7)
    assert loss(found) == pytest.approx([np.log(2), np.log(10)])
    sure = confidence(torch.log_softmax(torch.tensor([[80.0, 0.0]]), dim=1), torch.tensor([0]))
    assert sure == pytest.approx([80.0])
    assert loss(sure) == pytest.approx([np.exp(-80.0)])


def test_a_model_predicts_what_the_task_scores(ran):
    subject = ran.subject
    task = ran.task
    pictures = gather(task, range(12), most=10**6)
    said = predict(task, subject.model, pictures)
    assert said.exp().sum(dim=1).numpy() == pytest.approx(1, abs=1e-5)
    total = loss(confidence(said, pictures.y)).mean()
    expected = torch.nn.functional.nll_loss(said.double(), pictures.y)
    assert total == pytest.approx(float(expected))


def test_the_bank_is_of_uniform_subsets(ran):
    clients = fleet(8)
    pictures = gather(ran.task, range(8), most=5)
    bank = stock(ran.federation(), ran.task, clients, pictures, 80, 3, ignore)
    assert bank.inside.shape == (80, 8)
    assert (bank.inside.sum(axis=1) == 4).all()
    # Half of 80, give or take four deviations.
    assert np.abs(bank.inside.sum(axis=0) - 40).max() < 18
    assert len(bank.predicted) == 3
    row = confidence(bank.predicted[2], pictures.y)
    assert bank.confidence[2] == pytest.approx(row, rel=1e-5)
    assert bank.of_clients(pictures)[2] == pytest.approx(pictures.means(row), rel=1e-5)
