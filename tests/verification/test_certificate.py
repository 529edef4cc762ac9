"""The whole certificate: what is printed, what is written, and that it repeats."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certified import SMALL

from testbed.cli import verify as command
from testbed.config import Experiment, spec_hash
from testbed.errors import ConfigError, EditError, ResultsError
from testbed.files import to_json
from testbed.learning.task import Task
from testbed.verification.certificate import (
    NAMES,
    attempt,
    certificate,
    configured,
    parts,
    to_markdown,
    write,
)
from testbed.verification.erasure import erasure
from testbed.verification.part import Part

GOOD = Part("exact", True, "All is well.", {"cases": 3})
BAD = Part("law", False, "M = 5, P = 2: the new subset is not uniform.", {"p_value": 0.0})


@pytest.fixture(scope="module")
def values(whole: tuple[Path, str]) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((whole[0] / "certificate.json").read_text())
    return read


def numbers(values: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [part["numbers"] for part in values["parts"] if part["name"] == name]
    return dict(found)


def test_the_certificate_says_what_was_verified(
    values: dict[str, Any], experiment: Experiment
) -> None:
    assert values["schema"] == 1
    assert values["passed"] is True
    assert values["hash"] == spec_hash(experiment)
    assert values["config"] == experiment.model_dump(mode="json")
    assert values["seed"] == 0
    assert {"python", "torch", "fsosa-testbed"} <= set(values["versions"])
    assert tuple(part["name"] for part in values["parts"]) == NAMES
    assert all(part["passed"] and part["sentence"] for part in values["parts"])


def test_it_covers_what_it_promises(values: dict[str, Any]) -> None:
    exact = numbers(values, "exact")
    # 370 cases that keep P clients, and those below P in which somebody is left.
    feasible = sum(
        M - d + a >= P
        for M in range(1, 8)
        for P in range(1, M + 1)
        for d in range(min(3, M) + 1)
        for a in range(4)
    )
    below = sum(
        0 < M - d + a < P
        for M in range(1, 8)
        for P in range(1, M + 1)
        for d in range(min(3, M) + 1)
        for a in range(4)
    )
    assert exact["cases"] == feasible + below
    assert (exact["largest_population"], exact["most_joins"], exact["most_leaves"]) == (7, 3, 3)
    law = numbers(values, "law")
    assert (law["population"], law["subset"]) == (50, 25)
    assert min(law[name]["p_value"] for name in ("inclusion", "pattern")) > 1e-5
    assert [(row["population"], row["subset"]) for row in numbers(values, "rate")["groups"]] == [
        (50, 25),
        (6, 3),
    ]
    assert set(numbers(values, "bitwise")["triggered"]) == {"kfac", "diagonal"}
    assert numbers(values, "erasure")["clients_erased"] > 0


def test_the_page_is_short_and_complete(whole: tuple[Path, str], values: dict[str, Any]) -> None:
    page = (whole[0] / "certificate.md").read_text()
    assert page == to_markdown(values)
    assert page.startswith("# Certificate of exact editing\n\nEvery part passed")
    assert len(page.splitlines()) < 20
    for part in values["parts"]:
        assert f"| {part['name']} | passed | {part['sentence']} |" in page
    assert f"configuration {values['hash']}" in page


def test_the_table_is_printed(whole: tuple[Path, str]) -> None:
    out, printed = whole
    for name in NAMES:
        assert name in printed
    assert printed.count("passed") == len(NAMES)
    assert str(out / "certificate.md") in printed
    assert [path.name for path in sorted(out.iterdir())] == ["certificate.json", "certificate.md"]


def test_a_part_repeats_its_numbers(
    values: dict[str, Any], experiment: Experiment, task: Task, tmp_path: Path
) -> None:
    assert erasure(experiment, task, 12, tmp_path).numbers == numbers(values, "erasure")


def test_equal_findings_give_equal_files(tmp_path: Path, experiment: Experiment) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, experiment, [GOOD, BAD])
    for name in ("certificate.json", "certificate.md"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert to_json(certificate(experiment, [GOOD]))


def test_a_failed_part_fails_the_certificate(
    tmp_path: Path,
    experiment: Experiment,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def found(experiment: Experiment) -> Iterator[Part]:
        yield GOOD
        yield BAD

    monkeypatch.setattr(command, "NAMES", ("exact", "law"))
    monkeypatch.setattr(command, "parts", found)
    assert command.verify(None, SMALL, tmp_path) is False
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert f"failed: law: {BAD.sentence}" in printed.splitlines()
    read = json.loads((tmp_path / "certificate.json").read_text())
    assert [part["passed"] for part in read["parts"]] == [True, False]
    assert read["passed"] is False
    page = (tmp_path / "certificate.md").read_text()
    assert "At least one part failed: the edits are **not** exact." in page
    assert f"| law | **FAILED** | {BAD.sentence} |" in page


def test_an_edit_that_ends_with_an_error_fails_its_part() -> None:
    def check() -> Part:
        raise EditError("3 clients are left")

    part = attempt("bitwise", check)
    assert part == Part("bitwise", False, "It ended with an error: 3 clients are left.", {})


def test_overrides_win_over_the_built_in_task(tmp_path: Path) -> None:
    assert configured(None).clients.pool == 12
    assert configured(None, ["clients.pool=9"]).clients.pool == 9
    own = tmp_path / "own.yaml"
    own.write_text("name: own\n")
    # With a file, nothing of the built-in task is left.
    assert configured(own).clients.pool == Experiment().clients.pool
    assert configured(own, ["clients.pool=7"]).clients.pool == 7


def test_mistakes_are_one_line(tmp_path: Path, experiment: Experiment) -> None:
    with pytest.raises(ConfigError, match="cannot read config"):
        command.verify(tmp_path / "none.yaml", [], tmp_path)
    with pytest.raises(ConfigError, match=r"clients\.poool: unknown key"):
        command.verify(None, ["clients.poool=3"], tmp_path)
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ResultsError, match="choose a writable folder with --out"):
        write(blocked, experiment, [GOOD])
    with pytest.raises(ConfigError, match="gives an empty subset"):
        # Known before anything is enumerated.
        next(parts(configured(None, ["clients.initial=null", "editing.rho=0.1"])))
