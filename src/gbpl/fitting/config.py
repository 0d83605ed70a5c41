"""How members are trained: `FitConfig`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import optax

__all__ = ["FitConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitConfig:
    """How members are trained: Adam, minibatches, early stopping on the validation loss.

    An epoch is a pass over the training rows, or over `epoch_rows` of them if there are more. `batch_size` is the
    largest number of rows per step; None means 128, and less for small samples. The weights kept are those of the epoch
    with the lowest validation loss; one counts as lower if it is so by more than `tolerance` times its size. With
    `decay_steps` the learning rate falls to zero over that many steps, as half a cosine. Members with a convex
    objective are solved, and need none of this.
    """

    learning_rate: float = 1e-3
    batch_size: int | None = None
    max_epochs: int = 200
    patience: int = 10
    clip_norm: float = 10.0
    epoch_rows: int = 32_768
    decay_steps: int | None = None
    tolerance: float = 0.0

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
        if not 0.0 <= self.tolerance < 1.0:
            raise ValueError(f"tolerance must be in [0, 1), got {self.tolerance}; try 0.001")

    def batch_shape(self, n_train: int) -> tuple[int, int]:
        """Steps per epoch and rows per step; the rows are divided evenly, so no batch is a small remainder."""
        rows = min(n_train, self.epoch_rows)
        size = self.batch_size or max(8, min(128, n_train // 5))
        steps = -(-rows // size)
        return steps, -(-rows // steps)

    def optimizer(self) -> optax.GradientTransformation:
        rate: float | optax.Schedule = self.learning_rate
        if self.decay_steps is not None:
            rate = optax.cosine_decay_schedule(self.learning_rate, self.decay_steps)
        # As one vector the parameters take a fourth less time to compile than layer by layer.
        return optax.flatten(optax.chain(optax.clip_by_global_norm(self.clip_norm), optax.adam(rate)))
