"""No method looks at test data: other test pictures, the same models and the same bill."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from sklearn.datasets import load_digits

from testbed.config import load
from testbed.config.schema import Method
from testbed.experiments.run import run
from testbed.experiments.rundir import Run, find_runs
from testbed.experiments.validation import MODEL

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
METHODS = get_args(Method)
TESTED = 200
DIGITS = load_digits()
# Digits of 4x4 pixels: DENSE's generator takes most of the time, in proportion to the pixels.
PICTURES = np.uint8(DIGITS.images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)) * 15)
LABELS = DIGITS.target
SETTINGS = (
    "scale=smoke",
    "execution.kind=serial",
    "data.name=npz",
    "data.limit=700",
    f"data.test_limit={TESTED}",
    "data.alpha=10",
    "learning.model=small-cnn",
    "learning.epochs=20",
    "learning.lr=0.05",
    "learning.batch=8",
)
# With this seed a member of the subset leaves and a vehicle joins: everybody has work.
EDITING = ("editing.requests=2", "mobility.schedule.changes=2", "seeds=4")
STUDIES = {"one_shot": (), "editing": EDITING}  # F-SOSA of both: the edited run counts
Pair = tuple[Run, Run]


def write(path: Path, x_test: np.ndarray, y_test: np.ndarray) -> None:
    """Write a bundle whose training part is always the same."""
    x_train, y_train = PICTURES[TESTED:], LABELS[TESTED:]
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def both(study: str, folder: Path) -> dict[str, Pair]:
    """Run a study with either test part; the runs by method."""
    found = []
    for name in ("own", "other"):
        settings = [*SETTINGS, *STUDIES[study], f"data.path={folder / name}.npz"]
        out = folder / study / name
        list(run(load(CONFIGS / study / "base.yaml", settings), out))
        found.append({one.method: one for one in find_runs(out)})
    own, other = found
    assert own.keys() == other.keys()
    return {method: (own[method], other[method]) for method in own}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """All methods with the digits' own test part, and with noise under other labels."""
    folder = tmp_path_factory.mktemp("unseen")
    pictures, labels = PICTURES[:TESTED], LABELS[:TESTED]
    noise = np.random.default_rng(0).integers(0, 256, pictures.shape, np.uint8)
    write(folder / "own.npz", pictures, labels)
    write(folder / "other.npz", noise, (labels + 5) % 10)
    return {method: pair for study in STUDIES for method, pair in both(study, folder).items()}


def ledger(one: Run) -> bytes:
    """Return a run's ledger without the run's name, which follows from the data."""
    content = (one.folder / "ledger.csv").read_bytes()
    name = one.folder.parent.name.encode()
    assert name in content
    return content.replace(name, b"run")


@pytest.mark.parametrize("method", METHODS)
def test_models_and_bills_do_not_depend_on_the_test_data(
    pairs: dict[str, Pair], method: str
) -> None:
    own, other = pairs[method]
    one, two = ((each.folder / MODEL).read_bytes() for each in (own, other))
    assert one == two
    assert ledger(own) == ledger(other)
    asked = ["t", "kind", "vehicle", "partition", "triggered", "server_bytes"]
    assert own.metrics[asked].equals(other.metrics[asked])
    assert own.metrics["accuracy"].max() > 2 * other.metrics["accuracy"].max()


def test_every_editing_method_had_something_to_edit(pairs: dict[str, Pair]) -> None:
    assert list(pairs["fsosa"][0].metrics["kind"]) == ["init", "leave", "join"]
    for method in ("fsosa", "retrain", "finetune", "federaser", "fedrr", "fats-cu"):
        assert pairs[method][0].metrics["triggered"][1:].any(), method
