"""Vehicles become clients: participation, data partitions and edit requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from testbed.editing.clients import Client
from testbed.mobility import MobilityEvent, participates
from testbed.streams import Streams


@dataclass(frozen=True)
class EditRequest:
    """One client joins or leaves.

    Attributes
    ----------
    number : int
        1, 2, ... in order of arrival.
    time : float
        Simulated second of the membership change.
    kind : {"join", "leave"}
    client : Client
    """

    number: int
    time: float
    kind: Literal["join", "leave"]
    client: Client


@dataclass
class Fleet:
    """Who is present, who of them is a client, and which partitions are free.

    Everything here follows from the mobility events and the seed alone, never from a
    method, so every method sees the same requests.

    Attributes
    ----------
    streams : Streams
    pool : int
        Data partitions.
    participation : float
        Share of the vehicles that take part.
    returning : bool
        Vehicles may come back, and are known again.
    requests : int
        Those caused so far.
    without_partition, not_participating : int
        Joins of vehicles that did not become clients, by reason.
    """

    streams: Streams
    pool: int
    participation: float
    returning: bool = True
    _present: dict[str, None] = field(default_factory=dict)
    _clients: dict[str, Client] = field(default_factory=dict)
    _free: set[int] = field(default_factory=set)
    _started: bool = False
    _former: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    without_partition: int = 0
    not_participating: int = 0

    def __post_init__(self) -> None:
        self._free = set(range(self.pool))

    @property
    def present(self) -> int:
        """Participating vehicles that are members now, clients or not."""
        return len(self._present)

    @property
    def size(self) -> int:
        """How many clients there are."""
        return len(self._clients)

    @property
    def clients(self) -> tuple[Client, ...]:
        """Current clients, sorted."""
        return tuple(sorted(self._clients.values()))

    def holds(self, client: Client) -> bool:
        """Whether a client is one at this moment."""
        return self._clients.get(client.vehicle) == client

    def start(self, initial: int | None) -> tuple[Client, ...]:
        """Give partitions to those present: the initial population.

        Parameters
        ----------
        initial : int or None
            How many; None takes all that partitions suffice for.  If more vehicles are
            present, a seeded draw by vehicle decides; the others are counted as being
            without a partition.
        """
        wanted = min(self.pool, len(self._present) if initial is None else initial)
        by_draw = sorted(
            self._present, key=lambda vehicle: (self.streams.uniform("initial", vehicle), vehicle)
        )
        for vehicle in by_draw[:wanted]:
            self._enrol(vehicle)
        self.without_partition += len(by_draw) - wanted
        self._started = True
        return self.clients

    def take(self, events: Sequence[MobilityEvent]) -> list[EditRequest]:
        """Follow membership events; return the edit requests they cause."""
        requests = []
        for event in events:
            client = self._follow(event)
            if client is not None:
                self.requests += 1
                requests.append(EditRequest(self.requests, event.time, event.kind, client))
        return requests

    def _follow(self, event: MobilityEvent) -> Client | None:
        if not participates(self.streams, event.vehicle, self.participation):
            self.not_participating += event.kind == "join"
            return None
        if event.kind == "leave":
            self._present.pop(event.vehicle, None)
            client = self._clients.pop(event.vehicle, None)
            if client is not None:
                self._free.add(client.partition)
            return client
        self._present[event.vehicle] = None
        if not self._started:
            return None
        if not self._free:
            self.without_partition += 1
            return None
        return self._enrol(event.vehicle)

    def _enrol(self, vehicle: str) -> Client:
        """Give a vehicle its former partition if that is free, else one drawn by its name."""
        chosen = self._former.get(vehicle)
        if chosen not in self._free:
            free = sorted(self._free)
            rng = self.streams.rng("partition-of", vehicle, self.requests)
            chosen = free[int(rng.integers(len(free)))]
        self._free.remove(chosen)
        if self.returning:
            self._former[vehicle] = chosen
        client = self._clients[vehicle] = Client(vehicle, chosen)
        return client
