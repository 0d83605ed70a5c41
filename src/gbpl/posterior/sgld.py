"""Stochastic gradient Langevin dynamics (appendix, "Stochastic Gradient Langevin Dynamics").

    w_{t+1} = w_t - (eps_t / 2) grad Phi_hat_t(w_t) + sqrt(eps_t) xi_t,    xi_t ~ N(0, I),

with Phi_hat_t the potential on a minibatch, scaled to the full sample. There is no accept step: the draws have a
bias that grows with eps. On a Gaussian of precision lambda and with all rows in the batch their variance is
1 / (lambda (1 - eps lambda / 4)), and they diverge from eps lambda = 4 on.
"""

from __future__ import annotations

import functools
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.models.base import ScoreModel
from gbpl.models.prior import squared_norm
from gbpl.posterior.chains import (
    all_finite,
    assess,
    chain_keys,
    check_at_least,
    interleave,
    require,
    summaries,
    traced,
)
from gbpl.posterior.problem import MemberPosterior, PosteriorError, Problem
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array, Float, Int

__all__ = ["SGLD"]


class SGLD(MemberPosterior):
    """Draws by SGLD from the MAP, in `chains` chains at once; the defaults are the paper's, except for the chains.

    `step_size` is the paper's eps. BlackJAX's kernel steps by h grad log density + sqrt(2 h) xi, so that h = eps / 2;
    this class makes the conversion. `decay` > 0 lets the step fall as (1 + t / burn_in)^(-decay). `clip_norm` is
    the largest norm of the minibatch gradient of Phi_hat, which is scaled to the full sample. A chain takes
    `burn_in` steps, then keeps every `thin`-th. Draws interleave the chains: a shorter sample with the same seed is
    the beginning of a longer one.

    After `sample`, `diagnostics` has R-hat, effective sample sizes, and the chains for export (`to_arviz`).
    """

    method: ClassVar[str] = "sgld"

    def __init__(
        self,
        problem: Problem,
        *,
        step_size: float = 2e-5,
        burn_in: int = 1200,
        thin: int = 8,
        batch_size: int = 128,
        chains: int = 4,
        clip_norm: float | None = None,
        decay: float = 0.0,
    ) -> None:
        super().__init__(problem)
        check_at_least(1, thin=thin, batch_size=batch_size, chains=chains)
        check_at_least(0, burn_in=burn_in)
        if not 0 < step_size < math.inf:
            raise PosteriorError(f"step_size must be > 0 and finite, got {step_size}; the paper's is 2e-5")
        if clip_norm is not None and not clip_norm > 0:
            raise PosteriorError(f"clip_norm must be > 0, got {clip_norm}; leave it out for no clipping")
        if not 0 <= decay < math.inf:
            raise PosteriorError(f"decay must be >= 0, got {decay}; 0 keeps the step constant")
        self.step_size, self.burn_in, self.thin, self.batch_size = step_size, burn_in, thin, batch_size
        self.chains, self.clip_norm, self.decay = chains, clip_norm, decay
        self._diagnostics: dict[str, Any] = {}

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """Quality of the latest draws; empty before `sample`."""
        return self._diagnostics

    def sample(self, draws: int, *, seed: int) -> Any:
        check_at_least(1, draws=draws)
        require("blackjax")
        kept = -(-draws // self.chains)
        chain_draws = self._chains(chain_keys(seed, self.chains), kept)
        summary = summaries(self.problem, chain_draws)
        if not all_finite(chain_draws, summary):
            raise PosteriorError(
                f"SGLD with step_size={self.step_size:g} and clip_norm={self.clip_norm} ran away: its draws are not "
                f"finite; use a smaller step_size, such as {self.step_size / 10:g}, or set clip_norm"
            )
        quality = assess(summary, chain_draws)
        self._diagnostics = {
            **asdict(quality),
            "chains": self.chains,
            "kept": kept,
            "step_size": self.step_size,
            "chain_draws": chain_draws,
            "sample_stats": {"lp": summary[..., -1]},
        }
        quality.warn_if_poor(
            f"SGLD ran {self.chains} chains of {kept} draws with step_size={self.step_size:g}, "
            f"burn_in={self.burn_in}, thin={self.thin}: a larger step_size, thin or burn_in mixes better (a larger "
            "step_size at the price of bias), and more draws raise the effective sample size"
        )
        return interleave(chain_draws, draws)

    def _chains(self, keys: Array, kept: int) -> Any:
        """Chains of `kept` draws, one per key."""
        clip_norm = math.inf if self.clip_norm is None else self.clip_norm
        chain_draws = _run(
            keys,
            traced(self.problem),
            {"step_size": self.step_size, "decay": self.decay, "clip_norm": clip_norm},
            model=self.problem.model,
            surrogate=self.problem.surrogate,
            burn_in=self.burn_in,
            thin=self.thin,
            batch=min(self.batch_size, len(self.problem)),
            kept=kept,
        )
        return jax.tree.map(np.asarray, chain_draws)


def minibatch_gradient(problem: Problem, params: Any, rows: Int[Array, " row"]) -> Any:
    """Gradient of Phi_hat(w) = (n / batch) eta sum_{i in rows} weight_i loss(w; z_i) + |w|^2 / (2 prior_sd^2)."""
    x, target = jnp.asarray(problem.x)[rows], jnp.asarray(problem.target)[rows]
    weights = 1.0 if problem.weights is None else jnp.asarray(problem.weights)[rows]
    scale = problem.eta * (len(problem) / len(rows))

    def potential(w: Any) -> Float[Array, ""]:
        return scale * jnp.sum(weights * problem.row_losses(w, x, target)) - problem.log_prior(w)

    return jax.grad(potential)(params)


def clip_by_norm(gradient: Any, limit: float | Array) -> Any:
    """The gradient, shortened to norm `limit` if it is longer."""
    norm = jnp.sqrt(squared_norm(gradient))
    return jax.tree.map(lambda leaf: leaf * jnp.where(norm > limit, limit / norm, 1.0), gradient)


def step_at(t: int | Array, step_size: float | Array, decay: float | Array, burn_in: int) -> Float[Array, ""]:
    """eps_t = step_size (1 + t / burn_in)^(-decay)."""
    return step_size * (1.0 + jnp.asarray(t) / max(burn_in, 1)) ** (-decay)


@functools.partial(jax.jit, static_argnames=("model", "surrogate", "burn_in", "thin", "batch", "kept"))
def _run(
    keys: Array,
    arrays: dict[str, Any],
    options: dict[str, float],
    *,
    model: ScoreModel,
    surrogate: Surrogate,
    burn_in: int,
    thin: int,
    batch: int,
    kept: int,
) -> Any:
    """Chains, one per key: a tree with axes (chain, draw, ...). The rows come in passes, each in a new order."""
    problem = Problem(model, surrogate, **arrays)
    n, per_pass = len(problem), len(problem) // batch

    def log_density_gradient(params: Any, rows: Array) -> Any:
        clipped = clip_by_norm(minibatch_gradient(problem, params, rows), options["clip_norm"])
        return jax.tree.map(jnp.negative, clipped)

    kernel = require("blackjax").sgld(log_density_gradient)

    def chain(key: Array) -> Any:
        for_order, for_noise = jax.random.split(key)

        def step(t: Array, state: tuple[Any, Array]) -> tuple[Any, Array]:
            params, order = state
            if batch < n:
                order = jax.lax.cond(
                    t % per_pass == 0,
                    lambda old: jax.random.permutation(jax.random.fold_in(for_order, t), old),
                    lambda old: old,
                    order,
                )
            rows = jax.lax.dynamic_slice_in_dim(order, (t % per_pass) * batch, batch)
            half = step_at(t, options["step_size"], options["decay"], burn_in) / 2.0  # BlackJAX's step: see SGLD
            return kernel.step(jax.random.fold_in(for_noise, t), params, rows, half), order

        def keep(state: tuple[Any, Array], first: Array) -> tuple[tuple[Any, Array], Any]:
            state = jax.lax.fori_loop(0, thin, lambda i, s: step(first + i, s), state)
            return state, state[0]

        warm = jax.lax.fori_loop(0, burn_in, step, (problem.params, jnp.arange(n)))
        return jax.lax.scan(keep, warm, burn_in + thin * jnp.arange(kept))[1]

    return jax.vmap(chain)(keys)
