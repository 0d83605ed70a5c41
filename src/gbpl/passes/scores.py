"""Scores in passes: a member for each fold and entry of the path, and its welfare on that fold (section 4.2).

Networks learn by steps through the chunks, forests by sums over them (`gbpl.passes.forests`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from gbpl.fitting.apply import taken
from gbpl.fitting.chunks import ChunkTable
from gbpl.fitting.members import Member, across_folds
from gbpl.fitting.stack import StackFit
from gbpl.models.mixture import Mixed
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.forests import ForestMembers, ForestPolicies
from gbpl.passes.outcome_models import OutcomeTables
from gbpl.passes.screening import cannot_count
from gbpl.path.grid import TableGrid, auto_path
from gbpl.path.out_of_fold import OutOfFold
from gbpl.path.path import side_by_side
from gbpl.path.plan import Plan, lay_out, plan_path, scaled_targets
from gbpl.runtime.pipeline import ahead, one_behind
from gbpl.surrogates import Surrogate
from gbpl.trees.forest import ForestFeatures
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["FittedScores", "fit_scores", "rehearse_scores", "welfare_out_of_fold"]


def rehearse_scores(passes: Passes, corrections: Sequence[float], count: int) -> None:
    """Compile what scores and their weighing will need: a few seconds on a GPU, while the outcome models learn.

    On a CPU the same cores learn, and would wait for it.
    """
    settings = replace(passes.settings, beside=())
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


class FittedScores(NamedTuple):
    """The members that were fitted, the plan that has them alone, and what the forests among them are."""

    plan: Plan
    stack: StackFit
    forests: list[ForestMembers]


def fit_scores(plan: Plan, passes: Passes, outcomes: OutcomeTables, count: int) -> FittedScores:
    """Fit the members of a plan: networks in `count` passes, and the forests that are not hopeless beside them."""
    networks, models = _networks(plan), plan.problem.settings.models
    grown = [place for place in range(len(models)) if place not in networks]
    stacks: dict[int, StackFit] = {}
    with ThreadPoolExecutor(1) as pool:  # while the networks learn, which have a device of their own if there is one
        asked = [ForestMembers(plan, place, passes, whole=True) for place in grown if networks]
        policies = [pool.submit(one.of_sample, outcomes) for one in asked]
        for place in networks:
            fitting = passes.chunk_fit(plan.of_model(place), plan.surrogate, models[place], count)
            stacks[place] = passes.fit(fitting, _learned_from(plan, passes, outcomes, count))
        tried = [done.result() for done in policies]
    if networks:
        sample = passes.grown
        received = partial(_received, plan.surrogate, outcomes.of(sample)[0])
        values = [received(_DevicePolicies(plan, passes, stack, place).of(sample)) for place, stack in stacks.items()]
        best, weight = np.concatenate(values), sample.chunk.weight
        grown = [at for at, part in zip(grown, tried, strict=True) if not cannot_count(received(part), best, weight)]
    kept = sorted([*networks, *grown])
    plan = _only(plan, kept)
    forests = [ForestMembers(plan, kept.index(place), passes) for place in grown]
    for place, forest in zip(grown, forests, strict=True):
        forest.learn(outcomes)
        stacks[place] = forest.stack
    fitted = [replace(stacks[place], members=tuple(plan.of_model(now))) for now, place in enumerate(kept)]
    return FittedScores(plan, side_by_side(fitted), forests)


def _only(plan: Plan, kept: Sequence[int]) -> Plan:
    """The plan with some of its models alone."""
    settings = plan.problem.settings
    if len(kept) == len(settings.models):
        return plan
    first, *beside = (settings.models[place] for place in kept)
    return plan_path(
        replace(plan.problem, settings=replace(settings, model=first, beside=tuple(beside))), plan.standardizer
    )


def _received(
    surrogate: Surrogate, outcomes: Float[np.ndarray, "row action"], policies: Float[np.ndarray, "entry row action"]
) -> Float[np.ndarray, "entry row"]:
    """Outcomes of rows under the deterministic rules of some policies."""
    chosen = deterministic(surrogate.advantage(policies))
    return outcomes[np.arange(len(outcomes)), chosen].astype(np.float64)


def _learned_from(plan: Plan, passes: Passes, outcomes: OutcomeTables, count: int) -> Iterator[ChunkTable]:
    """The mean outcomes of a chunk are begun before the members are given the chunk before it."""
    top = outcomes.of(passes.top)
    begun = ((read, outcomes.start(read)) for read in ahead(passes.shuffled(2, count)))
    for read, pending in one_behind(begun):
        tables = [passes.table(*pair) for pair in zip(top, outcomes.finish(read, pending), strict=True)]
        target = scaled_targets(plan.surrogate, tables, plan.scale)
        yield ChunkTable(passes.features(read.x), target, read.fold, read.chunk.weight)


def welfare_out_of_fold(
    plan: Plan, passes: Passes, outcomes: OutcomeTables, stack: StackFit, forests: Sequence[ForestMembers] = ()
) -> list[OutOfFold]:
    """Sums of each member's welfare on all rows of its fold, fold by fold."""
    policies: list[_DevicePolicies | ForestPolicies] = [part.policies() for part in forests if passes.on_cpu]
    others = _networks(plan) if passes.on_cpu else range(len(plan.problem.settings.models))
    policies += [_DevicePolicies(plan, passes, stack, place) for place in others]
    policies.sort(key=lambda part: part.place)
    sums, folds = [plan.out_of_fold() for _ in range(passes.folds)], range(passes.folds)

    def add(number: int, read: ReadChunk, tables: list[np.ndarray], decided: np.ndarray) -> None:
        own, weight = np.flatnonzero(read.fold == number), read.chunk.weight
        modelled = tables[1][own] if len(tables) > 1 else None
        sums[number].add(decided[:, own], tables[0][own], None if weight is None else weight[own], modelled)

    with ThreadPoolExecutor(min(passes.folds, os.cpu_count() or 1)) as pool:
        for seen in ahead(_decided(plan, passes, outcomes, policies)):
            list(pool.map(lambda number, seen=seen: add(number, *seen), folds))
    return sums


