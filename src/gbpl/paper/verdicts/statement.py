"""A sentence about one table: whose it is, whether it can be judged by our runs, and by which rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gbpl.paper.experiments.catalog import TABLES
from gbpl.paper.experiments.records import Records
from gbpl.paper.verdicts.verdict import AGREES, LEANS, UNKNOWN, NotComparable, Verdict

__all__ = ["JUDGED", "KINDS", "NOT_JUDGED", "OF_POPULATION", "OURS", "Statement"]

JUDGED, NOT_JUDGED, OF_POPULATION, OURS = KINDS = ("judged", "not judged", "population", "ours")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence about one table. `of_text` is False for what only the table's numbers say, and we put in words.

    A sentence `of_population` is about a minimiser in the population, which no finite sample can contradict.
    """

    quote: str
    where: str
    table: str
    rule: Callable[[Records], Verdict]
    of_text: bool = True
    of_population: bool = False

    @property
    def kind(self) -> str:
        """One of KINDS: a sentence about a table that does not follow from its stated design is not judged."""
        if not self.of_text:
            return OURS
        if self.of_population:
            return OF_POPULATION
        return NOT_JUDGED if self.table in TABLES and TABLES[self.table].group == "inconsistent" else JUDGED

    def verdict(self, records: Records) -> Verdict:
        """By our records of its table, and in how many sets of as many trials as the paper's it comes out so."""
        try:
            verdict = self.rule(records)
        except NotComparable as lacking:
            return Verdict(UNKNOWN, str(lacking))
        size = TABLES[self.table].trials if self.table in TABLES else 0
        parts = _sets(records, size) if size else []
        if len(parts) < 2:
            return verdict
        agreeing = sum(_word(self.rule, part) in (AGREES, LEANS) for part in parts)
        return replace(verdict, why=f"{verdict.why}; seen in {agreeing} of {len(parts)} sets of {size} trials")


def _sets(records: Records, size: int) -> list[Records]:
    """The lines by sets of `size` trials; an unfinished last one is left out."""
    most = max((line.trial for line in records.lines), default=-1) + 1
    return [Records(line for line in records.lines if line.trial // size == number) for number in range(most // size)]


def _word(rule: Callable[[Records], Verdict], records: Records) -> str:
    try:
        return rule(records).word
    except NotComparable:
        return UNKNOWN
