"""The compiled step of training: a few epochs of the members in the slots of one block.

All members of a block have the same shapes: steps per epoch, rows per batch, rows of validation. Shapes are rounded up
(`rounded_up`) and the numbers of epochs and steps are data, so that fits to other numbers of rows share what is
compiled; what fills a shape up has weight zero. A slot without a member counts as stopped from the start.

Twins are members that differ in nothing but the rows that stop them. They are one training, in one slot, of which each
keeps its own best weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member
from gbpl.models.base import ScoreModel
from gbpl.models.prior import GaussianPrior, squared_norm
from gbpl.runtime.devices import member_sharding, quick_jit, shared_sharding, small_jit

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

__all__ = [
    "Block", "NonFiniteLossError", "Objective", "Slots", "State", "rounded_up", "select_slots", "where_slots",
]  # fmt: skip

EVALUATION_ROWS = 1024


def rounded_up(count: int) -> int:
    """The next multiple of an eighth of a power of two: few sizes, each less than a quarter too large.

    >>> [rounded_up(count) for count in (5, 100, 120, 600)]
    [5, 112, 128, 640]
    """
    step = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // step) * step


class NonFiniteLossError(FloatingPointError):
    """A loss became infinite or not a number."""


class Objective(Protocol):
    """A loss per row of the raw output. Surrogates are objectives; so is any frozen object with these two names."""

    @property
    def n_raw(self) -> int: ...
    def row_loss(self, raw: Array, target: Any, zeta: Array) -> Float[Array, " row"]: ...


class State(NamedTuple):
    """Training state of the twins in the slots; every array has the slot axis first, and `best` then that of twins."""

    params: Any
    optimizer: Any
    best: Any
    best_loss: Float[Array, "slot twin"]
    best_epoch: Int[Array, "slot twin"]
    epoch: Int[Array, " slot"]
    stopped: Bool[Array, "slot twin"]


class Slots(NamedTuple):
    """Constants of the twins in the slots."""

    zeta: Float[Array, " slot"]
    penalty: Float[Array, " slot"]
    offset: Int[Array, " slot"]
    validation: Int[Array, "slot twin chunk row"]
    validation_weight: Float[Array, "slot twin chunk row"]


def _where(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def train_block(
    state: State,
    slots: Slots,
    x: Float[Array, "row feature"],
    target: Any,
    rows: Int[Array, "step slot batch"],
    weight: Float[Array, "step slot batch"],
    counts: tuple[Any, Any],
    *,
    model: ScoreModel,
    objective: Objective,
    config: FitConfig,
    stops: bool,
) -> tuple[State, Float[Array, "epoch slot"], Float[Array, "epoch slot twin"]]:
    """A few epochs of every slot; returns the new state and the training and validation loss of each epoch.

    `counts` are the epochs, and the steps of each; batches and losses beyond them are left as they are.
    """
    optimizer = config.optimizer()
    epochs, steps = counts

    def batch_loss(params: Any, batch: tuple[Array, Array], zeta: Array, offset: Array) -> Array:
        numbers, weights = batch
        wanted = jax.tree.map(lambda leaf: leaf[offset + numbers], target)
        return jnp.sum(weights * objective.row_loss(model.apply(params, x[numbers]), wanted, zeta))

    def step(params: Any, moments: Any, batch: tuple, s: Slots) -> tuple[Any, Any, Array]:
        def loss_of(p: Any) -> Array:
            return batch_loss(p, batch, s.zeta, s.offset) + s.penalty * squared_norm(p)

        loss, gradient = jax.value_and_grad(loss_of)(params)
        updates, moments = optimizer.update(gradient, moments, params)
        return optax.apply_updates(params, updates), moments, loss

    def validation_loss(params: Any, s: Slots) -> Float[Array, " twin"]:
        def of_twin(*parts: Array) -> Array:
            return jax.lax.map(lambda part: batch_loss(params, part, s.zeta, s.offset), parts).sum()

        return jnp.stack([of_twin(*parts) for parts in zip(s.validation, s.validation_weight, strict=True)])

    def epoch(number: Array, carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
        state, train_losses, losses = carry

        def one(place: Array, carry: tuple) -> tuple:
            params, moments, total = carry
            batch = rows[number * steps + place], weight[number * steps + place]
            params, moments, loss = jax.vmap(step)(params, moments, batch, slots)
            return params, moments, total + loss

        start = state.params, state.optimizer, jnp.zeros_like(slots.penalty)
        params, moments, total = jax.lax.fori_loop(0, steps, one, start)
        train = total / steps
        if stops:
            loss = jax.vmap(validation_loss)(params, slots)
            least = config.tolerance * jnp.where(jnp.isfinite(state.best_loss), jnp.abs(state.best_loss), 0.0)
            improved = (loss < state.best_loss - least) & ~state.stopped
        else:
            loss = train[:, None]
            improved = ~state.stopped
        best = jax.vmap(jax.vmap(_where, (0, None, 0)))(improved, params, state.best)
        best_loss = jnp.where(improved, loss, state.best_loss)
        done = state.epoch + 1
        best_epoch = jnp.where(improved, done[:, None], state.best_epoch)
        stopped = state.stopped | (done >= config.max_epochs)[:, None]
        if stops:
            stopped = stopped | (done[:, None] - best_epoch >= config.patience)
        new = State(params, moments, best, best_loss, best_epoch, done, stopped)
        return new, train_losses.at[number].set(train), losses.at[number].set(loss)

    none = jnp.zeros((rows.shape[0], *state.best_loss.shape), jnp.float32)
    return jax.lax.fori_loop(0, epochs, epoch, (state, none[:, :, 0], none))


_fixed = "model", "objective", "config", "stops"
_shared_block = jax.jit(train_block, static_argnames=_fixed, donate_argnames="state")
# On a GPU a loop of unknown length waits for the host at each step.
_counted: dict[str, Any] = {"static_argnames": (*_fixed, "counts"), "donate_argnames": "state"}
_tuned_block, _quick_block = jax.jit(train_block, **_counted), quick_jit(train_block, **_counted)


@partial(small_jit, static_argnames=("model", "config", "n_features", "n_raw", "twins"))
def initial_state(
    seeds: Array, occupied: Array, *, model: ScoreModel, config: FitConfig, n_features: int, n_raw: int, twins: int
) -> State:
    """The state before the first step, of slots that have a member or none."""
    params = jax.vmap(lambda seed: model.init(jax.random.key(seed), n_features, n_raw))(seeds)
    slots = seeds.shape[0]
    return State(
        params=params,
        optimizer=jax.vmap(config.optimizer().init)(params),
        best=jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], twins, axis=1), params),
        best_loss=jnp.full((slots, twins), jnp.inf, jnp.float32),
        best_epoch=jnp.zeros((slots, twins), jnp.int32),
        epoch=jnp.zeros(slots, jnp.int32),
        stopped=jnp.repeat(~occupied[:, None], twins, axis=1),
    )


@partial(small_jit, donate_argnames="state")
def where_slots(chosen: Array, fresh: State, state: State) -> State:
    """The fresh state in the chosen slots; the others stay as they are."""
    return jax.vmap(_where)(chosen, fresh, state)


@small_jit
def select_slots(tree: Any, places: Int[Array, " place"]) -> Any:
    """Some slots of a tree of arrays."""
    return jax.tree.map(lambda leaf: leaf[places], tree)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Block:
    """What is compiled for members of one shape, and the devices that share its slots.

    `trainings` are all that will be seated, each a list of twins, as many in one as in another. A table has
    `table_rows` rows and `n_features` features. `n_train` is the n of the penalty |w|^2 / (2 prior_sd^2 eta n) of every
    member; None: the rows of its `train`. A `quick` block is compiled without a search for the fastest products. A call
    of it runs `epochs` epochs of `steps` steps.
    """

    model: ScoreModel
    objective: Objective
    config: FitConfig
    devices: list[jax.Device]
    trainings: Sequence[Sequence[Member]]
    table_rows: int
    n_features: int
    epochs: int
    steps: int
    n_train: float | None = None
    quick: bool = False

    @property
    def stops(self) -> bool:
        """Whether members stop by their validation loss; then all do."""
        return len(self.trainings[0][0].validation) > 0

    @property
    def most_validation(self) -> int:
        """The largest number of validation rows of a member."""
        return self.config.epoch_rows // 4

    def put(self, tree: Any, axis: int = 0) -> Any:
        """Spread an axis of slots over the devices."""
        return jax.device_put(tree, member_sharding(self.devices, axis))

    def share(self, tree: Any) -> Any:
        """A copy of the table on every device."""
        return jax.device_put(tree, shared_sharding(self.devices))

    def rounded(self, slots: int) -> int:
        """As many slots or a few more, the same number on every device."""
        return -(-slots // len(self.devices)) * len(self.devices)

    def slots(self, seated: Sequence[int | None]) -> Slots:
        """Constants of the trainings with these numbers; None is an empty slot."""
        longest = max(len(member.validation) for twins in self.trainings for member in twins)
        longest = rounded_up(min(longest, self.most_validation))
        chunk = max(1, min(longest, EVALUATION_ROWS))
        shape = len(seated), len(self.trainings[0]), -(-longest // chunk), chunk
        rows = np.zeros((*shape[:2], shape[2] * chunk), np.int32)
        weight = np.zeros(rows.shape, np.float32)
        zeta, penalty, table = np.ones(len(seated)), np.zeros(len(seated)), np.zeros(len(seated), np.int32)
        for place, number in enumerate(seated):
            if number is None:
                continue
            first, *_ = twins = self.trainings[number]
            n_train = len(first.train) if self.n_train is None else self.n_train
            zeta[place], table[place] = first.zeta, first.table
            penalty[place] = GaussianPrior(first.prior_sd).penalty_scale(first.eta, n_train)
            for which, member in enumerate(twins):
                kept = np.arange(len(member.validation))
                if len(kept) > self.most_validation:
                    kept = np.random.default_rng(member.seed).choice(kept, self.most_validation, replace=False)
                given = np.ones(len(kept)) if member.validation_weights is None else member.validation_weights[kept]
                rows[place, which, : len(kept)] = member.validation[kept]
                weight[place, which, : len(kept)] = given / max(given.sum(), 1e-30)
        constants = {
            "zeta": zeta.astype(np.float32),
            "penalty": penalty.astype(np.float32),
            "offset": table * np.int32(self.table_rows),
            "validation": rows.reshape(shape),
            "validation_weight": weight.reshape(shape),
        }
        return Slots(**self.put(constants))

    def _before(self, seated: Sequence[int | None]) -> tuple[Any, dict[str, Any]]:
        """Arguments of `initial_state`."""
        seeds = [0 if number is None else self.trainings[number][0].seed % 2**32 for number in seated]
        occupied = [number is not None for number in seated]
        twins = len(self.trainings[0])
        fixed = {"n_features": self.n_features, "n_raw": self.objective.n_raw, "twins": twins}
        return self.put((np.array(seeds, np.uint32), np.array(occupied))), fixed | {
            "model": self.model,
            "config": self.config,
        }

    def fresh(self, seated: Sequence[int | None]) -> State:
        """The state of the trainings before their first step."""
        given, fixed = self._before(seated)
        # Zeros are made on every device: without this the first block would be compiled separately.
        return self.put(initial_state(*given, **fixed))

    def _program(self) -> Any:
        fixed = {"model": self.model, "objective": self.objective, "config": self.config, "stops": self.stops}
        if self.devices[0].platform == "cpu":
            return _shared_block, (np.int32(self.epochs), np.int32(self.steps)), fixed
        return (_quick_block if self.quick else _tuned_block), (self.epochs, self.steps), fixed

    def train(self, state: State, slots: Slots, data: Any, batches: Any) -> tuple[State, Any, Any]:
        """Hand a block to the devices; returns before they have computed it. The first `epochs` losses count."""
        program, counts, fixed = self._program()
        return program(state, slots, *data, *self.put(batches, axis=1), counts=counts, **fixed)

    def compile(self, seated: Sequence[int | None], target: Any, batches: tuple[int, int, int]) -> None:
        """Compile what `train` runs, for targets and batches of these shapes and types, without running it."""

        def placed(leaf: Any, sharding: Any) -> Any:
            weak = getattr(leaf, "weak_type", False)
            return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak)

        given, fixed = self._before(seated)
        state = jax.eval_shape(partial(initial_state.__wrapped__, **fixed), *given)  # options are for calls alone
        state = jax.tree.map(lambda leaf: placed(leaf, member_sharding(self.devices)), state)
        table = jax.ShapeDtypeStruct((self.table_rows, self.n_features), np.float32), target
        data = jax.tree.map(lambda leaf: placed(leaf, shared_sharding(self.devices)), table)
        by_slot = member_sharding(self.devices, 1)
        drawn = (placed(jax.ShapeDtypeStruct(batches, kind), by_slot) for kind in (np.int32, np.float32))
        program, counts, fixed = self._program()
        program.lower(state, self.slots(seated), *data, *drawn, counts=counts, **fixed).compile()