def _networks(plan: Plan) -> list[int]:
    models = plan.problem.settings.models
    return [place for place, model in enumerate(models) if not isinstance(model, ForestFeatures)]


class _DevicePolicies:
    """Policies of the members of a model on rows of the fold that they have not learned from, entry by entry."""

    def __init__(self, plan: Plan, passes: Passes, stack: StackFit, place: int) -> None:
        settings, self.place = plan.problem.settings, place
        members = np.array([stack.find(fold=fold, model=place) for fold in range(passes.folds)])
        params = taken(stack.params, members.ravel())
        params = params.parts[place] if isinstance(params, Mixed) else params
        params = jax.tree.map(lambda leaf: leaf.reshape(*members.shape, *leaf.shape[1:]), params)
        self.outputs = FoldOutputs(params, settings.models[place], passes.devices, settings.surrogate)

    def start(self, read: ReadChunk) -> Any:
        """Begin with some rows; `finish` waits for them."""
        return self.outputs.start(read.x, read.fold)

    def finish(self, pending: Any, n: int) -> Float[np.ndarray, "entry row action"]:
        """Policies in the order of the entries."""
        return self.outputs.finish(pending, n)

    def of(self, read: ReadChunk) -> Float[np.ndarray, "entry row action"]:
        """`start` and `finish` in one."""
        return self.finish(self.start(read), len(read.x))


def _decided(
    plan: Plan, passes: Passes, outcomes: OutcomeTables, policies: Sequence[_DevicePolicies | ForestPolicies]
) -> Iterator[tuple[ReadChunk, list[Float[np.ndarray, "row action"]], Float[np.ndarray, "entry row action"]]]:
    """Every row that is learned from once, with its outcomes and the policies of its fold's members by entry.

    The outcomes are those that weigh the entries and, where the path is weighed by them too, the modelled means.
    """
    tables = 2 if plan.problem.modelled is not None else 1

    def begin(read: ReadChunk) -> tuple[ReadChunk, Any, list[Any]]:
        return read, outcomes.start(read), [part.start(read) for part in policies]

    for read, pending, asked in one_behind(map(begin, passes.in_order())):
        decided = [part.finish(own, len(read.chunk)) for part, own in zip(policies, asked, strict=True)]
        yield read, outcomes.finish(read, pending, tables), np.concatenate(decided)
        passes.tidy()
