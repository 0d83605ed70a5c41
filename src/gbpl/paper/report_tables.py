"""The part of the report on one table: every number that is compared, with its distance from the print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import DEFAULT, TableSpec
from gbpl.paper.printing.cells import Cell, cells, table_rows
from gbpl.paper.printing.columns import COMPARED, Column, Row, layout
from gbpl.paper.printing.tables import MARK, number, pipe_table, signed, trial_counts, with_error
from gbpl.paper.verdicts.verdict import name_of

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

    Truths = Mapping[tuple[str, str], Mapping[str, float]]

__all__ = ["cell_name", "table_section"]

WIDE = 3  # a table with more compared columns has one line per number instead of one per row

_ONE_ZETA = (
    "The default's rows are those of `GBPLNet(zeta=1)`, its eta from the data: the target is that of one zeta, so "
    "nothing is averaged here. Its draws are of the randomized policy of a committee, which varies less than the one "
    "network of the paper."
)
COMMENTS = {  # on the default's rows
    "uq-calibration": _ONE_ZETA,
    "uq-evaluation": _ONE_ZETA,
    "action-disagreement": (
        "The default averages over zeta, and its probabilities are those of the whole committee's posterior: that an "
        "action is the better one. Where they are right, a group's agreement is one less half its disagreement."
    ),
    "posterior-threshold-rules": (
        "The default is less sure than the paper's one network, and gives up a little more to its own rule at small "
        "alpha; one feature decides here, and both are sure of nearly all points. Where more features count, doubt is "
        "real and costs more ([calibration](calibration.md#is-it-right-when-it-is-sure))."
    ),
}


def cell_name(cell: Cell) -> list[str]:
    """Case, method with its zeta, and column."""
    return [cell.case, name_of(cell.row), cell.column.name]


def table_section(spec: TableSpec, records: Records, truths: Truths, figures: Sequence[str]) -> str:
    """Heading, figures, and a table of ours, printed, apart and the design's optimum."""
    columns = [column for column in layout(spec).columns if column.kind in COMPARED]
    body = _wide if len(columns) <= WIDE else _long
    intro = f"{trial_counts(spec, records).capitalize()}, {spec.trials} in the paper."
    if spec.name in COMMENTS:
        intro += f" {COMMENTS[spec.name]}"
    if spec.group == "inconsistent":
        intro += " The print cannot follow from the stated design: distances are shown, not counted."
    intro += f" In the printed layout: [tables/{spec.name}.md](tables/{spec.name}.md)."
    return "\n\n".join(
        [
            f"## {spec.title}",
            intro,
            *(f"![{spec.title}](figures/{stem}.png)" for stem in figures),
            body(spec, records, truths, columns),
            *_missing(spec, records, columns),
        ]
    )


def _method(row: Row) -> str:
    return name_of(row) + (f" {MARK}" if row[1:] == DEFAULT else "")


def _best_possible(spec: TableSpec, truths: Truths, rows: Sequence[Row]) -> list[list[str]]:
    """A last entry for each row, under its heading: the design's optimum. None at all where it is never known."""
    optima = [number(dict(truths.get((spec.name, row[0]), {})).get("optimal")) for row in rows]
    return [["best possible welfare"], *([text] for text in optima)] if set(optima) - {"--"} else [[]] * (len(rows) + 1)


def _three(cell: Cell | None) -> list[str]:
    """Ours, printed, apart."""
    if cell is None:
        return ["--"] * 3
    digits = cell.column.digits
    return [
        with_error(cell.ours, cell.se, digits),
        with_error(cell.printed, cell.printed_se, digits),
        signed(cell.apart),
    ]


def _wide(spec: TableSpec, records: Records, truths: Truths, columns: Sequence[Column]) -> str:
    """One line per row; ours, printed and apart of every column beside one another."""
    by_name = {(cell.row, cell.column.name): cell for cell in cells(spec, records)}
    rows = table_rows(spec, records)
    lines = [[layout(spec).heading, "method", *(text for c in columns for text in (c.metric, "printed", "apart"))]]
    for row in rows:
        numbers = [text for column in columns for text in _three(by_name.get((row, column.name)))]
        lines.append([row[0], _method(row), *numbers])
    heading, *body = [line + last for line, last in zip(lines, _best_possible(spec, truths, rows), strict=True)]
    return pipe_table(heading, body, "ll" + "rrr" * len(columns) + "r")


def _long(spec: TableSpec, records: Records, truths: Truths, columns: Sequence[Column]) -> str:
    """One line per number."""
    shown = [cell for cell in cells(spec, records) if cell.column in columns]
    lines = [[layout(spec).heading, "method", "number", "ours", "printed", "apart"]]
    lines += [[cell.case, _method(cell.row), cell.column.name, *_three(cell)] for cell in shown]
    last = _best_possible(spec, truths, [cell.row for cell in shown])
    heading, *body = [line + end for line, end in zip(lines, last, strict=True)]
    return pipe_table(heading, body, "lllrrrr"[: len(heading)])


def _missing(spec: TableSpec, records: Records, columns: Sequence[Column]) -> list[str]:
    """Which rows have trials without a number they should have; a group without points need not have one."""
    if spec.key == "group":
        return []
    rows = [
        (row, count, len(records.trials(*row)))
        for row in table_rows(spec, records)
        if (count := int(np.isnan(columns[0].values(records, row)).sum()))
    ]
    if not rows:
        return []
    listed = ", ".join(f"{name_of(row)} at {row[0]} ({count} of {trials})" for row, count, trials in rows)
    return [f"Trials that left no {columns[0].name}, not counted above: {listed}."]
