"""Part *bitwise*: after every edit, the state is bit for bit that of a build from scratch.

A random sequence of joins, leaves, batches and returns is applied to a real federation, once
with K-FAC and once with the diagonal Fisher.  Whenever the subset changed, everybody in it
trains again in a federation that has seen nothing, and their contributions are fused.  After
each edit the two complete states are compared: population, subset, every contribution, the
model with its buffers, and the solver's diagnostics.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any, get_args

from torch import Tensor, uint8

from testbed.config import Experiment
from testbed.editing import fsosa
from testbed.editing.fsosa import State
from testbed.editing.orders import Work
from testbed.fusion.fsosa import fuse as fsosa_fuse
from testbed.learning.contribution import Contribution
from testbed.learning.fisher import Kind, Kronecker
from testbed.learning.task import Task
from testbed.verification.changes import tally
from testbed.verification.federation import Federation, Fusing, Plan, plan
from testbed.verification.part import Part

Apply = Callable[..., Work[Any]]


def bitwise(
    experiment: Experiment,
    task: Task,
    changes: int,
    apply: Apply = fsosa.apply,
    fuse: Fusing = fsosa_fuse,
) -> Part:
    """Verify that edits leave no trace of history in the state.

    Parameters
    ----------
    experiment : Experiment
        Gives population, subset size and projection.
    task : Task
        The learning task; both kinds of Fisher information are verified, whatever its own.
    changes : int
        Length of the sequence.
    apply, fuse : callable
        The functions under test, with the signatures of `fsosa.apply` and
        `testbed.fusion.fsosa.fuse`.  The build from scratch always uses the latter.
    """
    schedule = plan(experiment, task.streams, changes, "edits")
    triggered: dict[Kind, int] = dict.fromkeys(get_args(Kind), 0)
    failure, values = None, 0
    federations = (
        (Federation.of(task, experiment, kind, fuse), Federation.of(task, experiment, kind))
        for kind in triggered
    )
    steps = (_states(edited, scratch, schedule, apply) for edited, scratch in federations)
    for kind, number, state, wanted, fresh in chain.from_iterable(steps):
        triggered[kind] += fresh
        leaves = list(_leaves(wanted))
        values += len(leaves)
        failure = _difference(list(_leaves(state)), leaves, f"{kind}, after change {number}")
        if failure:
            break
    if not failure and 0 in triggered.values():
        failure = f"No subset changed in {changes} changes, so nothing was verified."
    edits = sum(triggered.values())
    return Part(
        name="bitwise",
        passed=failure is None,
        sentence=failure
        or f"After each of {changes} changes, with K-FAC and with the diagonal Fisher, the "
        f"state equals the one built from scratch in every bit ({edits} edits touched the "
        "subset).",
        numbers={
            "population": len(schedule.population),
            "subset": schedule.parameters.size,
            "changes": changes,
            "triggered": triggered,
            "values_compared": values,
            **tally(schedule.changes),
        },
    )


def _states(
    edited: Federation, scratch: Federation, schedule: Plan, apply: Apply
) -> Iterator[tuple[Kind, int, State, State, bool]]:
    """Yield, after each change, the edited state, the wanted one, and whether that is new."""
    task, parameters, population = edited.task, schedule.parameters, schedule.population
    rng = task.streams.rng("verification", "edited subsets")
    state: State = edited.drive(fsosa.init(population, parameters, rng))
    built = scratch.drive(fsosa.build(population, state.subset, {}))
    for number, change in enumerate(schedule.changes, 1):
        state, _ = edited.drive(apply(state, change, parameters, rng))
        population = change.applied(population)
        fresh = state.subset != built.subset
        if fresh:
            built = scratch.anew().drive(fsosa.build(population, state.subset, {}))
        yield task.kind, number, state, replace(built, population=population), fresh


def _leaves(state: State) -> Iterator[tuple[str, Any]]:
    """Name and yield everything the state consists of, in its order."""
    yield "the population", state.population
    yield "the subset", state.subset
    yield "whose contributions are kept", tuple(state.contributions)
    for client, contribution in state.contributions.items():
        for name, value in _parts(contribution):
            yield f"{name} of {client.vehicle}'s contribution", value
    for name, tensor in state.fused.model.items():
        yield f"{name} of the model", _bits(tensor)
    yield "what the solver reports", dict(state.fused.solves)


def _parts(contribution: Contribution) -> Iterator[tuple[str, Any]]:
    yield "n", contribution.samples
    for name, tensor in contribution.model.items():
        yield name, _bits(tensor)
    for name, factor in contribution.fisher.items():
        if isinstance(factor, Kronecker):
            yield f"A of {name}", _bits(factor.a)
            yield f"G of {name}", _bits(factor.g)
        else:
            yield f"F of {name}", _bits(factor.f)


def _bits(tensor: Tensor) -> tuple[str, tuple[int, ...], bytes]:
    raw = tensor.detach().contiguous().reshape(-1).view(uint8).numpy().tobytes()
    return str(tensor.dtype), tuple(tensor.shape), raw


def _difference(
    leaves: list[tuple[str, Any]], wanted: list[tuple[str, Any]], where: str
) -> str | None:
    for one, other in zip_longest(leaves, wanted, fillvalue=("nothing", None)):
        if one != other:
            return (
                f"{where}: {other[0]} is not what a build from scratch gives; "
                "the state remembers its history."
            )
    return None
