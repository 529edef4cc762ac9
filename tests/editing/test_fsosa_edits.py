"""F-SOSA's edits: the state after any history is the state built from scratch."""

import gc
import weakref

import numpy as np
import pytest
import torch
from exact import clients
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from testbed.editing import fsosa
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Parameters, State
from testbed.editing.orders import Fuse, Train
from testbed.errors import EditError
from testbed.learning.contribution import serialise
from testbed.streams import Streams

P3 = Parameters(size=3)


def rng(seed: int = 0) -> np.random.Generator:
    return Streams(seed).rng("sampling")


def bits(state: State) -> tuple:
    """Everything a state consists of, in a form that compares bit for bit."""
    return (
        state.population,
        state.subset,
        [(client, serialise(each)) for client, each in state.contributions.items()],
        {name: value.numpy().tobytes() for name, value in state.fused.model.items()},
        dict(state.fused.solves),
    )


def sound(state: State, size: int) -> None:
    assert list(state.population) == sorted(set(state.population))
    assert list(state.subset) == sorted(set(state.subset))
    assert set(state.subset) <= set(state.population)
    assert len(state.subset) == min(size, len(state.population))
    assert tuple(state.contributions) == state.subset  # members' only: erasure


# v00 and v01 may return with the data they had, 0 and 1, or with other data.
NEWCOMERS = st.builds(Client, st.sampled_from(["v00", "v01", "w", "x"]), st.integers(0, 11))


@st.composite
def histories(draw) -> list[tuple[list[Client], set[Client]]]:
    """Joins, leaves, batches and returns, with the same or with other data."""
    present, steps = set(clients(range(6))), []
    for _ in range(draw(st.integers(1, 5))):
        pool = sorted(present)
        out = draw(st.lists(st.sampled_from(pool), unique=True, max_size=min(3, len(pool) - 1)))
        into = set(draw(st.lists(NEWCOMERS, max_size=3))) - present
        present = (present - set(out)) | into
        steps.append((out, into))
    return steps


@pytest.mark.parametrize("kind", ["diagonal", "kfac"])
@settings(deadline=None, max_examples=25)
@given(steps=histories(), size=st.integers(1, 5), seed=st.integers(0, 3))
def test_an_edited_state_is_the_state_built_from_scratch(
    federation, kind, steps, size, seed
) -> None:
    home, generator = federation(kind), rng(seed)
    parameters = Parameters(size)
    state = home.drive(fsosa.init(clients(range(6)), parameters, generator))
    for out, into in steps:
        change = Change.of(out, into)
        before = state
        state, done = home.drive(fsosa.apply(state, change, parameters, generator))
        sound(state, size)
        assert state.population == change.applied(before.population)
        assert set(done.evicted) == set(before.subset) - set(state.subset)
        assert set(done.admitted) == set(state.subset) - set(before.subset)
    scratch = federation(kind).drive(fsosa.build(state.population, state.subset, {}))
    assert bits(state) == bits(scratch)


def test_init_trains_a_uniform_subset_and_fuses_it(federation) -> None:
    home = federation()
    state = home.drive(fsosa.init(clients(range(6))[::-1], P3, rng()))
    assert home.kinds() == ["Train", "Fuse"]
    assert home.orders[0] == Train(state.subset)
    sound(state, 3)
    assert state.population == clients(range(6))
    subsets = {next(fsosa.init(clients(range(6)), P3, rng(seed))).clients for seed in range(200)}
    assert len(subsets) == 20


def test_an_untouched_subset_yields_no_orders_and_keeps_the_model(federation) -> None:
    home = federation()
    state = home.drive(fsosa.init(clients(range(6)), P3, rng()))
    home.orders.clear()
    outsider = next(client for client in state.population if client not in state.subset)
    after, done = home.drive(fsosa.apply(state, Change.of([outsider]), P3, rng(1)))
    assert home.orders == []
    assert after.fused is state.fused
    assert after.contributions is state.contributions
    assert (done.evicted, done.admitted) == ((), ())
    assert after.population == tuple(c for c in state.population if c != outsider)


class Operations(TorchDispatchMode):
    """Counts what PyTorch is asked to do."""

    count = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        self.count += 1
        return function(*arguments, **(keywords or {}))


