"""Every printed number beside ours, and how far apart the two are.

A standard error of ours is that of a mean over trials, sd / sqrt(trials) with ddof = 1; of a single trial there is
none, and then there is no distance. What grows or shrinks with the number of trials (a standard error, a number of
points) is set beside the print as it would be in as many trials as the paper has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import AUTO, DEFAULT, TABLES, TableSpec, printed
from gbpl.paper.printing.columns import SPREADS, Column, Row, layout

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.paper.experiments.records import Records

__all__ = ["Cell", "cells", "printed_row", "rounding", "standard_error", "summary", "table_rows", "two_shares_error"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a table, ours and the printed one; `printed` is None where the paper has no such row."""

    table: str
    case: str
    method: str
    zeta: str
    column: Column
    ours: float
    se: float
    printed: float | None
    printed_se: float | None
    trials: int

    @property
    def apart(self) -> float:
        """Ours minus printed, in standard errors of that difference; NaN where the two cannot be compared.

        The errors of both and the rounding of the print (uniform, of sd 10^-digits / sqrt(12)) are combined. Where no
        error is printed, that of the print is taken to be ours, in as many trials as the paper has. A coverage has
        the error of two shares of trials, ours and the printed number of them, with their common share. Variances and
        standard errors are compared by the logarithm of their ratio; one that is printed as zero is not.
        """
        if self.printed is None or not self.trials:
            return math.nan
        trials, difference = TABLES[self.table].trials, self.ours - self.printed
        if self.column.kind == "coverage":
            scale = two_shares_error(self.ours, self.trials, self.printed, trials)
            return difference / scale if scale > 0 else 0.0
        theirs = self.se * math.sqrt(self.trials / trials) if self.printed_se is None else self.printed_se
        if self.column.kind in SPREADS:
            if not (self.printed > 0 and self.ours > 0):
                return math.nan
            errors = (self.se / self.ours, theirs / self.ours, rounding(self.column.digits) / self.printed)
            return math.log(self.ours / self.printed) / math.hypot(*errors)
        return difference / math.hypot(self.se, theirs, rounding(self.column.digits))

    @property
    def row(self) -> Row:
        """Case, method and zeta."""
        return self.case, self.method, self.zeta


def rounding(digits: int) -> float:
    """Standard deviation of what rounding to so many digits takes away."""
    return 10.0**-digits / math.sqrt(12)


def two_shares_error(first: float, first_trials: int, second: float, second_trials: int) -> float:
    """Standard error of the difference of two shares, if both estimate one: that of all trials together."""
    share = (first * first_trials + second * second_trials) / (first_trials + second_trials)
    return math.sqrt(max(share * (1 - share), 0.0) * (1 / first_trials + 1 / second_trials))


def standard_error(values: Float[np.ndarray, " trial"]) -> float:
    """sd / sqrt(trials), ddof = 1; NaN for fewer than two trials."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan


def summary(column: Column, values: Float[np.ndarray, " trial"]) -> tuple[float, float, int]:
    """What the column makes of trials, its standard error, and how many had a number.

    The variance of n numbers has a relative error of sqrt((kurtosis - 1) / n), their standard error half of it; the
    error of a quantile is the standard deviation over 200 resamples.
    """
    values = values[np.isfinite(values)]
    count = len(values)
    if not count:
        return math.nan, math.nan, 0
    match column.kind:
        case "total":
            return float(values.sum()), count * standard_error(values), count
        case "quantile":
            again = np.random.default_rng(0).choice(values, (200, count))
            error = float(np.std(np.quantile(again, 0.05, axis=1), ddof=1)) if count > 1 else math.nan
            return float(np.quantile(values, 0.05)), error, count
        case "variance":
            variance = float(np.var(values, ddof=1)) if count > 1 else math.nan
            return variance, variance * _relative_error(values), count
        case "error":
            error = standard_error(values)
            return error, error * _relative_error(values) / 2, count
        case _:
            return float(values.mean()), standard_error(values), count


def _relative_error(values: Float[np.ndarray, " trial"]) -> float:
    """Of the variance of these numbers; NaN where they do not vary. Few numbers never show less than normal tails."""
    off = (values - values.mean()) ** 2
    if not off.any():
        return math.nan
    return math.sqrt(max(float(np.mean(off**2) / np.mean(off) ** 2) - 1, 2.0) / len(values))


def table_rows(spec: TableSpec, records: Records) -> list[Row]:
    """Rows of the table in printed order: the printed ones, then the default under every case where it has records.

    A variant is there if it was run. The interval tables have one default, in a case of its own.
    """
    known = set(records.rows())
    rows: list[Row] = []
    for case in (*spec.cases, *(variant for variant, _ in spec.variants)):
        of_paper = [(case, *row) for row in spec.rows]
        if case in spec.cases or known.intersection(of_paper):
            rows += of_paper
        if (case, *DEFAULT) in known:
            rows.append((case, *DEFAULT))
    if (AUTO, *DEFAULT) in known:
        rows.append((AUTO, *DEFAULT))
    return rows


def printed_row(spec: TableSpec, row: Row) -> Mapping[str, str] | None:
    """The printed line a row stands beside, if there is one."""
    case = dict(spec.variants).get(row[0], row[0])
    for line in printed(spec.name):
        if line[spec.key] == case and row[1:] == (line.get("method", row[1]), line.get("zeta", row[2])):
            return None if row[1:] == DEFAULT else line
    return None


def cells(spec: TableSpec, records: Records) -> list[Cell]:
    """A cell for every printed number, and for every number of the default's rows."""
    made = []
    shared: set[tuple[str, str]] = set()
    for row in table_rows(spec, records):
        line = printed_row(spec, row)
        for column in layout(spec).columns:
            ours, se, trials = summary(column, column.values(records, row))
            scale = _as_many(column, trials, spec.trials)
            text = line[column.name] if line else ""
            if (row[1:] == DEFAULT and not trials) or (row[1:] != DEFAULT and not text):
                continue
            if column.shared and line:
                if (row[0], column.name) in shared:
                    continue
                shared.add((row[0], column.name))
            error = line.get(column.error, "") if line else ""
            of_print = (float(text) if text else None, float(error) if error else None)
            made.append(Cell(spec.name, *row, column, scale * ours, scale * se, *of_print, trials))
    return made


def _as_many(column: Column, trials: int, wanted: int) -> float:
    """What turns a number of so many trials into one of `wanted` trials."""
    match column.kind:
        case "total":
            return wanted / trials if trials else 1.0
        case "error":
            return math.sqrt(trials / wanted)
        case _:
            return 1.0
