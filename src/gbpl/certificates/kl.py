"""Kullback-Leibler divergence of a posterior from the prior: the price of choosing after looking (section 8)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from gbpl.posterior.problem import GaussianPosterior, MemberPosterior, PosteriorError

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["MonteCarlo", "curvature_kl", "gaussian_kl", "gibbs_kl", "monte_carlo_kl", "posterior_kl"]


def _half(log_det: float, trace: float, shift: float) -> float:
    """(log det M + tr(M^-1 - I) + |shift|^2) / 2, M the posterior's precision in units of the prior's."""
    return max(0.0, 0.5 * (log_det + trace + shift))  # below zero only by rounding


def _shift(mean: np.ndarray, prior_sd: float, prior_mean: float | Float[np.ndarray, "..."] = 0.0) -> float:
    if not 0.0 < prior_sd < math.inf:
        raise ValueError(f"prior_sd must be > 0 and finite, got {prior_sd}")
    return float(np.sum(((np.asarray(mean, np.float64) - prior_mean) / prior_sd) ** 2))


def gaussian_kl(
    mean: Float[np.ndarray, " weight"],
    covariance: Float[np.ndarray, "weight weight"] | Float[np.ndarray, " weight"],
    prior_sd: float,
    prior_mean: float | Float[np.ndarray, "..."] = 0.0,
) -> float:
    """KL(N(m, S) || N(m0, s^2 I)) = (tr S / s^2 + |m - m0|^2 / s^2 - p - log det(S / s^2)) / 2; S a matrix or diagonal.

    >>> gaussian_kl(np.array([1.0]), np.array([1.0]), 1.0)
    0.5
    """
    shift, ratio = _shift(mean, prior_sd, prior_mean), np.asarray(covariance, np.float64) / prior_sd**2
    if ratio.shape not in ((len(mean),), (len(mean), len(mean))):
        raise ValueError(f"covariance of {len(mean)} weights must be a matrix or its diagonal, got {ratio.shape}")
    if ratio.ndim == 1:
        sign, log_det = float(np.all(ratio > 0.0)), float(np.sum(np.log(np.abs(ratio)))) if ratio.all() else -math.inf
    else:
        sign, log_det = (float(part) for part in np.linalg.slogdet(ratio))
    if not (sign > 0.0 and math.isfinite(log_det)):
        raise ValueError("the covariance is not positive definite: a degenerate Gaussian has an infinite KL")
    trace = float(np.sum(ratio - 1.0) if ratio.ndim == 1 else np.sum(np.diag(ratio) - 1.0))
    return _half(-log_det, trace, shift)


def curvature_kl(
    mean: Float[np.ndarray, " weight"],
    eigenvalues: Float[np.ndarray, " rank"],
    prior_sd: float,
    prior_mean: float | Float[np.ndarray, "..."] = 0.0,
) -> float:
    """The same where the posterior's precision is I / s^2 plus a matrix of these eigenvalues, the rest zero (low rank).

    (sum_j log(1 + s^2 l_j) - s^2 l_j / (1 + s^2 l_j) + |m - m0|^2 / s^2) / 2: directions without curvature cost
    nothing.
    """
    scaled = prior_sd**2 * np.asarray(eigenvalues, np.float64)
    if not np.all(scaled >= 0.0):
        raise ValueError(f"eigenvalues must be >= 0, got {np.min(scaled) / prior_sd**2:g}")
    shift = _shift(mean, prior_sd, prior_mean)
    return _half(float(np.sum(np.log1p(scaled))), -float(np.sum(scaled / (1.0 + scaled))), shift)


def posterior_kl(part: MemberPosterior) -> float:
    """KL of a Gaussian posterior to its own prior N(0, prior_sd^2), in closed form, over the weights that it draws.

    For `last_layer`, `exact` and the variational family of that name the hidden layers are fixed: in a bound they must
    come from other rows. A committee is a mixture, whose KL is at most the weighted mean of its members'.
    """
    if isinstance(part, GaussianPosterior):
        return _half(*part.relative_precision(), _shift(part.mean, part.problem.prior_sd))
    raise PosteriorError(
        f"the {part.method!r} posterior is draws without a density, so its KL is not known; use method='last_layer', "
        "'laplace' or 'variational', gibbs_kl on losses of draws from posterior and prior, or policy.certificate, "
        "whose KL is exact for any draws"
    )


class MonteCarlo(NamedTuple):
    """An estimate and its Monte Carlo standard error."""

    estimate: float
    se: float


def monte_carlo_kl(log_ratio_draws: Float[np.ndarray, " draw"]) -> MonteCarlo:
    """Mean of log q(w) - log p(w) over draws w of q, both with their constants."""
    values = np.asarray(log_ratio_draws, np.float64)
    if values.ndim != 1 or len(values) < 2:
        raise ValueError(f"log_ratio_draws must be one number per draw, two or more, got shape {values.shape}")
    return MonteCarlo(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def gibbs_kl(
    losses_under_posterior: Float[np.ndarray, " draw"], losses_under_prior: Float[np.ndarray, " draw"], eta_n: float
) -> MonteCarlo:
    """KL of the generalized posterior dQ = exp(-eta n R_hat) dP / E_P exp(-eta n R_hat) to P, from draws of both.

    -E_Q[eta n R_hat] - log E_P exp(-eta n R_hat). The error is the delta method's: it is useful only while many
    draws of the prior contribute to the second mean, that is for a KL well below the log of their number.
    """
    q, p = (-eta_n * np.asarray(losses, np.float64) for losses in (losses_under_posterior, losses_under_prior))
    if min(q.size, p.size) < 2 or q.ndim != 1 or p.ndim != 1:
        raise ValueError(f"two draws or more of posterior and prior are needed, got shapes {q.shape} and {p.shape}")
    log_mean = float(logsumexp(p)) - math.log(len(p))
    relative = np.exp(p - log_mean)  # mean one
    variance = q.var(ddof=1) / len(q) + relative.var(ddof=1) / len(p)
    return MonteCarlo(float(q.mean()) - log_mean, math.sqrt(variance))
