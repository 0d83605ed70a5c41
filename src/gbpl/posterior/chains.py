"""Chains of draws: how far to trust them, and how to export them (appendix on posterior sampling).

SGLD and NUTS share this module. Chains are a tree of arrays with leading axes (chain, draw). They are assessed by what
the draws are used for: the log density on all rows and the raw outputs at some training rows. The weights of a
network are not identified (hidden units may swap places), so their figures are reported but cause no warning.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.models.base import ScoreModel
from gbpl.posterior.problem import PosteriorError, PosteriorWarning, Problem
from gbpl.runtime.warn import warn
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["ChainQuality", "assess", "summaries", "to_arviz"]

RHAT_LIMIT = 1.1
ESS_LIMIT = 50.0
FEWEST_DRAWS = 4  # per chain: two in each half
SUMMARY_ROWS = 20
SUMMARY_WEIGHTS = 1000
TRACED = ("x", "target", "weights", "zeta", "eta", "prior_sd", "params")


@dataclass(frozen=True, slots=True)
class ChainQuality:
    """Largest split R-hat and smallest effective sample size: of the summaries, and of (up to 1000) weights.

    NaN with fewer than four draws per chain.
    """

    max_rhat: float = float("nan")
    min_ess: float = float("nan")
    max_rhat_weights: float = float("nan")
    min_ess_weights: float = float("nan")

    def warn_if_poor(self, remedy: str) -> None:
        """Warn if the chains have not mixed; NaN gives no warning."""
        if self.max_rhat > RHAT_LIMIT or self.min_ess < ESS_LIMIT:
            warn(
                f"the chains have not mixed, or the draws are too few: largest R-hat {self.max_rhat:.3g} (should be "
                f"<= {RHAT_LIMIT}), smallest effective sample size {self.min_ess:.3g} (should be >= {ESS_LIMIT:.0f}); "
                f"{remedy}",
                PosteriorWarning,
            )


def require(module: str) -> Any:
    """A module that may not be installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise PosteriorError(f"{package} is not installed, and this needs it: pip install {package}") from error


def check_at_least(least: int, **options: int) -> None:
    """Refuse options of a sampler that are not whole numbers of at least `least`."""
    for name, value in options.items():
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
            raise PosteriorError(f"{name} must be a whole number >= {least}, got {value!r}")


def traced(problem: Problem) -> dict[str, Any]:
    """The parts of a problem that a compiled function takes as arguments, so that members share one compilation.

    Inside it `Problem(model, surrogate, **traced)` is the problem again. Float32, or float64 where JAX has x64 on.
    """
    dtype = jnp.result_type(float)
    return {name: jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), getattr(problem, name)) for name in TRACED}


def chain_keys(seed: int, chains: int) -> Array:
    """One key per chain; those of the first chains do not depend on how many there are."""
    return jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), jnp.arange(chains))


def interleave(chain_draws: Any, draws: int) -> Any:
    """The first draw of every chain, the second of every chain, ...: `draws` of them, float32."""
    return jax.tree.map(
        lambda leaf: np.swapaxes(leaf, 0, 1).reshape(-1, *leaf.shape[2:])[:draws].astype(np.float32), chain_draws
    )


@functools.partial(jax.jit, static_argnames=("model", "surrogate"))
def _summaries(chain_draws: Any, arrays: dict[str, Any], *, model: ScoreModel, surrogate: Surrogate) -> Array:
    problem = Problem(model, surrogate, **arrays)
    some = problem.x[np.unique(np.linspace(0, len(problem) - 1, SUMMARY_ROWS).astype(int))]

    def one(params: Any) -> Array:
        return jnp.append(model.apply(params, some), problem.log_density(params))

    lead = jax.tree.leaves(chain_draws)[0].shape[:2]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chain_draws)
    return jax.lax.map(one, flat).reshape(*lead, -1)  # one draw at a time: all rows of all draws may be too many


def summaries(problem: Problem, chain_draws: Any) -> Float[np.ndarray, "chain draw quantity"]:
    """Raw outputs at up to 20 training rows and, last, the log density on all rows (without its constant)."""
    return np.asarray(_summaries(chain_draws, traced(problem), model=problem.model, surrogate=problem.surrogate))


def all_finite(*trees: Any) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(trees))


@functools.cache
def _statistics() -> Callable[[Array], tuple[Array, Array]]:
    blackjax = require("blackjax.diagnostics")

    @jax.jit
    def statistics(values: Array) -> tuple[Array, Array]:
        half = values.shape[1] // 2  # split chains also show a drift that all chains share
        split = jnp.concatenate([values[:, :half], values[:, -half:]])
        rhat = jnp.max(jnp.nan_to_num(blackjax.potential_scale_reduction(split), nan=jnp.inf))
        return rhat, jnp.min(blackjax.effective_sample_size(values))

    return statistics


def _worst(values: Float[np.ndarray, "chain draw quantity"]) -> tuple[float, float]:
    """Largest split R-hat and smallest effective sample size, of standardised values: float32 keeps its digits."""
    centred = values.astype(np.float64) - values.mean((0, 1), dtype=np.float64)
    spread = centred.std((0, 1))
    rhat, ess = _statistics()(jnp.asarray(centred / np.where(spread > 0, spread, 1.0), jnp.result_type(float)))
    return float(rhat), float(ess)


def assess(summary: Float[np.ndarray, "chain draw quantity"], chain_draws: Any) -> ChainQuality:
    """R-hat and effective sample size (BlackJAX's) of finite chains."""
    if summary.shape[1] < FEWEST_DRAWS:
        return ChainQuality()
    weights = np.concatenate([np.reshape(leaf, (*leaf.shape[:2], -1)) for leaf in jax.tree.leaves(chain_draws)], 2)
    some = np.unique(np.linspace(0, weights.shape[2] - 1, SUMMARY_WEIGHTS).astype(int))
    return ChainQuality(*_worst(summary), *_worst(weights[:, :, some]))


def to_arviz(chain_draws: Any, *, sample_stats: Mapping[str, np.ndarray] | None = None) -> Any:
    """An ArviZ InferenceData (a DataTree from ArviZ 1 on) of a tree with axes (chain, draw, ...).

    A variable is named by its place in the tree: `0.weight` is the weight of the first layer. With a sampler:
    `to_arviz(posterior.diagnostics["chain_draws"], sample_stats=posterior.diagnostics["sample_stats"])`.
    """
    arviz = require("arviz")
    leaves = jax.tree_util.tree_flatten_with_path(chain_draws)[0]
    groups = {"posterior": {_name(path): np.asarray(leaf) for path, leaf in leaves}}
    if sample_stats:
        groups["sample_stats"] = {name: np.asarray(values) for name, values in sample_stats.items()}
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        return arviz.from_dict(**groups)
    return arviz.from_dict(groups)  # ArviZ 1: one mapping of groups


def _name(path: tuple[Any, ...]) -> str:
    parts = (getattr(entry, "key", getattr(entry, "idx", getattr(entry, "name", entry))) for entry in path)
    return ".".join(map(str, parts)) or "weights"
