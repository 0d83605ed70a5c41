"""The bound on draws: the best reweighting of policies that have not seen the rows (section 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax, xlogy

from gbpl.certificates.bounds import (
    Moments,
    catoni_bound_over_rates,
    inverse_kl_lower_bound,
    pac_bayes_bound_over_rates,
)

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["INVERSE_KL", "CertifiedDraws", "certify_draws"]

INVERSE_KL, CATONI, THEOREM = "inverse kl", "Catoni, best of a grid of rates", "the paper's theorem, best of a grid"


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedDraws:
    """The bound on a reweighting of policies on `n` rows; `confidence` is what the gap would be without KL."""

    n: int
    estimate: float
    lower: float
    kl: float
    confidence: float
    forms: Mapping[str, float]
    weights: Float[np.ndarray, " draw"]


def certify_draws(
    values: Float[np.ndarray, " draw"], n: int, *, low: float, width: float, failure_probability: float
) -> CertifiedDraws:
    """Certify the best reweighting of policies whose mean values on n independent rows are given.

    Every row's value must lie in [low, low + width] whatever the policy, and the policies must not have seen the rows.
    Each form of the bound has its own best reweighting; the certificate is the inverse-kl one, fixed in advance.

    >>> draws = certify_draws(np.array([0.2, 0.9]), 1000, low=0.0, width=1.0, failure_probability=0.05)
    >>> round(draws.estimate, 2), 0.8 < draws.lower < 0.9, round(draws.kl, 2)
    (0.9, True, 0.69)
    """
    gains = np.clip((np.asarray(values, np.float64) - low) / width, 0.0, 1.0)  # outside by rounding alone
    strengths = np.concatenate([[0.0], 2.0 ** np.arange(math.ceil(math.log2(16 * n)) + 1)])
    weights = softmax(strengths[:, None] * gains, axis=1)
    kl = np.maximum(np.sum(xlogy(weights, len(gains) * weights), axis=1), 0.0)
    means = np.clip(weights @ gains, 0.0, 1.0)
    given: dict[str, Any] = {"failure_probability": failure_probability}
    forms = {
        INVERSE_KL: np.asarray(inverse_kl_lower_bound(means, kl, n, **given)),
        CATONI: 1.0 - np.asarray(catoni_bound_over_rates(1.0 - means, kl, n, **given)),
        THEOREM: 1.0 - np.asarray(
            pac_bayes_bound_over_rates(1.0 - means, kl, n, moments=Moments.bounded(0.0, 1.0), **given)
        ),
    }  # fmt: skip
    best = int(np.argmax(forms[INVERSE_KL]))
    estimate = low + width * float(means[best])
    alone = low + width * float(inverse_kl_lower_bound(float(means[best]), 0.0, n, **given))
    return CertifiedDraws(
        n=n,
        estimate=estimate,
        lower=min(low + width * float(forms[INVERSE_KL][best]), estimate),
        kl=float(kl[best]),
        confidence=estimate - alone,
        forms={name: low + width * max(0.0, float(lowers.max())) for name, lowers in forms.items()},
        weights=weights[best],
    )
