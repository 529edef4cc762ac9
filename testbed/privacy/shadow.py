"""The shadow-model attack: a classifier that learns from other models what members look like.

Source: Shokri et al., "Membership Inference Attacks Against Machine Learning Models",
IEEE S&P 2017, arXiv 1610.05820.  The shadow models have the target's architecture and are made
as it was, of other subsets of clients, where published work on federated unlearning trains
random forests on raw pixels as shadow models.

The attack sees a model's probabilities, the true label and its confidence; it learns to tell
pictures that a member of a shadow model trained on from the hold-outs of the same member.
Clients are split in two halves, and what was learned from one half attacks the other, so that
no picture is attacked by trees that have seen it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from torch import Tensor

from testbed.privacy.bank import Bank
from testbed.privacy.pictures import Pictures, confidence
from testbed.privacy.roc import Bools, Floats, Ints
from testbed.streams import Streams

MODELS = 8  # shadow models it learns from
_TREES = 50
_LEAVES = 8  # of a tree


@dataclass(frozen=True, eq=False)
class ShadowAttack:
    """A trained attack.

    Attributes
    ----------
    half : array of int, shape (clients,)
        Which half each client is in, 0 or 1.
    trees : tuple of HistGradientBoostingClassifier
        ``trees[h]`` learned from the other half and attacks half h.
    """

    half: Ints
    trees: tuple[HistGradientBoostingClassifier, ...]

    def score(self, predicted: Tensor, pictures: Pictures) -> Floats:
        """Return the probability of having been trained on, for every picture."""
        seen = _features(predicted, pictures)
        half = self.half[pictures.owner]
        scores = np.zeros(len(half))
        for number, trees in enumerate(self.trees):
            if (half == number).any():
                scores[half == number] = trees.predict_proba(seen[half == number])[:, 1]
        return scores


def learn(bank: Bank, pictures: Pictures, streams: Streams) -> ShadowAttack | None:
    """Train the attack on the models of a bank that have log-probabilities.

    Returns
    -------
    ShadowAttack or None
        None if a half has no hold-outs, or no training pictures, of members.
    """
    clients = bank.inside.shape[1]
    half = streams.rng("audit", "halves").permutation(np.arange(clients) % 2)
    learned = []
    for number in (0, 1):
        usable = half[pictures.owner] != number
        chosen = [usable & inside[pictures.owner] for inside in bank.inside[: len(bank.predicted)]]
        seed = streams.integer("audit", "trees", number)
        made = _trees(bank.predicted, chosen, pictures, seed)
        if made is None:
            return None
        learned.append(made)
    return ShadowAttack(half, tuple(learned))


def _trees(
    predicted: Sequence[Tensor], chosen: Sequence[Bools], pictures: Pictures, seed: int
) -> HistGradientBoostingClassifier | None:
    seen = [_features(said, pictures)[mine] for said, mine in zip(predicted, chosen, strict=True)]
    trained = np.concatenate([pictures.trained[mine] for mine in chosen])
    if trained.all() or not trained.any():
        return None
    trees = HistGradientBoostingClassifier(
        max_iter=_TREES,
        max_leaf_nodes=_LEAVES,
        early_stopping=False,
        random_state=seed % 2**32,
    )
    return trees.fit(np.concatenate(seen), trained)


def _features(predicted: Tensor, pictures: Pictures) -> Floats:
    label = pictures.y.numpy().astype(float)
    return np.column_stack([predicted.exp().numpy(), confidence(predicted, pictures.y), label])
