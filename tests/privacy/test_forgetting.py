"""F-SOSA forgets, unlearners that do not are caught, and relearning and influence are measured."""

import numpy as np
import pytest
from audited import WRONG, fleet

from testbed.editing.methods import METHODS
from testbed.privacy.bank import Bank, ignore
from testbed.privacy.comparison import LEVEL
from testbed.privacy.forgetting import MOST_EPOCHS, Trials, relearn, told_apart, weigh, withdraw
from testbed.privacy.influence import influences
from testbed.privacy.pictures import confidence, gather, loss, predict
from testbed.privacy.roc import auc

CLIENTS = fleet(9)


def statistic(ran, client):
    mine = gather(ran.task, [client.partition], 40).of(0)

    def say(model):
        return {"loss": -float(loss(confidence(predict(ran.task, model, mine), mine.y)).mean())}

    return say


def verdict(ran, method, repeats=40, clients=(2, 5)):
    trials = [
        withdraw(
            ran.federation(method),
            CLIENTS,
            CLIENTS[number],
            statistic(ran, CLIENTS[number]),
            repeats,
            0,
            "tried",
            ignore,
        )
        for number in clients
    ]
    return weigh(trials, np.random.default_rng(0)).verdict


def test_fsosa_cannot_be_told_from_retrain(ran):
    found = verdict(ran, METHODS["fsosa"])
    assert found.finding == "indistinguishable"
    assert found.control_p < LEVEL / 100


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_unlearner_is_caught(ran, name):
    found = verdict(ran, WRONG[name])
    assert found.finding == "distinguishable"
    assert found.p_value < LEVEL
    assert found.auc > 0.6  # it fits the withdrawn client's data better


def test_fine_tuning_forgets_nothing(ran):
    found = verdict(ran, METHODS["finetune"])
    assert found.finding == "distinguishable"
    assert found.p_value == found.control_p


def test_a_retraining_with_other_steps_is_no_retraining(ran):
    """FedRR has forgotten, and is another model all the same: the direction tells."""
    found = verdict(ran, METHODS["fedrr"], repeats=9, clients=(2,))
    assert found.finding == "distinguishable"
    assert found.auc < 0.5


def test_fats_cu_is_exact_too(ran):
    found = verdict(ran, METHODS["fats-cu"], repeats=8, clients=(2,))
    assert found.p_value > LEVEL


def test_too_few_withdrawals_decide_nothing(ran):
    found = verdict(ran, METHODS["fsosa"], repeats=5, clients=(2,))
    assert found.finding == "undecided"


def test_relearning_counts_epochs(ran):
    client, federation = CLIENTS[2], ran.federation()
    say = statistic(ran, client)
    model = federation.release([each for each in CLIENTS if each != client], "anew")[0].fused.model
    now = say(model)["loss"]
    assert relearn(federation, client, model, say, now) == 0
    few = relearn(federation, client, model, say, now / 2)
    many = relearn(federation, client, model, say, now / 20)
    assert 1 <= few <= many < MOST_EPOCHS
    assert relearn(federation, client, model, say, 1.0) == MOST_EPOCHS


def test_a_model_that_kept_the_client_is_relearnt_at_once(ran):
    client = CLIENTS[2]
    trials = withdraw(
        ran.federation(METHODS["finetune"]),
        CLIENTS,
        client,
        statistic(ran, client),
        4,
        4,
        "relearnt",
        ignore,
    )
    assert trials.relearnt.tolist() == [0, 0, 0, 0]
    assert trials.relearnt_anew.mean() > 0


def test_the_curve_of_telling_apart_has_a_direction():
    low, high = np.arange(5.0), np.arange(5.0) + 10
    for edited, area in ((high, 1.0), (low - 20, 0.0), (low, 0.5)):
        sample = {"loss": edited}
        trials = Trials(CLIENTS[0], sample, sample, {"loss": low}, low, low)
        for who in ("edited", "kept"):
            for sign in (1, -1):
                found = auc(told_apart([trials], who, "lira-online", sign))
                assert found == pytest.approx(0.5 + sign * (area - 0.5))


def test_influence_by_hand(ran):
    """Two clients, one picture of each kind; losses are 1 without client 0, and 0.25 with it."""
    pictures = gather(ran.task, [0, 1], most=1)
    inside = np.array([[True, False], [False, True]] * 10)
    losses = np.where(inside[:, :1], 0.25, 1.0) * np.ones((20, 4))
    phi = -np.log(np.expm1(losses))
    first, second = influences(Bank(inside, phi.astype(np.float32), ()), pictures)
    assert (first.inside, first.outside) == (10, 10)
    for gap in (first.own, first.held, first.others):
        assert gap.value == pytest.approx(0.75, rel=1e-5)
        assert (gap.high - gap.low) == pytest.approx(0, abs=1e-5)
    assert second.own.value == pytest.approx(-0.75, rel=1e-5)


def test_influence_needs_models_of_both_kinds(ran):
    pictures = gather(ran.task, [0, 1], most=1)
    inside = np.array([[True, False]] * 7 + [[False, True]] * 20)
    first, second = influences(Bank(inside, np.zeros((27, 4), np.float32), ()), pictures)
    assert np.isnan([first.own.value, second.own.value]).all()


def test_a_client_without_hold_outs_has_no_influence_on_them(ran):
    pictures = gather(ran.task, [0, 1], most=1)
    keep = ~((pictures.owner == 0) & ~pictures.trained)
    mask = keep.nonzero()[0]
    alone = type(pictures)(
        pictures.x[mask], pictures.y[mask], pictures.owner[mask], pictures.trained[mask]
    )
    inside = np.array([[True, False], [False, True]] * 10)
    first, second = influences(Bank(inside, np.zeros((20, 3), np.float32), ()), alone)
    assert np.isnan(first.held.value)
    assert first.others.value == 0
    assert np.isnan(second.others.value)
    assert second.held.value == 0
