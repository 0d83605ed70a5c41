"""The loss scale eta from the data (section 4.5 and the calibration literature it names).

The Gaussian pseudo-likelihood of a member has variance zeta / eta around zeta times its score (section 4.4). Members of
different zeta see the same noise, so what is calibrated is one number for all of them, the `precision` eta / zeta; a
member's own eta is its zeta times that.

What eta can do is set the spread of the posterior. The functions here set it to the spread that the fitted committee's
welfare has over samples of this size, each by its own account of that spread:

- `information_matching`: the sandwich formula at the fit (Lyddon, Holmes and Walker 2019);
- `refit_matching`: refits with random row weights (the same authors' bootstrap, and the calibration of Syring and
  Martin 2019, which asks at which eta the intervals of bootstrapped fits cover the welfare of the fit);
- `safe_bayes`: none; it minimises the loss of predicting the next rows (Gruenwald 2012).

Welfare is that of the randomized policy on the training rows, with outcomes as the committee itself estimates them: the
rows' own outcomes have taken part in the fit, and their noise would drown the differences between refits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from scipy.stats import norm, t

from gbpl.fitting.apply import filled, member_policies, taken
from gbpl.posterior.bootstrap import bootstrap_members
from gbpl.posterior.laplace import jacobian_rows
from gbpl.posterior.last_layer import (
    block_rows,
    cholesky_root,
    features,
    gauss_newton,
    last_layer,
    require_last_layer,
    training_blocks,
)  # fmt: skip
from gbpl.posterior.problem import PosteriorError, Problem
from gbpl.runtime.devices import quick_jit
from gbpl.runtime.threads import few_threads, one_thread

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from gbpl.path.path import PathFit
    from gbpl.surrogates import Surrogate

__all__ = ["EtaChoice", "Refits", "information_matching", "refit", "refit_matching", "safe_bayes"]

GRID = tuple(2.0 ** np.arange(-6, 7))  # of a curve, times the choice
SAFE_GRID = tuple(2.0 ** np.arange(-8, 6))  # in one over the variance of scaled outcomes
SAFE_BLOCKS = 10
DUAL_LIMIT = 6_000  # training rows times scores for which all weights' n x n matrix is made
LEAST_SHARE = 0.25  # of the refits' variance that the committee's is taken to have at least


@dataclass(frozen=True, slots=True, eq=False)
class EtaChoice:
    """A loss scale and how it was found.

    `precision` is eta / zeta, in one over squared outcome units; `eta` is that times `zeta`, the zeta that counts most.
    `curve` holds, for each eta of `grid`, what the method judged by: `what` says what that is, and `nominal` what it
    should be (None where the least is wanted). `spread` is the standard deviation of the committee's welfare over
    samples as the method has it, in outcome units (None for a method without).
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
        """Loss scale at the zeta that counts most."""
        return self.precision * self.zeta

    def __str__(self) -> str:
        spread = "" if self.spread is None else f"; welfare varies by {self.spread:.3g} over samples of this size"
        return f"eta {self.eta:.4g} at zeta {self.zeta:.4g} by {self.method.replace('_', ' ')}{spread}"

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """How the committee's welfare answers to its rows: to unit noise of a posterior draw, and to their residuals."""

    push: Float[np.ndarray, "row score"]
    moved: Float[np.ndarray, " row"]

    @property
    def unit_variance(self) -> float:
        """Posterior variance of welfare at precision one: targets with independent noise of variance one."""
        return float(np.sum(self.push**2))

    @property
    def sandwich(self) -> float:
        """Variance of welfare over samples, by the residuals as they are."""
        return float(np.sum(self.moved**2))


def _residuals_of(raw: Array, target: Array, zeta: float, surrogate: Surrogate) -> tuple[Array, Array, Array]:
    """Jacobian of the scores in the raw outputs, residuals, and which are within the robust loss's threshold.

    Residuals beyond the threshold are cut off at it.
    """
    jacobian = jax.vmap(jax.jacfwd(lambda row: surrogate.scores(row[None])[0]))(raw)
    residual = target - zeta * surrogate.scores(raw)
    return jacobian, jnp.clip(residual, -surrogate.huber, surrogate.huber), jnp.abs(residual) <= surrogate.huber


def _gradient_of(raw: Array, outcomes: Array, surrogate: Surrogate) -> tuple[Array, Array]:
    """Of sum_a delta_a Y(a), in the raw outputs and in the scores."""
    scores, by_raw = jax.vjp(surrogate.scores, raw)
    _, pull = jax.vjp(surrogate.policy, scores)
    (by_score,) = pull(outcomes)
    return by_raw(by_score)[0], by_score


