"""Rows and columns in an order of their own: by what they hold, whatever the order in which they came.

Folds, batches and first weights are drawn by position. Positions in this order make a fit the same for a table whose
rows or columns come in another order or in other units, up to rounding; names of actions do not matter either. Rows
that are there several times, all of them equally often, count once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.fingerprint import mixed
from gbpl.feedback.full import FullFeedback

if TYPE_CHECKING:
    from jaxtyping import Float, Int, UInt64

    from gbpl.feedback.logged import LoggedFeedback

__all__ = ["column_order", "content_order", "distinct_rows"]

FEW_ROWS = 20  # fewer different rows may well repeat by chance


def _ranks(values: Float[np.ndarray, " row"]) -> UInt64[np.ndarray, " row"]:
    """The place of each value among the different ones, which does not depend on their unit."""
    return np.unique(values, return_inverse=True)[1].astype(np.uint64)


def _keys(ranks: UInt64[np.ndarray, "feature row"]) -> UInt64[np.ndarray, " feature"]:
    """One key per column: a sum over rows, so their order is nothing to it.

    A value is taken with the sum of its whole row, which tells columns of the same values in other rows apart.
    """
    rows = mixed(ranks).sum(axis=0, dtype=np.uint64)
    return mixed(ranks ^ mixed(rows)).sum(axis=1, dtype=np.uint64)


def _ranked(x: Float[np.ndarray, "row feature"]) -> UInt64[np.ndarray, "feature row"]:
    return np.array([_ranks(column) for column in x.T], np.uint64).reshape(x.shape[1], len(x))


def column_order(x: Float[np.ndarray, "row feature"], sd: Float[np.ndarray, " feature"]) -> Int[np.ndarray, " kept"]:
    """The columns that vary, by their content; the first alone if none does.

    >>> column_order(np.array([[1.0, 5.0, 0.0], [2.0, 5.0, 1.0]]), np.array([0.5, 0.0, 0.5])).tolist() in (
    ...     [0, 2], [2, 0])
    True
    """
    varying = np.flatnonzero(sd > 0.0)
    if len(varying) < 2:
        return varying if len(varying) else np.array([0])
    return varying[np.argsort(_keys(_ranked(x[:, varying])), kind="stable")]


def content_order(
    feedback: FullFeedback | LoggedFeedback,
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"] | None]:
    """Rows by their features, those that share them by action and outcome; and in a log the rank of each row's action.

    Actions rank by the features of the rows that took them. Outcomes only part rows with the same features and action,
    and rows that share all of them are interchangeable.
    """
    x = feedback.x
    ranks = _ranked(x[:, np.ptp(x, axis=0) > 0.0])
    key = mixed(ranks ^ _keys(ranks)[:, None]).sum(axis=0, dtype=np.uint64)
    if isinstance(feedback, FullFeedback):
        outcomes = mixed(_ranked(feedback.outcomes)).sum(axis=0, dtype=np.uint64)
        return np.lexsort((outcomes, key)), None
    keys = [mixed(key[feedback.action == action]).sum(dtype=np.uint64) for action in range(len(feedback.actions))]
    rank = np.argsort(np.argsort(keys, kind="stable"), kind="stable")[feedback.action]
    return np.lexsort((mixed(_ranks(feedback.outcome)), rank, key)), rank


def distinct_rows(*parts: np.ndarray | None) -> tuple[int, Int[np.ndarray, " kept"]]:
    """How often every row is there, and rows to keep so that each is there 1/that as often; parts are columns.

    With counts c_i of the different rows that is their greatest common divisor: 1 as soon as one row is there once.

    >>> distinct_rows(np.repeat(np.arange(30.0), 2))[0], distinct_rows(np.arange(30.0))[0]
    (2, 1)
    """
    columns = [np.asarray(part).reshape(len(part), -1) for part in parts if part is not None]
    key = np.zeros(len(columns[0]), np.uint64)
    for number, column in enumerate(column for part in columns for column in part.T):
        _, rank, count = np.unique(column, return_inverse=True, return_counts=True)
        if count.min(initial=2) == 1:  # a row with a value of its own is there once
            return 1, np.arange(len(column))
        key += mixed(rank.astype(np.uint64) ^ mixed(np.array([number], np.uint64)))
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0])
    times = int(np.gcd.reduce(np.diff(np.r_[starts, len(order)])))
    if len(starts) < FEW_ROWS or times == 1:
        return 1, np.arange(len(order))
    place = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
    return times, np.sort(order[place % times == 0])
