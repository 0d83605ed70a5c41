"""fit_stack: the only training loop.

It fits any number of members at once. Members sit in the slots of a compiled block of epochs; one that stops
early gives its slot to the next, so that stopped members stop costing time and the shapes, hence the compiled
function, stay the same. A member's result does not depend on its neighbours.

The objective of a member is the mean row loss plus |w|^2 / (2 prior_sd^2 eta n).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gbpl.fitting.apply import taken
from gbpl.fitting.config import Batches, FitConfig
from gbpl.fitting.hosts import share
from gbpl.fitting.members import Member
from gbpl.models.base import GrownModel, ScoreModel
from gbpl.models.prior import GaussianPrior, squared_norm
from gbpl.runtime.devices import (
    DeviceName,
    aligned_empty,
    as_aligned,
    member_sharding,
    resolve_devices,
    shared_sharding,
)
from gbpl.runtime.progress import Progress

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = ["FitConfig", "NonFiniteLossError", "Objective", "StackFit", "StackProblem", "fit_stack", "fit_stacks"]

SLOTS_PER_CPU = 8  # more members at once fall out of the cache (measured: 160 against 110 GFLOP/s)
WAVES = 6  # members a slot should see, where it can: slots stand empty only at the end of the last
SLOTS_PER_GPU = 2048
BLOCK_STEPS = 64  # steps between two looks at the host: few are wasted on members that stop, and looking is free
EVALUATION_ROWS = 1024
TAIL_ROWS = {"cpu": 2e6}  # rows left to pass for which a smaller block is worth compiling: about two seconds
TAIL_ROWS_ELSEWHERE = 5e8
MANY_PLACES = 64  # from here on batches are drawn by several threads
EMPTY = -1  # a slot without a member


class Objective(Protocol):
    """A loss per row of the raw output. Surrogates have it; so has any frozen object with these two names."""

    @property
    def n_raw(self) -> int: ...
    def row_loss(self, raw: Array, target: Any, zeta: Array) -> Float[Array, " row"]: ...


class NonFiniteLossError(FloatingPointError):
    """A loss became infinite or not a number."""


class _State(NamedTuple):
    """Training state of the members in the slots; every array has the slot axis first."""

    params: Any
    optimizer: Any
    best: Any
    best_loss: Float[Array, " slot"]
    best_epoch: Int[Array, " slot"]
    epoch: Int[Array, " slot"]
    stopped: Array


class _Slot(NamedTuple):
    """Constants of the members in the slots."""

    zeta: Float[Array, " slot"]
    penalty: Float[Array, " slot"]
    offset: Int[Array, " slot"]
    validation: Int[Array, "slot chunk row"]
    validation_weight: Float[Array, "slot chunk row"]


@dataclass(frozen=True, slots=True, eq=False)
class StackFit:
    """Fitted members: parameters with a leading member axis, and how each got there."""

    members: tuple[Member, ...]
    params: Any
    validation_loss: tuple[Float[np.ndarray, " epoch"], ...]
    train_loss: tuple[Float[np.ndarray, " epoch"], ...]
    best_epoch: Int[np.ndarray, " member"]
    best_loss: Float[np.ndarray, " member"]

    def select(self, chosen: Sequence[int] | Int[np.ndarray, " chosen"]) -> Any:
        """Parameters of some members, in the order asked for."""
        return taken(self.params, chosen)

    def find(self, **label: Any) -> list[int]:
        """Numbers of the members whose label has these values."""
        return [i for i, m in enumerate(self.members) if all(m.label.get(k) == v for k, v in label.items())]


def _where(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


@partial(jax.jit, static_argnames=("model", "objective", "config", "stops"), donate_argnames="state")
def _train_block(
    state: _State,
    slot: _Slot,
    x: Float[Array, "row feature"],
    target: Any,
    rows: Int[Array, "epoch step slot batch"],
    weight: Float[Array, "epoch step slot batch"],
    *,
    model: ScoreModel,
    objective: Objective,
    config: FitConfig,
    stops: bool,
) -> tuple[_State, Float[Array, "epoch slot"], Float[Array, "epoch slot"]]:
    """A few epochs of every slot; returns the new state and the training and validation loss of each epoch."""
    optimizer = config.optimizer()

    def batch_loss(params: Any, batch: tuple[Array, Array], zeta: Array, offset: Array) -> Array:
        numbers, weights = batch
        wanted = jax.tree.map(lambda leaf: leaf[offset + numbers], target)
        return jnp.sum(weights * objective.row_loss(model.apply(params, x[numbers]), wanted, zeta))

    def step(carry: tuple, batch: tuple, zeta: Array, penalty: Array, offset: Array) -> tuple[tuple, Array]:
        params, moments = carry
        loss, gradient = jax.value_and_grad(lambda p: batch_loss(p, batch, zeta, offset) + penalty * squared_norm(p))(
            params
        )
        updates, moments = optimizer.update(gradient, moments, params)
        params = optax.apply_updates(params, updates)
        return (params, moments), loss

    def validation_loss(params: Any, s: _Slot) -> Array:
        parts = s.validation, s.validation_weight
        return jax.lax.map(lambda part: batch_loss(params, part, s.zeta, s.offset), parts).sum()

    def epoch(state: _State, batches: tuple[Array, Array]) -> tuple[_State, tuple[Array, Array]]:
        over_slots = jax.vmap(step)
        (params, moments), train = jax.lax.scan(
            lambda carry, batch: over_slots(carry, batch, slot.zeta, slot.penalty, slot.offset),
            (state.params, state.optimizer),
            batches,
        )
        if stops:
            loss = jax.vmap(validation_loss)(params, slot)
            improved = (loss < state.best_loss) & ~state.stopped
        else:
            loss = train.mean(0)
            improved = ~state.stopped
        best = jax.vmap(_where)(improved, params, state.best)
        best_loss = jnp.where(improved, loss, state.best_loss)
        number = state.epoch + 1
        best_epoch = jnp.where(improved, number, state.best_epoch)
        stopped = state.stopped | (number >= config.max_epochs)
        if stops:
            stopped = stopped | (number - best_epoch >= config.patience)
        new = _State(params, moments, best, best_loss, best_epoch, number, stopped)
        return new, (train.mean(0), loss)

    state, (train, loss) = jax.lax.scan(epoch, state, (rows, weight))
    return state, train, loss


@partial(jax.jit, static_argnames=("model", "config", "n_features", "n_raw"))
def _initial_state(
    seeds: Array, occupied: Array, *, model: ScoreModel, config: FitConfig, n_features: int, n_raw: int
) -> _State:
    params = jax.vmap(lambda seed: model.init(jax.random.key(seed), n_features, n_raw))(seeds)
    slots = seeds.shape[0]
    return _State(
        params=params,
        optimizer=jax.vmap(config.optimizer().init)(params),
        best=params,
        best_loss=jnp.full(slots, jnp.inf, jnp.float32),
        best_epoch=jnp.zeros(slots, jnp.int32),
        epoch=jnp.zeros(slots, jnp.int32),
        stopped=~occupied,
    )


@partial(jax.jit, donate_argnames="state")
def _reseated(state: _State, fresh: _State, arriving: Array) -> _State:
    """The state with new members in some places; the others stay as they are."""
    return jax.vmap(_where)(arriving, fresh, state)


@jax.jit
def _taken(tree: Any, places: Int[Array, " place"]) -> Any:
    return jax.tree.map(lambda leaf: leaf[places], tree)


def _padded(places: Sequence[int], size: int) -> Int[np.ndarray, " place"]:
    """Numbers of places, the first repeated up to a fixed size, so that one shape is compiled."""
    return np.array([*places, *[places[0]] * (size - len(places))], np.int32)


def fit_stack(
    x: Float[np.ndarray, "row feature"],
    target: Any,
    members: Sequence[Member],
    objective: Objective,
    model: ScoreModel,
    *,
    config: FitConfig | None = None,
    device: DeviceName | Sequence[jax.Device] = "auto",
    progress: bool | None = None,
) -> StackFit:
    """Fit every member and keep its best weights.

    `x` and `target` (an array, or any tree of arrays with the rows first) are shared; members name their rows.
    `target` may hold several tables, the rows of each below those of the one before; a member's `table` says which.
    Members whose epochs have the same number of steps train side by side.
    """
    config = config or FitConfig()
    if not members:
        raise ValueError("fit_stack needs at least one member, got none")
    if isinstance(model, GrownModel):
        problem = StackProblem(x, target, members)
        return model.fit_stacks([problem], objective, config=config, device=device, progress=progress)[0]
    devices = resolve_devices(device)
    data = jax.tree.map(as_aligned, (x, target))
    bar = Progress("fitting", len(members), show=progress)

    def fitted(numbers: Sequence[int]) -> list[_Finished]:
        groups: dict[tuple, list[int]] = {}
        for number in numbers:
            shape = config.batch_shape(len(members[number].train))[0], len(members[number].validation) > 0
            groups.setdefault(shape, []).append(number)
        finished: dict[int, _Finished] = {}
        for together in groups.values():
            group = _Group([members[i] for i in together], data, objective, model, config, devices)
            finished |= {together[place]: result for place, result in group.run(bar)}
        return [finished[number] for number in numbers]

    try:
        done = share(members, data, fitted)
    finally:
        bar.close()
    return StackFit(
        members=tuple(members),
        params=jax.tree.map(lambda *leaves: np.stack(leaves), *[result.params for result in done]),
        validation_loss=tuple(result.validation_loss for result in done),
        train_loss=tuple(result.train_loss for result in done),
        best_epoch=np.array([result.best_epoch for result in done]),
        best_loss=np.array([result.best_loss for result in done]),
    )


class StackProblem(NamedTuple):
    """Members with the table they name rows of: the first three arguments of `fit_stack`."""

    x: Float[np.ndarray, "row feature"]
    target: Any
    members: Sequence[Member]


def fit_stacks(
    problems: Sequence[StackProblem],
    objective: Objective,
    model: ScoreModel,
    *,
    config: FitConfig | None = None,
    device: DeviceName | Sequence[jax.Device] = "auto",
    progress: bool | None = None,
) -> list[StackFit]:
    """Fit the members of several tables of one width as one stack, the tables' rows one below the other.

    What each problem gets is what `fit_stack` gives it alone, to float32 rounding: many small fits at the price of one
    large one.
    """
    options: Any = {"config": config, "device": device, "progress": progress}
    if isinstance(model, GrownModel):
        return model.fit_stacks(problems, objective, **options)
    if len(problems) == 1:
        return [fit_stack(*problems[0], objective, model, **options)]
    starts = np.cumsum([0, *(len(problem.x) for problem in problems)])
    x = aligned_empty((int(starts[-1]), problems[0].x.shape[1]))
    for start, problem in zip(starts, problems, strict=False):
        x[start : start + len(problem.x)] = problem.x
    target = jax.tree.map(
        lambda *leaves: _below(leaves, [len(problem.x) for problem in problems]),
        *[problem.target for problem in problems],
    )
    members = [
        replace(member, train=member.train + start, validation=member.validation + start)
        for start, problem in zip(starts.astype(np.int32), problems, strict=False)
        for member in problem.members
    ]
    whole = fit_stack(x, target, members, objective, model, **options)
    ends = np.cumsum([0, *(len(problem.members) for problem in problems)])
    return [
        StackFit(
            members=tuple(problem.members),
            params=jax.tree.map(lambda leaf, own=slice(*ends[i : i + 2]): leaf[own], whole.params),
            validation_loss=whole.validation_loss[slice(*ends[i : i + 2])],
            train_loss=whole.train_loss[slice(*ends[i : i + 2])],
            best_epoch=whole.best_epoch[slice(*ends[i : i + 2])],
            best_loss=whole.best_loss[slice(*ends[i : i + 2])],
        )
        for i, problem in enumerate(problems)
    ]


def _below(leaves: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
    """Targets of several problems: table t of all of them, then table t + 1 of all; a short one repeats its last."""
    tables = [
        np.asarray(leaf).reshape(-1, count, *np.shape(leaf)[1:]) for leaf, count in zip(leaves, rows, strict=True)
    ]
    most = max(len(table) for table in tables)
    return np.concatenate([table[min(t, len(table) - 1)] for t in range(most) for table in tables])


class _Finished(NamedTuple):
    params: Any
    best_epoch: int
    best_loss: float
    train_loss: Float[np.ndarray, " epoch"]
    validation_loss: Float[np.ndarray, " epoch"]


class _Group:
    """Members of one shape, passed through the slots of one compiled block."""

    def __init__(
        self,
        members: list[Member],
        data: tuple[np.ndarray, Any],
        objective: Objective,
        model: ScoreModel,
        config: FitConfig,
        devices: list[jax.Device],
    ) -> None:
        self.members, self.config = members, config
        self.objective, self.model = objective, model
        self.batches: dict[int, Batches] = {}  # of the members now seated
        shapes = [config.batch_shape(len(member.train)) for member in members]
        self.steps, self.size = shapes[0][0], max(size for _, size in shapes)
        self.epochs = max(1, min(config.max_epochs, round(BLOCK_STEPS / self.steps)))
        self.stops = len(members[0].validation) > 0
        longest = max(min(len(m.validation), config.epoch_rows // 4) for m in members)
        self.chunk = max(1, min(longest, EVALUATION_ROWS))
        self.chunks = -(-longest // self.chunk) if longest else 0
        self.devices = devices[: len(members)]
        self.data = jax.device_put(data, shared_sharding(self.devices))
        if devices[0].platform == "cpu":
            fewest = min(len(members), 2 * len(self.devices))
            self.slots = self._round(min(max(fewest, len(members) // WAVES), SLOTS_PER_CPU * len(self.devices)))
        else:
            self.slots = self._round(min(len(members), SLOTS_PER_GPU * len(self.devices)))
        self.losses: list[list[np.ndarray]] = [[] for _ in members]
        self.trains: list[list[np.ndarray]] = [[] for _ in members]

    def _round(self, count: int) -> int:
        return -(-count // len(self.devices)) * len(self.devices)

    def _put(self, tree: Any, axis: int = 0) -> Any:
        return jax.device_put(tree, member_sharding(self.devices, axis))

    def _constants(self, seated: list[int]) -> _Slot:
        members = [self.members[max(number, 0)] for number in seated]
        rows = np.zeros((len(members), self.chunks * self.chunk), np.int32)
        weight = np.zeros(rows.shape, np.float32)
        limit = self.config.epoch_rows // 4
        for place, member in enumerate(members):
            kept = np.arange(len(member.validation))
            if len(kept) > limit:
                kept = np.random.default_rng(member.seed).choice(kept, limit, replace=False)
            given = np.ones(len(kept)) if member.validation_weights is None else member.validation_weights[kept]
            rows[place, : len(kept)] = member.validation[kept]
            weight[place, : len(kept)] = given / max(given.sum(), 1e-30)
        shape = (len(members), self.chunks, self.chunk)
        penalty = [GaussianPrior(m.prior_sd).penalty_scale(m.eta, len(m.train)) for m in members]
        constants = {
            "zeta": np.array([m.zeta for m in members], np.float32),
            "penalty": np.array(penalty, np.float32),
            "offset": np.array([m.table for m in members], np.int32) * np.int32(self.data[0].shape[0]),
            "validation": rows.reshape(shape),
            "validation_weight": weight.reshape(shape),
        }
        return _Slot(**self._put(constants))

    def _fresh(self, seated: list[int]) -> _State:
        seeds = np.array([self.members[max(number, 0)].seed % 2**32 for number in seated], np.uint32)
        occupied = np.array([number != EMPTY for number in seated])
        fresh = _initial_state(
            *self._put((seeds, occupied)),
            model=self.model,
            config=self.config,
            n_features=self.data[0].shape[1],
            n_raw=self.objective.n_raw,
        )
        return self._put(fresh)  # zeros come out on every device: as they are, the first block is compiled apart

    def _draw(self, seated: list[int], places: Sequence[int], drawn: tuple[np.ndarray, np.ndarray]) -> None:
        """Draw the next epochs' batches of the members in some places."""
        taken = [place for place in places if seated[place] != EMPTY]

        def fill(place: int) -> None:
            if seated[place] not in self.batches:
                self.batches[seated[place]] = Batches(self.members[seated[place]], self.config)
            self.batches[seated[place]].draw(drawn[0][:, :, place], drawn[1][:, :, place])

        if len(taken) < MANY_PLACES:
            for place in taken:
                fill(place)
            return
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # numpy shuffles outside the interpreter's lock
            list(pool.map(fill, taken, chunksize=16))

    def _empty_batches(self, slots: int) -> tuple[np.ndarray, np.ndarray]:
        shape = (self.epochs, self.steps, slots, self.size)
        return np.zeros(shape, np.int32), np.zeros(shape, np.float32)

    def run(self, bar: Progress) -> Iterator[tuple[int, _Finished]]:
        """Yield (place in the group, result) as members finish."""
        queue = deque(range(len(self.members)))
        seated = [queue.popleft() if queue else EMPTY for _ in range(self.slots)]
        state, constants, drawn = self._fresh(seated), self._constants(seated), self._empty_batches(len(seated))
        self._draw(seated, range(self.slots), drawn)
        idle = [number == EMPTY for number in seated]
        done = 0
        while not all(idle):
            rows, weight = self._put(drawn, axis=2)
            state, train, loss = _train_block(
                state, constants, *self.data, rows, weight,
                model=self.model, objective=self.objective, config=self.config, stops=self.stops,
            )  # fmt: skip
            drawn = self._empty_batches(len(seated))  # device_put may still read the old ones
            self._draw(seated, range(len(seated)), drawn)  # while the block runs
            self._record(seated, idle, np.asarray(train), np.asarray(loss))
            idle = list(np.asarray(state.stopped))
            leaving = [p for p, number in enumerate(seated) if number != EMPTY and idle[p]]
            if len(leaving) >= (1 if len(seated) <= 64 else len(seated) // 4) or (leaving and all(idle)):
                best = _taken(state.best, _padded(leaving, len(seated)))
                best, epochs = jax.tree.map(np.asarray, best), np.asarray(state.epoch)
                best_epoch, best_loss = np.asarray(state.best_epoch), np.asarray(state.best_loss)
                for taken, place in enumerate(leaving):
                    params = jax.tree.map(lambda leaf, taken=taken: leaf[taken].copy(), best)
                    result = self._finish(seated[place], params, epochs[place], best_epoch[place], best_loss[place])
                    yield seated[place], result
                    del self.batches[seated[place]]
                    seated[place] = queue.popleft() if queue else EMPTY
                done += len(leaving)
                state = self._seat(state, seated, leaving)
                self._draw(seated, leaving, drawn)  # the others keep what they drew
                kept = self._tail(seated)
                if len(kept) < len(seated):
                    drawn = (drawn[0][:, :, kept], drawn[1][:, :, kept])
                    seated = [seated[place] for place in kept]
                    state = self._put(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf)[kept], state))
                idle = [number == EMPTY for number in seated]
                constants = self._constants(seated)
            bar.update(done, "members")

    def _seat(self, state: _State, seated: list[int], places: list[int]) -> _State:
        """Give freed places their new members."""
        arriving, empty = np.zeros(len(seated), bool), np.array([number == EMPTY for number in seated])
        arriving[places] = True
        if (arriving & ~empty).any():
            return _reseated(state, self._fresh(seated), self._put(arriving))
        return state._replace(stopped=self._put(np.asarray(state.stopped) | empty))

    def _tail(self, seated: list[int]) -> list[int]:
        """Places to keep: fewer once the tail of slow members is worth compiling a smaller block for.

        The rule counts rows, not seconds: what is fitted must not depend on how busy the machine is.
        """
        active = [place for place, number in enumerate(seated) if number != EMPTY]
        smaller = self._round(-(-self.slots // 3))
        rows_left = len(seated) * self.steps * self.size * self.config.patience
        worth_it = rows_left > TAIL_ROWS.get(self.devices[0].platform, TAIL_ROWS_ELSEWHERE)
        if len(active) <= smaller < len(seated) and worth_it:
            return (active + [place for place, number in enumerate(seated) if number == EMPTY])[:smaller]
        return list(range(len(seated)))

    def _record(self, seated: list[int], idle: list[bool], train: np.ndarray, loss: np.ndarray) -> None:
        bad = []
        for place, number in enumerate(seated):
            if idle[place]:
                continue
            self.trains[number].append(train[:, place])
            self.losses[number].append(loss[:, place])
            if not (np.isfinite(train[:, place]).all() and np.isfinite(loss[:, place]).all()):
                bad.append(str(dict(self.members[number].label) or f"seed {self.members[number].seed}"))
        if bad:
            raise NonFiniteLossError(
                f"the loss is not finite for {len(bad)} member(s): {', '.join(bad[:5])}{', ...' * (len(bad) > 5)}. "
                f"Nothing was kept. Try a smaller learning_rate (now {self.config.learning_rate}) or clip_norm (now "
                f"{self.config.clip_norm}), and look for extreme outcomes: a robust surrogate (huber=...) bounds what "
                f"one row can do."
            )

    def _finish(self, number: int, params: Any, epochs: int, best_epoch: int, best_loss: float) -> _Finished:
        last = min(int(epochs), self.config.max_epochs)
        if self.stops:
            last = min(last, int(best_epoch) + self.config.patience)
        return _Finished(
            params=params,
            best_epoch=int(best_epoch),
            best_loss=float(best_loss),
            train_loss=np.concatenate(self.trains[number])[:last],
            validation_loss=np.concatenate(self.losses[number])[:last] if self.stops else np.empty(0),
        )
