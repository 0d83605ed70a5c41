"""Fitted networks in numpy: members, draws of their last layers, and the deviation from uniform they add up to.

The formulas are those of `models`, `surrogates` and `evaluate`, written once more without JAX so that a decision needs
no compiler; the tests hold both to each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.blas import one_thread

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["ACTIVATIONS", "SQUASHINGS", "Committee", "Networks", "project"]

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


@dataclass(frozen=True, slots=True, eq=False)
class Networks:
    """Members of one shape, each a chain of dense layers, and how their last outputs become a policy.

    `hidden` holds weights and biases of the hidden layers, `last` those of the last layer, each with a leading member
    axis; the bias is the last row of a matrix. `gain` multiplies the hidden layer (random features have one).
    """

    hidden: tuple[Float[np.ndarray, "member in out"], ...]
    last: Float[np.ndarray, "member basis raw"]
    activation: str
    squashing: str
    gain: float = 1.0

    def basis(self, member: int, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row basis"]:
        """Last hidden layer of a member and a one: `basis @ last[member]` are its raw outputs."""
        for layer in self.hidden:
            x = ACTIVATIONS[self.activation](x @ layer[member, :-1] + layer[member, -1])
        return np.concatenate([np.float32(self.gain) * x, np.ones((len(x), 1), np.float32)], axis=1)

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


def _dense(x: np.ndarray, layer: Float[np.ndarray, "member in out"]) -> Float[np.ndarray, "member row out"]:
    out = np.matmul(x, layer[:, :-1])
    out += layer[:, -1:]
    return out


class Committee:
    """Networks ready to be asked: weights, standardization, draws by member."""

    def __init__(
        self,
        networks: Networks,
        weights: Float[np.ndarray, " member"],
        mean: Float[np.ndarray, " feature"],
        scale: Float[np.ndarray, " feature"],
        count: int,
        draws: Float[np.ndarray, "draw basis raw"] | None,
        draw_member: Int[np.ndarray, " draw"] | None,
    ) -> None:
        self.networks, self.weights, self.mean, self.scale, self.count = networks, weights, mean, scale, count
        # Random features are the same for every member: computed once.
        self.hidden = [layer[:1] if (layer == layer[:1]).all() else layer for layer in networks.hidden]
        self.drawn: dict[int, Float[np.ndarray, "basis draw_raw"]] = {}
        if draws is not None and draw_member is not None:
            for member in np.unique(draw_member).tolist():
                own = draws[draw_member == member].transpose(1, 0, 2)
                self.drawn[member] = np.ascontiguousarray(own.reshape(len(own), -1))
        widest = max([layer.shape[2] for layer in self.hidden] + [part.shape[1] for part in self.drawn.values()] + [1])
        self.width = max([layer.shape[2] for layer in self.hidden] + [len(mean)])
        self.block = max(64, min(BLOCK, 1 << ((1 << 21) // widest).bit_length() - 1))

    def ask(
        self, x: Float[np.ndarray, "row feature"], *, draws: bool
    ) -> tuple[Float[np.ndarray, "row action"], Int[np.ndarray, "row action"] | None]:
        """Deviation from uniform, and how many draws take each action, a block of rows a core at a time."""
        deviation = np.zeros((len(x), self.count))
        taken = np.zeros((len(x), self.count), np.int64) if draws and self.drawn else None

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
        """Add up one block, in place."""
        x = ((x - self.mean) / self.scale).astype(np.float32)
        step = max(1, CACHED // (len(x) * self.width))
        for first in range(0, len(self.weights), step):
            members = slice(first, first + step)
            basis = self._basis(x, members)
            policies = self.networks.policy(_dense(basis, self.networks.last[members]))
            deviation += np.tensordot(self.weights[members], policies - 1.0 / self.count, axes=1)
            if taken is not None:
                for member in range(first, min(first + step, len(self.weights))):
                    if member in self.drawn:
                        own = basis if basis.ndim == 2 else basis[min(member - first, len(basis) - 1)]
                        self._count(own, self.drawn[member], taken)

    def _basis(self, x: Float[np.ndarray, "row feature"], members: slice) -> Float[np.ndarray, "..."]:
        """Last hidden layer of some members; without a member axis where there is no hidden layer."""
        for layer in self.hidden:
            x = ACTIVATIONS[self.networks.activation](_dense(x, layer if len(layer) == 1 else layer[members]))
        return x if self.networks.gain == 1.0 else np.float32(self.networks.gain) * x

    def _count(self, basis: np.ndarray, drawn: np.ndarray, taken: Int[np.ndarray, "row action"]) -> None:
        raw = basis @ drawn[:-1]
        raw += drawn[-1]
        chosen = self.networks.chosen(raw.reshape(len(basis), -1, self.networks.last.shape[2]))
        chosen += self.count * np.arange(len(basis))[:, None]
        taken += np.bincount(chosen.ravel(), minlength=taken.size).reshape(taken.shape)
