"""The commands of docs/inspect.md print what the page shows."""

import shlex
from pathlib import Path

import pytest
from test_pages import FENCE, ROOT
from typer.testing import CliRunner

from testbed.cli.app import app

PAGE = ROOT / "docs" / "inspect.md"


def examples() -> list[tuple[str, str]]:
    """Return each block of commands with the output that follows it."""
    found = FENCE.findall(PAGE.read_text())
    return [
        (found[n][1], found[n + 1][1])
        for n in range(len(found) - 1)
        if (found[n][0], found[n + 1][0]) == ("console", "text")
    ]


@pytest.mark.parametrize(("commands", "output"), examples(), ids=["city_grid", "generated"])
def test_the_page_shows_what_is_printed(
    commands: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    printed = ""
    for line in commands.splitlines():
        result = CliRunner().invoke(app, shlex.split(line)[1:])
        assert result.exit_code == 0, result.output
        printed += result.output
    assert printed.rstrip() == output.rstrip()
