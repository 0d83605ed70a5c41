"""Gaussian approximation over the last layer, hidden layers fixed at the MAP (appendix on GBPLNet).

The precision is the generalized Gauss-Newton one, H = eta sum_i weight_i (C_i (x) phi_i phi_i') + I / prior_sd^2, with
phi_i the last hidden layer and a one, and C_i the curvature of the loss in the raw outputs, squashing included.
"""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from gbpl.fitting.apply import filled
from gbpl.models.base import FixedFeatures, LastLayerModel
from gbpl.posterior.problem import MemberPosterior, PosteriorError, Problem
from gbpl.runtime.devices import quick_jit
from gbpl.runtime.memory import give_back_memory
from gbpl.runtime.threads import few_threads, one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Array, Float, Int

    from gbpl.models.base import ScoreModel
    from gbpl.surrogates import Surrogate

__all__ = ["Exact", "LastLayer"]

BLOCK = 8_192
STEP = 256  # sizes of blocks are multiples of it, so that members with about as many rows share what is compiled
NOISE_ROWS = 1_024  # rows of noise made at a time
KEPT_NOISE = 2_000  # numbers a row up to which blocks of noise are kept: 8 MB a block
MUCH_WORK = 1e10  # products beyond which Gram matrices are float32 ones of few rows, added up in float64
WIDE_BLOCK = 512  # rows of such a product on a CPU: its wider factor has 14 MB then, with ten actions
ROUNDING = (1e-6, 1e-5, 1e-4)


def _with_one(hidden: Float[Array, "row hidden"]) -> Float[Array, "row basis"]:
    return jnp.concatenate([hidden, jnp.ones_like(hidden[:, :1])], axis=1)


@partial(quick_jit, static_argnames="model")
def features(params: Any, x: Float[Array, "row feature"], *, model: Any) -> Float[Array, "row basis"]:
    """Last hidden layer and a one, of which the raw output is linear."""
    return _with_one(model.features(params, x))


@partial(quick_jit, static_argnames="surrogate")
def _root(
    basis: Array, last: Array, target: Array, zeta: float, *, surrogate: Surrogate
) -> Float[Array, "row score raw"]:
    return surrogate.curvature_root(basis @ last, target, zeta)


@partial(quick_jit, static_argnames="surrogate")
def _first_order(basis: Array, centre: Array, last: Array, *, surrogate: Surrogate) -> Float[Array, "draw row score"]:
    scores, push = jax.linearize(surrogate.scores, basis @ centre)
    return scores + jax.vmap(push)(jnp.einsum("nb,dbk->dnk", basis, last - centre))


def _curvature(
    basis: Array, last: Array, target: Array, weight: Array, zeta: float, *, surrogate: Surrogate
) -> Float[Array, "row raw raw"]:
    root = surrogate.curvature_root(basis @ last, target, zeta)
    # GPUs round factors to ten bits otherwise, and sums of such products are no longer positive definite.
    return jnp.einsum("nsk,nsl,n->nkl", root, root, weight, precision=jax.lax.Precision.HIGHEST)


_curvatures = quick_jit(_curvature, static_argnames="surrogate")


def require_last_layer(model: ScoreModel, method: str) -> None:
    """Refuse models whose raw output is not known to be linear in a last layer."""
    if not isinstance(model, LastLayerModel):
        raise PosteriorError(
            f"the {method!r} posterior needs a model with a last layer (MLP, Linear, RandomFeatures), got "
            f"{type(model).__name__}; use method='laplace', 'sgld' or 'bootstrap'"
        )


def last_layer(params: Any) -> Float[np.ndarray, "basis raw"]:
    """Weights and bias of the last layer, in the order of `features`; a leading draw axis stays."""
    return np.concatenate([params[-1]["weight"], np.expand_dims(params[-1]["bias"], -2)], axis=-2)


def last_layer_draws(problem: Problem, vectors: Float[np.ndarray, "draw weight"]) -> Any:
    """Whole models from draws of the last layer, in the order (basis, raw); the hidden layers stay at the MAP."""
    weights = vectors.reshape(len(vectors), -1, problem.surrogate.n_raw).astype(np.float32)
    hidden = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(vectors), *np.shape(leaf))), problem.params[:-1])
    return [*hidden, {"weight": weights[:, :-1], "bias": weights[:, -1]}]


