"""A real run forgets whom it must; runs that keep something are found out."""

from dataclasses import replace
from pathlib import Path

import wrong
from certified import failed

from testbed.config import Experiment
from testbed.editing import fsosa
from testbed.editing.methods import Method
from testbed.experiments.run import cells, run
from testbed.learning.task import Task
from testbed.streams import Streams
from testbed.verification.erasure import erasure

CHANGES = 6


def quick(experiment: Experiment) -> Experiment:
    """Use the diagonal Fisher, which needs no solver."""
    return experiment.model_copy(
        update={"fisher": experiment.fisher.model_copy(update={"kind": "diagonal"})}
    )


def light(task: Task) -> Task:
    return replace(task, kind="diagonal")


def test_production_erases(experiment: Experiment, task: Task, tmp_path: Path) -> None:
    part = erasure(quick(experiment), light(task), CHANGES, tmp_path)
    assert part.passed
    numbers = part.numbers
    assert numbers["states_searched"] == 1 + CHANGES
    assert numbers["clients_erased"] >= numbers["clients_erased_at_end"] > 0
    assert numbers["fragments"] >= 8 * numbers["clients_erased"]
    assert numbers["bytes_searched_in_memory"] > 1_000_000
    written = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert numbers["files_searched"] == len(written) >= 7
    assert numbers["found"] == 0
    assert f"{numbers['clients_erased']} clients erased on the way" in part.sentence


def test_kept_contributions_are_found(experiment: Experiment, task: Task, tmp_path: Path) -> None:
    keeping = Method(fsosa.init, wrong.keeping_contributions)
    part = erasure(quick(experiment), light(task), CHANGES, tmp_path, keeping)
    assert "is still reachable from the state after request" in failed(part)
    assert part.numbers["found"] > 8


def test_a_view_of_kept_memory_is_found(
    experiment: Experiment, task: Task, tmp_path: Path
) -> None:
    keeping = Method(fsosa.init, wrong.keeping_a_view)
    part = erasure(quick(experiment), light(task), CHANGES, tmp_path, keeping)
    assert failed(part).startswith("0.weight of the erased client with partition")


def test_a_file_left_behind_is_found(experiment: Experiment, task: Task, tmp_path: Path) -> None:
    """The first run says who is erased; then all partitions' weights are left in a file."""
    weights = {
        f"client{part}": task.train(part, task.initial)["9.weight"]
        for part in range(len(task.parts))
    }
    leaving = wrong.run_with_checkpoints(weights)
    part = erasure(quick(experiment), light(task), CHANGES, tmp_path, run=leaving)
    sentence = failed(part)
    assert sentence.startswith("9.weight of the erased client with partition")
    assert "on disk, in checkpoint.safetensors of the results folder" in sentence
    assert part.numbers["found"] == part.numbers["clients_erased_at_end"]


def test_another_run_than_the_one_watched_is_noticed(
    experiment: Experiment, task: Task, tmp_path: Path
) -> None:
    def other(replayed: Experiment, out: Path) -> list[object]:
        longer = replayed.learning.model_copy(update={"epochs": 2})
        (done,) = run(replayed.model_copy(update={"learning": longer}), out)
        (expected,) = cells(replayed, out)
        done.cell.folder.parent.rename(expected.folder.parent)
        return [done]

    part = erasure(quick(experiment), light(task), CHANGES, tmp_path, run=other)
    assert failed(part) == "The run directory's model is not that of the run that was watched."


def test_nobody_erased_is_not_a_pass(experiment: Experiment, task: Task, tmp_path: Path) -> None:
    for seed in range(20):
        work = tmp_path / str(seed)
        work.mkdir()
        seeded = replace(light(task), streams=Streams(seed))
        part = erasure(quick(experiment), seeded, 1, work)
        if part.numbers["clients_erased"] == 0:
            expected = "No client was erased in 1 changes, so nothing was verified."
            assert failed(part) == expected
            return
    raise AssertionError("every change of every seed erased somebody")
