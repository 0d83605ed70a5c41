"""Scores in passes: a member for each fold and entry of the path, and its welfare on that fold (section 4.2)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.fitting.chunks import ChunkTable
from gbpl.fitting.members import Member, across_folds
from gbpl.fitting.stack import StackFit
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.outcome_models import OutcomeTables
from gbpl.path.grid import TableGrid, auto_path
from gbpl.path.out_of_fold import OutOfFold
from gbpl.path.plan import Plan, lay_out, scaled_targets
from gbpl.runtime.pipeline import ahead, one_behind

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["fit_scores", "rehearse_scores", "welfare_out_of_fold"]


def rehearse_scores(passes: Passes, corrections: Sequence[float], count: int) -> None:
    """Compile what scores and their weighing will need: a few seconds on a GPU, while the outcome models learn.

    On a CPU the same cores learn, and would wait for it.
    """
    settings = passes.settings
    if settings.surrogate.huber < np.inf:  # the threshold is part of what is compiled, and its scale is not known
        return
    every = Member(np.arange(len(passes.sample.chunk), dtype=np.int32))
    grids = [TableGrid(1.0, correction, auto_path(correction)) for correction in corrections]
    members = lay_out(grids, across_folds(every, passes.fold_rows, seed=passes.seed), 1.0, settings).members
    width = settings.surrogate.target(np.zeros((1, len(passes.source.actions)))).shape[1]
    target = jax.ShapeDtypeStruct((len(corrections) * passes.table_rows, width), np.float32)
    fitting = passes.chunk_fit(members, settings.surrogate, settings.model, count, target)
    shape = passes.folds, len(members) // passes.folds
    initial = fitting.loop.banks[0].state.params
    params = jax.tree.map(lambda leaf: np.zeros((*shape, *leaf.shape[1:]), leaf.dtype), initial)
    policies = FoldOutputs(params, settings.model, passes.devices, settings.surrogate)
    policies.of(np.zeros((1, passes.source.n_features), np.float32), np.zeros(1, int))


def fit_scores(plan: Plan, passes: Passes, outcomes: OutcomeTables, count: int) -> StackFit:
    """Fit the members of a plan in `count` passes."""
    fitting = passes.chunk_fit(plan.layout.members, plan.surrogate, plan.problem.settings.model, count)
    return passes.fit(fitting, _learned_from(plan, passes, outcomes, count))


def _learned_from(plan: Plan, passes: Passes, outcomes: OutcomeTables, count: int) -> Iterator[ChunkTable]:
    """The mean outcomes of a chunk are begun before the members are given the chunk before it."""
    top = [table.outcomes[0][passes.on_top] for table in plan.problem.tables]
    begun = ((read, outcomes.start(read)) for read in ahead(passes.shuffled(2, count)))
    for read, pending in one_behind(begun):
        tables = [passes.table(*pair) for pair in zip(top, outcomes.finish(read, pending), strict=True)]
        target = scaled_targets(plan.surrogate, tables, plan.scale)
        yield ChunkTable(passes.features(read.x), target, read.fold, read.chunk.weight)


def welfare_out_of_fold(plan: Plan, passes: Passes, outcomes: OutcomeTables, stack: StackFit) -> list[OutOfFold]:
    """Sums of each member's welfare on all rows of its fold, fold by fold."""
    settings, folds = plan.problem.settings, range(passes.folds)
    members = np.array([stack.find(fold=fold) for fold in folds])  # they lie entry by entry
    params = jax.tree.map(lambda leaf: leaf[members], stack.params)
    policies = FoldOutputs(params, settings.model, passes.devices, settings.surrogate)
    sums = [plan.out_of_fold() for _ in folds]

    def add(number: int, read: ReadChunk, table: np.ndarray, decided: np.ndarray) -> None:
        own, weight = np.flatnonzero(read.fold == number), read.chunk.weight
        sums[number].add(decided[:, own], table[own], None if weight is None else weight[own])

    with ThreadPoolExecutor(min(passes.folds, os.cpu_count() or 1)) as pool:
        for seen in ahead(_decided(passes, outcomes, policies)):
            list(pool.map(lambda number, seen=seen: add(number, *seen), folds))
    return sums


def _decided(
    passes: Passes, outcomes: OutcomeTables, policies: FoldOutputs
) -> Iterator[tuple[ReadChunk, Float[np.ndarray, "row action"], Float[np.ndarray, "entry row action"]]]:
    """Every row once, with its outcomes and the policies of its fold's members by entry."""

    def begin(read: ReadChunk) -> tuple[ReadChunk, Any, Any]:
        return read, outcomes.start(read), policies.start(read.x, read.fold)

    for read, pending, asked in one_behind(map(begin, passes.in_order())):
        yield read, outcomes.finish(read, pending, 1)[0], policies.finish(asked, len(read.chunk))
        passes.tidy()
