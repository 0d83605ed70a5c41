"""A column as features: numbers with a fill for missing values, categories with one feature per level."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.columns import EXACT, Kind, RawColumn, check_finite, kind_of, level_text, read_column
from gbpl.tables.frames import TableError
from gbpl.tables.number_text import number_text

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["LEVELS", "MISSING", "OTHER", "CategoryColumn", "NumberColumn", "learn_column"]

LEVELS = 30  # levels of a category that get a feature of their own, at most
LARGEST = float(np.finfo(np.float64).max)
OTHER, MISSING = "(other)", "(missing)"
REMEDY = {
    Kind.DATE: "turn it into a number, such as the year or the days since a start, and name that",
    Kind.NESTED: "make one column per part, and name those",
    Kind.EMPTY: "leave it out of the features",
}


@dataclass(frozen=True, slots=True)
class NumberColumn:
    """Numbers, or booleans as 0 and 1: `fill` where missing, which a feature marks if any were missing in training.

    Numbers outside `span` are far from all that were learned from, by as much as those were from each other; None: not
    known, as in files of earlier versions.
    """

    name: str
    fill: float
    missing: bool
    boolean: bool = False
    span: tuple[float, float] | None = None

    @property
    def names(self) -> list[str]:
        return [self.name, f"{self.name} is missing"] if self.missing else [self.name]

    @property
    def kinds(self) -> list[str]:
        return ["number", "missing"] if self.missing else ["number"]

    def encode(self, values: Any, out: Float[np.ndarray, "row feature"], first_row: int) -> Counter[str]:
        """Write this column's features over zeros; counts of missing values and new levels."""
        raw = read_column(values, self.name)
        check_finite(raw, self.name, first_row)
        self._check_kind(raw, first_row)
        out[:, 0] = raw.values if raw.kind in (Kind.NUMBER, Kind.BOOLEAN) else self.fill
        out[raw.missing, 0] = self.fill
        if self.missing:
            out[:, 1] = raw.missing
        counts = Counter({f"missing {self.name}": int(raw.missing.sum())})
        if self.span is not None:
            far = int(np.count_nonzero((out[:, 0] < self.span[0]) | (out[:, 0] > self.span[1])))
            counts[f"value(s) of {self.name} far outside what was learned ({self.span[0]:g} to {self.span[1]:g})"] = far
        return counts

    def _check_kind(self, raw: RawColumn, first_row: int) -> None:
        held = "true and false" if self.boolean else "numbers"
        if raw.kind is Kind.BOOLEAN or (raw.kind is Kind.NUMBER and not self.boolean) or raw.missing.all():
            return
        if raw.kind is Kind.NUMBER:
            wrong = ~raw.missing & (raw.values != 0) & (raw.values != 1)
            if not wrong.any():
                return
            row = int(np.argmax(wrong))
            now = f"is {raw.values[row]:g} in row {first_row + row}"
        elif raw.kind is Kind.CATEGORY:
            now = f"is the text {raw.levels[raw.values[raw.odd]]!r:.40} in row {first_row + raw.odd}"
        else:
            now = f"now holds {'dates' if raw.kind is Kind.DATE else raw.types}"
        raise TableError(f"column {self.name!r} held {held} when the policy was learned, but {now}; bring {held} again")

    def to_json(self) -> dict[str, Any]:
        kind = "boolean" if self.boolean else "number"
        known = {} if self.span is None else {"span": list(self.span)}
        return {"name": self.name, "kind": kind, "fill": self.fill, "missing": self.missing, **known}


@dataclass(frozen=True, slots=True)
class CategoryColumn:
    """One feature per level; `other`: one for rare and new levels; `missing`: one for rows without a value.

    Two levels and nothing else need only one feature, that of the second level. Without `other`, a new level is zero in
    every feature. Where a level of the data is itself called '(other)' or '(missing)', the one made here is numbered,
    '(other 2)', so that the two stay apart.
    """

    name: str
    levels: tuple[str, ...]
    other: bool
    missing: bool

    @property
    def single(self) -> bool:
        return len(self.levels) == 2 and not (self.other or self.missing)

    def made(self, word: str) -> str:
        """The text of a level made here, different from every level of the data."""
        text, number = word, 1
        while text in self.levels:
            number += 1
            text = f"{word[:-1]} {number})"
        return text

    @property
    def names(self) -> list[str]:
        extra = [self.made(word) for word, used in ((OTHER, self.other), (MISSING, self.missing)) if used]
        return [f"{self.name}={level}" for level in [*self.levels[int(self.single) :], *extra]]

    @property
    def kinds(self) -> list[str]:
        return ["category"] * len(self.names)

    def encode(self, values: Any, out: Float[np.ndarray, "row feature"], first_row: int) -> Counter[str]:
        """Write this column's features over zeros; counts of missing values and new levels."""
        raw = read_column(values, self.name, as_text=True)
        if raw.kind is not Kind.CATEGORY and not raw.missing.all():
            now = "dates" if raw.kind is Kind.DATE else raw.types
            wanted = f"its levels, such as {self.levels[0]!r:.40}" if self.levels else "its levels as text"
            raise TableError(
                f"column {self.name!r} held categories when the policy was learned, but now holds {now}; bring {wanted}"
            )
        count, place = len(self.levels), {level: number for number, level in enumerate(self.levels)}
        codes = raw.values if raw.kind is Kind.CATEGORY else np.full(len(raw.missing), -1)
        level = np.array([*(place.get(text, count) for text in raw.levels), count], np.int64)[codes]
        unknown = (level == count) & ~raw.missing
        fallback = count if self.other else -1
        absent = count + self.other if self.missing else fallback
        at = np.where(raw.missing, absent, np.where(unknown, fallback, level)) - self.single
        out[np.flatnonzero(at >= 0), at[at >= 0]] = 1.0
        word = "rare or new" if self.other else "new"
        gone, new = int(raw.missing.sum()), int(unknown.sum())
        return Counter({f"missing {self.name}": gone, f"{word} level of {self.name}": new})

    def to_json(self) -> dict[str, Any]:
        made = {"other": self.other, "missing": self.missing}
        return {"name": self.name, "kind": "category", "levels": list(self.levels), **made}


