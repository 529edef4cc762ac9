"""How long each kind of work takes and how many bytes each message has, in one run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial

from testbed.config import Experiment
from testbed.editing.clients import Client
from testbed.fusion.rules import Rule, network_of
from testbed.learning.contribution import serialise_model
from testbed.learning.flops import CURVATURE_PASSES, training_flops
from testbed.learning.shapes import once
from testbed.learning.statistics import statistic_bytes, statistic_flops
from testbed.learning.task import ONE_SHOT, Session, Task
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
    model_bytes : int
        Serialised size of a model.
    contribution_bytes : callable
        (partition) -> serialised size of a contribution.
    """

    measured: bool
    prepared: bool
    device: Callable[[str], Device]
    server: Device
    model_bytes: int
    contribution_bytes: Callable[[int], int]
    epochs: int
    training: Mapping[int, int]
    fisher: Mapping[int, int]
    solve_flops: Callable[[int], int]

    def contribution(self, client: Client, train_s: float, fisher_s: float) -> tuple[Stage, ...]:
        """Return the stages of a contribution; of a prepared one only the upload is left.

        Parameters
        ----------
        client : Client
        train_s, fisher_s : float
            Measured seconds of its training and of its Fisher.
        """
        size = self.contribution_bytes(client.partition)
        upload = Stage("upload", size * _BITS, "up")
        if self.prepared:
            return (upload,)
        work = [self._work("train", client, self.training, train_s)]
        if self.fisher[client.partition]:
            work.append(self._work("fisher", client, self.fisher, fisher_s))
        return (self._download(), *work, upload)

    def tuning(
        self, client: Client, train_s: float, session: Session = ONE_SHOT
    ) -> tuple[Stage, ...]:
        """Return the stages of training a model further, for the epochs of a session."""
        epochs = self.epochs if session.epochs is None else session.epochs
        passes = epochs * (CURVATURE_PASSES if session.optimiser == "curvature" else 1)
        flops = {client.partition: self.training[client.partition] * passes // self.epochs}
        return (
            self._download(),
            self._work("train", client, flops, train_s),
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
        """Microseconds the coordinator fuses `members` contributions."""
        modelled = self.server.seconds(self.solve_flops(members))
        return duration(measured_s if self.measured else modelled)


def costs(experiment: Experiment, task: Task, rule: Rule) -> Costs:
    """Work out the costs of a run whose uploads are fused by `rule`."""
    epochs, statistic, model = task.epochs, rule.statistic, task.model
    sizes = {part: len(chosen) for part, chosen in enumerate(task.parts)}
    training = training_flops(model, task.shape, samples=1, epochs=epochs)
    fisher = once(task, ("flops", statistic), lambda: statistic_flops(task, statistic))
    upload = statistic_bytes(task, statistic)
    return Costs(
        measured=experiment.time.mode == "measured",
        prepared=experiment.work.when == "prepared",
        device=lru_cache(maxsize=1024)(partial(device_of, experiment.device, task.streams)),
        server=Device.from_config(experiment.server),
        model_bytes=once(model, "bytes", lambda: len(serialise_model(task.initial))),
        contribution_bytes=lambda part: once(
            task, ("bytes", statistic, part), lambda: upload(part)
        ),
        epochs=epochs,
        training={part: training * size for part, size in sizes.items()},
        fisher={part: fisher * size for part, size in sizes.items()},
        solve_flops=cache(partial(rule.flops, network_of(task))),
    )
