"""A client whose upload is refused departs by the same coupling; its place is drawn anew."""

from collections.abc import Callable, Collection
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from driving import drive
from exact import Subset, clients, distance, every, uniform
from scipy import stats

from testbed.editing import finetune, fsosa, retrain
from testbed.editing.clients import Change, Client
from testbed.editing.coupling import draw
from testbed.editing.fsosa import Parameters, State
from testbed.editing.orders import Fuse, Order, Train, Tune, Work
from testbed.errors import EditError
from testbed.fusion.fsosa import Fused
from testbed.learning.contribution import Contribution
from testbed.streams import Streams

P3 = Parameters(3)
SIX = clients(range(6))
BAD, WORSE = SIX[1], SIX[4]


def refusing(work: Work[Any], bad: Collection[Client], orders: list[Order] | None = None) -> Any:
    """Answer orders with empty contributions; those of `bad` clients are refused."""

    def answer(order: Order) -> Any:
        if orders is not None:
            orders.append(order)
        match order:
            case Train(who):
                return {c: Contribution(1, {}, {}) for c in who if c not in bad}
            case Tune(who, _):
                return {c: {} for c in who if c not in bad}
            case Fuse():
                return Fused({}, {})

    return drive(work, answer)


def laws(
    work: Callable[[Any], Work[State]], bad: Collection[Client]
) -> dict[Subset, dict[Subset, Fraction]]:
    """Return the law of the subset given the population that is left, by enumeration."""
    masses: dict[Subset, dict[Subset, Fraction]] = {}

    def run(rng: Any) -> tuple[Subset, Subset]:
        state = refusing(work(rng), bad)
        state = state[0] if isinstance(state, tuple) else state
        return state.population, state.subset

    for probability, (population, subset) in every(run):
        law = masses.setdefault(population, {})
        law[subset] = law.get(subset, Fraction(0)) + probability
    return masses


def conditional(law: dict[Subset, Fraction]) -> dict[Subset, Fraction]:
    total = sum(law.values())
    return {subset: mass / total for subset, mass in law.items()}


def without(population: Subset, *gone: Client) -> Subset:
    return tuple(client for client in population if client not in gone)


# --- the law, exactly ------------------------------------------------------------------


@pytest.mark.parametrize("bad", [(BAD,), (BAD, WORSE)])
def test_the_first_subset_is_uniform_as_if_the_refused_had_left(bad: Subset) -> None:
    """M = 6, P = 3: whoever was found out, the subset is uniform on the usable clients."""
    found = laws(lambda rng: fsosa.init(SIX, P3, rng), bad)
    for population, law in found.items():
        assert set(SIX) - set(population) <= set(bad)
        assert conditional(law) == uniform(without(SIX, *bad), 3)
    # One bad client is found out exactly if it is drawn: P / M.
    if len(bad) == 1:
        assert sum(found[without(SIX, BAD)].values()) == Fraction(3, 6)


def states(population: Subset, usable: Subset) -> list[tuple[Fraction, State]]:
    """The uniform law on the usable subsets, with contributions."""
    empty, fused = Contribution(1, {}, {}), Fused({}, {})
    return [
        (weight, State(population, subset, dict.fromkeys(subset, empty), fused))
        for subset, weight in uniform(usable, 3).items()
    ]


@pytest.mark.parametrize(
    ("departures", "arrivals"),
    [([0], []), ([0, 2], []), ([], [9]), ([0], [9]), ([0, 2], [9]), ([5], [9])],
)
def test_an_edit_that_meets_bad_clients_keeps_the_law(
    departures: list[int], arrivals: list[int]
) -> None:
    """An undiscovered bad client waits outside, or the newcomer is bad: both are exact."""
    outsider = clients([30])[0]
    change = Change.of(clients(departures), clients(arrivals))
    bad = set(change.arrivals) or {outsider}
    population = SIX if change.arrivals else (*SIX, outsider)
    law: dict[Subset, dict[Subset, Fraction]] = {}
    for weight, state in states(population, SIX):
        for after, part in laws(lambda rng, s=state: fsosa.apply(s, change, P3, rng), bad).items():
            cell = law.setdefault(after, {})
            for subset, mass in part.items():
                cell[subset] = cell.get(subset, Fraction(0)) + weight * mass
    usable = without(change.applied(population), *bad)
    assert sum(mass for cell in law.values() for mass in cell.values()) == 1
    for cell in law.values():
        assert conditional(cell) == uniform(usable, 3)


