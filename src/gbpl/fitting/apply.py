"""Scores and policies of fitted members (or posterior draws, which are members) on any number of rows.

Rows pass in blocks of fixed shape, so memory stays bounded, compiled functions are reused whatever the number of
rows, and a row's result does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.models.base import LastLayerModel, ScoreModel
from gbpl.models.mixture import Mixed, Mixture, by_model
from gbpl.runtime.devices import quick_jit
from gbpl.surrogates import Surrogate, project_simplex

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = [
    "Mixed", "Mixture", "combined_deviation", "filled",
    "has_last_layer", "member_outputs", "member_policies", "one_member", "policy_of_deviation", "row_blocks", "taken",
]  # fmt: skip

BLOCK = 2048


def has_last_layer(model: ScoreModel | Mixture) -> bool:
    """Whether the raw outputs of all models are linear in a last layer."""
    models = model.models if isinstance(model, Mixture) else (model,)
    return all(isinstance(one, LastLayerModel) for one in models)


def taken(params: Any, chosen: Sequence[int] | Int[np.ndarray, " chosen"]) -> Any:
    """Parameters of some members, in the given order."""
    numbers = np.asarray(chosen, int)
    if not isinstance(params, Mixed):
        return jax.tree.map(lambda leaf: leaf[numbers], params)
    owner = params.owner[numbers]
    parts = (
        taken(part, np.searchsorted(params.members_of(place), numbers[owner == place]))
        for place, part in enumerate(params.parts)
    )
    return Mixed(owner, tuple(parts))


def one_member(model: ScoreModel | Mixture, params: Any, number: int) -> tuple[ScoreModel, Any]:
    """The model of a member, and its parameters without the member axis."""
    ((one, part, _),) = by_model(model, taken(params, [number]))
    return one, jax.tree.map(lambda leaf: leaf[0], part)


def filled(values: np.ndarray, size: int) -> np.ndarray:
    """The rows given, and zeros below them up to `size` rows."""
    return np.pad(values, ((0, size - len(values)), *[(0, 0)] * (values.ndim - 1)))


def row_blocks(x: Float[np.ndarray, "row feature"]) -> Iterator[tuple[slice, Float[np.ndarray, "block feature"]]]:
    """Row slices and their features, padded to a power of two so that few shapes are ever compiled."""
    size = min(BLOCK, max(64, 1 << (len(x) - 1).bit_length()))
    for start in range(0, len(x), size):
        part = np.asarray(x[start : start + size], np.float32)
        yield slice(start, start + len(part)), filled(part, size)


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


@partial(quick_jit, static_argnames="model")
def _outputs(params: Any, x: Array, *, model: ScoreModel) -> Float[Array, "member row raw"]:
    return jax.vmap(lambda p: model.apply(p, x))(params)


def _policies_of(params: Any, x: Array, model: ScoreModel, surrogate: Surrogate) -> Float[Array, "member row action"]:
    return jax.vmap(lambda p: surrogate.policy(surrogate.scores(model.apply(p, x))))(params)


_policies = quick_jit(_policies_of, static_argnames=("model", "surrogate"))


@partial(quick_jit, static_argnames=("model", "surrogate", "mixture"))
def _deviation(
    params: Any, weights: Array, x: Array, *, model: ScoreModel, surrogate: Surrogate, mixture: bool
) -> Float[Array, "row action"]:
    policies = _policies_of(params, x, model, surrogate)
    deviations = policies - 1.0 / surrogate.n_actions if mixture else surrogate.advantage(policies)
    return jnp.tensordot(weights, deviations, axes=1)


@quick_jit
def _projected(deviation: Array) -> Float[Array, "row action"]:
    return project_simplex(1.0 / deviation.shape[1] + deviation)


def member_outputs(
    model: ScoreModel, params: Any, x: Float[np.ndarray, "row feature"]
) -> Float[np.ndarray, "member row raw"]:
    """Raw output of every member on every row."""
    device_params = jax.device_put(params)
    return _over_rows(lambda part: _outputs(device_params, part, model=model), x, axis=1)


def member_policies(
    model: ScoreModel | Mixture, surrogate: Surrogate, params: Any, x: Float[np.ndarray, "row feature"]
) -> Float[np.ndarray, "member row action"]:
    """Policy of every member on every row."""
    parts = [(_part_policies(one, surrogate, part, x), own) for one, part, own in by_model(model, params)]
    if len(parts) == 1:
        return parts[0][0]
    policies = np.empty((len(params.owner), len(x), surrogate.n_actions), np.float32)
    for of_model, numbers in parts:
        policies[numbers] = of_model
    return policies


def _part_policies(
    model: ScoreModel, surrogate: Surrogate, params: Any, x: Float[np.ndarray, "row feature"]
) -> Float[np.ndarray, "member row action"]:
    device_params = jax.device_put(params)
    return _over_rows(lambda part: _policies(device_params, part, model=model, surrogate=surrogate), x, axis=1)


def combined_deviation(
    model: ScoreModel | Mixture,
    surrogate: Surrogate,
    params: Any,
    weights: Float[np.ndarray, " member"],
    x: Float[np.ndarray, "row feature"],
    *,
    mixture: bool = False,
) -> Float[np.ndarray, "row action"]:
    """Weighted deviation of many members from uniform, sum_m weight_m advantage(delta_m).

    The advantage is delta_m - 1/K where that is in the order of the outcomes; with `mixture` it always is that.
    """
    counted = np.asarray(weights, np.float32)
    total: Any = 0.0
    for one, part, numbers in by_model(model, params):
        total = total + _part_deviation(one, surrogate, part, counted[numbers], x, mixture)
    return total


def _part_deviation(
    model: ScoreModel, surrogate: Surrogate, params: Any, weights: np.ndarray, x: np.ndarray, mixture: bool
) -> Float[np.ndarray, "row action"]:
    own = jax.device_put((params, weights))
    return _over_rows(lambda part: _deviation(*own, part, model=model, surrogate=surrogate, mixture=mixture), x, axis=0)


def policy_of_deviation(deviation: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
    """The simplex projection of 1/K + deviation, which keeps the order of the actions.

    For the deviation of a mixture, with weights that sum to one, it is the members' mixture.
    """
    return _over_rows(_projected, deviation, axis=0)
