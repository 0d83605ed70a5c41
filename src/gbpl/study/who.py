"""Who gets what, in shares: by feature, and how rows for a person to review differ from the others."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import column, is_missing

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["by_feature", "plainest", "review", "shown"]

BINS = 5
MOST_LEVELS = 8
MOST_FEATURES = 30
MOST_REVIEWED = 12
MISSING = "(missing)"
OTHER = "all others"
DIGITS = 17  # enough to write every float exactly


def plainest(low: float, high: float) -> float:
    """The number with the fewest digits in [low, high): a cut that is easy to read and moves no row to the other side.

    >>> plainest(1233.2, 1251.0), plainest(40.0, 41.0), plainest(2.71828, 2.71829)
    (1240.0, 40.0, 2.71828)
    """
    if low <= 0.0 < high:
        return 0.0
    for digits in range(DIGITS):
        for number in (low, low / 2.0 + high / 2.0, high):
            rounded = float(f"{number:.{digits}e}")
            if low <= rounded < high:
                return rounded
    return low


def shown(number: float) -> str:
    """A number in full, thousands separated: `float` of it without the commas is the number."""
    if number != 0.0 and not 1e-4 <= abs(number) < 1e15:
        return repr(float(number))
    whole, point, decimals = np.format_float_positional(abs(number), trim="-").partition(".")
    return f"{'-' if number < 0.0 else ''}{int(whole):,}{point}{decimals}"


def _numbers(values: Float[np.ndarray, " row"]) -> tuple[Int[np.ndarray, " row"], list[str]]:
    """Bin of each row by quantiles, and the names of the bins, which hold for exactly their rows."""
    distinct = np.unique(values)
    if len(distinct) <= BINS:
        return np.searchsorted(distinct, values), [shown(value) for value in distinct.tolist()]
    last = np.unique(np.searchsorted(distinct, np.quantile(values, np.arange(1, BINS) / BINS), side="right")) - 1
    last = last[last < len(distinct) - 1]  # places of the largest value of each bin but the highest
    place = np.searchsorted(distinct[last], values, side="left")
    cuts = [shown(plainest(float(distinct[at]), float(distinct[at + 1]))) for at in last.tolist()]
    middle = [f"above {low} to {high}" for low, high in pairwise(cuts)]
    return place, [f"up to {cuts[0]}", *middle, f"above {cuts[-1]}"] if cuts else ["any"]


def _levels(values: np.ndarray) -> tuple[Int[np.ndarray, " row"], list[str]]:
    """Bin of each row by its level, the rarer levels together, and the names."""
    listed = values.tolist()
    text = {value: _level(value) for value in dict.fromkeys(listed)}
    levels = sorted(set(text.values()))
    number = {level: at for at, level in enumerate(levels)}
    code = {value: number[level] for value, level in text.items()}
    place = np.fromiter(map(code.__getitem__, listed), np.int64, len(listed))
    counts = np.bincount(place, minlength=len(levels))
    kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])
    moved = np.full(len(levels), len(kept))
    moved[kept] = np.arange(len(kept))
    return moved[place], [*(levels[at] for at in kept.tolist()), *([OTHER] if len(kept) < len(levels) else [])]


def _level(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _binned(values: np.ndarray) -> tuple[Int[np.ndarray, " row"], list[str], str]:
    """Bin of each row, names of the bins, and the kind of the column."""
    missing = is_missing(values)
    number = values.dtype.kind in "iuf"
    present = values[~missing]
    bins, names = _numbers(present.astype(np.float64)) if number else _levels(present)
    place = np.full(len(values), len(names))
    place[~missing] = bins
    if missing.any():
        names = [*names, MISSING]
    return place, names, "number" if number else "category"


def by_feature(
    frame: Any, encoder: Encoder, kept: Bool[np.ndarray, " row"], given: Int[np.ndarray, " row"],
    deferred: Bool[np.ndarray, " row"], count: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """Shares of the actions in parts of each feature, the most important feature first.

    `importance` is the share of the variance of the actions given that lies between the parts.
    """
    overall = np.bincount(given, minlength=count) / len(given)
    variance = float(np.sum(overall * (1.0 - overall)))
    ranked: list[tuple[float, dict[str, Any]]] = []
    for name in encoder.columns:
        place, names, kind = _binned(column(frame, name)[kept])
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
    x: Float[np.ndarray, "row feature"], encoder: Encoder, deferred: Bool[np.ndarray, " row"]
) -> list[dict[str, Any]]:
    """How rows handed to a person differ from the others in means and shares, the largest difference in sd first."""
    if not deferred.any() or deferred.all():
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
