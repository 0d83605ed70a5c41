"""How much each row moves the welfare of a fitted committee, which decides eta (section 4.5).

Welfare is that of the randomized policy on the training rows, with outcomes as the committee itself estimates them: the
rows' own outcomes were used in the fit, and their noise would drown the differences between refits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gbpl.fitting.apply import filled, member_policies, taken
from gbpl.models.base import GrownModel, LastLayerModel, ScoreModel
from gbpl.posterior.curvature import (
    block_rows,
    features,
    last_layer,
    require_curvature,
    require_last_layer,
    training_blocks,
)
from gbpl.posterior.laplace import jacobian_rows
from gbpl.posterior.precision import last_layer_precision
from gbpl.posterior.problem import PosteriorError, Problem
from gbpl.runtime.devices import quick_jit

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from gbpl.path.path import PathFit
    from gbpl.surrogates import Surrogate

__all__ = ["WITHOUT_CURVATURE", "Influence", "committee_influence", "estimated_outcomes", "residuals"]

WITHOUT_CURVATURE = "give eta a number, or use posterior('bootstrap'), whose spread does not depend on eta"
DUAL_LIMIT = 6_000  # training rows times scores for which all weights' n x n matrix is made


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """Influence of each row on the committee's welfare: of unit noise in its targets, and of its residuals."""

    push: Float[np.ndarray, "row score"]
    moved: Float[np.ndarray, " row"]

    @property
    def unit_variance(self) -> float:
        """Posterior variance of welfare at precision one: targets with independent noise of variance one."""
        return float(np.sum(self.push**2))

    @property
    def sandwich(self) -> float:
        """Variance of welfare over samples, by the actual residuals."""
        return float(np.sum(self.moved**2))


def _residuals_of(raw: Array, target: Array, zeta: float, surrogate: Surrogate) -> tuple[Array, Array, Array]:
    """Jacobian of the scores in the raw outputs, residuals, and which are within the robust loss's threshold.

    Residuals beyond the threshold are cut off at it.
    """
    jacobian = jax.vmap(jax.jacfwd(lambda row: surrogate.scores(row[None])[0]))(raw)
    residual = target - zeta * surrogate.scores(raw)
    return jacobian, jnp.clip(residual, -surrogate.huber, surrogate.huber), jnp.abs(residual) <= surrogate.huber


def _gradient_of(raw: Array, outcomes: Array, surrogate: Surrogate) -> tuple[Array, Array]:
    """Gradient of sum_a delta_a Y(a), in the raw outputs and in the scores."""
    scores, by_raw = jax.vjp(surrogate.scores, raw)
    _, pull = jax.vjp(surrogate.policy, scores)
    (by_score,) = pull(outcomes)
    return by_raw(by_score)[0], by_score


@partial(quick_jit, static_argnames="surrogate")
def residuals(
    basis: Array, last: Array, target: Array, zeta: float, *, surrogate: Surrogate
) -> tuple[Array, Array, Array]:
    """`_residuals_of` for a last layer and its features."""
    return _residuals_of(basis @ last, target, zeta, surrogate)


@partial(quick_jit, static_argnames="surrogate")
def _gradient(basis: Array, last: Array, outcomes: Array, *, surrogate: Surrogate) -> tuple[Array, Array]:
    return _gradient_of(basis @ last, outcomes, surrogate)


def estimated_outcomes(fit: PathFit) -> Float[np.ndarray, "row action"]:
    """Outcomes of each row's actions, up to a constant of the row, as the committee's scores estimate them.

    They come from the members with the largest zeta, which cut them off last (a gap is at most zeta in size). In scaled
    units.
    """
    zetas = np.array([member.zeta for member in fit.members])
    largest = np.flatnonzero(zetas == zetas.max())
    policy = member_policies(fit.model, fit.surrogate, taken(fit.params, largest), fit.x).mean(axis=0)
    outcomes = np.asarray(fit.surrogate.outcomes(fit.surrogate.scores_of_policy(policy), zetas.max()))
    return outcomes - outcomes.mean(axis=1, keepdims=True)


