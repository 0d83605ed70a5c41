"""Gaussian variational approximation: the minimiser of the paper's variational objective within a family (section 3).

J(Q) = eta E_Q[sum_i loss_i] + KL(Q || prior). The generalized posterior is its minimiser over all Q, and the gap of any
other Q is KL(Q || posterior); so values of J can be compared between families, and none is below the exact posterior's.

Over the last layer, Q = N(m, L^{-1}) makes the raw outputs of a row Gaussian, with mean mu_i and covariance C_i: J is a
sum of small integrals, and its minimum is where m and L no longer change under the natural-gradient step

    L = I / prior_sd^2 + eta sum_i weight_i (2 dE_i / dC_i) (x) phi_i phi_i',     m -= L^{-1} dJ / dm.

For a squared loss and a linear score one step is the exact posterior. Over all weights J is a Monte Carlo average.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.linalg
from scipy.stats import norm, qmc

from gbpl.fitting.apply import filled
from gbpl.models.base import LastLayerModel
from gbpl.posterior.curvature import (
    features,
    last_layer,
    last_layer_draws,
    require_curvature,
    require_last_layer,
    training_blocks,
)
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.problem import GaussianPosterior, PosteriorError, Problem, flatten, unflatten
from gbpl.runtime.threads import few_threads

try:
    from jax import enable_x64
except ImportError:  # where it was before jax 0.8
    from jax.experimental import enable_x64  # type: ignore[attr-defined,no-redef]

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float

__all__ = ["Variational"]

FAMILIES = ("mean_field", "last_layer")
CLOSE = 1e-5  # of J, a divergence in nats, per weight: a step that gains less is the last
HALVINGS = 20
HERMITE = 32  # points of the integral of one raw output
QUASI = 64  # pairs of points of the integral of several


class Variational(GaussianPosterior):
    """The best Gaussian of a family: independent weights, or the last layer with full covariance.

    The default `family` is `"last_layer"` where the model has one, else `"mean_field"`: the independent weights of a
    wide network stay near the prior, and take hundreds of times as long. `steps` is the most that are taken; over the
    last layer a handful suffices. `samples` pairs of draws and `batch` rows per step are for `"mean_field"` alone.
    """

    method: ClassVar[str] = "variational"

    def __init__(
        self, problem: Problem, *, family: str | None = None, steps: int = 2000, samples: int = 4, batch: int = 512
    ) -> None:
        super().__init__(problem)
        if family is None:
            family = "last_layer" if isinstance(problem.model, LastLayerModel) else "mean_field"
        if family not in FAMILIES:
            raise PosteriorError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
        self.full = family == "last_layer"
        if self.full:
            require_last_layer(problem.model, "variational")
            remedy = "use family='mean_field', or method='sgld' or 'nuts'"
            require_curvature(problem.surrogate, "the last-layer family", remedy)
            self.mean, self._root, self.path = _last_layer_family(problem, steps)
            return
        vector, self.form = flatten(problem.params)
        start = (vector, np.full(len(vector), np.log(0.05 * problem.prior_sd)))
        weight = np.ones(len(problem), np.float32) if problem.weights is None else problem.weights
        (mean, spread), values = _mean_field(
            jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), start), problem.params,
            jnp.asarray(problem.x), jnp.asarray(problem.target), jnp.asarray(weight),
            (problem.zeta, problem.eta, problem.prior_sd), jax.random.key(problem.seed % 2**32),
            model=problem.model, surrogate=problem.surrogate, steps=steps, samples=samples, batch=batch,
        )  # fmt: skip
        self.mean, self.spread = np.asarray(mean, np.float64), np.asarray(spread, np.float64)
        if not (np.isfinite(self.mean).all() and np.isfinite(self.spread).all()):
            raise PosteriorError("the variational objective diverged; try more `samples`, or method='last_layer'")
        self.path = np.asarray(values)

    @property
    def root(self) -> Float[np.ndarray, "weight weight"]:
        """Lower root of the covariance (a diagonal for independent weights)."""
        return self._root if self.full else np.diag(np.exp(self.spread))

    def relative_precision(self) -> tuple[float, float]:
        sd = self.problem.prior_sd
        if self.full:
            log_det = -2.0 * float(np.sum(np.log(np.diag(self.root) / sd)))
            return log_det, float(np.sum(self.root**2)) / sd**2 - len(self.mean)
        ratio = np.exp(2.0 * self.spread) / sd**2
        return -float(np.sum(np.log(ratio))), float(np.sum(ratio - 1.0))

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        value, error = self.objective()
        return {"objective": value, "objective_se": error}

    def sample(self, draws: int, *, seed: int) -> Any:
        noise = np.random.default_rng(seed).standard_normal((draws, len(self.mean)))
        if not self.full:
            return unflatten(self.mean + noise * np.exp(self.spread), self.form)
        return last_layer_draws(self.problem, self.mean + noise @ self.root.T)

    def raw(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "draw row raw"]:
        if not self.full:
            return super().raw(params, x)
        basis = features(self.problem.params, x, model=self.problem.model)
        return jnp.einsum("nb,dbk->dnk", basis, last_layer(params))

    def objective(self, *, draws: int = 512, seed: int = 0) -> tuple[float, float]:
        """J(Q) with the full loss, and its Monte Carlo standard error; the KL term is exact."""
        problem = self.problem
        params = self.sample(draws, seed=seed)
        weight = 1.0 if problem.weights is None else problem.weights
        raw = self.raw(jax.tree.map(jnp.asarray, params), jnp.asarray(problem.x))
        values = [
            float(problem.eta * np.sum(weight * np.asarray(
                problem.surrogate.loss(problem.surrogate.scores(r), problem.target, problem.zeta), np.float64
            )))
            for r in raw
        ]  # fmt: skip
        log_det, trace = self.relative_precision()
        kl = 0.5 * (log_det + trace + float(np.sum(self.mean**2)) / problem.prior_sd**2)
        return float(np.mean(values) + kl), float(np.std(values, ddof=1) / np.sqrt(draws))


# -- the last layer ---------------------------------------------------------------------------------------------------


class _Point(NamedTuple):
    """A Gaussian over the last layer, J there, and what a natural-gradient step from it needs."""

    mean: Float[np.ndarray, " weight"]
    precision: Float[np.ndarray, "weight weight"]
    covariance: Float[np.ndarray, "weight weight"]
    value: float
    gradient: Float[np.ndarray, " weight"]  # of J, in the mean
    wanted: Float[np.ndarray, "weight weight"]  # precision that the curvature of J at this Gaussian asks for


def _last_layer_family(problem: Problem, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and lower root of the covariance of the best Gaussian, and J along the way."""
    start = LastLayer(problem)
    with few_threads(len(start.mean)), enable_x64(True):
        here = _point(problem, start.mean, start.root @ start.root.T)
        path = [here.value]
        for _ in range(steps):
            there = _step(problem, here)
            if there is None:
                break
            gain, here = here.value - there.value, there
            path.append(here.value)
            if gain < CLOSE * len(here.mean):
                break
        return here.mean, np.linalg.cholesky(here.covariance), np.array(path)


