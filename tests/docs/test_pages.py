"""Every code block of the documentation runs, every command parses, every link leads somewhere."""

import re
import shlex
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlparse

import pytest
import yaml

from testbed.claims.measures import check
from testbed.config import load
from testbed.config.cards import load_card
from testbed.config.schema import Experiment

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("results/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")
TRACE = "time,vehicle,kind\n" + "".join(
    f"{time},veh{number},join\n" for number, time in enumerate([0, 0, 0, 0, 5, 6])
)


def blocks(page: Path, language: str) -> list[str]:
    return [code for kind, code in FENCE.findall(page.read_text()) if kind == language]


def commands(page: Path) -> list[list[str]]:
    found = []
    for block in blocks(page, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and Path(words[0]).name == "testbed":
                found.append(words[1:])
    return found


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny finished experiment, where the pages expect the quickstart's."""
    from testbed.experiments.run import run

    folder = tmp_path_factory.mktemp("docs")
    trace = folder / "trace.csv"
    trace.write_text(TRACE)
    settings = [
        "mobility.source=trace",
        f"mobility.trace={trace}",
        "mobility.warmup=1",
        "clients.pool=6",
        "learning.epochs=1",
        "editing.requests=2",
    ]
    list(run(load(None, settings), folder / "results" / "quickstart"))
    return folder / "results" / "quickstart"


@pytest.mark.parametrize("page", with_blocks("python"), ids=name_of)
def test_python_blocks_run(page: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if any("testbed.learning.detection" in code for code in blocks(page, "python")):
        pytest.importorskip("ultralytics", reason="needs the extra yolo", exc_type=ImportError)
    monkeypatch.chdir(results.parents[1])
    namespace: dict[str, object] = {"results": results}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), namespace)  # the page's own code


@pytest.mark.parametrize("page", with_blocks("yaml"), ids=name_of)
def test_yaml_blocks_are_valid_configurations(page: Path, tmp_path: Path) -> None:
    for number, text in enumerate(blocks(page, "yaml")):
        data = yaml.safe_load(text)
        text = text.replace("../configs/", f"{ROOT / 'configs'}/")
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        if "says" in data:
            check(load_card(path))
            continue
        if not set(data) <= {*Experiment.model_fields, "extends"}:
            continue  # a scenario's or another tool's file
        assert load(path).name


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=name_of)
def test_commands_parse(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.main import get_command

    from testbed.cli.app import app

    monkeypatch.chdir(ROOT)
    for words in commands(page):
        command = get_command(app)
        while hasattr(command, "commands"):
            assert words, f"{page.name}: incomplete command"
            command = command.commands[words[0]]
            words = words[1:]
        context = command.make_context("testbed", list(words), resilient_parsing=False)
        with context:
            values = context.params
        if command.name == "run" and Path(values["config"]).is_file():
            assert load(Path(values["config"]), values["set_"] or []).editing.methods


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if urlparse(target).scheme:
            continue
        path = page.parent / target.split("#")[0]
        assert path.exists(), f"{name_of(page)} links to {target}"


def test_the_configuration_of_the_tutorial_runs(tmp_path: Path) -> None:
    """With less training and fewer requests, and otherwise as it is printed."""
    from testbed.experiments.run import run

    (text,) = blocks(ROOT / "docs" / "tutorial.md", "yaml")
    path = tmp_path / "dense.yaml"
    path.write_text(text.replace("../configs/", f"{ROOT / 'configs'}/"))
    settings = ["seeds=0", "learning.epochs=1", "fisher.kind=diagonal", "editing.requests=3"]
    experiment = load(path, [*settings, "editing.methods=fsosa"])
    (done,) = run(experiment, tmp_path / "results")
    assert (done.cell.folder / "manifest.json").is_file()


def test_the_readme_recipe_for_pictures_learns() -> None:
    """The quickstart's learning rate would leave LeNet at chance."""
    words = next(w for w in commands(ROOT / "README.md") if "data.name=fashion-mnist" in w)
    settings = [value for word, value in pairwise(words) if word == "--set"]
    assert {"learning.lr=0.01", "learning.model=lenet"} <= set(settings)
