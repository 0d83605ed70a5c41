"""The no-U-turn sampler: draws without SGLD's bias, for small models and as a yardstick (section 3).

Hoffman and Gelman (2014), with Stan's window adaptation of step size and diagonal mass matrix, by BlackJAX.
"""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.models.base import ScoreModel
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
from gbpl.posterior.problem import MemberPosterior, PosteriorError, PosteriorWarning, Problem
from gbpl.runtime.warn import warn
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Array

__all__ = ["NUTS"]

JITTER = 0.01  # standard deviation of a chain's start around the MAP
SHORTEST_WARMUP = 20  # BlackJAX adapts no mass matrix in fewer steps


class NUTS(MemberPosterior):
    """Draws by NUTS, in `chains` chains at once, each with its own warmup, started at the MAP with a small jitter.

    Every step takes the gradient on all rows, up to 1023 times: for models of up to `max_weights` weights.
    Draws interleave the chains. After `sample`, `diagnostics` has R-hat, effective sample sizes, the number of
    divergences, the mean acceptance rate, and the chains for export (`to_arviz`).
    """

    method: ClassVar[str] = "nuts"

    def __init__(
        self,
        problem: Problem,
        *,
        warmup: int = 500,
        chains: int = 2,
        target_acceptance: float = 0.8,
        max_weights: int = 2000,
    ) -> None:
        super().__init__(problem)
        check_at_least(1, chains=chains, max_weights=max_weights)
        check_at_least(SHORTEST_WARMUP, warmup=warmup)
        if not 0 < target_acceptance < 1:
            raise PosteriorError(f"target_acceptance must be between 0 and 1, got {target_acceptance}; try 0.8")
        count = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(problem.params))
        if count > max_weights:
            raise PosteriorError(
                f"NUTS is for models of up to max_weights={max_weights} weights, and this one has {count}; use "
                "'last_layer', 'laplace' or 'sgld', or raise max_weights if you have the time"
            )
        self.warmup, self.chains, self.target_acceptance = warmup, chains, target_acceptance
        self._diagnostics: dict[str, Any] = {}

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """Quality of the latest draws; empty before `sample`."""
        return self._diagnostics

    def sample(self, draws: int, *, seed: int) -> Any:
        check_at_least(1, draws=draws)
        require("blackjax")
        kept = -(-draws // self.chains)
        chain_draws, stats, step_size = self._chains(chain_keys(seed, self.chains), kept)
        summary = summaries(self.problem, chain_draws)
        if not all_finite(chain_draws, summary):
            raise PosteriorError(
                "NUTS found no finite log density: check that the MAP, the features and the targets are finite, and "
                f"that prior_sd={self.problem.prior_sd} and eta={self.problem.eta} are what you mean"
            )
        quality, divergences = assess(summary, chain_draws), int(stats["diverging"].sum())
        self._diagnostics = {
            **asdict(quality),
            "chains": self.chains,
            "kept": kept,
            "step_size": step_size,
            "divergences": divergences,
            "mean_acceptance": float(stats["acceptance_rate"].mean()),
            "chain_draws": chain_draws,
            "sample_stats": stats,
        }
        quality.warn_if_poor(
            f"NUTS ran {self.chains} chains of {kept} draws after warmup={self.warmup}: raise warmup, or ask for more "
            "draws"
        )
        if divergences:
            warn(
                f"{divergences} of the {self.chains * kept} draws of NUTS diverged: parts of the posterior are missed; "
                f"raise target_acceptance (now {self.target_acceptance}) towards 1, or use a smaller prior_sd",
                PosteriorWarning,
            )
        return interleave(chain_draws, draws)

    def _chains(self, keys: Array, kept: int) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
        """Chains of `kept` draws, one per key, with their statistics and step sizes."""
        result = _run(
            keys,
            traced(self.problem),
            model=self.problem.model,
            surrogate=self.problem.surrogate,
            warmup=self.warmup,
            kept=kept,
            target_acceptance=self.target_acceptance,
        )
        return jax.tree.map(np.asarray, result)


@functools.partial(jax.jit, static_argnames=("model", "surrogate", "warmup", "kept", "target_acceptance"))
def _run(
    keys: Array,
    arrays: dict[str, Any],
    *,
    model: ScoreModel,
    surrogate: Surrogate,
    warmup: int,
    kept: int,
    target_acceptance: float,
) -> tuple[Any, dict[str, Array], Array]:
    """Draws (a tree with axes (chain, draw, ...)), statistics of each draw, and the step size of each chain."""
    blackjax, tuning = require("blackjax"), require("blackjax.adaptation.base")
    problem = Problem(model, surrogate, **arrays)
    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        problem.log_density,
        target_acceptance_rate=target_acceptance,
        adaptation_info_fn=tuning.get_filter_adapt_info_fn(),  # keeps nothing of the warmup
    )

    def chain(key: Array) -> tuple[Any, dict[str, Array], Array]:
        for_start, for_warmup, for_draws = jax.random.split(key, 3)
        leaves, tree = jax.tree.flatten(problem.params)
        jitters = [
            JITTER * jax.random.normal(k, leaf.shape, leaf.dtype)
            for k, leaf in zip(jax.random.split(for_start, len(leaves)), leaves, strict=True)
        ]
        start = jax.tree.unflatten(tree, [leaf + jitter for leaf, jitter in zip(leaves, jitters, strict=True)])
        (state, tuned), _ = adaptation.run(for_warmup, start, num_steps=warmup)
        kernel = blackjax.nuts(problem.log_density, **tuned)

        def step(state: Any, t: Array) -> tuple[Any, tuple[Any, dict[str, Array]]]:
            state, info = kernel.step(jax.random.fold_in(for_draws, t), state)
            stats = {
                "lp": state.logdensity,
                "diverging": info.is_divergent,
                "acceptance_rate": info.acceptance_rate,
                "n_steps": info.num_integration_steps,
            }
            return state, (state.position, stats)

        draws, stats = jax.lax.scan(step, state, jnp.arange(kept))[1]
        return draws, stats, tuned["step_size"]

    return jax.vmap(chain)(keys)