def test_a_join_counts_bad_clients_who_are_not_found_out() -> None:
    """The limit of exactness: M = 6, P = 3, one bad client outside; 3/7 instead of 3/6.

    Who is refused depends on who was drawn, so a refusal is no request chosen independently
    of the subset.  See docs/editing.md.
    """
    (newcomer,) = clients([9])
    population = (*SIX[:5], clients([30])[0])
    law: dict[Subset, Fraction] = {}
    for weight, state in states(population, SIX[:5]):
        work = laws(
            lambda rng, s=state: fsosa.apply(s, Change.of((), [newcomer]), P3, rng),
            population[-1:],
        )
        for subset, mass in work[tuple(sorted((*population, newcomer)))].items():
            law[subset] = law.get(subset, Fraction(0)) + weight * mass
    assert sum(mass for subset, mass in law.items() if newcomer in subset) == Fraction(3, 7)
    wanted = uniform((*SIX[:5], newcomer), 3)
    assert distance(law, wanted) == Fraction(3, 6) - Fraction(3, 7)


def test_retrain_draws_uniformly_from_the_usable() -> None:
    (_, state), *_ = states(SIX, without(SIX, BAD))
    change = Change.of(clients([0]), clients([9]))
    found = laws(lambda rng: retrain.apply(state, change, P3, rng), {BAD})
    usable = without(change.applied(SIX), BAD)
    assert set(found) == {usable, tuple(sorted((*usable, BAD)))}
    assert all(conditional(law) == uniform(usable, 3) for law in found.values())


def test_with_the_real_generator_a_client_that_is_always_bad() -> None:
    """M = 12, P = 4, leaves and a bad newcomer: inclusion of the usable is even."""
    runs, population = 2_000, clients(range(12))
    bad = {population[3], clients([20])[0]}
    counts: dict[Client, int] = {}
    for run in range(runs):
        rng = Streams(run).rng("sampling")
        state = refusing(fsosa.init(population, Parameters(4), rng), bad)
        for change in (Change.of(clients([0])), Change.of(clients([1]), clients([20]))):
            state, _ = refusing(fsosa.apply(state, change, Parameters(4), rng), bad)
        assert not bad & set(state.subset)
        for client in state.subset:
            counts[client] = counts.get(client, 0) + 1
    usable = [c for c in population[2:] if c not in bad]
    N, p = len(usable), 4 / len(usable)
    square = sum((counts[client] - runs * p) ** 2 for client in usable) / (runs * p * (1 - p))
    assert 1e-3 < stats.chi2.sf(square * (N - 1) / N, N - 1) < 1 - 1e-3


# --- what is done ----------------------------------------------------------------------


def rng(seed: int = 0) -> np.random.Generator:
    return Streams(seed).rng("sampling")


def seed_for(wanted: Callable[[Subset], bool], population: Subset = SIX) -> int:
    """Find a seed whose first draw is as wanted."""
    return next(seed for seed in range(200) if wanted(draw(population, 3, rng(seed))))


def test_the_replacement_trains_and_the_refused_is_gone() -> None:
    orders: list[Order] = []
    seed = seed_for(lambda subset: BAD in subset)
    state = refusing(fsosa.init(SIX, P3, rng(seed)), {BAD}, orders)
    first, second, fusion = orders
    assert isinstance(first, Train)
    assert isinstance(second, Train)
    assert isinstance(fusion, Fuse)
    assert BAD in first.clients
    assert len(second.clients) == 1
    assert not set(second.clients) & set(first.clients)
    assert state.population == without(SIX, BAD)
    assert set(state.subset) == set(first.clients) - {BAD} | set(second.clients)
    assert tuple(state.contributions) == state.subset
    assert fusion.contributions == tuple(state.contributions.values())


