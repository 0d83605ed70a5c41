"""Who gets what, in shares: by feature, and how rows for a person to review differ from the others.

Nothing is said of fewer rows than the smallest group that a study may show, so that nobody is recognised in a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import column
from gbpl.tables.parts import SMALLEST_GROUP, Parts

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["by_feature", "review"]

MOST_FEATURES = 30
MOST_REVIEWED = 12


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
        values = column(frame, name)[kept]
        parts = Parts.of(values, smallest)
        place, names, kind = parts.place(values), parts.names, parts.kind
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
