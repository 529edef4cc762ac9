import gzip
import shutil
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.errors import ConfigError, ScenarioError
from testbed.mobility.building import build, cached_routes, demand, network
from testbed.mobility.headless import fingerprint, headless
from testbed.mobility.scenarios import find, known
from testbed.mobility.sumo import last_words, program, run_tool

Make = Callable[..., Path]
CITY = Path(__file__).resolve().parents[2] / "sumo_scenarios" / "city_grid"


def test_the_city_is_known_wherever_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert known()["city_grid"] == CITY
    scenario = find("city_grid")
    assert scenario.config == CITY / "city_grid.sumocfg"
    assert scenario.rsu == (800, 800, 500)
    assert scenario.warmup == 600


def test_scenarios_of_the_current_folder_are_known_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CITY, tmp_path / "sumo_scenarios" / "village")
    monkeypatch.chdir(tmp_path)
    assert list(known()) == ["city_grid", "village"]
    assert find("village").name == "village"


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ScenarioError, match=r"'city_gird'.* did you mean 'city_grid'\?.*known"):
        find("city_gird")
    with pytest.raises(ScenarioError, match=r"no scenario called '/no/such.sumocfg'"):
        find("/no/such.sumocfg")


def test_a_path_may_name_the_file_or_its_folder(make_scenario: Make) -> None:
    path = make_scenario()
    assert find(str(path)) == find(str(path.parent))
    assert find(str(path)).name == "own-run"
    assert find(str(path)).generator is None
    shutil.copy(path, path.with_name("other.sumocfg"))
    with pytest.raises(ScenarioError, match=r"own holds 2 .sumocfg files; give the path"):
        find(str(path.parent))
    (path.parent / "scenario.yaml").write_text("config: other.sumocfg\nwarmup: 7\n")
    assert find(str(path.parent)).config.name == "other.sumocfg"
    assert find(str(path)).warmup == 7
    with pytest.raises(ScenarioError, match=r"is not a .sumocfg file"):
        find(str(path.parent / "demand.rou.xml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rsu: {x: 1, y: 2}", "'radius' is missing"),
        ("rsu: {x: one, y: 2, radius: 3}", "could not convert string to float: 'one'"),
        ("speed: 3", "unknown key 'speed'"),
        ("generator: {net: a}", "missing .* required"),
        ("[1, 2]", "must hold keys and values"),
        ("a: [", r", line 1 is not valid YAML: expected the node content"),
        ("title: a\nrsu: {x: 1\n", r", line 3 is not valid YAML: expected ',' or '}'"),
        ("title: a: b", r", line 1 is not valid YAML: mapping values are not allowed here"),
    ],
)
def test_a_wrong_description_is_refused(make_scenario: Make, text: str, message: str) -> None:
    path = make_scenario()
    (path.parent / "scenario.yaml").write_text(text)
    with pytest.raises(ScenarioError, match=f"scenario.yaml.*{message}") as caught:
        find(str(path))
    assert "\n" not in str(caught.value)


def test_the_committed_files_are_what_the_settings_make() -> None:
    generator = find("city_grid").generator
    assert generator is not None
    assert ET.parse(CITY / "city_grid.sumocfg").find("time/end").get("value") == "3600"
    assert generator.end == 3600
    made = (network(generator), demand(find("city_grid"), generator.density))
    committed = [(CITY / name).read_bytes() for name in (generator.net, generator.routes)]
    # Inflated: another zlib may pack the same text differently.
    assert [gzip.decompress(content) for content in made] == [
        gzip.decompress(content) for content in committed
    ]
    assert all(len(content) < 200_000 for content in committed)


def test_build_gives_the_same_bytes_each_time(tmp_path: Path) -> None:
    first = build("city_grid", 7.5, tmp_path / "a")
    second = build("city_grid", 7.5, tmp_path / "b")
    assert first.name == "city_grid-7.5.rou.xml.gz"
    assert first.read_bytes() == second.read_bytes()
    content = gzip.decompress(first.read_bytes())
    assert b"<!--" not in content
    vehicles = ET.fromstring(content).findall("vehicle")
    assert [float(vehicle.attrib["depart"]) for vehicle in vehicles[:3]] == [0, 7.5, 15]
    assert len(vehicles) == 480


def test_the_cache_is_filled_once_and_keyed_by_density(tmp_path: Path) -> None:
    scenario = find("city_grid")
    assert cached_routes(scenario, 2.0) == CITY / "routes.rou.xml.gz"
    path = cached_routes(scenario, 9.0)
    assert path.is_relative_to(tmp_path / "cache")
    written = path.stat().st_mtime_ns
    assert cached_routes(scenario, 9.0) == path
    assert path.stat().st_mtime_ns == written
    assert cached_routes(scenario, 8.0) != path
    assert len(list(path.parent.iterdir())) == 2


def test_only_generated_scenarios_are_built(make_scenario: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="density is only for generated scenarios"):
        build(str(make_scenario()), 2.0, tmp_path)


