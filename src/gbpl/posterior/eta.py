"""The loss scale eta from the data (section 4.5 and the calibration literature it names).

The Gaussian pseudo-likelihood of a member has variance zeta / eta around zeta times its score (section 4.4). Members of
different zeta see the same noise, so one number is calibrated for all of them, the `precision` eta / zeta; a
member's own eta is its zeta times that.

eta sets the spread of the posterior. The functions here set it to the spread that the fitted committee's welfare has
over samples of this size (`gbpl.posterior.influence`), each with its own estimate of that spread:

- `information_matching`: the sandwich formula at the fit (Lyddon, Holmes and Walker 2019);
- `refit_matching`: refits with random row weights (the same authors' bootstrap, and the calibration of Syring and
  Martin 2019, which asks at which eta the intervals of bootstrapped fits cover the welfare of the fit);
- `safe_bayes` estimates none; it minimises the loss of predicting the next rows (Gruenwald 2012).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.stats import norm, t

from gbpl.posterior.curvature import features, last_layer, require_curvature, require_last_layer, training_blocks
from gbpl.posterior.influence import WITHOUT_CURVATURE, committee_influence, estimated_outcomes, residuals
from gbpl.posterior.problem import PosteriorError, Problem
from gbpl.posterior.refits import Refits, refit
from gbpl.runtime.threads import one_thread

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.fitting.members import Member
    from gbpl.path.path import PathFit

__all__ = ["EtaChoice", "information_matching", "refit_matching", "safe_bayes"]

GRID = tuple(2.0 ** np.arange(-6, 7))  # of a curve, times the choice
SAFE_GRID = tuple(2.0 ** np.arange(-8, 6))  # in one over the variance of scaled outcomes
SAFE_BLOCKS = 10


@dataclass(frozen=True, slots=True, eq=False)
class EtaChoice:
    """A loss scale and how it was chosen.

    `precision` is eta / zeta, in one over squared outcome units; `eta` is that times `zeta`, the zeta with the largest
    weight. `curve` holds, for each eta of `grid`, the method's criterion: `what` says what that is, and `nominal` what
    it should be (None where the least is best). `spread` is the standard deviation of the committee's welfare over
    samples as the method estimates it, in outcome units (None for a method that does not).
    """

    method: str
    precision: float
    zeta: float
    grid: Float[np.ndarray, " eta"]
    curve: Float[np.ndarray, " eta"]
    what: str
    nominal: float | None = None
    spread: float | None = None
    refits: int = 0

    @property
    def eta(self) -> float:
        """Loss scale at the zeta with the largest weight."""
        return self.precision * self.zeta

    def __str__(self) -> str:
        spread = "" if self.spread is None else f"; welfare varies by {self.spread:.3g} over samples of this size"
        return f"eta {self.eta:.4g} at zeta {self.zeta:.4g} by {self.method.replace('_', ' ')}{spread}"

    __repr__ = __str__


def _coverage(ratio: Float[np.ndarray, "..."], level: float, freedom: float = np.inf) -> Float[np.ndarray, "..."]:
    """Coverage of an interval whose standard deviation is `ratio` times the true one."""
    return 2.0 * t.cdf(norm.ppf(0.5 + level / 2) * np.asarray(ratio), freedom) - 1.0


def _matched(
    method: str, fit: PathFit, unit_variance: float, variance: float, level: float, *, freedom: float = np.inf,
    refits: int = 0,
) -> EtaChoice:  # fmt: skip
    """The precision at which the posterior's spread is that of samples; wider where that spread is uncertain."""
    if not (variance > 0 and unit_variance > 0):
        raise PosteriorError(
            "the welfare of this fit does not depend on its data (every policy looks the same), so there is no spread "
            "to match; give eta a number"
        )
    quantile = 0.5 + level / 2
    precision = unit_variance / variance * (norm.ppf(quantile) / t.ppf(quantile, freedom)) ** 2
    zeta = fit.path.main_zeta
    grid = np.array(GRID) * precision
    ratio = np.sqrt(unit_variance / (grid * variance))
    return EtaChoice(
        method=method,
        precision=precision / fit.scale**2,
        zeta=zeta,
        grid=grid / fit.scale**2 * zeta,
        curve=_coverage(ratio, level, freedom),
        what=f"coverage of {100 * level:g} % intervals",
        nominal=level,
        spread=float(np.sqrt(variance / fit.thinning)) * fit.scale,
        refits=refits,
    )


def _checked_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}; try 0.9")


def information_matching(fit: PathFit, *, weights: str = "last_layer", level: float = 0.9) -> EtaChoice:
    """eta at which the posterior variance of welfare equals its sandwich variance (Lyddon, Holmes and Walker 2019).

    With g the gradient of welfare in the weights, H the curvature of the loss and S the covariance of its gradient,
    both summed over rows, eta = g' H^{-1} g / g' H^{-1} S H^{-1} g: information is matched along the one
    direction that changes welfare. `weights` are those of the last layer, or all of them (for at most 6,000 rows times
    scores). It needs no refits, and leaves out how they would vary: in hidden layers, stopping, zeta.
    """
    _checked_level(level)
    influence = committee_influence(fit, estimated_outcomes(fit), weights)
    return _matched("information_matching", fit, influence.unit_variance, influence.sandwich, level)


