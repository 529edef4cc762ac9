"""An audit: attacks on a released model and on others of its law, and whether leaving helps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.editing.clients import Client
from testbed.editing.methods import Method
from testbed.errors import ResultsError
from testbed.execution import Executor
from testbed.learning.blocks import State
from testbed.privacy.attacks import Attacker
from testbed.privacy.bank import Observer, ignore, stock
from testbed.privacy.comparison import Verdict
from testbed.privacy.federation import Federation
from testbed.privacy.findings import (
    Findings,
    Line,
    forgetting_rows,
    influence_rows,
    relearning_rows,
)
from testbed.privacy.forgetting import Statistic, told_apart, weigh, withdraw
from testbed.privacy.inference import Scene, fresh, released
from testbed.privacy.influence import influences
from testbed.privacy.pictures import confidence, gather, loss, predict
from testbed.privacy.shadow import MODELS
from testbed.privacy.subject import Subject

LOSS, ONLINE = "loss", "lira-online"
_FEWEST = 3  # clients: in a model, out of it, and leaving


@dataclass(frozen=True)
class Sizes:
    """How much an audit does.

    Attributes
    ----------
    shadows : int
        Shadow models that the attacks are trained on.
    releases : int
        Further models of the same law, which are attacked beside the released one.
    repeats : int
        Withdrawals of each client, and retrainings.
    clients : int
        Clients that withdraw, at most.
    pictures : int
        Training pictures of a client that are looked at, and hold-outs, at most.
    relearns : int
        Withdrawals after which the client is relearnt, at most.
    """

    shadows: int = 200
    releases: int = 100
    repeats: int = 40
    clients: int = 2
    pictures: int = 100
    relearns: int = 10


ONE_SHOT = Sizes()
# Where every model is a training in rounds.
IN_ROUNDS = Sizes(shadows=32, releases=16, repeats=12)


@dataclass(frozen=True, eq=False)
class Audit:
    """What an audit found.

    Attributes
    ----------
    subject : Subject
    sizes : Sizes
    findings : Findings
    verdicts : mapping of str to Verdict
        By method, that of the run first.
    leaving : tuple of Client
        Who withdrew in the test of forgetting.
    """

    subject: Subject
    sizes: Sizes
    findings: Findings
    verdicts: Mapping[str, Verdict]
    leaving: tuple[Client, ...]


def audit(
    subject: Subject,
    executor: Executor,
    methods: Mapping[str, Method],
    sizes: Sizes = ONE_SHOT,
    observer: Observer = ignore,
) -> Audit:
    """Attack a run's model and test whether its method forgets.

    Parameters
    ----------
    subject : Subject
    executor : Executor
        Has clients train, or knows what they sent.
    methods : mapping of str to Method
        Whose edits are tested: the run's own first, then those shown beside it.
    sizes : Sizes
    observer : callable
        Told about progress.

    Raises
    ------
    ResultsError
        If there are too few clients.
    EditError
        If nobody may leave, by ``editing.below_subset: strict``.
    """
    task = subject.task
    federations = {
        name: Federation.of(subject.experiment, task, executor, method, subject.size)
        for name, method in methods.items()
    }
    name, own = next(iter(federations.items()))
    clients, findings = _usable(subject, own)
    pictures = gather(task, [client.partition for client in clients], sizes.pictures)
    shadows = stock(own, task, clients, pictures, sizes.shadows, MODELS, observer)
    scene = Scene(task, clients, Attacker(pictures, shadows, task.streams))
    findings += released(scene, subject)
    findings += fresh(scene, own, sizes.releases, observer)
    leaving, remarks = _leaving(scene, subject, sizes.clients)
    findings += remarks
    verdicts = {}
    for each, federation in federations.items():
        found, verdicts[each] = _forgetting(scene, each, federation, leaving, sizes, observer)
        findings += found
    effects = influences(shadows, pictures)
    findings += Findings(tuple(influence_rows(name, clients, effects)))
    return Audit(subject, sizes, findings, verdicts, leaving)


def _usable(subject: Subject, federation: Federation) -> tuple[tuple[Client, ...], Findings]:
    """Return the clients that can be in a model."""
    everyone = subject.everyone
    sent = federation.contributions(everyone)
    if len(sent) < _FEWEST:
        raise ResultsError(
            f"{len(sent)} clients with usable contributions are there; an audit needs {_FEWEST}: "
            "one in a model, one outside it and one that leaves; raise clients.initial"
        )
    lost = len(everyone) - len(sent)
    remark = f"{lost} clients are left out: their contributions cannot be used"
    return tuple(sent), Findings(remarks=(remark,) if lost else ())


def _leaving(scene: Scene, subject: Subject, most: int) -> tuple[tuple[Client, ...], Findings]:
    """Choose who withdraws in the test: of those who did, else of the members, else of all."""
    usable = set(scene.clients)
    candidates = [client for client in subject.withdrawn if client in usable]
    remark = (
        "no contributor has withdrawn for good in the run; others withdraw in the test of "
        "forgetting"
    )
    found = Findings(remarks=() if candidates else (remark,))
    candidates = (
        candidates
        or [client for client in subject.members if client in usable]
        or list(scene.clients)
    )
    order = scene.task.streams.rng("audit", "leaving").permutation(len(candidates))
    return tuple(sorted(candidates[number] for number in order[:most])), found


def _forgetting(
    scene: Scene,
    name: str,
    federation: Federation,
    leaving: Sequence[Client],
    sizes: Sizes,
    observer: Observer,
) -> tuple[Findings, Verdict]:
    """Have clients withdraw from one method's models."""
    repeats = (
        min(sizes.repeats, IN_ROUNDS.repeats) if federation.method.in_rounds else sizes.repeats
    )
    trials = [
        withdraw(
            federation,
            scene.clients,
            client,
            _statistic(scene, client),
            repeats,
            sizes.relearns,
            name,
            observer,
        )
        for client in leaving
    ]
    found = weigh(trials, scene.task.streams.rng("audit", "permutations", name))
    rows = (*forgetting_rows(name, found), *relearning_rows(name, trials))
    # Of models that do differ, whoever tells them apart knows in which direction.
    worse = found.verdict.finding == "distinguishable" and found.verdict.auc < 0.5
    lines = (
        Line("edited", name, told_apart(trials, "edited", ONLINE, -1 if worse else 1)),
        Line("control", name, told_apart(trials, "kept", ONLINE, 1)),
    )
    return Findings(rows, lines), found.verdict


def _statistic(scene: Scene, client: Client) -> Statistic:
    """Return what the attacks say of a client's training pictures under a model.

    LiRA's Gaussians are those of the run's own method, whatever made the model.
    """
    number = scene.clients.index(client)
    mine = scene.attacker.pictures.of(number)
    gaussians = scene.attacker.of_clients.target(number)

    def say(state: State) -> dict[str, float]:
        confident = confidence(predict(scene.task, state, mine), mine.y)
        said = {LOSS: -float(loss(confident).mean())}
        (online,) = gaussians.online(np.array([confident.mean()]))
        return said if np.isnan(online) else {**said, ONLINE: float(online)}

    return say
