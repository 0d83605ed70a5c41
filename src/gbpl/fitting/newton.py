"""Members with a convex objective, solved by Newton steps: linear scores that are not squashed (section 4.4).

The objective is the one of `gbpl.fitting.stack`, the mean row loss plus |w|^2 / (2 prior_sd^2 eta n). For the squared
loss its minimum, one step away, is the mean of the exact generalized posterior; Huber's function takes a few steps.
Nothing is stopped early, so a member needs no rows that stop it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gbpl.fitting.block import NonFiniteLossError, Objective
from gbpl.fitting.members import Member
from gbpl.models.base import FixedFeatures, LastLayerModel, ScoreModel
from gbpl.models.prior import GaussianPrior
from gbpl.runtime.devices import enable_x64, quick_jit

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = ["ConvexObjective", "Solution", "is_solved", "learns_last_layer", "solve"]

BLOCK = 8_192
STEP = 256  # sizes of blocks are multiples of it, so that members with about as many rows share what is compiled
MOST_STEPS = 100
CLOSE = 1e-16  # of what the first step promised: a fall too small to be seen in float32 parameters
ENOUGH = 1e-4  # of the fall that a step promises, or it is halved (Armijo's rule)
SHORTEST = 2.0**-40
ROUNDING = 1e-12  # of the largest curvature, added where the prior is too weak to keep a matrix positive definite


@runtime_checkable
class ConvexObjective(Objective, Protocol):
    """An objective that says whether its row loss is a sum of convex functions, each of one raw output."""

    @property
    def convex(self) -> bool: ...


class Solution(NamedTuple):
    """Parameters at the minimum, the objective there, and the mean loss of the validation rows (None without any)."""

    params: list[dict[str, np.ndarray]]
    train_loss: float
    validation_loss: float | None


def is_solved(objective: Objective, model: ScoreModel) -> bool:
    """Whether members are solved: a convex loss of a score that has no parameters but its last layer."""
    if not (isinstance(objective, ConvexObjective) and objective.convex and isinstance(model, LastLayerModel)):
        return False
    return isinstance(model, FixedFeatures) or learns_last_layer(model, objective.n_raw)


def learns_last_layer(model: LastLayerModel, n_raw: int, n_features: int = 1) -> bool:
    """Whether the last layer is all that a model has to learn."""
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), n_features, n_raw))
    return len(params) == 1 and set(params[0]) == {"weight", "bias"}


def solve(
    member: Member, x: Float[np.ndarray, "row feature"], target: Any, objective: Objective, model: Any
) -> Solution:
    """The minimum of a member's objective, in float64: Newton steps from zero, each halved until it is a descent."""
    data = _Table(x, target, member.table * len(x), member.zeta, objective, model)
    train = _Rows.of(data, member.train, member.weights)
    ridge = 2.0 * GaussianPrior(member.prior_sd).penalty_scale(member.eta, len(member.train))
    w = np.zeros((train.basis_size, objective.n_raw))
    here, wanted = _evaluated(train, w, ridge, member), 0.0
    for _ in range(MOST_STEPS):
        roots = train.hessian_roots(here.curvature, ridge)
        step = _solved(roots, -here.gradient)
        promised = -float(np.sum(here.gradient * step))
        wanted = wanted or CLOSE * promised
        if promised <= wanted:
            break
        length = 1.0
        there = _evaluated(train, w + step, ridge, member)
        while there.value > here.value - ENOUGH * length * promised and length > SHORTEST:
            length /= 2.0
            there = _evaluated(train, w + length * step, ridge, member)
        w, here = w + length * step, there
        if np.sum(here.gradient * _solved(roots, here.gradient)) <= wanted:
            break
    held = None
    if len(member.validation):
        rows = _Rows.of(data, member.validation, member.validation_weights)
        held = _evaluated(rows, w, 0.0, member).value
    last = w.astype(np.float32)
    return Solution([{"weight": last[:-1], "bias": last[-1]}], here.value, held)


class _Point(NamedTuple):
    """The objective at some weights: its value, its gradient, and the curvature of the rows' weighted losses."""

    value: float
    gradient: Float[np.ndarray, "basis raw"]
    curvature: Float[np.ndarray, "block row raw"]


