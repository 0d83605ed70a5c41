"""The paper's tables from our records, in their printed layout: Markdown and LaTeX (booktabs, multirow)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import DEFAULT, TableSpec
from gbpl.paper.printing.cells import summary, table_rows
from gbpl.paper.printing.columns import Column, Layout, Row, layout

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

__all__ = ["latex", "markdown", "number", "pipe_table", "signed", "trial_counts", "with_error"]

MARK = "†"
NOTE = "not in the paper: the library with its default settings, on the same data."
SPECIAL = {c: f"\\{c}" for c in "_%&#$"} | {MARK: r"$^{\dagger}$"}


def number(value: float | None, digits: int = 4) -> str:
    """Fixed digits; a dash for what is not there, and no minus before a zero."""
    if value is None or not math.isfinite(value):
        return "--"
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def with_error(value: float | None, error: float | None, digits: int = 4) -> str:
    """value (error), or what of it there is."""
    text, behind = number(value, digits), number(error, digits)
    return text if "--" in (text, behind) else f"{text} ({behind})"


def signed(value: float) -> str:
    """A distance in standard errors."""
    return f"{round(value, 1) + 0.0:+.1f}" if math.isfinite(value) else "--"


def pipe_table(heading: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """A Markdown table; `align` has one letter, l or r, per column. A bar in a cell is escaped."""
    bars = {"l": ":--", "r": "--:", "c": ":-:"}
    lines = [heading, [bars[letter] for letter in align[: len(heading)].ljust(len(heading), "l")], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def trial_counts(spec: TableSpec, records: Records) -> str:
    """In words, how many trials the rows of the paper have, and the default's where they are others."""

    def span(of_default: bool) -> str:
        rows = [row for row in table_rows(spec, records) if (row[1:] == DEFAULT) is of_default]
        counts = {len(records.trials(*row)) for row in rows} - {0}
        return " to ".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else ""

    paper, default = span(False), span(True)
    words = f"{paper or 'no'} trial{'' if paper == '1' else 's'}"
    return words if default in ("", paper) else f"{words}, {default} for {DEFAULT[0]}"


def _entry(page: Layout, column: Column, records: Records, row: Row) -> str:
    """A printed entry: the number and, where the print has two, the second in parentheses."""
    value, _, _ = summary(column, column.values(records, row))
    text = number(value, column.digits)
    if not column.beside or text == "--":
        return text
    second = page.column(column.beside)
    return f"{text} ({number(summary(second, second.values(records, row))[0], second.digits)})"


def _shared_entry(page: Layout, column: Column, records: Records, rows: Sequence[Row]) -> str:
    """The one number of a case: that of its first row that has one."""
    present = (row for row in rows if np.isfinite(column.values(records, row)).any())
    return _entry(page, column, records, next(present, rows[0]))


def _blocks(spec: TableSpec, records: Records) -> list[list[Row]]:
    return [list(rows) for _, rows in groupby(table_rows(spec, records), key=lambda row: row[0])]


def _names(page: Layout, row: Row) -> list[str]:
    """Case, method and zeta as printed; without a column for methods, the default's mark is on the case."""
    mark = f" {MARK}" if row[1:] == DEFAULT else ""
    return [row[0], row[1] + mark, row[2] or "--"] if page.methods else [row[0] + mark]


def _entries(page: Layout, records: Records, rows: Sequence[Row]) -> list[list[str]]:
    """The numbers of one case, one list per row."""
    paper = [row for row in rows if row[1:] != DEFAULT]
    return [
        [
            _shared_entry(page, column, records, paper)
            if column.shared and row in paper
            else _entry(page, column, records, row)
            for column in page.shown
        ]
        for row in rows
    ]


def markdown(spec: TableSpec, records: Records) -> str:
    """The table with our numbers, one line per row; the default's rows are marked."""
    page = layout(spec)
    heading = [page.heading, *(["method", "zeta"] if page.methods else []), *(c.heading for c in page.shown)]
    lines = [
        _names(page, row) + entries
        for rows in _blocks(spec, records)
        for row, entries in zip(rows, _entries(page, records, rows), strict=True)
    ]
    title = f"**{spec.title}**, {trial_counts(spec, records)}."
    return "\n\n".join([title, pipe_table(heading, lines, page.align), f"{MARK} {NOTE}"]) + "\n"


def _escape(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def _multirow(count: int, text: str) -> str:
    return rf"\multirow{{{count}}}{{*}}{{{text}}}" if count > 1 else text


def _latex_block(page: Layout, records: Records, rows: Sequence[Row]) -> list[str]:
    """The rows of one case, with case, method and shared numbers set once over the rows they belong to."""
    paper = sum(row[1:] != DEFAULT for row in rows)
    entries = _entries(page, records, rows)
    lines: list[str] = []
    for i, row in enumerate(rows):
        names = [_escape(name) for name in _names(page, row)]
        if page.methods:
            alike = [j for j, other in enumerate(rows) if other[1] == row[1]]
            if i == alike[0] > 0 and page.rule == "cmidrule":
                lines.append(rf"\cmidrule(lr){{2-{len(page.align)}}}")
            names[0] = _multirow(len(rows), names[0]) if i == 0 else ""
            names[1] = _multirow(len(alike), names[1]) if i == alike[0] else ""
        for k, column in enumerate(page.shown):
            if column.shared and row[1:] != DEFAULT:
                entries[i][k] = _multirow(paper, entries[i][k]) if i == 0 else ""
        lines.append(" & ".join([*names, *entries[i]]) + r" \\")
    return lines


def latex(spec: TableSpec, records: Records) -> str:
    """The table as a float for any document that loads booktabs and multirow."""
    page = layout(spec)
    heading = [page.latex]
    if page.methods:
        heading += ["Method" if page.rule == "addlinespace" else "method", r"$\zeta$"]
    heading += [column.latex for column in page.shown]
    between = {"cmidrule": [r"\midrule"], "addlinespace": [r"\addlinespace"]}.get(page.rule, [])
    body: list[str] = []
    for rows in _blocks(spec, records):
        body += [*(between if body else []), *_latex_block(page, records, rows)]
    note = _escape(f"{MARK} {DEFAULT[0]}: {NOTE}")
    return "\n".join(
        [
            r"% needs \usepackage{booktabs,multirow}",
            r"\begin{table}[t]",
            r"\centering",
            rf"\caption{{{_escape(spec.title)}, {_escape(trial_counts(spec, records))}. {note}}}",
            rf"\label{{tab:gbpl-{spec.name}}}",
            r"\small",
            r"\setlength{\tabcolsep}{4pt}",
            rf"\begin{{tabular}}{{{page.align}}}",
            r"\toprule",
            " & ".join(heading) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )
