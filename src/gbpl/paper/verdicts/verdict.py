"""Verdicts on sentences about results: every word has one meaning, the same in all statements.

Two rows are compared by the paired difference over their common trials, with its standard error. A difference is
clear when it is more than CLEAR = 2 of its standard errors. A share is one of the welfare compared with.

- higher, lower, improves: a clear difference in that direction; otherwise the statement does not hold.
- highest, best: higher than each of the others.
- similar: every pair is less than SIMILAR = 2 % apart, or not clearly apart.
- competitive: not clearly lower, or lower by less than 2 %.
- slightly, small: by less than SMALL = 5 %; noticeably: by 5 % or more.
- rises (falls) with: the ends of a sequence differ clearly, and no step clearly goes the other way.
- typically: in more than half of the comparisons, and clearly so when a trial's comparisons are averaged.
- scenario dependent: which row is best, if one is clearly above the worst, is not the same in every scenario.
- close to nominal: a coverage within 0.02 or 2 binomial standard errors of its level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import DEFAULT
from gbpl.paper.printing.cells import standard_error
from gbpl.paper.printing.columns import Row

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.paper.experiments.records import Records

    Measure = str | Callable[[Records, Row], Float[np.ndarray, " trial"]]

__all__ = [
    "CLEAR", "SIMILAR", "SMALL", "WORDS", "Gap", "NotComparable", "Statement", "Verdict", "all_of", "competitive",
    "dependent", "each", "higher", "level", "name_of", "paired", "similar", "together", "trend",
]  # fmt: skip

HOLDS, FAILS, UNKNOWN = WORDS = ("holds", "does not hold", "cannot be compared")
CLEAR, SIMILAR, SMALL = 2.0, 0.02, 0.05


class NotComparable(ValueError):
    """Too few trials, or none, for a comparison."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of WORDS, and why, with our numbers; standard errors are in parentheses."""

    word: str
    why: str

    def __post_init__(self) -> None:
        if self.word not in WORDS:
            raise ValueError(f"a verdict is one of {', '.join(WORDS)}, got {self.word!r}; say the rest in `why`")


@dataclass(frozen=True, slots=True)
class Gap:
    """A mean over trials, here most often of a paired difference, and its standard error."""

    mean: float
    se: float
    trials: int

    @property
    def clear(self) -> int:
        """1 or -1 for more than two standard errors above or below zero, else 0."""
        return int(np.sign(self.mean)) if abs(self.mean) > CLEAR * self.se else 0

    def __str__(self) -> str:
        digits = 1 if abs(self.mean) >= 10 else 4
        if digits == 4 and 0 < self.se < 1e-3:
            digits = min(6, 1 - math.floor(math.log10(self.se)))  # two digits of the error
        return f"{round(self.mean, digits) + 0.0:+.{digits}f} ({self.se:.{digits}f})"


def name_of(row: Row) -> str:
    """Method, and zeta in parentheses if it has one; the default chooses its own."""
    return f"{row[1]} ({row[2]})" if row[2] and row[1:] != DEFAULT else row[1]


def _series(records: Records, row: Row, measure: Measure) -> dict[int, float]:
    values = records.of(*row, measure) if isinstance(measure, str) else measure(records, row)
    pairs = zip(records.trials(*row), values.tolist(), strict=True)
    return {trial: value for trial, value in pairs if math.isfinite(value)}


def _gap(values: Sequence[float], *rows: Row) -> Gap:
    if len(values) < 2:
        what = " and ".join(f"{name_of(row)} at {row[0]}" for row in rows)
        raise NotComparable(f"{what}: {len(values)} trial(s) with a number, and a standard error needs two")
    return Gap(float(np.mean(values)), standard_error(np.array(values)), len(values))


def level(records: Records, row: Row, measure: Measure) -> Gap:
    """Mean of a row and its standard error."""
    return _gap(list(_series(records, row, measure).values()), row)


def paired(records: Records, row: Row, other: Row, measure: Measure) -> Gap:
    """Mean of `row` minus `other` over the trials both have."""
    first, second = _series(records, row, measure), _series(records, other, measure)
    return _gap([first[trial] - second[trial] for trial in first if trial in second], row, other)


def together(records: Records, pairs: Sequence[tuple[Row, Row]], measure: Measure) -> Gap:
    """Mean over pairs of their differences, trial by trial: one number for each trial that every pair has."""
    differences = []
    for row, other in pairs:
        first, second = _series(records, row, measure), _series(records, other, measure)
        differences.append({trial: first[trial] - second[trial] for trial in first if trial in second})
    common = [trial for trial in differences[0] if all(trial in gaps for gaps in differences)]
    return _gap([float(np.mean([gaps[trial] for gaps in differences])) for trial in common], *pairs[0])


def all_of(parts: Mapping[str, Verdict]) -> Verdict:
    """Holds where every part does; the reasons follow one another under the parts' names."""
    words = [part.word for part in parts.values()]
    word = next((bad for bad in (FAILS, UNKNOWN) if bad in words), HOLDS)
    return Verdict(word, "; ".join(f"{name}: {part.why}" for name, part in parts.items()))


