"""Gaussian variational approximation: the minimiser of the paper's variational objective within a family (section 3).

J(Q) = eta E_Q[sum_i loss_i] + KL(Q || prior). The generalized posterior is its minimiser over all Q, and the gap of any
other Q is KL(Q || posterior); so values of J can be compared between families, and none is below the exact posterior's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gbpl.posterior.curvature import last_layer_draws, require_last_layer
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.problem import GaussianPosterior, PosteriorError, Problem, flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float

__all__ = ["Variational"]

FAMILIES = ("mean_field", "last_layer")


class Variational(GaussianPosterior):
    """The best Gaussian of a family: independent weights, or the last layer with full covariance."""

    method: ClassVar[str] = "variational"

    def __init__(
        self, problem: Problem, *, family: str = "mean_field", steps: int = 2000, samples: int = 4, batch: int = 512
    ) -> None:
        super().__init__(problem)
        if family not in FAMILIES:
            raise PosteriorError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
        self.full = family == "last_layer"
        if self.full:
            require_last_layer(problem.model, "variational")
            gaussian = LastLayer(problem)
            covariance = gaussian.covariance
            root = np.linalg.cholesky(covariance)
            spread = np.tril(root, -1) + np.diag(np.log(np.diag(root)))
            start = (gaussian.mean, spread)
        else:
            vector, self.form = flatten(problem.params)
            start = (vector, np.full(len(vector), np.log(0.05 * problem.prior_sd)))
        weight = np.ones(len(problem), np.float32) if problem.weights is None else problem.weights
        (mean, spread), values = _optimise(
            jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), start), problem.params,
            jnp.asarray(problem.x), jnp.asarray(problem.target), jnp.asarray(weight),
            (problem.zeta, problem.eta, problem.prior_sd), jax.random.key(problem.seed % 2**32),
            model=problem.model, surrogate=problem.surrogate, full=self.full, steps=steps, samples=samples, batch=batch,
        )  # fmt: skip
        self.mean, self.spread = np.asarray(mean, np.float64), np.asarray(spread, np.float64)
        if not (np.isfinite(self.mean).all() and np.isfinite(self.spread).all()):
            raise PosteriorError("the variational objective diverged; try more `samples`, or method='last_layer'")
        self.path = np.asarray(values)

    @property
    def root(self) -> Float[np.ndarray, "weight weight"]:
        """Lower root of the covariance (a diagonal for independent weights)."""
        if self.full:
            return np.tril(self.spread, -1) + np.diag(np.exp(np.diag(self.spread)))
        return np.diag(np.exp(self.spread))

    def relative_precision(self) -> tuple[float, float]:
        sd = self.problem.prior_sd
        if self.full:
            ratio = self.root @ self.root.T / sd**2
            return -float(np.linalg.slogdet(ratio)[1]), float(np.sum(np.diag(ratio) - 1.0))
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
        sd = problem.prior_sd
        trace = np.sum(self.root**2) if self.full else np.sum(np.exp(2 * self.spread))
        log_det = np.sum(np.diag(self.spread)) if self.full else np.sum(self.spread)
        kl = 0.5 * ((trace + np.sum(self.mean**2)) / sd**2 - len(self.mean)) - log_det + len(self.mean) * np.log(sd)
        return float(np.mean(values) + kl), float(np.std(values, ddof=1) / np.sqrt(draws))


@partial(jax.jit, static_argnames=("model", "surrogate", "full", "steps", "samples", "batch"))
def _optimise(
    start: tuple[Array, Array], params: Any, x: Array, target: Array, weight: Array, constants: tuple, key: Array,
    *, model: Any, surrogate: Any, full: bool, steps: int, samples: int, batch: int,
) -> tuple[tuple[Array, Array], Array]:  # fmt: skip
    """Adam on the reparameterised objective; rates fall to zero, the second half of the path is averaged."""
    zeta, eta, prior_sd = constants
    leaves, tree = jax.tree.flatten(params)

    def unravel(vector: Array) -> Any:
        """The whole model from the weights that are uncertain: all of them, or the last layer."""
        if full:
            count = params[-1]["weight"].shape[1]
            last = vector.reshape(-1, count)
            return [*params[:-1], {"weight": last[:-1], "bias": last[-1]}]
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True)]
        return jax.tree.unflatten(tree, parts)

    def objective(state: tuple[Array, Array], key: Array) -> Array:
        mean, spread = state
        k1, k2 = jax.random.split(key)
        noise = jax.random.normal(k1, (samples, mean.size))
        noise = jnp.concatenate([noise, -noise])  # antithetic
        if full:
            root = jnp.tril(spread, -1) + jnp.diag(jnp.exp(jnp.diag(spread)))
            draws, log_det, trace = mean + noise @ root.T, jnp.sum(jnp.diag(spread)), jnp.sum(root**2)
        else:
            sd = jnp.exp(spread)
            draws, log_det, trace = mean + noise * sd, jnp.sum(spread), jnp.sum(sd**2)
        rows = jax.random.randint(k2, (batch,), 0, len(x)) if batch < len(x) else jnp.arange(len(x))
        raw = jax.vmap(lambda v: model.apply(unravel(v), x[rows]))(draws)
        losses = jax.vmap(lambda r: surrogate.row_loss(r, target[rows], zeta))(raw)
        data = eta * len(x) * jnp.mean(losses * weight[rows])
        kl = 0.5 * ((trace + jnp.sum(mean**2)) / prior_sd**2 - mean.size) - log_det + mean.size * jnp.log(prior_sd)
        return data + kl

    optimizer = optax.adam(optax.cosine_decay_schedule(1.0, steps))
    scales = (jnp.exp(jnp.diag(start[1])) if full else jnp.exp(start[1]), 1.0)  # steps in units of the spread

    def step(carry: tuple, key: Array) -> tuple[tuple, Array]:
        state, moments, average, count = carry
        value, gradient = jax.value_and_grad(objective)(state, key)
        updates, moments = optimizer.update(gradient, moments, state)
        rate = 0.03
        state = (state[0] + rate * scales[0] * updates[0], state[1] + rate * updates[1] * (
            jnp.tril(jnp.broadcast_to(scales[0][:, None], state[1].shape), -1) + jnp.eye(len(state[0])) if full else 1.0
        ))  # fmt: skip
        taken = jnp.maximum(count - steps // 2, 0) + 1.0
        average = jax.tree.map(lambda a, s: a + (s - a) / taken, average, state)
        return (state, moments, average, count + 1), value

    (_, _, average, _), values = jax.lax.scan(
        step, (start, optimizer.init(start), start, jnp.zeros(())), jax.random.split(key, steps)
    )
    return average, values
