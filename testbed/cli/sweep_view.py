"""What ``testbed sweep`` and ``testbed plan`` show."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from testbed.cli.meter import Meter
from testbed.execution.store import Counts
from testbed.experiments.cells import is_over
from testbed.experiments.estimate import Estimate, estimate
from testbed.experiments.grid import Grid
from testbed.experiments.plan import Plan, asks, make_plan
from testbed.experiments.stages import Hands, absent
from testbed.experiments.sweep import Cost, Stage, reasons_again, store_of, sweep
from testbed.experiments.sweepdir import SWEEP, check
from testbed.reporting.units import bytes_text, time_text

_MOST_REASONS = 10


def run_sweep(grid: Grid, out: Path) -> bool:
    """Run a sweep, watch it and say what came of it; return whether no run failed."""
    console = Console()
    with Meter(console) as meter:
        result = sweep(grid, out, meter)
    for line in reasons(result.failed, f"; all stand in {out / SWEEP}"):
        _say(console, f"failed: {line}")
    finished = result.cost.runs - len(result.failed)
    parts = [f"{finished} runs finished"]
    if result.skipped:
        parts.append(f"{result.skipped} were finished before")
    if result.failed:
        parts.append(f"{len(result.failed)} failed, the same command tries them again")
    _say(console, f"{'; '.join(parts)}: {out}")
    notes = (*_again(result.again, "were"), *result.store.remarks())
    for line in (*_cost(result.cost), *(f"note: {each}" for each in notes)):
        _say(console, line)
    _say(console, f"figures and tables: testbed plot {out}, testbed table {out}")
    return not result.failed


def show_plan(grid: Grid, out: Path) -> bool:
    """Say what a sweep would take; return whether any of it can be done."""
    console = Console()
    check(grid, out)
    asked = asks(grid, out)
    todo = [ask for ask in asked if not is_over(ask)]
    learning = [ask for ask in todo if ask.experiment.fidelity == "train"]
    store = store_of(grid, out)
    with Meter(console) as meter, Hands(grid.execution) as hands:
        plan = make_plan(
            learning,
            hands.crew,
            store,
            on_done=lambda done, total: meter(Stage("planning", done, total, done / total, 0)),
        )
        size = hands.crew.size
    estimated = estimate(plan, store)
    first = grid.points[0].experiment
    shape = f"{len(grid.points)} x {len(first.seeds)} x {len(first.editing.methods)}"
    _say(
        console,
        f"runs       {len(asked)} (points x seeds x methods: {shape}), "
        f"{len(asked) - len(todo)} finished before",
    )
    if len(learning) < len(todo):
        _say(console, f"           {len(todo) - len(learning)} without learning (fidelity cost)")
    others = Counts(other_code=sum(map(store.others_have, absent(plan.left, store))))
    for line in (*_again(reasons_again(todo), "would be"), *others.remarks()):
        _say(console, f"note: {line}")
    failing = {str(run.ask): run.need for run in plan.runs if isinstance(run.need, str)}
    possible = not todo or len(failing) < len(todo)
    if possible:
        for line in _needs(plan, estimated, size, store.folder):
            _say(console, line)
    for line in reasons(failing):
        _say(console, f"would fail: {line}")
    return possible


def reasons(failed: Mapping[str, str], where: str = "") -> list[str]:
    """Say why runs fail, those of one reason in one line."""
    runs: dict[str, list[str]] = {}
    for name, why in failed.items():
        runs.setdefault(why, []).append(name)
    told = list(runs.items())[:_MOST_REASONS]
    lines = [
        f"{names[0]}: {why}"
        if len(names) == 1
        else f"{len(names)} runs, {names[0]} the first: {why}"
        for why, names in told
    ]
    if len(runs) > len(told):
        more = len(failed) - sum(len(names) for _, names in told)
        kinds = len(runs) - len(told)
        lines.append(
            f"{more} more run{'s' if more > 1 else ''}, "
            f"for {kinds} other reason{'s' if kinds > 1 else ''}{where}"
        )
    return lines


def _again(runs: Mapping[str, int], verb: str) -> list[str]:
    """Say of runs that are there and do not count that they are done again, and why."""
    return [f"Runs that {verb} done again: {count}; {why}." for why, count in runs.items()]


def _needs(plan: Plan, estimated: Estimate, hands: int, store: Path) -> list[str]:
    known = len(plan.todo) - len(plan.left)
    times = {
        "trainings": estimated.trainings_s,
        "training on": estimated.tunings_s,
        "fusions": estimated.fusions_s,
        "evaluations": estimated.releases_s,
    }
    told = ", ".join(f"{name} {time_text(seconds)}" for name, seconds in times.items())
    return [
        f"trainings  {len(plan.todo)} unique of {plan.asked} asked for, {known} in the store",
        f"time       about {time_text(estimated.total_s / hands)} on {hands} "
        f"worker{'s' if hands > 1 else ''}: {told}",
        "           operations counted, at the rate of one measured batch",
        f"disk       about {bytes_text(estimated.store_bytes)} in the store {store}, "
        f"{bytes_text(estimated.results_bytes)} of results",
    ]


def _cost(cost: Cost) -> list[str]:
    if cost.ratio is None:
        return []
    return [
        f"{cost.trained} clients trained, {cost.reused} had trained before",
        f"cost ratio {cost.ratio:.2f}: {time_text(cost.wall_s)} on {cost.workers} "
        f"worker{'s' if cost.workers > 1 else ''} for {time_text(cost.unique_s)} of unique work "
        f"(trainings {time_text(cost.trainings_s)}, training on {time_text(cost.tunings_s)}, "
        f"fusions {time_text(cost.fusions_s)}), evaluations {time_text(cost.releases_s)} not "
        "counted",
    ]


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
