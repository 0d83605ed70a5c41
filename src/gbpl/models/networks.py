"""Score models with a last layer: networks, linear scores, random features (section 6)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.models.numpy_form import Networks, layer_matrix

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["MLP", "Linear", "RandomFeatures"]

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "tanh": jnp.tanh, "silu": jax.nn.silu}


def _dense(key: Array, sizes: Sequence[int]) -> list[dict[str, Array]]:
    """Weights and biases uniform on +-1/sqrt(n_in), the initialisation of the paper's listing.

    Drawn for all layers at once, as many for each as the largest takes: one call of a generator compiles in half the
    time of three, and the first numbers of a key are the same however many are drawn.
    """
    shapes = [(n_in + 1, n_out) for n_in, n_out in itertools.pairwise(sizes)]
    most = max(math.prod(shape) for shape in shapes)
    draws = jax.vmap(lambda k: jax.random.uniform(k, (most,)))(jax.random.split(key, len(shapes)))
    layers = []
    for draw, shape in zip(draws, shapes, strict=True):
        bound = np.float32(1.0 / math.sqrt(max(shape[0] - 1, 1)))
        values = jnp.maximum(-bound, 2.0 * bound * draw[: math.prod(shape)] - bound).reshape(shape)
        layers.append({"weight": values[:-1], "bias": values[-1]})
    return layers


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
        return _dense(key, (n_features, *self.hidden, n_raw))

    def layer_inputs(
        self, params: list[dict[str, Array]], x: Float[Array, "row feature"]
    ) -> list[Float[Array, "row input"]]:
        inputs = [x]
        for layer in params[:-1]:
            inputs.append(ACTIVATIONS[self.activation](inputs[-1] @ layer["weight"] + layer["bias"]))
        return inputs

    def features(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        """Last hidden layer: the features of which the last layer is linear."""
        return self.layer_inputs(params, x)[-1]

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]

    def frozen(self, params: list[dict[str, np.ndarray]], n_features: int) -> Networks:
        *hidden, last = (np.asarray(layer_matrix(layer), np.float32) for layer in params)
        return Networks(tuple(hidden), last, self.activation)


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear raw output x'w + b. Starts at zero, where the policy is uniform."""

    def init(self, key: Array, n_features: int, n_raw: int) -> list[dict[str, Array]]:
        return [{"weight": jnp.zeros((n_features, n_raw)), "bias": jnp.zeros(n_raw)}]

    def features(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        return x

    def layer_inputs(
        self, params: list[dict[str, Array]], x: Float[Array, "row feature"]
    ) -> list[Float[Array, "row input"]]:
        return [x]

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]

    def frozen(self, params: list[dict[str, np.ndarray]], n_features: int) -> Networks:
        return Networks((), np.asarray(layer_matrix(params[-1]), np.float32))


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

    def layer_inputs(
        self, params: list[dict[str, Array]], x: Float[Array, "row feature"]
    ) -> list[Float[Array, "row input"]]:
        return [self.features(params, x)]

    def apply(self, params: list[dict[str, Array]], x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]

    def frozen(self, params: list[dict[str, np.ndarray]], n_features: int) -> Networks:
        last = np.asarray(layer_matrix(params[-1]), np.float32)
        frequency, phase = self.waves(n_features)
        layer = np.concatenate([frequency, phase[None]])[None]
        layer = np.broadcast_to(layer, (len(last), *layer.shape[1:]))
        return Networks((layer,), last, "cos", gain=math.sqrt(2.0 / self.n_features))
