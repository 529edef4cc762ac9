"""A user's mistake: one line, exit code 2, nothing written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import everything
from minute import MINUTE

Call = Callable[..., tuple[int, list[str], list[str]]]
CITY = Path(__file__).resolve().parents[2] / "sumo_scenarios" / "city_grid"


@pytest.fixture
def refused(call: Call, place: Path) -> Callable[..., str]:
    """Return a function that runs ``testbed`` with a mistake and returns what it says."""

    def run(*arguments: object) -> str:
        before = everything(place)
        code, _, err = call(*arguments)
        assert code == 2
        assert len(err) == 1
        assert err[0].startswith("error: ")
        assert "Traceback" not in err[0]
        assert everything(place) == before
        return err[0].removeprefix("error: ")

    return run


Refused = Callable[..., str]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("editing.roh=0.3", ("editing.roh: unknown key", "rho")),
        ("editting.rho=0.3", ("editting", "editing")),
        ("mobility.rsu.raduis=3", ("raduis", "radius")),
        ("editing.rho=1.5", ("editing.rho", "1.5", "at most 1")),
        ("editing.rho=1.01", ("editing.rho", "at most 1")),
        ("editing.rho=0", ("editing.rho", "greater than 0")),
        ("editing.rho=-0.5", ("editing.rho", "-0.5")),
        ("editing.rho=.nan", ("editing.rho",)),
        ("editing.rho=half", ("editing.rho", "half", "number")),
        ("editing.rho=0.1", ("editing.rho 0.1", "clients.initial 4", "P = 0")),
        ("editing.requests=-1", ("editing.requests", "at least 0")),
        ("editing.methods=[fsosa,magic]", ("editing.methods", "magic", "fsosa")),
        ("editing.methods=[fsosa,fsosa]", ("methods", "once")),
        ("clients.initial=7", ("initial is 7", "6 partitions")),
        ("clients.pool=4000", ("4000", "clients.pool")),
        ("mobility.participation=2", ("mobility.participation", "at most 1")),
        ("mobility.trace=nowhere.csv", ("nowhere.csv",)),
        ("mobility.warmup=100", ("100 s", "mobility.warmup")),
        ("learning.model=lenet", ("too small", "small-cnn")),
        ("data.name=mnist", ("mnist", "data.path")),
        ("seeds=[]", ("seeds",)),
        ("editing", ("KEY=VALUE",)),
    ],
)
def test_a_wrong_setting(refused: Refused, setting: str, words: tuple[str, ...]) -> None:
    told = refused("run", "tiny.yaml", "--set", setting)
    assert all(word in told for word in words), told


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nope"], "No such command 'nope'; see 'testbed --help'"),
        (["run"], "Missing argument 'config'; see 'testbed run --help'"),
        (["store", "info", "a", "b"], "(b); see 'testbed store info --help'"),
        (["sweep", "tiny.yaml", "--gird", "x"], "--gird"),
        (["doctor", "--fix=3"], "Option '--fix' does not take a value; see 'testbed --help'"),
        (["store", "prune", "--limit-gb", "much"], "'--limit-gb'"),
    ],
)
def test_a_wrong_command(refused: Refused, arguments: list[str], told: str) -> None:
    assert told in refused(*arguments)


def test_a_command_without_its_name_shows_what_there_is(call: Call) -> None:
    for arguments in ([], ["store"]):
        code, out, err = call(*arguments)
        assert (code, out) == (2, [])
        assert err[0].startswith("Usage: testbed")
        assert any("prune" in line or "sweep" in line for line in err)


def test_a_wrong_key_in_the_file(refused: Refused, place: Path) -> None:
    config = place / "tiny.yaml"
    config.write_text(config.read_text().replace("editing:", "editting:"))
    assert refused("run", "tiny.yaml") == "editting: unknown key; did you mean editing?"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ("cannot read", "No such file")),
        (b"editing: [", ("not valid YAML",)),
        (b"- a\n- b\n", ("key: value",)),
        (b"\xff\xfe\x00", ("UTF-8",)),
        (b"editing:\n  rho: 0.5\n  rho: 0.6\n", ("line 3", "twice")),
    ],
)
def test_an_unreadable_config(
    refused: Refused, place: Path, content: bytes | None, words: tuple[str, ...]
) -> None:
    if content is not None:
        (place / "broken.yaml").write_bytes(content)
    told = refused("run", "broken.yaml")
    assert "broken.yaml" in told
    assert all(word in told for word in words), told


def test_a_folder_is_no_config(refused: Refused, place: Path) -> None:
    (place / "folder.yaml").mkdir()
    assert "folder.yaml" in refused("run", "folder.yaml")


def test_more_clients_than_the_trace_offers(refused: Refused) -> None:
    told = refused("run", "tiny.yaml", "--set", "clients.initial=6")
    assert "clients.initial asks for 6" in told
    assert "never more than 5 at a time" in told


def test_more_clients_than_the_traffic_offers(refused: Refused) -> None:
    told = refused(
        "run", "tiny.yaml", "--set", "mobility.source=sumo", "--set", "mobility.end=30",
        "--set", "clients={initial: 90, pool: 100}",
    )  # fmt: skip
    assert "clients.initial asks for 90" in told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (MINUTE.replace("30.0,a", "3.0,a"), ("line 8", "3 comes after 20", "sort")),
        (MINUTE.replace("1.0,a,join\n", ""), ("line 7", "'a' leaves but never joined")),
        (MINUTE.replace("20.0,e", "20.0,d"), ("line 7", "'d' joins but is a member")),
        (MINUTE[:-4], ("line 10", "cut off")),
        (MINUTE[:-8] + "\n", ("line 10",)),
        (MINUTE.replace("20.0,e", "soon,e"), ("line 7", "'soon'")),
        (MINUTE.replace("e,join", "e,enter"), ("line 7", "'enter'")),
        (MINUTE.replace("time,", "when,"), ("line 2", "when,vehicle,kind")),
        (MINUTE.replace("60.0", "6.0"), ("end 6.0",)),
        ("", ("minute.csv",)),
        ("# end: 60\ntime,vehicle,kind\n", ("no vehicle ever joined",)),
    ],
)
def test_a_broken_trace(
    refused: Refused, place: Path, content: str, words: tuple[str, ...]
) -> None:
    (place / "minute.csv").write_text(content)
    told = refused("run", "tiny.yaml")
    assert all(word in told for word in words), told


def scenario(place: Path, extra: str = "", routes: str = "<routes/>") -> str:
    shutil.copy(CITY / "net.net.xml.gz", place)
    (place / "demand.rou.xml").write_text(routes)
    (place / "own.sumocfg").write_text(
        '<configuration><input><net-file value="net.net.xml.gz"/>'
        f'<route-files value="demand.rou.xml"/></input>{extra}</configuration>'
    )
    return "mobility.scenario=./own.sumocfg"


BACKENDS = pytest.mark.parametrize("backend", ["libsumo", "traci"])


@BACKENDS
def test_broken_scenarios(refused: Refused, place: Path, backend: str) -> None:
    live = ("--set", "mobility.source=sumo", "--set", f"mobility.backend={backend}")

    def told(setting: str) -> str:
        return refused("run", "tiny.yaml", *live, "--set", setting)

    assert "absent.sumocfg" in told("mobility.scenario=./absent.sumocfg")
    assert "'city_gird'" in (said := told("mobility.scenario=city_gird"))
    assert "city_grid" in said
    own = scenario(place)
    # No vehicle at all: the warm-up comes to nothing.
    assert "no vehicle ever joined" in told(own)
    (place / "own.sumocfg").write_text("<configuration><input>")
    assert "own.sumocfg" in told(own)
    own = scenario(place, extra='<random_number><random value="true"/></random_number>')
    assert "random" in told(own)
    scenario(place, routes='<routes><vehicle id="a" depart="1"><route edges="A0A1 nope"/>')
    assert "demand.rou.xml" in told(own) or "nope" in told(own)
    (place / "demand.rou.xml").unlink()
    assert "demand.rou.xml" in told(own)


@BACKENDS
def test_demand_that_breaks_in_mid_run_ends_with_sumos_words(
    refused: Refused, place: Path, backend: str
) -> None:
    stays = '<stop lane="A0A1_0" startPos="20" endPos="40" parking="true" duration="3000"/>'
    good = "".join(
        f'<vehicle id="v{n}" depart="{n}"><route edges="A0A1 A1A2"/>{stays}</vehicle>'
        for n in range(5)
    )
    late = '<vehicle id="w" depart="400"><route edges="A0A1 A1A2"/></vehicle>'
    bad = '<vehicle id="x" depart="900"><route edges="A0A1 nope"/></vehicle>'
    own = scenario(place, routes=f"<routes>{good}{late}{bad}</routes>")
    told = refused(
        "run", "tiny.yaml", "--set", "mobility.source=sumo", "--set", own,
        "--set", f"mobility.backend={backend}", "--set", "editing.requests=99",
    )  # fmt: skip
    assert "SUMO stopped" in told
    assert "'nope'" in told


@pytest.mark.parametrize("out", ["taken", "taken/below", "/proc/nowhere/at/all", "a" * 300])
def test_an_unwritable_results_folder(refused: Refused, place: Path, out: str) -> None:
    (place / "taken").write_text("a file")
    told = refused("run", "tiny.yaml", "--out", out)
    assert out in told
    assert "--out" in told
    assert (place / "taken").read_text() == "a file"


def test_results_of_another_spec_and_foreign_folders(
    refused: Refused, call: Call, place: Path
) -> None:
    assert call("run", "tiny.yaml", "--out", "out", "--set", "editing.methods=[fsosa]")[0] == 0
    told = refused("run", "tiny.yaml", "--out", "out", "--set", "editing.rho=0.75")
    assert "another spec" in told
    assert "editing.rho: 0.5 there, 0.75 here" in told
    (place / "thesis").mkdir()
    (place / "thesis" / "one.tex").write_text("chapter")
    assert "not empty" in refused("run", "tiny.yaml", "--out", "thesis")
    (next((place / "out").glob("fsosa-*")) / "seed=0" / "manifest.json").write_text("{")
    assert "remove that folder" in refused("run", "tiny.yaml", "--out", "out")
    assert "manifest.json" in refused("plot", "out")


def test_plotting_nothing(refused: Refused, place: Path) -> None:
    assert "no such results folder" in refused("plot", "nowhere")
    (place / "empty").mkdir()
    assert "no finished run" in refused("plot", "empty")


def test_the_same_command_goes_through_once_the_mistake_is_corrected(
    refused: Refused, call: Call
) -> None:
    one = ("run", "tiny.yaml", "--set", "editing.methods=[finetune]")
    refused(*one, "--set", "clients.initial=6")
    code, out, err = call(*one)
    assert (code, err) == (0, [])
    assert "report:  results/tiny/report.html" in out
