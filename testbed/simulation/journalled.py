"""Learning that is written down, so that a run which was stopped need not learn it again.

All else of a run is repeated when it is started again: traffic and simulation cost little, and
randomness comes from named streams, which have no state that could be lost.  What comes of a
method's orders costs much, and how many seconds it took is different each time.  So each answer
is recorded, and a run that is repeated finds the same answers to the same orders.

Contributions are kept by the store; of them the journal has the seconds alone.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from testbed.editing.methods import EditState
from testbed.editing.storage import as_json, dump, load
from testbed.execution import Trained, Tuned
from testbed.fusion.fsosa import Fused
from testbed.fusion.rules import Rule
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import State as Model
from testbed.learning.contribution import Contribution, deserialise_model, serialise_model
from testbed.learning.evaluation import Score
from testbed.learning.task import Session
from testbed.simulation.journal import Journal
from testbed.simulation.learning import Learning, Timed

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What came of an order, in a form that can be kept.

    Attributes
    ----------
    seconds : tuple of float
        Measured, in a fixed order.
    messages : tuple of (bytes or Unusable), or None
        What it consists of; None where that was too much to keep.
    """

    seconds: tuple[float, ...]
    messages: tuple[bytes | Unusable, ...] | None

    def encode(self, asked: str) -> tuple[bytes, ...]:
        """Return the record of the answer to what was asked: a line of JSON and the messages."""
        whats = None
        if self.messages is not None:
            whats = [len(one) if isinstance(one, bytes) else asdict(one) for one in self.messages]
        head = json.dumps({"asked": asked, "seconds": self.seconds, "messages": whats})
        bodies = (one for one in self.messages or () if isinstance(one, bytes))
        return head.encode(), b"\n", *bodies


def decode(record: bytes) -> tuple[str, Answer]:
    """Return what was asked and the answer."""
    end = record.index(b"\n") + 1
    head = json.loads(record[:end])
    if head["messages"] is None:
        return head["asked"], Answer(tuple(head["seconds"]), None)
    messages: list[bytes | Unusable] = []
    for what in head["messages"]:
        if isinstance(what, int):
            messages.append(record[end : end + what])
            end += what
        else:
            messages.append(Unusable(**what))
    return head["asked"], Answer(tuple(head["seconds"]), tuple(messages))


@dataclass(frozen=True)
class Journalled:
    """A `Learning` whose answers are those in a journal, as far as it goes.

    What is handed on is always what was read from a message, so that nothing depends on
    whether the run was stopped.

    Attributes
    ----------
    learning : Learning
        Answers what the journal does not.
    journal : Journal
    limit_bytes : int
        Where the journal would exceed it, it keeps seconds alone; answers are then made again
        when the run is repeated.
    """

    learning: Learning
    journal: Journal
    limit_bytes: int
    _digests: WeakKeyDictionary[Contribution, str] = field(default_factory=WeakKeyDictionary)

    def train(self, parts: Sequence[int], rule: Rule) -> list[Trained]:
        """See `Learning.train`."""
        trained = self.learning.train(parts, rule)
        made = Answer(tuple(s for one in trained for s in (one.train_s, one.fisher_s)), None)
        seconds = self._answer(["train", rule.statistic, *parts], lambda: made).seconds
        return [
            replace(one, train_s=train_s, fisher_s=fisher_s)
            for one, train_s, fisher_s in zip(trained, seconds[::2], seconds[1::2], strict=True)
        ]

    def tune(self, parts: Sequence[int], start: Model, session: Session) -> list[Tuned]:
        """See `Learning.tune`."""

        def make() -> Answer:
            tuned = self.learning.tune(parts, start, session)
            return Answer(
                tuple(one.train_s for one in tuned),
                tuple(
                    one.model if isinstance(one.model, Unusable) else serialise_model(one.model)
                    for one in tuned
                ),
            )

        answer = self._answer(["tune", asdict(session), _digest(start), *parts], make)
        return [
            Tuned(one if isinstance(one, Unusable) else deserialise_model(one), seconds)
            for one, seconds in zip(answer.messages or (), answer.seconds, strict=True)
        ]

    def fuse(self, contributions: Sequence[Contribution], rule: Rule) -> Timed[Fused]:
        """See `Learning.fuse`."""
        asked = ["fuse", rule.statistic, *map(self._known, contributions)]
        return self._timed(asked, lambda: self.learning.fuse(contributions, rule), Fused)

    def score(self, model: Model) -> Timed[Score]:
        """See `Learning.score`."""
        return self._timed(["score", _digest(model)], lambda: self.learning.score(model), Score)

    def stored(self, state: EditState) -> int:
        """See `Learning.stored`."""
        return self.learning.stored(state)

    def _timed(self, asked: list[Any], ask: Callable[[], Timed[T]], kind: type[T]) -> Timed[T]:
        """Return the answer to an order that has one value."""

        def make() -> Answer:
            made = ask()
            return Answer((made.seconds,), (dump(made.value),))

        answer = self._answer(asked, make)
        (message,) = answer.messages or ()
        assert isinstance(message, bytes)
        return Timed(load(message, kind), *answer.seconds)

    def _answer(self, asked: list[Any], make: Callable[[], Answer]) -> Answer:
        """Return the answer in the journal, completed if it has seconds alone; or make it."""
        key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
        known = self._next(key)
        if known is not None and known.messages is not None:
            return known
        made = make()
        if known is not None:
            return replace(made, seconds=known.seconds)
        record = made.encode(key)
        if self.journal.size + sum(map(len, record)) > self.limit_bytes:
            record = replace(made, messages=None).encode(key)
        self.journal.add(*record)
        return made

    def _next(self, asked: str) -> Answer | None:
        """Return the next answer in the journal if it is one to what is asked."""
        record = self.journal.next()
        if record is None:
            return None
        key, answer = decode(record)
        if key != asked:
            self.journal.forget("its journal has the answer to something else")
            return None
        return answer

    def _known(self, contribution: Contribution) -> str:
        """Return the digest of a contribution, which is fused again and again."""
        if contribution not in self._digests:
            self._digests[contribution] = _digest(contribution)
        return self._digests[contribution]


def _digest(value: Any) -> str:
    """Digest a value that is made of what `testbed.editing.storage` knows."""
    found: dict[int, tuple[int, Tensor]] = {}
    digest = hashlib.sha256(json.dumps(as_json(value, found)).encode())
    for _, tensor in found.values():
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(plain.view(torch.uint8).numpy().data)
    return digest.hexdigest()
