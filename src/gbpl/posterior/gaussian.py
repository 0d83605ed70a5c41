"""A Gaussian over the last layer, hidden layers fixed: what the methods `last_layer` and `exact` share (appendix)."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.posterior.curvature import features, last_layer, last_layer_draws, training_blocks
from gbpl.posterior.precision import Precision
from gbpl.posterior.problem import GaussianPosterior, JointPosterior, PosteriorError
from gbpl.runtime.devices import quick_jit

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

    from gbpl.surrogates import Surrogate

__all__ = ["LastLayerGaussian", "row_noise"]

NOISE_ROWS = 1_024  # rows of noise made at a time
KEPT_NOISE = 2_000  # numbers per row up to which blocks of noise are kept: 8 MB per block


class LastLayerGaussian(GaussianPosterior, JointPosterior):
    """A Gaussian over the weights of the last layer, in the order (basis, raw); a method sets mean and `precision`."""

    precision: Precision

    @property
    def root(self) -> Float[np.ndarray, "weight weight"]:
        """Lower Cholesky factor of the precision."""
        return self.precision.root

    @property
    def covariance(self) -> Float[np.ndarray, "weight weight"]:
        return self.precision.solve(np.eye(len(self.mean)))

    def relative_precision(self) -> tuple[float, float]:
        return self.precision.sums(self.problem.prior_sd)

    def sample(self, draws: int, *, seed: int) -> Any:
        noise = np.random.default_rng(seed).standard_normal((len(self.mean), draws))
        return last_layer_draws(self.problem, self.mean + self.precision.spread(noise).T)

    def joint_sample(self, draws: int, *, seed: int) -> Any:
        """Draws as in `sample`, made so that members that share rows move together.

        H^{-1} (sum_i sqrt(eta weight_i) phi_i (x) A_i' e_i + z / prior_sd), standard normal e_i and z, has covariance
        H^{-1}. The e_i belong to the row and are the same for every member: a draw is one perturbation of the targets,
        and every member of the committee responds to it with the rows it has.
        """
        problem = self.problem
        if problem.rows is None:
            raise PosteriorError("joint draws need the numbers of the problem's rows; give Problem(rows=...)")
        last = last_layer(problem.params)
        pushed = np.zeros((*last.shape, draws))
        for rows, basis, target, weight in training_blocks(problem):
            root = np.asarray(_root(basis, last, target, problem.zeta, surrogate=problem.surrogate))
            root = (root * np.sqrt(weight)[:, None, None])[: rows.stop - rows.start]
            noise = row_noise(problem.rows[rows], root.shape[1], draws, seed)
            responses = np.einsum("nsk,nsd->nkd", root, noise).reshape(len(root), -1)
            pushed += (np.asarray(basis)[: len(root)].T @ responses).reshape(pushed.shape)
        own = np.random.default_rng([seed, problem.seed]).standard_normal((len(self.mean), draws))
        moved = np.sqrt(problem.eta) * pushed.reshape(len(self.mean), draws) + own / problem.prior_sd
        return last_layer_draws(problem, self.mean + self.precision.solve(moved).T)

    def raw(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row raw"]:
        basis = features(self.problem.params, x, model=self.problem.model)
        return jnp.einsum("nb,dbk->dnk", basis, last_layer(params))

    def answer(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row score"]:
        """Scores of draws to first order, s(MAP) + ds/dw (w - MAP): the model whose posterior precision is H.

        With the squashing itself, wide draws are pulled towards a coin flip: their welfare is below the MAP's.
        """
        problem = self.problem
        basis = features(problem.params, x, model=problem.model)
        return _first_order(basis, last_layer(problem.params), last_layer(params), surrogate=problem.surrogate)


@partial(quick_jit, static_argnames="surrogate")
def _root(
    basis: Array, last: Array, target: Array, zeta: float, *, surrogate: Surrogate
) -> Float[Array, "row score raw"]:
    return surrogate.curvature_root(basis @ last, target, zeta)


@partial(quick_jit, static_argnames="surrogate")
def _first_order(basis: Array, centre: Array, last: Array, *, surrogate: Surrogate) -> Float[Array, "draw row score"]:
    scores, push = jax.linearize(surrogate.scores, basis @ centre)
    return scores + jax.vmap(push)(jnp.einsum("nb,dbk->dnk", basis, last - centre))


def row_noise(rows: Int[np.ndarray, " row"], scores: int, draws: int, seed: int) -> Float[np.ndarray, "row score draw"]:
    """Standard normals of the given rows (sorted); those of a row are the same in every call."""
    made = _noise_block if scores * draws <= KEPT_NOISE else _noise_block.__wrapped__
    parts = []
    for block in np.unique(rows // NOISE_ROWS):
        inside = rows[rows // NOISE_ROWS == block] - block * NOISE_ROWS
        parts.append(made(seed, int(block), scores, draws)[inside])
    return np.concatenate(parts)


@lru_cache(maxsize=16)  # members of a committee need the same rows one after the other
def _noise_block(seed: int, block: int, scores: int, draws: int) -> Float[np.ndarray, "row score draw"]:
    return np.random.default_rng([seed, block]).standard_normal((NOISE_ROWS, scores, draws), np.float32)
