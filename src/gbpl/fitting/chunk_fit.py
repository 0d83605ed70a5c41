"""Members trained on rows that come in chunks: the blocks of `gbpl.fitting.stack`, each with a table of its own.

A chunk is one epoch: every member takes its steps through the chunk's rows outside its fold and is then judged on rows
of its fold that are held in memory and lie on top of every table. Steps, batches and tables have one shape throughout,
so one program is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member
from gbpl.fitting.stack import (
    EVALUATION_ROWS,
    NonFiniteLossError,
    Objective,
    StackFit,
    _initial_state,
    _Slot,
    _train_block,
)
from gbpl.models.base import ScoreModel
from gbpl.models.prior import GaussianPrior
from gbpl.runtime.devices import as_aligned, member_sharding, quick_jit, shared_sharding

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["ChunkFit", "Held", "batch_plan"]

# The search for the fastest products would take longer than a pass over a million rows.
_quick_block = quick_jit(
    _train_block.__wrapped__,  # type: ignore[attr-defined]
    static_argnames=("model", "objective", "config", "stops"),
    donate_argnames="state",
)

SLOTS_PER_CPU = 3  # with batches of some hundred rows more members fall out of the cache (measured: 77 against 40)
RARE = 6.0  # standard deviations of the rows outside a fold that a chunk has room for


class Held(NamedTuple):
    """Rows on top of every table: the fold each belongs to, and its weight."""

    fold: Int[np.ndarray, " held"]
    weight: Float[np.ndarray, " held"] | None


def batch_plan(rows: int, folds: int, size: int) -> tuple[int, int]:
    """Steps through a chunk and room in a batch, for batches of about `size` of the rows outside a fold.

    How many of a chunk's rows are outside a fold is binomial; there is room for six standard deviations more than are
    expected, and rows beyond that (one chunk in 10^9) are passed over.
    """
    share = 1.0 / folds
    expected, spread = rows * (1.0 - share), math.sqrt(rows * share * (1.0 - share))
    steps = max(1, round(expected / size))
    return steps, min(rows, math.ceil((expected + RARE * spread) / steps))


class ChunkFit:
    """Members of several folds on their way through the chunks.

    `members` carry their fold as a label, and zeta, eta, table and seed; `n_train` is how many rows each learns from in
    all, of which the penalty |w|^2 / (2 prior_sd^2 eta n) speaks. `mean_weight` is that of all rows. Where shapes and
    types of the `target` of all chunks are given, what learns from them is compiled at once, beside what begins.
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
        self.of_member = np.array([int(m.label["fold"]) for m in members])  # type: ignore[call-overload]
        self.folds = int(self.of_member.max()) + 1
        self.steps, self.size = batch_plan(chunk_rows, self.folds, config.batch_size or 128)
        self.table_rows = len(held.fold) + chunk_rows
        # Best weights are kept, and no member stops before the learning rate has come down.
        self.config = replace(config, max_epochs=chunks, patience=chunks, decay_steps=chunks * self.steps)
        self.objective, self.model, self.devices = objective, model, list(devices[: len(members)])
        self.losses: list[list[tuple[Any, Any]]] = []
        self.groups = self._grouped()
        self.constants = [self._constants(group, n_train) for group in self.groups]
        self.n_features = n_features
        with ThreadPoolExecutor(1) as pool:
            compiling = None if target is None else pool.submit(self._compile, target)
            self.states = [self._fresh(group) for group in self.groups]
        if compiling is not None:
            compiling.result()

    def _grouped(self) -> list[Int[np.ndarray, " slot"]]:
        """Members by slot, as many groups as the cache wants, all of one size; places too many repeat a member."""
        count = len(self.devices)
        most = SLOTS_PER_CPU * count if self.devices[0].platform == "cpu" else len(self.members) + count
        groups = -(-len(self.members) // most)
        size = -(-len(self.members) // groups)
        size = -(-size // count) * count
        return [np.arange(start, start + size) % len(self.members) for start in range(0, len(self.members), size)]

    def _put(self, tree: Any, axis: int = 0) -> Any:
        return jax.device_put(tree, member_sharding(self.devices, axis))

    def _constants(self, group: Int[np.ndarray, " slot"], n_train: float) -> _Slot:
        own = [np.flatnonzero(self.held.fold == fold) for fold in range(self.folds)]
        longest = max(len(rows) for rows in own)
        chunk = max(1, min(longest, EVALUATION_ROWS))
        shape = (len(group), -(-longest // chunk), chunk)
        rows = np.zeros((len(group), shape[1] * chunk), np.int32)
        weight = np.zeros(rows.shape, np.float32)
        for place, number in enumerate(group):
            found = own[self.of_member[number]]
            given = np.ones(len(found)) if self.held.weight is None else self.held.weight[found]
            rows[place, : len(found)] = found
            weight[place, : len(found)] = given / max(given.sum(), 1e-30)
        members = [self.members[number] for number in group]
        constants = {
            "zeta": np.array([m.zeta for m in members], np.float32),
            "penalty": np.array([GaussianPrior(m.prior_sd).penalty_scale(m.eta, n_train) for m in members], np.float32),
            "offset": np.array([m.table for m in members], np.int32) * np.int32(self.table_rows),
            "validation": rows.reshape(shape),
            "validation_weight": weight.reshape(shape),
        }
        return _Slot(**self._put(constants))

    def _initial(self, group: Int[np.ndarray, " slot"]) -> tuple[Any, Any]:
        """What a function that begins with some members takes."""
        seeds = np.array([self.members[number].seed % 2**32 for number in group], np.uint32)
        fixed = {"model": self.model, "config": self.config}
        fixed |= {"n_features": self.n_features, "n_raw": self.objective.n_raw}
        return self._put((seeds, np.ones(len(group), bool))), fixed

    def _fresh(self, group: Int[np.ndarray, " slot"]) -> Any:
        given, fixed = self._initial(group)
        fresh = _initial_state(*given, **fixed)
        return self._put(fresh)

    def _compile(self, target: Any) -> None:
        """Compile what `feed` runs, for targets of such shapes and types, and run nothing."""

        def placed(leaf: Any, sharding: Any) -> Any:
            weak = getattr(leaf, "weak_type", False)
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak)

        given, fixed = self._initial(self.groups[0])
        state = jax.eval_shape(partial(_initial_state, **fixed), *given)
        state = jax.tree.map(lambda leaf: placed(leaf, member_sharding(self.devices)), state)
        table = jax.ShapeDtypeStruct((self.table_rows, self.n_features), np.float32), target
        data = jax.tree.map(lambda leaf: placed(leaf, shared_sharding(self.devices)), table)
        shape = 1, self.steps, len(self.groups[0]), self.size
        drawn = (
            placed(jax.ShapeDtypeStruct(shape, d), member_sharding(self.devices, 2)) for d in (np.int32, np.float32)
        )
        _quick_block.lower(
            state, self.constants[0], *data, *drawn,
            model=self.model, objective=self.objective, config=self.config, stops=True,
        ).compile()  # fmt: skip

    def feed(
        self,
        x: Float[np.ndarray, "table_row feature"],
        target: Any,
        fold: Int[np.ndarray, " row"],
        weight: Float[np.ndarray, " row"] | None,
    ) -> None:
        """One chunk: the table is the held rows and below them the chunk's, whose folds and weights are given.

        A short chunk leaves the last rows of the table unused. Returns before the members have learned from it.
        """
        data = jax.device_put(jax.tree.map(as_aligned, (x, target)), shared_sharding(self.devices))
        rows, share = self.deal(fold, weight)
        known = []
        for place, group in enumerate(self.groups):
            drawn = self._put((rows[:, :, self.of_member[group]], share[:, :, self.of_member[group]]), axis=2)
            self.states[place], train, loss = _quick_block(
                self.states[place], self.constants[place], *data, *drawn,
                model=self.model, objective=self.objective, config=self.config, stops=True,
            )  # fmt: skip
            known.append((train, loss))
        self.losses.append(known)
        if len(self.losses) > 1:  # by now the chunk before is done: looking at it does not wait
            self._look(len(self.losses) - 2)

    def deal(
        self, fold: Int[np.ndarray, " row"], weight: Float[np.ndarray, " row"] | None
    ) -> tuple[Int[np.ndarray, "1 step fold batch"], Float[np.ndarray, "1 step fold batch"]]:
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
        return rows.reshape(shape).transpose(2, 0, 1)[None], share.reshape(shape).transpose(2, 0, 1)[None]

    def _look(self, chunk: int) -> None:
        known = self.losses[chunk] = [(np.asarray(train)[0], np.asarray(loss)[0]) for train, loss in self.losses[chunk]]
        for group, (train, loss) in zip(self.groups, known, strict=True):
            bad = np.flatnonzero(~(np.isfinite(train) & np.isfinite(loss)))
            if len(bad):
                label = dict(self.members[int(group[bad[0]])].label)
                raise NonFiniteLossError(
                    f"the loss is not finite for {label} in chunk {chunk}; nothing was kept. Try a smaller "
                    f"learning_rate (now {self.config.learning_rate}) or clip_norm (now {self.config.clip_norm}), and "
                    "look for extreme outcomes: a robust surrogate (huber=...) bounds what one row can do"
                )

    def finish(self) -> StackFit:
        """The members with their best weights; an epoch of theirs is a chunk."""
        self._look(len(self.losses) - 1)
        places = {int(number): (g, p) for g, group in enumerate(self.groups) for p, number in enumerate(group)}
        at = [places[number] for number in range(len(self.members))]
        best = [jax.tree.map(np.asarray, state.best) for state in self.states]
        leaves = [jax.tree.map(lambda leaf, p=p: leaf[p], best[g]) for g, p in at]
        known = [[chunk[g] for chunk in self.losses] for g, _ in at]
        return StackFit(
            members=tuple(self.members),
            params=jax.tree.map(lambda *parts: np.stack(parts), *leaves),
            validation_loss=tuple(np.array([c[1][p] for c in k]) for k, (_, p) in zip(known, at, strict=True)),
            train_loss=tuple(np.array([c[0][p] for c in k]) for k, (_, p) in zip(known, at, strict=True)),
            best_epoch=np.array([int(np.asarray(self.states[g].best_epoch)[p]) for g, p in at]),
            best_loss=np.array([float(np.asarray(self.states[g].best_loss)[p]) for g, p in at]),
        )
