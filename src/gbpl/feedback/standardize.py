"""Features in units of their own spread, as members see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.content import column_order
from gbpl.runtime.devices import aligned_empty

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["CONSTANT", "Standardizer"]

CHUNK = 65_536  # rows handled at a time where a temporary copy of everything would cost memory
CONSTANT = 1e-12  # of the mean: a standard deviation up to this is rounding, not variation


@dataclass(frozen=True, slots=True, eq=False)
class Standardizer:
    """Mean and standard deviation of each feature on the training rows; a constant feature keeps scale 1.

    `columns` are those that members see, in the order in which they see them: those that vary, by their content
    (`feedback.content`). None: all, as they come.
    """

    mean: Float[np.ndarray, " feature"]
    scale: Float[np.ndarray, " feature"]
    columns: Int[np.ndarray, " kept"] | None = None

    @property
    def width(self) -> int:
        """How many columns members see."""
        return len(self.mean) if self.columns is None else len(self.columns)

    @classmethod
    def of_moments(cls, mean: Float[np.ndarray, " feature"], sd: Float[np.ndarray, " feature"]) -> Standardizer:
        """From moments known already."""
        return cls(np.asarray(mean), np.where(sd <= CONSTANT * np.abs(mean), 1.0, sd))

    @classmethod
    def fit(
        cls,
        x: Float[np.ndarray, "row feature"],
        rows: Int[np.ndarray, " train"],
        weights: Float[np.ndarray, " train"] | None = None,
    ) -> Standardizer:
        """Weighted moments over the named rows."""

        def parts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for start in range(0, len(rows), CHUNK):
                named = rows[start : start + CHUNK]
                weight = np.ones(len(named)) if weights is None else weights[start : start + CHUNK]
                yield np.asarray(x[named], np.float64), weight

        total = len(rows) if weights is None else float(weights.sum())
        mean = sum(weight @ part for part, weight in parts()) / total
        variance = sum(weight @ (part - mean) ** 2 for part, weight in parts()) / total
        plain = cls.of_moments(np.asarray(mean), np.sqrt(variance))
        constant = np.sqrt(variance) <= CONSTANT * np.abs(mean)
        return cls(plain.mean, plain.scale, column_order(x[rows], np.where(constant, 0.0, 1.0)))

    def apply(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row feature"]:
        """(x - mean) / scale in float32."""
        out, mean, scale = aligned_empty((len(x), self.width)), self.mean, self.scale
        if self.columns is not None:
            mean, scale = mean[self.columns], scale[self.columns]
        for start in range(0, len(x), CHUNK):
            rows = x[start : start + CHUNK]
            out[start : start + CHUNK] = ((rows if self.columns is None else rows[:, self.columns]) - mean) / scale
        return out