@partial(quick_jit, static_argnames="surrogate")
def _residuals(
    basis: Array, last: Array, target: Array, zeta: float, *, surrogate: Surrogate
) -> tuple[Array, Array, Array]:
    return _residuals_of(basis @ last, target, zeta, surrogate)


@partial(quick_jit, static_argnames="surrogate")
def _gradient(basis: Array, last: Array, outcomes: Array, *, surrogate: Surrogate) -> tuple[Array, Array]:
    return _gradient_of(basis @ last, outcomes, surrogate)


def estimated_outcomes(fit: PathFit) -> Float[np.ndarray, "row action"]:
    """Outcomes of each row's actions, up to a constant of the row, as the committee's scores have them.

    Of the members of largest zeta: theirs are cut off last (a gap is at most zeta in size). In scaled units.
    """
    zetas = np.array([member.zeta for member in fit.members])
    largest = np.flatnonzero(zetas == zetas.max())
    policy = member_policies(fit.model, fit.surrogate, taken(fit.params, largest), fit.x).mean(axis=0)
    table = np.asarray(fit.surrogate.outcomes(fit.surrogate.scores_of_policy(policy), zetas.max()))
    return table - table.mean(axis=1, keepdims=True)


def _last_layer_answer(problem: Problem, outcomes: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Answer to a change of the targets, residuals and which are within the threshold; welfare on the rows `x`."""
    last = last_layer(problem.params)
    gradient = np.zeros(last.shape)
    size = block_rows(len(problem))  # as below, so that features are compiled once
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        basis = features(problem.params, filled(x[rows], size), model=problem.model)
        by_raw, _ = _gradient(basis, last, filled(outcomes[rows], size), surrogate=problem.surrogate)
        gradient += np.asarray(basis, np.float64).T @ np.asarray(by_raw, np.float64)
    curvature = gauss_newton(problem)
    curvature[np.diag_indices_from(curvature)] += 1.0 / (problem.prior_sd**2 * problem.eta)
    with few_threads(len(curvature)):
        root = cholesky_root(curvature), True
        answer = scipy.linalg.cho_solve(root, gradient.ravel() / len(x)).reshape(last.shape)
    push, residual = np.empty(problem.target.shape), np.empty(problem.target.shape)
    inside = np.empty(problem.target.shape, bool)
    for block in training_blocks(problem):
        found = _residuals(block.basis, last, block.target, problem.zeta, surrogate=problem.surrogate)
        jacobian, residual[block.rows], inside[block.rows] = (np.asarray(part)[block.kept] for part in found)
        basis = np.asarray(block.basis, np.float64)[block.kept]
        push[block.rows] = np.einsum("nsk,nk->ns", jacobian, basis @ answer)
    return push, residual, inside


def _all_weights_answer(problem: Problem, outcomes: np.ndarray) -> tuple[np.ndarray, ...]:
    """The same for all weights, welfare on the problem's own rows: K (K + I / (prior_sd^2 eta))^{-1} b, K = J~ J~'."""
    size = problem.target.size
    if size > DUAL_LIMIT:
        raise PosteriorError(
            f"information matching over all weights makes a matrix of order {size} (rows times scores), more than "
            f"{DUAL_LIMIT}; use weights='last_layer'"
        )
    if problem.surrogate.huber < np.inf:
        raise PosteriorError(
            "information matching over all weights is for the squared loss, and this one is robust; use "
            "weights='last_layer'"
        )
    rows = jacobian_rows(replace(problem, eta=1.0))
    raw = problem.model.apply(problem.params, jnp.asarray(problem.x))
    _, residual, inside = _residuals_of(raw, jnp.asarray(problem.target), problem.zeta, problem.surrogate)
    _, by_score = _gradient_of(raw, jnp.asarray(outcomes), problem.surrogate)
    weight = np.ones(len(problem)) if problem.weights is None else np.asarray(problem.weights, np.float64)
    root = np.sqrt(weight * problem.zeta)[:, None]
    wanted = (np.asarray(by_score, np.float64) / root / len(problem)).ravel()
    gram = np.asarray(rows @ rows.T, np.float64)
    shifted = gram + np.eye(size) / (problem.prior_sd**2 * problem.eta)
    push = gram @ scipy.linalg.solve(shifted, wanted, assume_a="pos")
    return push.reshape(problem.target.shape) / root, np.asarray(residual), np.asarray(inside)


def _answer(fit: PathFit, outcomes: np.ndarray, weights: str) -> _Answer:
    """The committee's answer: its members' added up, row by row, each with what it counts in the policy."""
    if weights not in ("last_layer", "all"):
        raise ValueError(f"weights must be 'last_layer' or 'all', got {weights!r}")
    scores = fit.target.shape[1]
    push, moved = np.zeros((len(fit.x), scores)), np.zeros(len(fit.x))
    for problem, member, counted in zip(fit.problems(), fit.members, fit.policy_weights, strict=True):
        require_last_layer(problem.model, "information matching")
        if weights == "all":
            own, residual, inside = _all_weights_answer(problem, outcomes[member.train])
        else:
            own, residual, inside = _last_layer_answer(problem, outcomes, fit.x)
        weight = np.ones(len(problem)) if problem.weights is None else problem.weights
        push[member.train] += counted * own * inside * np.sqrt(weight)[:, None]  # no curvature beyond, no noise
        moved[member.train] += counted * np.sum(own * residual, axis=1) * weight
    return _Answer(push, moved)


def _coverage(ratio: Float[np.ndarray, "..."], level: float, freedom: float = np.inf) -> Float[np.ndarray, "..."]:
    """Coverage of an interval whose standard deviation is `ratio` times the true one."""
    return 2.0 * t.cdf(norm.ppf(0.5 + level / 2) * np.asarray(ratio), freedom) - 1.0


def _matched(
    method: str, fit: PathFit, unit_variance: float, variance: float, level: float, *, freedom: float = np.inf,
    refits: int = 0,
) -> EtaChoice:  # fmt: skip
    """The precision at which the posterior's spread is that of samples; wider where that spread is a rough guess."""
    if not (variance > 0 and unit_variance > 0):
        raise PosteriorError(
            "the welfare of this fit does not answer to its data (every policy looks the same), so there is no spread "
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
    """eta at which the posterior variance of welfare is its sandwich variance (Lyddon, Holmes and Walker 2019).

    With g the gradient of welfare in the weights, H the curvature of the loss and S the covariance of its gradient,
    both summed over rows, eta = g' H^{-1} g / g' H^{-1} S H^{-1} g: the matching of information along the one
    direction that moves welfare. `weights` are those of the last layer, or all of them (for at most 6,000 rows times
    scores). Costs no fit. It knows of no variation in what a refit would learn: hidden layers, stopping, zeta.
    """
    _checked_level(level)
    answer = _answer(fit, estimated_outcomes(fit), weights)
    return _matched("information_matching", fit, answer.unit_variance, answer.sandwich, level)


@dataclass(frozen=True, slots=True, eq=False)
class Refits:
    """What refits say of the committee's welfare, in scaled units: its variance over samples, and the refits' bias.

    `freedom` are the degrees of freedom of the variance, `count` the number of refits.
    """

    variance: float
    bias: float
    freedom: int
    count: int


def refit(fit: PathFit, *, refits: int | None = None, seed: int = 0) -> Refits:
    """Fit members again with exponential row weights and new seeds, as one stack, and compare their welfare.

    `refits` in all (None: as many as the fit had members), dealt to the members by their shares. Refits of single
    members vary more than the committee, which averages over folds and seeds: with S^2 the refits' variance and B^2 the
    variance between the committee's own members, both within a zeta and in the common size of the policy, the
    committee's is S^2 - (1 - sum share^2) B^2.
    """
    count = max(2, len(fit.every)) if refits is None else refits
    if count < 2:
        raise ValueError(f"refits must be >= 2, got {refits}; leave it out for as many as the fit had members")
    outcomes = estimated_outcomes(fit)
    copies, owners = [], []
    for number, (member, dealt) in enumerate(zip(fit.members, _deal(fit.shares, count), strict=True)):
        copies += bootstrap_members(member, dealt, seed=seed)
        owners += [number] * dealt
    stack = fit.fit_again(copies)
    size = fit.policy_weights / fit.shares  # brings every zeta's policy to the committee's size
    own = _welfares(fit, fit.params, len(fit.members), outcomes) * size
    again = _welfares(fit, stack.params, len(copies), outcomes) * size[owners]
    entry = np.array([member.entry for member in fit.members])
    refit_variance, freedom = _within(again, entry[owners])
    member_variance, _ = _within(own, entry)
    variance = refit_variance - (1.0 - np.sum(fit.shares**2)) * member_variance
    return Refits(
        variance=max(float(variance), LEAST_SHARE * refit_variance),
        bias=float(np.mean(again - own[owners])),
        freedom=freedom,
        count=count,
    )


def refit_matching(
    fit: PathFit, *, refits: int | Refits | None = None, level: float = 0.9, bias: bool = False, seed: int = 0
) -> EtaChoice:
    """eta at which intervals cover at their level over bootstrap refits (Syring and Martin 2019).

    The posterior's variance is that of the last layer's linear answer, the refits' that of `refit`. With few refits
    theirs is a rough guess, and Student's t makes up for it at `level`.

    `bias=False` asks the intervals to cover what fits to such data are worth on average. With `bias=True` the distance
    between the refits' mean and the fit counts as well, as in Syring and Martin: a little of what regularisation costs.
    """
    _checked_level(level)
    found = refits if isinstance(refits, Refits) else refit(fit, refits=refits, seed=seed)
    variance = found.variance + (found.bias**2 if bias else 0.0)
    answer = _answer(fit, estimated_outcomes(fit), "last_layer")
    return _matched(
        "refit_matching", fit, answer.unit_variance, variance, level, freedom=found.freedom, refits=found.count
    )


def _deal(shares: Float[np.ndarray, " member"], count: int) -> list[int]:
    """`count` refits by shares, largest remainders first; members of small share may get none."""
    exact = shares / shares.sum() * count
    dealt = np.floor(exact + 1e-9).astype(int)
    order = np.argsort(-(exact - dealt), kind="stable")
    dealt[order[: count - dealt.sum()]] += 1
    return [int(number) for number in dealt]


def _welfares(
    fit: PathFit, params: Any, count: int, outcomes: Float[np.ndarray, "row action"]
) -> Float[np.ndarray, " member"]:
    """Welfare of each member's randomized policy on the training rows, given their outcomes up to a row's constant."""
    totals = []
    for start in range(0, count, 8):
        part = taken(params, range(start, min(start + 8, count)))
        policies = member_policies(fit.model, fit.surrogate, part, fit.x)
        totals.append(np.einsum("mra,ra->m", policies, outcomes, dtype=np.float64) / len(fit.x))
    return np.concatenate(totals)


def _within(values: np.ndarray, group: np.ndarray) -> tuple[float, int]:
    """Variance within groups, pooled, and its degrees of freedom."""
    freedom = len(values) - len(np.unique(group))
    if len(values) < 2:
        return 0.0, 0
    if freedom < 1:
        return float(np.var(values, ddof=1)), len(values) - 1
    means = np.bincount(group, values) / np.maximum(np.bincount(group), 1)
    return float(np.sum((values - means[group]) ** 2) / freedom), freedom


def safe_bayes(fit: PathFit, *, grid: Sequence[float] | None = None) -> EtaChoice:
    """eta of least sequential loss, sum_i E_{w | rows before i} loss(w; z_i) (Gruenwald 2012, R-SafeBayes).

    The members of the zeta that counts most go once, in blocks, through the rows they stopped on: hidden layers that
    have not been fitted to these rows, a last layer that starts from the prior, the squashing taken as linear around
    the fit. Their sum is the curve. `grid` holds values of eta, per outcome unit.
    """
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
        require_last_layer(problem.model, "SafeBayes")
        held = member.validation
        target = fit.target[member.table * len(fit.x) + held]
        with one_thread():  # many small products
            totals += _sequential_loss(problem, fit.x[held], target, precisions)
        rows += len(held)
    best = int(np.argmin(totals))
    return EtaChoice(
        method="safe_bayes",
        precision=float(precisions[best]) / fit.scale**2,
        zeta=zeta,
        grid=precisions / fit.scale**2 * zeta,
        curve=totals / rows,
        what="loss of predicting the next rows",
    )


def _sequential_loss(
    problem: Problem, x: np.ndarray, target: np.ndarray, precisions: Float[np.ndarray, " eta"]
) -> Float[np.ndarray, " eta"]:
    """Sum of expected losses, less the loss of score zero, at eta = precision times zeta."""
    last, found = last_layer(problem.params), features(problem.params, x, model=problem.model)
    jacobian, residual, inside = _residuals(found, last, target, problem.zeta, surrogate=problem.surrogate)
    basis = np.asarray(found, np.float64)
    rows = np.einsum("nb,nsk->nsbk", basis, np.asarray(jacobian * inside[:, :, None], np.float64))
    rows = rows.reshape(rows.shape[0], rows.shape[1], -1)
    working = np.asarray(residual, np.float64) + problem.zeta * rows @ last.ravel()  # target of the linear score
    size = rows.shape[2]
    totals = np.zeros(len(precisions))
    for number, precision in enumerate(precisions):
        eta = precision * problem.zeta
        matrix, moment = np.eye(size) / problem.prior_sd**2, np.zeros(size)
        for block in np.array_split(np.arange(len(x)), min(SAFE_BLOCKS, len(x))):
            part = rows[block].reshape(-1, size)
            factor = scipy.linalg.cho_factor(matrix, lower=True)
            score = part @ scipy.linalg.cho_solve(factor, moment)
            spread = np.sum(scipy.linalg.solve_triangular(factor[0], part.T, lower=True) ** 2, axis=0)
            aim = working[block].ravel()
            totals[number] += np.sum(0.5 * problem.zeta * (score**2 + spread) - aim * score)
            matrix += eta * problem.zeta * part.T @ part
            moment += eta * part.T @ aim
    return totals