def _span(present: Float[np.ndarray, " row"]) -> tuple[float, float]:
    """The range with its width added on both sides, in one digit, which says little about the highest or lowest row.

    >>> _span(np.array([18.0, 44.0, 90.0]))
    (-60.0, 200.0)
    """
    low, high = float(present.min()), float(present.max())
    with np.errstate(over="ignore"):
        ends = low - (high - low), high + (high - low)
    return _one_digit(ends[0], down=True), _one_digit(ends[1], down=False)


def _one_digit(value: float, *, down: bool) -> float:
    """A number of one digit that is not above, or not below, the value."""
    if value == 0.0 or not math.isfinite(value):
        return float(np.clip(value, -LARGEST, LARGEST))
    power = math.floor(math.log10(abs(value)))
    digit = (math.floor if down else math.ceil)(Decimal(value).scaleb(-power))
    return float(np.clip(float(f"{digit}e{power}"), -LARGEST, LARGEST))


def _learn_number(raw: RawColumn, name: str) -> tuple[NumberColumn, list[str]]:
    present = np.asarray(raw.values[~raw.missing], np.float64)
    fill = float(np.median(present / 2) * 2)  # halves: the sum of two large numbers would overflow
    missing = int(raw.missing.sum())
    boolean = raw.kind is Kind.BOOLEAN
    made = NumberColumn(name, fill, missing > 0, boolean, None if boolean else _span(present))
    notes = []
    if missing:
        marked = f"{made.names[1]!r} marks them"
        notes.append(f"column {name!r}: missing in {missing:,} row(s), filled with {fill:g}, the median; {marked}")
    if raw.values.dtype.kind in "iu" and np.abs(present).max() > EXACT:
        notes.append(f"column {name!r}: integers beyond 2**53 are rounded to the nearest float")
    return made, notes


def _learn_category(raw: RawColumn, name: str) -> tuple[CategoryColumn, list[str]]:
    rows, missing = len(raw.missing), int(raw.missing.sum())
    needed = 3 if rows < 200 else max(10, math.ceil(0.005 * rows))
    counts = np.bincount(raw.values[~raw.missing], minlength=len(raw.levels)).tolist()
    seen = {level: count for level, count in zip(raw.levels, counts, strict=True) if count}
    often = sorted((level for level in seen if seen[level] >= needed), key=lambda level: (-seen[level], level))
    kept = tuple(sorted(often[:LEVELS]))
    made = CategoryColumn(name, kept, len(kept) < len(seen), missing > 0)
    notes = [f"column {name!r}: holds {raw.types}, read as text"] if raw.types else []
    if made.other:
        merged = sum(seen.values()) - sum(seen[level] for level in kept)
        rare = f"those in fewer than {needed:,} rows" + (f", and all but {LEVELS}" if len(often) > LEVELS else "")
        notes.append(
            f"column {name!r}: {len(seen) - len(kept):,} of {len(seen):,} levels merged into {made.made(OTHER)!r}: "
            f"{rare} ({merged:,} rows in all)"
        )
    if missing:
        notes.append(f"column {name!r}: missing in {missing:,} row(s), a level of its own, {made.made(MISSING)!r}")
    return made, notes


def _why_not(kind: Kind, raw: RawColumn) -> str:
    """Why a column is left out unless it is asked for; nothing where it is used."""
    rows = len(raw.missing)
    if kind is Kind.CONSTANT:
        value = raw.levels[raw.values[0]] if raw.kind is Kind.CATEGORY else level_text(raw.values[0])
        return f"every row has {value!r:.40}" if raw.kind is Kind.CATEGORY else f"every row has {value}"
    distinct = len(np.unique(raw.values[~raw.missing])) if kind is Kind.TEXT else 0
    return {
        Kind.DATE: "it holds dates",
        Kind.NESTED: f"it holds {raw.types}, not one plain value per row",
        Kind.EMPTY: f"it has no value in any of the {rows:,} rows",
        Kind.IDENTIFIER: "every value is different",
        Kind.TEXT: f"free text, {distinct:,} different values in {rows:,} rows",
    }.get(kind, "")


def learn_column(values: Any, name: str, asked: bool) -> tuple[NumberColumn | CategoryColumn | None, list[str]]:
    raw = read_column(values, name)
    check_finite(raw, name)
    kind = kind_of(raw, name)
    why = _why_not(kind, raw)
    looks = number_text(raw, name) if raw.kind is Kind.CATEGORY and kind is not Kind.CONSTANT else None
    if why and not asked:
        return None, [f"column {name!r} left out: {why}"]
    if kind in REMEDY:
        raise TableError(f"column {name!r} cannot be a feature: {why}; {REMEDY[kind]}")
    odd = [f"column {name!r}: {why}; used, as it was asked for"] if why else []
    odd += [] if looks is None else [looks]
    if raw.kind is not Kind.CATEGORY:
        number, notes = _learn_number(raw, name)
        return number, odd + notes
    category, notes = _learn_category(raw, name)
    if not asked and not category.levels and not category.missing:
        return None, [*odd, f"column {name!r} left out: each of its {len(np.unique(raw.values)):,} levels is rare"]
    return category, odd + notes