def refit_matching(
    fit: PathFit, *, refits: int | Refits | None = None, level: float = 0.9, bias: bool = False, seed: int = 0
) -> EtaChoice:
    """eta at which intervals cover at their level over bootstrap refits (Syring and Martin 2019).

    The posterior's variance is that of the last layer to first order, the refits' that of `refit`. With few refits
    theirs is uncertain, and Student's t allows for that at `level`.

    `bias=False` asks the intervals to cover the mean welfare of fits to such data. With `bias=True` the distance
    between the refits' mean and the fit counts as well, as in Syring and Martin: a little of what regularisation costs.
    """
    _checked_level(level)
    unit_variance = committee_influence(fit, estimated_outcomes(fit), "last_layer").unit_variance
    made = refits if isinstance(refits, Refits) else refit(fit, refits=refits, seed=seed)
    variance = made.variance + (made.bias**2 if bias else 0.0)
    return _matched("refit_matching", fit, unit_variance, variance, level, freedom=made.freedom, refits=made.count)


def safe_bayes(fit: PathFit, *, grid: Sequence[float] | None = None) -> EtaChoice:
    """eta with the least sequential loss, sum_i E_{w | rows before i} loss(w; z_i) (Gruenwald 2012, R-SafeBayes).

    The members at the zeta with the largest weight go once, in blocks, through the rows they stopped on: their hidden
    layers have not been fitted to these rows, the last layer starts from the prior, and the squashing is linearised
    around the fit. A row's loss counts its sample weight, here and in the posterior; weights have mean one. The curve
    is the mean of their losses. `grid` holds values of eta, per outcome unit.
    """
    require_curvature(fit.surrogate, "eta by SafeBayes", WITHOUT_CURVATURE)
    zeta = fit.path.main_zeta
    precisions = np.array(SAFE_GRID if grid is None else grid, float)
    if precisions.ndim != 1 or len(precisions) < 2 or not np.all(np.isfinite(precisions) & (precisions > 0)):
        raise ValueError(f"grid must hold two or more numbers > 0, got {grid!r}")
    if grid is not None:
        precisions = precisions / zeta * fit.scale**2
    totals, rows = np.zeros(len(precisions)), 0
    for problem, member in zip(fit.problems(), fit.members, strict=True):
        if not np.isclose(member.zeta * fit.scale, zeta):
            continue
        require_last_layer(problem.model, "eta by SafeBayes", WITHOUT_CURVATURE)
        basis, target, weights = _unseen(fit, problem, member)
        with one_thread():  # many small products
            totals += _sequential_loss(problem, basis, target, weights, precisions)
        rows += len(target)
    best = int(np.argmin(totals))
    return EtaChoice(
        method="safe_bayes",
        precision=float(precisions[best]) / fit.scale**2,
        zeta=zeta,
        grid=precisions / fit.scale**2 * zeta,
        curve=totals / rows,
        what="loss of predicting the next rows",
    )


def _unseen(
    fit: PathFit, problem: Problem, member: Member
) -> tuple[np.ndarray, np.ndarray, Float[np.ndarray, " row"] | None]:
    """Features and a one, targets and weights of rows that the features have not been fitted to.

    Those of a member that was solved with all rows are not fitted, or were grown without the row (`ForestFeatures`).
    """
    if len(member.validation) == 0:
        return (
            np.concatenate([part.basis[part.kept] for part in training_blocks(problem)]),
            problem.target,
            problem.weights,
        )
    target = fit.target[member.table * len(fit.x) + member.validation]
    basis = features(problem.params, fit.x[member.validation], model=problem.model)
    return basis, target, member.validation_weights


def _sequential_loss(
    problem: Problem, hidden: np.ndarray, target: np.ndarray, weights: np.ndarray | None,
    precisions: Float[np.ndarray, " eta"],
) -> Float[np.ndarray, " eta"]:  # fmt: skip
    """Weighted sum of expected losses, less the loss of score zero, at eta = precision times zeta."""
    counts = np.ones(len(target)) if weights is None else weights / np.mean(weights)
    last = last_layer(problem.params)
    jacobian, residual, inside = residuals(hidden, last, target, problem.zeta, surrogate=problem.surrogate)
    basis = np.asarray(hidden, np.float64)
    rows = np.einsum("nb,nsk->nsbk", basis, np.asarray(jacobian * inside[:, :, None], np.float64))
    rows = rows.reshape(rows.shape[0], rows.shape[1], -1)
    working = np.asarray(residual, np.float64) + problem.zeta * rows @ last.ravel()  # target of the linear score
    size = rows.shape[2]
    totals = np.zeros(len(precisions))
    for number, precision in enumerate(precisions):
        eta = precision * problem.zeta
        matrix, moment = np.eye(size) / problem.prior_sd**2, np.zeros(size)
        for block in np.array_split(np.arange(len(target)), min(SAFE_BLOCKS, len(target))):
            part = rows[block].reshape(-1, size)
            factor = scipy.linalg.cho_factor(matrix, lower=True)
            score = part @ scipy.linalg.cho_solve(factor, moment)
            spread = np.sum(scipy.linalg.solve_triangular(factor[0], part.T, lower=True) ** 2, axis=0)
            aim, weight = working[block].ravel(), np.repeat(counts[block], rows.shape[1])
            totals[number] += np.sum(weight * (0.5 * problem.zeta * (score**2 + spread) - aim * score))
            matrix += eta * problem.zeta * (part.T * weight) @ part
            moment += eta * part.T @ (weight * aim)
    return totals
