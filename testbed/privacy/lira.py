"""LiRA: how likely a target's statistic is among models made with it, and without it.

Source: Carlini et al., "Membership Inference Attacks From First Principles", IEEE S&P 2022,
arXiv 2112.03570.

Notation (paper -> here)
------------------------
phi(p) = log(p / (1 - p))   -> the statistic; p is the probability of the true label
N(mu_in, sigma_in^2)        -> Gaussians.inside, of shadow models made with the target
N(mu_out, sigma_out^2)      -> Gaussians.outside

A target is a picture or a client; a client's statistic is the mean of phi over its pictures.

*Online*: log N(phi; in) - log N(phi; out).  *Offline*: how far phi is above mu_out, in
sigma_out, which orders models as the paper's 1 - Pr[N(out) > phi] does.

With fewer than 64 shadow models of a kind a target's own variance is too uncertain, and the
mean variance of all targets is taken (section VI-C of the paper).
"""

from dataclasses import dataclass

import numpy as np

from testbed.privacy.roc import NEEDED, Bools, Floats, Ints

_OWN_VARIANCE = 64


@dataclass(frozen=True, eq=False)
class Gaussian:
    """One Gaussian per target, fitted to shadow models; NaN where there are fewer than 8.

    Attributes
    ----------
    mean, deviation : array, shape (targets,)
    count : array of int, shape (targets,)
        Shadow models.
    """

    mean: Floats
    deviation: Floats
    count: Ints

    def log_density(self, values: Floats) -> Floats:
        """Return log N(values), shape (..., targets), without the constant."""
        return -(self.standard(values) ** 2) / 2 - np.log(self.deviation)

    def standard(self, values: Floats) -> Floats:
        """Return how many deviations the values lie above the mean."""
        return (values - self.mean) / self.deviation

    def target(self, number: int) -> "Gaussian":
        """Return the Gaussian of one target."""
        one = slice(number, number + 1)
        return Gaussian(self.mean[one], self.deviation[one], self.count[one])


@dataclass(frozen=True, eq=False)
class Gaussians:
    """What the statistic of each target is like with it and without it."""

    inside: Gaussian
    outside: Gaussian

    def online(self, values: Floats) -> Floats:
        """Return the log-likelihood ratio of values, shape (..., targets)."""
        return self.inside.log_density(values) - self.outside.log_density(values)

    def target(self, number: int) -> "Gaussians":
        """Return the Gaussians of one target."""
        return Gaussians(self.inside.target(number), self.outside.target(number))

    def offline(self, values: Floats) -> Floats:
        """Return the score that needs no model made with the target."""
        return self.outside.standard(values)


def fit(statistic: Floats, inside: Bools) -> Gaussians:
    """Fit both Gaussians of every target.

    Parameters
    ----------
    statistic : array, shape (models, targets)
        Of the shadow models.
    inside : array of bool, shape (models, targets)
        Whether a model was made with a target.
    """
    return Gaussians(_fit(statistic, inside), _fit(statistic, ~inside))


def _fit(statistic: Floats, chosen: Bools) -> Gaussian:
    count = chosen.sum(axis=0)
    enough = count >= NEEDED
    divisor = np.where(enough, count, 1)
    mean = (statistic * chosen).sum(axis=0) / divisor
    squares = ((statistic - mean) ** 2 * chosen).sum(axis=0)
    own = squares / np.where(enough, count - 1, 1)
    shared = own[enough].mean() if enough.any() else 1.0
    variance = np.where(count >= _OWN_VARIANCE, own, shared)
    # Statistics that never vary say everything or nothing, and neither by a division by zero.
    deviation = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    return Gaussian(np.where(enough, mean, np.nan), np.where(enough, deviation, np.nan), count)
