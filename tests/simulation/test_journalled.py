"""A run that goes on from a journal is the run that was never stopped, for every method."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from worlds import TRAFFIC, Ran, at, executor_of, quick, record, simulate

from testbed.config import Experiment
from testbed.config.schema import Method
from testbed.editing.storage import dump, load
from testbed.execution import Executor, Trained, Tuned
from testbed.fusion.fsosa import Fused
from testbed.learning.acceptance import Unusable
from testbed.learning.contribution import serialise_model
from testbed.learning.evaluation import Detail, Score
from testbed.learning.task import ONE_SHOT, Session
from testbed.simulation.journal import Journal
from testbed.simulation.journalled import Answer, Journalled, decode
from testbed.simulation.learning import Real, Timed

TITLE = {"of": "this test"}
LIMIT = 1 << 40
# The recipes of all methods in as little time as they allow.
SECTIONS: dict[str, Any] = {
    "learning": {"epochs": 2},
    "rounds": {"rounds": 2, "retraining": 1, "distillation": 1},
    "data": {"holdout": 0.2},
    "editing": {"requests": 8, "rho": 0.84},
}


@dataclass(frozen=True)
class Counting(Real):
    """Counts what it is asked."""

    asked: Counter[str] = field(default_factory=Counter)

    def train(self, *order: Any) -> list[Trained]:
        self.asked["train"] += 1
        return super().train(*order)

    def tune(self, *order: Any) -> list[Tuned]:
        self.asked["tune"] += 1
        return super().tune(*order)

    def fuse(self, *order: Any) -> Timed[Fused]:
        self.asked["fuse"] += 1
        return super().fuse(*order)

    def score(self, *order: Any) -> Timed[Score]:
        self.asked["score"] += 1
        return super().score(*order)


def bytes_of(ran: Ran) -> tuple[Any, ...]:
    """Return what a run leaves, comparable to the bit; NaN is equal to NaN here."""
    outcome = ran.outcome
    return outcome.ledger, repr(outcome.metrics), serialise_model(outcome.model)


class Place:
    """A trace and a journal."""

    def __init__(self, folder: Path, method: str, wanted: Experiment) -> None:
        self.path = folder / ".seed=0.journal"
        self.trace = record(folder / "t.csv", at(TRAFFIC))
        self.method, self.wanted = method, wanted
        self.task, _ = executor_of(wanted)

    def run(self, wrapped: Callable[[Executor], Any] = lambda executor: executor) -> Ran:
        return simulate(self.wanted, self.trace, self.method, wrapped=wrapped)

    def journalled(self, limit: int = LIMIT) -> tuple[Ran, Counter[str], Journal]:
        """Run with the journal, which stays; return also what it did not answer."""
        journal = Journal(self.path, TITLE)
        asked: Counter[str] = Counter()

        def wrapped(executor: Executor) -> Journalled:
            return Journalled(Counting(self.task, executor, asked), journal, limit)

        ran = self.run(wrapped)
        journal.close()
        return ran, asked, journal

    def ends(self) -> list[int]:
        """Return where each record of the journal ends."""
        journal, ends = Journal(self.path, TITLE), []
        while journal.next() is not None:
            ends.append(journal.size)
        journal.close()
        return ends

    def answers(self) -> list[Answer]:
        journal = Journal(self.path, TITLE)
        found = [decode(each)[1] for each in iter(journal.next, None)]
        journal.close()
        return found


# One order of these takes longer than all requests of the others.
SLOW = ("fedfisher", "ma-echo", "dense")
LONG = [pytest.mark.study, pytest.mark.timeout(1800)]
METHODS = [
    pytest.param(method, marks=LONG if method in SLOW else []) for method in get_args(Method)
]


@pytest.fixture(params=METHODS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param, quick(**SECTIONS))


@pytest.fixture
def measured(tmp_path: Path) -> Place:
    return Place(tmp_path, "fsosa", quick(time={"mode": "measured"}))


def test_a_run_from_a_journal_cut_anywhere_is_the_run_without_one(place: Place) -> None:
    plain = bytes_of(place.run())
    ran, asked, journal = place.journalled()
    assert bytes_of(ran) == plain
    assert journal.read == 0
    assert asked["score"] > 2
    whole, ends = place.path.read_bytes(), place.ends()
    assert len(ends) == asked.total()
    # All of it, half of it, half a record of it; twice, as going on must leave a whole one.
    for cut in (len(whole), ends[len(ends) // 2], ends[-1] - 1):
        place.path.write_bytes(whole[:cut])
        again, more, journal = place.journalled()
        assert bytes_of(again) == plain
        assert journal.read == sum(end <= cut for end in ends)
        assert journal.remarks == []
        if cut == len(whole):
            assert set(more) <= {"train"}
        assert len(place.ends()) == len(ends)
        _, more, _ = place.journalled()
        assert set(more) <= {"train"}


def test_nothing_the_coordinator_makes_shares_memory_with_what_it_was_sent(place: Place) -> None:
    """Else what is stored would weigh less in a run that was never stopped."""
    shared: list[set[int]] = []

    class Looking(Real):
        def fuse(self, contributions: Sequence[Any], rule: Any) -> Timed[Fused]:
            made = super().fuse(contributions, rule)
            sent = {value.data_ptr() for each in contributions for value in each.model.values()}
            shared.append(sent & {value.data_ptr() for value in made.value.model.values()})
            return made

    place.run(lambda executor: Looking(place.task, executor))
    assert all(not pointers for pointers in shared)


def test_where_the_limit_is_reached_only_seconds_are_kept(tmp_path: Path) -> None:
    place = Place(tmp_path, "federaser", quick(**SECTIONS))
    plain = bytes_of(place.run())
    for limit in (0, 700_000):
        ran, asked, _ = place.journalled(limit)
        assert bytes_of(ran) == plain
        kept = [answer.messages is not None for answer in place.answers()]
        assert len(kept) == asked.total()
        assert any(kept) == (limit > 0)
        again, more, journal = place.journalled(limit)
        assert bytes_of(again) == plain
        assert more.total() == len(kept) - sum(kept)
        assert journal.read == len(kept)
        if limit:
            assert place.path.stat().st_size < limit + 400 * len(kept)
        place.path.unlink()


def test_measured_seconds_are_those_of_the_first_time(measured: Place) -> None:
    first, _, _ = measured.journalled()
    assert bytes_of(measured.run())[0] != first.outcome.ledger  # another time, other seconds
    again, _, _ = measured.journalled()
    assert bytes_of(again) == bytes_of(first)
    # Without models, too, which are then made again.
    measured.path.unlink()
    first, _, _ = measured.journalled(limit=0)
    again, more, _ = measured.journalled(limit=0)
    assert more["fuse"] > 1
    assert bytes_of(again) == bytes_of(first)


def test_a_run_that_goes_on_has_the_seconds_of_both_parts(measured: Place) -> None:
    measured.journalled()
    ends = measured.ends()
    content = measured.path.read_bytes()[: ends[len(ends) // 2]]
    measured.path.write_bytes(content)
    before = [second for answer in measured.answers() for second in answer.seconds]
    ran, _, _ = measured.journalled()
    billed = [row.compute_s_measured for row in ran.outcome.ledger]
    assert len(before) >= 10
    assert set(before) <= set(billed)
    assert measured.path.read_bytes().startswith(content)


def test_answers_to_other_orders_are_not_used(tmp_path: Path) -> None:
    """A journal of the same title, of traffic that has changed since."""
    place = Place(tmp_path, "fsosa", quick(**SECTIONS))
    place.journalled()
    records = len(place.ends())
    record(place.trace, at(TRAFFIC.replace("15 -a;", "15 -e; 15.2 -a;")))
    plain = bytes_of(place.run())
    ran, asked, journal = place.journalled()
    assert bytes_of(ran) == plain
    (remark,) = journal.remarks
    assert remark.endswith("its journal has the answer to something else.")
    assert 0 < journal.read < records
    assert asked.total() > asked["train"]
    again, more, journal = place.journalled()
    assert bytes_of(again) == plain
    assert journal.remarks == []
    assert set(more) <= {"train"}


def test_another_model_to_score_or_to_start_from_is_another_order(tmp_path: Path) -> None:
    place = Place(tmp_path, "fsosa", quick())
    start = place.task.initial
    name = next(iter(start))
    other = {**start, name: start[name] + 1e-7}
    _, executor = executor_of(place.wanted)
    for asked in (
        lambda learning, model: learning.score(model),
        lambda learning, model: learning.tune([0], model, ONE_SHOT),
    ):
        with Journal(place.path, TITLE) as journal:
            asked(Journalled(Real(place.task, executor), journal, LIMIT), start)
            journal.close()
            for model, known in ((start, 1), (other, 0)):
                again = Journal(place.path, TITLE)
                asked(Journalled(Real(place.task, executor), again, LIMIT), model)
                assert again.read == known
                again.close()


def test_what_could_not_be_used_is_kept_with_its_reason(tmp_path: Path) -> None:
    place = Place(tmp_path, "fsosa", quick())
    spoilt = [
        Tuned(Unusable("its loss was NaN", "train"), 0.25),
        Tuned(dict(place.task.initial), 0.5),
        Tuned(Unusable("fc has shape (2,), not (3,)"), 0.125),
    ]

    class Spoilt(Real):
        def tune(self, *order: Any) -> list[Tuned]:
            return spoilt

    for learning in (Spoilt(place.task, executor_of(place.wanted)[1]), None):
        journal = Journal(place.path, TITLE)
        answered = Journalled(learning, journal, LIMIT)  # type: ignore[arg-type]
        found = answered.tune([3, 1, 2], place.task.initial, Session(epochs=1, round=2))
        journal.close()
        assert [one.train_s for one in found] == [0.25, 0.5, 0.125]
        assert [found[0].model, found[2].model] == [spoilt[0].model, spoilt[2].model]
        assert serialise_model(found[1].model) == serialise_model(place.task.initial)


def test_the_answer_of_a_detector_is_kept_in_full(tmp_path: Path) -> None:
    details = (
        Detail("coco", "all", "all", 4, 9, 0.1 + 0.2, 1 / 3),
        Detail("coco", "timeofday=night", "traffic light", 1, 0, nan, nan),
    )
    score = Score(loss=1e-300, map50_95=0.1 + 0.2, map50=1 / 3, details=details)
    place = Place(tmp_path, "fsosa", quick())

    class Detecting(Real):
        def score(self, *order: Any) -> Timed[Score]:
            return Timed(score, 2.5)

    for learning in (Detecting(place.task, executor_of(place.wanted)[1]), None):
        journal = Journal(place.path, TITLE)
        found = Journalled(learning, journal, LIMIT).score(place.task.initial)  # type: ignore[arg-type]
        journal.close()
        assert found.seconds == 2.5
        assert isnan(found.value.accuracy)
        assert repr(found.value) == repr(score)


@pytest.mark.parametrize(
    "messages",
    [None, (), (b"",), (b"one\n", b"{}", b"\x00"), (Unusable("no\nline", "fisher"), b"x")],
)
def test_an_answer_is_read_as_it_was_written(messages: tuple[bytes | Unusable, ...]) -> None:
    answer = Answer((0.1 + 0.2, 5e-324, 0.0), messages)
    assert decode(b"".join(answer.encode("asked"))) == ("asked", answer)


def test_the_head_of_a_record_is_a_line_of_json() -> None:
    (head, _) = b"".join(Answer((0.5,), (b"abc",)).encode("key")).split(b"\n")
    assert json.loads(head) == {"asked": "key", "seconds": [0.5], "messages": [3]}


def test_a_fused_model_keeps_every_bit_and_its_order() -> None:
    model = {
        "z": torch.tensor([[0.1, -0.0], [float("inf"), 1e-45]]),
        "a": torch.tensor(7),
        "b": torch.zeros(0, 3, dtype=torch.float64),
    }
    found = load(dump(Fused(model, {})), Fused)
    assert list(found.model) == list(model)
    for name, value in model.items():
        assert found.model[name].dtype == value.dtype
        assert torch.equal(found.model[name], value)
    assert torch.signbit(found.model["z"][0, 1])
