"""What all passes over a source share: its chunks, the samples kept in memory, and the fit of members to chunks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbpl.fitting.chunks import ChunkFit, ChunkTable, Held
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member
from gbpl.fitting.stack import Objective, StackFit
from gbpl.models.base import ScoreModel
from gbpl.passes.rows import Chunk, RowSource, even_rows
from gbpl.passes.statistics import read_statistics
from gbpl.path.plan import PathSettings
from gbpl.runtime.devices import aligned_empty, resolve_devices
from gbpl.runtime.memory import give_back_memory
from gbpl.runtime.progress import Progress

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Passes", "ReadChunk", "planned_passes"]

HELD = 4_096  # of a fold's rows in the sample, those that members are evaluated on after each chunk
IN_ORDER, GPU_IN_ORDER = 4_096, 16_384  # rows at a time: each has a policy by every entry of the path
DEFAULT, BATCH = FitConfig(learning_rate=3e-3), 512
MOST_PASSES = 30


class ReadChunk(NamedTuple):
    """A chunk, its features standardised, and the fold of each row."""

    chunk: Chunk
    x: Float[np.ndarray, "row feature"]
    fold: Int[np.ndarray, " row"]


def planned_passes(n: int, visits: int) -> int:
    """Passes in which every member is passed by `visits` rows, within limits; it depends on nothing but n."""
    return max(1, min(MOST_PASSES, math.ceil(visits / n)))


class Passes:
    """A source that has been read once: its statistics and its samples, and chunks in any number of passes.

    Nothing learns from the rows of `sample`: values and gains are computed from them, and chunks come without them.
    Trees are grown on the rows of `grown`, of which up to `HELD` of each fold (`top`) lie on top of every table that
    members learn from. `fold_rows` are the rows of the sample by fold.
    """

    def __init__(self, source: RowSource, settings: PathSettings, *, folds: int, sample: int, chunk_rows: int) -> None:
        self.source, self.settings, self.folds, self.seed = source, settings, folds, settings.seed
        self.rows = even_rows(source.n_rows, chunk_rows)
        self.per_pass = -(-source.n_rows // self.rows)
        self.config = settings.config or DEFAULT
        self.devices = resolve_devices(settings.device)  # type: ignore[arg-type]
        self.statistics = read_statistics(source, rows=self.rows, sample=sample, folds=folds, seed=self.seed)
        self.sample, self.grown = self._read(self.statistics.sample), self._read(self.statistics.grown)
        fold = self.grown.fold
        order = np.random.default_rng([self.seed, 5]).permutation(len(fold))
        on_top = np.sort(np.concatenate([order[fold[order] == number][:HELD] for number in range(folds)]))
        self.top = self._read(self.grown.chunk.take(on_top))
        self.held = Held(self.top.fold, self.top.chunk.weight)
        self.fold_rows = [np.flatnonzero(self.sample.fold == number).astype(np.int32) for number in range(folds)]
        self.bar, self.done = Progress("fitting", 0, show=False), 0

    @property
    def on_cpu(self) -> bool:
        return self.devices[0].platform == "cpu"

    @property
    def table_rows(self) -> int:
        """Rows of the tables that members learn from."""
        return len(self.top.x) + self.rows

    @property
    def thinning(self) -> float:
        """Rows that are learned from for each row of the sample."""
        return self.source.n_rows / len(self.sample.x) - 1.0

    def planned(self, visits: int) -> int:
        """Passes of members that `visits` rows should pass."""
        return min(planned_passes(self.source.n_rows, visits), self.config.max_epochs)

    def _read(self, chunk: Chunk) -> ReadChunk:
        fold = chunk.folds(self.folds, seed=self.seed)
        return ReadChunk(chunk, self.statistics.standardizer.apply(chunk.x), fold)

    def _learned(self, chunks: Iterator[Chunk]) -> Iterator[ReadChunk]:
        """Chunks without the rows of the sample."""
        for chunk in chunks:
            kept = chunk.take(np.flatnonzero(~self.statistics.sampling.held(chunk)))
            if len(kept):
                yield self._read(kept)

    def shuffled(self, stage: int, passes: int) -> Iterator[ReadChunk]:
        """Chunks of several passes, each in an order of its own."""
        for number in range(passes):
            order = int(np.random.SeedSequence([self.seed, stage, number]).generate_state(1)[0])
            yield from self._learned(self.source.chunks(self.rows, order))

    def in_order(self) -> Iterator[ReadChunk]:
        """Every row that is learned from once, fewer at a time."""
        rows = min(self.rows, IN_ORDER if self.on_cpu else GPU_IN_ORDER)
        return self._learned(self.source.chunks(rows, None))

    def table(self, top: np.ndarray, below: np.ndarray) -> np.ndarray:
        """Rows on top, the chunk's, and zeros up to the size that is compiled."""
        out = aligned_empty((self.table_rows, *top.shape[1:]))
        out[: len(top)] = top
        out[len(top) : len(top) + len(below)] = below
        out[len(top) + len(below) :] = 0.0
        return out

    def features(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "table_row feature"]:
        """The features of a table."""
        return self.table(self.top.x, x)

    def chunk_fit(
        self, members: Sequence[Member], objective: Objective, model: ScoreModel, passes: int, target: Any = None,
        *, batch_size: int = BATCH,
    ) -> ChunkFit:  # fmt: skip
        """Members to be fitted in some passes; with the shapes of `target` given, the block is compiled at once.

        Batches are of `batch_size` rows where the user names no size.
        """
        n, config = self.source.n_rows, self.config
        config = replace(config, batch_size=config.batch_size or batch_size)
        learned = n - len(self.sample.x)
        return ChunkFit(
            members, self.held, objective, model, config, self.devices,
            chunk_rows=self.rows, chunks=passes * self.per_pass, n_train=learned * (1.0 - 1.0 / self.folds),
            n_features=self.source.n_features, mean_weight=self.statistics.weight / n, target=target,
        )  # fmt: skip

    def fit(self, members: ChunkFit, tables: Iterable[ChunkTable]) -> StackFit:
        """Fit the members to the tables of all chunks, and show how far they are."""
        return members.fit(self._counted(tables))

    def _counted(self, tables: Iterable[ChunkTable]) -> Iterator[ChunkTable]:
        for table in tables:
            yield table
            self.done += 1
            self.bar.update(self.done, "chunks")
            self.tidy()

    def tidy(self) -> None:
        """Give freed memory back."""
        if self.on_cpu:  # with a GPU the process has gigabytes of its libraries, and looking through them takes long
            give_back_memory()
