"""Splines: a smooth additive score, one curve per feature, for samples too small for anything richer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from gbpl.models.basis import spline_curves
from gbpl.models.networks import Linear
from gbpl.models.numpy_form import Networks, layer_matrix, with_bias

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["Splines", "spline_curves"]


@dataclass(frozen=True, slots=True)
class Splines:
    """Additive natural cubic splines: raw(x) = b + sum_j s_j(x_j), each s_j linear beyond the outer knots.

    The `knots` lie at the normal quantiles of even probabilities, the features being standardised. The curves of a
    feature are orthonormal under the standard normal distribution, the straight line first, so that the prior treats
    all of them alike (Hastie, Tibshirani and Friedman 2009, section 5.2.1, has the basis before that). With a
    `curve_sd` below one it expects lines: the prior sd of all that bends is so many times that of the line.

    >>> import jax
    >>> Splines(knots=5).apply(Splines(knots=5).init(jax.random.key(0), 3, 1), jnp.ones((2, 3))).shape
    (2, 1)
    """

    knots: int = 6
    curve_sd: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.knots, bool) or not isinstance(self.knots, int | np.integer) or not 3 <= self.knots <= 50:
            raise ValueError(f"knots must be a whole number from 3 to 50, got {self.knots!r}; try 6")
        if not 0.0 < self.curve_sd < np.inf:
            raise ValueError(f"curve_sd must be > 0 and finite, got {self.curve_sd!r}; try 0.3")

    @property
    def curves(self) -> int:
        """Basis functions per feature: the line, and one for each inner knot."""
        return self.knots - 1

    def feature_scales(self, n_features: int) -> Float[np.ndarray, " hidden"]:
        """What each curve is multiplied by, so that one prior sd of all weights is `curve_sd` for those that bend."""
        return np.tile(np.array([1.0] + [self.curve_sd] * (self.curves - 1), np.float32), n_features)

    def init(self, key: Array, n_features: int, n_raw: int) -> list[dict[str, Array]]:
        return Linear().init(key, n_features * self.curves, n_raw)

    def features(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        return spline_curves(x, self.knots, jnp) * self.feature_scales(x.shape[-1])

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]

    def frozen(self, params: list[dict[str, np.ndarray]], n_features: int) -> Networks:
        last = layer_matrix(params[-1]) * with_bias(self.feature_scales(n_features))
        return Networks((), np.asarray(last, np.float32), knots=int(self.knots))
