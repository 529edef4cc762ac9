"""Randomness by name.

All random numbers of a run come from one `Streams` object.  A stream is identified by
*names*, never by call order, so adding, removing or reordering clients never changes
another client's numbers.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

Name = str | int
_WORD = 4


def _entropy(seed: int, names: tuple[Name, ...]) -> list[int]:
    """Hash a seed and a tuple of names into eight 32-bit words.

    The type of each name is part of the key, so ``1`` and ``"1"`` differ, and lengths
    are written out, so ``("ab", "c")`` and ``("a", "bc")`` differ.
    """
    digest = hashlib.sha256()
    for part in (seed, *names):
        text = str(part).encode()
        digest.update(f"{type(part).__name__}:{len(text)}:".encode())
        digest.update(text)
    raw = digest.digest()
    return [int.from_bytes(raw[i : i + _WORD], "little") for i in range(0, len(raw), _WORD)]


@dataclass(frozen=True)
class Streams:
    """A family of independent random generators, keyed by names.

    Parameters
    ----------
    seed : int
        The seed of the run.

    Examples
    --------
    >>> streams = Streams(7)
    >>> a = streams.rng("client", 3).random()
    >>> _ = streams.rng("client", 4).random()
    >>> a == streams.rng("client", 3).random()
    True
    """

    seed: int

    def rng(self, *names: Name) -> np.random.Generator:
        """Return a fresh generator for the stream called `names`."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self._key(names))))

    def integer(self, *names: Name) -> int:
        """Return the stream's 63-bit integer, for libraries that want a seed."""
        first, second = self._key(names)[:2]
        return (first << 31) ^ second

    def uniform(self, *names: Name) -> float:
        """Return the stream's number in [0, 1), a pure hash of the seed and the names."""
        first, second = self._key(names)[:2]
        return ((first << 21) | (second >> 11)) / 2**53

    def _key(self, names: tuple[Name, ...]) -> list[int]:
        if not names:
            raise ValueError("a stream needs at least one name")
        return _entropy(self.seed, names)
