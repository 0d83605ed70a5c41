"""How far from what was learned a row may be and still get a score."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

__all__ = ["beyond_reach", "check_reach"]

FARTHEST = 1e12  # standard deviations: beyond, float32 overflows in a few layers, and no feature means anything


def beyond_reach(
    x: Float[np.ndarray, "row feature"], mean: Float[np.ndarray, " feature"], scale: Float[np.ndarray, " feature"]
) -> Bool[np.ndarray, " row"]:
    """Rows with a feature that is 1e12 standard deviations from its mean, such as -1.8e308 for no data."""
    with np.errstate(over="ignore"):
        return (np.abs(x - mean) > FARTHEST * scale).any(axis=1)


def check_reach(
    x: Float[np.ndarray, "row feature"], mean: Float[np.ndarray, " feature"], scale: Float[np.ndarray, " feature"]
) -> None:
    """Refuse rows that get no score."""
    far = beyond_reach(x, mean, scale)
    if far.any():
        row = int(np.argmax(far))
        with np.errstate(over="ignore"):
            column = int(np.argmax(np.abs(x[row] - mean) > FARTHEST * scale))
        raise ValueError(
            f"X is {x[row, column]:g} in row {row}, column {column} ({int(far.sum()):,} such row(s)), which is no "
            f"value that a policy can use (it learned from values around {mean[column]:g}); is it a mark for missing "
            "values? Drop or impute those rows"
        )
