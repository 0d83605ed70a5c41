"""SQL as databases write it: names, texts, numbers to the last bit, and the conditions of a small rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DIALECTS", "Dialect", "Sql", "dialect_of"]

DIGITS, DECIMALS = 15, 4  # up to which every SQLite reads the nearest float


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a database writes what databases do not agree on.

    `double` says that a number with an exponent is a float, read to the last bit. `nan`: whether NaN is a value beside
    NULL. `lists`: whether numbers can be in a list and multiplied with another, which is much quicker to plan than a
    sum. `fence`: how a query in WITH is to be taken so that it is neither repeated for each use nor held in memory.
    """

    name: str
    mark: str  # around names; SQLite takes a name in double quotes that no column has for a text
    double: bool
    nan: bool
    lists: bool
    largest: str
    smallest: str
    fence: str

    def quoted(self, name: str) -> str:
        """A name of a table or column."""
        if not isinstance(name, str) or not name:
            raise ValueError(f"{name!r} is no name of a table or column in SQL; rename it, and fit again")
        return self.mark + _sound(name).replace(self.mark, 2 * self.mark) + self.mark

    def float(self, value: float) -> str:
        """A number that is read as exactly this float.

        DuckDB takes 0.1 for a decimal and 0.1e0 for a float, which it reads to the last bit. SQLite divides by the
        power of ten in 64 or more bits and then rounds once more, which is right if that power is at most 10^4: the
        quotient is then never nearer than 2^-64 to the middle of two floats. Other numbers it gets as n / 2^k.
        """
        value = float(value) + 0.0  # no negative zero
        if self.double:
            return repr(value) if "e" in repr(value) else f"{value!r}e0"
        digits = Decimal(repr(value)).as_tuple()
        if len(digits.digits) <= DIGITS and -DECIMALS <= int(digits.exponent) <= 0:
            return repr(value)
        part, power = math.frexp(value)
        whole, power = int(part * 2.0**53), power - 53
        while whole % 2 == 0 and power < 0:
            whole, power = whole // 2, power + 1
        written, sign = f"{whole}.0", "/" if power < 0 else "*"
        for done in range(0, abs(power), 62):
            written += f" {sign} {1 << min(62, abs(power) - done)}.0"
        return f"({written})"


DIALECTS = {
    "duckdb": Dialect("duckdb", '"', True, True, True, "GREATEST", "LEAST", "AS NOT MATERIALIZED"),
    "sqlite": Dialect("sqlite", "`", False, False, False, "MAX", "MIN", "AS MATERIALIZED"),
}


def dialect_of(name: str) -> Dialect:
    """A dialect by its name."""
    if name not in DIALECTS:
        raise ValueError(f"dialect must be one of {', '.join(DIALECTS)}, got {name!r}; try 'duckdb'")
    return DIALECTS[name]


def _sound(text: str) -> str:
    """Text that a query can hold."""
    try:
        text.encode()
        fine = "\0" not in text
    except UnicodeEncodeError:
        fine = False
    if not fine:
        raise ValueError(f"{text!r:.60} has letters that SQL cannot hold; rename it, and fit again")
    return text


def _quoted_text(text: str) -> str:
    """A text as SQL has it."""
    return "'" + _sound(text).replace("'", "''") + "'"


class Sql:
    """SQL as a `Language`: pieces of one expression."""

    def __init__(self, dialect: Dialect, actions: np.ndarray) -> None:
        self.dialect, labels = dialect, actions.tolist()
        kinds = {type(label) for label in labels}
        plain = len(kinds) == 1 and kinds <= {int, float} and all(abs(label) < 1 << 63 for label in labels)
        self.labels = [
            _quoted_text(str(label)) if not plain else str(label) if isinstance(label, int) else dialect.float(label)
            for label in labels
        ]

    def label(self, number: int) -> str:
        return self.labels[number]

    def nothing(self) -> str:
        return "NULL"

    def number(self, column: str, fill: float | None) -> str:
        value = f"CAST({self.dialect.quoted(column)} AS DOUBLE PRECISION)"
        if self.dialect.nan:
            value = f"NULLIF({value}, CAST('NaN' AS DOUBLE PRECISION))"
        return value if fill is None else f"COALESCE({value}, {self.dialect.float(fill)})"

    def above(self, value: str, cut: float) -> str:
        return f"{value} > {self.dialect.float(cut)}"

    def always(self, true: bool) -> str:
        return "1 = 1" if true else "1 = 0"

    def missing(self, column: str, *, text: bool) -> str:
        return f"{self.dialect.quoted(column) if text else self.number(column, None)} IS NULL"

    def level(self, column: str, text: str) -> str:
        return f"{self._text(column)} = {_quoted_text(text)}"

    def other(self, column: str, levels: Sequence[str], or_missing: bool) -> str:
        """A comparison with NULL is not true, in `NOT IN` neither."""
        gone = self.missing(column, text=True)
        if not levels:
            return self.always(True) if or_missing else f"{self.dialect.quoted(column)} IS NOT NULL"
        new = f"{self._text(column)} NOT IN ({', '.join(map(_quoted_text, levels))})"
        return f"({gone} OR {new})" if or_missing else new

    def _text(self, column: str) -> str:
        return f"CAST({self.dialect.quoted(column)} AS VARCHAR)"

    def either(self, conditions: Sequence[str]) -> str:
        return " OR ".join(conditions)

    def every(self, conditions: Sequence[str]) -> str:
        return " AND ".join(conditions)

    def enough(self, start: int, points: Sequence[tuple[str, int]]) -> str:
        terms = [f"CASE WHEN {condition} THEN {count} ELSE 0 END" for condition, count in points]
        return f"{' + '.join([str(start), *terms])} >= 0"

    def choose(self, condition: str, then: str, otherwise: str) -> str:
        rest = otherwise.removeprefix("CASE\n") if otherwise.startswith("CASE\n") else f"ELSE {otherwise}\nEND"
        return f"CASE\nWHEN {condition} THEN {then}\n{rest}"
