"""Gaussian approximation around the MAP over all weights (appendix, "Gaussian Approximation").

The Hessian is the generalized Gauss-Newton one, which is never indefinite: with J_i the Jacobian of row i's raw outputs
in the weights and A_i' A_i their curvature (`Surrogate.curvature_root`),

    H = J~' J~ + I / prior_sd^2,     J~ = rows sqrt(eta weight_i) A_i J_i,     w | data ~ N(MAP, H^-1).

`full` keeps all of H, without a weight-by-weight matrix where there are more weights than rows of J~; `diag` keeps its
diagonal, `kron` a Kronecker product per layer, `low_rank` the leading eigenpairs of J~' J~ and the prior on the rest.
Derivatives and linear algebra are in float64; a large J~ is stored in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jax.flatten_util import ravel_pytree

from gbpl.models.base import DenseModel, ScoreModel
from gbpl.posterior.curvature import require_curvature
from gbpl.posterior.precision import factor_sums, slices
from gbpl.posterior.problem import GaussianPosterior, PosteriorError, Problem, flatten, unflatten
from gbpl.runtime.devices import enable_x64

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jaxtyping import Array, Float

    Root = Callable[[Float[np.ndarray, "draw normal"]], Float[np.ndarray, "draw weight"]]

__all__ = ["Laplace"]

STRUCTURES = ("full", "diag", "kron", "low_rank")
MATRIX_LIMIT = 20_000  # order of the largest matrix that is factored
STORE_LIMIT = 2_500_000_000  # numbers of J~ kept in memory for `full`: 10 GB
DOUBLE_LIMIT = 20_000_000  # numbers of J~ up to which it is kept in float64
SVD_LIMIT = 1_000  # order up to which `low_rank` takes all singular values and cuts
COVARIANCE_LIMIT = 5_000


class Laplace(GaussianPosterior):
    """Draws from N(MAP, H^-1); `rank` is for `low_rank` alone."""

    method: ClassVar[str] = "laplace"

    def __init__(self, problem: Problem, *, structure: str = "full", rank: int = 50, linearized: bool = True) -> None:
        super().__init__(problem)
        require_curvature(problem.surrogate, self.method)
        self.structure, self.linearized = structure, linearized
        self.mean, self._form = flatten(problem.params)
        n_weights, n_rows = len(self.mean), problem.target.size
        dual = structure == "full" and n_weights > n_rows
        _check(problem, structure, rank, n_weights, n_rows)
        with enable_x64(True):
            curve = _Curve.of(problem)
            if structure == "full":
                self._root: Root = _dual(curve) if dual else _primal(curve)
            elif structure == "diag":
                self._root = _diagonal(curve)
            elif structure == "kron":
                self._root = _kronecker(curve, problem.weights)
            else:
                self._root = _low_rank(curve, min(rank, n_weights, n_rows))
        self._n_normals = n_weights + n_rows if dual else n_weights

    def covariance(self) -> Float[np.ndarray, "weight weight"]:
        """H^-1 as `sample` uses it, in the order of `flatten`; for small models."""
        if len(self.mean) > COVARIANCE_LIMIT:
            size = f"{len(self.mean)} weights (the limit is {COVARIANCE_LIMIT})"
            raise PosteriorError(f"the covariance of {size} is too large to write out; use draws from sample()")
        total = np.zeros((len(self.mean),) * 2)
        for block in slices(self._n_normals, self._n_normals):
            images = self._root(np.eye(block.stop - block.start, self._n_normals, k=block.start))
            total += images.T @ images
        return total

    def relative_precision(self) -> tuple[float, float]:
        """log det M and tr(M^-1 - I) of M = prior_sd^2 H as `sample` uses it: what the KL to the prior needs of H."""
        root: Any = self._root
        sd = self.problem.prior_sd
        if root.func is _primal_root:
            return factor_sums(root.args[0], sd)
        if root.func is _dual_root:  # I + sd^2 J~ J~' has the eigenvalues of M that are not one
            return factor_sums(root.args[1])
        if root.func is _kronecker_root:
            ratio = np.concatenate([scale.ravel() for _, scale, _ in root.args[0]]) / sd
        elif root.func is _low_rank_root:
            ratio = 1.0 - root.args[1]
        else:
            ratio = np.broadcast_to(root.args[0], self.mean.shape) / sd
        return -2.0 * float(np.sum(np.log(ratio))), float(np.sum(ratio**2 - 1.0))

    def sample(self, draws: int, *, seed: int) -> Any:
        """Parameters with a leading draw axis; the first draws do not depend on how many there are."""
        rng = np.random.default_rng(seed)
        vectors = np.empty((draws, len(self.mean)), np.float32)
        for block in slices(draws, self._n_normals):
            vectors[block] = self.mean + self._root(rng.standard_normal((block.stop - block.start, self._n_normals)))
        return unflatten(vectors, self._form)

    def raw(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row raw"]:
        """Raw outputs of the draws in the network linearised at the MAP: g(x) + J(x) (w - MAP).

        The Gauss-Newton Gaussian is the posterior of that linear model. In the network itself
        (`linearized=False`) its draws leave the region where it holds, and their decisions are close to random.
        """
        if not self.linearized:
            return super().raw(params, x)
        return _linearized(params, self.problem.params, x, model=self.problem.model)


def jacobian_rows(problem: Problem) -> Float[np.ndarray, "row weight"]:
    """J~ of the problem, rows sqrt(eta weight_i) A_i J_i, one for each row of data and score."""
    with enable_x64(True):
        return _Curve.of(problem).stored()


def _check(problem: Problem, structure: str, rank: int, n_weights: int, n_rows: int) -> None:
    if structure not in STRUCTURES:
        raise PosteriorError(f"structure must be one of {', '.join(STRUCTURES)}, got {structure!r}")
    if rank < 1:
        raise PosteriorError(f"rank must be >= 1, got {rank}; more keeps more of the curvature, 50 is the default")
    if structure == "kron" and not isinstance(problem.model, DenseModel):
        raise PosteriorError(
            f"structure 'kron' needs the dense layers of MLP, Linear or RandomFeatures, got the model "
            f"{problem.model!r}; use structure 'diag' or 'full'"
        )
    store = n_weights * n_rows if n_weights > n_rows else 0
    if structure == "full" and (min(n_weights, n_rows) > MATRIX_LIMIT or store > STORE_LIMIT):
        raise PosteriorError(
            f"structure 'full' is too large with {n_weights} weights and {n_rows} rows (rows of data times scores): "
            f"one of the two must be at most {MATRIX_LIMIT}, and their product at most {STORE_LIMIT} where the "
            f"weights are more; use structure 'kron', 'low_rank' or 'diag'"
        )


@dataclass(frozen=True, slots=True)
class _Curve:
    """The rows of J~, made on demand. `root` is sqrt(eta weight_i) A_i; all in float64."""

    model: Any
    params: Any
    x: Float[np.ndarray, "row feature"]
    root: Float[np.ndarray, "row score raw"]
    prior_sd: float
    n_weights: int
    n_rows: int  # of J~: rows of data times scores

    @classmethod
    def of(cls, problem: Problem) -> _Curve:
        params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.params)
        x, target = np.asarray(problem.x, np.float64), np.asarray(problem.target, np.float64)
        weights = np.ones(len(x)) if problem.weights is None else np.asarray(problem.weights, np.float64)
        raw, root = _curvature(params, x, target, problem.zeta, model=problem.model, surrogate=problem.surrogate)
        if not np.all(np.isfinite(raw)):
            raise PosteriorError("the MAP's raw outputs are not all finite; check the features and how the fit went")
        root = np.sqrt(problem.eta * weights)[:, None, None] * np.asarray(root)
        n_weights = sum(leaf.size for leaf in jax.tree.leaves(params))
        return cls(problem.model, params, x, root, float(problem.prior_sd), n_weights, target.size)

    def blocks(self) -> Iterator[tuple[slice, Float[np.ndarray, "row weight"]]]:
        """J~ in blocks of rows, and where they belong."""
        n_scores = self.root.shape[1]
        for rows in slices(len(self.x), n_scores * self.n_weights):
            block = np.asarray(_jacobian(self.params, None, self.x[rows], self.root[rows], model=self.model))
            yield slice(rows.start * n_scores, rows.stop * n_scores), block

    def stored(self) -> Float[np.ndarray, "row weight"]:
        """All of J~, in float32 where it is large."""
        size = self.n_rows * self.n_weights
        rows = np.empty((self.n_rows, self.n_weights), np.float64 if size <= DOUBLE_LIMIT else np.float32)
        for where, block in self.blocks():
            rows[where] = block
        return rows

    def product(self, vector: Float[np.ndarray, " weight"]) -> Float[np.ndarray, " weight"]:
        """J~' J~ v without J~."""
        vector, total = np.ravel(vector), np.zeros(self.n_weights)
        for rows in slices(len(self.x), 1_000):
            total += np.asarray(_product(self.params, vector, self.x[rows], self.root[rows], model=self.model))
        return total


