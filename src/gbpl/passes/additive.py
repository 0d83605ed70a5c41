"""Additive regressions of the outcome in one pass: ridges on spline curves, one per fold and action, from sums."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from gbpl.models.splines import Splines, spline_curves
from gbpl.nuisance.averaged import BENDS, KNOTS, RIDGES, curve_sizes
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.leaf_means import weight_of
from gbpl.runtime.devices import quick_jit

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["AdditiveMeans", "additive_fits"]

MOST_SUMS = 8_000_000  # numbers, 64 MB: with more features times actions the regression is left out

_curves = quick_jit(lambda x: spline_curves(x, KNOTS, jnp))


class AdditiveMeans:
    """Mean outcomes of each action by the regressions of a row's fold, which know nothing of it.

    `sums` has b'Wb and b'Wy of the rows of each fold and action, with b a one and the curves.
    """

    name = "additive"

    def __init__(self, passes: Passes, actions: int) -> None:
        self.passes, self.actions = passes, actions
        size = self.functions(passes) + 1
        self.sums = np.zeros((passes.folds, actions, size, size + 1))
        self.squares = np.zeros((passes.folds, actions))
        self.weight = passes.statistics.weight / passes.source.n_rows

    @staticmethod
    def functions(passes: Passes) -> int:
        return passes.source.n_features * (KNOTS - 1)

    @classmethod
    def fits(cls, passes: Passes, actions: int) -> bool:
        """Whether its sums are few enough to keep."""
        return passes.folds * actions * (cls.functions(passes) + 1) ** 2 <= MOST_SUMS

    def add(self, read: ReadChunk, target: Float[np.ndarray, " row"]) -> None:
        """Add the products of rows to those of their fold and action."""
        rows = len(read.x)
        padded = np.zeros((1 << (rows - 1).bit_length(), read.x.shape[1]), np.float32)
        padded[:rows] = read.x
        basis = np.column_stack([np.ones(rows), np.asarray(_curves(padded))[:rows]])
        weight, action = weight_of(read.chunk) / self.weight, read.chunk.action
        assert action is not None
        for fold in range(self.passes.folds):
            for number in range(self.actions):
                own = np.flatnonzero((read.fold == fold) & (action == number))
                part, y = basis[own], target[own]
                self.sums[fold, number] += (part * weight[own, None]).T @ np.column_stack([part, y])
                self.squares[fold, number] += weight[own] @ y**2

    def close(self) -> None:
        solved = additive_fits(self.sums, self.squares).astype(np.float32)
        params = [{"weight": solved[:, None, :, 1:].swapaxes(2, 3), "bias": solved[:, None, :, 0]}]
        self.outputs = FoldOutputs(params, Splines(KNOTS), self.passes.devices)

    def start(self, read: ReadChunk) -> Any:
        """Begin with the means of rows; `finish` waits for them."""
        return self.outputs.start(read.x, read.fold)

    def finish(self, pending: Any, n: int) -> Float[np.ndarray, "row action"]:
        return self.outputs.finish(pending, n)[0]


def additive_fits(
    sums: Float[np.ndarray, "fold action function function_and_y"], squares: Float[np.ndarray, "fold action"]
) -> Float[np.ndarray, "fold action function"]:
    """Level and coefficients of each fold and action from the rows of the other folds, at the ridges that suit them.

    Those have the least error on the other folds, by fits that saw neither. The squared error of c on rows with
    sums G, g and squares s is s - 2 c'g + c'Gc.
    """
    folds, errors = len(sums), np.zeros((len(sums), len(BENDS) * len(RIDGES)))
    for pair in combinations(range(folds), 2):
        found = _ridges(sums, pair)
        for left, judged in (pair, pair[::-1]):
            matrix, right = sums[judged, :, :, :-1], sums[judged, :, :, -1]
            squared = np.einsum("raf,afg,rag->r", found, matrix, found)
            errors[left] += squares[judged].sum() - 2.0 * np.einsum("raf,af->r", found, right) + squared
    best = errors.argmin(axis=1)
    return np.stack([_ridges(sums, [fold])[best[fold]] for fold in range(folds)])


def _ridges(
    sums: Float[np.ndarray, "fold action function function_and_y"], left_out: Sequence[int]
) -> Float[np.ndarray, "ridges action function"]:
    """Fits to the rows outside some folds at every ridge of every bend, by eigenvectors of the centred products."""
    kept = np.delete(sums, list(left_out), axis=0).sum(axis=0)
    made = np.zeros((len(BENDS), len(RIDGES), *kept.shape[:2]))
    for action, part in enumerate(kept):
        total = part[0, 0]
        if total <= 0.0:
            continue
        middle, level = part[0, 1:-1] / total, part[0, -1] / total
        products, right = part[1:, 1:-1] - total * np.outer(middle, middle), part[1:, -1] - total * level * middle
        for bend, size in enumerate(curve_sizes(len(middle) // (KNOTS - 1))):
            values, vectors = np.linalg.eigh(products * np.outer(size, size))
            shrunk = (vectors.T @ (size * right)) / (np.maximum(values, 0.0) + np.array(RIDGES)[:, None])
            made[bend, :, action, 1:] = (shrunk @ vectors.T) * size
            made[bend, :, action, 0] = level - made[bend, :, action, 1:] @ middle
    return made.reshape(-1, *kept.shape[:2])
