"""The paper's theorem on the paper's objects: a Gibbs posterior over all weights, its prior, and the loss (section 8).

The posterior Q is that of a committee's networks at one zeta, each approximated by a Gaussian over all its weights, and
the prior N(0, prior_sd^2 I). The theorem holds for every Q, so the approximation costs tightness, not validity; the KL
of the mixture is at most the weighted mean of its members'. The number is given even where it is vacuous.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.certificates.bounds import (
    Moments,
    pac_bayes_interval,
    pac_bayes_rates,
    penalized_regret_bound,
    penalty_range,
    welfare_regret_bound,
)
from gbpl.certificates.certificate import short
from gbpl.certificates.kl import MonteCarlo, posterior_kl
from gbpl.posterior.methods import member_posterior
from gbpl.posterior.problem import GaussianPosterior, PosteriorError, Problem, flatten

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["RiskBound", "risk_bound"]

CAVEAT = "features are standardised and outcomes scaled by these rows, which the theorem takes as given"
DRAWS_AT_A_TIME = 32


@dataclass(frozen=True, slots=True, eq=False)
class RiskBound:
    """The two-sided theorem for the posterior's surrogate risk, and what follows for welfare.

    With probability 1 - failure_probability, |E_Q R - `risk`| <= the sum of `terms` beside the risk itself:
    KL / (t n), log(2 / rho) / (t n) and t v / 2 at the `rate` t; rates of a grid share the probability. `risk` is a
    Monte Carlo mean over draws of Q, with its error. `coin_flip` is the risk of deciding at random on the same rows.
    `gain` and `welfare_gain` bound W and V of the posterior above those of the coin flip from below, by the theorem on
    the difference of their losses. `regret` and `welfare_regret` bound how far W and V are below the best in the class,
    whose risk on the rows is at least that of the best score of each row by itself.
    """

    n: int
    zeta: float
    kl: float
    rate: float
    risk: MonteCarlo
    low: float
    high: float
    terms: Mapping[str, float]
    coin_flip: float
    gain: float | None
    welfare_gain: float | None
    regret: float
    welfare_regret: float
    moments: Moments
    failure_probability: float
    caveats: tuple[str, ...]

    @property
    def vacuous(self) -> bool:
        """Whether deciding at random is not shown to be worse."""
        return self.high >= self.coin_flip if self.gain is None else self.gain <= 0.0

    def __str__(self) -> str:
        total = sum(self.terms.values())
        shares = ", ".join(f"{name} {short(part)} ({part / total:.0%})" for name, part in self.terms.items())
        over = "" if self.gain is None else (
            f"\nOver a coin flip: penalised welfare {short(self.gain)} or more, welfare "
            f"{short(self.welfare_gain or 0.0)} or more."
        )  # fmt: skip
        certain = "" if self.moments.certified else " (constants estimated: a guide, not a guarantee)"
        lines = [
            f"With probability at least {1.0 - self.failure_probability:.4g}{certain}, the posterior's surrogate risk "
            f"is between {short(self.low)} and {short(self.high)} (zeta {self.zeta:.3g}, {self.n} rows, rate "
            f"{self.rate:.3g}); a coin flip has {short(self.coin_flip)} on these rows.",
            f"The upper end is the sum of {shares}; KL {self.kl:.4g}.{over}",
            f"Below the best in the class: penalised welfare by {short(self.regret)} at most, welfare by "
            f"{short(self.welfare_regret)} at most.",
        ]
        return "\n".join([*lines, *(f"Note: {caveat}." for caveat in self.caveats)])

    __repr__ = __str__


def risk_bound(
    problems: list[tuple[Problem, float]], x: Float[np.ndarray, "row feature"], target: Float[np.ndarray, "row score"],
    *, scale: float, outcome_range: tuple[float, float] | None, moments: Moments | None, rate: float | None,
    failure_probability: float, method: str, draws: int, seed: int, options: Mapping[str, Any],
) -> RiskBound:  # fmt: skip
    """The theorem for a mixture of members of one zeta, each with its share, on all rows; outcomes in units of `scale`.

    `moments` are those of the loss in units of the outcomes; without them an `outcome_range` bounds it.
    """
    first, n = problems[0][0], len(x)
    surrogate, zeta = first.surrogate, first.zeta * scale
    if moments is None:
        if outcome_range is None:
            raise ValueError(
                "the theorem needs outcome_range, or moments of the loss (bounds.Moments), known in advance"
            )
        moments = Moments.bounded(*surrogate.loss_range(outcome_range, zeta))
    parts = [(_over_all_weights(method, problem, options), share) for problem, share in problems]
    kl = float(sum(share * posterior_kl(part) for part, share in parts))
    # Losses of outcomes over s at zeta' are those of the outcomes at zeta' s, over s: back in units of the outcomes.
    coin = surrogate.scores_of_policy(np.full((1, surrogate.n_actions), 1.0 / surrogate.n_actions, np.float32))
    flipped = scale * np.asarray(surrogate.loss(coin, target, first.zeta), np.float64)
    risks = np.concatenate(
        [_risks(part, share, x, target, draws, seed + place) for place, (part, share) in enumerate(parts)]
    )
    weight = np.concatenate([np.full(_count(share, draws), share / _count(share, draws)) for _, share in parts])
    mean = scale * float(weight @ risks)
    error = scale * math.sqrt(float(np.sum(weight**2 * (risks - risks.mean()) ** 2)))
    rates = pac_bayes_rates(n, moments) if rate is None else np.array([rate])
    share_ = failure_probability / len(rates)
    given: dict[str, Any] = {"moments": moments, "failure_probability": share_}
    best = min(rates.tolist(), key=lambda t: float(np.asarray(pac_bayes_interval(mean, kl, n, rate=t, **given)[1])))
    low, high = (float(np.asarray(end)) for end in pac_bayes_interval(mean, kl, n, rate=best, **given))
    terms = {
        "empirical risk": mean, "KL": kl / (best * n), "confidence": math.log(2.0 / share_) / (best * n),
        "variance": best * moments.variance_proxy / 2.0,
    }  # fmt: skip
    gain, welfare_gain = _over_coin(
        mean - float(flipped.mean()), kl, n, surrogate, zeta, coin, outcome_range, failure_probability
    )
    least = scale * float(np.mean(_least(surrogate, target, first.zeta)))
    regret = float(np.asarray(penalized_regret_bound(high, least - (high - mean - kl / (best * n)), surrogate)))
    return RiskBound(
        n, zeta, kl, best, MonteCarlo(mean, error), low, high, terms, float(flipped.mean()), gain, welfare_gain, regret,
        float(np.asarray(welfare_regret_bound(regret, zeta, surrogate))), moments, failure_probability, (CAVEAT,),
    )  # fmt: skip


def _over_all_weights(method: str, problem: Problem, options: Mapping[str, Any]) -> GaussianPosterior:
    part = member_posterior(method, problem, **options)
    whole = isinstance(part, GaussianPosterior) and len(part.mean) == len(flatten(problem.params)[0])
    if not whole or not isinstance(part, GaussianPosterior):
        raise PosteriorError(
            f"the {method!r} posterior of {type(problem.model).__name__} does not draw every weight from a Gaussian: "
            "what it keeps was learned from the same rows, and the theorem needs a prior that was not; use "
            "method='laplace' with a network or a linear score, or policy.certificate"
        )
    return part


def _count(share: float, draws: int) -> int:
    return max(2, math.ceil(share * draws))


def _risks(
    part: GaussianPosterior, share: float, x: np.ndarray, target: np.ndarray, draws: int, seed: int
) -> Float[np.ndarray, " draw"]:
    """Mean loss of each draw over the rows, in units of the scaled outcomes."""
    problem = part.problem

    @jax.jit
    def losses(params: Any) -> Float[Array, " draw"]:
        scores = problem.surrogate.scores(part.raw(params, jnp.asarray(x)))
        return jax.vmap(lambda s: problem.surrogate.loss(s, target, problem.zeta).mean())(scores)

    drawn, count = part.sample(_count(share, draws), seed=seed), _count(share, draws)
    chunks = [slice(start, start + DRAWS_AT_A_TIME) for start in range(0, count, DRAWS_AT_A_TIME)]
    parts = [losses(jax.tree.map(lambda leaf, c=chunk: leaf[c], drawn)) for chunk in chunks]
    return np.concatenate([np.asarray(each, np.float64) for each in parts])


def _least(surrogate: Any, target: np.ndarray, zeta: float) -> Float[np.ndarray, " row"]:
    """The loss of each row at the best policy for it alone: that of the projection of its target."""
    policy = surrogate.population_policy(surrogate.outcomes(jnp.asarray(target) / zeta, zeta), zeta)
    return np.asarray(surrogate.loss(surrogate.scores_of_policy(policy), target, zeta), np.float64)


def _over_coin(
    risk: float, kl: float, n: int, surrogate: Any, zeta: float, coin: Any, outcome_range: tuple[float, float] | None,
    failure_probability: float,
) -> tuple[float | None, float | None]:  # fmt: skip
    """W and V above those of a coin flip, by the theorem on loss(theta) - loss(coin): no range grows as 1 / zeta.

    It is (V(coin) - V) / factor + penalty (|s|^2 - |s_coin|^2) for a row, and W - W(coin) = -factor E of it; the
    penalty is zeta / 2 of a squared loss.
    """
    if outcome_range is None or surrogate.huber != math.inf:
        return None, None
    own, (low, high) = float(np.sum(np.asarray(coin, np.float64) ** 2)), penalty_range(surrogate)
    width, factor = (outcome_range[1] - outcome_range[0]) / surrogate.welfare_factor, surrogate.welfare_factor
    penalty = surrogate.penalty_scale * zeta / factor
    moments = Moments.bounded(-width + penalty * (low - own), width + penalty * (high - own))
    rates = pac_bayes_rates(n, moments)
    share, best = failure_probability / len(rates), math.inf
    for rate in rates.tolist():
        reach = (kl - math.log(share)) / (rate * n) + rate * moments.variance_proxy / 2.0
        best = min(best, risk + reach)
    return -factor * best, -factor * best + surrogate.penalty_scale * zeta * (low - own)