def _step(problem: Problem, here: _Point) -> _Point | None:
    """The natural-gradient step, halved until it is one down; None where none is."""
    direction, change = here.covariance @ here.gradient, here.wanted - here.precision
    for halving in range(HALVINGS):
        rate = 0.5**halving
        try:
            there = _point(problem, here.mean - rate * direction, here.precision + rate * change)
        except np.linalg.LinAlgError:  # the curvature of a squashed loss may be negative
            continue
        if there.value < here.value:
            return there
    return None


def _point(problem: Problem, mean: np.ndarray, precision: np.ndarray) -> _Point:
    """J (less the loss of score zero) and its derivatives, one pass over the rows in blocks."""
    count, sd, size = problem.surrogate.n_raw, problem.prior_sd, len(mean)
    factor = scipy.linalg.cholesky(precision, lower=True)
    covariance = np.tril(scipy.linalg.lapack.dpotri(factor, lower=1)[0])
    covariance += np.tril(covariance, -1).T
    by_raw = covariance.reshape(-1, count, size // count, count)
    value, gradient = 0.0, mean / sd**2
    wanted = np.zeros_like(by_raw)
    points, shares = _points(count)
    pairs = [(k, other) for k in range(count) for other in range(k + 1)]
    for block in training_blocks(problem):
        phi = np.asarray(block.basis, np.float64)[block.kept]
        spread = np.tile(np.eye(count), (len(block.target), 1, 1))  # of the rows that fill the block, anything
        for k, other in pairs:
            found = np.einsum("nb,nb->n", phi @ by_raw[:, k, :, other], phi)
            spread[block.kept, k, other] = spread[block.kept, other, k] = found
        at = filled(phi @ mean.reshape(-1, count), len(block.target))
        parts = _expected_loss(at, spread, block.target, points, shares, problem.zeta, surrogate=problem.surrogate)
        expected, by_mean, by_spread = (np.asarray(part)[block.kept] for part in parts)
        weight = problem.eta * np.asarray(block.weight, np.float64)[block.kept]
        value += float(weight @ expected)
        gradient = gradient + (phi.T @ (weight[:, None] * by_mean)).ravel()
        for k, other in pairs:
            wanted[:, k, :, other] += 2.0 * (phi * (weight * by_spread[:, k, other])[:, None]).T @ phi
    for k, other in pairs:
        wanted[:, other, :, k] = wanted[:, k, :, other].T
    log_det = 2.0 * float(np.sum(np.log(np.diag(factor))))
    kl = 0.5 * ((np.trace(covariance) + mean @ mean) / sd**2 - size + log_det) + size * np.log(sd)
    target = wanted.reshape(size, size) + np.eye(size) / sd**2
    return _Point(mean, precision, covariance, value + float(kl), gradient, target)


@cache
def _points(count: int) -> tuple[Float[np.ndarray, "point raw"], Float[np.ndarray, " point"]]:
    """Points and weights of an average under N(0, I); quadratics are averaged exactly."""
    if count == 1:
        at, weight = np.polynomial.hermite_e.hermegauss(HERMITE)
        return at[:, None], weight / weight.sum()
    points = norm.ppf(qmc.Sobol(count, seed=0).random(QUASI) * (1.0 - 1e-6) + 5e-7)
    points = np.concatenate([points, -points])
    root = np.linalg.cholesky(points.T @ points / len(points))
    return points @ np.linalg.inv(root).T, np.full(len(points), 1.0 / len(points))


@partial(jax.jit, static_argnames="surrogate")
def _expected_loss(
    mean: Array, spread: Array, target: Array, points: Array, shares: Array, zeta: float, *, surrogate: Any
) -> tuple[Float[Array, " row"], Float[Array, "row raw"], Float[Array, "row raw raw"]]:
    """E loss of each row whose raw outputs are N(mean, spread), and its derivatives in both."""

    def row(at: Array, around: Array, aim: Array) -> Array:
        root = jnp.sqrt(around) if around.size == 1 else jnp.linalg.cholesky(around)
        return shares @ surrogate.row_loss(at + points @ root.T, jnp.broadcast_to(aim, (len(points), aim.size)), zeta)

    values, (by_mean, by_spread) = jax.vmap(jax.value_and_grad(row, argnums=(0, 1)))(mean, spread, target)
    return values, by_mean, by_spread


# -- all weights, independent -----------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("model", "surrogate", "steps", "samples", "batch"))
def _mean_field(
    start: tuple[Array, Array], params: Any, x: Array, target: Array, weight: Array, constants: tuple, key: Array,
    *, model: Any, surrogate: Any, steps: int, samples: int, batch: int,
) -> tuple[tuple[Array, Array], Array]:  # fmt: skip
    """Adam on the reparameterised objective; rates fall to zero, the second half of the path is averaged."""
    zeta, eta, prior_sd = constants
    leaves, tree = jax.tree.flatten(params)

    def unravel(vector: Array) -> Any:
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True)]
        return jax.tree.unflatten(tree, parts)

    def objective(state: tuple[Array, Array], key: Array) -> Array:
        mean, spread = state
        k1, k2 = jax.random.split(key)
        noise = jax.random.normal(k1, (samples, mean.size))
        noise = jnp.concatenate([noise, -noise])  # antithetic
        sd = jnp.exp(spread)
        draws, log_det, trace = mean + noise * sd, jnp.sum(spread), jnp.sum(sd**2)
        rows = jax.random.randint(k2, (batch,), 0, len(x)) if batch < len(x) else jnp.arange(len(x))
        raw = jax.vmap(lambda v: model.apply(unravel(v), x[rows]))(draws)
        losses = jax.vmap(lambda r: surrogate.row_loss(r, target[rows], zeta))(raw)
        data = eta * len(x) * jnp.mean(losses * weight[rows])
        kl = 0.5 * ((trace + jnp.sum(mean**2)) / prior_sd**2 - mean.size) - log_det + mean.size * jnp.log(prior_sd)
        return data + kl

    optimizer = optax.adam(optax.cosine_decay_schedule(1.0, steps))
    scale = jnp.exp(start[1])  # steps in units of the spread

    def step(carry: tuple, key: Array) -> tuple[tuple, Array]:
        state, moments, average, count = carry
        value, gradient = jax.value_and_grad(objective)(state, key)
        updates, moments = optimizer.update(gradient, moments, state)
        rate = 0.03
        state = (state[0] + rate * scale * updates[0], state[1] + rate * updates[1])
        taken = jnp.maximum(count - steps // 2, 0) + 1.0
        average = jax.tree.map(lambda a, s: a + (s - a) / taken, average, state)
        return (state, moments, average, count + 1), value

    (_, _, average, _), values = jax.lax.scan(
        step, (start, optimizer.init(start), start, jnp.zeros(())), jax.random.split(key, steps)
    )
    return average, values
