"""What the paper says about its results, sentence by sentence, and whether our records bear it out.

`verdict.py` has the rules. Statements of the text come with their words; a few more are what a table without words
shows by its numbers, and say so.
"""

from __future__ import annotations

from collections.abc import Mapping

from gbpl.paper.experiments.records import Record, Records
from gbpl.paper.verdicts import full, logged, posterior
from gbpl.paper.verdicts.verdict import Statement, Verdict

__all__ = ["STATEMENTS", "Statement", "Verdict", "judge"]

STATEMENTS: tuple[Statement, ...] = (
    *full.STATEMENTS,
    *logged.STATEMENTS,
    *posterior.STATEMENTS,
)


def judge(
    records: Mapping[str, Records], example: Mapping[str, float] | None = None
) -> list[tuple[Statement, Verdict]]:
    """Statements about the tables there are records of, with their verdicts; `example` is the one-dimensional run."""
    found = {name: table for name, table in records.items() if len(table)}
    if example:
        found[posterior.EXAMPLE] = Records([Record("", "GBPLNet", "1.0", 0, example)])
    return [(said, said.judge(found[said.table])) for said in STATEMENTS if said.table in found]
