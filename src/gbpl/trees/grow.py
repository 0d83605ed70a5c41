"""Trees grown by histograms, all trees of a forest at once and level by level.

The values of a feature are put into few bins of equal mass once; a split is then looked for among the borders of bins,
by sums over the rows of each bin (Ke et al. 2017). That takes a pass over the rows per level where exact trees sort
them at every node, and numpy does it for all trees together. Deep down, where nodes have fewer rows than bins, the rows
of all nodes are sorted after all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gbpl.models.basis import rounded_down
from gbpl.runtime.threads import in_threads

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    _Splits = tuple[Float[np.ndarray, " node"], Int[np.ndarray, " node"], Int[np.ndarray, " node"]]

__all__ = ["Binned", "forest_predictions", "grow_trees", "leaves_of", "whole_depth"]

BINS, FINE = 64, 16  # bins that a split is looked for in, and parts of each in which its place is then found
FEW_ROWS = 32  # rows per node, of all nodes of a level: for fewer, sorting them is faster than sums of bins
LEFT = BINS * FINE  # a part above all others
ROWS_PER_LEAF = 8  # of a whole tree: it is that deep, and stops where leaves are small
DEEPEST = 9
LEAST = 1e-5  # of the sum that a split raises: less is rounding
MANY_SEEN, TOGETHER = 500_000, 10  # rows that all trees see, from which on so many trees at once stay in the cache
OUTPUTS = 8  # directions that the splits of a tree look at, where there are more than twice as many outputs


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """Features as numbers of parts of bins: a row is in one up to c where its value is at most `cuts[feature, c]`."""

    codes: Int[np.ndarray, "feature row"]
    cuts: Float[np.ndarray, "feature cut"]

    @classmethod
    def of(cls, x: Float[np.ndarray, "row feature"]) -> Binned:
        """Parts of equal mass, or one per value where there are fewer; borders lie halfway between two values.

        >>> Binned.of(np.array([[1.0], [3.0], [3.0], [7.0]], np.float32)).cuts[0, [0, 341, 682]].tolist()
        [2.0, 5.0, inf]
        """
        x = np.asarray(x, np.float32)
        codes, cuts = np.empty(x.shape[::-1], np.int16), np.full((x.shape[1], LEFT), np.inf, np.float32)
        for number, column in enumerate(x.T):
            values = np.sort(column)
            below = distinct = np.unique(values)
            if len(distinct) > LEFT:
                places = np.linspace(0, len(values), LEFT + 1)[1:-1].round().astype(int)
                below = np.unique(values[places - 1])
            below = below[below < values[-1]]
            above = distinct[np.searchsorted(distinct, below) + 1]
            border = rounded_down(0.5 * (below.astype(np.float64) + above))
            start = np.arange(len(border) + 1) * LEFT // (len(border) + 1)  # few values are spread over the parts
            codes[number] = start[np.searchsorted(border, column, side="left")]
            cuts[number] = np.append(border, np.inf)[np.searchsorted(start, np.arange(LEFT), side="right") - 1]
        return cls(codes, cuts)

    def thresholds(
        self, feature: Int[np.ndarray, "tree node"], cut: Int[np.ndarray, "tree node"]
    ) -> Float[np.ndarray, "tree node"]:
        """Splits in the units of the features: infinity where all rows go to the left."""
        return np.where(cut == LEFT, np.float32(np.inf), self.cuts[feature, np.minimum(cut, LEFT - 1)])


def grow_trees(
    binned: Binned,
    target: Float[np.ndarray, "row output"],
    bags: Bool[np.ndarray, "tree row"],
    *,
    depth: int,
    min_leaf: int,
    max_features: float,
    seed: int,
    weights: Float[np.ndarray, " row"] | None = None,
) -> tuple[Int[np.ndarray, "tree node"], Int[np.ndarray, "tree node"]]:
    """Feature and cut of every split of every tree; a cut of `LEFT` sends all rows to the left.

    A node splits where that raises sum over outputs of S_left^2 / W_left + S_right^2 / W_right most, with S the sum of
    w y and W that of w: the least squared error. It looks at a share of the features of its own, and a child has at
    least `min_leaf` rows. Rows of a tree are those of its bag; those of weight zero count for nothing.

    Of many outputs each tree sees a few random directions of its own: the sum over them has the sum over all outputs
    as its mean, and time no longer grows with the outputs (Joly, Geurts and Wehenkel 2014).

    Where many rows are seen, a few trees are grown at a time, side by side on several cores.
    """
    grow = partial(_grow, binned, target, depth, min_leaf, max_features, weights)
    if np.count_nonzero(bags) < MANY_SEEN:
        return grow(bags, [seed])
    groups = [(bags[start : start + TOGETHER], [seed, start]) for start in range(0, len(bags), TOGETHER)]
    feature, cut = zip(*in_threads(lambda group: grow(*group), groups), strict=True)
    return np.concatenate(feature), np.concatenate(cut)


def _grow(
    binned: Binned,
    target: Float[np.ndarray, "row output"],
    depth: int,
    min_leaf: int,
    max_features: float,
    weights: Float[np.ndarray, " row"] | None,
    bags: Bool[np.ndarray, "tree row"],
    seeds: list[int],
) -> tuple[Int[np.ndarray, "tree node"], Int[np.ndarray, "tree node"]]:
    """All trees of these bags at once, level by level."""
    features, n = binned.codes.shape
    codes, trees = binned.codes.ravel(), len(bags)
    bins = (codes // FINE).astype(np.int16)
    if weights is not None:
        bags = bags & (weights > 0)
    tree, row = (part.astype(np.int32) for part in np.nonzero(bags))
    seen = _columns(target, tree, row, np.random.default_rng([*seeds, 2]))
    columns = [_centred(column, tree, trees) for column in seen]
    if weights is not None:  # the mass of a node is then the last of its sums
        columns = [*(column * weights[row] for column in columns), weights[row]]
    rng, tried = np.random.default_rng(seeds), max(1, round(max_features * features))
    feature = np.zeros((trees, 2**depth - 1), np.int32)
    cut = np.full(feature.shape, LEFT, np.int32)
    slot = tree
    for level in range(depth):
        count = trees << level
        nodes = _Nodes(codes, bins, n, row, slot, count, columns, min_leaf, weights is not None)
        drawn = rng.random((count, features)).argsort(axis=1)[:, :tried].astype(np.int32)
        search = nodes.by_rows if len(row) < FEW_ROWS * count else nodes.by_bins
        best, chosen, found = search(drawn.T)
        total = nodes.total()
        whole = nodes.scores(total, 2.0 * total, 0)[:, 0] / 2.0
        split = np.where(best > whole * (1.0 + LEAST), found, LEFT).astype(np.int32)
        here = slice(2**level - 1, 2 ** (level + 1) - 1)
        feature[:, here], cut[:, here] = chosen.reshape(trees, -1), split.reshape(trees, -1)
        slot = 2 * slot + (nodes.codes_in(chosen) > split.take(slot))
    return feature, cut


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """The nodes of a level, counted through all trees, and the rows in them: `slot` is the node of each.

    `codes` and `bins` are those of the `n` rows in all features, one after the other; `row` are the rows' numbers.
    """

    codes: Int[np.ndarray, " code"]
    bins: Int[np.ndarray, " code"]
    n: int
    row: Int[np.ndarray, " seen"]
    slot: Int[np.ndarray, " seen"]
    count: int
    columns: list[Float[np.ndarray, " seen"]]
    min_leaf: int
    weighted: bool

    def codes_in(self, feature: Int[np.ndarray, " node"]) -> Int[np.ndarray, " seen"]:
        """The code of each row in the feature of its node."""
        return self.codes.take((feature * self.n).take(self.slot) + self.row)

    def total(self) -> Float[np.ndarray, "sum node one"]:
        """Counts, and sums of each column, over the rows of each node."""
        made = [np.bincount(self.slot, column, self.count) for column in (None, *self.columns)]
        return np.stack(made).astype(np.float64)[:, :, None]

    def scores(
        self, left: Float[np.ndarray, "sum node bin"], total: Float[np.ndarray, "sum node one"], min_leaf: int
    ) -> Float[np.ndarray, "node bin"]:
        """What `grow_trees` maximises; minus infinity where a side has too few rows; in float32."""
        right = total - left
        mass, outputs = (-1, slice(1, -1)) if self.weighted else (0, slice(1, None))
        with np.errstate(divide="ignore", invalid="ignore"):
            score = np.sum(left[outputs] ** 2, axis=0) / left[mass] + np.sum(right[outputs] ** 2, axis=0) / right[mass]
        score[(left[0] < min_leaf) | (right[0] < min_leaf)] = -np.inf
        return score.astype(np.float32)

    def by_bins(self, drawn: Int[np.ndarray, "try node"]) -> _Splits:
        """The best score, feature and cut of each node among the drawn features: the best bin, then where exactly."""
        every, (best, chosen, at) = np.arange(self.count), self._none()
        before = np.zeros((1 + len(self.columns), self.count))  # the bin of the split: sums over those below it
        for own in drawn:
            key = self.slot * np.int32(BINS) + self.bins.take((own * self.n).take(self.slot) + self.row)
            sums = _sums(key, self.columns, self.count, BINS)
            score = self.scores(sums, sums[:, :, -1:], self.min_leaf)
            place = score.argmax(axis=1)
            found = score[every, place]
            better = found > best
            best[better], chosen[better], at[better] = found[better], own[better], place[better]
            below = sums[:, every, np.maximum(place - 1, 0)] * (place > 0)
            before[:, better] = below[:, better]
        # Among the parts of that bin and of the next one.
        part = self.codes_in(chosen) - FINE * at.take(self.slot)
        near = (part >= 0) & (part < 2 * FINE)
        key = (self.slot * np.int32(2 * FINE) + part)[near]
        sums = _sums(key, [column[near] for column in self.columns], self.count, 2 * FINE) + before[:, :, None]
        score = self.scores(sums, self.total(), self.min_leaf)
        first, last = score.argmax(axis=1), 2 * FINE - 1 - score[:, ::-1].argmax(axis=1)  # alike where no row lies
        middle = (first + last) // 2
        exact = np.where(score[every, middle] == score[every, first], middle, first)
        return best, chosen, FINE * at + exact

    def by_rows(self, drawn: Int[np.ndarray, "try node"]) -> _Splits:
        """The same by the rows of each node in their order: the cut lies halfway between two neighbours."""
        best, chosen, cut = self._none()
        for own in drawn:
            code = self.codes_in(own)
            order = np.argsort(self.slot * np.int32(LEFT) + code)
            slot, code = self.slot[order], code[order]
            last = np.append(slot[1:] != slot[:-1], True)  # row of its node
            first = np.flatnonzero(np.append(True, last[:-1]))
            size = np.diff(np.append(first, len(slot)))
            left = np.stack([np.arange(1.0, len(slot) + 1.0), *(np.cumsum(column[order]) for column in self.columns)])
            before = np.where(first > 0, left[:, first - 1], 0.0)
            total = left[:, first + size - 1] - before
            left -= np.repeat(before, size, axis=1)
            score = self.scores(left[:, :, None], np.repeat(total, size, axis=1)[:, :, None], self.min_leaf)[:, 0]
            score[last | np.append(code[1:] == code[:-1], True)] = -np.inf
            found = np.maximum.reduceat(score, first)
            highest = np.flatnonzero(score == np.repeat(found, size))
            place = highest[np.searchsorted(highest, first)]
            node, above = slot[first], np.minimum(place + 1, len(code) - 1)
            better = found > best[node]
            here = node[better]
            best[here], chosen[here] = found[better], own[here]
            cut[here] = (code[place].astype(np.int32) + code[above] - 1)[better] // 2
        return best, chosen, cut

    def _none(self) -> _Splits:
        return np.full(self.count, -np.inf, np.float32), np.zeros(self.count, np.int32), np.zeros(self.count, np.int32)


def _centred(column: Float[np.ndarray, " row"], tree: Int[np.ndarray, " row"], trees: int) -> Float[np.ndarray, " row"]:
    """Less the mean of each tree's rows: squares of large numbers would hide small differences."""
    count = np.maximum(np.bincount(tree, None, trees), 1)
    return column - (np.bincount(tree, column, trees) / count).take(tree)


