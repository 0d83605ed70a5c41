"""What the paper says about its results, sentence by sentence, and whether our records bear it out.

`judgement.py` has the rules. Statements of the text come with their words; a few more are what a table without words
shows by its numbers, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from gbpl.paper import statements_full, statements_logged, statements_posterior
from gbpl.paper.judgement import Statement, Verdict
from gbpl.paper.records import Record, Records

__all__ = ["STATEMENTS", "Statement", "Verdict", "judge"]

STATEMENTS: tuple[Statement, ...] = (
    *statements_full.STATEMENTS,
    *statements_logged.STATEMENTS,
    *statements_posterior.STATEMENTS,
)


def judge(
    records: Mapping[str, Records], example: Mapping[str, float] | None = None
) -> list[tuple[Statement, Verdict]]:
    """Statements about the tables there are records of, with their verdicts; `example` is the one-dimensional run."""
    found = {name: table for name, table in records.items() if len(table)}
    if example:
        found[statements_posterior.EXAMPLE] = Records([Record("", "GBPLNet", "1.0", 0, example)])
    return [(said, said.judge(found[said.table])) for said in STATEMENTS if said.table in found]
