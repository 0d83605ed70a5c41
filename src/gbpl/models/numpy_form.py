"""Score models in numpy: what is left of a fitted model where it only decides.

A model's `frozen` method gives one of these forms (`gbpl.models.base.FrozenModel`); policy files and ONNX files hold
them. The formulas are those of the models, written once more without JAX so that a decision needs no compiler; tests
compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbpl.models.basis import leaf_numbers, leaf_sums, spline_curves

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["ACTIVATIONS", "FoldedForests", "Forests", "Networks", "NumpyForm", "dense", "layer_matrix", "with_bias"]

CACHED = 1 << 17  # numbers that stay in a core's cache: members are taken together as far as that goes
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tanh": lambda h: np.tanh(h, out=h),
    "relu": lambda h: np.maximum(h, 0.0, out=h),
    "silu": lambda h: h / (1.0 + np.exp(-h)),
    "cos": lambda h: np.cos(h, out=h),
}


def layer_matrix(layer: Mapping[str, Any]) -> Float[np.ndarray, "... in out"]:
    """Weights of a dense layer with its bias as the last row; leading axes stay."""
    return np.concatenate([layer["weight"], np.expand_dims(layer["bias"], -2)], axis=-2)


def with_bias(scales: Float[np.ndarray, " in"]) -> Float[np.ndarray, "in_and_one one"]:
    """Multipliers of the rows of a `layer_matrix`, one for the bias."""
    return np.append(scales, np.float32(1.0))[:, None]


def dense(x: np.ndarray, layer: Float[np.ndarray, "member in out"]) -> Float[np.ndarray, "member row out"]:
    """Outputs of a dense layer of each member."""
    out = np.matmul(x, layer[:, :-1])
    out += layer[:, -1:]
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Networks:
    """Members of one shape, each a chain of dense layers.

    `hidden` holds weights and biases of the hidden layers, `last` those of the last layer, each with a leading member
    axis; the bias is the last row of a matrix. `gain` multiplies the hidden layer (random features have one). With
    `knots` the chain begins with the spline curves of the features instead of the features.
    """

    hidden: tuple[Float[np.ndarray, "member in out"], ...]
    last: Float[np.ndarray, "member basis raw"]
    activation: str = "tanh"
    gain: float = 1.0
    knots: int = 0

    @property
    def noun(self) -> str:
        """What a member is called."""
        return "spline" if self.knots else "network"

    @property
    def widest(self) -> int:
        """Most numbers per row on the way to the basis."""
        return max([layer.shape[2] for layer in self.hidden] + [self.last.shape[1] if self.knots else 1])

    def shared(self) -> Self:
        """The same with layers that are equal for every member kept once, as those of random features are."""
        return replace(self, hidden=tuple(layer[:1] if (layer == layer[:1]).all() else layer for layer in self.hidden))

    def basis(self, member: int, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row basis"]:
        """Last hidden layer of a member and a one: `basis @ last[member]` are its raw outputs."""
        x = spline_curves(x, self.knots) if self.knots else x
        for layer in self.hidden:
            x = ACTIVATIONS[self.activation](x @ layer[member, :-1] + layer[member, -1])
        return np.concatenate([np.float32(self.gain) * x, np.ones((len(x), 1), np.float32)], axis=1)

    def bases(
        self, x: Float[np.ndarray, "row feature"]
    ) -> Iterator[tuple[Int[np.ndarray, " some"], Float[np.ndarray, "..."]]]:
        """Numbers of some members at a time and their last hidden layer, without a member axis where they share it."""
        x = spline_curves(x, self.knots) if self.knots else x
        step = max(1, CACHED // (len(x) * max([layer.shape[2] for layer in self.hidden] + [x.shape[1]])))
        every = np.arange(len(self.last))
        for first in range(0, len(every), step):
            members, h = every[first : first + step], x
            for layer in self.hidden:
                own = layer if len(layer) == 1 else layer[first : first + step]
                h = ACTIVATIONS[self.activation](dense(h, own))
            h = h[0] if h.ndim == 3 and len(h) == 1 else h
            yield members, h if self.gain == 1.0 else np.float32(self.gain) * h


@dataclass(frozen=True, slots=True, eq=False)
class Forests:
    """Members that are linear in the values of the leaves of a forest (`gbpl.trees.forest.ForestFeatures`).

    `forest` is the forest of each member: those that were grown on the same rows share it. Nodes that are not split
    have an infinite threshold.
    """

    feature: Int[np.ndarray, "forest tree node"]
    threshold: Float[np.ndarray, "forest tree node"]
    value: Float[np.ndarray, "forest tree leaf component"]
    forest: Int[np.ndarray, " member"]
    last: Float[np.ndarray, "member basis raw"]

    @property
    def noun(self) -> str:
        """What a member is called."""
        return "forest"

    @property
    def widest(self) -> int:
        """Most numbers per row on the way to the basis."""
        return max(self.value.shape[1], self.value.shape[3])

    def shared(self) -> Self:
        """Itself: a forest is kept once."""
        return self

    def basis(self, member: int, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row basis"]:
        """Components of a member's forest and a one: `basis @ last[member]` are its raw outputs."""
        return np.concatenate([self._components(int(self.forest[member]), x), np.ones((len(x), 1), np.float32)], axis=1)

    def bases(
        self, x: Float[np.ndarray, "row feature"]
    ) -> Iterator[tuple[Int[np.ndarray, " some"], Float[np.ndarray, "row component"]]]:
        """Numbers of the members of each forest, and its components."""
        for number in np.unique(self.forest).tolist():
            yield np.flatnonzero(self.forest == number), self._components(number, x)

    def folded(self) -> FoldedForests | None:
        """The same outputs with the last layers taken into the leaves; None where that makes them no smaller."""
        outputs, used = self.last.shape[2], np.unique(self.forest)
        own = [np.flatnonzero(self.forest == number) for number in used]
        if max(map(len, own)) * outputs > self.value.shape[3]:
            return None
        values, weight = self.value.astype(np.float64), self.last.astype(np.float64)
        parts = [
            np.einsum("tlc,mco->tlmo", values[number], weight[members, :-1]).astype(np.float32)
            for number, members in zip(used, own, strict=True)
        ]
        return FoldedForests(self.feature[used], self.threshold[used], own, parts, self.last[:, -1])

    def _components(self, number: int, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row component"]:
        return leaf_sums(self.value[number], leaf_numbers(self.feature[number], self.threshold[number], x))


@dataclass(frozen=True, slots=True, eq=False)
class FoldedForests:
    """Forests whose leaves hold the outputs of their members: fewer numbers than components, and no last layer."""

    feature: Int[np.ndarray, "forest tree node"]
    threshold: Float[np.ndarray, "forest tree node"]
    members: list[Int[np.ndarray, " own"]]
    values: list[Float[np.ndarray, "tree leaf own raw"]]
    bias: Float[np.ndarray, "member raw"]

    def raws(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "member row raw"]:
        """Raw outputs of every member: the trees of all forests are descended together."""
        _, trees, nodes = self.feature.shape
        leaf = leaf_numbers(self.feature.reshape(-1, nodes), self.threshold.reshape(-1, nodes), x)
        raw = np.empty((len(self.bias), len(x), self.bias.shape[1]), np.float32)
        for number, (members, value) in enumerate(zip(self.members, self.values, strict=True)):
            own = leaf[:, number * trees : (number + 1) * trees]
            flat = value.reshape(trees * (nodes + 1), -1)
            sums = flat.take(own + (nodes + 1) * np.arange(trees), axis=0).sum(axis=1)
            raw[members] = sums.reshape(len(x), len(members), -1).transpose(1, 0, 2)
        return raw + self.bias[:, None]


NumpyForm = Networks | Forests