def _columns(
    target: Float[np.ndarray, "row output"], tree: Int[np.ndarray, " seen"], row: Int[np.ndarray, " seen"],
    rng: np.random.Generator,
) -> list[Float[np.ndarray, " seen"]]:  # fmt: skip
    """What the splits of each tree look at on the rows it sees: the outputs, or random directions of many of them."""
    outputs = target.shape[1]
    if outputs <= 2 * OUTPUTS:
        return [np.asarray(column, np.float64)[row] for column in target.T]
    made, starts = np.empty((OUTPUTS, len(row))), np.flatnonzero(np.diff(tree, prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(row)]):
        made[:, start:end] = (target[row[start:end]] @ rng.standard_normal((outputs, OUTPUTS))).T
    return list(made)


def _sums(
    key: Int[np.ndarray, " row"], columns: list[Float[np.ndarray, " row"]], slots: int, bins: int
) -> Float[np.ndarray, "sum slot bin"]:
    """Counts, and sums of each column, over the rows of a slot up to each bin."""
    made = [np.bincount(key, column, slots * bins) for column in (None, *columns)]
    return np.cumsum(np.stack(made).reshape(-1, slots, bins), axis=2, dtype=np.float64)


def leaves_of(
    binned: Binned, feature: Int[np.ndarray, "tree node"], cut: Int[np.ndarray, "tree node"]
) -> Int[np.ndarray, "row tree"]:
    """The leaf of every row in every tree."""
    n, (trees, nodes) = binned.codes.shape[1], feature.shape
    codes, row = binned.codes.ravel(), np.arange(n, dtype=np.int32)
    leaves = np.empty((n, trees), np.int32)
    for number in range(trees):
        node = np.zeros(n, np.int32)
        start, own = feature[number] * np.int32(n), cut[number]
        for _ in range(int(nodes + 1).bit_length() - 1):
            node = 2 * node + 1 + (codes.take(start.take(node) + row) > own.take(node))
        leaves[:, number] = node - nodes
    return leaves


