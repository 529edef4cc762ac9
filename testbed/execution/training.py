"""Training many clients of many experiments at once, each once, into a store."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from testbed.config import Experiment
from testbed.errors import ResultsError
from testbed.execution.crew import Crew
from testbed.execution.duties import Place, Stocked, stock
from testbed.execution.store import Store
from testbed.execution.tasks import Blueprint, task_of
from testbed.execution.work import flops
from testbed.learning.identity import model_key, statistic_key


@dataclass(frozen=True)
class Wanted:
    """A contribution that runs will ask for.

    Attributes
    ----------
    experiment : Experiment
    seed : int
    part : int
    statistic : str
    """

    experiment: Experiment
    seed: int
    part: int
    statistic: str


@dataclass(frozen=True)
class Job:
    """One training and all statistics that are wanted of it.

    Attributes
    ----------
    key : str
        Of the model.
    orders : tuple of (Blueprint, int, tuple of str)
        Task, partition and statistics; several where tasks differ in statistics only.
    keys : tuple of str
        Of the statistics.
    flops : int
        Floating-point operations of everything.
    """

    key: str
    orders: tuple[tuple[Blueprint, int, tuple[str, ...]], ...]
    keys: tuple[str, ...]
    flops: int


@dataclass(frozen=True)
class Report:
    """What came of training many clients.

    Attributes
    ----------
    trained : int
        Clients that trained.
    reused : int
        Clients that had trained before.
    failed : int
        Clients whose work, done now, came to nothing, or ended in an error of this machine, so
        that it is not in the store.
    """

    trained: int
    reused: int
    failed: int


def jobs(wanted: Iterable[Wanted]) -> tuple[Job, ...]:
    """Return the unique trainings: task by task, those that take longest first.

    Raises
    ------
    TestbedError
        If a task cannot be prepared.
    """
    asked: dict[Blueprint, dict[int, dict[str, None]]] = {}
    for each in wanted:
        parts = asked.setdefault(Blueprint.of(each.experiment, each.seed), {})
        parts.setdefault(each.part, {})[each.statistic] = None
    found: dict[str, Job] = {}
    for blueprint, parts in asked.items():
        fresh = [_job(blueprint, part, tuple(parts[part])) for part in parts]
        for job in sorted(fresh, key=lambda job: -job.flops):
            found[job.key] = _joined(found[job.key], job) if job.key in found else job
    return tuple(found.values())


def missing(todo: Iterable[Job], store: Store) -> tuple[Job, ...]:
    """Return the jobs of which something is not in the store."""
    return tuple(job for job in todo if not _present(job, store))


def train_all(
    todo: Sequence[Job],
    crew: Crew,
    store: Store,
    on_done: Callable[[int], None] = lambda done: None,
) -> Report:
    """Do the jobs of which something is not in the store.

    Parameters
    ----------
    todo : sequence of Job
        See `jobs`.
    crew : Crew
    store : Store
    on_done : callable
        Told how many clients are done, those that had trained before included.

    Raises
    ------
    TestbedError
        If a task cannot be prepared or the store cannot be used.
    """
    left = missing(todo, store)
    done = len(todo) - len(left)
    on_done(done)
    place = store.folder, store.limit_bytes
    outcomes = []
    for each in crew.map(fulfil, [job.orders for job in left], [place] * len(left)):
        outcomes.append(each)
        on_done(done + len(outcomes))
    trained = sum(each.trained for each in outcomes if each)
    return Report(
        trained=trained,
        reused=len(todo) - trained - outcomes.count(None),
        failed=sum(each is None or each.failed for each in outcomes),
    )


def fulfil(orders: Sequence[tuple[Blueprint, int, Sequence[str]]], place: Place) -> Stocked | None:
    """Do a job's orders, one after another; return None if one ends in an error.

    That must not stop the other jobs.  Who needs the work will do it, and meet the error.

    Raises
    ------
    ResultsError
        If the store cannot be used, which concerns all.
    """
    try:
        done = [stock(*order, place) for order in orders]
    except ResultsError:
        raise
    except Exception:
        return None
    return Stocked(any(each.trained for each in done), any(each.failed for each in done))


def _job(blueprint: Blueprint, part: int, statistics: tuple[str, ...]) -> Job:
    task = task_of(blueprint)
    return Job(
        model_key(task, part),
        ((blueprint, part, statistics),),
        tuple(statistic_key(task, part, each) for each in statistics),
        sum(flops(task, part, each) for each in (None, *statistics)),
    )


def _joined(job: Job, other: Job) -> Job:
    """Add what `other` wants of the same training and `job` does not."""
    ((blueprint, part, statistics),) = other.orders
    new = [
        (key, name)
        for key, name in zip(other.keys, statistics, strict=True)
        if key not in job.keys
    ]
    if not new:
        return job
    keys, names = zip(*new, strict=True)
    return replace(job, orders=(*job.orders, (blueprint, part, names)), keys=(*job.keys, *keys))


def _present(job: Job, store: Store) -> bool:
    model = store.record(job.key)
    # A training of which nothing came has no statistics.
    return model is not None and (
        model.bytes == 0 or all(store.path(key).exists() for key in job.keys)
    )
