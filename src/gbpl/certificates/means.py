"""Lower bounds of a mean, for a policy that was fixed before the rows: one number per row, no price for choosing.

Every form holds with probability at least 1 - failure_probability for independent rows, whatever their distribution,
as long as values are at least `low` (and at most `high`, where a form needs that). The form is chosen before the rows:
the certificate is the one by betting, and the others stand beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm

from gbpl.certificates.betting import BISECTIONS, Bets, Wealth, lower_bound, plug_in_lower_bound
from gbpl.certificates.bounds import chernoff_bound

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "BETTING", "NORMAL", "Units", "anticipated", "betting", "empirical_bernstein", "inverse_kl", "learned_bets",
    "logarithmic_smoothing", "normal",
]  # fmt: skip

BETTING, BERNSTEIN, SMOOTHING, KL = "betting", "empirical Bernstein", "logarithmic smoothing", "inverse kl"
NORMAL = "normal (not certified)"
AROUND, SHARES = (0.5, 1.0, 2.0), (0.1, 0.8, 0.1)  # bets about the best one of other rows, and what each gets
TRIED = 40  # bets among which the best one is looked for


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What counts as one observation: a row, or a group of rows; its weight, and the (weighted) mean of its values."""

    value: Float[np.ndarray, " unit"]
    weight: Float[np.ndarray, " unit"] | None

    @classmethod
    def of(
        cls, values: Float[np.ndarray, " row"], weights: Float[np.ndarray, " row"] | None, groups: np.ndarray | None
    ) -> Units:
        """Rows with weights, or groups whose weight is that of all their rows; equal weights are left out."""
        if groups is None:
            return cls(values, None if weights is None or np.ptp(weights) == 0.0 else weights)
        row = np.ones(len(values)) if weights is None else weights
        numbers = np.unique(groups, return_inverse=True)[1]
        total = np.bincount(numbers, row)
        return cls(np.bincount(numbers, row * values) / total, None if np.ptp(total) <= 1e-12 * total[0] else total)

    @property
    def largest(self) -> float:
        """The largest weight."""
        return 1.0 if self.weight is None else float(self.weight.max())

    @property
    def mean(self) -> float:
        """The weighted mean of the values."""
        return float(np.average(self.value, weights=self.weight))

    def within(self, largest: float) -> Units:
        """The same with no weight above `largest`."""
        return self if self.weight is None else Units(self.value, np.minimum(self.weight, largest))

    def __len__(self) -> int:
        return len(self.value)


def anticipated(units: Units, failure_probability: float, *, low: float, n: int) -> tuple[float, float]:
    """The distance from mean to bound that the best single bet would leave for n units like these, and that bet.

    With one bet c the bound is low + (exp(mean log(1 + c (value - low)) - log(1 / p) / n) - 1) / c: the logarithmic
    smoothing of Sakhi et al. (2024) is betting with one bet.
    """
    above = units.value - low
    mean = float(np.average(above, weights=units.weight))
    share = np.ones(1) if units.weight is None else units.weight / units.largest
    stake = share * above + (1.0 - share) * mean  # as in `betting`, at the mean
    spread = float(stake.std())
    if mean <= 0.0 or spread == 0.0:
        return 0.0, 1.0 / (mean or 1.0)
    sizes = np.geomspace(1e-3, 1e3, TRIED) * math.sqrt(-2.0 * math.log(failure_probability) / n) / spread
    logs = np.array([float(np.log1p(size * stake).mean()) for size in sizes])
    lowers = np.expm1(logs + math.log(failure_probability) / n) / sizes
    best = int(np.argmax(lowers))
    return (mean - float(lowers[best])) / float(share.mean()), float(sizes[best])


def learned_bets(size: float) -> Bets:
    """Most of the wealth on a bet that suited other rows, some on half and on twice as much."""
    return Bets(tuple(size * factor for factor in AROUND), SHARES)


def betting(
    units: Units, failure_probability: float, *, low: float, bets: Bets | None, largest: float | None = None,
    scale: float = 1.0,
) -> float:  # fmt: skip
    """The bound by betting (`gbpl.certificates.betting`); with weights, of E[w value] / E[w].

    Without `bets` those of a row follow from the rows before it, and with weights are spread over a grid, both in units
    of `scale`.

    Weights are at most `largest`. For a mean m, y = w (value - low) + (largest - w)(m - low) is never negative and has
    the mean largest (m - low) if and only if E[w value] = m E[w]: m is ruled out by betting on y.
    """
    if units.weight is None and bets is None:
        return float(plug_in_lower_bound(units.value, failure_probability, low=low, scale=scale))
    if units.weight is None:
        return float(lower_bound(units.value, failure_probability, low=low, bets=bets))
    largest = units.largest if largest is None else largest
    weight, above = units.weight / largest, units.value - low
    under, over, threshold = 0.0, float(np.average(above, weights=weight)), -math.log(failure_probability)
    for _ in range(BISECTIONS):
        middle = 0.5 * (under + over)
        wealth = Wealth.start(bets or Bets.grid(scale)).add(weight * above + (1.0 - weight) * middle)
        under, over = (middle, over) if wealth.log_wealth(middle) >= threshold else (under, middle)
    return low + under


def logarithmic_smoothing(
    values: Float[np.ndarray, " row"], failure_probability: float, *, low: float, scale: float
) -> float:
    """Sakhi et al. (2024), corollary 4: one bet of 1 / sqrt(n), in units of the outcome's width `scale`.

    sqrt(n) (exp(mean log(1 + y / sqrt(n)) - log(1 / p) / n) - 1) for y = (value - low) / scale.
    """
    bet = Bets((1.0 / (scale * math.sqrt(len(values))),), (1.0,))
    return float(lower_bound(values, failure_probability, low=low, bets=bet))


def empirical_bernstein(
    values: Float[np.ndarray, " row"], failure_probability: float, *, low: float, high: float
) -> float:
    """mean - sqrt(2 s^2 log(2/p) / n) - 7 (high - low) log(2/p) / (3 (n - 1)): Maurer and Pontil (2009), theorem 4."""
    n, needed = len(values), math.log(2.0 / failure_probability)
    if n < 2:
        return low
    reach = math.sqrt(2.0 * float(values.var(ddof=1)) * needed / n) + 7.0 * (high - low) * needed / (3.0 * (n - 1))
    return max(low, float(values.mean()) - reach)


def inverse_kl(values: Float[np.ndarray, " row"], failure_probability: float, *, low: float, high: float) -> float:
    """Smallest p with kl(mean || p) <= log(1 / failure_probability) / n, in units of the range (Hoeffding 1963)."""
    share = float(np.clip((high - values.mean()) / (high - low), 0.0, 1.0))
    return high - (high - low) * float(chernoff_bound(share, len(values), failure_probability=failure_probability))


def normal(units: Units, failure_probability: float) -> float:
    """mean - z se, which is right for many rows and certifies nothing; with weights, of the ratio of the means."""
    mean, n = units.mean, len(units)
    weight = np.ones(n) if units.weight is None else units.weight / units.weight.mean()
    error = math.sqrt(float(np.sum((weight * (units.value - mean)) ** 2)) / max(1, n - 1) / n)
    return mean - float(norm.isf(failure_probability)) * error
