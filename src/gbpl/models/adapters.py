"""Score models that users bring: pairs of functions, Flax and Equinox modules (section 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from gbpl.models.base import ScoreModel

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["EquinoxModel", "FlaxModel", "FunctionModel", "as_model"]


@dataclass(frozen=True, slots=True)
class FunctionModel:
    """A pair of functions a user brings: `init(key, n_features, n_raw)` and `apply(params, x)`."""

    init_function: Callable[[Array, int, int], Any]
    apply_function: Callable[[Any, Array], Array]

    def init(self, key: Array, n_features: int, n_raw: int) -> Any:
        return self.init_function(key, n_features, n_raw)

    def apply(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.apply_function(params, x)


@dataclass(frozen=True, slots=True)
class FlaxModel:
    """A Flax (linen) module with as many outputs as the surrogate has raw outputs."""

    module: Any

    def init(self, key: Array, n_features: int, n_raw: int) -> Any:
        return self.module.init(key, jnp.zeros((1, n_features)))

    def apply(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.module.apply(params, x)


@dataclass(frozen=True, slots=True)
class EquinoxModel:
    """An Equinox module of one row, given as the function that builds it from a key: `build(key)`.

    Its float arrays are the parameters; everything else in it (activations, sizes) is fixed.
    """

    build: Callable[[Array], Any]

    def init(self, key: Array, n_features: int, n_raw: int) -> list[Array]:
        return [leaf for leaf in jax.tree.leaves(self.build(key)) if _is_parameter(leaf)]

    def apply(self, params: list[Array], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        leaves, shape = jax.tree.flatten(self.build(jax.random.key(0)))  # only its shape is used
        values = iter(params)
        module = jax.tree.unflatten(shape, [next(values) if _is_parameter(leaf) else leaf for leaf in leaves])
        return jax.vmap(module)(x)


def _is_parameter(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and bool(jnp.issubdtype(leaf.dtype, jnp.floating))


def as_model(model: Any) -> ScoreModel:
    """A score model from what a user may bring.

    That is: a `ScoreModel`; a pair of functions (init, apply); a Flax module; or a function of a key that builds
    an Equinox module.
    """
    if isinstance(model, tuple) and len(model) == 2 and all(callable(part) for part in model):
        return FunctionModel(*model)
    families = {base.__module__.partition(".")[0]: base.__module__ for base in type(model).__mro__}
    if families.get("flax", "").startswith("flax.linen"):
        return FlaxModel(model)
    if not isinstance(model, type) and not families.keys() & {"flax", "equinox"}:
        if isinstance(model, ScoreModel):
            return model
        if callable(model):
            return EquinoxModel(model)
    raise TypeError(
        f"model must be a score model such as gbpl.MLP(), a pair of functions (init, apply), a Flax linen module, "
        f"or a function that builds an Equinox module from a key; got {model!r}"
    )
