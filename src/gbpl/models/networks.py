"""Score models: two pure functions, `init` and `apply`, from features to raw outputs (section 6).

Raw outputs are unbounded; the surrogate squashes them. A model is frozen and holds no parameters, so one
object serves every member of a stack.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = [
    "MLP", "EquinoxModel", "FlaxModel", "FunctionModel", "Linear", "RandomFeatures", "ScoreModel", "as_model",
    "check_whole",
]  # fmt: skip

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh, "silu": jax.nn.silu}


@runtime_checkable
class ScoreModel(Protocol):
    """A model is any hashable object with these two pure functions."""

    def init(self, key: Array, n_features: int, n_raw: int) -> Any:
        """Parameters (any tree of float arrays) drawn from `key`."""
        ...

    def apply(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        """Raw outputs, one row each."""
        ...


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")


def _dense(key: Array, n_in: int, n_out: int) -> dict[str, Array]:
    """Weights and biases uniform on +-1/sqrt(n_in), the initialisation of the paper's listing."""
    bound = 1.0 / math.sqrt(max(n_in, 1))
    draw = jax.random.uniform(key, (n_in + 1, n_out), minval=-bound, maxval=bound)
    return {"weight": draw[:-1], "bias": draw[-1]}


@dataclass(frozen=True, slots=True)
class MLP:
    """Multilayer perceptron, the score model of GBPLNet.

    The default activation is smooth: on the paper's designs it makes better decisions than the paper's ReLU at
    every sample size (docs/design.md has the figures). `MLP(activation="relu")` is the paper's network.

    >>> MLP(hidden=(8,)).apply(MLP(hidden=(8,)).init(jax.random.key(0), 3, 1), jnp.ones((2, 3))).shape
    (2, 1)
    """

    hidden: tuple[int, ...] = (128, 128)
    activation: str = "tanh"

    def __post_init__(self) -> None:
        if not isinstance(self.hidden, Sequence) or not self.hidden:
            raise ValueError(f"hidden must list the widths of the layers, such as (128, 128), got {self.hidden!r}")
        object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        if any(width < 1 for width in self.hidden):
            raise ValueError(f"hidden must list widths >= 1, got {self.hidden}; use Linear() for no hidden layer")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {sorted(ACTIVATIONS)}, got {self.activation!r}")

    def init(self, key: Array, n_features: int, n_raw: int) -> list[dict[str, Array]]:
        sizes = (n_features, *self.hidden, n_raw)
        keys = jax.random.split(key, len(sizes) - 1)
        return [_dense(k, n_in, n_out) for k, (n_in, n_out) in zip(keys, itertools.pairwise(sizes), strict=True)]

    def features(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        """Last hidden layer: the features of which the last layer is linear."""
        for layer in params[:-1]:
            x = ACTIVATIONS[self.activation](x @ layer["weight"] + layer["bias"])
        return x

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear raw output x'w + b. Starts at zero, where the policy is uniform."""

    def init(self, key: Array, n_features: int, n_raw: int) -> list[dict[str, Array]]:
        return [{"weight": jnp.zeros((n_features, n_raw)), "bias": jnp.zeros(n_raw)}]

    def features(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        return x

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]


@dataclass(frozen=True, slots=True)
class RandomFeatures:
    """Linear in random Fourier features sqrt(2/D) cos(x'W / length_scale + b) (Rahimi and Recht 2007).

    Approximates a Gaussian process with a squared-exponential kernel. `W` and `b` follow from `seed` and the
    number of features of `x`; they are part of the model, not of its parameters.
    """

    n_features: int = 512
    length_scale: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_features < 1 or not self.length_scale > 0:
            raise ValueError(f"n_features must be >= 1 and length_scale > 0, got {self}")

    def init(self, key: Array, n_features: int, n_raw: int) -> list[dict[str, Array]]:
        return [{"weight": jnp.zeros((self.n_features, n_raw)), "bias": jnp.zeros(n_raw)}]

    def waves(self, width: int) -> tuple[Float[np.ndarray, "feature wave"], Float[np.ndarray, " wave"]]:
        """W / length_scale and b for `width` features."""
        rng = np.random.default_rng(self.seed)
        frequency = rng.standard_normal((width, self.n_features), dtype=np.float32) / self.length_scale
        return frequency, rng.uniform(0.0, 2.0 * np.pi, self.n_features).astype(np.float32)

    def features(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        frequency, phase = self.waves(x.shape[-1])  # runs while tracing: constants of the compiled function
        return math.sqrt(2.0 / self.n_features) * jnp.cos(x @ frequency + phase)

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]


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
