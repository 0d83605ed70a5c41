"""Verdicts on sentences about results: every word has one meaning, the same in all statements.

Each sentence is made a number and a boundary it should be beyond. z is how far beyond it is in our runs, in standard
errors of the number (over trials, paired where rows are compared): the margin. A sentence that compares several things
has the z of the weakest comparison.

- agrees: z of 2 or more.
- agrees in direction, not distinguishable: z between 0 and 2.
- not seen, within error: z between -2 and 0: our mean is on the other side, by less than 2 standard errors.
- not seen in our runs: z of -2 or less.

The boundaries, in the words of the sentences:

- higher, lower, improves, highest, better: a difference of zero, from each of the others. A word of degree (slightly,
  noticeably) is not tested: where it begins is the reader's to say, so the size is shown, ours and the printed one.
- similar: no pair more than 2 % of the welfare apart. Competitive: not more than 2 % below.
- small, near zero: less than 5 % of what it is a part of.
- rises (falls) with: the ends of the sequence differ, and no step goes the other way by 2 standard errors.
- typically: on average over the comparisons, and in more than half of them.
- scenario dependent: which of two rows is better is reversed between two scenarios, in both by z; the clearest such
  pair counts, and nothing is corrected for picking it.
- close to a level: a coverage that a study as large as the paper's could not tell from it: within 2 binomial standard
  errors of so many trials.
- a number: the printed one within 2 standard errors of ours; z is what is left of the 2, so that any above zero agrees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
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
    "AGREES", "CLEAR", "LEANS", "POPULATION", "SIMILAR", "SMALL", "UNKNOWN", "UNSEEN", "WITHIN", "WORDS", "Gap",
    "NotComparable", "Verdict", "all_of", "beyond", "competitive", "dependent", "each", "graded", "higher", "level",
    "name_of", "paired", "same", "similar", "together", "trend",
]  # fmt: skip

AGREES, LEANS, WITHIN, UNSEEN, UNKNOWN, POPULATION = WORDS = (
    "agrees",
    "agrees in direction, not distinguishable",
    "not seen, within error",
    "not seen in our runs",
    "cannot be compared",
    "population statement: not tested by a sample",
)
CLEAR, SIMILAR, SMALL = 2.0, 0.02, 0.05


class NotComparable(ValueError):
    """Too few trials, or none, for a comparison."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One of WORDS, and why, with our numbers; `test` says what was tested, `z` how far beyond the boundary it is."""

    word: str
    why: str
    test: str = ""
    z: float = math.nan

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


# -- numbers of rows ----------------------------------------------------------------------------------------


def _series(records: Records, row: Row, measure: Measure) -> dict[int, float]:
    values = records.of(*row, measure) if isinstance(measure, str) else measure(records, row)
    pairs = zip(records.trials(*row), values.tolist(), strict=True)
    return {trial: value for trial, value in pairs if math.isfinite(value)}


def _gap(values: Sequence[float], *rows: Row) -> Gap:
    if len(values) < 2:
        what = " and ".join(f"{name_of(row)} at {row[0]}" if row[0] else name_of(row) for row in rows)
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


# -- from numbers to verdicts -------------------------------------------------------------------------------


def beyond(distance: float, se: float) -> float:
    """A distance in standard errors; without any error it is beyond all doubt, on its side."""
    return distance / se if se > 0 else math.copysign(math.inf, distance) if distance else 0.0


def graded(z: float, why: str, test: str) -> Verdict:
    """The verdict of a number that is z standard errors beyond its boundary."""
    word = AGREES if z >= CLEAR else LEANS if z > 0 else WITHIN if z > -CLEAR else UNSEEN
    return Verdict(word, why, test, z)


def same(apart: float, why: str) -> Verdict:
    """The verdict on a printed number that is `apart` standard errors from ours."""
    z = CLEAR - abs(apart)
    return Verdict(AGREES if z >= 0 else UNSEEN, why, "printed number within 2 s.e. of ours", z)


def all_of(parts: Mapping[str, Verdict]) -> Verdict:
    """The worst of the parts' words, and their smallest z; the reasons follow one another under the parts' names."""
    weakest = max(parts.values(), key=lambda part: (WORDS.index(part.word), -part.z))
    why = "; ".join(f"{name}: {part.why}" for name, part in parts.items())
    return Verdict(weakest.word, why, weakest.test, weakest.z)


