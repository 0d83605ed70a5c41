"""The best tree of depth 2 over every cut of every feature, in O(d^2 n log n).

For a first cut of feature j at the t-th row in the order of j, the best split of the rows on its left by feature k
gives action a up to some row in the order of k and b beyond it:

    T_b + max over prefixes of sum (Y_a - Y_b),    T_b the sum of Y_b over the rows on the left.

The largest prefix sum of a set of rows follows from those of its two halves in the order of k, so a binary tree of
halves holds it. Rows enter that tree one by one, as t grows; all the states of a node, one for each number of rows that
have entered it, are found at once from those of its halves, level by level: a merge, with no loop over rows. Those on
the right of the first cut are the rows that have not entered. policytree (Sverdrup et al. 2020) takes O(d^2 n^2).

Where both sides of a cut need so many rows, or leaves are limited, what is found bounds each first cut from above: the
first cuts are then looked at one by one, the best bound first, until none can be better.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.decisions.tree_search import Choice, TreeSearch, leaf_value

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from gbpl.decisions.tree import Tree

__all__ = ["best_of_every_cut"]

TRIED = 4_000  # first cuts, one by one
THREADS = 2  # numpy leaves the interpreter to the other while it computes


def best_of_every_cut(search: TreeSearch) -> tuple[Tree, bool]:
    """The best tree of depth 2 with the cuts of a search that has all of them, and whether nothing is better.

    There must be no ranks. It may not be the best if too many first cuts had to be tried.
    """
    rows, every = np.arange(len(search.scores)), tuple(range(search.scores.shape[1] + 1))
    leaves = min(4, search.limits.leaves or 4)
    if leaves < 3 or not search.cuts.features:
        return search.best(1), True
    sums = search.sums(rows)
    bound, at = _bounds(search, leaves)
    best, choice = float(leaf_value(sums.total, every)), Choice(-1, (1, 1), (every, every))
    order = np.argsort(-bound, kind="stable")
    for tried, number in enumerate(order.tolist()):
        if bound[number] <= best + search.rounding or tried == TRIED:
            return search.best(2, choice), bound[number] <= best + search.rounding
        place = int(at[number])
        feature = search.cuts.at(place)[0]
        goes_left = search.cuts.bins[:, feature] <= place
        sides = [search.solve(rows[own], 1, every)[0] for own in (goes_left, ~goes_left)]
        for one, two in ((1, 1), (1, 2), (2, 1), (2, 2)):
            if one + two <= leaves and sides[0][one - 1] + sides[1][two - 1] > best + search.rounding:
                best = float(sides[0][one - 1] + sides[1][two - 1])
                choice = Choice(place, (one, two), (every, every))
    return search.best(2, choice), True


def _bounds(search: TreeSearch, leaves: int) -> tuple[Float[np.ndarray, " cut"], Int[np.ndarray, " cut"]]:
    """For each first cut that leaves enough rows on both sides, the best value without more conditions; its place."""
    cuts, scores = search.cuts, search.scores
    every, whole = tuple(range(scores.shape[1] + 1)), scores.sum(axis=0)[:, None]
    orders = _Orders.of(cuts.bins)

    def of_feature(number: int) -> tuple[Float[np.ndarray, " cut"], Int[np.ndarray, " cut"]]:
        first = orders.rows[number]
        last = np.flatnonzero(orders.ends[number])[:-1]  # a cut after the last row is none
        last = last[search.fits(last + 1, len(first))]
        total = np.cumsum(scores[first], axis=0)[last].T
        one = leaf_value(total, every), leaf_value(whole - total, every)
        two = [np.maximum(*pair) for pair in zip(one, _best_second(orders, scores, first, last), strict=True)]
        bound = two[0] + two[1] if leaves > 3 else np.maximum(two[0] + one[1], one[0] + two[1])
        return bound, cuts.bins[first[last], number]

    with ThreadPoolExecutor(THREADS) as pool:
        bounds, places = zip(*pool.map(of_feature, range(len(cuts.features))), strict=True)
    return np.concatenate(bounds), np.concatenate(places)


class _Orders(NamedTuple):
    """Rows in the order of each feature, the position of each row in it, and whether a cut may be after a position."""

    rows: Int[np.ndarray, "feature position"]
    position: Int[np.ndarray, "feature row"]
    ends: Bool[np.ndarray, "feature position"]

    @classmethod
    def of(cls, bins: Int[np.ndarray, "row feature"]) -> _Orders:
        rows = np.argsort(bins.T, axis=1, kind="stable")
        position = np.empty(rows.shape, np.int32)
        np.put_along_axis(position, rows, np.arange(rows.shape[1], dtype=np.int32)[None], axis=1)
        ordered = np.take_along_axis(bins.T, rows, axis=1)
        ends = np.ones(rows.shape, bool)
        ends[:, :-1] = ordered[:, 1:] != ordered[:, :-1]
        return cls(rows, position, ends)


def _best_second(
    orders: _Orders, scores: Float[np.ndarray, "row score"], first: Int[np.ndarray, " row"],
    last: Int[np.ndarray, " cut"],
) -> list[Float[np.ndarray, " cut"]]:  # fmt: skip
    """The best one split, by any feature, of the rows up to a first cut, and of those beyond, for each first cut.

    Rows enter in the order `first`; a cut is after the `last` row on its left.
    """
    halves = _halves(orders.position[:, first])
    table = np.column_stack([np.zeros(len(scores)), scores])
    inside = np.cumsum(table[first], axis=0)[last]
    totals = inside, table.sum(axis=0) - inside
    best = [np.full(len(last), -np.inf) for _ in totals]
    for a, b in combinations(range(table.shape[1]), 2):
        gap = (table[:, a] - table[:, b])[orders.rows]
        for side, (most, least) in enumerate(_largest(gap, orders.ends, halves)):
            for action, largest in ((b, most), (a, least)):  # given beyond the second cut, and the other up to it
                value = totals[side][:, action] + largest[:, last + 1].max(axis=0)
                np.maximum(best[side], value, out=best[side])
    return best


def _halves(entering: Int[np.ndarray, "feature row"]) -> list[Int[np.ndarray, "feature node version"]]:
    """For each level, from the smallest nodes: how many of the first 0, 1, ... rows of a node are in its left half.

    `entering` are the positions of rows in the order in which they enter.
    """
    features, count = entering.shape
    depth = max(1, int(np.ceil(np.log2(count))))
    now = np.empty((features, 1 << depth), np.int32)
    now[:, :count] = entering
    now[:, count:] = np.arange(count, 1 << depth, dtype=np.int32)  # rows that do not exist enter last
    levels = []
    for level in range(depth, 0, -1):
        half = 1 << (level - 1)
        nodes = now.reshape(features, -1, 2 * half)
        is_right = (nodes & half) != 0
        right = np.cumsum(is_right, axis=2, dtype=np.int32)
        left = np.arange(1, 2 * half + 1, dtype=np.int32) - right
        levels.append(np.concatenate([np.zeros((*left.shape[:2], 1), np.int32), left], axis=2))
        place = np.where(is_right, right + (half - 1), left - 1)
        moved = np.empty(nodes.size, np.int32)
        moved[_flat(place, 2 * half)] = nodes
        now = moved.reshape(features, -1)[:, : -(-count // half) * half]  # without nodes of no row
    return levels[::-1]


def _flat(place: Int[np.ndarray, "feature node entry"], size: int) -> Int[np.ndarray, "feature node entry"]:
    """Numbers of entries in a table of nodes with `size` entries each, all in one line."""
    features, nodes = place.shape[:2]
    return place + np.arange(0, features * nodes * size, size).reshape(features, nodes, 1)


def _largest(
    gap: Float[np.ndarray, "feature position"], ends: Bool[np.ndarray, "feature position"],
    halves: list[Int[np.ndarray, "feature node version"]],
) -> list[tuple[Float[np.ndarray, "feature version"], Float[np.ndarray, "feature version"]]]:  # fmt: skip
    """Largest sums over prefixes that end at `ends`, of the gap and of its negative, by the number of rows entered.

    First of the rows that have entered, then of the others. A node is a sum over all its rows, and those two.
    """
    closed, none = np.where(ends, 0.0, -np.inf)[:, :, None], np.zeros_like(gap)
    results = []
    for pair in ((none, gap), (gap, none)):  # a leaf before its row enters, and after
        sums = np.stack(pair, axis=2)
        most, least = closed + sums, closed - sums
        for left in halves:
            nodes, versions = left.shape[1:]
            if sums.shape[1] < 2 * nodes:
                sums, most, least = _with_empty(sums, 0.0), _with_empty(most, -np.inf), _with_empty(least, -np.inf)
            half = sums.shape[2]
            at_left = _flat(left, 2 * half)
            at_right = _flat(np.arange(versions, dtype=np.int32) - left, 2 * half) + half
            before = sums.ravel().take(at_left)
            most_right, least_right = most.ravel().take(at_right), least.ravel().take(at_right)
            most_right += before
            least_right -= before
            most = np.maximum(most.ravel().take(at_left), most_right, out=most_right)
            least = np.maximum(least.ravel().take(at_left), least_right, out=least_right)
            before += sums.ravel().take(at_right)
            sums = before
        results.append((most[:, 0], least[:, 0]))
    return results


def _with_empty(states: Float[np.ndarray, "feature node version"], value: float) -> np.ndarray:
    """With one more node, of no row."""
    return np.concatenate([states, np.full((states.shape[0], 1, states.shape[2]), value)], axis=1)
