"""The front between outcomes: what policies of several objectives do to each outcome, with bands for all together.

Every point is a policy; its change of an outcome is the value under it less that under a baseline, by rows that nothing
of it has seen. The bands hold for all points and outcomes at once (the largest |z| of all, as in `value.gains`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.report.numbers import ascii_number, decimal_places
from gbpl.value.estimate import Value
from gbpl.value.gains import Gains

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

__all__ = ["Front", "FrontPoint"]


@dataclass(frozen=True, slots=True, eq=False)
class FrontPoint:
    """A policy on a front: weights of its objective in the outcomes' units, and the value of each outcome under it.

    `tradeoff` is lambda, the weight of the guarded outcomes in units of the spread; infinite where they count alone.
    The default action for all has neither.
    """

    label: str
    tradeoff: float | None
    weights: tuple[float, ...] | None
    values: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Front:
    """Points from the most careful to the least, beside the `base` values of each outcome.

    `directions` has 1 for outcomes of which more is better, else -1.
    """

    outcomes: tuple[str, ...]
    directions: tuple[float, ...]
    points: tuple[FrontPoint, ...]
    base: tuple[Value, ...]
    against: str
    level: float = 0.95

    @cached_property
    def _gains(self) -> Gains:
        names = [f"{name} at {point.label}" for point in self.points for name in self.outcomes]
        changes = [v - b for point in self.points for v, b in zip(point.values, self.base, strict=True)]
        return Gains(tuple(names), tuple(changes))

    def _shaped(self, listed: Any) -> np.ndarray:
        return np.asarray(listed).reshape(len(self.points), len(self.outcomes), -1).squeeze(-1)

    @property
    def changes(self) -> Float[np.ndarray, "point outcome"]:
        """Estimated change of each outcome from the baseline."""
        return self._shaped(self._gains.estimates)

    @property
    def ses(self) -> Float[np.ndarray, "point outcome"]:
        """Standard errors of the changes."""
        return self._shaped(self._gains.ses)

    def bands(self, level: float | None = None) -> Float[np.ndarray, "point outcome 2"]:
        """Ends of intervals that contain all changes together with probability `level`."""
        ends = self._gains.bands(self.level if level is None else level)
        return ends.reshape(len(self.points), len(self.outcomes), 2)

    @property
    def dominated(self) -> Bool[np.ndarray, " point"]:
        """Points than which another is, by the estimates, at least as good in every outcome and better in one."""
        return dominated(self.changes * np.array(self.directions))

    def to_dict(self) -> list[dict[str, Any]]:
        """One entry per point, in plain numbers."""
        changes, ses, bands, worse = self.changes, self.ses, self.bands(), self.dominated
        made: list[dict[str, Any]] = []
        for place, point in enumerate(self.points):
            weights = [None] * len(self.outcomes) if point.weights is None else list(point.weights)
            tradeoff = point.tradeoff if point.tradeoff is not None and np.isfinite(point.tradeoff) else None
            of_outcomes = [
                {
                    "value": value.estimate, "se": value.se, "change": float(changes[place, number]),
                    "change_se": float(ses[place, number]), "band_low": float(bands[place, number, 0]),
                    "band_high": float(bands[place, number, 1]),
                }
                for number, value in enumerate(point.values)
            ]  # fmt: skip
            named = dict(zip(self.outcomes, weights, strict=True))
            made.append(
                {"label": point.label, "lambda": tradeoff, "weights": named, "dominated": bool(worse[place])}
                | {"outcomes": of_outcomes}
            )
        return made

    def __str__(self) -> str:
        percent = f"{100 * self.level:g} %"
        wide = max(len(point.label) for point in self.points)
        heads = [f"{name:>14} {f'{percent} band':>24}" for name in self.outcomes]
        lines = [f"change from {self.against}", f"{'':<{wide}} {' '.join(heads)}"]
        bands, worse = self.bands(), self.dominated
        for place, point in enumerate(self.points):
            cells = []
            for number in range(len(self.outcomes)):
                places = decimal_places(float(self.ses[:, number].max()))
                change, low, high = (
                    ascii_number(float(x), places) for x in (self.changes[place, number], *bands[place, number])
                )
                cells.append(f"{change:>14} {f'{low} to {high}':>24}")
            lines.append(f"{point.label:<{wide}} {' '.join(cells)}{'  dominated' if worse[place] else ''}")
        return "\n".join(lines)

    __repr__ = __str__


def dominated(goodness: Sequence[Sequence[float]] | Float[np.ndarray, "point outcome"]) -> Bool[np.ndarray, " point"]:
    """Whether another row is at least as large in every column, and larger in one.

    >>> dominated([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]]).tolist()
    [False, False, True]
    """
    good = np.asarray(goodness, np.float64)
    least = np.all(good[None] >= good[:, None], axis=2)
    found: Bool[np.ndarray, " point"] = np.any(least & np.any(good[None] > good[:, None], axis=2), axis=1)
    return found
