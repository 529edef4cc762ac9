"""The case study of detectors, whole, on drawn pictures and on real ones."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from drawn import make
from shared_data import bundle

from testbed.config import load
from testbed.experiments.detection import read_detection
from testbed.experiments.run import run
from testbed.experiments.rundir import Run, find_runs
from testbed.ledger import TARIFFS, totals

CONFIGS = Path(__file__).parents[2] / "configs" / "bdd100k_sumo"
KEYS = ("data.path", "data.labels", "data.test_path", "data.test_labels")


def study(files: tuple[Path, ...], out: Path, *more: str) -> tuple[Run, ...]:
    overrides = [f"{key}={path}" for key, path in zip(KEYS, files, strict=True)]
    overrides += [f"execution.cache={out.parent / 'cache'}", *more]
    experiment = load(CONFIGS / "smoke.yaml", overrides)
    out.mkdir(parents=True)
    assert not any(done.skipped for done in run(experiment, out))
    return find_runs(out)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    if find_spec("ultralytics") is None:  # whose import changes what others import
        pytest.skip("needs the extra yolo: pip install 'fsosa-testbed[yolo]'")
    folder = tmp_path_factory.mktemp("study")
    files = make(folder / "drawn", train=48, test=8)
    found = study(files, folder / "out", "execution.kind=serial")
    return {each.method: each for each in found}


def test_all_answer_the_same_requests(runs: dict[str, Run]) -> None:
    assert set(runs) == {"fsosa", "retrain", "finetune"}
    asked = [run.metrics[["request", "t", "kind", "vehicle"]] for run in runs.values()]
    for other in asked[1:]:
        pd.testing.assert_frame_equal(asked[0], other)
    assert len(asked[0]) == 7


def test_models_are_judged_when_they_are_released_and_only_then(runs: dict[str, Run]) -> None:
    for each in runs.values():
        table = read_detection(each)
        released = each.metrics.loc[each.metrics["triggered"], "request"]
        assert list(table["request"].unique()) == list(released)
        first = table[table["request"] == 0]
        assert set(first["convention"]) == {"coco", "bdd100k", "ultralytics"}
        assert (first["category"] == "all").sum() >= 3 + 2  # night and day among the groups
        evaluated = [row.request for row in each.ledger if row.phase == "evaluate"]
        assert evaluated == list(released)


def test_an_edit_uploads_one_model_and_one_diagonal(runs: dict[str, Run]) -> None:
    size = (runs["fsosa"].folder / "model.safetensors").stat().st_size
    rows = [row for row in runs["fsosa"].ledger if row.phase == "upload"]
    for row in rows:
        # The Fisher has no buffers, and its own names in the header.
        assert 1.95 * size < row.bytes_up < 2.02 * size
    later = [row for row in rows if row.request > 0]
    assert len(later) < len([r for r in runs["retrain"].ledger if r.phase == "upload"]) / 2
    edited, retrained = (totals(runs[name].ledger) for name in ("fsosa", "retrain"))
    for tariff in TARIFFS:
        assert edited.bytes[tariff].total < retrained.bytes[tariff].total


def test_the_same_bytes_in_a_pool_of_processes(runs: dict[str, Run], tmp_path: Path) -> None:
    config = runs["fsosa"].manifest["config"]["data"]
    files = tuple(Path(config[key.removeprefix("data.")]) for key in KEYS)
    more = ("editing.methods=fsosa", "execution.kind=processes", "execution.workers=2")
    (again,) = study(files, tmp_path / "out", *more)
    for name in ("ledger.csv", "metrics.csv", "detection.csv", "model.safetensors"):
        assert (again.folder / name).read_bytes() == (runs["fsosa"].folder / name).read_bytes()


def test_real_pictures_and_the_warm_start(tmp_path: Path) -> None:
    if find_spec("ultralytics") is None:  # whose import changes what others import
        pytest.skip("needs the extra yolo: pip install 'fsosa-testbed[yolo]'")
    folder, weights = bundle("bdd100k_640"), bundle("yolov8s_start.safetensors")
    files = tuple(
        folder / name
        for name in (
            "images/train",
            "bdd100k_labels_train.json",
            "images/test",
            "bdd100k_labels_test.json",
        )
    )
    more = (
        "learning.model=yolov8s",
        f"detection.weights={weights}",
        "editing.methods=fsosa",
        "editing.requests=1",
        "clients.initial=4",
        "clients.pool=6",
        "execution.kind=serial",
    )
    (only,) = study(files, tmp_path / "out", *more)
    (note,) = only.manifest["notes"]
    assert note.startswith("6 tensors are not in yolov8s_start.safetensors and start at random")
    assert only.metrics["map50_95"].between(0, 1).all()
