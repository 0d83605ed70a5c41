"""Priors over the parameters of a score model (appendix on GBPLNet: N(0, sigma_w^2 I))."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["GaussianPrior", "squared_norm"]


def squared_norm(params: Any) -> Float[Array, ""]:
    """|w|^2 over a tree of parameters."""
    return sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), jnp.zeros(()))


@dataclass(frozen=True, slots=True)
class GaussianPrior:
    """Independent N(0, sd^2) on every parameter. It is the only regulariser: weight decay follows from it."""

    sd: float = 1.0

    def __post_init__(self) -> None:
        if not (self.sd > 0 and math.isfinite(self.sd)):
            raise ValueError(f"prior_sd must be a finite number > 0, got {self.sd}; try 1.0")

    def negative_log_density(self, params: Any) -> Float[Array, ""]:
        """-log p(w) = |w|^2 / (2 sd^2) + p log(sd sqrt(2 pi)), summed over the tree of parameters."""
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        return squared_norm(params) / (2.0 * self.sd**2) + size * math.log(self.sd * math.sqrt(2.0 * math.pi))

    def penalty_scale(self, eta: float, n: float) -> float:
        """Weight of |w|^2 beside a *mean* loss over n rows at scale eta: 1 / (2 sd^2 eta n)."""
        return 1.0 / (2.0 * self.sd**2 * eta * n)
