"""Membership inference on the released model and on fresh ones of the same law."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.editing.clients import Client
from testbed.learning.classification import Classification
from testbed.privacy.attacks import Attack, Attacker, against
from testbed.privacy.bank import Observer
from testbed.privacy.federation import Federation
from testbed.privacy.findings import Findings, Line, attack_rows
from testbed.privacy.pictures import predict
from testbed.privacy.roc import NEEDED, Bools, Scored, enough, lacking, measure
from testbed.privacy.subject import Subject


@dataclass(frozen=True, eq=False)
class Scene:
    """Who is attacked, and with what.

    Attributes
    ----------
    task : Classification
    clients : tuple of Client
        Everybody whose contribution can be used; rows and columns of clients are in this order.
    attacker : Attacker
    """

    task: Classification
    clients: tuple[Client, ...]
    attacker: Attacker

    def mask(self, chosen: Sequence[Client] | frozenset[Client]) -> Bools:
        """Say of every client whether it is among the `chosen`."""
        some = set(chosen)
        return np.array([client in some for client in self.clients])


def released(scene: Scene, subject: Subject) -> Findings:
    """Attack the model in the run folder: its members, and those who withdrew."""
    attacker = scene.attacker
    scores = attacker.score(predict(scene.task, subject.model, attacker.pictures))
    members = scene.mask(subject.members)
    outside = scene.mask(subject.population) & ~members
    found = Findings()
    for who, inside in (("members", members), ("withdrawn", scene.mask(subject.withdrawn))):
        if inside.any():
            scored = against([scores], inside[None], outside, attacker.pictures)
            found += _measured(scene, "released", who, scored)
    return found


def fresh(scene: Scene, federation: Federation, models: int, observer: Observer) -> Findings:
    """Attack `models` further models of the same law: enough scores for low FPRs."""
    attacker = scene.attacker
    scores, inside = [], []
    for number in range(models):
        observer("fresh models", number, models)
        state, members = federation.release(scene.clients, "fresh", number)
        scores.append(attacker.score(predict(scene.task, state.fused.model, attacker.pictures)))
        inside.append(scene.mask(members))
    everyone = np.ones(len(scene.clients), dtype=bool)
    scored = against(scores, np.stack(inside), everyone, attacker.pictures)
    return _measured(scene, "fresh", "members", scored)


def _measured(scene: Scene, model: str, who: str, scored: Mapping[Attack, Scored]) -> Findings:
    found = Findings()
    for (level, attack), one in scored.items():
        if not len(one.score):
            found += Findings(remarks=(_untrained(scene, level, attack),))
            continue
        if lacks := lacking(one):
            found += Findings(remarks=(f"{model} model, {who}, {level}: {lacks}",))
        if enough(one):
            rng = scene.task.streams.rng("audit", "bootstrap", model, who, level, attack)
            measured = measure(one, rng)
            rows = tuple(attack_rows(model, who, level, attack, measured))
            lines = (Line("attacks", f"{attack}, {level}", measured.curve),)
            found += Findings(rows, lines if model == "fresh" else ())
    return found


def _untrained(scene: Scene, level: str, attack: str) -> str:
    shadows = len(scene.attacker.shadows.inside)
    return (
        f"{attack} of {level}: among {shadows} shadow models no client is in {NEEDED} and out of "
        f"{NEEDED}, as it takes; raise --shadows, or editing.rho is too near to 1"
    )
