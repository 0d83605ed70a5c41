"""Trees whose splits come from a sample and whose leaves have the means of all rows that pass."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from gbpl.models.basis import leaf_numbers
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.rows import Chunk
from gbpl.trees.grow import Binned, forest_predictions, grow_trees, whole_depth

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LeafMeans", "OutcomeForests", "unseen_means"]

TREES = 20  # a third of those in memory: their leaves have the means of many more rows
BAG, LEAF, SHARE = 0.5, 3, 0.5  # share of the rows that a tree sees, fewest rows of a leaf, share of features tried


class LeafMeans:
    """A forest: `add` gives its leaves rows, `close` makes means of them, and `predict` averages those of a row.

    A row adds its value to one of the `columns` of its leaves, and its weight to all of them.
    """

    def __init__(
        self,
        binned: Binned,
        target: Float[np.ndarray, "row output"],
        rows: Int[np.ndarray, " grown"],
        *,
        columns: int,
        min_leaf: int,
        seed: int,
        weights: Float[np.ndarray, " row"] | None,
    ) -> None:
        bags = np.zeros((TREES, len(target)), bool)
        bags[:, rows] = np.random.default_rng([seed, 1]).random((TREES, len(rows))) < BAG
        feature, cut = grow_trees(
            binned, target, bags, depth=whole_depth(BAG * len(rows)), min_leaf=min_leaf, max_features=SHARE, seed=seed,
            weights=weights,
        )  # fmt: skip
        self.feature, self.threshold, self.columns = feature, binned.thresholds(feature, cut), columns
        leaves = feature.shape[1] + 1
        self.first = (leaves * np.arange(TREES)).astype(np.int32)
        self.mass, self.sums = np.zeros(TREES * leaves), np.zeros((TREES * leaves, columns))
        self.means: Float[np.ndarray, "leaf column"] = np.zeros((0, columns), np.float32)

    def _leaves(self, x: Float[np.ndarray, "row feature"]) -> Int[np.ndarray, "row tree"]:
        return leaf_numbers(self.feature, self.threshold, x) + self.first

    def add(
        self,
        x: Float[np.ndarray, "row feature"],
        column: Int[np.ndarray, " row"],
        value: Float[np.ndarray, " row"],
        weight: Float[np.ndarray, " row"],
    ) -> None:
        """Rows with the column and the value that each adds to its leaves."""
        leaf = self._leaves(x)
        place = (leaf * np.int32(self.columns) + column.astype(np.int32)[:, None]).ravel()
        self.mass += np.bincount(leaf.ravel(), np.repeat(weight, TREES), len(self.mass))
        added = np.bincount(place, np.repeat(weight * value, TREES), self.sums.size)
        self.sums += added.reshape(self.sums.shape)

    def close(self) -> None:
        """Means of the leaves; of one without rows, that of all rows."""
        level = self.sums.sum(axis=0) / max(float(self.mass.sum()), 1e-300)
        mass = self.mass[:, None]
        means = np.divide(self.sums, mass, out=np.broadcast_to(level, self.sums.shape).copy(), where=mass > 0)
        self.means = (means / TREES).astype(np.float32)

    def predict(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row column"]:
        """Means over the trees."""
        return self.means.take(self._leaves(x), axis=0).sum(axis=1)


class OutcomeForests:
    """Mean outcomes of each action by a forest for each fold and action, which knows nothing of the fold."""

    name = "forest"

    def __init__(self, passes: Passes, target: Float[np.ndarray, " row"], actions: int) -> None:
        self.folds, grown = passes.folds, passes.grown
        action, weight, binned = grown.chunk.action, grown.chunk.weight, Binned.of(grown.x)
        assert action is not None
        seeds = np.random.SeedSequence([passes.seed, 8]).generate_state(self.folds * actions)
        self.forests = {}
        for fold, own, seed in _pairs(self.folds, actions, seeds):
            rows = np.flatnonzero((grown.fold != fold) & (action == own))
            self.forests[fold, own] = LeafMeans(
                binned, target[:, None], rows, columns=1, min_leaf=LEAF, seed=seed, weights=weight
            )
        self.actions = actions

    def add(self, read: ReadChunk, target: Float[np.ndarray, " row"]) -> None:
        """Give every forest the rows outside its fold that took its action."""
        action, weight = read.chunk.action, weight_of(read.chunk)
        assert action is not None

        def give(place: tuple[int, int]) -> None:
            rows = np.flatnonzero((read.fold != place[0]) & (action == place[1]))
            if len(rows):
                self.forests[place].add(read.x[rows], np.zeros(len(rows), np.int32), target[rows], weight[rows])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(give, self.forests))

    def close(self) -> None:
        for forest in self.forests.values():
            forest.close()

    def start(self, read: ReadChunk) -> Float[np.ndarray, "row action"]:
        """Means of rows by the forests of their fold."""
        means = np.empty((len(read.x), self.actions), np.float32)
        rows = [np.flatnonzero(read.fold == fold) for fold in range(self.folds)]
        parts = [read.x[own] for own in rows]

        def fill(place: tuple[int, int]) -> None:
            fold, own = place
            means[rows[fold], own] = self.forests[place].predict(parts[fold])[:, 0]

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill, self.forests))
        return means

    def finish(self, pending: Float[np.ndarray, "row action"], n: int) -> Float[np.ndarray, "row action"]:
        return pending


def unseen_means(
    read: ReadChunk, target: Float[np.ndarray, " row"], actions: int, *, seed: int
) -> Float[np.ndarray, " row"]:
    """Mean outcomes of the actions that rows took, by a forest of these rows for each; of a row by trees without it."""
    action, weight = read.chunk.action, read.chunk.weight
    assert action is not None
    means = np.zeros(len(target))

    def fill(number: int) -> None:
        rows = np.flatnonzero(action == number)
        if len(rows):
            means[rows] = forest_predictions(
                Binned.of(read.x[rows]), target[rows, None], np.arange(len(rows)), trees=TREES, bag=BAG, min_leaf=LEAF,
                max_features=SHARE, seed=seed + number, weights=None if weight is None else weight[rows],
            )[:, 0]  # fmt: skip

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, range(actions)))
    return means


def _pairs(folds: int, actions: int, seeds: np.ndarray) -> Iterator[tuple[int, int, int]]:
    for number, seed in enumerate(seeds):
        yield number // actions, number % actions, int(seed) % 2**31


def weight_of(chunk: Chunk) -> Float[np.ndarray, " row"]:
    """Weights of rows, one where there are none."""
    return np.ones(len(chunk)) if chunk.weight is None else chunk.weight.astype(np.float64)
