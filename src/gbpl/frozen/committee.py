"""Fitted members in numpy, draws of their last layers, and the deviation from uniform they add up to.

The formulas are those of `models`, `surrogates` and `evaluate`, written once more without JAX so that a decision needs
no compiler; the tests hold both to each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from gbpl.models.basis import leaf_numbers, leaf_sums, spline_curves
from gbpl.runtime.threads import one_thread

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["ACTIVATIONS", "SQUASHINGS", "Committee", "Forests", "Networks", "Part", "project"]

BLOCK = 512  # rows at a time, at most; a power of two, as are the batches of files
CACHED = 1 << 17  # numbers that stay in a core's cache: members are taken together as far as that goes
FEW = 16  # rows up to which BLAS starts no threads of its own
Activation = Callable[[np.ndarray], np.ndarray]
ACTIVATIONS: dict[str, Activation] = {
    "tanh": lambda h: np.tanh(h, out=h),
    "relu": lambda h: np.maximum(h, 0.0, out=h),
    "silu": lambda h: h / (1.0 + np.exp(-h)),
    "cos": lambda h: np.cos(h, out=h),
}
SQUASHINGS = ("tanh", "softmax", "clip", "project")


def project(points: Float[np.ndarray, "... action"]) -> Float[np.ndarray, "... action"]:
    """Euclidean projection of each row on the simplex."""
    points = points - points.max(axis=-1, keepdims=True)
    ordered = -np.sort(-points, axis=-1)
    excess = np.cumsum(ordered, axis=-1) - 1.0
    support = np.sum(ordered * np.arange(1, points.shape[-1] + 1) > excess, axis=-1, keepdims=True)
    return np.maximum(points - np.take_along_axis(excess, support - 1, axis=-1) / support, 0.0)


class _Scores:
    """How the last outputs of members become a policy, whatever they are linear in."""

    __slots__ = ()
    squashing: str

    def policy(self, raw: Float[np.ndarray, "... raw"]) -> Float[np.ndarray, "... action"]:
        """Action probabilities of raw outputs."""
        raw = raw.astype(np.float64)
        match self.squashing:
            case "softmax":
                raw = np.exp(raw - raw.max(axis=-1, keepdims=True))
                return raw / raw.sum(axis=-1, keepdims=True)
            case "project":
                return project(raw)
        f = np.tanh(raw) if self.squashing == "tanh" else np.clip(raw, -1.0, 1.0)
        return np.concatenate([1.0 - f, 1.0 + f], axis=-1) / 2.0

    def chosen(self, raw: Float[np.ndarray, "... raw"]) -> Int[np.ndarray, "..."]:
        """Action of each output: squashing keeps the order of the raw ones."""
        return (raw[..., 0] >= 0.0).astype(np.int64) if raw.shape[-1] == 1 else np.argmax(raw, axis=-1)


@dataclass(frozen=True, slots=True, eq=False)
class Networks(_Scores):
    """Members of one shape, each a chain of dense layers, and how their last outputs become a policy.

    `hidden` holds weights and biases of the hidden layers, `last` those of the last layer, each with a leading member
    axis; the bias is the last row of a matrix. `gain` multiplies the hidden layer (random features have one). With
    `knots` the chain begins with the spline curves of the features instead of the features.
    """

    hidden: tuple[Float[np.ndarray, "member in out"], ...]
    last: Float[np.ndarray, "member basis raw"]
    activation: str
    squashing: str
    gain: float = 1.0
    knots: int = 0

    @property
    def noun(self) -> str:
        """What a member is called."""
        return "spline" if self.knots else "network"

    @property
    def widest(self) -> int:
        """Numbers a row at most, on the way to the basis."""
        return max([layer.shape[2] for layer in self.hidden] + [self.last.shape[1] if self.knots else 1])

    def shared(self) -> Self:
        """The same, with layers that are equal for every member kept once: those of random features are."""
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
        """Numbers of some members and their last hidden layer, which has no member axis where they share it."""
        x = spline_curves(x, self.knots) if self.knots else x
        step = max(1, CACHED // (len(x) * max([layer.shape[2] for layer in self.hidden] + [x.shape[1]])))
        every = np.arange(len(self.last))
        for first in range(0, len(every), step):
            members, h = every[first : first + step], x
            for layer in self.hidden:
                own = layer if len(layer) == 1 else layer[first : first + step]
                h = ACTIVATIONS[self.activation](_dense(h, own))
            h = h[0] if h.ndim == 3 and len(h) == 1 else h
            yield members, h if self.gain == 1.0 else np.float32(self.gain) * h


@dataclass(frozen=True, slots=True, eq=False)
class Forests(_Scores):
    """Members that are linear in what the leaves of a forest say of a row (`gbpl.trees.forest.ForestFeatures`).

    `forest` is the forest of each member: those that were grown on the same rows share it. Nodes that are not split
    have an infinite threshold.
    """

    feature: Int[np.ndarray, "forest tree node"]
    threshold: Float[np.ndarray, "forest tree node"]
    value: Float[np.ndarray, "forest tree leaf component"]
    forest: Int[np.ndarray, " member"]
    last: Float[np.ndarray, "member basis raw"]
    squashing: str

    @property
    def noun(self) -> str:
        """What a member is called."""
        return "forest"

    @property
    def widest(self) -> int:
        """Numbers a row at most, on the way to the basis."""
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

    def _components(self, number: int, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row component"]:
        return leaf_sums(self.value[number], leaf_numbers(self.feature[number], self.threshold[number], x))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Members of one model in a committee: what each counts, and draws of their last layers, if any."""

    scores: Networks | Forests
    weights: Float[np.ndarray, " member"]
    draws: Float[np.ndarray, "draw basis raw"] | None = None
    draw_member: Int[np.ndarray, " draw"] | None = None

    @property
    def draw_count(self) -> int:
        """Draws that go with it."""
        return 0 if self.draws is None else len(self.draws)


