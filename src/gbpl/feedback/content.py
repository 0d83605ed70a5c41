"""Rows and columns in an order of their own: by what they hold, whatever the order in which they came.

Folds, batches and first weights are drawn by position. Positions in this order make a fit the same for a table whose
rows or columns come in another order, up to rounding; names of actions do not matter either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.full import FullFeedback

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt64

    from gbpl.feedback.logged import LoggedFeedback

__all__ = ["column_order", "content_order"]


def _mixed(bits: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """Well-mixed bits of each number (the finalizer of splitmix64, Steele et al. 2014)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _bits(values: Float[np.ndarray, " row"]) -> UInt64[np.ndarray, " row"]:
    return (np.ascontiguousarray(values, np.float64) + 0.0).view(np.uint64)  # minus zero is zero


def _keys(x: Float[np.ndarray, "row feature"]) -> UInt64[np.ndarray, " feature"]:
    """One key per column: a sum over rows, so their order is nothing to it.

    A value is taken with the sum of its whole row, which tells columns of the same values in other rows apart.
    """
    rows = np.zeros(len(x), np.uint64)
    for column in x.T:
        rows += _mixed(_bits(column))
    return np.array([_mixed(_bits(column) ^ _mixed(rows)).sum(dtype=np.uint64) for column in x.T])


def column_order(x: Float[np.ndarray, "row feature"], sd: Float[np.ndarray, " feature"]) -> Int[np.ndarray, " kept"]:
    """The columns that vary, by their content; the first alone if none does.

    >>> column_order(np.array([[1.0, 5.0, 0.0], [2.0, 5.0, 1.0]]), np.array([0.5, 0.0, 0.5])).tolist() in (
    ...     [0, 2], [2, 0])
    True
    """
    varying = np.flatnonzero(sd > 0.0)
    if len(varying) < 2:
        return varying if len(varying) else np.array([0])
    return varying[np.argsort(_keys(x[:, varying]), kind="stable")]


def content_order(
    feedback: FullFeedback | LoggedFeedback,
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"] | None]:
    """Rows by their features, those that share them by action and outcome; and in a log the rank of each row's action.

    Actions rank by the features of the rows that took them. Outcomes only part rows with the same features and action,
    and rows that share all of them are interchangeable.
    """
    x = feedback.x
    varying = x[:, np.ptp(x, axis=0) > 0.0]
    key = np.zeros(len(x), np.uint64)
    for column, own in zip(varying.T, _keys(varying), strict=True):
        key += _mixed(_bits(column) ^ own)
    if isinstance(feedback, FullFeedback):
        outcomes = np.zeros(len(x), np.uint64)
        for column in feedback.outcomes.T:
            outcomes += _mixed(_bits(column))
        return np.lexsort((outcomes, key)), None
    keys = [_mixed(key[feedback.action == action]).sum(dtype=np.uint64) for action in range(len(feedback.actions))]
    rank = np.argsort(np.argsort(keys, kind="stable"), kind="stable")[feedback.action]
    return np.lexsort((_mixed(_bits(feedback.outcome)), rank, key)), rank