@partial(jax.jit, static_argnames="model")
def _linearized(params: Any, at: Any, x: Array, *, model: ScoreModel) -> Float[Array, "draw row raw"]:
    value, push = jax.linearize(lambda p: model.apply(p, x), jax.tree.map(jnp.asarray, at))
    return value + jax.vmap(push)(jax.tree.map(lambda draw, centre: draw - centre, params, at))


@partial(jax.jit, static_argnames=("model", "surrogate"))
def _curvature(params: Any, x: Array, target: Array, zeta: float, *, model: Any, surrogate: Any) -> tuple[Array, Array]:
    raw = model.apply(params, x).astype(jnp.float64)
    return raw, surrogate.curvature_root(raw, target, zeta)


@partial(jax.jit, static_argnames="model")
def _inputs(params: Any, x: Array, *, model: DenseModel) -> list[Float[Array, "row input"]]:
    """Inputs of each layer, a one for its bias first, as in `flatten`."""
    return [jnp.pad(inputs, ((0, 0), (1, 0)), constant_values=1.0) for inputs in model.layer_inputs(params, x)]


@partial(jax.jit, static_argnames="model")
def _jacobian(moving: Any, fixed: Any, x: Array, root: Array, *, model: ScoreModel) -> Float[Array, "row weight"]:
    """Rows root_i J_i in the weights `moving`, one per score; `fixed` are the layers' other weights, or None."""

    def row(x_row: Array, root_row: Array) -> Array:
        def raw(part: Any) -> Array:
            params = part if fixed is None else [{**a, **b} for a, b in zip(fixed, part, strict=True)]
            return model.apply(params, x_row[None])[0].astype(root_row.dtype)

        _, pull = jax.vjp(raw, moving)
        leaves = jax.tree.leaves(jax.vmap(pull)(root_row))
        return jnp.concatenate([leaf.reshape(len(root_row), -1) for leaf in leaves], axis=-1)

    rows = jax.vmap(row)(x, root)
    return rows.reshape(-1, rows.shape[-1])


