"""Simulated designs with known truth.

The designs of the paper: its binary ones (appendix on experimental details) and the one-dimensional example of its
posterior visualization. Each knows its conditional means, so regret can be had exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["BinaryDesign", "OneDimensionalDesign", "Sample"]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Features, realized outcomes of every action, and their conditional means."""

    x: Float[np.ndarray, "row feature"]
    outcomes: Float[np.ndarray, "row action"]
    outcome_mean: Float[np.ndarray, "row action"]


@dataclass(frozen=True, slots=True)
class BinaryDesign:
    """DGP1 (smooth, linear index), DGP2 (sine of two features) or DGP3 (a step) of the paper.

    `index_seed` draws the unit-norm vector w of DGP1.

    >>> BinaryDesign("DGP2").sample(3, seed=0).outcomes.shape
    (3, 2)
    """

    name: str = "DGP2"
    n_features: int = 10
    index_seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in ("DGP1", "DGP2", "DGP3"):
            raise ValueError(f"the binary designs are DGP1, DGP2 and DGP3, got {self.name!r}")
        if self.n_features < 4:
            raise ValueError(f"the designs use four features, got n_features={self.n_features}")

    def baseline(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """gamma_0(x), the mean outcome of action 0."""
        match self.name:
            case "DGP1":
                return x[:, 0] + 0.5 * x[:, 1] ** 2 - 0.25 * x[:, 2] * x[:, 3]
            case "DGP2":
                return 0.5 * np.sin(x[:, 0]) + 0.3 * x[:, 1] - 0.2 * x[:, 2] ** 2
            case _:
                return 0.2 * x[:, 0] - 0.1 * x[:, 1] + 0.1 * np.tanh(x[:, 2])

    def effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x), the mean gap between action 1 and action 0."""
        match self.name:
            case "DGP1":
                w = np.random.default_rng(self.index_seed).standard_normal(self.n_features)
                return 2.0 * np.tanh(x @ (w / np.linalg.norm(w)) / np.sqrt(self.n_features))
            case "DGP2":
                return 1.5 * np.sin(x[:, 0] + x[:, 1])
            case _:
                return 2.5 * ((x[:, 0] > 0) - 0.5 + 0.2 * x[:, 1])

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, self.n_features))
        low = self.baseline(x)
        mean = np.column_stack([low, low + self.effect(x)])
        return Sample(x, mean + rng.standard_normal((n, 2)), mean)


@dataclass(frozen=True, slots=True)
class OneDimensionalDesign:
    """The paper's posterior example: X uniform on [-2.5, 2.5], tau(x) = 1.2 sin(x), noise of sd 0.6.

    >>> OneDimensionalDesign().effect(np.array([[0.0]]))
    array([0.])
    """

    def effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x) = 1.2 sin(x)."""
        return 1.2 * np.sin(x[:, 0])

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2.5, 2.5, (n, 1))
        low = 0.2 * x[:, 0] + 0.2 * np.sin(1.5 * x[:, 0])
        mean = np.column_stack([low, low + self.effect(x)])
        return Sample(x, mean + 0.6 * rng.standard_normal((n, 2)), mean)
