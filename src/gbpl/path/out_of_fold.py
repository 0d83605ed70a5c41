"""The zeta path: out-of-fold welfare at each zeta, and the weights that follow from it (sections 4.2 and 9).

zeta is weighed by welfare, not by the surrogate loss: the loss has the term |t|^2 / (2 zeta) that favours large
zeta whatever the fit (Proposition on the decomposition), and what is left without it favours small zeta
(`select_by_reduced_loss`, for comparison). Out-of-fold welfare is noisy too; `average_weights` allows for
that by giving each zeta the probability that it is the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from gbpl.surrogates import Surrogate

__all__ = [
    "OutOfFold", "Selection", "ZetaPath", "average_weights", "common_size", "dropped_small", "pooled_contrasts",
    "select_by_reduced_loss", "select_weights",
]  # fmt: skip

DRAWS = 4000
LEAST_WEIGHT = 0.02
EARNED = 2 / 3  # probability that an optional model has the best entry, above which it counts; docs/design.md
LEAST_DOUBT = 0.25  # of the outcome model's estimates, as a share of the noise of the doubly robust ones
COLUMNS = (
    "zeta", "welfare", "welfare_se", "shortfall", "shortfall_se", "randomized_welfare", "penalized_welfare", "size",
    "weight", "correction",
)  # fmt: skip


class OutOfFold:
    """Adds up, in one pass over the rows, the welfare of each zeta's policy on rows its member did not train on."""

    SUMS = (
        "total", "total_squares", "rule", "rule_squares", "products", "randomized", "penalty", "spread", "reordered",
        "modelled",
    )  # fmt: skip

    def __init__(
        self,
        zetas: Float[np.ndarray, " zeta"],
        surrogate: Surrogate,
        correction: Float[np.ndarray, " zeta"] | None = None,
        *,
        model: Sequence[str] | None = None,
        optional: Bool[np.ndarray, " zeta"] | None = None,
        level: float = 0.0,
    ) -> None:
        """`level` is subtracted from the outcomes, so that a large common level costs no digits."""
        self.zetas, self.surrogate, self.level, self.model = zetas, surrogate, level, model
        count = len(zetas)
        self.optional = np.zeros(count, bool) if optional is None else optional
        self.correction = np.ones(count) if correction is None else correction
        self.total = self.total_squares = 0.0
        self.rule, self.rule_squares = np.zeros(count), np.zeros(count)
        self.products = np.zeros((count, count))
        self.randomized, self.penalty, self.spread = np.zeros(count), np.zeros(count), np.zeros(count)
        self.reordered, self.modelled = np.zeros(count), np.zeros(count)

    def add(
        self,
        policies: Float[np.ndarray, "zeta row action"],
        outcomes: Float[np.ndarray, "row action"],
        sample_weight: Float[np.ndarray, " row"] | None,
        modelled: Float[np.ndarray, "row action"] | None = None,
    ) -> None:
        """Policies of every zeta on some rows, with the outcomes, weights and modelled means of those rows."""
        weight = np.ones(len(outcomes)) if sample_weight is None else sample_weight
        rows = np.arange(len(outcomes))
        outcomes = outcomes - self.level
        advantages = self.surrogate.advantage(policies)
        chosen = deterministic(advantages)
        received = outcomes[rows, chosen].astype(np.float64)
        self.total += weight.sum()
        self.total_squares += (weight**2).sum()
        self.rule += received @ weight
        self.rule_squares += received @ weight**2
        self.products += (received * weight**2) @ received.T
        self.randomized += np.einsum("zra,ra,r->z", policies, outcomes, weight)
        scores = np.asarray(self.surrogate.scores_of_policy(policies), np.float64)
        self.penalty += np.sum(scores**2, axis=2) @ weight
        self.spread += np.sum(advantages**2, axis=2) @ weight
        self.reordered += self.surrogate.reordered(policies) @ weight
        if modelled is not None:
            self.modelled += modelled[rows, chosen] @ weight

    def fresh(self) -> OutOfFold:
        """The same path, before any row."""
        return OutOfFold(
            self.zetas, self.surrogate, self.correction, model=self.model, optional=self.optional, level=self.level
        )

    def __add__(self, other: OutOfFold) -> OutOfFold:
        """Both parts' rows together."""
        both = self.fresh()
        for name in self.SUMS:
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both

    def path(self) -> ZetaPath:
        """Means over the rows, and the covariance of the mean welfares, sum w^2 (v - V)(v - V)' / (sum w)^2."""
        welfare = self.rule / self.total
        cross = np.outer(self.rule_squares, welfare)
        covariance = self.products - cross - cross.T + self.total_squares * np.outer(welfare, welfare)
        covariance /= self.total**2
        best = int(np.argmax(welfare))
        difference = np.diag(covariance) + covariance[best, best] - 2.0 * covariance[best]
        randomized = self.randomized / self.total + self.level
        return ZetaPath(
            zeta=self.zetas,
            welfare=welfare + self.level,
            welfare_se=np.sqrt(np.maximum(np.diag(covariance), 0.0)),
            shortfall=welfare[best] - welfare,
            shortfall_se=np.sqrt(np.maximum(difference, 0.0)),
            randomized_welfare=randomized,
            penalized_welfare=randomized - self.surrogate.penalty_scale * self.zetas * self.penalty / self.total,
            size=np.sqrt(self.spread / self.total),
            covariance=covariance,
            weight=np.zeros(len(self.zetas)),
            correction=self.correction,
            model=self.model,
            optional=self.optional,
            reordered=self.reordered / self.total,
            modelled=self.modelled / self.total if np.any(self.modelled) else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ZetaPath:
    """One row per zeta, out of fold.

    `welfare` is that of the deterministic rule, with its standard error; `shortfall` is how far it is below the best,
    with the standard error of that paired difference; `randomized_welfare` and `penalized_welfare` are those of the
    randomized policy; `size` is the root mean square distance of the policy from uniform; `weight` is the weight of
    the zeta in the fitted policy; `correction` is the share of the doubly robust correction in the table it was
    fitted to (1 is the doubly robust table, 0 the outcome model's; 1 where there is no such choice).
    """

    zeta: Float[np.ndarray, " zeta"]
    welfare: Float[np.ndarray, " zeta"]
    welfare_se: Float[np.ndarray, " zeta"]
    shortfall: Float[np.ndarray, " zeta"]
    shortfall_se: Float[np.ndarray, " zeta"]
    randomized_welfare: Float[np.ndarray, " zeta"]
    penalized_welfare: Float[np.ndarray, " zeta"]
    size: Float[np.ndarray, " zeta"]
    weight: Float[np.ndarray, " zeta"]
    correction: Float[np.ndarray, " zeta"]
    covariance: Float[np.ndarray, "zeta zeta"]
    model: Sequence[str] | None = None
    modelled: Float[np.ndarray, " zeta"] | None = None
    reordered: Float[np.ndarray, " zeta"] | None = None
    optional: Bool[np.ndarray, " zeta"] | None = None

    @property
    def main_zeta(self) -> float:
        """The zeta with the largest weight."""
        return float(self.zeta[int(np.argmax(self.weight))])

    def to_dict(self) -> dict[str, Float[np.ndarray, " zeta"]]:
        """Columns by name, as `pandas.DataFrame` or `polars.DataFrame` take them."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        return columns if self.model is None else {"model": np.array(self.model), **columns}

    def __str__(self) -> str:
        columns = self.to_dict()
        lines = [" ".join(f"{name:>18}" for name in columns)]
        for row in zip(*columns.values(), strict=True):
            lines.append(" ".join(f"{v:>18}" if isinstance(v, str) else f"{v:18.5g}" for v in row))
        return "\n".join(lines)


Selection = Callable[[ZetaPath], "Float[np.ndarray, ' zeta']"]


def select_weights(path: ZetaPath) -> Float[np.ndarray, " zeta"]:
    """All weight on the zeta with the highest out-of-fold welfare; its corrections, if several, are averaged."""
    return _selected(path, path.welfare)


def select_by_reduced_loss(path: ZetaPath) -> Float[np.ndarray, " zeta"]:
    """All weight on the zeta with the least reduced loss (appendix G.3), which is that of most penalized welfare.

    The mean reduced loss is a constant of the rows less penalized welfare over `welfare_factor`. Any policy has more
    penalized welfare at a smaller zeta, and so has the best one: the choice is for a small zeta, whatever the welfare.
    """
    return _selected(path, path.penalized_welfare)


def _selected(path: ZetaPath, criterion: Float[np.ndarray, " zeta"]) -> Float[np.ndarray, " zeta"]:
    entries = np.flatnonzero(path.zeta == path.zeta[int(np.argmax(criterion))])
    weights = np.zeros(len(path.zeta))
    weights[entries] = _probability_best(path.welfare[entries], path.covariance[np.ix_(entries, entries)])
    return weights


def average_weights(path: ZetaPath) -> Float[np.ndarray, " zeta"]:
    """Probability that each zeta is the best, given the noise of out-of-fold welfare.

    The welfares are taken as jointly normal around their means with the covariance of the rows (the large-sample
    form of the Bayesian bootstrap), so zetas that make the same decisions share their weight.

    Entries of optional models count only if one of them is the best with probability above `EARNED`: a model that
    brings nothing would cost something everywhere, because weights follow noise.
    """
    every = np.arange(len(path.welfare))
    weights = _average_of(path, every)
    if path.optional is not None and 0.0 < weights[path.optional].sum() <= EARNED:
        weights = _average_of(path, every[~path.optional])
    return weights


def _average_of(path: ZetaPath, entries: Int[np.ndarray, " kept"]) -> Float[np.ndarray, " zeta"]:
    """The weights of some entries by themselves; zero for the others."""
    welfare, covariance = path.welfare[entries], path.covariance[np.ix_(entries, entries)]
    weights = np.zeros(len(path.welfare))
    if path.modelled is None:
        weights[entries] = _probability_best(welfare, covariance)
        return weights
    weights[entries] = _probability_best(*pooled_contrasts(welfare, covariance, path.modelled[entries]))
    return dropped_small(weights)


def dropped_small(weights: Float[np.ndarray, " entry"]) -> Float[np.ndarray, " entry"]:
    """Without the entries of at most 2 %: members of little weight cost as much to keep and to draw as others."""
    kept = np.where(weights > LEAST_WEIGHT, weights, 0.0)
    return kept / kept.sum()


def pooled_contrasts(
    welfare: Float[np.ndarray, " entry"], covariance: Float[np.ndarray, "entry entry"], modelled: np.ndarray
) -> tuple[Float[np.ndarray, " entry"], Float[np.ndarray, "entry entry"]]:
    """Contrasts of welfare between entries, from the doubly robust estimates and those of the outcome model.

    The first are unbiased and noisy, the second have hardly any noise and an unknown bias, here N(0, t^2) for each
    entry. t^2 is how much the two differ beyond the noise (empirical Bayes), and the posterior mean of the contrasts is

        m + t^2 (t^2 I + C)^{-1} (v - m),   with covariance   t^2 I - t^4 (t^2 I + C)^{-1}.
    """
    count = len(welfare)
    contrast = np.eye(count) - 1.0 / count
    v, m, noise = contrast @ welfare, contrast @ modelled, contrast @ covariance @ contrast
    level = float(np.trace(noise)) / max(count - 1, 1)
    doubt = max(float(np.sum((v - m) ** 2)) / max(count - 1, 1) - level, LEAST_DOUBT * level)
    if doubt <= 0.0:
        return welfare, covariance
    filtered = doubt * np.linalg.inv(doubt * np.eye(count) + noise)
    return m + filtered @ (v - m), doubt * (np.eye(count) - filtered)


def _probability_best(
    mean: Float[np.ndarray, " entry"], covariance: Float[np.ndarray, "entry entry"], *, seed: int = 0
) -> Float[np.ndarray, " entry"]:
    draws = _normal_draws(mean, covariance, DRAWS, seed)
    return np.bincount(np.argmax(draws, axis=1), minlength=len(mean)) / DRAWS


def _normal_draws(
    mean: Float[np.ndarray, " entry"], covariance: Float[np.ndarray, "entry entry"], draws: int, seed: int
) -> Float[np.ndarray, "draw entry"]:
    values, vectors = np.linalg.eigh(covariance)  # rounding may leave some a little below zero
    root = vectors * np.sqrt(np.maximum(values, 1e-9 * np.maximum(values.max(), 0.0) + 1e-30))
    return mean + np.random.default_rng(seed).standard_normal((draws, len(mean))) @ root.T


def common_size(path: ZetaPath) -> Float[np.ndarray, " zeta"]:
    """Multiplier of each zeta's deviation from uniform in the average: its weight, scaled to the mean size.

    Scores of different zetas differ in size; without this the small zetas would dominate the average.
    """
    mean = float(path.weight @ path.size)
    return np.where(path.size > 0, path.weight * mean / np.maximum(path.size, 1e-12), 0.0)
