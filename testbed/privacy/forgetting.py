"""Is a client forgotten?  Edited models against retrained ones, and how fast it is relearnt.

A client that takes part withdraws; what an attack's statistic says of its pictures under the
edited model is compared with what it says under a model *trained anew without it* by the same
method.  That, and not chance, is what forgetting means: a withdrawn client's pictures resemble
others', so that no model is indifferent to them.

Everything is drawn many times with streams of its own: the subset (uniform among those with the
client), the edit and the retraining.  As a control, models before the edit, which hold the
client's contribution, are compared in the same way: where they cannot be told from retrained
ones either, the test has shown nothing.

Source of the relearn time: Golatkar et al., "Eternal Sunshine of the Spotless Net", CVPR 2020,
arXiv 1911.04933.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.editing.clients import Client
from testbed.learning.acceptance import Unusable
from testbed.learning.blocks import State
from testbed.learning.task import Session
from testbed.privacy.bank import Observer
from testbed.privacy.comparison import Comparison, Verdict, compare, judge
from testbed.privacy.federation import Federation
from testbed.privacy.roc import Bools, Curve, Floats, Scored, curve

MOST_EPOCHS = 50

# What an attack says of one client under a model, by the name of the statistic.
Statistic = Callable[[State], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class Trials:
    """One client's repeated withdrawal.

    Attributes
    ----------
    client : Client
    kept, edited, retrained : mapping of str to array, shape (repeats,)
        The statistics before the edit, after it, and of models trained without the client.
    relearnt, relearnt_anew : array of float, shape (relearns,)
        Epochs that the client alone has to train an edited model, and a retrained one, until its
        loss is what it was before the edit.
    """

    client: Client
    kept: Mapping[str, Floats]
    edited: Mapping[str, Floats]
    retrained: Mapping[str, Floats]
    relearnt: Floats
    relearnt_anew: Floats


def withdraw(
    federation: Federation,
    clients: Sequence[Client],
    client: Client,
    statistic: Statistic,
    repeats: int,
    relearns: int,
    name: str,
    observer: Observer,
) -> Trials:
    """Let a client withdraw from `repeats` models.

    Parameters
    ----------
    federation : Federation
    clients : sequence of Client
        The population, `client` among them.
    client : Client
    statistic : callable
        Holds ``"loss"``, the higher the lower the client's loss.
    repeats, relearns : int
        Relearn times are measured for the first so many.
    name : str
        Of the method; part of the streams' names.
    observer : callable
    """
    others = [other for other in clients if other != client]
    said: dict[str, list[Mapping[str, float]]] = {"kept": [], "edited": [], "retrained": []}
    epochs: list[tuple[float, float]] = []
    for number in range(repeats):
        observer(f"withdrawals of {client.vehicle} from {name}", number, repeats)
        names = (name, client.partition, number)
        before = federation.including(client, clients, "kept", *names)
        after = federation.without(before, client, "edited", *names)
        # As many members as the edit left, so that it is not their number that tells.
        like = federation.sized(len(after.subset) or federation.parameters.size)
        anew, _ = like.release(others, "retrained", *names)
        for key, state in (("kept", before), ("edited", after), ("retrained", anew)):
            said[key].append(statistic(state.fused.model))
        if number < relearns:
            aim = said["kept"][-1]["loss"]
            epochs.append(
                (
                    relearn(federation, client, after.fused.model, statistic, aim),
                    relearn(federation, client, anew.fused.model, statistic, aim),
                )
            )
    taken = np.array(epochs, dtype=float).reshape(-1, 2)
    return Trials(
        client,
        _columns(said["kept"]),
        _columns(said["edited"]),
        _columns(said["retrained"]),
        taken[:, 0],
        taken[:, 1],
    )


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, Floats]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def relearn(
    federation: Federation, client: Client, model: State, statistic: Statistic, aim: float
) -> float:
    """Count the epochs until the client's ``"loss"`` statistic reaches `aim`.

    Returns
    -------
    float
        At most `MOST_EPOCHS`, also where the training comes to nothing.
    """
    for epoch in range(MOST_EPOCHS):
        if statistic(model)["loss"] >= aim:
            return epoch
        session = Session(epochs=1, round=epoch + 1)
        (tuned,) = federation.learning.tune([client.partition], model, session)
        if isinstance(tuned.model, Unusable):
            break
        model = tuned.model
    return MOST_EPOCHS


@dataclass(frozen=True, eq=False)
class Forgetting:
    """What the withdrawals show.

    Attributes
    ----------
    edited, control : mapping of (Client, str) to Comparison
        By client and statistic, with retrained models: of edited models, and of models before
        the edit.
    verdict : Verdict
    """

    edited: Mapping[tuple[Client, str], Comparison]
    control: Mapping[tuple[Client, str], Comparison]
    verdict: Verdict


def weigh(trials: Sequence[Trials], rng: np.random.Generator) -> Forgetting:
    """Compare and judge; `rng` draws the permutations of small samples."""

    def compared(which: str) -> dict[tuple[Client, str], Comparison]:
        found = {}
        for each in trials:
            sample: Any = getattr(each, which)
            for name, values in sample.items():
                found[each.client, name] = compare(values, each.retrained[name], rng)
        return found

    edited, control = compared("edited"), compared("kept")
    return Forgetting(edited, control, judge(list(edited.values()), list(control.values())))


def told_apart(trials: Sequence[Trials], who: str, statistic: str, sign: int) -> Curve:
    """Return the ROC curve of telling models of a kind from retrained ones, over all clients.

    Parameters
    ----------
    trials : sequence of Trials
    who : {"edited", "kept"}
    statistic : str
        Where it was not measured, ``"loss"``.
    sign : {1, -1}
        Whether a higher or a lower statistic speaks for the kind.
    """
    scores: list[Floats] = []
    members: list[Bools] = []
    for each in trials:
        sample: Mapping[str, Floats] = getattr(each, who)
        name = statistic if statistic in sample else "loss"
        reference = each.retrained[name]
        # Clients differ in how large their statistic is and how it varies.
        spread = max(float(reference.std()), np.finfo(float).tiny)
        for values, edited in ((sample[name], True), (reference, False)):
            scores.append(sign * (values - reference.mean()) / spread)
            members.append(np.full(len(values), edited))
    score = np.concatenate(scores)
    return curve(Scored(score, np.concatenate(members), np.arange(len(score))[None]))