@partial(jax.jit, static_argnames="model")
def _product(params: Any, vector: Array, x: Array, root: Array, *, model: ScoreModel) -> Float[Array, " weight"]:
    def scaled(flat: Array) -> Array:
        return jnp.einsum("isr,ir->is", root, model.apply(unravel(flat), x).astype(root.dtype))

    flat, unravel = ravel_pytree(params)
    _, pull = jax.vjp(scaled, flat)
    return pull(jax.jvp(scaled, (flat,), (vector,))[1])[0]


# A structure is a function from standard normals to deviations from the MAP; their covariance is what it keeps of H^-1.


def _primal(curve: _Curve) -> Root:
    precision = np.eye(curve.n_weights) / curve.prior_sd**2
    for _, block in curve.blocks():
        precision += block.T @ block
    return partial(_primal_root, scipy.linalg.cholesky(precision, lower=True, overwrite_a=True))


def _primal_root(factor: np.ndarray, normals: np.ndarray) -> np.ndarray:
    return scipy.linalg.solve_triangular(factor, normals.T, lower=True, trans="T", check_finite=False).T


def _dual(curve: _Curve) -> Root:
    rows, gram = curve.stored(), np.eye(curve.n_rows)
    for columns in slices(curve.n_weights, curve.n_rows):
        block = curve.prior_sd * rows[:, columns].astype(np.float64)  # a float32 sum could lose the identity
        gram += block @ block.T
    return partial(_dual_root, rows, scipy.linalg.cholesky(gram, lower=True, overwrite_a=True), curve.prior_sd)


def _dual_root(rows: np.ndarray, factor: np.ndarray, prior_sd: float, normals: np.ndarray) -> np.ndarray:
    """Matheron's rule: w0 - sd^2 J~' (I + sd^2 J~ J~')^-1 (J~ w0 + e), w0 a draw of the prior; nothing is p x p."""
    n_rows, n_weights = rows.shape
    draws, observed = prior_sd * normals[:, :n_weights], normals[:, n_weights:].copy()
    for columns in slices(n_weights, n_rows):
        observed += draws[:, columns] @ rows[:, columns].astype(np.float64).T
    solved = prior_sd**2 * scipy.linalg.cho_solve((factor, True), observed.T, check_finite=False).T
    for columns in slices(n_weights, n_rows):
        draws[:, columns] -= solved @ rows[:, columns].astype(np.float64)
    return draws


