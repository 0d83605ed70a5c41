"""Learning in passes over chunks: tables larger than memory, and large ones in memory (sections 4.2, 6, 7 and 9).

What `fit_path` does with all rows at hand is done here with a chunk at a time and a sample of the rows kept:

1. a pass for the statistics: moments of features and outcome, how often each action was taken, and the sample;
2. with logged feedback, passes for the outcome models, a network a fold, which never learns from its fold;
3. passes for the scores, a member for each fold and entry of the path; the pseudo-outcomes of a chunk are made on the
   way, each row's by the outcome model of its own fold;
4. a pass that judges every member on the rows of its fold, and weighs the entries;
5. a pass for the value out of fold of the policy with these weights, and for the curvature of the members that count,
   which is all that their last-layer posterior needs of the rows (its size and work grow with the square of actions
   times hidden units: beyond `MOST_CURVATURE` numbers it is left to the sample).

What comes out is a `PathFit` whose rows are the sample. Sums over all n rows are about `thinning` = n / (rows of the
sample) times those over the sample.

A row's pseudo-outcome is cross-fitted, but the outcome models of other folds have seen the fold a score is judged on:
`gbpl.nuisance.cross_fit` avoids that too, with a model for each pair of folds, which matters for small samples only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.feedback.full import FullFeedback, unit_of
from gbpl.fitting.chunk_fit import ChunkFit, Held
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member, across_folds
from gbpl.fitting.stack import StackFit
from gbpl.models.adapters import as_model
from gbpl.models.base import GrownModel
from gbpl.models.networks import MLP
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.learners import MaskedSquare, PerAction, WithAction
from gbpl.nuisance.nuisances import Nuisances, check_construction
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.rows import Chunk, RowSource, ahead, even_rows, folds_of, one_behind
from gbpl.passes.statistics import read_statistics
from gbpl.passes.sums import Curvatures, SeenRows, ValueSums, judge_fold
from gbpl.path.out_of_fold import AUTO_PATH, OutOfFold, ZetaPath, average_weights, dropped_small, select_weights
from gbpl.path.path import PathFit, PathSettings, Table, _members, _scaled_targets, weighed_fit
from gbpl.runtime.devices import aligned_empty, resolve_devices
from gbpl.runtime.memory import give_back_memory
from gbpl.runtime.progress import Progress
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LargeFit", "fit_large"]

CHUNK = 32_768  # rows at a time: about six chunks are in memory at once, read, scored or learned from
SAMPLE = 65_536  # rows kept
HELD = 4_096  # of a fold's rows in the sample, those that members are judged on after each chunk
JUDGED, GPU_JUDGED = 4_096, 16_384  # rows at a time: each has a policy by every entry of the path
FEW_ROWS = 1_000
DEFAULT = FitConfig(learning_rate=3e-3, batch_size=512)
OUTCOME_VISITS, SCORE_VISITS = 8_000_000, 2_000_000  # rows that pass a member, in several passes where there are fewer
MOST_PASSES = 30
MOST_CURVATURE = 150_000  # up to three actions of the default network: more would take longer than learning
MODEL_PATH = (3.0, 0.1)  # zetas of the outcome model alone: without noise they differ little, and two do


@dataclass(frozen=True, slots=True, eq=False)
class LargeFit:
    """A fit to all rows, seen on a sample of them.

    `feedback` has the judge's outcomes of the sample and `nuisances` what the outcome models say of it (None with full
    feedback); `numbers` are its row numbers. `estimate` and `se` are the value out of fold of the deterministic rule
    over all `rows`. `taken` counts the rows of each action, None with full feedback.
    """

    fit: PathFit
    feedback: FullFeedback
    nuisances: Nuisances | None
    numbers: Int[np.ndarray, " row"]
    rows: int
    estimate: float
    se: float
    taken: Int[np.ndarray, " action"] | None


def planned_passes(n: int, visits: int) -> int:
    """Passes in which every member is passed by `visits` rows, within limits; it depends on nothing but n."""
    return max(1, min(MOST_PASSES, math.ceil(visits / n)))


def fit_large(
    source: RowSource,
    settings: PathSettings,
    *,
    folds: int = 5,
    construction: str = "dr",
    corrections: Sequence[float] = (1.0, 0.0),
    nuisance: CrossFit | None = None,
    sample: int = SAMPLE,
    chunk_rows: int = CHUNK,
    told: Callable[[str], None] | None = None,
) -> LargeFit:
    """Fit the path to all rows of a source in passes over it; memory does not grow with their number.

    `settings` are those of `fit_path`. With logged feedback, `construction` and `corrections` name the tables that are
    learned from (the first judges), and of `nuisance` the clip level and the network for the outcome count. `told`
    hears the name of each stage as it begins.

    >>> from gbpl.feedback.full import FullFeedback, unit_of
    >>> from gbpl.passes.rows import ArrayRows
    >>> from gbpl.surrogates import Binary
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 1))
    >>> rows = ArrayRows(FullFeedback.of(x, np.hstack([np.zeros((2000, 1)), x])))
    >>> settings = PathSettings(surrogate=Binary(), model=MLP(hidden=(8,)), zetas=[1.0], eta=None, prior_sd=1.0,
    ...                         committee=True, seed=0, config=None, device="auto", progress=False)
    >>> bool(fit_large(rows, settings).estimate > 0.35)  # the best rule is worth 0.4
    True
    """
    work = _Work(source, settings, folds, construction, tuple(corrections), nuisance or CrossFit(), chunk_rows, told)
    return work.run(sample)


@dataclass(frozen=True, slots=True, eq=False)
class _Means:
    """Predicted mean outcomes of every row by the network of its fold; a constant where the outcome is one."""

    outputs: FoldOutputs | None
    columns: int
    level: float
    spread: float

    def start(self, x: np.ndarray, fold: np.ndarray) -> Any:
        return None if self.outputs is None else self.outputs.start(x, fold)

    def finish(self, pending: Any, n: int) -> Float[np.ndarray, "row column"]:
        if self.outputs is None:
            return np.full((n, self.columns), self.level)
        return self.level + self.spread * self.outputs.finish(pending, n)[0].astype(np.float64)


class _Work:
    """One fit on its way."""

    def __init__(
        self,
        source: RowSource,
        settings: PathSettings,
        folds: int,
        construction: str,
        corrections: tuple[float, ...],
        nuisance: CrossFit,
        chunk_rows: int,
        told: Callable[[str], None] | None,
    ) -> None:
        check_construction(construction)
        if not settings.committee or folds < 2:
            raise ValueError(
                f"learning in passes needs a committee of at least 2 folds, got {folds if settings.committee else None}"
                "; try 5"
            )
        if source.n_rows < FEW_ROWS:
            raise ValueError(
                f"learning in passes needs at least {FEW_ROWS} rows, got {source.n_rows}; fit them in memory"
            )
        if settings.beside or isinstance(settings.model, GrownModel):
            raise ValueError(
                f"learning in passes fits one network, got {', '.join(type(m).__name__ for m in settings.models)}; try "
                "model=MLP()"
            )
        if hasattr(nuisance.outcome_model, "predict") or isinstance(nuisance.outcome_model, PerAction | WithAction):
            raise ValueError(
                f"outcome_model must be a network to learn in passes, got {type(nuisance.outcome_model).__name__}; "
                "leave it out, or give one such as MLP()"
            )
        self.source, self.settings, self.folds, self.seed = source, settings, folds, settings.seed
        self.construction = construction
        self.corrections = corrections if construction == "dr" else (1.0,)
        # Of the learners that "auto" averages, the network is the one that can learn in passes.
        network = nuisance.outcome_model is None or isinstance(nuisance.outcome_model, str)
        self.outcome_model = as_model(MLP() if network else nuisance.outcome_model)
        self.clip = nuisance.clip_for(len(source.actions)) if source.logged else 0.0
        self.rows = even_rows(source.n_rows, chunk_rows)
        self.per_pass = -(-source.n_rows // self.rows)
        self.config = settings.config or DEFAULT
        if self.config.batch_size is None:
            self.config = replace(self.config, batch_size=DEFAULT.batch_size)
        self.devices = resolve_devices(settings.device)  # type: ignore[arg-type]
        self.on_cpu = self.devices[0].platform == "cpu"
        self.told = told or (lambda stage: None)

    def run(self, sample: int) -> LargeFit:
        self.told("statistics")
        self._read(sample)
        outcome = self._passes(OUTCOME_VISITS) if self.source.logged and self.construction != "ipw" else 0
        scores = self._passes(SCORE_VISITS)
        self.bar = Progress("fitting", (outcome + scores) * self.per_pass, show=self.settings.progress)
        self.done = 0
        try:
            self.told("outcome models")
            with ThreadPoolExecutor(1) as pool:
                rehearsal = pool.submit(self._rehearse, scores) if outcome and not self.on_cpu else None
                self.means = self._outcome_models(outcome) if outcome else None
            if rehearsal is not None:
                rehearsal.result()
            self.told("scores")
            self._plan()
            stack = self._scores(scores)
        finally:
            self.bar.close()
        self.told("judging")
        fit = self._judged(stack)
        self.told("value")
        estimate, se, curvatures = self._value(stack, fit)
        fit = replace(fit, curvatures=curvatures)
        return LargeFit(
            fit=fit,
            feedback=self.feedback,
            nuisances=self.nuisances,
            numbers=self.sample.number,
            rows=self.source.n_rows,
            estimate=estimate,
            se=se,
            taken=None if self.taken is None else self.taken.sum(axis=0),
        )

    def _passes(self, visits: int) -> int:
        return min(planned_passes(self.source.n_rows, visits), self.config.max_epochs)

    # -- reading ------------------------------------------------------------------------------------------

    def _chunks(self, stage: int, passes: int) -> Iterator[tuple[Chunk, np.ndarray, np.ndarray]]:
        """Chunks of several passes, each in an order of its own: as they are, standardised, and the rows' folds."""
        for number in range(passes):
            order = int(np.random.SeedSequence([self.seed, stage, number]).generate_state(1)[0])
            for chunk in self.source.chunks(self.rows, order):
                yield chunk, self.standardizer.apply(chunk.x), self._folds(chunk)

    def _folds(self, chunk: Chunk) -> Int[np.ndarray, " row"]:
        return folds_of(chunk.number, self.folds, seed=self.seed)

    def _read(self, size: int) -> None:
        known = read_statistics(self.source, rows=self.rows, sample=size, folds=self.folds, seed=self.seed)
        self.standardizer, self.sample, self.taken = known.standardizer, known.sample, known.taken
        self.level, self.spread, self.weight = known.level, known.spread, known.weight
        self._hold()

    def _hold(self) -> None:
        """Rows of the sample that every table has on top: up to `HELD` of each fold."""
        fold = self._folds(self.sample)
        order = np.random.default_rng([self.seed, 5]).permutation(len(fold))
        held = np.sort(np.concatenate([order[fold[order] == number][:HELD] for number in range(self.folds)]))
        weight = self.sample.weight
        self.sample_fold, self.on_top = fold, held
        self.held = Held(fold[held], None if weight is None else weight[held])
        self.sample_x = self.standardizer.apply(self.sample.x)
        self.fold_rows = [np.flatnonzero(fold == number).astype(np.int32) for number in range(self.folds)]

    def _table(self, top: np.ndarray, below: np.ndarray) -> np.ndarray:
        """Held rows, the chunk's, and zeros up to the size that is compiled."""
        out = aligned_empty((len(top) + self.rows, *top.shape[1:]))
        out[: len(top)] = top
        out[len(top) : len(top) + len(below)] = below
        out[len(top) + len(below) :] = 0.0
        return out

    # -- outcome models -----------------------------------------------------------------------------------

    def _chunk_fit(
        self, members: Sequence[Member], objective: Any, model: Any, passes: int, target: Any = None
    ) -> ChunkFit:
        return ChunkFit(
            members, self.held, objective, model, self.config, self.devices,
            chunk_rows=self.rows, chunks=passes * self.per_pass, n_train=self.source.n_rows * (1.0 - 1.0 / self.folds),
            n_features=self.source.n_features, mean_weight=self.weight / self.source.n_rows, target=target,
        )  # fmt: skip

    def _outcome_models(self, passes: int) -> _Means:
        """A network a fold with squared loss of the action taken, on the standardised outcome."""
        columns = 1 if self.construction == "centered_ipw" else len(self.source.actions)
        if self.spread == 0.0:
            return _Means(None, columns, self.level, 0.0)
        seeds = np.random.SeedSequence([self.seed, 7]).generate_state(self.folds)
        members = [
            Member(np.flatnonzero(self.sample_fold != fold), seed=int(seed), label={"fold": fold})
            for fold, seed in enumerate(seeds)
        ]
        shapes = (jax.ShapeDtypeStruct((len(self.on_top) + self.rows,), np.float32),) * 2
        ahead_of = None if self.on_cpu else shapes
        fitting = self._chunk_fit(members, MaskedSquare(columns), self.outcome_model, passes, ahead_of)

        def target(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
            assert chunk.outcome is not None
            assert chunk.action is not None
            action = np.zeros(len(chunk)) if columns == 1 else chunk.action
            return ((chunk.outcome - self.level) / self.spread).astype(np.float32), action.astype(np.float32)

        top_x, top = self.sample_x[self.on_top], target(self.sample.take(self.on_top))
        for chunk, x, fold in ahead(self._chunks(1, passes)):
            below = target(chunk)
            tables = tuple(self._table(*pair) for pair in zip(top, below, strict=True))
            fitting.feed(self._table(top_x, x), tables, fold, chunk.weight)
            self._advance()
        stack = fitting.finish()
        params = jax.tree.map(lambda leaf: leaf[:, None], stack.params)
        return _Means(FoldOutputs(params, self.outcome_model, self.devices), columns, self.level, self.spread)

    def _advance(self) -> None:
        self.done += 1
        self.bar.update(self.done, "chunks")
        self._tidy()

    def _tidy(self) -> None:
        if self.on_cpu:  # with a GPU the process has gigabytes of its libraries, and looking through them takes long
            give_back_memory()

    def _scored(self, chunk: Chunk, means: Float[np.ndarray, "row column"] | None) -> Nuisances:
        log = chunk.logged(self.source.actions)
        assert log.propensity is not None
        return Nuisances(log, log.propensity, self.clip, False, means)

    def _outcomes(self, chunk: Chunk, pending: Any, tables: int | None = None) -> list[Float[np.ndarray, "row action"]]:
        """The first tables of a chunk, net of costs: as they came, or one for each share of the correction."""
        if not self.source.logged:
            assert chunk.outcomes is not None
            return [chunk.outcomes]
        means = None if self.means is None else self.means.finish(pending, len(chunk))
        known = self._scored(chunk, means)
        return [known.pseudo_outcomes(self.construction, correction=share) for share in self.corrections[:tables]]

    def _start(self, x: np.ndarray, fold: np.ndarray) -> Any:
        return None if not self.source.logged or self.means is None else self.means.start(x, fold)

    # -- scores -------------------------------------------------------------------------------------------

    def _plan(self) -> None:
        """The sample's tables, the outcome scale, and the members."""
        settings, sample = self.settings, self.sample
        self.nuisances = None
        if self.source.logged:
            pending = self._start(self.sample_x, self.sample_fold)
            means = None if self.means is None else self.means.finish(pending, len(sample))
            self.nuisances = self._scored(sample, means)
            found = [self.nuisances.pseudo_outcomes(self.construction, correction=c) for c in self.corrections]
        else:
            assert sample.outcomes is not None
            found = [sample.outcomes]
        self.feedback = FullFeedback(sample.x, found[0], sample.weight, self.source.actions)
        self.scale = unit_of(self.feedback.scale)
        self.eta = 1.0 / self.scale if settings.eta is None else settings.eta
        self.inner = settings.surrogate.scaled(self.scale)
        scales = [replace(self.feedback, outcomes=outcomes).scale for outcomes in found]
        self.zetas, self.shares, _, self.members = self._laid_out(scales, self.scale, self.eta)
        self.sample_target = _scaled_targets(self.inner, found, self.scale)
        self.top = [outcomes[self.on_top] for outcomes in found]

    def _laid_out(self, scales: Sequence[float], scale: float, eta: float) -> Any:
        """The path and its members, for tables of such scales."""
        sample, logged = self.sample, self.source.logged
        corrections = self.corrections if logged else (1.0,)
        tables = [
            Table(
                [sample.x], own, correction, MODEL_PATH if correction == 0.0 else AUTO_PATH
            )  # the path asks no outcome
            for own, correction in zip(scales, corrections, strict=True)
        ]
        every = np.arange(len(sample), dtype=np.int32)
        base = Member(every, weights=sample.weight, eta=eta * scale, prior_sd=self.settings.prior_sd)
        return _members(tables, across_folds(base, self.fold_rows, seed=self.seed), scale, self.settings)

    def _rehearse(self, passes: int) -> None:
        """Compile what scores and their judging will need: a few seconds on a GPU, while the outcome models learn.

        Where it is the cores that learn, they would wait for it.
        """
        settings = self.settings
        if settings.surrogate.huber < np.inf:  # the threshold is part of what is compiled, and its scale is not known
            return
        *_, members = self._laid_out([1.0] * len(self.corrections), 1.0, 1.0)
        width = settings.surrogate.target(np.zeros((1, len(self.source.actions)))).shape[1]
        rows = len(self.corrections) * (len(self.on_top) + self.rows)
        target = jax.ShapeDtypeStruct((rows, width), np.float32)
        fitting = self._chunk_fit(members, settings.surrogate, settings.model, passes, target)
        shape = self.folds, len(members) // self.folds
        params = jax.tree.map(lambda leaf: np.zeros((*shape, *leaf.shape[1:]), leaf.dtype), fitting.states[0].params)
        policies = FoldOutputs(params, settings.model, self.devices, settings.surrogate)
        policies.of(np.zeros((1, self.source.n_features), np.float32), np.zeros(1, int))

    def _tables(self, passes: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, Chunk]]:
        """Features, targets and folds of chunks.

        The means of a chunk are begun before the members are given the chunk before it.
        """
        top_x = self.sample_x[self.on_top]
        begun = ((chunk, x, fold, self._start(x, fold)) for chunk, x, fold in ahead(self._chunks(2, passes)))
        for chunk, x, fold, pending in one_behind(begun):
            outcomes = [self._table(*pair) for pair in zip(self.top, self._outcomes(chunk, pending), strict=True)]
            yield self._table(top_x, x), _scaled_targets(self.inner, outcomes, self.scale), fold, chunk

    def _scores(self, passes: int) -> StackFit:
        fitting = self._chunk_fit(self.members, self.inner, self.settings.model, passes)
        for x, target, fold, chunk in self._tables(passes):
            fitting.feed(x, target, fold, chunk.weight)
            self._advance()
        return fitting.finish()

    # -- judging ------------------------------------------------------------------------------------------

    def _out_of_fold(self, stack: StackFit, entries: Any = slice(None), tables: int | None = 1) -> Iterator[SeenRows]:
        """Every row once, with so many of its tables and the policies of its fold's members by entry."""
        members = [stack.find(fold=fold) for fold in range(self.folds)]  # they lie entry by entry
        picked = np.array(members)[:, entries]
        params = jax.tree.map(lambda leaf: leaf[picked], stack.params)
        policies = FoldOutputs(params, self.settings.model, self.devices, self.settings.surrogate)
        judged = JUDGED if self.on_cpu else GPU_JUDGED

        def begun(chunk: Chunk) -> tuple:
            x, fold = self.standardizer.apply(chunk.x), self._folds(chunk)
            return chunk, x, fold, self._start(x, fold), policies.start(x, fold)

        for chunk, x, fold, pending, asked in one_behind(map(begun, self.source.chunks(min(self.rows, judged), None))):
            outcomes = self._outcomes(chunk, pending, tables)
            yield SeenRows(chunk, x, fold, outcomes, policies.finish(asked, len(chunk)))
            self._tidy()

    def _judged(self, stack: StackFit) -> PathFit:
        """The path with its weights, by all rows; deviations out of fold of the sample."""
        settings, folds = self.settings, self.folds
        level = float(np.mean(self.feedback.outcomes, dtype=np.float64))
        empty = OutOfFold(self.zetas, settings.surrogate, self.shares, level=level)
        judges = [empty.fresh() for _ in range(folds)]
        with ThreadPoolExecutor(min(folds, os.cpu_count() or 1)) as pool:
            for seen in ahead(self._out_of_fold(stack)):
                list(pool.map(lambda number, seen=seen: judge_fold(judges[number], number, seen), range(folds)))
        return weighed_fit(
            judges, _averaged if settings.zetas is None else select_weights, stack, self.members, self.fold_rows,
            model=settings.model, settings=settings, standardizer=self.standardizer, surrogate=self.inner,
            scale=self.scale, eta=self.eta, x=self.sample_x, target=self.sample_target,
            thinning=self.source.n_rows / len(self.sample),
        )  # fmt: skip

    def _value(self, stack: StackFit, fit: PathFit) -> tuple[float, float, tuple[np.ndarray, ...] | None]:
        """Mean outcome under the deterministic rule out of fold over all rows, its standard error, and curvatures."""
        assert fit.fold_weights is not None
        entries = np.flatnonzero(fit.fold_weights.any(axis=0))
        counted = fit.fold_weights[:, entries].astype(np.float32)
        value = ValueSums(float(np.mean(self.feedback.outcomes, dtype=np.float64)))
        curvatures = Curvatures(fit, most=MOST_CURVATURE)
        for seen in ahead(self._out_of_fold(stack, entries, None if curvatures.problems else 1)):
            policies = seen.policies - np.float32(1.0 / seen.policies.shape[2])
            value.add(seen, deterministic(np.einsum("ne,enk->nk", counted[seen.fold], policies)))
            curvatures.add(seen)
        return *value.found(), curvatures.found()


def _averaged(path: ZetaPath) -> Float[np.ndarray, " zeta"]:
    return dropped_small(average_weights(path))
