"""What clients sent, for an audit: from a store, or trained where that is allowed.

An audit pays for fusions only.  Whose contribution is not in the store would have to train, which
may take far longer, so nobody does unless the user has asked for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from testbed.errors import ResultsError
from testbed.execution import Clients, Store, Trained, Tuned
from testbed.execution.store import Counts
from testbed.learning.blocks import State
from testbed.learning.identity import model_key, statistic_key
from testbed.learning.task import ONE_SHOT, Session


@dataclass
class Supply:
    """An executor that has clients train only if it may, and says whose work was there.

    Parameters
    ----------
    clients : Clients
        Knows what was sent, or has it made; its store is the one that is looked at.
    name : str
        Of what is audited, for messages.
    train : bool
        Whether a client may train whose contribution is not in the store.
    say : callable
        Told in one line, before it happens, that clients train.

    Attributes
    ----------
    asked, made : set of int
        Partitions whose contributions were asked for so far, and those of them that were not in
        the store.
    """

    clients: Clients
    name: str
    train_missing: bool = True
    say: Callable[[str], None] = lambda line: None
    asked: set[int] = field(default_factory=set)
    made: set[int] = field(default_factory=set)
    _known: set[tuple[int, str]] = field(default_factory=set)
    _probe: Store | None = field(init=False)

    def __post_init__(self) -> None:
        """Look at the store with counts of its own."""
        store = self.clients.store
        self._probe = store and Store(store.folder, store.limit_bytes, store.version)

    @property
    def counts(self) -> Counts:
        """What was found of the store, entry by entry."""
        return self._probe.counts if self._probe else Counts()

    def require(self, parts: Sequence[int], statistics: Sequence[str]) -> None:
        """Get all that will be asked for, so that it is known at once how much is missing.

        Parameters
        ----------
        parts : sequence of int
            Partitions.
        statistics : sequence of str
            That each of their clients sends.

        Raises
        ------
        ResultsError
            If something is missing and nobody may train.
        """
        wanted = {(part, each) for part in parts for each in statistics} - self._known
        lacking = {part for part, each in sorted(wanted) if not self._has(part, each)}
        asked = {part for part, _ in wanted}
        if lacking and not self.train_missing:
            raise ResultsError(f"{self.name}: {self._refusal(len(lacking), len(asked))}")
        if lacking:
            self.say(self._announcement(len(lacking), len(asked)))
        self.asked |= asked
        self.made |= lacking
        self._known |= wanted
        for each in statistics:
            self.clients.train(sorted({part for part, name in wanted if name == each}), each)

    def train(self, parts: Sequence[int], statistic: str = "fisher") -> list[Trained]:
        """See `Executor.train`; raises as `require`."""
        self.require(parts, [statistic])
        return self.clients.train(parts, statistic)

    def tune(self, parts: Sequence[int], start: State, session: Session = ONE_SHOT) -> list[Tuned]:
        """See `Executor.tune`; no store keeps what starts from a released model."""
        return self.clients.tune(parts, start, session)

    def _has(self, part: int, statistic: str) -> bool:
        """Whether the store has a client's contribution, undamaged."""
        if self._probe is None:
            return False
        model = self._probe.get(model_key(self.clients.task, part))
        if model is None or not isinstance(model.message, bytes):
            return model is not None  # of a training that came to nothing there is no more
        return self._probe.get(statistic_key(self.clients.task, part, statistic)) is not None

    def _refusal(self, lacking: int, asked: int) -> str:
        if self._probe is None:
            return (
                f"{lacking} of {asked} clients' contributions are missing, for its run names no "
                "store of them; the same command with --train makes them, or --store names a store"
            )
        return (
            f"{lacking} of {asked} clients' contributions are not in the store "
            f"{self._probe.folder}{self._why()}; the same command with --train makes them, or "
            "--store names another"
        )

    def _why(self) -> str:
        assert self._probe
        if not self._probe.folder.is_dir():
            return ", which does not exist"
        counts = self._probe.counts
        causes = {"damaged": counts.corrupt, "of another version of the code": counts.other_code}
        told = " and ".join(f"{count} {what}" for what, count in causes.items() if count)
        return f" ({told})" if told else ""

    def _announcement(self, lacking: int, asked: int) -> str:
        where = f"the store {self._probe.folder}" if self._probe else "any store"
        return (
            f"{lacking} of {asked} clients' contributions are not in {where}: these clients train"
        )
