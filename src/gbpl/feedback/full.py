"""Full feedback: features and the outcome of every action, for every row (section 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import _safe_indexing

from gbpl.feedback.checks import (
    align_outcomes,
    check_cost,
    check_features,
    check_groups,
    check_outcomes,
    check_weights,
    feature_names,
    label_array,
)
from gbpl.feedback.given import check_given
from gbpl.runtime.warn import warn
from gbpl.tables.frames import TableError

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["FullFeedback", "unit_of"]

CHUNK = 65_536  # rows handled at a time where a temporary copy of everything would cost memory


@dataclass(frozen=True, slots=True, eq=False)
class FullFeedback:
    """Features and the outcome of every action, for every row.

    `outcomes` are net of costs. `weights` are the user's sample weights, rows of weight zero removed; `actions` are the
    user's labels; rows of one group stay in one fold. `source` is the table of features as it was given, and `names`
    say which column each feature comes from, where columns have names. `cut` counts outcomes that
    were cut (`feedback.tails`).
    """

    x: Float[np.ndarray, "row feature"]
    outcomes: Float[np.ndarray, "row action"]
    weights: Float[np.ndarray, " row"] | None
    actions: np.ndarray
    groups: Int[np.ndarray, " row"] | None = None
    source: Any = None
    names: Sequence[str] | None = None
    cut: int = 0

    @classmethod
    def of(
        cls,
        X: Any,
        Y: Any = None,
        *,
        outcome_gap: Any = None,
        actions: Sequence[Any] | None = None,
        cost: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        min_rows: int = 2,
    ) -> FullFeedback:
        """Check a user's arrays or frames: outcomes, one column per action, or the gap between those of two actions."""
        check_given(X, y=Y, cost=cost, sample_weight=sample_weight, groups=groups)
        x = check_features(X, min_rows=min_rows)
        Y = _in_order(Y, actions)
        outcomes = check_outcomes(Y, len(x), outcome_gap)
        weights = None if sample_weight is None else check_weights(sample_weight, len(x))
        labels = _check_actions(actions, Y, outcomes.shape[1])
        parts = None if groups is None else check_groups(groups, len(x))
        made = cls(x, outcomes, weights, labels, parts, X, feature_names(X)).less(cost)
        return made if weights is None or (weights > 0.0).all() else made.take(weights > 0.0)

    def __len__(self) -> int:
        return len(self.x)

    def less(self, cost: Any) -> FullFeedback:
        """The same rows, outcomes less the cost of each action; `cost` as in `fit`, None for nothing."""
        if cost is None:
            return self
        return replace(self, outcomes=self.outcomes - check_cost(cost, self.actions, len(self)))

    def take(self, rows: Bool[np.ndarray, " row"] | Int[np.ndarray, " some"]) -> FullFeedback:
        """Some of the rows, by mask or number."""
        numbers = np.flatnonzero(rows) if rows.dtype == bool else rows
        return replace(
            self,
            x=self.x[rows],
            outcomes=self.outcomes[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else check_groups(self.groups[rows], len(numbers)),
            source=None if self.source is None else _safe_indexing(self.source, numbers),
        )

    @property
    def scale(self) -> float:
        """Root mean square difference between the outcomes of two different actions."""
        total = 0.0
        count = self.outcomes.shape[1]
        for start in range(0, len(self), CHUNK):
            part = np.asarray(self.outcomes[start : start + CHUNK], np.float64)
            part = part - part[:, :1]  # exactly zero where the actions do not differ
            part = part - part.mean(axis=1, keepdims=True)
            weight = 1.0 if self.weights is None else self.weights[start : start + CHUNK, None]
            total += float(np.sum(weight * part**2))
        size = len(self) if self.weights is None else float(self.weights.sum())
        return float(np.sqrt(2.0 / (count - 1) * total / size))


def unit_of(scale: float) -> float:
    """The outcome scale as a unit; 1, with a warning, where it is 0."""
    if scale > 0.0:
        return scale
    warn(
        "the outcomes of the actions never differ: every policy has the same welfare, and the one fitted means nothing"
    )
    return 1.0


def _in_order(Y: Any, actions: Any) -> Any:
    """A frame of outcomes whose columns are the actions in another order, in the order of the actions."""
    names = getattr(Y, "columns", None)
    if names is None or actions is None or len(names) != len(actions) or set(names) != set(actions):
        return Y
    return align_outcomes(Y, label_array(actions))


def _check_actions(actions: Any, Y: Any, count: int) -> np.ndarray:
    if actions is None:
        names = getattr(Y, "columns", None)
        actions = names if names is not None and len(names) == count else range(count)
    labels = label_array(actions)
    if len(labels) != count:
        raise TableError(f"actions must name the {count} actions of y, got {len(labels)}: {labels.tolist()}")
    return labels
