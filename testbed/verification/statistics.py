"""Parts *law* and *rate*: the coupling with the real generator, over long sequences.

A trial fixes a random sequence of changes and carries many independent subsets through it,
each from a uniform draw at the start (`testbed.verification.trials`).

*Law.*  Two statistics of the subsets at the end, of M clients and size P, each close to
chi-square under the uniform law:

* the inclusion counts N_c over R replicas have covariance R c (I - 1 1^T / M) with
  c = P (M - P) / (M (M - 1)), hence sum (N_c - R P / M)^2 / (R c) with M - 1 degrees of
  freedom;
* which of five fixed clients are in the subset: j given ones and no others with probability
  C(M - 5, P - j) / C(M, P); Pearson's statistic with 2^5 - 1 degrees of freedom.

*Rate.*  A change triggers with probability 1 - C(m, P) / C(max(M, M'), P), which is P / M
for a leave and P / (M + 1) for a join.  The number of triggers of a replica has the sum of
these as its mean.  Its variance is not that of independent trials (a newcomer who entered the
subset triggers again by leaving), so it is taken from the replicas, which are independent.
"""

from collections.abc import Sequence
from math import comb, sqrt
from typing import Any

import numpy as np
from scipy.stats import chi2

from testbed.verification.part import Part
from testbed.verification.trials import Trial

# Both are error probabilities of well under one in ten thousand.
_LEAST_P_VALUE = 1e-5
_MOST_DEVIATIONS = 5.0
_WATCHED = 5


def law(trials: Sequence[Trial]) -> Part:
    """Test that the subsets at the end are uniform; the trials share M and P."""
    M, P = trials[0].initial, trials[0].size
    statistics = {
        "inclusion": (sum(map(_inclusion, trials)), len(trials) * (M - 1)),
        "pattern": (sum(map(_pattern, trials)), len(trials) * (2**_WATCHED - 1)),
    }
    tests = {
        name: {
            "chi2": round(value, 3),
            "degrees_of_freedom": freedom,
            "p_value": float(f"{chi2.sf(value, freedom):.3g}"),
        }
        for name, (value, freedom) in statistics.items()
    }
    least = min(test["p_value"] for test in tests.values())
    passed = least >= _LEAST_P_VALUE
    subsets = sum(len(each.included) for each in trials)
    finding = "agree with" if passed else "contradict"
    return Part(
        name="law",
        passed=passed,
        sentence=f"{subsets} subsets of M = {M}, P = {P}, each after {trials[0].changes} random "
        f"changes, {finding} the uniform law (smallest p-value {least:.2g}, χ² of inclusion "
        f"counts and of joint patterns of {_WATCHED} clients; limit {_LEAST_P_VALUE:g}).",
        numbers={
            "population": M,
            "subset": P,
            "sequences": len(trials),
            "changes_each": trials[0].changes,
            "subsets": subsets,
            "limit": _LEAST_P_VALUE,
            **tests,
        },
    )


def _inclusion(trial: Trial) -> float:
    replicas, M = trial.included.shape
    P = trial.size
    deviations = trial.included.sum(axis=0) - replicas * P / M
    return float((deviations**2).sum() * M * (M - 1) / (replicas * P * (M - P)))


def _pattern(trial: Trial) -> float:
    replicas, M = trial.included.shape
    P = trial.size
    watched = np.linspace(0, M - 1, _WATCHED).round().astype(int)
    codes = trial.included[:, watched] @ (1 << np.arange(_WATCHED))
    observed = np.bincount(codes, minlength=1 << _WATCHED)
    members = [code.bit_count() for code in range(1 << _WATCHED)]
    expected = np.array([replicas * comb(M - _WATCHED, P - j) / comb(M, P) for j in members])
    return float(((observed - expected) ** 2 / expected).sum())


def rate(groups: Sequence[Sequence[Trial]]) -> Part:
    """Compare how often changes trigger with the theory, for each group of like trials."""
    rows = [_rate(group) for group in groups]
    passed = all(row["low"] <= row["observed"] <= row["high"] for row in rows)
    described = "; ".join(
        f"M ≈ {row['population']}, P = {row['subset']}: {row['observed']:.4f} of "
        f"{row['changes']} changes against {row['expected']:.4f} [{row['low']:.4f}, "
        f"{row['high']:.4f}]"
        for row in rows
    )
    finding = "meets" if passed else "misses"
    return Part(
        name="rate",
        passed=passed,
        sentence=f"The share of changes that trigger {finding} ΣP/M ({described}).",
        numbers={"deviations": _MOST_DEVIATIONS, "groups": rows},
    )


def _rate(trials: Sequence[Trial]) -> dict[str, Any]:
    changes = sum(each.changes * len(each.triggers) for each in trials)
    expected = sum(each.expected * len(each.triggers) for each in trials) / changes
    variance = sum(len(each.triggers) * float(each.triggers.var(ddof=1)) for each in trials)
    width = _MOST_DEVIATIONS * sqrt(variance) / changes
    return {
        "population": trials[0].initial,
        "subset": trials[0].size,
        "changes": changes,
        "observed": round(sum(int(each.triggers.sum()) for each in trials) / changes, 6),
        "expected": round(expected, 6),
        "low": round(expected - width, 6),
        "high": round(expected + width, 6),
    }
