"""PAC-Bayes bounds on the risk of a posterior, and what they say about welfare (section 8).

A bound holds with probability at least 1 - failure_probability over the rows, for every posterior Q at once, so Q may
be chosen after looking at them. What must not depend on those rows: the prior, the constants of the loss (`Moments`, a
range), and the rate, except where a union bound over a grid of rates pays for it. Numbers may be arrays that broadcast.

With logged feedback the formulas are the same, on pseudo-outcomes whose mean given x is that of the outcomes
(corollary on missing outcomes); their range grows as one over the smallest propensity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import xlogy

from gbpl.certificates.kl import MonteCarlo, curvature_kl, gaussian_kl, gibbs_kl, monte_carlo_kl, posterior_kl

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.surrogates import Surrogate

    Numbers = float | Float[np.ndarray, "..."]

__all__ = [
    "Moments", "MonteCarlo", "catoni_bound", "catoni_bound_over_rates", "catoni_rates", "chernoff_bound",
    "curvature_kl", "gaussian_kl", "gibbs_kl", "inverse_kl", "inverse_kl_bound", "inverse_kl_lower_bound",
    "mcallester_bound", "monte_carlo_kl", "optimal_rate", "pac_bayes_bound", "pac_bayes_bound_over_rates",
    "pac_bayes_interval", "pac_bayes_rates", "penalized_regret_bound", "penalized_welfare_difference", "penalty_range",
    "posterior_kl", "surrogate_range", "welfare_from_penalized", "welfare_regret_bound",
]  # fmt: skip

BISECTIONS = 64  # an interval of length one ends below the spacing of floats
INSIDE = 1.0 - 1e-9  # of the open range of rates


# -- the loss: what is known about it before the data ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moments:
    """Constants v and b of the sub-exponential assumption: log E exp(t (loss - R)) <= t^2 v / 2 for |t| < 1/b.

    `certified` says whether they are known to hold, or were estimated from a sample.
    """

    variance_proxy: float
    tail_scale: float
    certified: bool

    def __post_init__(self) -> None:
        if not 0.0 < self.variance_proxy < math.inf:
            raise ValueError(f"variance_proxy must be > 0 and finite, got {self.variance_proxy}")
        if not 0.0 <= self.tail_scale < math.inf:
            raise ValueError(f"tail_scale must be >= 0 and finite, got {self.tail_scale}; 0 allows every rate")

    @classmethod
    def bounded(cls, low: float, high: float) -> Moments:
        """A loss in [low, high]: v = (high - low)^2 / 4 at every rate (Hoeffding's lemma).

        >>> Moments.bounded(0.0, 1.0)
        Moments(variance_proxy=0.25, tail_scale=0.0, certified=True)
        """
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"a bounded loss needs finite low < high, got {low} and {high}")
        return cls((high - low) ** 2 / 4.0, 0.0, True)

    @classmethod
    def sub_gaussian(cls, variance_proxy: float) -> Moments:
        """A loss with log E exp(t (loss - R)) <= t^2 v / 2 at every rate, whatever the hypothesis."""
        return cls(variance_proxy, 0.0, True)

    @classmethod
    def gaussian_gap(cls, noise_sd: float, mean_bound: float, zeta: float) -> Moments:
        """The binary loss where U given x is normal with this standard deviation and a mean in +-mean_bound.

        The residual r = (U - zeta f) / sqrt(zeta) is normal given x with variance s^2 = noise_sd^2 / zeta and a mean m
        in +-B, B = (mean_bound + zeta) / sqrt(zeta). For t s^2 <= 1/2, log E exp(t (r^2 - E r^2) / 2) =
        -log(1 - t s^2) / 2 - t s^2 / 2 + t^2 s^2 m^2 / (2 (1 - t s^2)) <= t^2 (s^4 + 2 s^2 B^2) / 2, and the mean of
        the loss given x varies by B^2 / 2 (Hoeffding's lemma): v = s^4 + 2 s^2 B^2 + B^4 / 16 and b = 2 s^2.
        """
        if not (noise_sd > 0.0 and mean_bound >= 0.0 and zeta > 0.0):
            raise ValueError(f"noise_sd and zeta must be > 0 and mean_bound >= 0, got {noise_sd}, {zeta}, {mean_bound}")
        spread, reach = noise_sd**2 / zeta, (mean_bound + zeta) ** 2 / zeta  # s^2 and B^2
        return cls(spread**2 + 2.0 * spread * reach + reach**2 / 16.0, 2.0 * spread, True)

    @classmethod
    def estimated(cls, losses: Float[np.ndarray, "draw row"] | Float[np.ndarray, " row"]) -> Moments:
        """From losses of one hypothesis, or of several (one row of the table each): a guide, not a guarantee.

        With s^2 the largest variance over rows and M the largest |loss - mean|, Bernstein's inequality,
        log E exp(t X) <= t^2 s^2 / (2 (1 - |t| M / 3)), gives v = 2 s^2 and b = 2 M / 3. That would hold if s^2 and M
        were those of the population and of every hypothesis; those of a sample are too small, by an unknown amount.
        """
        table = np.atleast_2d(np.asarray(losses, np.float64))
        if table.shape[1] < 2 or not np.isfinite(table).all():
            raise ValueError(
                f"losses must be finite, two rows or more of each hypothesis, got shape {np.shape(losses)}"
            )
        centred = table - table.mean(axis=1, keepdims=True)
        if not centred.any():
            raise ValueError("the losses do not vary: there is nothing to estimate; use Moments.bounded")
        return cls(2.0 * float(table.var(axis=1, ddof=1).max()), 2.0 / 3.0 * float(np.abs(centred).max()), False)


def surrogate_range(surrogate: Surrogate, outcome_range: tuple[float, float], zeta: float) -> tuple[float, float]:
    """Smallest and largest full surrogate loss of a row, outcomes in the range and scores those of any policy."""
    return surrogate.loss_range(outcome_range, zeta)


# -- bounds ---------------------------------------------------------------------------------------------------------


def _check(kl: Numbers, n: int, failure_probability: float) -> None:
    if not np.all(np.asarray(kl) >= 0.0):
        raise ValueError(f"kl must be >= 0, got {kl}; a Monte Carlo estimate below zero is zero or needs more draws")
    if not n >= 1:
        raise ValueError(f"n must be >= 1, got {n}")
    if not 0.0 < failure_probability < 1.0:
        raise ValueError(f"failure_probability must be in (0, 1), got {failure_probability}; try 0.05")


def _check_unit(risk: Numbers) -> None:
    values = np.asarray(risk)
    if not np.all((values >= 0.0) & (values <= 1.0)):
        raise ValueError(f"risk must be that of a loss in [0, 1], got {risk}; divide by the range of the loss")


def _check_rate(rate: Numbers, tail_scale: float) -> None:
    values, limit = np.asarray(rate), math.inf if tail_scale == 0.0 else 1.0 / tail_scale
    if not np.all((values > 0.0) & (values < limit)):
        raise ValueError(
            f"rate must be in (0, {limit:g}), that is (0, 1 / tail_scale), got {rate}; take optimal_rate for a KL you "
            "expect, or pac_bayes_bound_over_rates"
        )


def _plain(values: Any) -> Numbers:
    return float(values) if np.ndim(values) == 0 else values


def pac_bayes_bound(
    risk: Numbers, kl: Numbers, n: int, *, rate: Numbers, moments: Moments, failure_probability: float = 0.05
) -> Numbers:
    """The theorem, the rate t fixed in advance: E_Q R <= E_Q R_hat + (KL(Q || P) + log(1 / rho)) / (t n) + t v / 2.

    >>> round(pac_bayes_bound(0.2, 1.0, 1000, rate=0.2, moments=Moments.bounded(0.0, 1.0)), 4)
    0.245
    """
    _check(kl, n, failure_probability)
    _check_rate(rate, moments.tail_scale)
    complexity = np.asarray(kl) - math.log(failure_probability)
    return _plain(risk + complexity / (np.asarray(rate) * n) + np.asarray(rate) * moments.variance_proxy / 2.0)


def pac_bayes_interval(
    risk: Numbers, kl: Numbers, n: int, *, rate: Numbers, moments: Moments, failure_probability: float = 0.05
) -> tuple[Numbers, Numbers]:
    """Both sides (two-sided corollary): the theorem at half the failure probability for the loss and for its negative.

    The half-width is (KL + log(2 / rho)) / (t n) + t v / 2.
    """
    high = pac_bayes_bound(risk, kl, n, rate=rate, moments=moments, failure_probability=failure_probability / 2.0)
    return _plain(2.0 * np.asarray(risk) - high), high


def optimal_rate(kl: Numbers, n: int, moments: Moments, failure_probability: float = 0.05) -> Numbers:
    """The rate with the smallest bound at this KL, sqrt(2 (KL + log(1 / rho)) / (v n)), kept below 1 / b.

    Give the KL you expect: a rate from the KL of the same rows is no longer fixed in advance (`_over_rates`).
    """
    _check(kl, n, failure_probability)
    best = np.sqrt(2.0 * (np.asarray(kl) - math.log(failure_probability)) / (moments.variance_proxy * n))
    return _plain(best if moments.tail_scale == 0.0 else np.minimum(best, INSIDE / moments.tail_scale))


def pac_bayes_rates(n: int, moments: Moments) -> Float[np.ndarray, " rate"]:
    """Rates that are optimal where KL + log(1 / rho) is 4, 16, 64, ... up to n (three of them at least).

    Between two of them the bound's width is at most 6 % above that of the best rate.
    """
    count = max(3, math.ceil(math.log(max(n, 1)) / math.log(4.0)))
    best = np.sqrt(2.0 * 4.0 ** np.arange(1, count + 1) / (moments.variance_proxy * n))
    return np.unique(best if moments.tail_scale == 0.0 else np.minimum(best, INSIDE / moments.tail_scale))


def pac_bayes_bound_over_rates(
    risk: Numbers,
    kl: Numbers,
    n: int,
    *,
    moments: Moments,
    failure_probability: float = 0.05,
    rates: Sequence[float] | Float[np.ndarray, " rate"] | None = None,
) -> Numbers:
    """The theorem at the best of several rates, each at failure_probability over their number (union bound).

    `rates` are `pac_bayes_rates(n, moments)` if None: optimal for KL + log(1 / rho) of 4, 16, 64, ... up to n.
    """
    grid = pac_bayes_rates(n, moments) if rates is None else np.asarray(rates, np.float64)
    share = failure_probability / len(grid)
    each = [pac_bayes_bound(risk, kl, n, rate=float(rate), moments=moments, failure_probability=share) for rate in grid]
    return _plain(np.minimum.reduce(np.asarray(each)))


def catoni_bound(risk: Numbers, kl: Numbers, n: int, *, rate: Numbers, failure_probability: float = 0.05) -> Numbers:
    """(1 - exp(-t R_hat - (KL + log(1 / rho)) / n)) / (1 - exp(-t)), for a loss in [0, 1] and a rate fixed in advance.

    Catoni (2007), theorem 1.2.6. Never above one.
    """
    _check(kl, n, failure_probability)
    _check_unit(risk)
    _check_rate(rate, 0.0)
    exponent = np.asarray(rate) * risk + (np.asarray(kl) - math.log(failure_probability)) / n
    return _plain(np.minimum(np.expm1(-exponent) / np.expm1(-np.asarray(rate)), 1.0))


def catoni_rates(n: int) -> Float[np.ndarray, " rate"]:
    """Rates for Catoni's bound: a factor of two apart, from sqrt(32 / n) (risks near 1/2) to 8 (risks near 0)."""
    first = min(math.sqrt(32.0 / n), 1.0)
    return first * 2.0 ** np.arange(math.ceil(math.log2(8.0 / first)) + 1)


def catoni_bound_over_rates(
    risk: Numbers,
    kl: Numbers,
    n: int,
    *,
    failure_probability: float = 0.05,
    rates: Sequence[float] | Float[np.ndarray, " rate"] | None = None,
) -> Numbers:
    """Catoni's bound at the best of several rates (`catoni_rates(n)` if None), by a union bound over them."""
    grid = catoni_rates(n) if rates is None else np.asarray(rates, np.float64)
    share = failure_probability / len(grid)
    each = [catoni_bound(risk, kl, n, rate=float(rate), failure_probability=share) for rate in grid]
    return _plain(np.minimum.reduce(np.asarray(each)))


def _bernoulli_kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """kl(p || q) = p log(p / q) + (1 - p) log((1 - p) / (1 - q))."""
    with np.errstate(divide="ignore"):
        return xlogy(p, p) - xlogy(p, q) + xlogy(1.0 - p, 1.0 - p) - xlogy(1.0 - p, 1.0 - q)


def inverse_kl(risk: Numbers, budget: Numbers) -> Numbers:
    """Largest r with kl(risk || r) <= budget, by bisection, rounded up.

    >>> round(inverse_kl(0.0, 0.1), 6) == round(1 - math.exp(-0.1), 6)
    True
    """
    _check_unit(risk)
    p, limit = np.broadcast_arrays(np.asarray(risk, np.float64), np.asarray(budget, np.float64))
    if not np.all(limit >= 0.0):
        raise ValueError(f"budget must be >= 0, got {budget}")
    low, high = p.copy(), np.ones(p.shape)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        inside = _bernoulli_kl(p, middle) <= limit
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return _plain(high)


def inverse_kl_bound(risk: Numbers, kl: Numbers, n: int, *, failure_probability: float = 0.05) -> Numbers:
    """Largest r with kl(R_hat || r) <= (KL + log(2 sqrt(n) / rho)) / n, for a loss in [0, 1].

    Seeger (2002), Maurer (2004). No rate to choose, and tight where the risk is small. It and `inverse_kl_lower_bound`
    hold together.
    """
    return inverse_kl(risk, _kl_budget(kl, n, failure_probability))


def inverse_kl_lower_bound(risk: Numbers, kl: Numbers, n: int, *, failure_probability: float = 0.05) -> Numbers:
    """Smallest r with kl(R_hat || r) <= (KL + log(2 sqrt(n) / rho)) / n: one less the bound of one less the risk."""
    return _plain(1.0 - np.asarray(inverse_kl(1.0 - np.asarray(risk), _kl_budget(kl, n, failure_probability))))


def _kl_budget(kl: Numbers, n: int, failure_probability: float) -> Numbers:
    _check(kl, n, failure_probability)
    return _plain((np.asarray(kl) + math.log(2.0 * math.sqrt(n) / failure_probability)) / n)


def mcallester_bound(risk: Numbers, kl: Numbers, n: int, *, failure_probability: float = 0.05) -> Numbers:
    """R_hat + sqrt((KL + log(2 sqrt(n) / rho)) / (2 n)): what the inverse-kl bound becomes by Pinsker's inequality."""
    _check_unit(risk)
    return _plain(risk + np.sqrt(np.asarray(_kl_budget(kl, n, failure_probability)) / 2.0))


def chernoff_bound(risk: Numbers, n: int, *, failure_probability: float = 0.05) -> Numbers:
    """Largest r with kl(R_hat || r) <= log(1 / rho) / n, for one hypothesis named in advance (Hoeffding 1963)."""
    _check(0.0, n, failure_probability)
    return inverse_kl(risk, -math.log(failure_probability) / n)


# -- from risk to welfare -------------------------------------------------------------------------------------------


def penalized_welfare_difference(risk: Numbers, other_risk: Numbers, surrogate: Surrogate) -> Numbers:
    """W(policy) - W(other) = factor (R(other) - R(policy)), factor 1/2 for gaps, 1 for the full vector (corollary)."""
    if surrogate.huber != math.inf:
        raise ValueError(f"the welfare identity is that of the squared loss, got huber={surrogate.huber}; leave it out")
    return _plain(surrogate.welfare_factor * (np.asarray(other_risk) - risk))


def penalized_regret_bound(risk_bound: Numbers, best_risk_lower: Numbers, surrogate: Surrogate) -> Numbers:
    """W* - W <= factor (bound on R - lower bound of the best risk in the class): "PAC-Bayes to welfare"."""
    return penalized_welfare_difference(best_risk_lower, risk_bound, surrogate)


def penalty_range(surrogate: Surrogate) -> tuple[float, float]:
    """Smallest and largest |s|^2 of a policy's scores: (0, 1) for two actions, (1/K, 1) for the full vector."""
    return surrogate.penalty_range


def welfare_from_penalized(penalized: Numbers, zeta: float, surrogate: Surrogate) -> tuple[Numbers, Numbers]:
    """Bounds of V given W: W <= V <= W + lambda for two actions, W + lambda/K <= V <= W + lambda for K (corollary)."""
    low, high = (surrogate.penalty_scale * zeta * end for end in penalty_range(surrogate))
    return _plain(np.asarray(penalized) + low), _plain(np.asarray(penalized) + high)


def welfare_regret_bound(penalized_regret: Numbers, zeta: float, surrogate: Surrogate) -> Numbers:
    """V* - V <= (W* - W) + lambda for two actions, + lambda (1 - 1/K) for the full vector (unregularized corollary)."""
    low, high = penalty_range(surrogate)
    return _plain(np.asarray(penalized_regret) + surrogate.penalty_scale * zeta * (high - low))
