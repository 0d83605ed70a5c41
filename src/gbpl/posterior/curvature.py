"""Curvature of a member's loss in its last layer, and the training rows it is summed over (appendix on GBPLNet).

The generalized Gauss-Newton matrix is sum_i weight_i (C_i (x) phi_i phi_i'), with phi_i the last hidden layer and a
one, and C_i the curvature of the loss in the raw outputs, squashing included.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gbpl.fitting.apply import filled
from gbpl.models.base import LastLayerModel, ScoreModel
from gbpl.models.numpy_form import layer_matrix
from gbpl.posterior.problem import PosteriorError, Problem
from gbpl.runtime.devices import quick_jit
from gbpl.runtime.memory import give_back_memory
from gbpl.runtime.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Array, Float

    from gbpl.surrogates import Surrogate

__all__ = [
    "TrainingRows", "block_rows", "cholesky_root", "features", "gauss_newton", "last_layer", "last_layer_draws",
    "require_curvature", "require_last_layer", "sides", "training_blocks",
]  # fmt: skip

BLOCK = 8_192
STEP = 256  # sizes of blocks are multiples of it, so that members with about as many rows share what is compiled
MUCH_WORK = 1e10  # products beyond which Gram matrices of few rows are made in float32 and added up in float64
WIDE_BLOCK = 512  # rows of such a product on a CPU: its wider factor then takes 14 MB, with ten actions
ROUNDING = (1e-6, 1e-5, 1e-4)


def _with_one(hidden: Float[Array, "row hidden"]) -> Float[Array, "row basis"]:
    return jnp.concatenate([hidden, jnp.ones_like(hidden[:, :1])], axis=1)


@partial(quick_jit, static_argnames="model")
def features(params: Any, x: Float[Array, "row feature"], *, model: Any) -> Float[Array, "row basis"]:
    """Last hidden layer and a one, in which the raw output is linear."""
    return _with_one(model.features(params, x))


def require_last_layer(
    model: ScoreModel, what: str, remedy: str = "use method='laplace', 'sgld' or 'bootstrap'"
) -> None:
    """Refuse models whose raw output is not known to be linear in a last layer."""
    if not isinstance(model, LastLayerModel):
        what = what if " " in what else f"the {what!r} posterior"
        raise PosteriorError(
            f"{what} needs a model with a last layer (MLP, Linear, RandomFeatures, Splines, ForestFeatures), got "
            f"{type(model).__name__}; {remedy}"
        )


def require_curvature(
    surrogate: Surrogate, what: str, remedy: str = "use method='sgld', 'nuts' or 'bootstrap'"
) -> None:
    """Refuse surrogates whose loss is linear in the scores, and so has no Gauss-Newton matrix."""
    if surrogate.linear:
        what, name = what if " " in what else f"the {what!r} posterior", type(surrogate).__name__
        raise PosteriorError(f"{what} needs a loss that is curved in the scores, and {name} is linear; {remedy}")


def last_layer(params: Any) -> Float[np.ndarray, "basis raw"]:
    """Weights and bias of the last layer, in the order of `features`; a leading draw axis stays."""
    return layer_matrix(params[-1])


def last_layer_draws(problem: Problem, vectors: Float[np.ndarray, "draw weight"]) -> Any:
    """Whole models from draws of the last layer, in the order (basis, raw); the hidden layers stay at the MAP."""
    weights = vectors.reshape(len(vectors), -1, problem.surrogate.n_raw).astype(np.float32)
    hidden = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(vectors), *np.shape(leaf))), problem.params[:-1])
    return [*hidden, {"weight": weights[:, :-1], "bias": weights[:, -1]}]


def block_rows(n: int, most: int | None = None) -> int:
    """Rows of a block, a multiple of `STEP`, where n rows are cut into blocks of about `most` (`BLOCK`) or fewer."""
    return -(-n // (-(-n // (most or BLOCK)) * STEP)) * STEP


class TrainingRows(NamedTuple):
    """A block of a problem's rows: their place, and their features and a one as the last layer saw them.

    Every block of a problem has one shape; the last one is filled up with rows of weight zero.
    """

    rows: slice
    basis: Float[Array, "row basis"]
    target: Float[np.ndarray, "row score"]
    weight: Float[np.ndarray, " row"]

    @classmethod
    def of(cls, problem: Problem, start: int, size: int) -> TrainingRows:
        """The block from row `start` on."""
        rows = slice(start, min(start + size, len(problem)))
        if problem.phi is None:
            basis = features(problem.params, filled(problem.x[rows], size), model=problem.model)
        else:
            basis = _with_one(jnp.asarray(filled(problem.phi[rows], size)))
        weight = np.ones(rows.stop - start) if problem.weights is None else problem.weights[rows]
        return cls(rows, basis, filled(problem.target[rows], size), filled(weight, size))

    @property
    def kept(self) -> slice:
        """The rows of the block that are not padding."""
        return slice(self.rows.stop - self.rows.start)


def training_blocks(problem: Problem) -> Iterator[TrainingRows]:
    """All rows of a problem, block by block."""
    size = block_rows(len(problem))
    return (TrainingRows.of(problem, start, size) for start in range(0, len(problem), size))


def gauss_newton(problem: Problem, *, one_of_many: bool = False) -> Float[np.ndarray, "weight weight"]:
    """sum_i weight_i (C_i (x) phi_i phi_i'), one pass over the rows in blocks; or `problem.curvature`, if known.

    It uses float32 products if there are very many rows, or if this is `one_of_many` calls for parts of them.
    """
    if problem.curvature is not None:
        return problem.curvature.copy()
    count, size = problem.surrogate.n_raw, problem.params[-1]["weight"].shape[0] + 1
    wide = one_of_many or len(problem) * (size * count) ** 2 > MUCH_WORK
    total = _by_device(problem) if wide else _by_threads(problem)
    if wide and not one_of_many:  # the caller of many gives it back once for all
        give_back_memory()
    for k in range(count):
        for other in range(k):
            total[:, k, :, other] = total[:, other, :, k].T
    return total.reshape(size * count, -1)


def _curvature(
    basis: Array, last: Array, target: Array, weight: Array, zeta: float, *, surrogate: Surrogate
) -> Float[Array, "row raw raw"]:
    root = surrogate.curvature_root(basis @ last, target, zeta)
    # GPUs round factors to ten bits otherwise, and sums of such products are no longer positive definite.
    return jnp.einsum("nsk,nsl,n->nkl", root, root, weight, precision=jax.lax.Precision.HIGHEST)


_curvatures = quick_jit(_curvature, static_argnames="surrogate")


def sides(problem: Problem) -> tuple[Float[np.ndarray, "basis basis"], Float[np.ndarray, "raw raw"]]:
    """sum_i weight_i phi_i phi_i', and the mean of C_i over rows by weight; nothing has the order of their product."""
    last, left, right, total = last_layer(problem.params), 0.0, 0.0, 0.0
    for block in training_blocks(problem):
        given = block.basis, last, block.target, block.weight
        curvature = _curvatures(*given, problem.zeta, surrogate=problem.surrogate)
        phi = np.asarray(block.basis, np.float64)
        left = left + (phi * block.weight[:, None]).T @ phi
        right = right + np.asarray(curvature, np.float64).sum(axis=0)
        total += float(block.weight.sum())
    return np.asarray(left), np.asarray(right) / total


def _by_threads(problem: Problem) -> Float[np.ndarray, "basis raw basis raw"]:
    """The blocks (k, l) with k <= l in float64, one block of rows per core at a time."""
    count, size = problem.surrogate.n_raw, problem.params[-1]["weight"].shape[0] + 1
    last, rows = last_layer(problem.params), block_rows(len(problem))

    def block(start: int) -> np.ndarray:
        _, basis, target, weight = TrainingRows.of(problem, start, rows)
        curvature = _curvatures(basis, last, target, weight, problem.zeta, surrogate=problem.surrogate)
        phi, c = np.asarray(basis, np.float64), np.asarray(curvature, np.float64)
        part = np.zeros((size, count, size, count))
        for k in range(count):  # one product for all the blocks (k, k), (k, k + 1), ...
            weighted = (phi[:, None, :] * c[:, k, k:, None]).reshape(len(phi), -1)
            part[:, k, :, k:] = (phi.T @ weighted).reshape(size, -1, size).transpose(0, 2, 1)
        return part

    total = np.zeros((size, count, size, count))
    with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        for part in pool.map(block, range(0, len(problem), rows)):
            total += part
    return total


@partial(quick_jit, static_argnames="surrogate")
def _upper_blocks(
    phi: Array, last: Array, target: Array, weight: Array, zeta: float, *, surrogate: Surrogate
) -> Float[Array, "basis pair_basis"]:
    """phi' (c_kl phi) for all k <= l of some rows, one product."""
    c = _curvature(phi, last, target, weight, zeta, surrogate=surrogate)
    k, other = np.triu_indices(c.shape[1])
    wide = (phi[:, None, :] * c[:, k, other][:, :, None]).reshape(phi.shape[0], -1)
    return jnp.matmul(phi.T, wide, precision=jax.lax.Precision.HIGHEST)


def _by_device(problem: Problem) -> Float[np.ndarray, "basis raw basis raw"]:
    """The same by float32 products of a few rows at a time, added up in float64: for many rows."""
    count, size = problem.surrogate.n_raw, problem.params[-1]["weight"].shape[0] + 1
    k, other = np.triu_indices(count)
    added = np.zeros((size, len(k) * size))
    most = WIDE_BLOCK if jax.default_backend() == "cpu" else BLOCK
    last, rows = last_layer(problem.params), block_rows(len(problem), most)
    for start in range(0, len(problem), rows):
        _, phi, target, weight = TrainingRows.of(problem, start, rows)
        added += np.asarray(_upper_blocks(phi, last, target, weight, problem.zeta, surrogate=problem.surrogate))
    total = np.zeros((size, count, size, count))
    total[:, k, :, other] = added.reshape(size, len(k), size).transpose(1, 0, 2)
    return total


def cholesky_root(precision: Float[np.ndarray, "weight weight"]) -> Float[np.ndarray, "weight weight"]:
    """Lower factor, with as little as possible added to the diagonal (in place).

    Softmax outputs may all move by a constant, and only the prior keeps them from it; with very many rows the float32
    rounding of all other directions outweighs it. What is added is a share of the largest entry, too small to change a
    decision.
    """
    diagonal = np.diag(precision).copy()
    for share in (0.0, *ROUNDING):
        np.fill_diagonal(precision, diagonal + share * diagonal.max())
        with contextlib.suppress(scipy.linalg.LinAlgError):
            return scipy.linalg.cholesky(precision, lower=True)
    raise PosteriorError("the curvature of this fit is not positive definite; look for extreme outcomes or features")
