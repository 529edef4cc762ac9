"""What the theory and scale scripts measure, in small."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from testbed.config.schema import DataConfig
from testbed.data import Dataset, load_dataset
from testbed.editing.storage import storage_bytes
from testbed.learning.acceptance import inspect
from testbed.learning.blocks import blocks
from testbed.learning.factors import Diagonal, Kronecker
from testbed.learning.models import build
from testbed.streams import Streams
from testbed.verification.changes import fleet
from testbed.verification.variation import distance, subset_distance

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset(DataConfig(test_share=0.5))


def test_clients_share_what_was_drawn(theory: ModuleType, digits: Dataset) -> None:
    parts = theory.divide(digits, 100, Streams(0))
    assert len(parts) == 20
    assert len(np.unique(np.concatenate(parts))) == 100
    other = theory.divide(digits, 100, Streams(1))
    assert set(np.concatenate(other)) != set(np.concatenate(parts))
    assert len(theory.members(0.25, Streams(0))) == 5


def test_pictures_meet_the_premise(theory: ModuleType, digits: Dataset) -> None:
    """Norm one, no two alike, a regular Gram matrix."""
    x, y = theory.signed(digits.x_train, digits.y_train)
    assert torch.allclose(x.norm(dim=1), torch.ones(len(x)).double())
    assert len(torch.unique(x, dim=0)) == len(x)
    assert torch.equal(y > 0, torch.from_numpy(digits.y_train >= 5))
    N, least, term = theory.assumption(digits, 100)
    assert N == "100"
    assert float(least) > 0.01
    assert float(term) > 0


def test_risk_vanishes_with_width_and_steps(theory: ModuleType, digits: Dataset) -> None:
    (narrow,) = theory.analysed_risk(digits, 16, (300,), 0)
    few, many = theory.analysed_risk(digits, 1024, (3, 300), 0)
    for fisher in ("full Fisher", "K-FAC"):
        assert many[fisher] < narrow[fisher] / 2
        assert many[fisher] < few[fisher] / 3
        assert many[fisher] < many["plain mean"] / 3
    assert many["local models"] < few["local models"] / 100


def test_the_gap_shrinks_with_the_samples(theory: ModuleType, digits: Dataset) -> None:
    few, many = (theory.analysed_gap(digits, samples, 0) for samples in (100, 400))
    assert list(few) == [0.1, 0.25, 0.5, 1.0]
    assert few[0.1] > few[0.5] > many[0.5] > many[1.0] > 0


def test_the_testbeds_network_is_trained_and_fused(theory: ModuleType, digits: Dataset) -> None:
    short, long = (theory.mlp_risk(digits, 16, epochs, 0) for epochs in (3, 30))
    assert long["K-FAC, preset robust"] < short["K-FAC, preset robust"]
    assert long["local models"] < long["K-FAC, preset robust"] < long["plain mean"]


def test_tables_and_panels_are_drawn(
    theory: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [[{"K-FAC": 0.5, "diagonal": 2.0}, {"K-FAC": 0.25, "diagonal": 1.0}]] * 2
    curves = theory.averaged((10, 100), rows)
    assert float(curves["K-FAC"][100].mean) == 0.25
    theory.table("Title", ["x", *curves], [["10", theory.shown(curves["K-FAC"][10]), "2"]])
    assert "| 10 | 0.5 ± 0 | 2 |" in capsys.readouterr().out
    figure = theory.new_figure(3.0, 3.0)
    theory.draw_panel(figure.subplots(), "title", "x", "y", curves)
    theory.legend(figure)
    assert theory.render(figure, "png").startswith(PNG)


@pytest.mark.parametrize(("leaves", "joins"), [(1, 0), (0, 1), (2, 1)])
def test_the_coupling_changes_as_seldom_as_can_be(
    stability: ModuleType, leaves: int, joins: int
) -> None:
    apart, changed = stability.enumerated(5, 2, leaves, joins)
    assert apart == changed == subset_distance(5, 2, leaves, joins)


def test_models_are_as_far_apart_as_subsets(stability: ModuleType) -> None:
    task = stability.prepare(stability.load(None, stability.LEARNING), 0)
    sent = {k: stability.inform(task, k, task.train(k, task.initial)) for k in range(5)}
    before = stability.released(task, sent, fleet(4), 2)
    after = stability.released(task, sent, fleet(5), 2)
    assert sum(before.values()) == 1
    assert len(before) == 6  # every subset has a model of its own
    assert distance(before, after) == subset_distance(4, 2, arrivals=1) == Fraction(2, 5)


def test_stability_prints_and_draws(
    stability: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["stability.py", "--out", str(tmp_path)])
    stability.main()
    printed = capsys.readouterr().out
    assert "| 1 | 0 | 1/2 | 1/2 | 1/2 | 1/2 | 1/2 |" in printed
    assert "| 5000 | 0.5 | 2500 | 0.5000 | 0.4999 | 0.9996 |" in printed
    assert (tmp_path / "theory-stability.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("kind", ["kfac", "diagonal"])
def test_made_up_contributions_are_usable_and_differ(
    scale: ModuleType, tmp_path: Path, kind: str
) -> None:
    scale.stock(kind, 3, tmp_path)
    model = build("lenet", (1, 28, 28), 10, 0)
    sent = [scale.contribution(number, tmp_path, 3) for number in range(9)]
    assert not any(inspect(one, blocks(model), model.state_dict(), kind) for one in sent)
    layer = blocks(model)[0].name
    prints = set()
    for one in sent:
        factor = one.fisher[layer]
        parts = (factor.a, factor.g) if isinstance(factor, Kronecker) else (factor.f,)
        weights = one.model[f"{layer}.weight"]
        prints.add(tuple(float(each.double().sum()) for each in (*parts, weights)))
    # Of three, six pairs can be made with K-FAC, and three means of the diagonal.
    assert len(prints) == (9 if kind == "kfac" else 6)
    assert isinstance(factor, Kronecker if kind == "kfac" else Diagonal)


def test_a_line_is_measured(scale: ModuleType, tmp_path: Path) -> None:
    scale.stock("diagonal", 2, tmp_path)
    # In a process of its own: memory that other tests have given back hides what is taken.
    code = (
        "import json, scale, sys; from dataclasses import asdict; from pathlib import Path; "
        "print(json.dumps(asdict(scale.measure('diagonal', 8, 4, Path(sys.argv[1]), 2))))"
    )
    words = [sys.executable, "-c", code, tmp_path]
    place = Path(str(scale.__file__)).parent
    done = subprocess.run(words, cwd=place, stdout=subprocess.PIPE, check=True)
    line = scale.Line(**json.loads(done.stdout))
    size = storage_bytes(tuple(scale.contribution(k, tmp_path, 2) for k in range(4)))
    assert (line.M, line.P, line.measured) == (8, 4, True)
    assert size < line.state < 1.5 * size  # and the model
    assert line.peak > 0
    assert 0 < line.untriggered < line.triggered


def test_projections_follow_the_straight_line(scale: ModuleType) -> None:
    one = scale.Line(20, 10, 100.0, 50.0, 300.0, 0.1, 1.0, 7)
    two = scale.Line(40, 20, 200.0, 90.0, 500.0, 0.2, 3.0, 9)
    found = scale.projected(100, 50, [one, two])
    assert (found.M, found.P, found.measured) == (100, 50, False)
    assert (found.state, found.held, found.peak) == (500.0, 210.0, 1100.0)
    assert found.triggered == pytest.approx(9.0)


def test_scale_is_drawn_and_printed(scale: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    one = scale.Line(20, 10, 2**20, 2**21, 2**22, 0.001, 1.0, 7)
    half = [one, scale.Line(40, 20, 2**21, 2**22, 2**23, 0.002, 2.0, 0, measured=False)]
    scale.print_table("kfac", half)
    scale.print_messages(["kfac"])
    printed = capsys.readouterr().out
    assert "| 20 | 10 | 1 | 2 | 4 | 1.000 | 1.00 | 7 |" in printed
    assert "| 40 | 20 | ~2 | ~4 | ~8 | ~2.000 | ~2.00 |  |" in printed
    assert "* 845 MiB for 5000 clients" in printed
    for figure in (
        scale.draw_memory({"kfac": half}),
        scale.draw_time({"kfac": half}, {"kfac": half}),
    ):
        assert scale.render(figure, "png").startswith(PNG)
