"""Input files that themselves ask for outputs, by other means than detectors."""

from collections.abc import Callable
from pathlib import Path

import pytest
from traffic import record

from testbed.config.schema import MobilityConfig
from testbed.mobility.headless import headless

Make = Callable[..., Path]

TYPES = """<vType id="m"/><vType id="t">
    <param key="has.ssm.device" value="true"/><param key="device.ssm.file" value="ssm.xml"/>
    <param key="has.toc.device" value="true"/><param key='device.toc.file' value="toc.xml"/>
    <param key="device.toc.manualType" value="m"/><param key="device.toc.automatedType" value="t"/>
</vType>"""
VEHICLES = """<vehicle id="a" type="t" depart="5"><route edges="A0A1 A1A2"/>
    <param key="device.ssm.file" value="own.xml"/></vehicle>
<vehicle id="b" type="t" depart="7"><route edges="A0A1 A1A2"/></vehicle>"""
LIGHT = """<tlLogic id="B1" type="actuated" programID="x" offset="0">
    <param key="file" value="light.xml"/><param key="freq" value="10"/>
    <phase duration="30" state="GGGgrrrrGGGgrrrr" minDur="5" maxDur="50"/>
    <phase duration="30" state="rrrrGGGgrrrrGGGg" minDur="5" maxDur="50"/></tlLogic>"""


def with_additional(path: Path, content: str) -> None:
    (path.parent / "more.add.xml").write_text(f"<additional>{content}</additional>")
    named = '<additional-files value="more.add.xml"/></input>'
    path.write_text(path.read_text().replace("</input>", named))


@pytest.fixture(params=["routes", "additional"])
def writing(request: pytest.FixtureRequest, make_scenario: Make) -> Path:
    """Return a scenario whose vehicle types stand in one of two files."""
    among_routes = request.param == "routes"
    path = make_scenario(routes=f"<routes>{TYPES if among_routes else ''}{VEHICLES}</routes>")
    with_additional(path, LIGHT + ("" if among_routes else TYPES))
    return path


@pytest.mark.parametrize("backend", ["libsumo", "traci"])
def test_devices_and_lights_write_nothing(
    writing: Path, backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    before = {entry.name: entry.read_bytes() for entry in writing.parent.iterdir()}
    events = record(MobilityConfig(scenario=str(writing), backend=backend))
    assert [(event.vehicle, event.kind) for event in events].count(("a", "join")) == 1
    assert len(events) == 4
    assert {entry.name: entry.read_bytes() for entry in writing.parent.iterdir()} == before
    assert list(here.iterdir()) == []


def test_the_devices_stay_and_only_their_files_change(writing: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    headless(writing, folder)
    content = "".join(path.read_text() for path in sorted(folder.glob("*-files-*.xml")))
    assert content.count('value="/dev/null"') == 4
    assert content.count('key="has.ssm.device" value="true"') == 1
    assert content.count('key="freq" value="10"') == 1
    assert "own.xml" not in content


def test_files_that_ask_for_nothing_are_used_as_they_are(
    make_scenario: Make, tmp_path: Path
) -> None:
    path = make_scenario()
    folder = tmp_path / "copy"
    folder.mkdir()
    headless(path, folder)
    assert not list(folder.glob("*-file*-*.xml"))
