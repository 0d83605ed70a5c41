"""The one-dimensional design of the paper's posterior example (posterior visualization)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.datasets.samples import Sample
from gbpl.datasets.truth import piecewise_rule, positive_part

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["OneDimensionalDesign"]


@dataclass(frozen=True, slots=True)
class OneDimensionalDesign:
    """The paper's posterior example: X uniform on [-2.5, 2.5], tau(x) = 1.2 sin(x), noise of sd 0.6.

    >>> OneDimensionalDesign().effect(np.array([[0.0]]))
    array([0.])
    """

    @property
    def n_features(self) -> int:
        """One."""
        return 1

    @property
    def n_actions(self) -> int:
        """Two."""
        return 2

    def effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x) = 1.2 sin(x)."""
        return 1.2 * np.sin(x[:, 0])

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_0(x) = 0.2 x + 0.2 sin(1.5 x), and gamma_0(x) + tau(x)."""
        low = 0.2 * x[:, 0] + 0.2 * np.sin(1.5 * x[:, 0])
        return np.column_stack([low, low + self.effect(x)])

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2.5, 2.5, (n, 1))
        mean = self.outcome_mean(x)
        return Sample(x, mean + 0.6 * rng.standard_normal((n, 2)), mean)

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)], by quadrature on either side of zero, where tau changes sign: to rounding."""
        x, weight = self._rule()
        return float(weight @ self.outcome_mean(x).max(axis=1))

    def oracle_welfare(self) -> float:
        """E[max_a Y(a)] = E[gamma_0 + (tau + 0.6 sqrt(2) e)^+], by the same quadrature: to rounding."""
        x, weight = self._rule()
        return float(weight @ (self.outcome_mean(x)[:, 0] + positive_part(self.effect(x), 0.6 * math.sqrt(2))))

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)], zero for both actions: both means are odd."""
        return np.zeros(2)

    def _rule(self) -> tuple[Float[np.ndarray, "node 1"], Float[np.ndarray, " node"]]:
        x, weight = piecewise_rule([-2.5, 0.0, 2.5])
        return x[:, None], weight / 5
