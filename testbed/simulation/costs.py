"""How long each kind of work takes and how many bytes each message has, in one run."""

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.config import Experiment
from testbed.learning.blocks import blocks
from testbed.learning.client import Task
from testbed.learning.contribution import contribution_bytes, serialise_model
from testbed.learning.flops import fisher_flops, solve_flops, training_flops
from testbed.network import Device, Link
from testbed.simulation.clock import duration


@dataclass(frozen=True)
class Costs:
    """Durations in microseconds and sizes in bytes.

    Modelled durations depend on shapes, sample counts and the configuration alone, never
    on learned weights: the ledger of modelled time is the same on every machine.

    Attributes
    ----------
    measured : bool
        Bill the wall-clock seconds of the real computation instead.
    model_bytes, contribution_bytes : int
        Serialised sizes of a model and of a contribution.
    """

    measured: bool
    link: Link
    device: Device
    server: Device
    model_bytes: int
    contribution_bytes: int
    training: Mapping[int, int]
    fisher: Mapping[int, int]
    solve_per_member: int

    def transfer(self, size: int) -> int:
        """Microseconds to send `size` bytes."""
        return duration(self.link.seconds(size))

    def train(self, part: int, measured_s: float) -> int:
        """Microseconds a partition's client trains."""
        modelled = self.device.seconds(self.training[part])
        return duration(measured_s if self.measured else modelled)

    def inform(self, part: int, measured_s: float) -> int:
        """Microseconds a partition's client computes its Fisher."""
        modelled = self.device.seconds(self.fisher[part])
        return duration(measured_s if self.measured else modelled)

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
        link=Link.from_config(experiment.network),
        device=Device.from_config(experiment.device),
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
