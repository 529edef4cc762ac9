"""What the rules that are linear algebra on statistics have in common."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from federated import NETS, federation, task

from testbed.config.schema import FisherConfig, FusionConfig
from testbed.errors import FusionError
from testbed.fusion.dense import Distillation
from testbed.fusion.rules import RULES, Rule, network_of, rule
from testbed.learning.contribution import deserialise, serialise
from testbed.learning.evaluation import evaluate
from testbed.learning.statistics import contribute, extra_like, statistic_bytes

OURS = (
    "fedavg",
    "fisher-merging",
    "fedfisher",
    "fedfisher-diagonal",
    "regmean",
    "fedlpa",
    "ma-echo",
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="module", params=list(NETS))
def learning(request):
    return task(request.param)


@pytest.fixture(scope="module")
def trained(learning):
    """Contributions by statistic; training is done once."""
    known = {}

    def of(statistic: str):
        if statistic not in known:
            known[statistic] = federation(learning, statistic)
        return known[statistic]

    return of


@pytest.mark.parametrize("name", OURS)
def test_a_rule_fuses_any_network_the_same_way_twice(name, learning, trained) -> None:
    rule, network = RULES[name], network_of(learning)
    contributions = trained(rule.statistic)
    fused = rule.fuse(contributions, network, rng())
    again = rule.fuse(contributions, network, np.random.default_rng(99))
    for key, value in learning.initial.items():
        assert fused.model[key].shape == value.shape
        assert fused.model[key].dtype == value.dtype
        assert bool(fused.model[key].isfinite().all())
        assert torch.equal(fused.model[key], again.model[key])
    x = torch.from_numpy(learning.dataset.x_test)
    y = torch.from_numpy(learning.dataset.y_test)
    assert evaluate(learning.model, fused.model, x, y).accuracy > 0.4  # a third by guessing
    assert rule.flops(network, 3) > rule.flops(network, 2) > 0 or name == "fedfisher-diagonal"


@pytest.mark.parametrize("name", OURS)
def test_the_order_of_clients_does_not_count(name, learning, trained) -> None:
    rule, network = RULES[name], network_of(learning)
    contributions = trained(rule.statistic)
    one = rule.fuse(contributions, network, rng()).model
    other = rule.fuse(contributions[::-1], network, rng()).model
    for key, value in one.items():
        torch.testing.assert_close(value, other[key], rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", OURS)
def test_a_single_client_answers_as_before(name, learning, trained) -> None:
    rule, network = RULES[name], network_of(learning)
    alone = trained(rule.statistic)[0]
    fused = rule.fuse([alone], network, rng()).model
    x, _ = learning.samples(0)
    learning.model.eval()
    answers = []
    for state in (alone.model, fused):
        learning.model.load_state_dict(dict(state))
        answers.append(learning.model(x).detach())
    torch.testing.assert_close(*answers, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", OURS)
def test_what_is_sent_is_billed_to_the_byte_and_arrives(name, learning, trained) -> None:
    rule = RULES[name]
    size = statistic_bytes(learning, rule.statistic)
    for part, contribution in enumerate(trained(rule.statistic)):
        message = serialise(contribution)
        assert size(part) == len(message)
        empty = extra_like(learning, part, rule.statistic)
        assert {k: (v.shape, v.dtype) for k, v in empty.items()} == {
            k: (v.shape, v.dtype) for k, v in contribution.extra.items()
        }
    back = [deserialise(serialise(each)) for each in trained(rule.statistic)]
    one = rule.fuse(back, network_of(learning), rng()).model
    two = rule.fuse(trained(rule.statistic), network_of(learning), rng()).model
    assert all(torch.equal(one[key], two[key]) for key in two)


@pytest.mark.parametrize("name", OURS)
def test_nobody_is_nothing_to_fuse(name) -> None:
    learning = task("perceptron")
    with pytest.raises(FusionError, match="nothing to fuse") as caught:
        RULES[name].fuse([], network_of(learning), rng())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["fedfisher", "fedfisher-diagonal", "regmean", "fedlpa"])
def test_rules_that_choose_need_held_out_pictures(name) -> None:
    learning = replace(task("perceptron"), holdouts=[np.array([], dtype=np.int64)] * 3)
    contributions = [
        contribute(learning, part, learning.initial, RULES[name].statistic) for part in range(3)
    ]
    with pytest.raises(FusionError, match=r"raise data\.holdout"):
        RULES[name].fuse(contributions, network_of(learning), rng())


def small(name: str) -> Rule:
    """A rule as the testbed calls it; DENSE draws few pictures with a narrow generator."""
    if name == "dense":
        by = Distillation(epochs=2, steps=2, batch=16, nz=8, ngf=4)
        return replace(RULES[name], fuse=partial(RULES[name].fuse, by=by))
    return rule(name, FusionConfig(), FisherConfig(), iterations=0)


@pytest.mark.parametrize("name", ["fsosa", *RULES])
def test_no_rule_sees_the_test_set(name) -> None:
    """Neither what is sent nor what is fused changes with other test data."""
    learning = task("with bias")
    blind = replace(
        learning,
        dataset=replace(
            learning.dataset,
            x_test=np.full_like(learning.dataset.x_test, np.nan),
            y_test=np.full_like(learning.dataset.y_test, -1),
        ),
    )
    by = small(name)
    sent = [federation(each, by.statistic) for each in (learning, blind)]
    assert [serialise(each) for each in sent[0]] == [serialise(each) for each in sent[1]]
    one, two = (
        by.fuse(contributions, network_of(each), rng()).model
        for contributions, each in zip(sent, (learning, blind), strict=True)
    )
    start = learning.initial
    assert not all(torch.equal(one[key], start[key]) for key in start)
    assert all(torch.equal(one[key], two[key]) for key in one)
