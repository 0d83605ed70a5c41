"""Who gets what, in shares: by feature, and how rows for a person to review differ from the others.

Nothing is said of fewer rows than the smallest group that a study may show, so that nobody is recognised in a file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.conditions import plainest, shown
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError, column, is_missing

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["SMALLEST_GROUP", "by_feature", "check_smallest_group", "review"]

SMALLEST_GROUP = 10
BINS = 5
MOST_LEVELS = 8
MOST_FEATURES = 30
MOST_REVIEWED = 12
MISSING = "(missing)"
OTHER = "all others"


def check_smallest_group(size: int) -> int:
    """Refuse anything but a number of rows."""
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise TableError(f"smallest_group must be a whole number >= 1, got {size!r:.40}; try {SMALLEST_GROUP}")
    return int(size)


def _numbers(values: Float[np.ndarray, " row"], smallest: int) -> tuple[Int[np.ndarray, " row"], list[str]]:
    """Bin of each row by quantiles, and the names of the bins, which hold for exactly their rows."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= BINS and counts.min(initial=smallest) >= smallest:
        return np.searchsorted(distinct, values), [shown(value) for value in distinct.tolist()]
    last = np.unique(np.searchsorted(distinct, np.quantile(values, np.arange(1, BINS) / BINS), side="right")) - 1
    last = np.arange(len(distinct)) if len(distinct) <= BINS else last  # places of the largest value of each bin
    last = _large_enough(last, np.cumsum(counts), smallest)
    place = np.searchsorted(distinct[last], values, side="left")
    cuts = [shown(plainest(float(distinct[at]), float(distinct[at + 1]))) for at in last.tolist()]
    middle = [f"above {low} to {high}" for low, high in pairwise(cuts)]
    return place, [f"up to {cuts[0]}", *middle, f"above {cuts[-1]}"] if cuts else ["any"]


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


def _levels(values: np.ndarray, smallest: int) -> tuple[Int[np.ndarray, " row"], list[str]]:
    """Bin of each row by its level, the rarer levels together, and the names."""
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
    kept = np.sort(often)
    moved = np.full(len(levels), len(kept))
    moved[kept] = np.arange(len(kept))
    return moved[place], [*(levels[at] for at in kept.tolist()), *([OTHER] if len(kept) < len(levels) else [])]


def _level(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _binned(values: np.ndarray, smallest: int) -> tuple[Int[np.ndarray, " row"], list[str], str]:
    """Bin of each row, names of the bins, and the kind of the column."""
    missing = is_missing(values)
    number = values.dtype.kind in "iuf"
    present = values[~missing]
    bins, names = _numbers(present.astype(np.float64), smallest) if number else _levels(present, smallest)
    place = np.full(len(values), len(names))
    place[~missing] = bins
    if 0 < missing.sum() < smallest and len(present):  # with the rows of the largest part
        largest = int(np.argmax(np.bincount(bins, minlength=len(names))))
        place[missing], names[largest] = largest, f"{names[largest]}, or missing"
    elif missing.any():
        names = [*names, MISSING]
    return place, names, "number" if number else "category"


def by_feature(
    frame: Any, encoder: Encoder, kept: Bool[np.ndarray, " row"], given: Int[np.ndarray, " row"],
    deferred: Bool[np.ndarray, " row"], count: int, smallest: int = SMALLEST_GROUP,
) -> list[dict[str, Any]]:  # fmt: skip
    """Shares of the actions in parts of each feature of `smallest` rows or more, the most important feature first.

    `importance` is the share of the variance of the actions given that lies between the parts.
    """
    overall = np.bincount(given, minlength=count) / len(given)
    variance = float(np.sum(overall * (1.0 - overall)))
    ranked: list[tuple[float, dict[str, Any]]] = []
    for name in encoder.columns:
        place, names, kind = _binned(column(frame, name)[kept], smallest)
        together = np.bincount(place * count + given, minlength=len(names) * count).reshape(-1, count)
        rows = together.sum(axis=1)
        shares = together / np.maximum(rows, 1)[:, None]
        away = np.bincount(place, deferred, len(names)) / np.maximum(rows, 1)
        between = float(np.sum(rows[:, None] * (shares - overall) ** 2) / len(given))
        bins = [
            {"label": names[b], "rows": int(rows[b]), "shares": shares[b].tolist(), "deferred": float(away[b])}
            for b in range(len(names))
            if rows[b]
        ]
        importance = between / variance if variance > 0.0 else 0.0
        ranked.append((importance, {"feature": name, "kind": kind, "importance": importance, "bins": bins}))
    return [part for _, part in sorted(ranked, key=lambda pair: -pair[0])[:MOST_FEATURES]]


def review(
    x: Float[np.ndarray, "row feature"], encoder: Encoder, deferred: Bool[np.ndarray, " row"],
    smallest: int = SMALLEST_GROUP,
) -> list[dict[str, Any]]:  # fmt: skip
    """How rows handed to a person differ from the others in means and shares, the largest difference in sd first.

    Nothing where either are fewer than `smallest`: means of a few rows give them away.
    """
    if min(np.count_nonzero(deferred), np.count_nonzero(~deferred)) < smallest:
        return []
    away, stay = x[deferred], x[~deferred]
    means = stay.mean(axis=0), away.mean(axis=0)
    spread = np.sqrt((away.var(axis=0) + stay.var(axis=0)) / 2.0)
    difference = (means[1] - means[0]) / np.where(spread > 0.0, spread, 1.0)
    names, kinds = encoder.names, encoder.kinds
    order = np.argsort(-np.abs(difference), kind="stable")[:MOST_REVIEWED].tolist()
    differences = []
    for j in order:
        if difference[j] == 0.0:
            break
        numbers = {"kept": float(means[0][j]), "deferred": float(means[1][j]), "difference": float(difference[j])}
        differences.append({"feature": names[j], "kind": kinds[j], **numbers})
    return differences