def higher(
    records: Records, row: Row, others: Sequence[Row], measure: Measure = "welfare", *, sign: int = 1,
    size: bool = False,
) -> Verdict:  # fmt: skip
    """Above each of `others` (below, with sign = -1); with `size`, by which share of them is said."""
    gaps = {other: paired(records, row, other, measure) for other in others}
    z = {other: beyond(sign * gap.mean, gap.se) for other, gap in gaps.items()}
    comparisons = [f"{name_of(other)} {gap}" for other, gap in gaps.items()]
    if len(comparisons) > 2:
        weakest = min(z, key=lambda other: z[other])
        comparisons = [f"{name_of(weakest)} {gaps[weakest]}, the weakest of {len(comparisons)}"]
    why = f"{name_of(row)} against {', '.join(comparisons)}"
    if size:
        why += f", by {_span([gap.mean / abs(level(records, other, measure).mean) for other, gap in gaps.items()])}"
    return graded(min(z.values()), why, f"paired difference {'above' if sign > 0 else 'below'} 0")


def _span(shares: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(f"{share:+.1%}" for share in (min(shares), max(shares))))


def similar(records: Records, rows: Sequence[Row], measure: Measure = "welfare") -> Verdict:
    """No pair more than 2 % apart."""
    scale = abs(float(np.mean([level(records, row, measure).mean for row in rows])))
    pairs = [(*pair, paired(records, *pair, measure)) for pair in combinations(rows, 2)]

    def z(pair: tuple[Row, Row, Gap]) -> float:
        return beyond(SIMILAR * scale - abs(pair[2].mean), pair[2].se)

    first, second, widest = weakest = min(pairs, key=z)
    why = f"{name_of(first)} against {name_of(second)} {widest}, {abs(widest.mean) / scale:.1%} of {scale:.4f}"
    return graded(z(weakest), why, "largest paired difference below 2 %")


def competitive(records: Records, row: Row, others: Sequence[Row], measure: Measure = "welfare") -> Verdict:
    """Not more than 2 % below the best of `others`."""
    best = max(others, key=lambda other: level(records, other, measure).mean)
    gap, scale = paired(records, row, best, measure), abs(level(records, best, measure).mean)
    why = f"{name_of(row)} against {name_of(best)} {gap}, {gap.mean / scale:+.1%}"
    return graded(beyond(gap.mean + SIMILAR * scale, gap.se), why, "paired difference above -2 %")


def trend(records: Records, rows: Sequence[Row], measure: Measure, *, sign: int) -> Verdict:
    """Rises along `rows` (falls, with sign = -1): the ends, and no step clearly the other way."""
    ends = paired(records, rows[-1], rows[0], measure)
    steps = {(a, b): paired(records, b, a, measure) for a, b in pairwise(rows)}
    back = {step: beyond(sign * gap.mean, gap.se) for step, gap in steps.items() if gap.clear == -sign}
    levels = [level(records, row, measure).mean for row in rows]
    means = ", ".join(f"{mean:.{1 if abs(mean) >= 10 else 4}f}" for mean in levels)
    why = f"{means} from {rows[0][0]} to {rows[-1][0]}, ends {ends}"
    why += "".join(f", but the other way from {a[0]} to {b[0]}" for a, b in back)
    test = f"{'rise' if sign > 0 else 'fall'} from first to last, no clear step back"
    return graded(min([beyond(sign * ends.mean, ends.se), *back.values()]), why, test)


def dependent(records: Records, scenarios: Mapping[str, Sequence[Row]], measure: Measure = "welfare") -> Verdict:
    """Two rows whose order is reversed between two scenarios, as clearly as any."""
    gaps = {
        (scenario, a[1:], b[1:]): paired(records, a, b, measure)
        for scenario, rows in scenarios.items()
        for a, b in permutations(rows, 2)
    }

    def z(first: str, second: str, a: tuple[str, str], b: tuple[str, str]) -> float:
        return min(beyond(gap.mean, gap.se) for gap in (gaps[first, a, b], gaps[second, b, a]))

    kinds = list(dict.fromkeys(key[1] for key in gaps))
    reversals = [(*pair, a, b) for pair in permutations(scenarios, 2) for a, b in combinations(kinds, 2)]
    first, second, a, b = best = max(reversals, key=lambda reversal: z(*reversal))
    names = f"{name_of(('', *a))} against {name_of(('', *b))}"
    why = f"{names} {gaps[first, a, b]} in {first}, {gaps[second, a, b]} in {second}"
    return graded(z(*best), why, "order of two rows reversed between two scenarios")


def each(cases: Sequence[str], rule: Callable[[Records, str], Verdict]) -> Callable[[Records], Verdict]:
    """The rule in every one of `cases`."""
    return lambda records: all_of({case: rule(records, case) for case in cases})