def higher(
    records: Records,
    row: Row,
    others: Sequence[Row],
    measure: Measure = "welfare",
    *,
    sign: int = 1,
    by: tuple[float, float] | None = None,
) -> Verdict:
    """Clearly above each of `others` (below, with sign = -1); with `by`, by a share of the other within its ends."""
    gaps = {other: paired(records, row, other, measure) for other in others}
    holds = all(gap.clear == sign for gap in gaps.values())
    comparisons = [f"{name_of(other)} {gap}{_aside(gap, sign)}" for other, gap in gaps.items()]
    if len(comparisons) > 2:
        nearest = min(range(len(comparisons)), key=lambda i: sign * list(gaps.values())[i].mean)
        comparisons = [f"{comparisons[nearest]}, the nearest of {len(comparisons)}"]
    why = f"{name_of(row)} against {', '.join(comparisons)}"
    if by:
        shares = [abs(gap.mean) / abs(level(records, other, measure).mean) for other, gap in gaps.items()]
        holds = holds and by[0] <= min(shares) and max(shares) < by[1]
        why += f", by {_span(shares)}"
    return Verdict(HOLDS if holds else FAILS, why)


def _span(shares: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{share:.1%}" for share in (min(shares), max(shares))))


def _aside(gap: Gap, sign: int) -> str:
    return {sign: "", 0: " (not distinguishable)", -sign: " (the other way)"}[gap.clear]


def similar(records: Records, rows: Sequence[Row], measure: Measure = "welfare") -> Verdict:
    """Every pair less than 2 % apart, or not clearly."""
    levels = {row: level(records, row, measure).mean for row in rows}
    scale = abs(float(np.mean(list(levels.values()))))
    pairs = [(*pair, paired(records, *pair, measure)) for pair in combinations(rows, 2)]
    apart = [(a, b, gap) for a, b, gap in pairs if gap.clear and abs(gap.mean) >= SIMILAR * scale]
    first, second, widest = max(apart or pairs, key=lambda pair: abs(pair[2].mean))
    why = f"widest is {name_of(first)} against {name_of(second)}, {widest}, {abs(widest.mean) / scale:.1%}"
    return Verdict(FAILS if apart else HOLDS, f"{why} of {scale:.4f}")


def competitive(records: Records, row: Row, others: Sequence[Row], measure: Measure = "welfare") -> Verdict:
    """Not clearly below the best of `others`, or by less than 2 %."""
    best = max(others, key=lambda other: level(records, other, measure).mean)
    gap, scale = paired(records, row, best, measure), abs(level(records, best, measure).mean)
    behind = gap.clear < 0 and -gap.mean >= SIMILAR * scale
    return Verdict(FAILS if behind else HOLDS, f"{name_of(row)} against {name_of(best)} {gap}, {gap.mean / scale:+.1%}")


def trend(records: Records, rows: Sequence[Row], measure: Measure, *, sign: int) -> Verdict:
    """Rises along `rows` (falls, with sign = -1): the ends clearly, and no step clearly the other way."""
    ends = paired(records, rows[-1], rows[0], measure)
    back = [(a, b) for a, b in pairwise(rows) if paired(records, b, a, measure).clear == -sign]
    levels = [level(records, row, measure).mean for row in rows]
    means = ", ".join(f"{mean:.{1 if abs(mean) >= 10 else 4}f}" for mean in levels)
    why = f"{means} from {rows[0][0]} to {rows[-1][0]}, ends {ends}{_aside(ends, sign)}"
    why += "".join(f", but the other way from {a[0]} to {b[0]}" for a, b in back)
    return Verdict(HOLDS if ends.clear == sign and not back else FAILS, why)


def dependent(records: Records, scenarios: Mapping[str, Sequence[Row]], measure: Measure = "welfare") -> Verdict:
    """Whether which row is best, if any clearly is better than the worst, changes from scenario to scenario."""
    patterns, reasons = [], []
    for scenario, rows in scenarios.items():
        order = sorted(rows, key=lambda row: level(records, row, measure).mean)
        gap = paired(records, order[-1], order[0], measure)
        patterns.append(order[-1][1:] if gap.clear else None)
        which = f"best {name_of(order[-1])}" if gap.clear else "none distinguishable"
        reasons.append(f"{scenario} {which}, {gap} above {name_of(order[0])}")
    return Verdict(HOLDS if len(set(patterns)) > 1 else FAILS, "; ".join(reasons))


def each(cases: Sequence[str], rule: Callable[[Records, str], Verdict]) -> Callable[[Records], Verdict]:
    """The rule in every one of `cases`."""
    return lambda records: all_of({case: rule(records, case) for case in cases})


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence about one table. `of_text` is False for what only the table's numbers say."""

    quote: str
    where: str
    table: str
    rule: Callable[[Records], Verdict]
    of_text: bool = True

    def verdict(self, records: Records) -> Verdict:
        """The verdict by our records of its table; too few trials cannot be compared."""
        try:
            return self.rule(records)
        except NotComparable as lacking:
            return Verdict(UNKNOWN, str(lacking))
