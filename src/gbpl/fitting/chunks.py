"""Members trained on rows that come in chunks: the loop of `gbpl.fitting.stack`, with a table per block.

A chunk is one epoch: every member takes its steps through the chunk's rows outside its fold and is then evaluated on
rows of its fold that are held in memory and lie on top of every table. Steps, batches and tables have one shape
throughout, so one program is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from gbpl.fitting.batches import BlockData, Seats
from gbpl.fitting.block import Block, Objective
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member
from gbpl.fitting.stack import StackFit, TrainingLoop, collect_stack
from gbpl.models.base import ScoreModel
from gbpl.runtime.devices import as_aligned

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["ChunkBatches", "ChunkFit", "ChunkTable", "Held", "batch_plan"]

SLOTS_PER_CPU = 3  # with batches of some hundred rows more members fall out of the cache (measured: 77 against 40)
RARE = 6.0  # standard deviations by which the rows outside a fold may exceed their expected number


class Held(NamedTuple):
    """Rows on top of every table: the fold each belongs to, and its weight."""

    fold: Int[np.ndarray, " held"]
    weight: Float[np.ndarray, " held"] | None


class ChunkTable(NamedTuple):
    """A chunk as a table: the held rows and below them the chunk's, whose folds and weights are given.

    A short chunk leaves the last rows of the table unused.
    """

    x: Float[np.ndarray, "table_row feature"]
    target: Any
    fold: Int[np.ndarray, " row"]
    weight: Float[np.ndarray, " row"] | None


def batch_plan(rows: int, folds: int, size: int) -> tuple[int, int]:
    """Steps through a chunk and room in a batch, for batches of about `size` of the rows outside a fold.

    How many of a chunk's rows are outside a fold is binomial; there is room for six standard deviations more than
    expected, and rows beyond that (one chunk in 10^9) are skipped.
    """
    share = 1.0 / folds
    expected, spread = rows * (1.0 - share), math.sqrt(rows * share * (1.0 - share))
    steps = max(1, round(expected / size))
    return steps, min(rows, math.ceil((expected + RARE * spread) / steps))


class ChunkFit:
    """Members of several folds, to be trained on chunks.

    Only the fold, zeta, eta, table and seed of `members` are used; `n_train` is how many rows each learns from in all.
    `mean_weight` is that of all rows. If shapes and types of the `target` of all chunks are given, the training
    step is compiled at once, while the initial state is made.
    """

    def __init__(
        self,
        members: Sequence[Member],
        held: Held,
        objective: Objective,
        model: ScoreModel,
        config: FitConfig,
        devices: Sequence[jax.Device],
        *,
        chunk_rows: int,
        chunks: int,
        n_train: float,
        n_features: int,
        mean_weight: float = 1.0,
        target: Any = None,
    ) -> None:
        self.members, self.held, self.mean_weight = list(members), held, mean_weight
        self.fold = np.array([member.fold for member in members], int)
        self.folds = int(self.fold.max()) + 1
        self.steps, self.size = batch_plan(chunk_rows, self.folds, config.batch_size or 128)
        table_rows = len(held.fold) + chunk_rows
        # Best weights are kept, and no member stops before the learning rate has come down.
        config = replace(
            config, max_epochs=chunks, patience=chunks, decay_steps=chunks * self.steps, epoch_rows=4 * table_rows
        )
        self.block = Block(
            model=model, objective=objective, config=config, devices=list(devices[: len(members)]),
            trainings=[[self._watched(member)] for member in members], table_rows=table_rows, n_features=n_features,
            epochs=1, steps=self.steps, n_train=n_train, quick=True,
        )  # fmt: skip
        banks = self._banks()
        with ThreadPoolExecutor(1) as pool:
            shape = self.steps, len(banks[0]), self.size
            compiling = None if target is None else pool.submit(self.block.compile, banks[0], target, shape)
            self.loop = TrainingLoop(self.block, banks, epoch_rows=self.steps * self.size)
        if compiling is not None:
            compiling.result()

    def _watched(self, member: Member) -> Member:
        """The member, evaluated on the held rows of its fold."""
        own = np.flatnonzero(self.held.fold == member.fold)
        weights = None if self.held.weight is None else self.held.weight[own]
        return replace(member, validation=own, validation_weights=weights)

    def _banks(self) -> list[Seats]:
        """All members seated, in banks of one size that suits the cache."""
        count, members = len(self.block.devices), len(self.members)
        most = SLOTS_PER_CPU * count if self.block.devices[0].platform == "cpu" else members + count
        size = self.block.rounded(-(-members // -(-members // most)))
        places = range(0, members, size)
        return [[n if n < members else None for n in range(start, start + size)] for start in places]

    def fit(self, chunks: Iterable[ChunkTable]) -> StackFit:
        """The members with their best weights; an epoch of theirs is a chunk.

        The next chunk is read before the members have learned from the last.
        """
        fitted = dict(self.loop.run(ChunkBatches(self, iter(chunks))))
        return collect_stack(self.members, [fitted[number][0] for number in range(len(self.members))])

    def deal(
        self, fold: Int[np.ndarray, " row"], weight: Float[np.ndarray, " row"] | None
    ) -> tuple[Int[np.ndarray, "step fold batch"], Float[np.ndarray, "step fold batch"]]:
        """Table rows and their weights in each step of each fold's members: the chunk's order, without the fold."""
        rows = np.zeros((self.folds, self.size * self.steps), np.int32)
        share = np.zeros(rows.shape, np.float32)
        for number in range(self.folds):
            outside = np.flatnonzero(fold != number)[: rows.shape[1]]
            rows[number, : len(outside)] = len(self.held.fold) + outside
            counted = np.zeros(rows.shape[1], np.float32)
            counted[: len(outside)] = 1.0
            in_step = np.maximum(counted.reshape(self.size, self.steps).sum(axis=0), 1.0)
            if weight is not None:
                counted[: len(outside)] = weight[outside] / self.mean_weight
            share[number] = (counted.reshape(self.size, self.steps) / in_step).ravel()
        shape = (self.folds, self.size, self.steps)
        return rows.reshape(shape).transpose(2, 0, 1), share.reshape(shape).transpose(2, 0, 1)


class ChunkBatches:
    """Chunks as a source of blocks: each is one epoch of every member."""

    ends = True

    def __init__(self, fit: ChunkFit, chunks: Iterator[ChunkTable]) -> None:
        self.fit, self.chunks = fit, chunks
        self.drawn = next(chunks, None)

    def take(self, banks: Sequence[Seats]) -> BlockData | None:
        if self.drawn is None:
            return None
        x, target, fold, weight = self.drawn
        self.drawn = None
        table = self.fit.block.share(jax.tree.map(as_aligned, (x, target)))
        rows, share = self.fit.deal(fold, weight)
        of_slot = [[0 if number is None else self.fit.fold[number] for number in seats] for seats in banks]
        return BlockData(table, [(rows[:, folds], share[:, folds]) for folds in of_slot])

    def draw_ahead(self, banks: Sequence[Seats]) -> None:
        self.drawn = next(self.chunks, None)
