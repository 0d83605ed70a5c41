"""Cells of tables, and the ends of intervals as they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gbpl.report.numbers import UNKNOWN, amount, percent
from gbpl.report.reading import LEVEL

__all__ = ["Cell", "ends_of", "span"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A table's cell: what is read, what it is sorted by, and whether it is a name of the user's."""

    text: str
    value: float | str | None = None
    name: bool = False


def span(ends: tuple[float, float] | None, places: int | None, unit: str = "") -> dict[str, str]:
    """Values for the places {low}, {high} and {level} of a sentence, and both ends as {span}."""
    low, high = (None, None) if ends is None else ends
    written = {"low": amount(low, places, unit), "high": amount(high, places, unit), "level": percent(LEVEL)}
    return written | {"span": UNKNOWN if ends is None else f"{written['low']} to {written['high']}"}


def ends_of(part: Mapping[str, Any] | None, prefix: str = "") -> tuple[float, float] | None:
    """Lower and upper end under the keys `low` and `high`; None unless both are known."""
    low, high = ((part or {}).get(f"{prefix}{end}") for end in ("low", "high"))
    return None if low is None or high is None else (low, high)
