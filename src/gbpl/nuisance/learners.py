"""Models of the mean outcomes of a log: the network's masked loss, and scikit-learn regressors (section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import has_fit_parameter

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["MaskedSquare", "PerAction", "WithAction", "fitted", "predicted"]


@dataclass(frozen=True, slots=True)
class MaskedSquare:
    """Squared loss of the output that belongs to the action taken: one network with one output per action."""

    n_actions: int

    @property
    def n_raw(self) -> int:
        return self.n_actions

    def row_loss(self, raw: Array, target: tuple[Array, Array], zeta: Array) -> Float[Array, " row"]:
        outcome, action = target
        numbers = action.astype(np.int32)  # targets travel as floats
        taken = jax.nn.one_hot(numbers, self.n_actions, dtype=raw.dtype)
        return 0.5 * ((raw * taken).sum(axis=-1) - outcome) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class PerAction:
    """A scikit-learn regressor fitted once for each action, on the rows that took it (a "T-learner")."""

    regressor: Any

    def predict_means(
        self, x: np.ndarray, outcome: np.ndarray, action: np.ndarray, weights: np.ndarray | None, new: np.ndarray,
        count: int,
    ) -> Float[np.ndarray, "row action"]:  # fmt: skip
        columns = []
        for number in range(count):
            rows = action == number
            model = fitted(self.regressor, x[rows], outcome[rows], None if weights is None else weights[rows])
            columns.append(predicted(model, new))
        return np.column_stack(columns)


@dataclass(frozen=True, slots=True, eq=False)
class WithAction:
    """A scikit-learn regressor fitted once, with the action as further 0/1 columns (an "S-learner")."""

    regressor: Any

    def predict_means(
        self, x: np.ndarray, outcome: np.ndarray, action: np.ndarray, weights: np.ndarray | None, new: np.ndarray,
        count: int,
    ) -> Float[np.ndarray, "row action"]:  # fmt: skip
        kinds = np.eye(count)
        model = fitted(self.regressor, np.hstack([x, kinds[action]]), outcome, weights)
        return np.column_stack(
            [predicted(model, np.hstack([new, np.tile(kinds[number], (len(new), 1))])) for number in range(count)]
        )


def fitted(learner: Any, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Any:
    """A copy of a learner, fitted; with weights, a learner that takes none is refused."""
    made = clone(learner)
    if weights is None:
        return made.fit(x, y)
    if not has_fit_parameter(made, "sample_weight"):
        raise ValueError(
            f"{type(made).__name__} takes no sample_weight; bring a learner that does, or leave sample_weight out"
        )
    return made.fit(x, y, sample_weight=weights)


def predicted(model: Any, x: np.ndarray) -> Float[np.ndarray, " row"]:
    """Predicted mean; that of a classifier is the sum of its classes times their probabilities."""
    if is_classifier(model):
        return model.predict_proba(x) @ np.asarray(model.classes_, np.float64)
    return np.asarray(model.predict(x), np.float64).reshape(len(x))