def test_replacements_are_refused_too_until_one_is_usable() -> None:
    orders: list[Order] = []
    good = set(SIX[:3])
    state = refusing(fsosa.init(SIX, P3, rng(2)), set(SIX) - good, orders)
    assert set(state.subset) == good
    trained = [c for order in orders if isinstance(order, Train) for c in order.clients]
    assert len(trained) == len(set(trained))  # nobody trains twice


def test_a_refused_newcomer_can_leave_everything_as_it_was() -> None:
    """P = M = 3: the only outsider is the one it evicted, whose contribution is still there."""
    population = SIX[:3]
    state = refusing(fsosa.init(population, P3, rng()), ())
    (newcomer,) = clients([9])
    for seed in range(20):
        orders: list[Order] = []
        work = fsosa.apply(state, Change.of((), [newcomer]), P3, rng(seed))
        after, done = refusing(work, {newcomer}, orders)
        assert after.subset == state.subset == population
        assert after.contributions is state.contributions
        assert after.fused is state.fused
        assert (done.evicted, done.admitted) == ((), ())
        # Not sampled, it is not found out and stays a client.
        assert after.population == (population if orders else (*population, newcomer))
        assert orders in ([], [Train((newcomer,))])


def test_too_few_usable_clients_shrink_or_refuse() -> None:
    bad = SIX[1:5]
    assert refusing(fsosa.init(SIX, P3, rng()), bad).subset == (SIX[0], SIX[5])
    with pytest.raises(EditError, match=r"2 clients are left .* P = 3"):
        refusing(fsosa.init(SIX, Parameters(3, "strict"), rng()), bad)


@pytest.mark.parametrize("method", [fsosa, retrain, finetune])
def test_nobody_usable_is_told(method: Any) -> None:
    with pytest.raises(EditError, match="no client delivered a usable contribution"):
        refusing(method.init(SIX, P3, rng()), SIX)


def test_nobody_usable_at_an_edit_is_told() -> None:
    (first,) = SIX[:1]
    for method, what in ((fsosa, "contribution"), (retrain, "contribution"), (finetune, "model")):
        state = refusing(method.init([first], P3, rng()), ())
        change = Change.of([first], clients([9]))
        with pytest.raises(EditError, match=f"no client delivered a usable {what}"):
            refusing(method.apply(state, change, P3, rng()), clients([9]))


def test_after_a_refusal_a_return_is_a_new_arrival() -> None:
    seed = seed_for(lambda subset: BAD in subset)
    state = refusing(fsosa.init(SIX, P3, rng(seed)), {BAD})
    back = Change.of((), [BAD])
    after, done = refusing(fsosa.apply(state, back, Parameters(9), rng(1)), ())
    assert done.admitted == (BAD,)
    assert after.population == SIX


# --- fine-tuning -----------------------------------------------------------------------


def test_fine_tuning_averages_over_the_usable_newcomers_only(federation: Any) -> None:
    """M = 6, three join and one is refused: (6 W + W_7 + W_8) / 8."""
    home = federation()
    state = home.drive(finetune.init(SIX, P3, rng()))
    work = finetune.apply(state, Change.of((), clients([7, 8, 9])), P3, rng())
    tuned = home.answer(next(work))
    del tuned[clients([9])[0]]
    with pytest.raises(StopIteration) as finished:
        work.send(tuned)
    after, _ = finished.value.value
    assert after.population == clients([0, 1, 2, 3, 4, 5, 7, 8])
    for name, value in state.fused.model.items():
        both = sum(each[name].double() for each in tuned.values())
        expected = ((6 * value.double() + both) / 8).float()
        assert abs(after.fused.model[name] - expected).max() < 1e-6


def test_a_refused_newcomer_is_no_client_of_fine_tuning() -> None:
    state = refusing(finetune.init(SIX, P3, rng()), ())
    change = Change.of(clients([0]), clients([9]))
    after, _ = refusing(finetune.apply(state, change, P3, rng()), change.arrivals)
    assert after.population == SIX[1:]
    assert after.fused is state.fused
