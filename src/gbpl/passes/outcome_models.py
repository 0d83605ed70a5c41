"""Outcomes to learn from in passes: as they came, or pseudo-outcomes by the model of a row's fold (section 7).

A row's pseudo-outcome is cross-fitted, but the outcome models of other folds have seen the fold on which the welfare of
a score is measured: `gbpl.nuisance.cross_fit` avoids that too, with a model for each pair of folds, which matters for
small samples only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.fitting.chunks import ChunkTable
from gbpl.fitting.members import Member
from gbpl.models.adapters import as_model
from gbpl.models.networks import MLP
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.learners import MaskedSquare
from gbpl.nuisance.nuisances import Nuisances
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.rows import Chunk
from gbpl.runtime.pipeline import ahead, one_behind

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["OutcomeTables"]

OUTCOME_VISITS = 8_000_000  # rows that pass an outcome model, in several passes where there are fewer


class OutcomeTables:
    """Tables of outcomes of the rows of a source, net of costs.

    With full feedback there is one, as it came. With logged feedback there is one for each share of the doubly robust
    correction, once the outcome models have learned.
    """

    def __init__(
        self, passes: Passes, *, construction: str, corrections: tuple[float, ...], nuisance: CrossFit
    ) -> None:
        self.read, self.source, self.construction = passes, passes.source, construction
        self.corrections = corrections if self.source.logged and construction == "dr" else (1.0,)
        # Of the learners that "auto" averages, the network is the one that can learn in passes.
        network = nuisance.outcome_model is None or isinstance(nuisance.outcome_model, str)
        self.model = as_model(MLP() if network else nuisance.outcome_model)
        self.clip = nuisance.clip_for(len(self.source.actions)) if self.source.logged else 0.0
        self.columns = 1 if construction == "centered_ipw" else len(self.source.actions)
        self.outputs: FoldOutputs | None = None

    @property
    def modelled(self) -> bool:
        """Whether there are outcome models."""
        return self.source.logged and self.construction != "ipw"

    @property
    def passes(self) -> int:
        """Passes in which they learn."""
        return self.read.planned(OUTCOME_VISITS) if self.modelled else 0

    def learn(self) -> None:
        """One network per fold with squared loss of the action taken, on the standardised outcome."""
        read, known = self.read, self.read.statistics
        if not self.modelled or known.spread == 0.0:  # a constant needs no model
            return
        seeds = np.random.SeedSequence([read.seed, 7]).generate_state(read.folds)
        members = [
            Member(np.flatnonzero(read.sample.fold != fold), seed=int(seed), fold=fold)
            for fold, seed in enumerate(seeds)
        ]
        shapes = (jax.ShapeDtypeStruct((read.table_rows,), np.float32),) * 2
        compiled = None if read.on_cpu else shapes
        fitting = read.chunk_fit(members, MaskedSquare(self.columns), self.model, self.passes, compiled)
        stack = read.fit(fitting, self._learned_from())
        params = jax.tree.map(lambda leaf: leaf[:, None], stack.params)
        self.outputs = FoldOutputs(params, self.model, read.devices)

    def _learned_from(self) -> Iterator[ChunkTable]:
        read = self.read
        top = self._target(read.top.chunk)
        for chunk, x, fold in ahead(read.shuffled(1, self.passes)):
            target = tuple(read.table(*pair) for pair in zip(top, self._target(chunk), strict=True))
            yield ChunkTable(read.features(x), target, fold, chunk.weight)

    def _target(self, chunk: Chunk) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
        known = self.read.statistics
        assert chunk.outcome is not None
        assert chunk.action is not None
        action = np.zeros(len(chunk)) if self.columns == 1 else chunk.action
        return ((chunk.outcome - known.level) / known.spread).astype(np.float32), action.astype(np.float32)

    def start(self, read: ReadChunk) -> Any:
        """Begin with the mean outcomes of some rows; `finish` waits for them."""
        return None if self.outputs is None else self.outputs.start(read.x, read.fold)

    def nuisances(self, chunk: Chunk, pending: Any) -> Nuisances:
        """Propensities and predicted mean outcomes of logged rows, the latter by the network of each row's fold."""
        log, known, means = chunk.logged(self.source.actions), self.read.statistics, None
        if self.outputs is not None:
            means = known.level + known.spread * self.outputs.finish(pending, len(chunk))[0].astype(np.float64)
        elif self.modelled:
            means = np.full((len(chunk), self.columns), known.level)
        assert log.propensity is not None
        return Nuisances(log, log.propensity, self.clip, False, means)

    def finish(self, read: ReadChunk, pending: Any, tables: int | None = None) -> list[Float[np.ndarray, "row action"]]:
        """The first tables of a chunk, or all of them."""
        if not self.source.logged:
            assert read.chunk.outcomes is not None
            return [read.chunk.outcomes]
        return self.pseudo_outcomes(self.nuisances(read.chunk, pending), tables)

    def of(self, read: ReadChunk) -> list[Float[np.ndarray, "row action"]]:
        """All tables of some rows."""
        return self.finish(read, self.start(read))

    def in_order(self) -> Iterator[tuple[ReadChunk, list[Float[np.ndarray, "row action"]]]]:
        """Every row that is learned from once, with all tables."""
        for read, pending in one_behind((read, self.start(read)) for read in self.read.in_order()):
            yield read, self.finish(read, pending)
            self.read.tidy()

    def pseudo_outcomes(self, known: Nuisances, tables: int | None = None) -> list[Float[np.ndarray, "row action"]]:
        """The same from known nuisances."""
        return [known.pseudo_outcomes(self.construction, correction=share) for share in self.corrections[:tables]]