def block_rows(n: int, most: int | None = None) -> int:
    """Rows of a block, a multiple of `STEP`, where n rows go in blocks of about `most` (`BLOCK`) or fewer."""
    return -(-n // (-(-n // (most or BLOCK)) * STEP)) * STEP


class TrainingRows(NamedTuple):
    """A block of a problem's rows: which, and their features and a one as the last layer learned from them.

    Every block of a problem has one shape; rows that are lacking in the last one have weight zero.
    """

    rows: slice
    basis: Float[Array, "row basis"]
    target: Float[np.ndarray, "row score"]
    weight: Float[np.ndarray, " row"]

    @classmethod
    def of(cls, problem: Problem, start: int, size: int) -> TrainingRows:
        """Those from `start` on."""
        rows = slice(start, min(start + size, len(problem)))
        if problem.phi is None:
            basis = features(problem.params, filled(problem.x[rows], size), model=problem.model)
        else:
            basis = _with_one(jnp.asarray(filled(problem.phi[rows], size)))
        weight = np.ones(rows.stop - start) if problem.weights is None else problem.weights[rows]
        return cls(rows, basis, filled(problem.target[rows], size), filled(weight, size))

    @property
    def kept(self) -> slice:
        """The rows of the block that are not filling."""
        return slice(self.rows.stop - self.rows.start)


def training_blocks(problem: Problem) -> Iterator[TrainingRows]:
    """All rows of a problem, block by block."""
    size = block_rows(len(problem))
    return (TrainingRows.of(problem, start, size) for start in range(0, len(problem), size))


def _row_noise(
    rows: Int[np.ndarray, " row"], scores: int, draws: int, seed: int
) -> Float[np.ndarray, "row score draw"]:
    """Standard normals of the given rows (sorted), the same for whoever asks for a row."""
    made = _noise_block if scores * draws <= KEPT_NOISE else _noise_block.__wrapped__
    parts = []
    for block in np.unique(rows // NOISE_ROWS):
        inside = rows[rows // NOISE_ROWS == block] - block * NOISE_ROWS
        parts.append(made(seed, int(block), scores, draws)[inside])
    return np.concatenate(parts)


@lru_cache(maxsize=16)  # the members of a committee ask for the same rows, one after the other
def _noise_block(seed: int, block: int, scores: int, draws: int) -> Float[np.ndarray, "row score draw"]:
    return np.random.default_rng([seed, block]).standard_normal((NOISE_ROWS, scores, draws), np.float32)


class _LinearGaussian(MemberPosterior):
    """A Gaussian over the weights of the last layer, in the order (basis, raw)."""

    mean: Float[np.ndarray, " weight"]
    root: Float[np.ndarray, "weight weight"]  # lower Cholesky factor of the precision

    @property
    def covariance(self) -> Float[np.ndarray, "weight weight"]:
        return scipy.linalg.cho_solve((self.root, True), np.eye(len(self.mean)))

    def sample(self, draws: int, *, seed: int) -> Any:
        noise = np.random.default_rng(seed).standard_normal((len(self.mean), draws))
        with few_threads(len(self.mean)):
            spread = scipy.linalg.solve_triangular(self.root, noise, lower=True, trans="T").T
        return last_layer_draws(self.problem, self.mean + spread)

    def joint_sample(self, draws: int, *, seed: int) -> Any:
        """Draws as in `sample`, made so that members that share rows move together.

        H^{-1} (sum_i sqrt(eta weight_i) phi_i (x) A_i' e_i + z / prior_sd), standard normal e_i and z, has covariance
        H^{-1}. The e_i belong to the row, whichever member asks: a draw is one perturbation of the targets, and every
        member of the committee answers it with the rows it has.
        """
        problem = self.problem
        if problem.rows is None:
            raise PosteriorError("joint draws need the numbers of the problem's rows; give Problem(rows=...)")
        last = last_layer(problem.params)
        pushed = np.zeros((*last.shape, draws))
        for rows, basis, target, weight in training_blocks(problem):
            root = np.asarray(_root(basis, last, target, problem.zeta, surrogate=problem.surrogate))
            root = (root * np.sqrt(weight)[:, None, None])[: rows.stop - rows.start]
            noise = _row_noise(problem.rows[rows], root.shape[1], draws, seed)
            answers = np.einsum("nsk,nsd->nkd", root, noise).reshape(len(root), -1)
            pushed += (np.asarray(basis)[: len(root)].T @ answers).reshape(pushed.shape)
        own = np.random.default_rng([seed, problem.seed]).standard_normal((len(self.mean), draws))
        moved = np.sqrt(problem.eta) * pushed.reshape(len(self.mean), draws) + own / problem.prior_sd
        with few_threads(len(self.mean)):
            return last_layer_draws(problem, self.mean + scipy.linalg.cho_solve((self.root, True), moved).T)

    def answer(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row score"]:
        """Scores of draws to first order, s(MAP) + ds/dw (w - MAP): the model of which H is the posterior's precision.

        Put through the squashing itself, wide draws are pulled towards the coin flip and worth less than the MAP.
        """
        problem = self.problem
        basis = features(problem.params, x, model=problem.model)
        return _first_order(basis, last_layer(problem.params), last_layer(params), surrogate=problem.surrogate)

    def raw(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row raw"]:
        basis = features(self.problem.params, x, model=self.problem.model)
        return jnp.einsum("nb,dbk->dnk", basis, last_layer(params))


class LastLayer(_LinearGaussian):
    """N(MAP, H^{-1}) over the last layer."""

    method: ClassVar[str] = "last_layer"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        require_last_layer(problem.model, self.method)
        self.mean = last_layer(problem.params).astype(np.float64).ravel()
        precision = gauss_newton(problem)
        precision *= problem.eta
        precision[np.diag_indices_from(precision)] += 1.0 / problem.prior_sd**2
        with few_threads(len(precision)):
            self.root = cholesky_root(precision)


def cholesky_root(precision: Float[np.ndarray, "weight weight"]) -> Float[np.ndarray, "weight weight"]:
    """Lower factor, with as little added to the diagonal (in place) as it takes.

    Softmax outputs may all move by a constant, and only the prior holds them there; with very many rows the float32
    rounding of all other directions outweighs it. What is added is a share of the largest that moves no decision.
    """
    diagonal = np.diag(precision).copy()
    for share in (0.0, *ROUNDING):
        np.fill_diagonal(precision, diagonal + share * diagonal.max())
        with contextlib.suppress(scipy.linalg.LinAlgError):
            return scipy.linalg.cholesky(precision, lower=True)
    raise PosteriorError("the curvature of this fit is not positive definite; look for extreme outcomes or features")


def gauss_newton(problem: Problem, *, one_of_many: bool = False) -> Float[np.ndarray, "weight weight"]:
    """sum_i weight_i (C_i (x) phi_i phi_i'), one pass over the rows in blocks, or what is known of more rows.

    With very many rows, or where this is `one_of_many` calls for parts of them, by float32 products.
    """
    if problem.curvature is not None:
        return problem.curvature.copy()
    count, size = problem.surrogate.n_raw, problem.params[-1]["weight"].shape[0] + 1
    wide = one_of_many or len(problem) * (size * count) ** 2 > MUCH_WORK
    total = _by_device(problem) if wide else _by_threads(problem)
    if wide and not one_of_many:  # who makes many calls gives back once for all of them
        give_back_memory()
    for k in range(count):
        for other in range(k):
            total[:, k, :, other] = total[:, other, :, k].T
    return total.reshape(size * count, -1)


def _by_threads(problem: Problem) -> Float[np.ndarray, "basis raw basis raw"]:
    """The blocks (k, l) with k <= l in float64, a block of rows a core at a time."""
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
    """The same by float32 products of a few rows, added up in float64: where there are many."""
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


class Exact(_LinearGaussian):
    """The generalized posterior itself, where it is Gaussian: a linear score without squashing.

    Lambda = eta zeta Phi' W Phi + I / prior_sd^2 and mean Lambda^{-1} eta Phi' W t, the same for each score (Gaussian
    pseudo-likelihood, section 4.4).
    """

    method: ClassVar[str] = "exact"

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        require_last_layer(problem.model, self.method)
        if len(problem.params) > 1 and not isinstance(problem.model, FixedFeatures):
            raise PosteriorError(
                f"the 'exact' posterior needs a model linear in its parameters (Linear, RandomFeatures), got "
                f"{problem.model}; use method='last_layer'"
            )
        if problem.surrogate.squash or problem.surrogate.huber != float("inf"):
            raise PosteriorError(
                "the 'exact' posterior needs an unsquashed, squared loss: fit with surrogate=Binary(squash=False) or "
                "FullVector(K, squash=False), or use method='last_layer'"
            )
        basis_size = problem.params[-1]["weight"].shape[0] + 1
        gram = np.zeros((basis_size, basis_size))
        moment = np.zeros((basis_size, problem.surrogate.n_raw))
        for _, basis, target, weight in training_blocks(problem):
            phi = np.asarray(basis, np.float64)
            weighted = phi * weight[:, None]
            gram += weighted.T @ phi
            moment += weighted.T @ target
        precision = problem.eta * problem.zeta * gram + np.eye(basis_size) / problem.prior_sd**2
        self.mean = np.linalg.solve(precision, problem.eta * moment).ravel()
        self.root = np.linalg.cholesky(np.kron(precision, np.eye(problem.surrogate.n_raw)))