def whole_depth(rows: float) -> int:
    """Depth of a whole tree that sees so many rows."""
    return int(np.clip(np.ceil(np.log2(max(rows, 1.0) / ROWS_PER_LEAF)), 1, DEEPEST))


def forest_predictions(
    binned: Binned,
    target: Float[np.ndarray, "row output"],
    rows: Int[np.ndarray, " grown"],
    *,
    trees: int,
    bag: float,
    min_leaf: int,
    max_features: float,
    seed: int,
    weights: Float[np.ndarray, " row"] | None = None,
) -> Float[np.ndarray, "row output"]:
    """Means of every row by a forest grown on some `rows`; those of these rows by the trees that did not see them.

    `target` and `weights` have all rows. A tree is grown on a share of the rows, without replacement.
    """
    n, outputs = target.shape
    bags = np.zeros((trees, n), bool)
    bags[:, rows] = np.random.default_rng([seed, 1]).random((trees, len(rows))) < bag
    depth = whole_depth(bag * len(rows))
    grown = grow_trees(
        binned, target, bags, depth=depth, min_leaf=min_leaf, max_features=max_features, seed=seed, weights=weights
    )
    leaves, size = leaves_of(binned, *grown), 2**depth
    level = np.average(target[rows], axis=0, weights=None if weights is None else weights[rows])
    total, unseen = np.zeros((n, outputs)), np.zeros((n, 1))
    for leaf, own in zip(leaves.T, bags, strict=True):
        inside, outside = leaf[own], ~own
        weight = None if weights is None else weights[own]
        mass = np.bincount(inside, weight, size)[:, None]
        values = target[own] if weight is None else target[own] * weight[:, None]
        sums = np.column_stack([np.bincount(inside, column, size) for column in values.T])
        means = np.divide(sums, mass, out=np.broadcast_to(level, sums.shape).copy(), where=mass > 0)
        total[outside] += means[leaf[outside]]
        unseen[outside] += 1.0
    return np.divide(total, unseen, out=np.broadcast_to(level, total.shape).copy(), where=unseen > 0)
