"""The bound on draws: the best reweighting of policies that have not seen the rows (section 8).

The prior P is uniform over m draws and Q any reweighting of them, so KL(Q || P) = sum_j q_j log(m q_j) is exact: there
is no Monte Carlo error. Every form holds for all Q at once, so Q is chosen after looking at the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp, softmax, xlogy

from gbpl.certificates.bounds import (
    Moments,
    catoni_bound_over_rates,
    inverse_kl_lower_bound,
    pac_bayes_bound_over_rates,
)

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["CertifiedDraws", "certify_draws", "smoothed_draws"]

SMOOTHING = "betting with one bet (logarithmic smoothing)"
INVERSE_KL, CATONI, THEOREM = "inverse kl", "Catoni, best of a grid of rates", "the paper's theorem, best of a grid"


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedDraws:
    """The bound on a reweighting of policies on `n` rows; `forms` are bounds each with its own best weights."""

    n: int
    estimate: float
    lower: float
    kl: float
    forms: Mapping[str, float]
    weights: Float[np.ndarray, " draw"]


def smoothed_draws(
    log_stakes: Float[np.ndarray, " draw"], n: int, *, bet: float, failure_probability: float
) -> tuple[float, Float[np.ndarray, " draw"]]:
    """PAC-Bayes betting with one bet c: E_Q value >= (exp(E_Q s - (KL + log(1 / p)) / n) - 1) / c, and the best Q.

    s_j is the mean over rows of log(1 + c value_j), values >= 0. Each exp(n s_j) / (1 + c E value_j)^n has mean one, so
    by the variational formula for KL, E_Q n (s - log(1 + c E value)) <= KL + log(1 / p) for all Q with probability
    1 - p, and E_Q log(1 + c E value) <= log(1 + c E_Q E value). The best Q is q_j proportional to exp(n s_j), and
    E_Q s - KL / n is then log(mean exp(n s_j)) / n.
    """
    scaled = n * np.asarray(log_stakes, np.float64)
    total = float(logsumexp(scaled)) - math.log(len(scaled)) + math.log(failure_probability)
    return max(0.0, math.expm1(total / n) / bet), softmax(scaled)


def certify_draws(
    values: Float[np.ndarray, " draw"], n: int, *, low: float, width: float, failure_probability: float,
    log_stakes: Float[np.ndarray, " draw"] | None = None, bet: float = 0.0,
) -> CertifiedDraws:  # fmt: skip
    """Certify the best reweighting of policies whose mean values on n independent rows are given.

    Every row's value must lie in [low, low + width] whatever the policy, and the policies must not have seen the rows.
    The certificate is fixed in advance: with `log_stakes`, means of log(1 + bet (value - low)) for a bet that is fixed
    too, it is the one by betting, which needs no upper end; else that of the inverse kl.

    >>> draws = certify_draws(np.array([0.2, 0.9]), 1000, low=0.0, width=1.0, failure_probability=0.05)
    >>> round(draws.estimate, 2), 0.8 < draws.lower < 0.9, round(draws.kl, 2)
    (0.9, True, 0.69)
    """
    given: dict[str, Any] = {"failure_probability": failure_probability}
    values = np.asarray(values, np.float64)
    gains = np.clip((values - low) / width, 0.0, 1.0)  # outside by rounding alone
    strengths = np.concatenate([[0.0], 2.0 ** np.arange(math.ceil(math.log2(16 * n)) + 1)])
    weights = softmax(strengths[:, None] * gains, axis=1)
    kl = np.maximum(np.sum(xlogy(weights, len(gains) * weights), axis=1), 0.0)
    means = np.clip(weights @ gains, 0.0, 1.0)
    lowers = {
        INVERSE_KL: np.asarray(inverse_kl_lower_bound(means, kl, n, **given)),
        CATONI: 1.0 - np.asarray(catoni_bound_over_rates(1.0 - means, kl, n, **given)),
        THEOREM: 1.0 - np.asarray(
            pac_bayes_bound_over_rates(1.0 - means, kl, n, moments=Moments.bounded(0.0, 1.0), **given)
        ),
    }  # fmt: skip
    forms = {name: low + width * max(0.0, float(each.max())) for name, each in lowers.items()}
    best = int(np.argmax(lowers[INVERSE_KL]))
    chosen, divergence, lower = weights[best], float(kl[best]), forms[INVERSE_KL]
    if log_stakes is not None:
        above, chosen = smoothed_draws(log_stakes, n, bet=bet, **given)
        divergence, lower = max(0.0, float(np.sum(xlogy(chosen, len(chosen) * chosen)))), low + above
        forms = {SMOOTHING: lower} | forms
    estimate = float(chosen @ values)
    return CertifiedDraws(n, estimate, min(lower, estimate), divergence, forms, chosen)