def _dense(x: np.ndarray, layer: Float[np.ndarray, "member in out"]) -> Float[np.ndarray, "member row out"]:
    out = np.matmul(x, layer[:, :-1])
    out += layer[:, -1:]
    return out


class _Asked:
    """A part ready to be asked: its draws by member."""

    def __init__(self, part: Part, count: int) -> None:
        self.scores, self.weights, self.count = part.scores.shared(), part.weights, count
        self.drawn: dict[int, Float[np.ndarray, "basis draw_raw"]] = {}
        if part.draws is not None and part.draw_member is not None:
            for member in np.unique(part.draw_member).tolist():
                own = part.draws[part.draw_member == member].transpose(1, 0, 2)
                self.drawn[member] = np.ascontiguousarray(own.reshape(len(own), -1))
        self.widest = max([self.scores.widest] + [drawn.shape[1] for drawn in self.drawn.values()])

    def add(self, x: np.ndarray, deviation: np.ndarray, taken: np.ndarray | None) -> None:
        """Add up one block of standardized rows, in place."""
        for members, basis in self.scores.bases(x):
            policies = self.scores.policy(_dense(basis, self.scores.last[members]))
            deviation += np.tensordot(self.weights[members], policies - 1.0 / self.count, axes=1)
            if taken is not None:
                for place, member in enumerate(members.tolist()):
                    if member in self.drawn:
                        self._count(basis if basis.ndim == 2 else basis[place], self.drawn[member], taken)

    def _count(self, basis: np.ndarray, drawn: np.ndarray, taken: Int[np.ndarray, "row action"]) -> None:
        raw = basis @ drawn[:-1]
        raw += drawn[-1]
        chosen = self.scores.chosen(raw.reshape(len(basis), -1, self.scores.last.shape[2]))
        chosen += self.count * np.arange(len(basis))[:, None]
        taken += np.bincount(chosen.ravel(), minlength=taken.size).reshape(taken.shape)


class Committee:
    """Parts ready to be asked, and how features are standardized: as `Standardizer.apply`, to the last bit."""

    def __init__(
        self,
        parts: Sequence[Part],
        mean: Float[np.ndarray, " feature"],
        scale: Float[np.ndarray, " feature"],
        count: int,
    ) -> None:
        self.parts, self.mean, self.scale, self.count = [_Asked(part, count) for part in parts], mean, scale, count
        widest = max(part.widest for part in self.parts)
        self.block = max(64, min(BLOCK, 1 << ((1 << 21) // widest).bit_length() - 1))

    def ask(
        self, x: Float[np.ndarray, "row feature"], *, draws: bool
    ) -> tuple[Float[np.ndarray, "row action"], Int[np.ndarray, "row action"] | None]:
        """Deviation from uniform, and how many draws take each action, a block of rows a core at a time."""
        deviation = np.zeros((len(x), self.count))
        taken = np.zeros((len(x), self.count), np.int64) if draws and any(part.drawn for part in self.parts) else None

        def compute(start: int) -> None:
            rows = slice(start, start + self.block)
            self._block(x[rows], deviation[rows], None if taken is None else taken[rows])

        starts = range(0, len(x), self.block)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if len(x) <= FEW:
            list(map(compute, starts))
            return deviation, taken
        with one_thread():
            if len(starts) == 1 or cores == 1:
                list(map(compute, starts))
            else:
                with ThreadPoolExecutor(min(cores, len(starts))) as pool:
                    list(pool.map(compute, starts))
        return deviation, taken

    def _block(self, x: np.ndarray, deviation: np.ndarray, taken: np.ndarray | None) -> None:
        x = ((x - self.mean) / self.scale).astype(np.float32)
        for part in self.parts:
            part.add(x, deviation, taken)