def test_an_untouched_subset_costs_no_numerical_work(federation) -> None:
    home, seen = federation("kfac"), set()
    state = home.drive(fsosa.init(clients(range(6)), P3, rng()))
    outsider = next(client for client in state.population if client not in state.subset)
    for seed in range(8):
        home.orders.clear()
        for change in (Change.of([outsider]), Change.of((), clients([9]))):
            with Operations() as operations:
                after, _ = home.drive(fsosa.apply(state, change, P3, rng(seed)))
            touched = after.subset != state.subset
            assert (operations.count > 0) == touched == bool(home.orders)
            seen.add(touched)
            home.orders.clear()
    assert seen == {True, False}


def test_a_departing_member_is_replaced_and_only_the_new_member_trains(federation) -> None:
    home = federation()
    state = home.drive(fsosa.init(clients(range(6)), P3, rng()))
    home.orders.clear()
    member = state.subset[1]
    after, done = home.drive(fsosa.apply(state, Change.of([member]), P3, rng(1)))
    assert home.kinds() == ["Train", "Fuse"]
    assert done.evicted == (member,)
    assert home.orders[0] == Train(done.admitted)
    assert len(done.admitted) == 1
    assert isinstance(home.orders[1], Fuse)
    assert home.orders[1].contributions == tuple(after.contributions[c] for c in after.subset)
    kept = set(state.subset) & set(after.subset)
    assert all(after.contributions[c] is state.contributions[c] for c in kept)


def test_a_batch_is_one_training_order_and_one_projection(federation) -> None:
    home = federation()
    state = home.drive(fsosa.init(clients(range(6)), P3, rng()))
    home.orders.clear()
    change = Change.of(state.subset, clients([7, 8, 9]))
    after, done = home.drive(fsosa.apply(state, change, P3, rng(1)))
    assert home.kinds() == ["Train", "Fuse"]
    assert after.subset == done.admitted == clients([7, 8, 9])
    assert done.evicted == state.subset


def test_what_is_erased_is_gone(federation) -> None:
    home = federation()
    state = home.drive(fsosa.init(clients(range(6)), P3, rng()))
    member = state.subset[0]
    traces = [weakref.ref(state.contributions[member]), weakref.ref(state.fused)]
    state, _ = home.drive(fsosa.apply(state, Change.of([member]), P3, rng(1)))
    home.orders.clear()
    gc.collect()
    assert [trace() for trace in traces] == [None, None]
    assert member not in state.contributions


def test_a_client_that_returns_is_trained_again(federation) -> None:
    home, generator = federation(), rng(1)
    state = home.drive(fsosa.init(clients(range(3)), P3, generator))
    member = state.subset[0]
    first = serialise(state.contributions[member])
    state, _ = home.drive(fsosa.apply(state, Change.of([member]), P3, generator))
    assert len(state.subset) == 2
    home.orders.clear()
    state, _ = home.drive(fsosa.apply(state, Change.of((), [member]), P3, generator))
    assert home.orders[0] == Train((member,))
    assert serialise(state.contributions[member]) == first


def test_shrinking_to_nobody_is_refused_by_the_fusion(federation) -> None:
    from testbed.errors import FusionError

    home = federation()
    state = home.drive(fsosa.init(clients(range(3)), P3, rng()))
    with pytest.raises(FusionError, match="empty"):
        home.drive(fsosa.apply(state, Change.of(clients(range(3))), P3, rng(1)))


def test_strict_refuses_before_any_work(federation) -> None:
    home, strict = federation(), Parameters(size=3, below="strict")
    state = home.drive(fsosa.init(clients(range(3)), strict, rng()))
    home.orders.clear()
    with pytest.raises(EditError, match="P = 3"):
        home.drive(fsosa.apply(state, Change.of(clients([0])), strict, rng(1)))
    assert home.orders == []


def test_who_sampling_admits_does_not_depend_on_learning(federation) -> None:
    """The same stream gives the same subsets whatever the Fisher and the run's seed."""
    subsets = []
    for kind, seed in (("diagonal", 0), ("kfac", 5)):
        home, generator = federation(kind, seed), rng(2)
        state = home.drive(fsosa.init(clients(range(8)), P3, generator))
        seen = [state.subset]
        for out, into in (([0], []), ([], [9]), ([1, 2], [10])):
            change = Change.of(clients(out), clients(into))
            state, _ = home.drive(fsosa.apply(state, change, P3, generator))
            seen.append(state.subset)
        subsets.append(seen)
    assert subsets[0] == subsets[1]


def test_the_order_of_the_population_does_not_matter(federation) -> None:
    one, other = (
        federation().drive(fsosa.init(population, P3, rng(3)))
        for population in (clients(range(6)), clients((4, 2, 0, 5, 3, 1)))
    )
    assert bits(one) == bits(other)
    assert all(torch.isfinite(value).all() for value in one.fused.model.values())
