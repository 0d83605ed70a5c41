"""Shapley values of one row against one reference: which columns move a function from there to here.

A coalition S of columns has its values from the row, the other columns have theirs from the reference, and v(S) is the
function there (baseline Shapley, Sundararajan and Najmi 2020). The value of a column is

    phi_j = mean over all orders of the columns of v(before j, and j) - v(before j),

so that they add up to f(row) - f(reference), a column that changes nothing has 0, and two that do the same have the
same. A single reference needs no training rows: a policy file has none.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

__all__ = ["coalitions", "from_leaves", "from_orders", "from_table"]

ORDERS_AT_A_TIME = 1 << 20  # numbers in the coalitions of some orders


def coalitions(players: int) -> Bool[np.ndarray, "coalition player"]:
    """All of them, by their number: player j is in coalition c where bit j of c is set."""
    return (np.arange(1 << players)[:, None] >> np.arange(players) & 1).astype(bool)


def from_table(values: Float[np.ndarray, " coalition"]) -> Float[np.ndarray, " player"]:
    """Exact, from v of every coalition: phi_j = sum_S |S|! (d - |S| - 1)! / d! (v(S + j) - v(S)).

    >>> from_table(np.array([0.0, 1.0, 2.0, 5.0])).tolist()  # v of none, the first, the second, both
    [2.0, 3.0]
    """
    players = len(values).bit_length() - 1
    number = np.arange(len(values))
    size = coalitions(players).sum(axis=1)
    weight = np.array([factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)])
    found = np.zeros(players)
    for player in range(players):
        without = number[number >> player & 1 == 0]
        found[player] = weight[size[without]] @ (values[without | 1 << player] - values[without])
    return found


def from_orders(
    value: Callable[[Bool[np.ndarray, "coalition player"]], Float[np.ndarray, " coalition"]],
    players: int,
    *,
    pairs: int,
    seed: int,
) -> tuple[Float[np.ndarray, " player"], Float[np.ndarray, " player"]]:
    """Estimates from random orders, each with its reverse (Mitchell et al. 2022), and their standard errors.

    Along an order the changes add up to v(all) - v(none), hence so do the estimates.
    """
    rng = np.random.default_rng(seed)
    ends = value(np.repeat([[False], [True]], players, axis=1))
    step = max(1, ORDERS_AT_A_TIME // (2 * players * players))
    found = []
    for start in range(0, pairs, step):
        one = rng.permuted(np.tile(np.arange(players), (min(step, pairs - start), 1)), axis=1)
        rank = np.argsort(np.concatenate([one, one[:, ::-1]]), axis=1)  # place of each player in each order
        inside = rank[:, None, :] < np.arange(1, players)[:, None]
        between = value(inside.reshape(-1, players)).reshape(len(rank), -1)
        along = np.column_stack([np.full(len(rank), ends[0]), between, np.full(len(rank), ends[1])])
        change = np.take_along_axis(np.diff(along, axis=1), rank, axis=1)
        found.append((change[: len(one)] + change[len(one) :]) / 2.0)
    each = np.concatenate(found)
    return each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(pairs)


def from_leaves(
    row_fits: Bool[np.ndarray, "leaf player"],
    reference_fits: Bool[np.ndarray, "leaf player"],
    value: Float[np.ndarray, "leaf output"],
) -> Float[np.ndarray, "player output"]:
    """Exact, for a sum of trees: `row_fits` says whether the row passes all questions on a leaf's path about a column.

    A coalition reaches the leaf if it holds all p columns that only the row passes and none of the n that only the
    reference passes: a product game, in which each of the p has (p - 1)! n! / (p + n)! times the leaf's value, and each
    of the n has -p! (n - 1)! / (p + n)!. Nothing reaches a leaf with a column that neither passes.
    """
    inside, outside = row_fits & ~reference_fits, reference_fits & ~row_fits
    alive = (row_fits | reference_fits).all(axis=1)
    p, n = inside.sum(axis=1), outside.sum(axis=1)
    top = int(max(p.max(initial=0), n.max(initial=0)))
    size = np.array([float(factorial(k)) for k in range(2 * top + 1)])
    more = np.where(alive & (p > 0), size[np.maximum(p - 1, 0)] * size[n] / size[p + n], 0.0)
    less = np.where(alive & (n > 0), size[p] * size[np.maximum(n - 1, 0)] / size[p + n], 0.0)
    return np.asarray((inside * more[:, None] - outside * less[:, None]).T @ value)
