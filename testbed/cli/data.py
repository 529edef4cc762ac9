"""``testbed data``: which data sets can be learned from, and what is in the user's files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from testbed.cli.output import complain
from testbed.cli.partition import partition
from testbed.errors import ConfigError, DataError

if TYPE_CHECKING:
    from testbed.data import Dataset
    from testbed.data.summary import Summary

app = typer.Typer(help="Data sets.", no_args_is_help=True)
app.command()(partition)

_FAULTY = 2

Place = Annotated[Path, typer.Argument(help="Folder of a data set, or an .npz bundle.")]
Name = Annotated[
    str | None, typer.Option(help="Take it for this data.name; default: what it looks like.")
]
TestShare = Annotated[
    float, typer.Option(help="Test share to draw if there is no test part; data.test_share.")
]


@app.command("list")
def list_datasets() -> None:
    """List the data sets, where each is read from, and its size if it is there."""
    from rich.console import Console
    from rich.table import Table

    from testbed.config.schema import DataConfig
    from testbed.data import load_dataset, origin

    table = Table("data.name", "found", "train + test", "shape")
    table.add_column("read from", overflow="fold")
    missing = []
    for name in _names():
        config = DataConfig.model_validate({"name": name})
        source = origin(config) or "what data.path names"
        try:
            data = load_dataset(config)
        except DataError as error:
            table.add_row(name, "no", "", "", source)
            missing.append(str(error))
            continue
        table.add_row(name, "yes", _sizes(data), _shape(data), source)
    console = Console()
    console.print(table)
    for line in missing:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def check(path: Place, name: Name = None, test_share: TestShare = 0.2) -> None:
    """Read everything in PATH and say what it is; every fault is a line, and exit code 2."""
    from testbed.data.summary import summarise

    title, data = _loaded(path, name, test_share)
    _print(title, data, summarise(data))


@app.command()
def show(
    path: Place,
    name: Name = None,
    test_share: TestShare = 0.2,
    out: Annotated[Path, typer.Option(help="Where to write it, *.png.", dir_okay=False)] = Path(
        "sheet.png"
    ),
    columns: Annotated[int, typer.Option(min=1, max=100, help="Pictures per class.")] = 12,
) -> None:
    """Draw a contact sheet of PATH: a row of training pictures for each class."""
    from testbed.files import write_bytes
    from testbed.reporting.sheet import contact_sheet
    from testbed.reporting.style import render

    if out.suffix != ".png":
        raise ConfigError(f"--out {out}: call it *.png")
    _, data = _loaded(path, name, test_share)
    write_bytes(out, render(contact_sheet(data, columns), "png"), advice="choose another --out")
    typer.echo(out)


def _names() -> tuple[str, ...]:
    from testbed.config.schema import DataConfig

    return get_args(DataConfig.model_fields["name"].annotation)


def _loaded(path: Path, name: str | None, test_share: float) -> "tuple[str, Dataset]":
    """Recognise and load all of it, or print a line per fault and leave."""
    from testbed.config import load
    from testbed.data import load_dataset
    from testbed.data.faults import faults_of
    from testbed.data.recognise import recognise
    from testbed.data.summary import identified

    known = [known for known in _names() if known != "digits"]
    if name is not None and name not in known:
        raise ConfigError(f"--name {name}: not a data set in files; use {', '.join(known)}")
    try:
        found = recognise(path, name)
        settings = [f"data.name={found.name}", f"data.test_share={test_share}"]
        config = load(None, settings).data.model_copy(update={"path": path})
        data = load_dataset(config)
    except DataError as error:
        for line in faults_of(error):
            complain(f"error: {' '.join(line.split())}")
        raise typer.Exit(_FAULTY) from None
    title = f"{found.format.title}, {found.path}"
    return title, data if name else identified(data)


def _print(title: str, data: "Dataset", summary: "Summary") -> None:
    from rich.console import Console
    from rich.table import Table

    facts = {
        "recognised as": title,
        "data.name": data.name,
        "train + test": _sizes(data),
        "shape": _shape(data),
    }
    if summary.writers is not None:
        writers = summary.writers
        facts["writers"] = (
            f"{writers.count}, with {writers.least} to {writers.most} training pictures, "
            f"median {writers.median:g}"
        )
    official = ", that of the official files" if summary.official else ""
    facts["fingerprint"] = f"{data.fingerprint}{official}"
    facts["of its parts"] = f"train {summary.train_mark}, test {summary.test_mark}"
    table = Table("class", "train", "test")
    for row in zip(data.classes, summary.train, summary.test, strict=True):
        table.add_row(*map(str, row))
    console = Console(markup=False, highlight=False)
    width = max(map(len, facts)) + 2
    for name, fact in facts.items():
        console.print(f"{name:<{width}}{fact}", soft_wrap=True)
    console.print(table)
    for note in summary.notes:
        console.print(f"note: {note}", soft_wrap=True)
    if not summary.notes:
        console.print("nothing wrong")


def _sizes(data: "Dataset") -> str:
    return f"{len(data.y_train)} + {len(data.y_test)}"


def _shape(data: "Dataset") -> str:
    return "x".join(map(str, data.x_train.shape[1:]))
