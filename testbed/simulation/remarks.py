"""What a reader of a run's results should know: of the method, and of what went otherwise."""

from collections.abc import Sequence

from testbed.config import Experiment
from testbed.editing.fsosa import Parameters
from testbed.editing.methods import Method
from testbed.learning.statistics import HELD_OUT, chooses
from testbed.learning.task import Task
from testbed.simulation.coordinator import Refusal
from testbed.simulation.jobs import Jobs
from testbed.simulation.tally import Tally


def notes(method: Method, statistic: str, parameters: Parameters, task: Task) -> tuple[str, ...]:
    """Say what a method's figures rest on, one sentence each."""
    found = []
    if method.in_rounds:
        found.append(f"Trains in {parameters.rounds.budget(parameters.size)}.")
    if chooses(statistic):
        total = sum(len(part) for part in task.holdouts)
        found.append(
            f"Chooses by pictures that clients hold out (about {min(total, HELD_OUT)} in all) "
            "and send with their models; their bytes are billed."
        )
    return tuple(found)


def warnings(
    experiment: Experiment,
    tally: Tally,
    warmup: float,
    jobs: Jobs,
    refusals: Sequence[Refusal],
) -> tuple[str, ...]:
    """Name assumptions that did not hold and clients whose work could not be used.

    Parameters
    ----------
    experiment : Experiment
    tally : Tally
    warmup : float
        Simulated second at which the clients were to be together.
    jobs : Jobs
    refusals : sequence of Refusal
    """
    return (
        *_late(tally, warmup),
        *_assumptions(tally, experiment),
        *_lost(jobs),
        *map(_refused, refusals),
    )


def _refused(refusal: Refusal) -> str:
    what = {"train": "training", "fisher": "Fisher information"}.get(refusal.phase, "upload")
    vehicle, partition = refusal.client.vehicle, refusal.client.partition
    return (
        f"The {what} of vehicle {vehicle} (partition {partition}) at request {refusal.request} "
        f"{'was refused' if refusal.phase == 'upload' else 'failed'} and the vehicle treated "
        f"as if it had left: {refusal.reason}."
    )


def _lost(jobs: Jobs) -> list[str]:
    """Say how many left with work in hand."""
    if not jobs.lost:
        return []
    return [
        f"{jobs.lost} of {jobs.asked} clients that were asked for an upload left before they had "
        "delivered it; each was a departure."
    ]


def _late(tally: Tally, warmup: float) -> list[str]:
    """Say when the initial clients were not together at the end of the warm-up."""
    if tally.first is None or tally.first.t <= warmup:
        return []
    return [
        f"The wanted initial clients were together only {tally.first.t - warmup:g} s after the "
        "warm-up; the run started then."
    ]


def _assumptions(tally: Tally, experiment: Experiment) -> list[str]:
    """Name the assumptions of the paper that did not hold in this run."""
    found, initial = [], tally.initial
    if tally.strayed:
        found.append(
            f"The population left [M0/2, 2 M0] = [{initial / 2:g}, {2 * initial}] at "
            f"{tally.outside} of {tally.requests} requests, first at request "
            f"{tally.strayed.request} with M = {tally.strayed.population}."
        )
    if tally.shrunk:
        found.append(
            f"The population fell below P = {tally.size} at {tally.shrunk} requests; "
            "the subset shrank with it."
        )
    if tally.loose:
        found.append(
            f"{tally.loose} projections stopped above fusion.rtol = {experiment.fusion.rtol:g}; "
            f"the largest relative residual was {tally.residual:.1e}."
        )
    if tally.requests < experiment.editing.requests:
        found.append(
            f"The traffic ended after {tally.requests} of {experiment.editing.requests} requests."
        )
    return found
