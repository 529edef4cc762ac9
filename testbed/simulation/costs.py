"""How long each kind of work takes and how many bytes each message has, in one run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from testbed.config import Experiment
from testbed.editing.clients import Client
from testbed.learning.blocks import blocks
from testbed.learning.client import Task
from testbed.learning.contribution import contribution_bytes, serialise_model
from testbed.learning.flops import fisher_flops, solve_flops, training_flops
from testbed.ledger.rows import Phase
from testbed.network import Device, device_of
from testbed.simulation.clock import duration
from testbed.simulation.vehicle import Stage

_BITS = 8


@dataclass(frozen=True)
class Costs:
    """Durations in microseconds and sizes in bytes.

    Modelled durations depend on shapes, sample counts and the configuration alone, never
    on learned weights: the ledger of modelled time is the same on every machine.

    Attributes
    ----------
    measured : bool
        Bill the wall-clock seconds of the real computation instead.
    prepared : bool
        Contributions are made before the visit in which they are asked for.
    device : callable
        The computer of a vehicle, by its name.
    model_bytes, contribution_bytes : int
        Serialised sizes of a model and of a contribution.
    """

    measured: bool
    prepared: bool
    device: Callable[[str], Device]
    server: Device
    model_bytes: int
    contribution_bytes: int
    training: Mapping[int, int]
    fisher: Mapping[int, int]
    solve_per_member: int

    def contribution(self, client: Client, train_s: float, fisher_s: float) -> tuple[Stage, ...]:
        """Return the stages of a contribution; of a prepared one only the upload is left.

        Parameters
        ----------
        client : Client
        train_s, fisher_s : float
            Measured seconds of its training and of its Fisher.
        """
        upload = Stage("upload", self.contribution_bytes * _BITS, "up")
        if self.prepared:
            return (upload,)
        return (
            self._download(),
            self._work("train", client, self.training, train_s),
            self._work("fisher", client, self.fisher, fisher_s),
            upload,
        )

    def tuning(self, client: Client, train_s: float) -> tuple[Stage, ...]:
        """Return the stages of training the released model further."""
        return (
            self._download(),
            self._work("train", client, self.training, train_s),
            Stage("upload", self.model_bytes * _BITS, "up"),
        )

    def _download(self) -> Stage:
        return Stage("download", self.model_bytes * _BITS, "down")

    def _work(
        self, phase: Phase, client: Client, flops: Mapping[int, int], measured_s: float
    ) -> Stage:
        modelled = self.device(client.vehicle).seconds(flops[client.partition])
        micros = duration(measured_s if self.measured else modelled)
        return Stage(phase, micros, measured=measured_s)

    def solve(self, members: int, measured_s: float) -> int:
        """Microseconds the coordinator projects `members` contributions."""
        modelled = self.server.seconds(self.solve_per_member * members)
        return duration(measured_s if self.measured else modelled)


def costs(experiment: Experiment, task: Task) -> Costs:
    """Work out the costs of a run."""
    classes, epochs = len(task.dataset.classes), task.recipe.epochs
    sizes = {part: len(chosen) for part, chosen in enumerate(task.parts)}
    training = training_flops(task.model, task.shape, samples=1, epochs=epochs)
    fisher = fisher_flops(task.model, task.shape, 1, classes, task.kind, task.estimator)
    return Costs(
        measured=experiment.time.mode == "measured",
        prepared=experiment.work.when == "prepared",
        device=partial(device_of, experiment.device, task.streams),
        server=Device.from_config(experiment.server),
        model_bytes=len(serialise_model(task.initial)),
        contribution_bytes=contribution_bytes(
            task.initial, blocks(task.model), task.kind, task.upload
        ),
        training={part: training * size for part, size in sizes.items()},
        fisher={part: fisher * size for part, size in sizes.items()},
        solve_per_member=solve_flops(
            task.model, 1, task.kind, experiment.server.billed_iterations
        ),
    )
