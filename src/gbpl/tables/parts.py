"""A column cut into a few parts of enough rows: numbers by quantiles, categories by level, the rare ones together.

No part has fewer rows than the smallest group that may be shown, so that nobody is recognised by it. Parts are learned
once, and say of any later row in which of them it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.conditions import plainest, shown
from gbpl.tables.frames import TableError, is_missing

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["MISSING", "OTHER", "SMALLEST_GROUP", "Parts", "check_smallest_group"]

SMALLEST_GROUP = 10
BINS = 5
MOST_LEVELS = 8
MISSING = "(missing)"
OTHER = "all others"


def check_smallest_group(size: int) -> int:
    """Refuse anything but a number of rows."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise TableError(f"smallest_group must be a whole number >= 1, got {size!r:.40}; try {SMALLEST_GROUP}")
    return int(size)


@dataclass(frozen=True, slots=True)
class Parts:
    """Names of the parts, and what tells them apart: the `cuts` between numbers, or `levels` as text.

    `others` and `missing` are the parts of levels that are not listed and of rows without a value; None: no part.

    >>> parts = Parts.of(np.array(["a", "b", "a", "c", "b"]), smallest=2)
    >>> parts.names, parts.place(np.array(["b", "c", "z"])).tolist()
    (('a', 'all others'), [1, 1, 1])
    """

    kind: str
    names: tuple[str, ...]
    cuts: tuple[float, ...] | None
    levels: tuple[str, ...]
    others: int | None
    missing: int | None

    @classmethod
    def of(cls, values: np.ndarray, smallest: int = SMALLEST_GROUP) -> Parts:
        """Parts of a column as `tables.frames.column` gives it, each of `smallest` rows or more."""
        gone = is_missing(values)
        number = values.dtype.kind in "iuf"
        present = values[~gone]
        cuts, levels, names = _numbers(present.astype(np.float64), smallest) if number else _levels(present, smallest)
        others = len(levels) if cuts is None and len(levels) < len(names) else None
        made = cls("number" if number else "category", tuple(names), cuts, levels, others, None)
        if not gone.any():
            return made
        at = len(names)
        if gone.sum() < smallest and len(present):  # with the rows of the largest part
            at = int(np.argmax(np.bincount(made.place(present), minlength=len(names))))
            names[at] = f"{names[at]}, or missing"
        else:
            names.append(MISSING)
        return cls(made.kind, tuple(names), cuts, levels, others, at)

    def place(self, values: np.ndarray) -> Int[np.ndarray, " row"]:
        """The part of each row; -1 for one of which nothing is known."""
        gone = is_missing(values)
        place = np.full(len(values), -1 if self.missing is None else self.missing)
        present = values[~gone]
        if self.cuts is not None:
            if present.dtype.kind not in "biuf" and len(present):
                raise TableError(f"a column of numbers, cut at {self.cuts}, now holds other values; bring numbers")
            place[~gone] = np.searchsorted(self.cuts, present.astype(np.float64), side="left")
        else:
            number = {level: at for at, level in enumerate(self.levels)}
            unknown = -1 if self.others is None else self.others
            listed = present.tolist()
            text = _shown if self.kind == "number" else _level
            code = {value: number.get(text(value), unknown) for value in dict.fromkeys(listed)}
            place[~gone] = np.fromiter(map(code.__getitem__, listed), np.int64, len(listed))
        return place

    @property
    def reads_as(self) -> str:
        """What a reader of files makes of the column: number, boolean or category."""
        if self.kind == "category" and self.levels and set(self.levels) <= {"true", "false"}:
            return "boolean"
        return self.kind

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Any) -> Parts:
        """What `to_json` wrote; anything else is refused."""
        fine = isinstance(stored, dict) and set(stored) == set(cls.__slots__)
        _require(fine, "its parts are not described")
        names, levels, cuts = stored["names"], stored["levels"], stored["cuts"]
        for texts in (names, levels):
            fine = isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)
            _require(fine, "a name is no text")
        _require(stored["kind"] in ("number", "category"), f"its kind is {stored['kind']!r:.40}")
        if cuts is not None:
            fine = isinstance(cuts, list | tuple) and all(type(cut) in (int, float) for cut in cuts)
            _require(
                fine and all(abs(cut) < np.inf for cut in cuts) and list(cuts) == sorted(set(cuts)),
                "its cuts are not numbers in order",
            )
            cuts = tuple(float(cut) for cut in cuts)
        for at in (stored["others"], stored["missing"]):
            _require(at is None or (type(at) is int and 0 <= at < len(names)), f"{at!r:.40} is no part")
        known = len(levels) if cuts is None else len(cuts) + 1
        _require(len(names) > 0 and known <= len(names), "a part has no name")
        return cls(stored["kind"], tuple(names), cuts, tuple(levels), stored["others"], stored["missing"])


def _require(fine: bool, what: str) -> None:
    if not fine:
        raise TableError(f"this is no stored column of groups: {what}; save the policy again")


def _numbers(
    values: Float[np.ndarray, " row"], smallest: int
) -> tuple[tuple[float, ...] | None, tuple[str, ...], list[str]]:
    """Cuts between quantiles, or the few values there are, and the names, which hold for exactly their rows."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= BINS and counts.min(initial=smallest) >= smallest:
        names = [shown(value) for value in distinct.tolist()]
        return None, tuple(names), names
    last = np.unique(np.searchsorted(distinct, np.quantile(values, np.arange(1, BINS) / BINS), side="right")) - 1
    last = np.arange(len(distinct)) if len(distinct) <= BINS else last  # places of the largest value of each bin
    last = _large_enough(last, np.cumsum(counts), smallest)
    cuts = [plainest(float(distinct[at]), float(distinct[at + 1])) for at in last.tolist()]
    words = [shown(cut) for cut in cuts]
    middle = [f"above {low} to {high}" for low, high in pairwise(words)]
    return tuple(cuts), (), [f"up to {words[0]}", *middle, f"above {words[-1]}"] if cuts else ["any"]


def _large_enough(
    last: Int[np.ndarray, " bin"], below: Int[np.ndarray, " value"], smallest: int
) -> Int[np.ndarray, " cut"]:
    """The ends of bins but the highest, those of small bins left out; `below` counts the rows up to each value."""
    kept, before = [], 0
    for at in last.tolist():
        if below[at] - before >= smallest and below[-1] - below[at] >= smallest:
            kept.append(at)
            before = int(below[at])
    return np.array(kept, np.int64)


def _levels(values: np.ndarray, smallest: int) -> tuple[None, tuple[str, ...], list[str]]:
    """The levels with enough rows, and the names, with one for the rarer levels together."""
    listed = values.tolist()
    text = {value: _level(value) for value in dict.fromkeys(listed)}
    levels = sorted(set(text.values()))
    number = {level: at for at, level in enumerate(levels)}
    code = {value: number[level] for value, level in text.items()}
    place = np.fromiter(map(code.__getitem__, listed), np.int64, len(listed))
    counts = np.bincount(place, minlength=len(levels))
    often = np.argsort(-counts, kind="stable")[: min(MOST_LEVELS, int(np.count_nonzero(counts >= smallest)))]
    while len(often) and 0 < len(place) - counts[often].sum() < smallest:
        often = often[:-1]
    kept = tuple(levels[at] for at in np.sort(often).tolist())
    return None, kept, [*kept, *([OTHER] if len(kept) < len(levels) else [])]


def _level(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _shown(value: Any) -> str:
    """A value of a column of numbers, which a file may hold as text."""
    try:
        return shown(float(value))
    except (TypeError, ValueError):
        return str(value)
