"""How well scores tell members from non-members: the ROC curve and what is read off it."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, nan

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

# Members and non-members without which there is no attack to speak of.
NEEDED = 8
# Where "how many members are found while hardly anybody is accused wrongly" is read off.
FPRS = (0.01, 0.001)
_RESAMPLES = 400
_TAILS = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of members and of non-members.

    Attributes
    ----------
    score : array of float, shape (n,)
        The higher, the more likely a member.
    member : array of bool, shape (n,)
    groups : array of int, shape (factors, n)
        Scores of one group depend on each other, and are resampled together: those of one
        model, and those of one client.
    """

    score: Floats
    member: Bools
    groups: Ints

    @property
    def members(self) -> int:
        """Number of members."""
        return int(self.member.sum())

    @property
    def others(self) -> int:
        """Number of non-members."""
        return len(self.member) - self.members


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; NaN where it cannot be measured."""

    value: float
    low: float = nan
    high: float = nan


@dataclass(frozen=True, eq=False)
class Curve:
    """A ROC curve from (0, 0) to (1, 1); both arrays rise."""

    fpr: Floats
    tpr: Floats


@dataclass(frozen=True, eq=False)
class Measured:
    """What an attack achieves.

    Attributes
    ----------
    members, others : int
        Scores of members and of non-members.
    curve : Curve
    quantities : mapping of str to Estimate
        ``auc``; ``balanced_accuracy`` at the best threshold; ``tpr_at_fpr_<f>``, NaN where
        fewer than 1 / f non-members are scored.
    """

    members: int
    others: int
    curve: Curve
    quantities: Mapping[str, Estimate]


def curve(scored: Scored, weights: Floats | None = None) -> Curve:
    """Return the ROC curve; equal scores are one threshold.

    Examples
    --------
    >>> members = np.array([True, True, False, False])
    >>> one = Scored(np.array([3.0, 2.0, 2.0, 1.0]), members, np.arange(4)[None])
    >>> curve(one).fpr.tolist(), curve(one).tpr.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0, 1.0])
    """
    order = np.argsort(-scored.score, kind="stable")
    weighted = np.ones(len(order)) if weights is None else weights[order]
    ends = np.append(np.diff(scored.score[order]) != 0, True)
    return _curve(scored.member[order], ends, weighted)


def _curve(member: Bools, ends: Bools, weights: Floats) -> Curve:
    """Return the curve of scores in falling order; `ends` are the last of equal ones."""
    rates = []
    for chosen in (~member, member):
        found = np.cumsum(weights * chosen)
        rates.append(np.concatenate([[0.0], found[ends] / found[-1]]))
    return Curve(*rates)


def auc(of: Curve) -> float:
    """Return the area under the curve: Pr[a member's score is higher], ties counted half."""
    return float(np.trapezoid(of.tpr, of.fpr))


def balanced_accuracy(of: Curve) -> float:
    """Return (TPR + 1 - FPR) / 2 at the best threshold."""
    return float((of.tpr - of.fpr).max() + 1) / 2


def tpr_at(of: Curve, fpr: float) -> float:
    """Return the greatest TPR whose FPR is not above `fpr`."""
    return float(of.tpr[of.fpr <= fpr * (1 + 1e-9)].max())


def measure(scored: Scored, rng: np.random.Generator) -> Measured:
    """Measure an attack, with percentile intervals from resampled groups, if these are 8.

    Groups of each factor are drawn independently and a score counts as often as its groups in
    all of them were drawn together (pigeonhole bootstrap; Owen, Annals of Applied Statistics
    2007, arXiv 0711.1385).

    Parameters
    ----------
    scored : Scored
        At least one member and one non-member.
    rng : Generator
        Draws the groups.
    """
    order = np.argsort(-scored.score, kind="stable")
    member, ends = scored.member[order], np.append(np.diff(scored.score[order]) != 0, True)
    factors = [np.unique(each, return_inverse=True)[1][order] for each in scored.groups]
    counts = [int(each.max()) + 1 for each in factors]
    drawn = []
    for _ in range(_RESAMPLES if min(counts) >= NEEDED else 0):
        weights = np.ones(len(order))
        for group, count in zip(factors, counts, strict=True):
            weights *= np.bincount(rng.integers(count, size=count), minlength=count)[group]
        if weights[member].any() and weights[~member].any():
            drawn.append(_read(_curve(member, ends, weights), scored.others))
    whole = _curve(member, ends, np.ones(len(order)))
    values = _read(whole, scored.others)
    tails = np.quantile(drawn, _TAILS, axis=0) if drawn else np.full((2, len(values)), nan)
    names = ("auc", "balanced_accuracy", *(f"tpr_at_fpr_{fpr:g}" for fpr in FPRS))
    return Measured(
        scored.members,
        scored.others,
        whole,
        {
            name: Estimate(value, float(low), float(high))
            for name, value, low, high in zip(names, values, *tails, strict=True)
        },
    )


def _read(of: Curve, others: int) -> list[float]:
    rates = [tpr_at(of, fpr) if others >= needed(fpr) else nan for fpr in FPRS]
    return [auc(of), balanced_accuracy(of), *rates]


def needed(fpr: float) -> int:
    """Return how many non-members a false-positive rate takes to be read off: 1 / fpr.

    >>> needed(0.001)
    1000
    """
    return ceil(1 / fpr - 1e-9)


def enough(scored: Scored) -> bool:
    """Whether there are members and non-members enough for an attack."""
    return min(scored.members, scored.others) >= NEEDED


def lacking(scored: Scored) -> str | None:
    """Say in one line what an attack lacks and how many it needs, if it lacks anything."""
    if not enough(scored):
        return (
            f"{scored.members} members and {scored.others} non-members are there; "
            f"an attack needs {NEEDED} of each"
        )
    short = [fpr for fpr in FPRS if scored.others < needed(fpr)]
    if not short:
        return None
    wants = " and ".join(f"{needed(fpr)} at {100 * fpr:g} % FPR" for fpr in short)
    return f"{scored.others} non-members are there; the TPR needs {wants}"
