"""Whether two samples of an attack's statistic have one law, and the verdict from several.

*Kolmogorov-Smirnov* sees any difference between two laws, *Mann-Whitney* a shift best; both
are ranks only, so nothing has to be assumed of the statistic.  Small samples are permuted.
The verdict takes the smallest p-value times the number of tests (Bonferroni).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Literal

import numpy as np
from scipy.stats import ks_2samp, mannwhitneyu, rankdata

from testbed.privacy.roc import NEEDED, Floats

# Probability that an exact method is said to be distinguishable.
LEVEL = 0.01
_SMALL = 20
_PERMUTATIONS = 19_999

Finding = Literal["indistinguishable", "distinguishable", "undecided"]


@dataclass(frozen=True)
class Comparison:
    """Two samples compared.

    Attributes
    ----------
    n, m : int
        Sizes of the first sample and of the second.
    ks, auc : float
        Largest distance of the distribution functions; Pr[first > second], ties half.
    ks_p, auc_p : float
        Two-sided p-values of Kolmogorov-Smirnov and of Mann-Whitney; never 0.
    """

    n: int
    m: int
    ks: float
    ks_p: float
    auc: float
    auc_p: float


def compare(first: Floats, second: Floats, rng: np.random.Generator) -> Comparison:
    """Compare two samples; `rng` draws the permutations of small ones."""
    n, m = len(first), len(second)
    both = np.concatenate([first, second])
    labels = np.arange(n + m) < n
    ks, centred = _distances(both, labels[None])
    auc = 0.5 + float(centred[0]) / (n * m)
    if min(n, m) < _SMALL:
        ks_p, auc_p = _permuted(both, labels, rng)
    else:
        ks_p = float(ks_2samp(first, second, method="asymp").pvalue)
        auc_p = float(mannwhitneyu(first, second, method="asymptotic").pvalue)
        auc_p = auc_p if np.isfinite(auc_p) else 1.0  # all values are the same
        ks_p, auc_p = max(ks_p, least_p(n, m)), max(auc_p, least_p(n, m))
    return Comparison(n, m, float(ks[0]), ks_p, auc, auc_p)


def least_p(n: int, m: int) -> float:
    """Return the smallest p-value that samples of these sizes can have by ranks, never 0.

    Two of all divisions into such samples are as extreme as one that parts all values.  Formulas
    for large samples do not know this and give 0 there.

    >>> least_p(3, 3)
    0.1
    """
    return max(2 / comb(n + m, n), float(np.finfo(float).tiny))


def _distances(both: Floats, labels: np.ndarray) -> tuple[Floats, Floats]:
    """Return KS and U - nm/2 of every row of `labels`, which say who is in the first sample."""
    n = int(labels[0].sum())
    m = len(both) - n
    order = np.argsort(both, kind="stable")
    ends = np.append(np.diff(both[order]) != 0, True)
    steps = np.where(labels[:, order], m, -n)
    ks = np.abs(np.cumsum(steps, axis=1)[:, ends]).max(axis=1) / (n * m)
    centred = labels @ rankdata(both) - n * (n + m + 1) / 2
    return ks, centred


def _permuted(both: Floats, labels: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    drawn = rng.permuted(np.tile(labels, (_PERMUTATIONS, 1)), axis=1)
    observed, others = _distances(both, labels[None]), _distances(both, drawn)
    least = [
        (1 + np.count_nonzero(np.abs(other) >= abs(one[0]) - 1e-9)) / (1 + _PERMUTATIONS)
        for one, other in zip(observed, others, strict=True)
    ]
    return float(least[0]), float(least[1])


@dataclass(frozen=True)
class Verdict:
    """Whether edited models can be told from retrained ones.

    Attributes
    ----------
    finding : {"indistinguishable", "distinguishable", "undecided"}
        ``undecided``: no difference was found, but neither was the one that is certainly there,
        between models that keep the client and retrained ones.
    p_value, control_p : float
        The smallest of all tests, times their number; of edited models and of the control.
    auc : float
        Pr[statistic of an edited model > that of a retrained one], the farthest from 1/2.
    """

    finding: Finding
    p_value: float
    control_p: float
    auc: float


def judge(edited: Sequence[Comparison], control: Sequence[Comparison]) -> Verdict:
    """Judge by comparisons of edited with retrained models, and of the control with these.

    Parameters
    ----------
    edited : sequence of Comparison
        Of every client and statistic; at least one.
    control : sequence of Comparison
        The same with models before the edit, which hold the client's contribution.
    """
    p_value, control_p = _smallest(edited), _smallest(control)
    finding: Finding = "distinguishable" if p_value < LEVEL else "undecided"
    enough = min(min(each.n, each.m) for each in edited) >= NEEDED
    if finding == "undecided" and control_p < LEVEL and enough:
        finding = "indistinguishable"
    auc = max((each.auc for each in edited), key=lambda value: abs(value - 0.5))
    return Verdict(finding, p_value, control_p, auc)


def _smallest(comparisons: Sequence[Comparison]) -> float:
    values = [value for each in comparisons for value in (each.ks_p, each.auc_p)]
    return min(1.0, min(values) * len(values))
