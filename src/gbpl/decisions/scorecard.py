"""A scorecard as a policy: points for each answer, and the action with the most points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Scorecard"]


@dataclass(frozen=True, slots=True, eq=False)
class Scorecard:
    """points_a(x) = start_a + sum_j points_ja 1[x[feature_j] > threshold_j]; the action with the most points is taken.

    Points are whole numbers. Of equal ones the later of two actions is taken, the first of more, as by every rule.

    >>> card = Scorecard(np.array([0, 1]), np.array([40.0, 0.5]), np.array([[0, 2], [0, 1]]), np.array([0, -2]))
    >>> card.actions(np.array([[50.0, 0.0], [30.0, 1.0]])).tolist()
    [1, 0]
    """

    feature: Int[np.ndarray, " condition"]
    threshold: Float[np.ndarray, " condition"]
    points: Int[np.ndarray, "condition action"]
    start: Int[np.ndarray, " action"]

    def total(self, x: Float[np.ndarray, "row feature"]) -> Int[np.ndarray, "row action"]:
        """Points of every action for each row."""
        return (x[:, self.feature] > self.threshold).astype(np.int64) @ self.points + self.start

    def actions(self, x: Float[np.ndarray, "row feature"]) -> Int[np.ndarray, " row"]:
        """The column number of each row's action."""
        return deterministic(self.total(x))
