"""The part of the report on one table: every number that is compared, with its distance from the print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import DEFAULT, TABLES, TableSpec
from gbpl.paper.printing.cells import Cell, cells, table_rows
from gbpl.paper.printing.columns import SPREADS, Column, Row, layout
from gbpl.paper.printing.tables import MARK, number, pipe_table, signed, trial_counts, with_error
from gbpl.paper.verdicts.verdict import name_of

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

    Truths = Mapping[tuple[str, str], Mapping[str, float]]

__all__ = ["FAR", "NEAR", "columns_section", "limit", "table_section"]

WIDE = 3  # a table with more columns to show has one line per number instead of one per row
NEAR, FAR = 2.0, 3.0  # combined standard errors allowed to GBPLNet and to the methods it is compared with

_ITS_OWN = (
    "The default's interval answers another question: what the rule it has learned is worth in the population, from "
    "the rows of the fit alone, with the noise of outcomes in it. The printed ones are for the welfare of the target "
    "clip(tau, -1, 1) on points whose means are known. So its target is the true welfare of its own rule, its "
    "intervals are wider, and no eta is chosen by looking at coverage."
)
COMMENTS = {  # on the default's rows
    "uci": (
        "Welfare here is mostly the shared response of the test rows, so that the default's differs from the other "
        "rows' by its smaller number of trials; compare regrets."
    ),
    "weak-overlap": "The default chooses its own clip, so that its row is the same under each printed one.",
    "uq-calibration": _ITS_OWN,
    "uq-evaluation": _ITS_OWN,
    "action-disagreement": (
        "The default averages over zeta, and its probabilities are those of the whole committee's posterior: that an "
        "action is the better one. Where they are right, a group's agreement is one less half its disagreement."
    ),
    "posterior-threshold-rules": (
        "The threshold rule treats only where it is 1 - alpha sure. The default doubts more than the paper's one "
        "network does, as its draws differ in zeta and model too, so that the rule leaves more points at action 0 and "
        "gives up more to its own decisions, most at alpha = 0.05. That is a cost of the rule, not a gain: the default "
        "decides by `predict`, whose welfare is under *map* ([when it is sure, is it right?]"
        "(calibration.md#is-it-right-when-it-is-sure))."
    ),
}
COMPARED_AS = {
    "mean": "mean",
    "coverage": "share of trials",
    "width": "mean",
    "variance": "ratio",
    "error": "ratio",
    "quantile": "5 % quantile",
    "total": "count, as of the paper's trials",
}


def limit(cell: Cell) -> float:
    """How many standard errors a number may be apart."""
    return NEAR if cell.method.startswith("GBPLNet") else FAR


def columns_section(records: Mapping[str, Records]) -> str:
    """Every printed column: how it is compared, how many of its numbers are within the limits, and the farthest."""
    rows = []
    for name, table in records.items():
        of_table = [cell for cell in cells(TABLES[name], table) if cell.printed is not None]
        for column in layout(TABLES[name]).columns:
            of_column = [cell for cell in of_table if cell.column == column]
            apart = [cell for cell in of_column if np.isfinite(cell.apart)]
            inside = sum(abs(cell.apart) <= limit(cell) for cell in apart)
            farthest = max(apart, key=lambda cell: abs(cell.apart), default=None)
            rows.append(
                [
                    name + ("" if TABLES[name].group == "consistent" else " *"),
                    column.name,
                    COMPARED_AS[column.kind],
                    f"{inside} of {len(apart)}",
                    str(len(of_column) - len(apart)),
                    f"{signed(farthest.apart)}, {name_of(farthest.row)} at {farthest.case}" if farthest else "--",
                ]
            )
    if not rows:
        return ""
    heading = ["table", "column", "compared as", "within limits", "not comparable", "farthest"]
    return "\n\n".join(
        [
            "## Every printed column",
            "Limits are 2 standard errors for GBPLNet and 3 for other methods. Variances and standard errors are "
            "compared by the logarithm of their ratio, standard errors as of the paper's number of trials. Not "
            "comparable is a spread printed as 0.0000, or a number of a single trial. A star marks tables whose print "
            "does not follow from the stated design.",
            pipe_table(heading, rows, "lllrrl"),
        ]
    )


def table_section(spec: TableSpec, records: Records, truths: Truths, figures: Sequence[str]) -> str:
    """Heading, figures, and a table of ours, printed, apart and the design's optimum."""
    columns = [column for column in layout(spec).columns if column.kind != "error"]
    body = _wide if len(columns) <= WIDE else _long
    intro = f"{trial_counts(spec, records).capitalize()}, {spec.trials} in the paper."
    if spec.name in COMMENTS:
        intro += f" {COMMENTS[spec.name]}"
    if spec.group == "inconsistent":
        intro += " The print does not follow from the stated design: distances are shown, not counted."
    else:
        intro += " Distances beyond 2 (GBPLNet) or 3 (other methods) are bold."
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
    """A last entry for each row, under its heading: the design's optimum; none where no welfare is printed or known."""
    if not any(column.metric == "welfare" for column in layout(spec).columns):
        return [[]] * (len(rows) + 1)
    optima = [number(dict(truths.get((spec.name, row[0]), {})).get("optimal")) for row in rows]
    return [["best possible welfare"], *([text] for text in optima)] if set(optima) - {"--"} else [[]] * (len(rows) + 1)


def _three(cell: Cell | None) -> list[str]:
    """Ours, printed, apart."""
    if cell is None:
        return ["--"] * 3
    digits, spread = cell.column.digits, cell.column.kind in SPREADS
    outside = TABLES[cell.table].group == "consistent" and abs(cell.apart) > limit(cell)
    return [
        number(cell.ours, digits) if spread else with_error(cell.ours, cell.se, digits),
        with_error(cell.printed, cell.printed_se, digits),
        f"**{signed(cell.apart)}**" if outside else signed(cell.apart),
    ]


def _heading(column: Column) -> str:
    return "variance" if column.kind == "variance" else column.metric


def _wide(spec: TableSpec, records: Records, truths: Truths, columns: Sequence[Column]) -> str:
    """One line per row; ours, printed and apart of every column beside one another."""
    by_name = {(cell.row, cell.column.name): cell for cell in cells(spec, records)}
    rows = table_rows(spec, records)
    lines = [[layout(spec).heading, "method", *(text for c in columns for text in (_heading(c), "printed", "apart"))]]
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
