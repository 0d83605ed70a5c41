"""Scores and policies of fitted members (or posterior draws, which are members) on any number of rows.

Rows pass in blocks of fixed shape, so memory stays bounded, compiled functions are reused whatever the number of
rows, and a row's result does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.models.base import LastLayerModel, ScoreModel
from gbpl.models.mixture import Mixed, Mixture, by_model
from gbpl.runtime.devices import placed, quick_jit
from gbpl.squashing import simplex_projection
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = [
    "Mixed", "Mixture", "combined_deviation", "filled",
    "has_last_layer", "member_outputs", "member_policies", "one_member", "policy_of_deviation", "row_blocks", "taken",
]  # fmt: skip

BLOCK = 1024
LARGE_BLOCK, MANY_ROWS = 2048, 20_000  # rows from which larger blocks are worth one more shape
FEW, MANY = 4, 64  # members that one call takes; their last call repeats some, so that counts share what is compiled


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
    """Row slices and their features, padded to a power of four so that few shapes are ever compiled."""
    largest = BLOCK if len(x) <= MANY_ROWS else LARGE_BLOCK
    size = min(largest, max(64, 4 ** -(-(len(x) - 1).bit_length() // 2)))
    for start in range(0, len(x), size):
        part = np.asarray(x[start : start + size], np.float32)
        yield slice(start, start + len(part)), filled(part, size)


def _by_blocks(
    params: Any, x: Float[np.ndarray, "row feature"], compute: Callable[[Any, Array], Array]
) -> Iterator[tuple[slice, Float[np.ndarray, "member row column"]]]:
    """Row slices, and what `compute` gives for all members on them: some members and one block of rows at a time."""
    count = len(jax.tree.leaves(params)[0])
    step = 1 if count == 1 else FEW if count <= MANY // 2 else MANY
    place = placed(len(x) * sum(leaf.size for leaf in jax.tree.leaves(params)))
    parts = [
        jax.device_put(taken(params, np.minimum(np.arange(first, first + step), count - 1)), place)
        for first in range(0, count, step)
    ]
    for rows, block in row_blocks(x):
        on_device = jax.device_put(block, place)
        results = [compute(part, on_device) for part in parts]
        yield rows, np.concatenate([np.asarray(result) for result in results])[:count, : rows.stop - rows.start]


def _over_rows(
    params: Any, x: Float[np.ndarray, "row feature"], compute: Callable[[Any, Array], Array]
) -> Float[np.ndarray, "member row column"]:
    """The blocks of `_by_blocks` joined."""
    out: np.ndarray | None = None
    for rows, part in _by_blocks(params, x, compute):
        if out is None:
            out = np.empty((part.shape[0], len(x), part.shape[2]), part.dtype)
        out[:, rows] = part
    assert out is not None
    return out


@partial(quick_jit, static_argnames="model")
def _outputs(params: Any, x: Array, *, model: ScoreModel) -> Float[Array, "member row raw"]:
    return jax.vmap(lambda p: model.apply(p, x))(params)


@partial(quick_jit, static_argnames=("model", "surrogate"))
def _policies(params: Any, x: Array, *, model: ScoreModel, surrogate: Surrogate) -> Float[Array, "member row action"]:
    return jax.vmap(lambda p: surrogate.policy(surrogate.scores(model.apply(p, x))))(params)


def member_outputs(
    model: ScoreModel, params: Any, x: Float[np.ndarray, "row feature"]
) -> Float[np.ndarray, "member row raw"]:
    """Raw output of every member on every row."""
    return _over_rows(params, x, partial(_outputs, model=model))


def member_policies(
    model: ScoreModel | Mixture, surrogate: Surrogate, params: Any, x: Float[np.ndarray, "row feature"]
) -> Float[np.ndarray, "member row action"]:
    """Policy of every member on every row."""
    parts = [
        (_over_rows(part, x, partial(_policies, model=one, surrogate=surrogate)), own)
        for one, part, own in by_model(model, params)
    ]
    if len(parts) == 1:
        return parts[0][0]
    policies = np.empty((len(params.owner), len(x), surrogate.n_actions), np.float32)
    for of_model, numbers in parts:
        policies[numbers] = of_model
    return policies


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
    total = np.zeros((len(x), surrogate.n_actions), np.float32)
    for one, part, numbers in by_model(model, params):
        for rows, policies in _by_blocks(part, x, partial(_policies, model=one, surrogate=surrogate)):
            deviations = policies - np.float32(1.0 / surrogate.n_actions) if mixture else surrogate.advantage(policies)
            total[rows] += np.tensordot(counted[numbers], np.asarray(deviations), axes=1)
    return total


def policy_of_deviation(deviation: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
    """The simplex projection of 1/K + deviation, which keeps the order of the actions.

    For the deviation of a mixture, with weights that sum to one, it is the members' mixture.
    """
    given = np.asarray(deviation, np.float32)
    return simplex_projection(np.float32(1.0 / given.shape[1]) + given).astype(np.float32, copy=False)
