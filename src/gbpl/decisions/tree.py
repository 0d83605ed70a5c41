"""A tree of thresholds as a policy: one question at a time, one action at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LEAF", "Tree"]

LEAF = -1  # in `feature`: no question is asked


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Node 0 is the root. A row goes left where x[feature] <= threshold, and a leaf gives its `action`.

    `feature` is a column number, or `LEAF`; `left` and `right` are node numbers, `action` column numbers; what does
    not apply to a node is -1, or NaN for its threshold.

    >>> nan = float("nan")
    >>> stump = Tree.of([0, LEAF, LEAF], [0.5, nan, nan], [1, -1, -1], [2, -1, -1], [-1, 0, 1])
    >>> stump.actions(np.array([[0.5], [0.6]])).tolist()
    [0, 1]
    """

    feature: Int[np.ndarray, " node"]
    threshold: Float[np.ndarray, " node"]
    left: Int[np.ndarray, " node"]
    right: Int[np.ndarray, " node"]
    action: Int[np.ndarray, " node"]

    @classmethod
    def of(cls, feature: object, threshold: object, left: object, right: object, action: object) -> Tree:
        """From sequences of numbers."""
        whole = [np.asarray(part, np.int64) for part in (feature, left, right, action)]
        return cls(whole[0], np.asarray(threshold, np.float64), *whole[1:])

    @property
    def leaves(self) -> int:
        """How many leaves it has."""
        return int(np.count_nonzero(self.feature == LEAF))

    def leaf(self, x: Float[np.ndarray, "row feature"]) -> Int[np.ndarray, " row"]:
        """The node number of the leaf that each row falls in."""
        node, rows = np.zeros(len(x), np.int64), np.arange(len(x))
        while len(rows):
            rows = rows[self.feature[node[rows]] != LEAF]
            at = node[rows]
            goes_left = x[rows, self.feature[at]] <= self.threshold[at]
            node[rows] = np.where(goes_left, self.left[at], self.right[at])
        return node

    def actions(self, x: Float[np.ndarray, "row feature"]) -> Int[np.ndarray, " row"]:
        """The column number of each row's action."""
        return self.action[self.leaf(x)]