def _last_layer_influence(problem: Problem, outcomes: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Influence of the targets, residuals and which are within the threshold; welfare is that on the rows `x`."""
    last = last_layer(problem.params)
    gradient = np.zeros(last.shape)
    size = block_rows(len(problem))  # as below, so that features are compiled once
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        basis = features(problem.params, filled(x[rows], size), model=problem.model)
        by_raw, _ = _gradient(basis, last, filled(outcomes[rows], size), surrogate=problem.surrogate)
        gradient += np.asarray(basis, np.float64).T @ np.asarray(by_raw, np.float64)
    precision = last_layer_precision(problem, scale=1.0, prior=1.0 / (problem.prior_sd**2 * problem.eta))
    solved = precision.solve(gradient.reshape(-1, 1) / len(x)).reshape(last.shape)
    push, residual = np.empty(problem.target.shape), np.empty(problem.target.shape)
    inside = np.empty(problem.target.shape, bool)
    for block in training_blocks(problem):
        parts = residuals(block.basis, last, block.target, problem.zeta, surrogate=problem.surrogate)
        jacobian, residual[block.rows], inside[block.rows] = (np.asarray(part)[block.kept] for part in parts)
        basis = np.asarray(block.basis, np.float64)[block.kept]
        push[block.rows] = np.einsum("nsk,nk->ns", jacobian, basis @ solved)
    return push, residual, inside


def _all_weights_influence(problem: Problem, outcomes: np.ndarray) -> tuple[np.ndarray, ...]:
    """For all weights, welfare on the problem's own rows: K (K + I / (prior_sd^2 eta))^{-1} b, K = J~ J~'."""
    size = problem.target.size
    if size > DUAL_LIMIT:
        raise PosteriorError(
            f"information matching over all weights makes a matrix of order {size} (rows times scores), more than "
            f"{DUAL_LIMIT}; use weights='last_layer'"
        )
    if problem.surrogate.huber < np.inf:
        raise PosteriorError(
            "information matching over all weights needs the squared loss, and this one is robust; use "
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


def _check_model(model: ScoreModel, weights: str) -> None:
    """Refuse models without the weights that are asked for."""
    grown = isinstance(model, GrownModel) and not isinstance(model, LastLayerModel)
    instead = WITHOUT_CURVATURE if grown else f"use weights='all' of information matching, or {WITHOUT_CURVATURE}"
    if weights == "last_layer":
        require_last_layer(model, "matching eta to the spread of welfare", instead)
    elif grown:
        raise PosteriorError(
            f"{type(model).__name__} has no weights that a gradient moves, so no eta to match by; {instead}"
        )


def committee_influence(fit: PathFit, outcomes: np.ndarray, weights: str) -> Influence:
    """The members' influences added up, row by row, each with its weight in the policy."""
    if weights not in ("last_layer", "all"):
        raise ValueError(f"weights must be 'last_layer' or 'all', got {weights!r}")
    require_curvature(fit.surrogate, "matching eta to the spread of welfare", WITHOUT_CURVATURE)
    for problem in fit.problems():
        _check_model(problem.model, weights)
    scores = fit.target.shape[1]
    push, moved = np.zeros((len(fit.x), scores)), np.zeros(len(fit.x))
    for problem, member, share in zip(fit.problems(), fit.members, fit.policy_weights, strict=True):
        if weights == "all":
            own, residual, inside = _all_weights_influence(problem, outcomes[member.train])
        else:
            own, residual, inside = _last_layer_influence(problem, outcomes, fit.x)
        weight = np.ones(len(problem)) if problem.weights is None else problem.weights
        push[member.train] += share * own * inside * np.sqrt(weight)[:, None]  # no curvature beyond, no noise
        moved[member.train] += share * np.sum(own * residual, axis=1) * weight
    return Influence(push, moved)
