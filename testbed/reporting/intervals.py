"""Means over seeds with 95 % bootstrap intervals; the same numbers, the same interval.

Seeds are resampled and nothing else: the requests of one run depend on each other.  Values
of two methods are resampled in pairs, so that what a seed does to both of them cancels.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from testbed.streams import Streams

Series = npt.NDArray[np.float64]

SHARE = 0.95
_RESAMPLES = 2000
_SEED = 0
_TAILS = ((1 - SHARE) / 2, (1 + SHARE) / 2)


@dataclass(frozen=True)
class Interval:
    """Estimates and the percentile intervals around them.

    Attributes
    ----------
    mean, low, high : array
        Of one shape; all three are the same where there is one seed.
    n : int
        Seeds.
    """

    mean: Series
    low: Series
    high: Series
    n: int

    @property
    def half(self) -> Series:
        """Half of the interval's width."""
        return np.asarray((self.high - self.low) / 2, dtype=np.float64)

    def scaled(self, factor: float) -> "Interval":
        """Return the interval in another unit, `factor` of which make one of the present."""
        return Interval(self.mean * factor, self.low * factor, self.high * factor, self.n)


def mean(samples: npt.ArrayLike) -> Interval:
    """Average over the first axis, the seeds.

    Examples
    --------
    >>> found = mean([1.0, 3.0])
    >>> float(found.mean), float(found.low), float(found.high)
    (2.0, 1.0, 3.0)
    """
    values = np.asarray(samples, dtype=np.float64)
    return _interval(values.mean(axis=0), _resampled(values) / len(values), len(values))


def ratio(parts: npt.ArrayLike, wholes: npt.ArrayLike) -> Interval:
    """Divide the sum of `parts` by that of `wholes`, whose every number is positive.

    Parameters
    ----------
    parts, wholes : array of shape (n, ...)
        Two numbers of each seed, resampled together.
    """
    above, below = np.asarray(parts, dtype=np.float64), np.asarray(wholes, dtype=np.float64)
    drawn = _resampled(above) / _resampled(below)
    return _interval(above.sum(axis=0) / below.sum(axis=0), drawn, len(above))


def _interval(estimate: Series, drawn: Series, n: int) -> Interval:
    low, high = np.quantile(drawn, _TAILS, axis=0)
    # Resampling a number that all seeds share may change its last digit.
    return Interval(estimate, np.minimum(low, estimate), np.maximum(high, estimate), n)


def _resampled(values: Series) -> Series:
    """Return the sums of resampled seeds; (resamples, ...)."""
    counts = _counts(len(values))
    return (counts @ values.reshape(len(values), -1)).reshape(len(counts), *values.shape[1:])


@cache
def _counts(n: int) -> Series:
    """Return how often each of `n` seeds is drawn in each resample; (resamples, n)."""
    if n == 1:
        return np.ones((1, 1))
    rng = Streams(_SEED).rng("reporting", "bootstrap", n)
    return rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES).astype(np.float64)
