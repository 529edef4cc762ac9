"""Who takes part, and how that changes."""

from collections.abc import Iterable
from dataclasses import dataclass

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
        """Build a normal form: a client that leaves and returns unchanged cancels out."""
        out, into = set(departures), set(arrivals)
        return cls(tuple(sorted(out - into)), tuple(sorted(into - out)))

    def applied(self, population: Iterable[Client]) -> tuple[Client, ...]:
        """Return the population after the change, in canonical (sorted) order.

        Raises
        ------
        EditError
            If a departing client is unknown or an arriving one is already there.
        """
        before = set(population)
        unknown = [client for client in self.departures if client not in before]
        known = [client for client in self.arrivals if client in before]
        if unknown:
            raise EditError(f"departure of unknown client {unknown[0]}; it never arrived")
        if known:
            raise EditError(f"arrival of {known[0]}, who is already in the population")
        return tuple(sorted((before - set(self.departures)) | set(self.arrivals)))
