"""Scores and policies of fitted members (or posterior draws, which are members) on any number of rows.

Rows pass in blocks of fixed shape, so memory stays bounded, compiled functions are reused whatever the number of
rows, and a row's result does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.models import ScoreModel
from gbpl.surrogates import Surrogate, project_simplex

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = [
    "combined_deviation", "combined_policy", "member_outputs", "member_policies", "policy_of_deviation", "row_blocks",
]  # fmt: skip

BLOCK = 2048


def row_blocks(x: Float[np.ndarray, "row feature"]) -> Iterator[tuple[slice, Float[np.ndarray, "block feature"]]]:
    """Row slices and their features, padded to a power of two so that few shapes are ever compiled."""
    size = min(BLOCK, max(64, 1 << (len(x) - 1).bit_length()))
    for start in range(0, len(x), size):
        part = np.asarray(x[start : start + size], np.float32)
        yield slice(start, start + len(part)), np.pad(part, ((0, size - len(part)), (0, 0)))


def _over_rows(
    compute: Callable[[Array], Array], x: Float[np.ndarray, "row feature"], axis: int
) -> Float[np.ndarray, "..."]:
    """Apply to blocks of rows and join along the row axis of the result."""
    out: np.ndarray | None = None
    for rows, part in row_blocks(x):
        result = np.asarray(compute(jnp.asarray(part)))
        if out is None:
            shape = list(result.shape)
            shape[axis] = len(x)
            out = np.empty(shape, result.dtype)
        index = [slice(None)] * result.ndim
        index[axis] = slice(0, rows.stop - rows.start)
        place = [slice(None)] * result.ndim
        place[axis] = rows
        out[tuple(place)] = result[tuple(index)]
    assert out is not None
    return out


@partial(jax.jit, static_argnames="model")
def _outputs(params: Any, x: Array, *, model: ScoreModel) -> Float[Array, "member row raw"]:
    return jax.vmap(lambda p: model.apply(p, x))(params)


@partial(jax.jit, static_argnames=("model", "surrogate"))
def _policies(params: Any, x: Array, *, model: ScoreModel, surrogate: Surrogate) -> Float[Array, "member row action"]:
    return jax.vmap(lambda p: surrogate.policy(surrogate.scores(model.apply(p, x))))(params)


@partial(jax.jit, static_argnames=("model", "surrogate"))
def _deviation(
    params: Any, weights: Array, x: Array, *, model: ScoreModel, surrogate: Surrogate
) -> Float[Array, "row action"]:
    policies = _policies(params, x, model=model, surrogate=surrogate)
    return jnp.tensordot(weights, policies - 1.0 / surrogate.n_actions, axes=1)


@jax.jit
def _projected(deviation: Array) -> Float[Array, "row action"]:
    return project_simplex(1.0 / deviation.shape[1] + deviation)


def member_outputs(
    model: ScoreModel, params: Any, x: Float[np.ndarray, "row feature"]
) -> Float[np.ndarray, "member row raw"]:
    """Raw output of every member on every row."""
    device_params = jax.device_put(params)
    return _over_rows(lambda part: _outputs(device_params, part, model=model), x, axis=1)


def member_policies(
    model: ScoreModel, surrogate: Surrogate, params: Any, x: Float[np.ndarray, "row feature"]
) -> Float[np.ndarray, "member row action"]:
    """Policy of every member on every row."""
    device_params = jax.device_put(params)
    return _over_rows(lambda part: _policies(device_params, part, model=model, surrogate=surrogate), x, axis=1)


def combined_deviation(
    model: ScoreModel,
    surrogate: Surrogate,
    params: Any,
    weights: Float[np.ndarray, " member"],
    x: Float[np.ndarray, "row feature"],
) -> Float[np.ndarray, "row action"]:
    """Weighted deviation of many members from uniform, sum_m weight_m (delta_m - 1/K)."""
    device_params, device_weights = jax.device_put((params, np.asarray(weights, np.float32)))
    return _over_rows(
        lambda part: _deviation(device_params, device_weights, part, model=model, surrogate=surrogate), x, axis=0
    )


def policy_of_deviation(deviation: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
    """The simplex projection of 1/K + deviation, which keeps the order of the actions.

    With weights that sum to one the policy is the members' mixture.
    """
    return _over_rows(_projected, deviation, axis=0)


def combined_policy(
    model: ScoreModel,
    surrogate: Surrogate,
    params: Any,
    weights: Float[np.ndarray, " member"],
    x: Float[np.ndarray, "row feature"],
) -> Float[np.ndarray, "row action"]:
    """Weighted policy of many members."""
    return policy_of_deviation(combined_deviation(model, surrogate, params, weights, x))
