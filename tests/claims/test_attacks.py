"""What audits say of a claim's runs, over seeds."""

import json
from pathlib import Path

import pytest
from cards import STUDY

from testbed.claims.attacks import told_apart
from testbed.claims.measured import Evidence
from testbed.errors import ConfigError, ResultsError
from testbed.experiments.grid import read_grid
from testbed.experiments.sweep import sweep
from testbed.reporting.settings import read
from testbed.verification.audited import VERDICTS, audit_run, audited

OWN = [(0.5, 1e-6, 0.4), (0.02, 1e-4, 0.7), (1.0, 1e-9, 0.55)]


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    """Three runs whose audits said what stands above, and something else of fine-tuning."""
    (tmp_path / "study.yaml").write_text(STUDY)
    grid = read_grid(
        tmp_path / "study.yaml", ["rho=0.5"], ["fidelity=cost", "scale=small"], seeds="0:3",
        methods="fsosa",
    )  # fmt: skip
    assert not sweep(grid, tmp_path / "out").failed
    runs = read(tmp_path / "out")
    for run, (p, control, auc) in zip(runs, OWN, strict=True):
        said = {"finding": "indistinguishable", "p_value": p, "control_p": control, "auc": auc}
        tuned = {"finding": "distinguishable", "p_value": 1e-5, "control_p": 1e-5, "auc": 0.9}
        (run.folder / VERDICTS).write_text(
            json.dumps({"sizes": {}, "verdicts": {"fsosa": said, "finetune": tuned}})
        )
    return Evidence(runs)


def test_the_worst_of_the_seeds_counts(evidence: Evidence) -> None:
    # Three audits, three chances to be wrong.
    assert float(told_apart(evidence, "p").value.mean) == pytest.approx(3 * 0.02)
    assert float(told_apart(evidence, "control").value.mean) == 1e-4
    found = told_apart(evidence, "auc").value
    assert (float(found.mean), found.n) == (0.7, 3)
    assert found.low == found.high == found.mean


def test_methods_beside_are_asked_by_name(evidence: Evidence) -> None:
    assert float(told_apart(evidence, "p", "finetune").value.mean) == 1e-4
    assert float(told_apart(evidence, "auc", "finetune").value.mean) == 0.9


def test_a_method_that_was_not_audited_is_named(evidence: Evidence) -> None:
    with pytest.raises(ResultsError, match="'pfnm'"):
        told_apart(evidence, "p", "pfnm")


@pytest.mark.parametrize(
    "content",
    [
        "", "[1]", "{", '{"fsosa": 3}', '{"verdicts": {"fsosa": {"p_value": "x"}}}',
        '{"verdicts": {"fsosa": {"p_value": NaN}}}', '{"verdicts": {"fsosa": {"p_value": 2}}}',
    ],
)  # fmt: skip
def test_damaged_verdicts_are_named(evidence: Evidence, content: str) -> None:
    path = evidence.runs[1].folder / VERDICTS
    path.write_text(content)
    with pytest.raises(ResultsError, match=r"audit-verdicts\.json.*remove it"):
        told_apart(evidence, "p")
    path.unlink()
    with pytest.raises(ResultsError, match=r"audit-verdicts\.json"):
        told_apart(evidence, "p")


def test_runs_without_learning_are_not_audited(evidence: Evidence) -> None:
    with pytest.raises(ResultsError, match="nothing was trained"):
        audit_run(evidence.runs[0].folder)


def test_a_folder_above_is_told_where_the_runs_are(evidence: Evidence) -> None:
    with pytest.raises(ResultsError, match=r"not a run directory; name one such as .*seed=0"):
        audit_run(evidence.runs[0].folder.parents[2])
    with pytest.raises(ConfigError, match="--beside magic: no such method; known: fsosa"):
        audit_run(evidence.runs[0].folder, ["magic"])


def test_an_audit_of_other_sizes_is_another_audit(evidence: Evidence) -> None:
    place = evidence.runs[0].folder
    said = json.loads((place / VERDICTS).read_text())
    (place / VERDICTS).write_text(json.dumps({**said, "sizes": {"shadows": 16, "repeats": 8}}))
    assert audited(place, ["finetune"], {"repeats": 8})
    assert not audited(place, ["finetune"], {"repeats": 40})
    assert not audited(place, ["finetune", "fedrr"], {"repeats": 8})
    for content in ("", "[]", '{"sizes": 3, "verdicts": {}}'):
        (place / VERDICTS).write_text(content)
        assert not audited(place, [], {})
