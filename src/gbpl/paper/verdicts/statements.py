"""What the paper says about its results, sentence by sentence, and whether our records bear it out.

`verdict.py` has the rules. Statements of the text are quoted; a few more are what a table's numbers show and no
sentence says, and are marked as such.
"""

from __future__ import annotations

from collections.abc import Mapping

from gbpl.paper.experiments.catalog import EXAMPLE
from gbpl.paper.experiments.records import Record, Records
from gbpl.paper.verdicts import full, logged, posterior
from gbpl.paper.verdicts.verdict import Statement, Verdict

__all__ = ["STATEMENTS", "Statement", "Verdict", "verdicts"]

STATEMENTS: tuple[Statement, ...] = (
    *full.STATEMENTS,
    *logged.STATEMENTS,
    *posterior.STATEMENTS,
)


def verdicts(
    records: Mapping[str, Records], example: Mapping[str, float] | None = None
) -> list[tuple[Statement, Verdict]]:
    """Statements about the tables there are records of, with their verdicts; `example` is the one-dimensional run."""
    tables = {name: table for name, table in records.items() if len(table)}
    if example:
        tables[EXAMPLE] = Records([Record("", "GBPLNet", "1.0", 0, example)])
    return [
        (statement, statement.verdict(tables[statement.table])) for statement in STATEMENTS if statement.table in tables
    ]
