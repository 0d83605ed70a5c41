"""Outcomes to learn from in passes: as they came, or pseudo-outcomes by the model of a row's fold (section 7).

A row's pseudo-outcome is cross-fitted, but the outcome models of other folds have seen the fold on which the welfare of
a score is measured: `gbpl.nuisance.cross_fit` avoids that too, with a model for each pair of folds. Here it concerns
the weights of the entries alone, because values are computed from rows that no model has seen.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.fitting.chunks import ChunkTable
from gbpl.fitting.members import Member
from gbpl.models.adapters import as_model
from gbpl.models.networks import MLP
from gbpl.nuisance.averaged import convex_weights
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.learners import MaskedSquare
from gbpl.nuisance.nuisances import Nuisances
from gbpl.passes.additive import AdditiveMeans
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.leaf_means import OutcomeForests, unseen_means
from gbpl.passes.propensities import Propensities
from gbpl.passes.rows import Chunk
from gbpl.passes.screening import LEAST_OF_SAMPLE, largest_share
from gbpl.runtime.pipeline import ahead, one_behind
from gbpl.runtime.threads import one_thread

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["OutcomeTables"]

OUTCOME_VISITS = 12_000_000  # rows that pass an outcome model, in several passes where there are fewer
BATCH = 1_024  # the outcome of one action is noisy, and larger batches err less

LEAST_SHARE = 0.02  # of a learner in the mean outcomes: one with less costs time and adds nothing


class _Networks:
    """Mean outcomes by the network of each fold, which has not learned from it."""

    name = "network"

    def __init__(self, outputs: FoldOutputs) -> None:
        self.outputs = outputs

    def start(self, read: ReadChunk) -> Any:
        """Begin with the means of rows; `finish` waits for them."""
        return self.outputs.start(read.x, read.fold)

    def finish(self, pending: Any, n: int) -> Float[np.ndarray, "row column"]:
        return self.outputs.finish(pending, n)[0]


class OutcomeTables:
    """Tables of outcomes of the rows of a source, net of costs.

    With full feedback there is one, as it came. With logged feedback there is one for each share of the doubly robust
    correction, once the models of the log have learned: networks in passes, forests and additive regressions by sums
    over the rows, averaged by their errors on rows they did not see; and propensities where they are not given.
    """

    def __init__(
        self, passes: Passes, *, construction: str, corrections: tuple[float, ...], nuisance: CrossFit
    ) -> None:
        self.read, self.source, self.construction = passes, passes.source, construction
        self.corrections = corrections if self.source.logged and construction == "dr" else (1.0,)
        network = nuisance.outcome_model is None or isinstance(nuisance.outcome_model, str)
        self.model = as_model(MLP() if network else nuisance.outcome_model)
        self.clip = nuisance.clip_for(len(self.source.actions)) if self.source.logged else 0.0
        self.columns = 1 if construction == "centered_ipw" else len(self.source.actions)
        self.averages = nuisance.averages
        self.learners: list[_Networks | OutcomeForests | AdditiveMeans] = []
        self.shares: Float[np.ndarray, "fold learner"] = np.ones((passes.folds, 1))
        self.propensities: Propensities | None = None

    @property
    def modelled(self) -> bool:
        """Whether there are outcome models."""
        return self.source.logged and self.construction != "ipw"

    @property
    def varies(self) -> bool:
        """Whether they have anything to learn."""
        return self.modelled and self.read.statistics.spread > 0.0

    @property
    def passes(self) -> int:
        """Passes in which networks learn."""
        return self.read.planned(OUTCOME_VISITS) if self.modelled else 0

    def learn(self) -> None:
        """Fit the models of the log."""
        wanted: set[type] = set()
        if self.varies:  # a constant needs no model
            averages = self.averages and self.columns > 1
            with ThreadPoolExecutor(1) as pool:  # while the network learns, on a device of its own if there is one
                rehearsal = pool.submit(self._of_sample) if averages else None
                self.learners = [self._networks()]
                tried = None if rehearsal is None else rehearsal.result()
            wanted = set() if tried is None else self._screened(tried)
        beside = self._by_sums(wanted)
        if beside:
            self.learners += beside
            self._average()

    def _of_sample(self) -> dict[type, Float[np.ndarray, " row"]]:
        """Mean outcomes of the actions taken, by what learns from sums; of the sample, by models that saw them not."""
        read, target = self.read, self._target(self.read.grown.chunk)[0]
        action = read.grown.chunk.action
        assert action is not None
        made: dict[type, np.ndarray] = {OutcomeForests: unseen_means(read.grown, target, self.columns, seed=read.seed)}
        if AdditiveMeans.fits(read, self.columns):
            additive = AdditiveMeans(read, self.columns)
            additive.add(read.grown, target)
            additive.close()
            table = additive.finish(additive.start(read.grown), len(action))
            made[AdditiveMeans] = table[np.arange(len(action)), action]
        return made

    def _screened(self, tried: dict[type, Float[np.ndarray, " row"]]) -> set[type]:
        """Which of them may have a share beside the network once they have learned from all rows."""
        (network,), grown = self.learners, self.read.grown
        action, weight = grown.chunk.action, grown.chunk.weight
        assert action is not None
        rows, target = np.arange(len(action)), self._target(grown.chunk)[0].astype(np.float64)
        by_network = network.finish(network.start(grown), len(rows))[rows, action]
        shares = {kind: largest_share(by_network, means, target, weight) for kind, means in tried.items()}
        return {kind for kind, share in shares.items() if share > LEAST_OF_SAMPLE}

    def _by_sums(self, wanted: Collection[type]) -> list[OutcomeForests | AdditiveMeans]:
        """Everything that learns from sums, in one pass."""
        read = self.read
        beside: list[OutcomeForests | AdditiveMeans] = []
        if OutcomeForests in wanted:
            beside.append(OutcomeForests(read, self._target(read.grown.chunk)[0], self.columns))
        if AdditiveMeans in wanted:
            beside.append(AdditiveMeans(read, self.columns))
        if self.source.logged and read.grown.chunk.propensity is None:
            self.propensities = Propensities(read, average=self.averages)
        every = [*beside, *([] if self.propensities is None else [self.propensities])]
        if not every:
            return []
        with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
            for chunk in ahead(read.in_order()):
                work = []
                if beside:
                    target = self._target(chunk.chunk)[0]
                    work = [pool.submit(part.add, chunk, target) for part in beside]
                if self.propensities is not None:
                    work.append(pool.submit(self.propensities.add, chunk))
                for done in work:
                    done.result()
                read.tidy()
        for part in every:
            part.close()
        return beside

    def _networks(self) -> _Networks:
        """One network per fold with squared loss of the action taken, on the standardised outcome."""
        read = self.read
        seeds = np.random.SeedSequence([read.seed, 7]).generate_state(read.folds)
        members = [
            Member(np.flatnonzero(read.sample.fold != fold), seed=int(seed), fold=fold)
            for fold, seed in enumerate(seeds)
        ]
        shapes = (jax.ShapeDtypeStruct((read.table_rows,), np.float32),) * 2
        compiled = None if read.on_cpu else shapes
        fitting = read.chunk_fit(
            members, MaskedSquare(self.columns), self.model, self.passes, compiled, batch_size=BATCH
        )
        stack = read.fit(fitting, self._learned_from())
        params = jax.tree.map(lambda leaf: leaf[:, None], stack.params)
        return _Networks(FoldOutputs(params, self.model, read.devices))

    def _average(self) -> None:
        """Shares of the learners, for each fold by the errors of the others' rows; those of little use are dropped."""
        grown = self.read.grown
        action, weight = grown.chunk.action, grown.chunk.weight
        assert action is not None
        rows, target = np.arange(len(grown.x)), self._target(grown.chunk)[0].astype(np.float64)
        means = [learner.finish(learner.start(grown), len(rows)) for learner in self.learners]
        predictions = np.column_stack([part[rows, action] for part in means]).astype(np.float64)
        shares = []
        for fold in range(self.read.folds):
            own = grown.fold != fold
            shares.append(convex_weights(predictions[own], target[own], None if weight is None else weight[own]))
        kept = np.stack(shares)
        used = kept.max(axis=0) > LEAST_SHARE
        self.learners = [learner for learner, one in zip(self.learners, used, strict=True) if one]
        self.shares = kept[:, used] / kept[:, used].sum(axis=1, keepdims=True)

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

    def start(self, read: ReadChunk) -> list[Any]:
        """Begin with the mean outcomes of some rows; `finish` waits for them."""
        return [learner.start(read) for learner in self.learners]

    def nuisances(self, read: ReadChunk, pending: list[Any]) -> Nuisances:
        """Propensities and predicted mean outcomes of logged rows, by the models of each row's fold."""
        log, known, means = read.chunk.logged(self.source.actions), self.read.statistics, None
        if self.learners:
            means = np.full((len(read.x), self.columns), known.level)
            for learner, asked, share in zip(self.learners, pending, self.shares.T[:, read.fold], strict=True):
                means += known.spread * share[:, None] * learner.finish(asked, len(read.x)).astype(np.float64)
        elif self.modelled:
            means = np.full((len(read.x), self.columns), known.level)
        estimated = self.propensities is not None
        propensity = log.propensity if self.propensities is None else self.propensities.table(read)
        assert propensity is not None
        shares = None
        if self.averages and self.learners:
            names = [learner.name for learner in self.learners]
            shares = dict(zip(names, self.shares.mean(axis=0).tolist(), strict=True))
        return Nuisances(log, propensity, self.clip, estimated, means, shares=shares)

    def finish(self, read: ReadChunk, pending: Any, tables: int | None = None) -> list[Float[np.ndarray, "row action"]]:
        """The first tables of a chunk, or all of them."""
        if not self.source.logged:
            assert read.chunk.outcomes is not None
            return [read.chunk.outcomes]
        return self.pseudo_outcomes(self.nuisances(read, pending), tables)

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
