"""What the printed spread of welfare over trials implies: how many test rows, and which draws.

Trials with m test rows have a variance of welfare of at least Var(Y(d)) / m under a rule d, plus that of the optimal
welfare over draws of the design's random vectors, if every trial draws them anew. A learned rule adds little to that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import DEFAULT, TABLES, TableSpec, printed
from gbpl.paper.printing.cells import summary, table_rows
from gbpl.paper.printing.columns import Column
from gbpl.paper.printing.tables import pipe_table, signed

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

    Truths = Mapping[tuple[str, str], Mapping[str, float]]

__all__ = ["Spread", "spreads", "variance_section"]

FAR = 3.0  # standard errors of the logarithm of a variance: more cannot be chance
WELFARE = Column("welfare_var", "welfare", "variance")
INTRODUCTION = """\
The variance of welfare over trials follows from the design and the number of test rows, whatever is learned:
Var(Y(d)) / rows for a rule d, here the best one, and with it the variance of the optimal welfare over draws of the
design's random vectors where every trial draws its own. *Print* is the median over rows of the table, from printed
standard errors where no variance is printed (the text prints four digits, so that 0.0001 is 0.00005 to 0.00015);
*rows in print* is the number of test rows that would give it with the vectors fixed. z is the logarithm of print over
the nearer of the two implied variances, in standard errors of the variance of as many normal numbers as the paper has
trials. Rows are those the text states (a fifth of n), and ours where it states none (10,000 and 2,000)."""

IMPLICATIONS = """\
- Binary tables: with w of unit norm, as stated, no draw of it matters to the optimum, so only the number of rows can be
  behind the variance. Print has 1.6 to 3.8 times the stated design's, DGP1 without its divisor included. A w of
  random size would do it in DGP1 with the stated number of rows
  ([other readings](#other-readings-of-the-text)).
- K = 5 tables: vectors drawn in every trial raise the variance in DGP2 and DGP3, but not to what is printed.
- UCI tables: print is as of vectors drawn in every trial, as they are here, and not of fixed ones (energy_efficiency
  with a log has more than either).
- Learning curves and weak overlap: the size of the evaluation sample, which is not stated, is about the one used here.
- Threshold rules: welfare is printed with standard errors of 0.0001, where 2,000 new points in each replication give
  0.0013. That would follow if the printed study had the same evaluation points in all replications, or counted from
  the optimum; ours draws new ones, so that our welfare there has ten times the error, and its 5 % quantile is lower.
  Differences from the MAP rule are not touched.
- Disagreement: 3,026 random points whose disagreement is in [0.2, 0.4) have a mean of standard error 0.2 / sqrt(12) /
  sqrt(3026) = 0.0010; print has 0.0005. Evenly spaced points, the same in all replications, would have so little."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of welfare over trials in one case: implied by the design, printed, and ours."""

    table: str
    case: str
    rows: float
    row_variance: float
    most: float
    between: float
    of_print: tuple[float, float, float]  # lowest, median, highest
    ours: float

    @property
    def implied(self) -> float:
        """With the design's vectors fixed."""
        return self.row_variance / self.rows

    @property
    def z(self) -> float:
        """Print against the nearest variance that fixed vectors, or vectors of every trial, can give."""
        low, high = self.implied, max(self.most / self.rows, self.implied + self.between)
        nearest = min(max(self.of_print[1], low), high)
        return math.log(self.of_print[1] / nearest) / math.sqrt(2 / (TABLES[self.table].trials - 1))

    @property
    def needed_rows(self) -> float:
        """Test rows with which the print would follow."""
        return self.row_variance / self.of_print[1]

    @property
    def reason(self) -> str:
        """What the print has against the design, or nothing."""
        if abs(self.z) <= FAR:
            return ""
        low, _, high = self.of_print
        return (
            f"the variance of welfare over trials is {low:.4f} to {high:.4f} in print and {self.implied:.4f} for "
            f"{self.rows:.0f} test rows of the design; print is as of {self.needed_rows:.0f} rows"
        )


def _of_print(spec: TableSpec, case: str) -> tuple[float, float, float] | None:
    of_case = [line for line in printed(spec.name) if line[spec.key] == dict(spec.variants).get(case, case)]
    if of_case and "welfare_var" in of_case[0]:
        values = [float(line["welfare_var"]) for line in of_case]
    elif of_case and "welfare_se" in of_case[0]:
        values = [float(line["welfare_se"]) ** 2 * spec.trials for line in of_case]
    else:
        return None
    return min(values), float(np.median(values)), max(values)


def _spread(spec: TableSpec, records: Records, case: str, truth: Mapping[str, float]) -> Spread | None:
    of_print = _of_print(spec, case)
    if of_print is None or "row_variance" not in truth:
        return None
    rows = [row for row in table_rows(spec, records) if row[0] == case and row[1:] != DEFAULT]
    known = [summary(WELFARE, records.of(*row, "welfare"))[0] for row in rows]
    ours = [value for value in known if math.isfinite(value)]
    return Spread(
        spec.name,
        case,
        rows=truth["test_rows"],
        row_variance=truth["row_variance"],
        most=truth["most"],
        between=truth["between"],
        of_print=of_print,
        ours=float(np.median(ours)) if ours else math.nan,
    )


def spreads(records: Mapping[str, Records], truths: Truths) -> dict[tuple[str, str], Spread]:
    """One for every case with printed variances or standard errors of welfare; of a learning curve the last case,
    where little is left of what the learner adds."""
    found = {}
    for name, spec in TABLES.items():
        if name not in records:
            continue
        cases = [case for case in dict.fromkeys(row[0] for row in table_rows(spec, records[name]))]
        for case in cases[-1:] if spec.key in ("n", "clip", "alpha") else cases:
            spread = _spread(spec, records[name], case, truths.get((name, case), {}))
            if spread:
                found[name, case] = spread
    return found


def variance_section(records: Mapping[str, Records], truths: Truths) -> str:
    """The part of the report on them; empty where there are none."""
    found = spreads(records, truths).values()
    if not found:
        return ""
    heading = ["table", "case", "test rows", "implied", "drawn every trial", "ours", "print", "rows in print", "z"]
    rows = [
        [
            s.table,
            s.case,
            f"{s.rows:,.0f}",
            _digits(s.implied),
            _digits(s.implied + s.between) if s.between > 0.01 * s.implied else "--",
            _digits(s.ours),
            _digits(s.of_print[1]),
            f"{s.needed_rows:,.0f}",
            signed(s.z),
        ]
        for s in found
    ]
    parts = ["## What the printed variances imply", INTRODUCTION, pipe_table(heading, rows, "llrrrrrrr")]
    return "\n\n".join([*parts, IMPLICATIONS] if set(TABLES) <= set(records) else parts)


def _digits(value: float) -> str:
    return f"{value:.2g}" if math.isfinite(value) else "--"
