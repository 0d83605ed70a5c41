"""`gbpl datasets`: data to try things on."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table

from gbpl.cli.console import Json, Screen, guarded, print_json, stdout, verbatim

if TYPE_CHECKING:
    from gbpl.datasets import Dataset
    from gbpl.datasets.loading import Entry

__all__ = ["datasets", "write_frame"]


def write_frame(path: Path, frame: Any) -> None:
    """Write a frame to a file, in the format of its suffix."""
    from gbpl.tables.frames import column, column_names
    from gbpl.tables.write import open_writer

    with open_writer(path) as writer:
        writer.write({name: column(frame, name) for name in column_names(frame)})


def _listed(as_json: bool, data_dir: str | None) -> None:
    from dataclasses import asdict

    from gbpl.datasets import catalog

    entries = catalog(data_dir=data_dir)
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    console, sets = stdout(), [entry for entry in entries if entry.rows is not None]
    _section(console, "Available here", [entry for entry in sets if entry.available])
    _section(console, "Available with more", [entry for entry in sets if not entry.available])
    _section(console, "Designs, in Python (gbpl.datasets)", [entry for entry in entries if entry.rows is None])
    console.say("gbpl datasets NAME -o FILE writes one, and says how to fit it.")


def _section(console: Screen, title: str, entries: Sequence[Entry]) -> None:
    if not entries:
        return
    shown = Table.grid(padding=(0, 2))
    shown.add_column(no_wrap=True)
    shown.add_column(overflow="fold")
    for entry in entries:
        size = "" if entry.rows is None else f", {entry.rows:,} rows"
        size += "" if entry.actions is None else f", {entry.actions} actions"
        shown.add_row(verbatim(entry.name), f"{verbatim(entry.description)} [dim]({entry.kind}{size})[/]")
        if not entry.available:
            shown.add_row("", f"[dim]needs {verbatim(entry.needs.replace('data_dir', '--data-dir'))}[/]")
    console.print(f"[bold]{verbatim(title)}[/]")
    console.print(Padding(shown, (0, 0, 1, 2), expand=False))


def _command(data: Dataset, out: Path) -> str:
    """The `gbpl fit` command for a data set that was written to a file."""
    words = ["gbpl", "fit", str(out)]
    if data.outcomes is not None:
        words += ["--outcomes", *data.outcomes]
    else:
        words += ["--outcome", str(data.outcome), "--action", str(data.action)]
        chance = data.propensity
        if isinstance(chance, str):
            words += ["--propensity", chance]
        elif chance is not None:
            each = chance.items() if hasattr(chance, "items") else None
            words += ["--propensity", *([f"{k}={v:.10g}" for k, v in each] if each else [f"{chance:.10g}"])]
    words += ["--features", *data.features]
    if data.controls:
        words += ["--controls", *data.controls]
    if data.cost:
        words += ["--cost", *(f"{label}={value:g}" for label, value in data.cost.items())]
    return shlex.join(words)


@guarded
def datasets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a data set; lists them if not given.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write it to.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with the files that no package provides.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the data sets, or write one to a file with the command that fits it."""
    if name is None:
        if out is not None:
            raise ValueError(f"no data set is named to be written to {out}; give a name that gbpl datasets lists")
        _listed(as_json, data_dir)
        return
    from gbpl.datasets import catalog, load
    from gbpl.tables.frames import nearest
    from gbpl.tables.write import check_output

    names = [entry.name for entry in catalog(data_dir=data_dir)]
    if name not in names:
        raise ValueError(f"there is no data set {name!r}{nearest(name, names) or '; gbpl datasets lists them'}")
    if out is not None:
        check_output(out)
    data = load(name, as_frame="arrow", data_dir=data_dir)
    if out is not None:
        write_frame(out, data.frame)
    content = {
        "name": data.name, "rows": data.n_rows, "description": data.description, "reference": data.reference,
        "source": data.source, "notes": list(data.notes), "file": None if out is None else str(out),
        "fit": _command(data, out or Path(f"{data.name}.csv")),
    }  # fmt: skip
    if as_json:
        print_json(content)
        return
    console = stdout()
    console.say(f"[bold]{data.name}[/]: {verbatim(data.description)}, {data.n_rows:,} rows.")
    console.say(verbatim(data.reference), style="dim")
    for note in data.notes:
        console.say(verbatim(note))
    written = "Nothing is written without -o FILE." if out is None else f"Written: {out}"
    console.print(f"\n{verbatim(written)}", soft_wrap=True)
    console.print(f"Fit it with\n\n  {verbatim(content['fit'])}", soft_wrap=True)