def _diagonal(curve: _Curve) -> Root:
    precision = np.full(curve.n_weights, 1.0 / curve.prior_sd**2)
    for _, block in curve.blocks():
        precision += np.einsum("iw,iw->w", block, block)
    return partial(np.multiply, precision**-0.5)


def _kronecker(curve: _Curve, weights: Float[np.ndarray, " row"] | None) -> Root:
    """Per layer, mean of inputs x inputs' times sum of output curvatures; exact if either is the same in all rows."""
    biases = [{"bias": layer["bias"]} for layer in curve.params]  # derivative in a bias: derivative in the output
    kernels = [{"weight": layer["weight"]} for layer in curve.params]
    share = np.full(len(curve.x), 1.0 / len(curve.x)) if weights is None else weights / np.sum(weights, dtype=float)
    moments = [np.zeros((len(layer["weight"]) + 1,) * 2) for layer in curve.params]
    curvatures = [np.zeros((len(layer["bias"]),) * 2) for layer in curve.params]
    ends = np.cumsum([len(curvature) for curvature in curvatures])
    for rows in slices(len(curve.x), curve.root.shape[1] * sum(map(len, moments + curvatures))):
        outputs = np.asarray(_jacobian(biases, kernels, curve.x[rows], curve.root[rows], model=curve.model))
        inputs = [np.asarray(part) for part in _inputs(curve.params, curve.x[rows], model=curve.model)]
        for i, output in enumerate(np.split(outputs, ends[:-1], axis=1)):
            moments[i] += (inputs[i] * share[rows, None]).T @ inputs[i]
            curvatures[i] += output.T @ output
    layers = []
    for moment, curvature in zip(moments, curvatures, strict=True):
        (lam_in, u), (lam_out, v) = scipy.linalg.eigh(moment), scipy.linalg.eigh(curvature)
        precision = np.outer(np.maximum(lam_in, 0.0), np.maximum(lam_out, 0.0)) + 1.0 / curve.prior_sd**2
        layers.append((u, precision**-0.5, v))
    return partial(_kronecker_root, layers)


def _kronecker_root(layers: list[tuple[np.ndarray, np.ndarray, np.ndarray]], normals: np.ndarray) -> np.ndarray:
    parts = np.split(normals, np.cumsum([scale.size for _, scale, _ in layers])[:-1], axis=1)
    moved = []
    for part, (u, scale, v) in zip(parts, layers, strict=True):  # the symmetric root, whatever the eigenvectors' signs
        inside = scale * (u.T @ (part.reshape(-1, len(v)) @ v).reshape(-1, *scale.shape))
        moved.append(u @ (inside.reshape(-1, len(v)) @ v.T).reshape(inside.shape))
    return np.concatenate([part.reshape(len(normals), -1) for part in moved], axis=1)


def _low_rank(curve: _Curve, rank: int) -> Root:
    if not curve.root.any():  # every row beyond the robust loss's threshold: nothing for the iterations to find
        return partial(np.multiply, curve.prior_sd)
    small = min(curve.n_rows, curve.n_weights) <= SVD_LIMIT and curve.n_rows * curve.n_weights <= DOUBLE_LIMIT
    if small or rank >= curve.n_weights:
        _, singular, directions = scipy.linalg.svd(curve.stored().astype(np.float64), full_matrices=False)
        values, directions = singular[:rank] ** 2, directions[:rank]
    else:
        start = np.random.default_rng(0).standard_normal(curve.n_weights)
        operator = scipy.sparse.linalg.LinearOperator((len(start), len(start)), matvec=curve.product, dtype=start.dtype)
        values, vectors = scipy.sparse.linalg.eigsh(operator, k=rank, v0=start, tol=1e-6)
        directions = np.ascontiguousarray(vectors.T)
    shrink = 1.0 - (1.0 + curve.prior_sd**2 * np.maximum(values, 0.0)) ** -0.5
    return partial(_low_rank_root, directions, shrink, curve.prior_sd)


def _low_rank_root(directions: np.ndarray, shrink: np.ndarray, prior_sd: float, normals: np.ndarray) -> np.ndarray:
    return prior_sd * (normals - ((normals @ directions.T) * shrink) @ directions)
