"""``testbed reproduce``: try the claims of the paper and say which are met."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli.output import unfinished

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from testbed.claims.trial import Places
    from testbed.claims.verdict import Row
    from testbed.config.cards import Card, Scale

_WIDE = 120  # columns of a terminal that has room for all of the table's
_KEPT = "what is done is kept, run the same command again to go on"


def reproduce(
    claims: Annotated[
        list[str], typer.Argument(metavar="CLAIM...", help="Names of claim cards, or 'all'.")
    ],
    scale: Annotated[
        str, typer.Option(metavar="SCALE", help="smoke, small or paper: how much is run.")
    ] = "small",
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PLACE",
            help="Where a data set is: its folder or bundle, or a YAML file with its settings.",
        ),
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Only claims that need no training.")
    ] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Only execution.*, e.g. execution.kind."),
    ] = None,
    cards: Annotated[Path, typer.Option(help="Folder of the cards.")] = Path("configs/claims"),
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results/reproduction"),
) -> None:
    """Run what the claims need and is not there yet, compare, and write the table."""
    from testbed.claims.measures import check
    from testbed.claims.places import execution_of, places_of, scale_of
    from testbed.claims.trial import grids_of
    from testbed.config.cards import load_cards

    size = scale_of(scale)
    everyone = load_cards(cards)
    named = load_cards(cards, tuple(name for name in dict.fromkeys(claims) if name != "all"))
    chosen = everyone if "all" in claims else named
    chosen = tuple(card for card in chosen if not (untrained and card.trains))
    places, execution = places_of(data or []), execution_of(set_ or [], out)
    # Mistakes are told before anything is run.
    for card in chosen:
        check(card)
        grids_of(card, size, places, execution)
    with unfinished(_KEPT):
        fine = _tried(chosen, everyone, size, places, execution, out)
    raise typer.Exit(0 if fine else 1)


def _tried(
    chosen: "Sequence[Card]",
    everyone: "Sequence[Card]",
    scale: "Scale",
    places: "Places",
    execution: Mapping[str, Any],
    out: Path,
) -> bool:
    """Try claims one after another, print and write the table; whether no run failed."""
    from rich.console import Console

    from testbed.claims.figure import write as draw
    from testbed.claims.record import keep, recall
    from testbed.claims.table import tally, to_csv, to_markdown
    from testbed.claims.trial import attempt
    from testbed.cli.meter import Meter
    from testbed.cli.sweep_view import reasons
    from testbed.errors import TestbedError
    from testbed.experiments.lock import exclusive
    from testbed.files import write_text
    from testbed.reporting.units import time_text

    console, fine = Console(), True
    say = partial(_say, console)
    rows: list[Row] = []
    with exclusive(out):
        for number, card in enumerate(chosen, 1):
            _say(console, f"{card.name} ({number} of {len(chosen)})")
            folder = out / scale / card.name
            try:
                with Meter(console) as meter:
                    trial = attempt(card, scale, folder, places, execution, meter, say)
                known = keep(card, scale, folder, trial)
            except TestbedError as error:
                # One claim that cannot be tried does not stop the others.
                _say(console, f"failed: {card.name}: {error}")
                fine = False
                continue
            for line in reasons(trial.failed):
                _say(console, f"failed: {line}")
            fine = fine and not trial.failed
            rows += known.rows
            _say(console, f"{tally(known.rows)} It took {time_text(known.wall_s)} in all.")
        found = recall(everyone, out)
        write_text(out / "reproduction.md", to_markdown(everyone, found))
        everything = [row for each in found.values() for row in each.rows]
        write_text(out / "reproduction.csv", to_csv(everything))
        pictures = draw(everyone, everything, out)
    _show(console, rows)
    _say(console, tally(rows))
    _say(console, f"table:  {out / 'reproduction.md'}, {out / 'reproduction.csv'}")
    if pictures:
        _say(console, f"figure: {', '.join(map(str, pictures))}")
    return fine


def _show(console: "Console", rows: "Sequence[Row]") -> None:
    """Print the table of the verdicts, in pieces where the terminal is narrow."""
    from itertools import groupby

    from testbed.claims.table import HEAD, reasons

    if console.width >= _WIDE:
        console.print(_table(rows, ("claim", *HEAD)))
    else:
        left_out = ("bytes by", "scale")
        columns = [column for column in HEAD if column not in left_out]
        for (claim, scale), some in groupby(rows, lambda row: (row.claim, row.scale)):
            _say(console, f"{claim}, {scale}:")
            console.print(_table(list(some), columns))
    for line in reasons([row for row in rows if row.why]):
        _say(console, line)
    for basis in dict.fromkeys(row.basis for row in rows if row.basis):
        _say(console, f"* bytes by {basis}; the files below have the other tariffs beside it")


def _table(rows: "Sequence[Row]", columns: "Sequence[str]") -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from testbed.claims.table import HEAD, cells

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        told = {"claim": row.claim, **dict(zip(HEAD, cells(row), strict=True))}
        table.add_row(*(escape(told[column].strip("*")) for column in columns))
    return table


def _say(console: "Console", line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
