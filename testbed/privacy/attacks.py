"""Membership inference on models: who are members, who are not, and what each attack says.

*Pictures*: the members' training pictures against the same members' hold-outs, which come from
the same clients' distributions.  *Clients*: members of the model against clients of the same
population who were not sampled; the subset is uniform, so nothing else tells them apart.

============== ========== =============================================================
attack         level      score
============== ========== =============================================================
loss           both       minus the loss, of a client the mean over its training pictures
                          (Yeom et al., CSF 2018, arXiv 1709.01604)
shadow         pictures   see `testbed.privacy.shadow`
lira-offline   both       see `testbed.privacy.lira`; shadow models without the client
lira-online    clients    the same, and shadow models with it; no contribution holds a
                          client without one of its pictures, so there is none of pictures
============== ========== =============================================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from torch import Tensor

from testbed.privacy.bank import Bank
from testbed.privacy.lira import Gaussians, fit
from testbed.privacy.pictures import Pictures, confidence, loss
from testbed.privacy.roc import Bools, Floats, Scored
from testbed.privacy.shadow import ShadowAttack, learn
from testbed.streams import Streams

Level = Literal["pictures", "clients"]
Attack = tuple[Level, str]


@dataclass(frozen=True, eq=False)
class Attacker:
    """All attacks, trained on shadow models.

    Attributes
    ----------
    pictures : Pictures
    shadows : Bank
    streams : Streams
    """

    pictures: Pictures
    shadows: Bank
    streams: Streams

    @cached_property
    def of_pictures(self) -> Gaussians:
        """Gaussians of each picture's confidence without its owner, and with it."""
        return fit(
            self.shadows.confidence.astype(float), self.shadows.inside[:, self.pictures.owner]
        )

    @cached_property
    def of_clients(self) -> Gaussians:
        """Gaussians of each client's mean confidence."""
        return fit(self.shadows.of_clients(self.pictures), self.shadows.inside)

    @cached_property
    def shadow(self) -> ShadowAttack | None:
        """The shadow-model attack, if there are hold-outs to learn it from."""
        return learn(self.shadows, self.pictures, self.streams)

    def score(self, predicted: Tensor) -> dict[Attack, Floats]:
        """Score every picture and every client by what one model says.

        Where an attack cannot be carried out on a target its score is NaN.
        """
        confident = confidence(predicted, self.pictures.y)
        mean = self.pictures.means(confident)
        learned: dict[Attack, Floats] = {}
        if self.shadow:
            learned["pictures", "shadow"] = self.shadow.score(predicted, self.pictures)
        return {
            ("clients", "loss"): -self.pictures.means(loss(confident)),
            ("clients", "lira-offline"): self.of_clients.offline(mean),
            ("clients", "lira-online"): self.of_clients.online(mean),
            ("pictures", "loss"): -loss(confident),
            **learned,
            ("pictures", "lira-offline"): self.of_pictures.offline(confident),
        }


def against(
    scores: Sequence[Mapping[Attack, Floats]],
    inside: Bools,
    eligible: Bools,
    pictures: Pictures,
) -> dict[Attack, Scored]:
    """Collect the scores of members and of non-members over one model or several.

    Parameters
    ----------
    scores : sequence of mapping
        What `Attacker.score` says of each model.
    inside : array of bool, shape (models, clients)
        Whose membership is asserted: the members, or those who withdrew.
    eligible : array of bool, shape (clients,)
        Who counts as a non-member client where not `inside`.
    pictures : Pictures

    Returns
    -------
    mapping of (level, attack) to Scored
        Scores of one client are a group, and those of one model where there are several.
    """
    owned = inside[:, pictures.owner]
    considered = inside | eligible
    found: dict[Attack, Scored] = {}
    for attack in scores[0]:
        values = np.stack([each[attack] for each in scores])
        chosen, member = (
            (owned, np.broadcast_to(pictures.trained, owned.shape))
            if attack[0] == "pictures"
            else (considered, inside)
        )
        chosen = chosen & np.isfinite(values)
        models, targets = chosen.nonzero()
        clients = pictures.owner[targets] if attack[0] == "pictures" else targets
        groups = np.stack([clients, models] if len(scores) > 1 else [clients])
        found[attack] = Scored(values[chosen], member[chosen], groups)
    return found
