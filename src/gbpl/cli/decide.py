"""`gbpl decide`: decisions for new rows, in files of any size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gbpl.cli.console import (
    Delimiter,
    Encoding,
    Json,
    Screen,
    as_json_text,
    guarded,
    held,
    print_json,
    progress_bar,
    stderr,
    stdout,
    table,
    verbatim,
)
from gbpl.runtime.files import check_target, write_text

if TYPE_CHECKING:
    from gbpl.frozen.explain import Explanation
    from gbpl.frozen.file import SavedPolicy
    from gbpl.report.advice import Advice
    from gbpl.study.decide_file import Decided

__all__ = ["decide"]


@guarded
def decide(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="Policy file written by gbpl fit.")],
    new: Annotated[
        Path, typer.Argument(metavar="DATA", help="CSV, Parquet, Feather, Arrow or Excel file with the rows to decide.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="File to write: .csv, .tsv, .parquet, .feather, .arrow or .xlsx."
        ),
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN...", help="Columns to copy to the decisions, such as an id."),
    ] = None,
    review: Annotated[
        int | None,
        typer.Option(metavar="N", help="Mark the N rows where a person's look is worth most; none if not given."),
    ] = None,
    defer: Annotated[
        float | None,
        typer.Option(
            metavar="LEVEL",
            help="Instead of --review: the disagreement above which a person should decide, 0 to 1; as in the fit if "
            "not given.",
        ),
    ] = None,
    explain: Annotated[
        list[int] | None,
        typer.Option(
            metavar="ROW...",
            help="Say why these rows are decided so, by number, 0 for the first; also as JSON in a file.",
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN...", help="With --explain: columns that nobody can change, such as an age."),
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
    if review is not None and (review < 0 or defer is not None):
        raise ValueError(
            f"--review must be 0 or more rows, got {review}; try 200"
            if review < 0
            else "--review and --defer both say which rows a person looks at; give one of them"
        )
    with held():
        from gbpl.frozen.file import load
        from gbpl.study.decide_file import decide_file, needed_columns
        from gbpl.study.explain_file import check_explained, explain_file
    loaded, rows = load(policy), explain or []
    check_explained(rows, needed_columns(loaded)[0], fixed or ())
    beside = out.with_suffix(".explained.json")
    if rows and engine != "local":
        raise ValueError("--explain reads rows of one file, which a cluster does not; leave --engine out")
    if rows:
        check_target(beside)
    if out.exists() and os.path.samefile(out, policy):
        raise ValueError(f"{out} is the policy itself; write to another file")
    whys = explain_file(loaded, new, rows, fixed=fixed or (), encoding=encoding, delimiter=delimiter) if rows else {}
    with progress_bar() as bar:
        task = bar.add_task("deciding", total=None)
        decided = decide_file(
            loaded, new, out, keep=keep or (), defer=defer, encoding=encoding, delimiter=delimiter,
            progress=lambda done, total: bar.update(task, completed=done, total=total), engine=engine, review=review,
        )  # fmt: skip
    advised = _advice(loaded)
    explained = [{"row": row} | why.to_dict() | {"text": str(why)} for row, why in whys.items()]
    if rows:
        write_text(beside, as_json_text(explained) + "\n")
    if as_json:
        known = {"advice": None if advised is None else advised.to_dict(), "file": str(out)}
        print_json(decided.to_dict() | known | ({"explained": explained} if rows else {}))
        return
    if advised is not None and advised.against:
        stderr().say(f"[yellow]The report of this policy advises otherwise:[/] {verbatim(advised)}")
    _print_counts(stdout(), decided, loaded, out)
    _print_explained(stdout(), whys, beside)


def _print_explained(console: Screen, whys: Mapping[int, Explanation], beside: Path) -> None:
    for row, why in whys.items():
        console.print(f"\n[bold]Row {row}[/]")
        for line in str(why).split("\n"):
            console.say(verbatim(line))
    if whys:
        console.print(f"\nWritten: {verbatim(beside)}", soft_wrap=True)


def _advice(policy: SavedPolicy) -> Advice | None:
    """The advice of the study that the policy comes from; None without one."""
    from gbpl.report.advice import advice
    from gbpl.report.reading import read

    return None if policy.summary is None else advice(read(policy.summary))


def _print_counts(console: Screen, decided: Decided, policy: SavedPolicy, out: Path) -> None:
    from gbpl.report.numbers import amount, percent, two_digits
    from gbpl.report.reading import read

    shown = table("action", "rows", "share", title=f"{decided.rows:,} rows decided")
    for label, count in decided.taken.items():
        shown.add_row(verbatim(label), f"{count:,}", percent(count / decided.rows))
    console.print(shown)
    study = None if policy.summary is None else read(policy.summary)
    sign = "" if study is None else study.unit.sign
    if decided.gain is not None and study is not None:
        total = amount(two_digits(decided.gain), None, sign, signed=True)
        console.say(f"Expected gain over giving everybody {verbatim(study.default)}: about {total} in all.")
    if decided.review_value is not None:
        worth = amount(two_digits(decided.review_value), None, sign)
        console.say(
            f"{decided.deferred:,} of them are marked for a person to review, where a look is worth most: at most "
            f"about {worth} in all, if it finds the best action each time."
        )
    elif decided.deferred:
        share = percent(decided.deferred / decided.rows)
        console.say(f"{decided.deferred:,} of them ({share}) are close calls for a person to review.")
    for name, count in decided.counts.items():
        console.say(f"{count:,} {verbatim(name)}", style="yellow")
    console.print(f"Written: {verbatim(out)}", soft_wrap=True)
