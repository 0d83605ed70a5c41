"""`gbpl decide`: decisions for new rows, in files of any size."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbpl.cli.console import (
    Delimiter,
    Encoding,
    Json,
    Screen,
    guarded,
    held,
    print_json,
    progress_bar,
    stdout,
    table,
    verbatim,
)

if TYPE_CHECKING:
    from gbpl.study.decide_file import Decided

__all__ = ["decide"]


@guarded
def decide(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="Policy file written by gbpl fit.")],
    new: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV, Parquet, Feather or Arrow file with the rows to decide.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="File to write: .csv, .tsv, .parquet, .feather or .arrow."),
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN...", help="Columns to copy beside the decisions, such as an id."),
    ] = None,
    defer: Annotated[
        float | None,
        typer.Option(
            metavar="LEVEL",
            help="Disagreement above which a person should decide, 0 to 1; as in the fit if not given.",
        ),
    ] = None,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="local, or ray to spread a Parquet file, or a folder of them, over a cluster; --out is then a folder.",
        ),
    ] = "local",
    as_json: Json = False,
) -> None:
    """Decide new rows: action, chance of each action, disagreement, defer flag and expected gain."""
    if defer is not None and not 0.0 <= defer <= 1.0:
        raise ValueError(f"--defer must be from 0 to 1, got {defer:g}; try 0.8")
    with held():
        from gbpl.frozen.file import load
        from gbpl.study.decide_file import decide_file
    loaded = load(policy)
    if out.exists() and os.path.samefile(out, policy):
        raise ValueError(f"{out} is the policy itself; write to another file")
    with progress_bar() as bar:
        task = bar.add_task("deciding", total=None)
        decided = decide_file(
            loaded, new, out, keep=keep or (), defer=defer, encoding=encoding, delimiter=delimiter,
            progress=lambda done, total: bar.update(task, completed=done, total=total), engine=engine,
        )  # fmt: skip
    if as_json:
        print_json(decided.to_dict() | {"file": str(out)})
    else:
        _print_counts(stdout(), decided, out)


def _print_counts(console: Screen, decided: Decided, out: Path) -> None:
    from gbpl.report.numbers import percent

    shown = table("action", "rows", "share", title=f"{decided.rows:,} rows decided")
    for label, count in decided.taken.items():
        shown.add_row(verbatim(label), f"{count:,}", percent(count / decided.rows))
    console.print(shown)
    if decided.deferred is not None:
        share = percent(decided.deferred / decided.rows)
        console.say(f"{decided.deferred:,} of them ({share}) are close calls for a person to review.")
    for name, count in decided.counts.items():
        console.say(f"{count:,} {verbatim(name)}", style="yellow")
    console.print(f"Written: {verbatim(out)}", soft_wrap=True)
