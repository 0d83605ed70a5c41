"""What the paper says about its results, sentence by sentence, and whether our records bear it out.

`verdict.py` has the rules. Statements of the text are quoted; a few more are what a table's numbers show and no
sentence says, and are marked as such.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence

from gbpl.paper.experiments.records import Records
from gbpl.paper.printing.tables import pipe_table
from gbpl.paper.verdicts import full, logged, posterior, verdict
from gbpl.paper.verdicts.statement import JUDGED, NOT_JUDGED, OF_POPULATION, OURS, Statement
from gbpl.paper.verdicts.verdict import AGREES, LEANS, WORDS, Verdict

__all__ = ["NOT_FOLLOWING", "STATEMENTS", "as_json", "statements_section", "verdict_summary", "verdicts"]

STATEMENTS: tuple[Statement, ...] = (
    *full.STATEMENTS,
    *logged.STATEMENTS,
    *posterior.STATEMENTS,
)
NOT_FOLLOWING = "cannot be judged: the printed table does not follow from the stated design"

REVISED = """\
These rules were written after a first run had been judged by others, with its verdicts known. What changed: sentences
about tables that do not follow from their designs are no longer judged, nor a population by samples; a highest mean
need not be a clear one; words of degree have no threshold of ours; and the trials behind single coverages and the one
run of the example are repeated. The boundaries of 2 % and 5 % are those of the first rules."""
HEADINGS = {
    JUDGED: (
        "### The author's sentences about tables that can follow from their designs",
        "These are judged. Those about intervals rest on settings that the text leaves open "
        "([below](#what-the-text-leaves-open)): none that was tried gives both the printed coverages and the printed "
        "widths, so one that is not seen here may speak of our setting and not of the paper's.",
    ),
    NOT_JUDGED: (
        "### The author's sentences about tables that do not follow from their designs",
        "None of these is judged, for or against: the printed numbers do not come from the design that the text states "
        "([why](#numbers-that-do-not-follow-from-the-stated-designs)), so ours, which do, are of another design. The "
        "last columns say what the design as stated shows.",
    ),
    OF_POPULATION: ("### The author's sentences about populations", "No finite sample can speak against these."),
    OURS: (
        "### What the tables show and no sentence says",
        "These sentences are ours. They are read off the printed tables, and the author does not answer for them.",
    ),
}


def verdicts(records: Mapping[str, Records]) -> list[tuple[int, Statement, Verdict]]:
    """Statements about the tables there are records of, with their numbers and verdicts."""
    return [
        (number, statement, statement.verdict(records[statement.table]))
        for number, statement in enumerate(STATEMENTS, 1)
        if len(records.get(statement.table, ()))
    ]


def as_json(records: Mapping[str, Records]) -> str:
    """The verdicts as a list, one object per statement."""
    lines = [
        {
            "number": number,
            "quote": statement.quote,
            "where": statement.where,
            "table": statement.table,
            "kind": statement.kind,
            "verdict": NOT_FOLLOWING if statement.kind == NOT_JUDGED else found.word,
            "in_our_runs": found.word,
            "test": found.test,
            "z": round(found.z, 3) if math.isfinite(found.z) else None,
            "why": found.why,
        }
        for number, statement, found in verdicts(records)
    ]
    return json.dumps(lines, indent=1, ensure_ascii=False) + "\n"


def verdict_summary(found: Sequence[tuple[int, Statement, Verdict]]) -> str:
    """The sentences of the summary: each kind of statement for itself."""
    of_kind = {
        kind: [(number, verdict) for number, statement, verdict in found if statement.kind == kind]
        for kind in (JUDGED, NOT_JUDGED, OF_POPULATION, OURS)
    }
    sentences = []
    if judged := of_kind[JUDGED]:
        sentences.append(
            f"Of the text's sentences about results, {len(judged)} are about tables that can follow from their stated "
            f"designs: {_counts(judged)}."
        )
    if apart := of_kind[NOT_JUDGED]:
        agreeing = sum(verdict.word in (AGREES, LEANS) for _, verdict in apart)
        sentences.append(
            f"{len(apart)} are about tables whose print does not follow from the stated designs, and are not judged; "
            f"the designs as stated show what {agreeing} of them say, at least in direction, which speaks of the "
            "designs, not of the paper."
        )
    if population := of_kind[OF_POPULATION]:
        sentences.append(f"{len(population)} is about a population and is not tested by samples.")
    if ours := of_kind[OURS]:
        sentences.append(f"Of {len(ours)} more that are ours and not the author's: {_counts(ours)}.")
    return " ".join(sentences)


def _counts(found: Sequence[tuple[int, Verdict]]) -> str:
    """How many have each word, and which, where they are not the most."""
    counts = Counter(verdict.word for _, verdict in found)
    parts = []
    for word in WORDS:
        if counts[word]:
            which = ", ".join(f"#{number}" for number, verdict in found if verdict.word == word)
            parts.append(f"{word}: {counts[word]}" + ("" if word == AGREES else f" ({which})"))
    return "; ".join(parts)


def statements_section(found: Sequence[tuple[int, Statement, Verdict]]) -> str:
    """The part of the report on statements: the rules, and a table for each kind."""
    if not found:
        return "## Statements\n\nNone is about the tables of this run."
    parts = ["## Statements", (verdict.__doc__ or "").partition("\n\n")[2].strip(), REVISED]
    for kind, (heading, note) in HEADINGS.items():
        rows = [_row(number, statement, of) for number, statement, of in found if statement.kind == kind]
        if rows:
            word = "on the design as stated" if kind == NOT_JUDGED else "verdict"
            columns = ["", "statement", "where", word, "test", "z", "our numbers"]
            parts += [heading, note, pipe_table(columns, rows, "rllllrl")]
    return "\n\n".join(parts)


def _row(number: int, statement: Statement, found: Verdict) -> list[str]:
    quote = f"“{statement.quote}”" if statement.of_text else f"*{statement.quote}*"
    z = f"{found.z:+.1f}" if math.isfinite(found.z) else "--"
    return [str(number), quote, statement.where, found.word, found.test, z, found.why]