def test_a_tool_that_fails_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"netgenerate failed: .*nonsense"):
        run_tool([program("netgenerate"), "--nonsense"], tmp_path)


def test_last_words_are_the_errors_without_repetition() -> None:
    text = "Loading\nWarning: odd\nError: bad\n In file 'x'\nError: bad\nQuitting (on error).\n"
    assert last_words(text) == "bad In file 'x'"
    assert last_words("so it goes\n") == "so it goes"
    assert last_words("") == ""


def test_headless_keeps_inputs_and_drops_outputs(make_scenario: Make, tmp_path: Path) -> None:
    extra = (
        '<output><fcd-output value="f.xml"/></output><report><verbose value="true"/></report>'
        '<gui_only><start value="true"/></gui_only><processing><time-to-teleport value="60"/>'
        '</processing><routing><device.rerouting.threads value="2"/></routing>'
    )
    path = make_scenario(extra=extra)
    found = headless(path, tmp_path)
    root = ET.parse(found.config).getroot()
    assert {option.tag for section in root for option in section} == {
        "net-file",
        "route-files",
        "time-to-teleport",
    }
    assert root.find("input/net-file").get("value") == str(path.parent / "net.net.xml.gz")


def test_headless_sends_detectors_nowhere_and_keeps_what_they_read(
    make_scenario: Make, tmp_path: Path
) -> None:
    path = make_scenario()
    (path.parent / "more.add.xml").write_text(
        '<additional><e2Detector id="d" lane="A0A1_0" pos="1" file="out.xml"/>'
        '<rerouter id="r" edges="A0A1" file="reroute.xml"/>'
        '<timedEvent type="SaveTLSStates" source="B1" dest="tls.xml"/></additional>'
    )
    (path.parent / "plain.add.xml").write_text("<additional/>")
    files = '<additional-files value="more.add.xml,plain.add.xml"/></input>'
    path.write_text(path.read_text().replace("</input>", files))
    found = headless(path, tmp_path)
    named = ET.parse(found.config).getroot().find("input/additional-files").get("value")
    silenced, plain = named.split(",")
    assert plain == str(path.parent / "plain.add.xml")
    detector, rerouter, event = ET.parse(silenced).getroot()
    assert (detector.get("file"), event.get("dest")) == ("/dev/null", "/dev/null")
    assert rerouter.get("file") == str(path.parent / "reroute.xml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<configuration><nets", "run.sumocfg cannot be read: sumo failed: "),
        ("<configuration><nonsense value='1'/></configuration>", "No option with the name"),
        ("<configuration/>", "names no net-file"),
        (
            "<configuration><net-file value='gone.net.xml'/></configuration>",
            "names net-file .*gone.net.xml, which does not exist",
        ),
    ],
)
def test_a_broken_configuration_is_refused(
    make_scenario: Make, tmp_path: Path, text: str, message: str
) -> None:
    path = make_scenario()
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message) as caught:
        headless(path, tmp_path)
    assert "\n" not in str(caught.value)


def test_the_fingerprint_sees_every_input(make_scenario: Make, tmp_path: Path) -> None:
    path = make_scenario()
    before = headless(path, tmp_path).fingerprint
    assert headless(path, tmp_path).fingerprint == before
    demand_file = path.parent / "demand.rou.xml"
    demand_file.write_text(demand_file.read_text().replace('depart="400"', 'depart="401"'))
    assert headless(path, tmp_path).fingerprint != before


def test_the_fingerprint_looks_through_compression(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_bytes(b"<a/>")
    (tmp_path / "a.xml.gz").write_bytes(gzip.compress(b"<a/>", 1))
    assert fingerprint([tmp_path / "a.xml"]) == fingerprint([tmp_path / "a.xml.gz"])
    assert fingerprint([tmp_path / "a.xml"]) != fingerprint([])


def test_a_folder_in_place_of_a_file_is_called_one(make_scenario: Make, tmp_path: Path) -> None:
    path = make_scenario()
    (path.parent / "demand.rou.xml").unlink()
    with pytest.raises(ScenarioError, match=r"route-files .*demand.rou.xml, which does not exist"):
        headless(path, tmp_path)
    (path.parent / "demand.rou.xml").mkdir()
    with pytest.raises(ScenarioError, match=r"route-files .*, which is a folder, not a file"):
        headless(path, tmp_path)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(7)", r"failed: exit status 7$"),
        ("import os; os.kill(os.getpid(), 9)", r"failed: ended by signal 9$"),
        ("import os; os.kill(os.getpid(), 15)", r"failed: ended by signal 15$"),
        ("raise SystemExit('Error: no such edge')", r"failed: no such edge$"),
    ],
)
def test_a_tool_that_fails_says_how(tmp_path: Path, program: str, message: str) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(program)
    with pytest.raises(ScenarioError, match=f"^tool.py {message}"):
        run_tool([sys.executable, str(tool)], tmp_path)
