"""Where batches come from: the source that training takes them from, and the one for rows in memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from gbpl.fitting.block import rounded_up
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Batches", "BlockData", "DrawnBatches", "Seats", "Source"]

STEPS = 64
MANY_PLACES = 64  # from here on batches are drawn by several threads
Seats = list[int | None]  # the number of the member in each slot of a block; None: an empty slot


class BlockData(NamedTuple):
    """What one block of epochs learns from: a table on the devices, and for each bank of slots its batches.

    Batches are row numbers and weights with axes (step, slot, batch); the steps of an epoch lie together.
    """

    table: tuple[Any, Any]
    batches: list[tuple[np.ndarray, np.ndarray]]


class Source(Protocol):
    """Batches for the members in the slots, block after block."""

    @property
    def ends(self) -> bool:
        """Whether members stay to the end of the source; if not, each leaves its slot when it stops."""
        ...

    def take(self, banks: Sequence[Seats]) -> BlockData | None:
        """The next block for members in these seats; None when there is no more."""
        ...

    def draw_ahead(self, banks: Sequence[Seats]) -> None:
        """Prepare the next block while the devices are busy, as if every member stayed."""
        ...


class DrawnBatches:
    """Rows in memory, shuffled again for every epoch of every member; `table` is on the devices already."""

    ends = False

    def __init__(
        self, members: Sequence[Member], table: tuple[Any, Any], config: FitConfig, shape: tuple[int, int, int]
    ) -> None:
        """`shape` is that of a member's batches in a block: epochs, steps, and rows per step.

        Arrays have room for a multiple of `STEPS` steps, and rows per step are rounded up, so that few shapes occur.
        """
        self.members, self.table, self.config, self.shape = members, table, config, shape
        self.orders: dict[int, Batches] = {}  # of the members now seated
        self.seated: Seats = []  # the members for whom `drawn` was drawn
        self.drawn: tuple[np.ndarray, np.ndarray] = self._empty(0)

    def take(self, banks: Sequence[Seats]) -> BlockData | None:
        (seated,) = banks
        if all(number is None for number in seated):
            return None
        if seated != self.seated:
            self._follow(seated)
        return BlockData(self.table, [self.drawn])

    def _follow(self, seated: Seats) -> None:
        """Draw for the members that have arrived; the others keep what was drawn for them."""
        before = {number: place for place, number in enumerate(self.seated) if number is not None}
        if not before:
            self.drawn = self._empty(len(seated))
        elif len(seated) < len(self.seated):
            kept = [0 if number is None else before.get(number, 0) for number in seated]
            self.drawn = self.drawn[0][:, kept], self.drawn[1][:, kept]
        self._fill(seated, [place for place, number in enumerate(seated) if number not in before])
        for number in self.orders.keys() - set(seated):
            del self.orders[number]

    def draw_ahead(self, banks: Sequence[Seats]) -> None:
        (seated,) = banks
        self.drawn = self._empty(len(seated))  # device_put may still read the old ones
        self._fill(seated, range(len(seated)))
        self.seated = list(seated)

    def _empty(self, slots: int) -> tuple[np.ndarray, np.ndarray]:
        epochs, steps, size = self.shape
        room = -(-epochs * steps // STEPS) * STEPS, slots, rounded_up(size)
        return np.zeros(room, np.int32), np.zeros(room, np.float32)

    def _fill(self, seated: Seats, places: Sequence[int]) -> None:
        """Draw the next epochs of the members in some places."""
        occupied = [(place, number) for place in places if (number := seated[place]) is not None]
        epochs, steps, _ = self.shape
        rows, weight = (
            drawn[: epochs * steps].reshape(epochs, steps, len(seated), drawn.shape[2]) for drawn in self.drawn
        )

        def fill(at: tuple[int, int]) -> None:
            place, number = at
            if number not in self.orders:
                self.orders[number] = Batches(self.members[number], self.config)
            self.orders[number].draw(rows[:, :, place], weight[:, :, place])

        if len(occupied) < MANY_PLACES:
            for at in occupied:
                fill(at)
            return
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # numpy shuffles outside the interpreter's lock
            list(pool.map(fill, occupied, chunksize=16))


class Batches:
    """Batches of one member, ordered by its own seed: a pass over its rows without replacement, then the next."""

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
        """(epoch, row) distributed round-robin to (epoch, step, batch), the last places filled with zeros."""
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
