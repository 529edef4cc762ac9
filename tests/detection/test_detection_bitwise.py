"""An edit of a fleet of detectors is, bit for bit, a retrain on the subset it leads to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from drawn import make
from numpy.typing import NDArray
from torch import Tensor, nn

from testbed.editing import fsosa
from testbed.editing.clients import Change, Client
from testbed.editing.fsosa import Diagnostics, Parameters, State
from testbed.editing.orders import Fuse, Order, Train, Work
from testbed.fusion.fsosa import Projection, fuse
from testbed.learning.blocks import blocks
from testbed.learning.contribution import Contribution, serialise, serialise_model
from testbed.learning.detection.fisher import fisher
from testbed.learning.detection.network import build
from testbed.learning.detection.pictures import Pictures, load
from testbed.learning.detection.training import DetectionRecipe, train
from testbed.learning.factors import Kind
from testbed.streams import Streams

pytestmark = pytest.mark.usefixtures("yolo")

T = TypeVar("T")
SIX = tuple(Client(f"v{number}", number) for number in range(6))
TWO = Parameters(size=2)
RECIPE = DetectionRecipe(epochs=2, lr=0.001, batch=2, momentum=0.9, augment="flip")


def detector(seed: int = 0) -> nn.Module:
    return build("yolov8n", 10, seed)


@dataclass
class Fleet:
    """Answers orders by training and fusing anew; keeps nothing but a list of who trained."""

    pictures: Pictures
    parts: Sequence[NDArray[np.int64]]
    kind: Kind
    start: dict[str, Tensor] = field(default_factory=lambda: detector().state_dict())
    trained: list[Client] = field(default_factory=list)

    def drive(self, work: Work[T]) -> T:
        answer: Any = None
        while True:
            try:
                order = work.send(answer)
            except StopIteration as finished:
                result: T = finished.value
                return result
            answer = self.answer(order)

    def answer(self, order: Order) -> Any:
        if isinstance(order, Train):
            self.trained.extend(order.clients)
            return {client: self.contribution(client.partition) for client in order.clients}
        assert isinstance(order, Fuse)
        return fuse(order.contributions, blocks(detector()), Projection())

    def contribution(self, part: int) -> Contribution:
        model, chosen = detector(seed=len(self.trained)), self.parts[part]
        rng = Streams(0).rng("client", part, "batches")
        state = train(model, self.start, self.pictures, chosen, RECIPE, rng)
        factors = fisher(model, state, self.pictures, chosen, self.kind)
        return Contribution(len(chosen), state, factors)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    paths = make(folder, train=15, test=1)
    pictures = load(*paths, (64, 64), folder / "cache", None, None).train
    parts = np.split(np.arange(15), [2, 5, 7, 10, 12])  # two or three pictures each
    return lambda kind="diagonal": Fleet(pictures, parts, kind)


def bits(state: State) -> tuple[Any, ...]:
    """Everything a state consists of, in a form that compares bit for bit."""
    return (
        state.population,
        state.subset,
        [(client, serialise(each)) for client, each in state.contributions.items()],
        serialise_model(state.fused.model),
        dict(state.fused.solves),
    )


def scrambled() -> None:
    """Make whatever global randomness there is another one."""
    torch.manual_seed(np.random.default_rng().integers(2**32))


def edited(
    fleet: Fleet, state: State, change: Change, rng: np.random.Generator
) -> tuple[State, Diagnostics]:
    """Edit, and check the outcome against everything done again."""
    fleet.trained.clear()
    scrambled()
    after, done = fleet.drive(fsosa.apply(state, change, TWO, rng))
    assert tuple(fleet.trained) == done.admitted
    assert tuple(after.contributions) == after.subset
    scrambled()
    again = fleet.drive(fsosa.build(after.population, after.subset, {}))
    assert bits(again) == bits(after)
    return after, done


def test_a_member_leaves(fleet: Callable[..., Fleet]) -> None:
    home, rng = fleet(), Streams(0).rng("sampling")
    state = home.drive(fsosa.init(SIX[:4], TWO, rng))
    assert tuple(home.trained) == state.subset
    leaving = state.subset[0]
    after, done = edited(home, state, Change.of([leaving]), rng)
    assert done.evicted == (leaving,)
    assert leaving not in after.contributions
    moved = {
        name
        for name, value in after.fused.model.items()
        if not torch.equal(value, state.fused.model[name])
    }
    assert {"model.0.conv.weight", "model.21.cv1.bn.bias", "model.22.cv3.0.2.bias"} <= moved
    assert "model.22.dfl.conv.weight" not in moved


def test_joins_leaves_and_batches(fleet: Callable[..., Fleet]) -> None:
    home, rng = fleet(), Streams(1).rng("sampling")
    state = home.drive(fsosa.init(SIX[:3], TWO, rng))
    triggered = 0
    for change in (
        Change.of(arrivals=[SIX[3]]),
        Change.of(departures=[SIX[0], SIX[1]], arrivals=[SIX[4], SIX[5]]),
        Change.of(departures=[SIX[4]]),
    ):
        state, done = edited(home, state, change, rng)
        triggered += bool(done.admitted)
    assert triggered >= 1


def test_an_edit_that_spares_the_subset_trains_nobody(fleet: Callable[..., Fleet]) -> None:
    home, rng = fleet(), Streams(2).rng("sampling")
    state = home.drive(fsosa.init(SIX[:4], TWO, rng))
    outside = next(client for client in SIX[:4] if client not in state.subset)
    home.trained.clear()
    after, done = home.drive(fsosa.apply(state, Change.of([outside]), TWO, rng))
    assert (home.trained, done) == ([], Diagnostics())
    assert after.fused is state.fused


@pytest.mark.parametrize("kind", ["diagonal", "kfac"])
def test_a_contribution_depends_on_the_partition_alone(
    fleet: Callable[..., Fleet], kind: Kind
) -> None:
    """Neither on who trained before nor on the network that happens to be there."""
    home = fleet(kind)
    alone = serialise(home.contribution(3))
    home.trained.extend(SIX[:2])
    scrambled()
    assert serialise(home.contribution(3)) == alone
    assert serialise(home.contribution(4)) != alone
