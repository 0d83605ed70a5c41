"""How members are trained, and the order in which their rows come: `FitConfig` and the batches it asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import optax

from gbpl.fitting.members import Member

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Batches", "FitConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitConfig:
    """How members are trained: Adam, minibatches, early stopping on the validation loss.

    An epoch is a pass over the training rows, or over `epoch_rows` of them if there are more. `batch_size` is the most
    rows a step takes; None means 128, and less for small samples. The weights kept are those of the epoch with the
    lowest validation loss. With `decay_steps` the learning rate falls to zero over so many steps, as half a cosine.
    """

    learning_rate: float = 1e-3
    batch_size: int | None = None
    max_epochs: int = 200
    patience: int = 10
    clip_norm: float = 10.0
    epoch_rows: int = 32_768
    decay_steps: int | None = None

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a finite number > 0, got {getattr(self, name)}")
        for name in ("max_epochs", "patience", "epoch_rows", "batch_size", "decay_steps"):
            value = getattr(self, name)
            if value is None and name in ("batch_size", "decay_steps"):
                continue
            if not (isinstance(value, int | np.integer) and value >= 1):
                raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")

    def batch_shape(self, n_train: int) -> tuple[int, int]:
        """Steps an epoch and rows a step; the rows are dealt evenly, so no batch is a small remainder."""
        rows = min(n_train, self.epoch_rows)
        size = self.batch_size or max(8, min(128, n_train // 5))
        steps = -(-rows // size)
        return steps, -(-rows // steps)

    def optimizer(self) -> optax.GradientTransformation:
        rate: float | optax.Schedule = self.learning_rate
        if self.decay_steps is not None:
            rate = optax.cosine_decay_schedule(self.learning_rate, self.decay_steps)
        return optax.chain(optax.clip_by_global_norm(self.clip_norm), optax.adam(rate))


class Batches:
    """Batch order of one member, from its own seed: a pass without replacement, then the next."""

    def __init__(self, member: Member, config: FitConfig) -> None:
        self.rows = np.asarray(member.train, np.int32)
        self.weights = None if member.weights is None else _mean_one(member.weights)
        self.rng = np.random.default_rng(member.seed)
        self.steps, self.size = config.batch_shape(len(self.rows))
        self.per_epoch = min(len(self.rows), config.epoch_rows)
        self.padding = self.steps * self.size - self.per_epoch
        real = self._deal(np.ones((1, self.per_epoch), np.float32))
        self.share = real / real.sum(axis=-1, keepdims=True)
        self.order, self.used = self._shuffle(), 0

    def _shuffle(self) -> Int[np.ndarray, " row"]:
        return self.rng.permutation(np.arange(len(self.rows), dtype=np.int32))

    def _deal(self, values: np.ndarray) -> np.ndarray:
        """(epoch, row) dealt round to (epoch, step, batch), the last places filled with zeros."""
        if self.padding:
            padded = np.zeros((len(values), self.steps * self.size), values.dtype)
            padded[:, : self.per_epoch] = values
            values = padded
        return values.reshape(-1, self.size, self.steps).transpose(0, 2, 1)

    def draw(self, rows: Int[np.ndarray, "epoch step batch"], weight: Float[np.ndarray, "epoch step batch"]) -> None:
        """Fill the row numbers and weights of the next epochs; a step's weights sum to one, or near it if weighted."""
        position = np.empty((len(rows), self.per_epoch), np.int32)
        for epoch in range(len(rows)):
            if self.used + self.per_epoch > len(self.order):
                self.order, self.used = self._shuffle(), 0
            position[epoch] = self.order[self.used : self.used + self.per_epoch]
            self.used += self.per_epoch
        rows[:, :, self.size :] = weight[:, :, self.size :] = 0
        rows[:, :, : self.size] = self._deal(self.rows[position])
        weight[:, :, : self.size] = self.share
        if self.weights is not None:
            weight[:, :, : self.size] *= self._deal(self.weights[position])


def _mean_one(weights: np.ndarray) -> Float[np.ndarray, " row"]:
    return (np.asarray(weights, np.float64) / np.mean(weights)).astype(np.float32)
