"""The expected gain of an action, in outcome units.

A policy's deviation from uniform, d_a(x) = sum_m weight_m (delta_m,a(x) - 1/K), orders actions and rows, but it is not
in outcome units: zeta has shrunk it. One number converts it: the slope b of the (pseudo-)outcomes, centred in each row,
on the deviations of members that did not train on the row; b (d_a - d_default) is then the expected gain. If the slope
does not differ from zero, the data do not support the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["GainInterval", "GainSlope", "gain_slope", "row_products", "slope_with_error", "t_reach"]

CHUNK = 65_536


class GainInterval(NamedTuple):
    """Expected gain of each action over the default one, and the ends of an interval around it, one row per row."""

    gain: Float[np.ndarray, "row action"]
    low: Float[np.ndarray, "row action"]
    high: Float[np.ndarray, "row action"]


def t_reach(level: float, freedom: int | None) -> float:
    """How many standard errors an interval reaches to each side: Student's t, or normal if `freedom` is not known.

    >>> round(t_reach(0.95, 4), 2), round(t_reach(0.95, None), 2)
    (2.78, 1.96)
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}; try 0.9")
    if freedom is None:
        return NormalDist().inv_cdf(0.5 + level / 2)
    from scipy.special import stdtrit  # a frozen policy decides without

    return float(stdtrit(max(freedom, 1), 0.5 + level / 2))


@dataclass(frozen=True, slots=True)
class GainSlope:
    """Outcome units per unit of deviation, with its standard error; never below zero."""

    slope: float
    se: float

    def gains(self, deviation: Float[np.ndarray, "row action"], default: int) -> Float[np.ndarray, "row action"]:
        """Expected gain of each action over the default one, from deviations: slope (d_a - d_default)."""
        return self.slope * (deviation - deviation[:, [default]])


def gain_slope(
    deviation: Float[np.ndarray, "row action"],
    outcomes: Float[np.ndarray, "row action"],
    weights: Float[np.ndarray, " row"] | None = None,
) -> GainSlope:
    """b = sum_i w_i d_i'y_i / sum_i w_i |d_i|^2, y_i centred over the actions of its row; se by rows.

    >>> d = np.array([[-0.2, 0.2], [0.1, -0.1]])
    >>> round(gain_slope(d, 3.0 * d + 7.0).slope, 6)
    3.0
    """
    slope, se = slope_with_error(*row_products(deviation, outcomes), weights)
    return GainSlope(max(slope, 0.0), se)


def row_products(
    deviation: Float[np.ndarray, "row action"], outcomes: Float[np.ndarray, "row action"]
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """d_i'y_i, y_i centred over the actions of its row, and |d_i|^2."""
    products = np.empty(len(deviation))
    squares = np.empty(len(deviation))
    for start in range(0, len(deviation), CHUNK):
        rows = slice(start, start + CHUNK)
        d, y = np.asarray(deviation[rows], np.float64), np.asarray(outcomes[rows], np.float64)
        products[rows] = np.sum(d * (y - y.mean(axis=1, keepdims=True)), axis=1)
        squares[rows] = np.sum(d**2, axis=1)
    return products, squares


def slope_with_error(
    products: Float[np.ndarray, " row"], squares: Float[np.ndarray, " row"], weights: Float[np.ndarray, " row"] | None
) -> tuple[float, float]:
    """Slope through the origin by least squares, sum_i w_i products_i / sum_i w_i squares_i; se by rows."""
    weight = np.ones(len(products)) if weights is None else weights
    total = float(weight @ squares)
    if total == 0.0:
        return 0.0, 0.0
    slope = float(weight @ products) / total
    return slope, float(np.sqrt(np.sum((weight * (products - slope * squares)) ** 2))) / total