class _Table(NamedTuple):
    """What a member names rows of; its targets begin at row `offset`."""

    x: Float[np.ndarray, "row feature"]
    target: Any
    offset: int
    zeta: float
    objective: Objective
    model: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows of a table in blocks of one shape, with weights that sum to one: the last row repeated, with weight zero."""

    data: _Table
    blocks: Int[np.ndarray, "block row"]
    weights: Float[np.ndarray, "block row"]
    params: Any

    @classmethod
    def of(cls, data: _Table, rows: np.ndarray, weights: np.ndarray | None) -> _Rows:
        count = -(-len(rows) // BLOCK)
        size = -(-len(rows) // (count * STEP)) * STEP
        given = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
        missing = 0, count * size - len(rows)
        return cls(
            data,
            np.pad(rows, missing, mode="edge").reshape(count, size),
            np.pad(given / max(given.sum(), 1e-300), missing).reshape(count, size),
            data.model.init(jax.random.key(0), data.x.shape[1], data.objective.n_raw),
        )

    @property
    def basis_size(self) -> int:
        return self.params[0]["weight"].shape[0] + 1

    def basis(self, rows: Int[np.ndarray, " row"]) -> Float[np.ndarray, "row basis"]:
        """Features and a one."""
        hidden = _features(self.params, self.data.x[rows], model=self.data.model)
        return np.column_stack([np.asarray(hidden, np.float64), np.ones(len(rows))])

    def evaluate(self, w: Float[np.ndarray, "basis raw"], ridge: float) -> _Point:
        """Mean loss plus ridge |w|^2 / 2, with its derivatives."""
        data, value, gradient, curvature = self.data, 0.5 * ridge * float(np.sum(w**2)), ridge * w, []
        for rows, weight in zip(self.blocks, self.weights, strict=True):
            phi = self.basis(rows)
            with enable_x64(True):
                target = jax.tree.map(lambda leaf, own=data.offset + rows: leaf[own].astype(np.float64), data.target)
                loss, slope, curve = map(
                    np.asarray, _derivatives(phi @ w, target, data.zeta, objective=data.objective)
                )  # fmt: skip
            value += float(weight @ loss)
            gradient = gradient + phi.T @ (weight[:, None] * slope)
            curvature.append(weight[:, None] * curve)
        return _Point(value, gradient, np.stack(curvature))

    def hessian_roots(self, curvature: Float[np.ndarray, "block row raw"], ridge: float) -> list[Any]:
        """Cholesky factors of the Hessian's blocks, one per raw output, or one for all where they are the same."""
        columns = curvature[:, :, :1] if np.all(curvature == curvature[:, :, :1]) else curvature
        matrices = np.zeros((columns.shape[2], self.basis_size, self.basis_size))
        for rows, curve in zip(self.blocks, columns, strict=True):
            phi = self.basis(rows)
            for k, matrix in enumerate(matrices):
                matrix += (phi * curve[:, k, None]).T @ phi
        for matrix in matrices:
            matrix[np.diag_indices_from(matrix)] += max(ridge, ROUNDING * float(np.max(np.diag(matrix))))
        return [scipy.linalg.cho_factor(matrix, lower=True) for matrix in matrices]


def _evaluated(rows: _Rows, w: np.ndarray, ridge: float, member: Member) -> _Point:
    with np.errstate(invalid="ignore", over="ignore"):
        point = rows.evaluate(w, ridge)
    if not (np.isfinite(point.value) and np.isfinite(point.gradient).all()):
        raise NonFiniteLossError(
            f"the loss is not finite for {member}. Nothing was kept. Look for extreme outcomes: a robust surrogate "
            "(huber=...) bounds what one row can do."
        )
    return point


def _solved(roots: list[Any], vectors: Float[np.ndarray, "basis raw"]) -> Float[np.ndarray, "basis raw"]:
    """The inverse of the Hessian times vectors."""
    if len(roots) == 1:
        return scipy.linalg.cho_solve(roots[0], vectors)
    return np.column_stack([scipy.linalg.cho_solve(root, v) for root, v in zip(roots, vectors.T, strict=True)])


@partial(quick_jit, static_argnames="model")
def _features(params: Any, x: Float[Array, "row feature"], *, model: Any) -> Float[Array, "row hidden"]:
    return model.features(params, x)


@partial(quick_jit, static_argnames="objective")
def _derivatives(
    raw: Float[Array, "row raw"], target: Any, zeta: float, *, objective: Objective
) -> tuple[Float[Array, " row"], Float[Array, "row raw"], Float[Array, "row raw"]]:
    """Row losses, with their first and second derivatives in each raw output."""

    def total(r: Array) -> Array:
        return jnp.sum(objective.row_loss(r, target, jnp.asarray(zeta)))

    # The loss is a sum over raw outputs: the Hessian times ones is its diagonal.
    slope, curve = jax.jvp(jax.grad(total), (raw,), (jnp.ones_like(raw),))
    return objective.row_loss(raw, target, jnp.asarray(zeta)), slope, curve
