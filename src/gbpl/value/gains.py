"""The gain of a policy over each of several alternatives at once, and the chance that it is better than all of them.

"Better than the best single action" compares with a maximum, and the alternative that looks best was picked by
looking. Here every alternative stays in the comparison: bands that hold for all of them together, and one chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.report.numbers import ascii_number, decimal_places
from gbpl.value.estimate import Value, value_covariance

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Gains", "gains_over", "largest_error"]

DRAWS = 20_000


@dataclass(frozen=True, eq=False)
class Gains:
    """Gains over alternatives, `values` of the same rows.

    With estimates g and covariance C, `bands` are g_a -+ c se_a, where c is the quantile of max_a |z_a| / se_a for
    z ~ N(0, C) (Student's t for groups): they contain all gains at once. `chance`, of being better than every
    alternative, is the smallest of the chances one by one (the intersection-union test; Berger 1982): where the
    policy is not better than one of them, it is above 1 - q in at most a share q of samples, however many there are.
    """

    labels: tuple[str, ...]
    values: tuple[Value, ...]

    @property
    def estimates(self) -> Float[np.ndarray, " alternative"]:
        return np.array([value.estimate for value in self.values])

    @cached_property
    def ses(self) -> Float[np.ndarray, " alternative"]:
        return np.array([value.se for value in self.values])

    @cached_property
    def _largest(self) -> Float[np.ndarray, " draw"]:
        return largest_error(value_covariance(self.values), self.values[0].freedom)

    def intervals(self, level: float = 0.95) -> Float[np.ndarray, "alternative 2"]:
        """Intervals one by one, each of which contains its gain with probability `level`."""
        return np.array([value.interval(level) for value in self.values])

    def reach(self, level: float = 0.95) -> float:
        """Standard errors by which a band of this level reaches to each side."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}; try 0.95")
        return float(np.quantile(self._largest, level))

    def bands(self, level: float = 0.95) -> Float[np.ndarray, "alternative 2"]:
        """Intervals that contain all gains together with probability `level`."""
        reach = self.reach(level) * self.ses
        return np.column_stack([self.estimates - reach, self.estimates + reach])

    @property
    def p_value(self) -> float:
        """Chance of an estimate this many standard errors from zero, or more, where all are zero: the max test."""
        far = np.max(np.abs(self.estimates[self.ses > 0.0]) / self.ses[self.ses > 0.0], initial=0.0)
        return float(np.mean(self._largest >= far))

    @property
    def chances(self) -> Float[np.ndarray, " alternative"]:
        """Chance that each gain is above zero, one by one."""
        return np.array([value.probability_positive for value in self.values])

    @property
    def chance(self) -> float:
        """Chance that the policy is better than every alternative."""
        return float(self.chances.min())

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Columns by name, one row per alternative, as `pandas.DataFrame` or `polars.DataFrame` take them."""
        (low, high), (all_low, all_high) = self.intervals(level).T, self.bands(level).T
        return {
            "over": list(self.labels), "gain": self.estimates, "se": self.ses, "low": low, "high": high,
            "band_low": all_low, "band_high": all_high, "chance": self.chances,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{'gain over':<32} {'gain':>10} {'95 % interval':>24} {'all together':>24} {'chance':>7}"]
        columns = self.to_dict()
        for over, gain, se, low, high, all_low, all_high, chance in zip(*columns.values(), strict=True):
            places = decimal_places(se)
            known, a, b, c, d = (ascii_number(x, places) for x in (gain, low, high, all_low, all_high))
            lines.append(f"{over:<32} {known:>10} {f'{a} to {b}':>24} {f'{c} to {d}':>24} {chance:>7.1%}")
        return "\n".join([*lines, f"chance that it is better than all of these: {self.chance:.1%}"])

    __repr__ = __str__


def largest_error(covariance: Float[np.ndarray, "value value"], freedom: float) -> Float[np.ndarray, " draw"]:
    """Draws of max_a |z_a| / se_a for z ~ N(0, C), or Student's t: how far bands for all together must reach."""
    values, vectors = np.linalg.eigh(covariance)
    rng, ses = np.random.default_rng(0), np.sqrt(np.diag(covariance))
    noise = rng.standard_normal((DRAWS, len(values))) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    if not np.isinf(freedom):
        noise *= np.sqrt(freedom / rng.chisquare(freedom, (DRAWS, 1)))
    return np.max(np.abs(noise[:, ses > 0.0]) / ses[ses > 0.0], axis=1, initial=0.0)


def gains_over(value: Value, labels: Sequence[str], alternatives: Sequence[Value]) -> Gains:
    """Gains of a value over others of the same rows."""
    return Gains(tuple(labels), tuple(value - other for other in alternatives))
