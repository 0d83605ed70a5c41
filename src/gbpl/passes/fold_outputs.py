"""Members applied to the rows of their own fold, from which they have not learned: outputs or policies, by chunk."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.models.base import ScoreModel
from gbpl.runtime.devices import as_aligned, member_sharding, quick_jit, shared_sharding
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = ["FoldOutputs"]

BLOCKS, ROWS = 2, 512  # of each fold that one call takes: small blocks stay in the cache, and shapes are always these


@partial(quick_jit, static_argnames=("model", "surrogate"))
def _by_fold(
    params: Any, x: Float[Array, "block fold row feature"], *, model: ScoreModel, surrogate: Surrogate | None
) -> Float[Array, "block fold entry row column"]:
    def entry(p: Any, rows: Array) -> Array:
        raw = model.apply(p, rows)
        return raw if surrogate is None else surrogate.policy(surrogate.scores(raw))

    of_fold = jax.vmap(entry, in_axes=(0, None))
    return jax.lax.map(lambda block: jax.vmap(of_fold)(params, block), x)


class FoldOutputs:
    """Members with a leading (fold, entry) pair of axes: raw outputs, or policies where a surrogate is given.

    The rows are spread over the devices, each of which has every member.
    """

    def __init__(
        self, params: Any, model: ScoreModel, devices: Sequence[jax.Device], surrogate: Surrogate | None = None
    ) -> None:
        self.model, self.surrogate, self.devices = model, surrogate, list(devices)
        self.folds, self.entries = jax.tree.leaves(params)[0].shape[:2]
        self.params = jax.device_put(params, shared_sharding(self.devices))
        self.rows = -(-ROWS // len(self.devices)) * len(self.devices)

    def start(self, x: Float[np.ndarray, "row feature"], fold: Int[np.ndarray, " row"]) -> list[tuple[Any, Any]]:
        """Begin with some standardised rows; `finish` waits for them."""
        own = [np.flatnonzero(fold == number) for number in range(self.folds)]
        capacity, pending = BLOCKS * self.rows, []
        for start in range(0, max(len(rows) for rows in own), capacity):
            taken = [rows[start : start + capacity] for rows in own]
            table = np.zeros((self.folds, capacity, x.shape[1]), np.float32)
            for number, rows in enumerate(taken):
                table[number, : len(rows)] = x[rows]
            blocks = table.reshape(self.folds, BLOCKS, self.rows, -1).transpose(1, 0, 2, 3)
            placed = jax.device_put(as_aligned(blocks), member_sharding(self.devices, axis=2))
            outputs = _by_fold(self.params, placed, model=self.model, surrogate=self.surrogate)
            pending.append((taken, outputs))
        return pending

    def finish(self, pending: list[tuple[Any, Any]], n: int) -> Float[np.ndarray, "entry row column"]:
        """Outputs of the members of each row's fold."""
        out: np.ndarray | None = None
        for taken, outputs in pending:
            values = np.asarray(outputs)
            if out is None:
                out = np.empty((self.entries, n, values.shape[-1]), np.float32)
            for number, rows in enumerate(taken):
                of_fold = values[:, number].transpose(1, 0, 2, 3).reshape(self.entries, -1, values.shape[-1])
                out[:, rows] = of_fold[:, : len(rows)]
        assert out is not None
        return out

    def of(
        self, x: Float[np.ndarray, "row feature"], fold: Int[np.ndarray, " row"]
    ) -> Float[np.ndarray, "entry row column"]:
        """`start` and `finish` in one."""
        return self.finish(self.start(x, fold), len(x))
