"""Who takes part, and how that changes.

Populations are sorted tuples.  Nothing here walks through one: clients are found by binary
search, so a request costs the same among fifty clients as among five thousand.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from testbed.errors import EditError


@dataclass(frozen=True, order=True, slots=True)
class Client:
    """A vehicle holding one data partition.

    The pair is the identity: a vehicle that returns with another partition is another
    client, while its contribution depends on the partition alone.

    Attributes
    ----------
    vehicle : str
    partition : int
    """

    vehicle: str
    partition: int


Request = tuple[Literal["join", "leave"], Client]


@dataclass(frozen=True)
class Change:
    """A simultaneous change of the population: who leaves and who joins.

    Attributes
    ----------
    departures, arrivals : tuple of Client
        Sorted, without repetition, and disjoint.
    """

    departures: tuple[Client, ...] = ()
    arrivals: tuple[Client, ...] = ()

    @classmethod
    def of(cls, departures: Iterable[Client] = (), arrivals: Iterable[Client] = ()) -> "Change":
        """Build a change; a client that leaves and returns unchanged cancels out."""
        out, into = set(departures), set(arrivals)
        return cls(tuple(sorted(out - into)), tuple(sorted(into - out)))

    def applied(self, population: Sequence[Client]) -> tuple[Client, ...]:
        """Return the sorted population after the change, given the sorted one before it.

        Raises
        ------
        EditError
            If a departing client is unknown or an arriving one is already there.
        """
        after = list(population)
        for client in self.departures:
            index = bisect_left(after, client)
            if after[index : index + 1] != [client]:
                raise EditError(f"departure of unknown client {client}; it never arrived")
            del after[index]
        for client in self.arrivals:
            index = bisect_left(after, client)
            if after[index : index + 1] == [client]:
                raise EditError(f"arrival of {client}, who is already in the population")
            after.insert(index, client)
        return tuple(after)


@dataclass(frozen=True)
class NormalForm:
    """What a sequence of requests comes to.

    Attributes
    ----------
    change : Change
        Fits the population the requests were made of.
    ignored : tuple of int
        Positions of the requests that had no effect.
    """

    change: Change
    ignored: tuple[int, ...]


def normal_form(population: Sequence[Client], requests: Iterable[Request]) -> NormalForm:
    """Follow requests one after the other and return what they change in the end.

    A vehicle is one client at a time.  A leave of somebody who is not there and a join of
    somebody who is, with the same data, have no effect.  A join with other data replaces the
    client: the old version departs, the new one arrives.  Who leaves and returns unchanged,
    or comes and goes again, cancels out: nothing is released in between.

    Parameters
    ----------
    population : sequence of Client
        Sorted.
    requests : iterable of ({"join", "leave"}, Client)
        In order of arrival.

    Examples
    --------
    >>> a, b = Client("a", 0), Client("b", 1)
    >>> normal_form([a], [("leave", b), ("leave", a), ("join", b)])
    NormalForm(change=Change(departures=(Client(vehicle='a', partition=0),), \
arrivals=(Client(vehicle='b', partition=1),)), ignored=(0,))
    """
    before: dict[str, Client | None] = {}
    now: dict[str, Client | None] = {}
    ignored = []
    for number, (kind, client) in enumerate(requests):
        vehicle = client.vehicle
        if vehicle not in before:
            before[vehicle] = now[vehicle] = _of_vehicle(population, vehicle)
        if (now[vehicle] == client) == (kind == "join"):
            ignored.append(number)
        else:
            now[vehicle] = client if kind == "join" else None
    change = Change.of(
        (client for client in before.values() if client),
        (client for client in now.values() if client),
    )
    return NormalForm(change, tuple(ignored))


def _of_vehicle(population: Sequence[Client], vehicle: str) -> Client | None:
    index = bisect_left(population, vehicle, key=lambda client: client.vehicle)
    found = index < len(population) and population[index].vehicle == vehicle
    return population[index] if found else None
