"""What one client's presence changes: models with it against models without it.

All from the bank of shadow models, so nothing more is fused.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np

from testbed.privacy.bank import Bank
from testbed.privacy.pictures import Pictures, loss
from testbed.privacy.roc import NEEDED, Bools, Estimate, Floats

NORMAL = 1.959964  # 97.5 % point


@dataclass(frozen=True)
class Influence:
    """How much higher losses are without a client: mean, and 95 % interval of it.

    Attributes
    ----------
    own, held, others : Estimate
        On the client's training pictures, on its hold-outs, and on the hold-outs of all others.
    inside, outside : int
        Models with the client and without it.
    """

    own: Estimate
    held: Estimate
    others: Estimate
    inside: int
    outside: int


def influences(bank: Bank, pictures: Pictures) -> tuple[Influence, ...]:
    """Return every client's influence."""
    losses = loss(bank.confidence.astype(float))
    own, held = pictures.means(losses), pictures.means(losses, trained=False)
    total, count = np.nansum(held, axis=1), np.isfinite(held).sum(axis=1)
    found = []
    for client in range(bank.inside.shape[1]):
        inside = bank.inside[:, client]
        has = np.isfinite(held[:, client])
        rest = count - has
        mine = np.where(has, held[:, client], 0.0)
        others = np.where(rest > 0, (total - mine) / np.maximum(rest, 1), np.nan)
        found.append(
            Influence(
                own=_gap(own[:, client], inside),
                held=_gap(held[:, client], inside),
                others=_gap(others, inside),
                inside=int(inside.sum()),
                outside=int((~inside).sum()),
            )
        )
    return tuple(found)


def _gap(losses: Floats, inside: Bools) -> Estimate:
    """Return the mean loss without a client minus that with it (Welch's interval)."""
    samples = losses[~inside], losses[inside]
    if min(map(len, samples)) < NEEDED:
        return Estimate(np.nan, np.nan, np.nan)
    gap = float(samples[0].mean() - samples[1].mean())
    width = NORMAL * sqrt(sum(float(each.var(ddof=1)) / len(each) for each in samples))
    return Estimate(gap, gap - width, gap + width)
