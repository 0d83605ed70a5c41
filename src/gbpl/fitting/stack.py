"""`TrainingLoop`, the only training loop, and `fit_stack`, which runs it on rows in memory.

Any number of members are fitted at once. Members sit in the slots of a compiled block of epochs and learn from the
batches of a source: drawn from rows in memory, or from chunks that pass (`gbpl.fitting.chunks`). In memory, a member
that stops early gives its slot to the next, so that stopped members cost no time and the shapes, hence the compiled
function, stay the same. A member's result does not depend on its neighbours. Members that differ in nothing but the
rows that stop them (`twins`) are trained once.

The objective of a member is the mean row loss plus |w|^2 / (2 prior_sd^2 eta n). Where it is convex, members are solved
instead (`gbpl.fitting.newton`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from gbpl.fitting.apply import taken
from gbpl.fitting.batches import BlockData, DrawnBatches, Seats, Source
from gbpl.fitting.block import Block, NonFiniteLossError, Objective, State, select_slots, where_slots
from gbpl.fitting.config import FitConfig
from gbpl.fitting.hosts import share
from gbpl.fitting.members import Member
from gbpl.fitting.newton import is_solved, solve
from gbpl.fitting.once import computed_once
from gbpl.fitting.placement import Work, devices_for, parameter_count
from gbpl.models.base import GrownModel, ScoreModel
from gbpl.runtime.devices import DeviceName, aligned_empty, as_aligned, resolve_devices, with_room
from gbpl.runtime.progress import Progress

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "FitConfig", "FittedMember", "NonFiniteLossError", "Objective", "StackFit", "StackProblem", "TrainingLoop",
    "collect_stack", "fit_stack", "fit_stacks", "twins",
]  # fmt: skip

SLOTS_PER_CPU = 8  # more members at once fall out of the cache (measured: 160 against 110 GFLOP/s)
WAVES = 6  # members per slot, if possible: slots are empty only at the end of the last
FEWEST_SLOTS = 4  # a step has overhead that they share
SLOTS_PER_GPU = 2048
BLOCK_STEPS = 64  # steps between two checks on the host: few are wasted on members that stop, and checking is free
TAIL_ROWS = {"cpu": 2e6}  # rows left for which a smaller block is worth compiling: about two seconds
TAIL_ROWS_ELSEWHERE = 5e8


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
        """Parameters of some members, in the given order."""
        return taken(self.params, chosen)

    def subset(self, chosen: Sequence[int] | Int[np.ndarray, " chosen"], members: Sequence[Member]) -> StackFit:
        """Some of the fits, in the given order, as those of `members`."""
        return StackFit(
            members=tuple(members),
            params=self.select(chosen),
            validation_loss=tuple(self.validation_loss[i] for i in chosen),
            train_loss=tuple(self.train_loss[i] for i in chosen),
            best_epoch=self.best_epoch[np.asarray(chosen)],
            best_loss=self.best_loss[np.asarray(chosen)],
        )

    def find(self, **fields: Any) -> list[int]:
        """Numbers of the members whose fields have these values, such as `fold=2`."""
        return [i for i, m in enumerate(self.members) if all(getattr(m, k) == v for k, v in fields.items())]


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
    Members whose epochs have the same number of steps train side by side. Those of a score that is linear in its
    parameters and not squashed are solved to their optimum: `config` has no effect, and there is one epoch.
    """
    config = config or FitConfig()
    if not members:
        raise ValueError("fit_stack needs at least one member, got none")
    if isinstance(model, GrownModel):
        problem = StackProblem(x, target, members)
        return model.fit_stacks([problem], objective, config=config, device=device, progress=progress)[0]
    resolve_devices(device)  # refuses what is not there
    solved = is_solved(objective, model)
    if not solved:
        model, x = computed_once(model, x, objective.n_raw)
    data = jax.tree.map(as_aligned, (x, target))
    bar = Progress("fitting", len(members), show=progress)

    def fitted(numbers: Sequence[int]) -> list[FittedMember]:
        if solved:
            return [_solved(members[number], data, objective, model, bar, done) for done, number in enumerate(numbers)]
        groups: dict[tuple, list[list[int]]] = {}
        for together in twins([members[number] for number in numbers]):
            first = members[numbers[together[0]]]
            shape = config.batch_shape(len(first.train))[0], len(first.validation) > 0, len(together)
            groups.setdefault(shape, []).append([numbers[place] for place in together])
        done: dict[int, FittedMember] = {}
        for own in groups.values():
            trainings = [[members[number] for number in together] for together in own]
            for place, results in _fit_group(trainings, data, objective, model, config, device, bar):
                done |= dict(zip(own[place], results, strict=True))
        return [done[number] for number in numbers]

    try:
        return collect_stack(members, share(members, data, fitted))
    finally:
        bar.close()


def _solved(
    member: Member, data: tuple[np.ndarray, Any], objective: Objective, model: ScoreModel, bar: Progress, done: int
) -> FittedMember:
    """A member at the optimum of its objective, as one epoch."""
    bar.update(done, "members")
    params, train, held = solve(member, *data, objective, model)
    validation = np.empty(0) if held is None else np.array([held])
    return FittedMember(params, 1, train if held is None else held, np.array([train]), validation)


def twins(members: Sequence[Member]) -> list[list[int]]:
    """The places of members that differ in nothing but the rows that stop them, together: one training serves them."""
    together: dict[tuple, list[int]] = {}
    for place, m in enumerate(members):
        weights = None if m.weights is None else m.weights.tobytes()
        key = hash((m.train.tobytes(), weights)), m.zeta, m.eta, m.prior_sd, m.seed, m.table, len(m.validation) > 0
        together.setdefault(key, []).append(place)
    return list(together.values())


def _fit_group(
    trainings: list[list[Member]],
    data: tuple[np.ndarray, Any],
    objective: Objective,
    model: ScoreModel,
    config: FitConfig,
    device: DeviceName | Sequence[jax.Device],
    bar: Progress,
) -> Iterator[tuple[int, list[FittedMember]]]:
    """Trainings of one shape: as many slots as suit the devices; the others wait for one."""
    firsts = [first for first, *_ in trainings]
    shapes = [config.batch_shape(len(member.train)) for member in firsts]
    steps, size = shapes[0][0], max(size for _, size in shapes)
    epochs = max(1, min(config.max_epochs, BLOCK_STEPS // steps))
    rows, n_features = data[0].shape
    work = Work(len(trainings), steps, size, parameter_count(model, n_features, objective))
    block = Block(
        model=model, objective=objective, config=config, devices=devices_for(device, work), trainings=trainings,
        table_rows=rows, n_features=n_features, epochs=epochs, steps=steps,
    )  # fmt: skip
    count = len(block.devices)
    if block.devices[0].platform == "cpu":
        fewest = min(_power_of_two(2 * len(trainings) - 1), max(FEWEST_SLOTS, 2 * count))
        slots = block.rounded(min(max(fewest, _power_of_two(len(trainings) // WAVES)), SLOTS_PER_CPU * count))
    else:
        slots = block.rounded(min(len(trainings), SLOTS_PER_GPU * count))
    table = block.share(jax.tree.map(with_room, data))
    source = DrawnBatches(firsts, table, config, (epochs, steps, size))
    seats: Seats = [number if number < len(trainings) else None for number in range(slots)]
    yield from TrainingLoop(block, [seats], epoch_rows=steps * size).run(source, bar)


def _power_of_two(count: int) -> int:
    """The largest power of two that is not above a count; one for zero."""
    return 1 << max(0, count.bit_length() - 1)


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

    Each problem gets the result that `fit_stack` would give it alone, up to float32 rounding: many small fits cost as
    much as one large one.
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
    return [whole.subset(range(*ends[i : i + 2]), problem.members) for i, problem in enumerate(problems)]


def _below(leaves: Sequence[np.ndarray], rows: Sequence[int]) -> np.ndarray:
    """Targets of several problems: table t of all of them, then table t + 1 of all; a short one repeats its last."""
    tables = [
        np.asarray(leaf).reshape(-1, count, *np.shape(leaf)[1:]) for leaf, count in zip(leaves, rows, strict=True)
    ]
    most = max(len(table) for table in tables)
    return np.concatenate([table[min(t, len(table) - 1)] for t in range(most) for table in tables])


class FittedMember(NamedTuple):
    """The result of training one member."""

    params: Any
    best_epoch: int
    best_loss: float
    train_loss: Float[np.ndarray, " epoch"]
    validation_loss: Float[np.ndarray, " epoch"]


def collect_stack(members: Sequence[Member], fitted: Sequence[FittedMember]) -> StackFit:
    """Fitted members as one stack."""
    return StackFit(
        members=tuple(members),
        params=jax.tree.map(lambda *leaves: np.stack(leaves), *[result.params for result in fitted]),
        validation_loss=tuple(result.validation_loss for result in fitted),
        train_loss=tuple(result.train_loss for result in fitted),
        best_epoch=np.array([result.best_epoch for result in fitted]),
        best_loss=np.array([result.best_loss for result in fitted]),
    )


class _Bank:
    """Slots that one call of the compiled block trains: the numbers of the trainings in them, and their state."""

    def __init__(self, block: Block, seats: Seats) -> None:
        self.seats, self.size = seats, len(seats)
        self.slots, self.state = block.slots(seats), block.fresh(seats)
        self.idle = np.array([number is None for number in seats])


class TrainingLoop:
    """Trainings of one shape on their way through the slots of a block: the only training loop.

    `banks` says which are seated at first; the others take the slots of those that stop. The banks take turns: each has
    as many slots as suit the cache. `epoch_rows` is the number of rows a slot passes per epoch.
    """

    def __init__(self, block: Block, banks: Sequence[Seats], *, epoch_rows: int) -> None:
        self.block, self.epoch_rows = block, epoch_rows
        self.banks = [_Bank(block, list(seats)) for seats in banks]
        seated = {number for seats in banks for number in seats}
        self.queue = deque(number for number in range(len(block.trainings)) if number not in seated)
        self.losses: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in block.trainings]
        self.done = 0

    def run(self, source: Source, bar: Progress | None = None) -> Iterator[tuple[int, list[FittedMember]]]:
        """Yield (number of the training, results of its members) as they finish."""
        running: deque[list[tuple[Any, Any]]] = deque()
        while (data := source.take(self._seats())) is not None:
            running.append([self._train(bank, data, place) for place, bank in enumerate(self.banks)])
            if len(running) > 1:  # by now the block before is done: reading it does not wait
                self._record(running.popleft())
            source.draw_ahead(self._seats())  # while the block runs
            if source.ends:
                continue
            self._record(running.popleft())
            for bank in self.banks:
                yield from self._recycle(bank)
            if bar is not None:
                bar.update(self.done, "members")
        while running:
            self._record(running.popleft())
        for bank in self.banks:
            yield from self._leave(bank, [place for place, number in enumerate(bank.seats) if number is not None])

    def _seats(self) -> list[Seats]:
        return [bank.seats for bank in self.banks]

    def _train(self, bank: _Bank, data: BlockData, place: int) -> tuple[Any, Any]:
        bank.state, train, loss = self.block.train(bank.state, bank.slots, data.table, data.batches[place])
        return train, loss

    def _record(self, losses: list[tuple[Any, Any]]) -> None:
        """Keep the losses of a block, and refuse those that are not finite."""
        bad: list[str] = []
        for bank, (train, loss) in zip(self.banks, losses, strict=True):
            train, loss = np.asarray(train)[: self.block.epochs], np.asarray(loss)[: self.block.epochs]
            for place, number in enumerate(bank.seats):
                if number is None or bank.idle[place]:
                    continue
                self.losses[number].append((train[:, place], loss[:, place]))
                if not (np.isfinite(train[:, place]).all() and np.isfinite(loss[:, place]).all()):
                    bad += map(str, self.block.trainings[number])
        if bad:
            config = self.block.config
            raise NonFiniteLossError(
                f"the loss is not finite for {len(bad)} member(s): {', '.join(bad[:5])}{', ...' * (len(bad) > 5)}. "
                f"Nothing was kept. Try a smaller learning_rate (now {config.learning_rate}) or clip_norm (now "
                f"{config.clip_norm}), and look for extreme outcomes: a robust surrogate (huber=...) bounds what one "
                "row can do."
            )

    def _recycle(self, bank: _Bank) -> Iterator[tuple[int, list[FittedMember]]]:
        """Give the slots of those whose members have all stopped to those that wait, once they are enough."""
        bank.idle = np.all(bank.state.stopped, axis=1)
        leaving = [place for place, number in enumerate(bank.seats) if number is not None and bank.idle[place]]
        enough = 1 if len(bank.seats) <= 64 else len(bank.seats) // 4
        if len(leaving) < enough and not (leaving and bank.idle.all()):
            return
        yield from self._leave(bank, leaving)
        for place in leaving:
            bank.seats[place] = self.queue.popleft() if self.queue else None
        bank.state = self._seated(bank, leaving)
        kept = self._tail(bank)
        if len(kept) < len(bank.seats):
            bank.seats = [bank.seats[place] for place in kept]
            bank.state = self.block.put(jax.tree.map(lambda leaf: np.asarray(leaf)[kept], bank.state))
        bank.idle = np.array([number is None for number in bank.seats])
        bank.slots = self.block.slots(bank.seats)

    def _leave(self, bank: _Bank, places: list[int]) -> Iterator[tuple[int, list[FittedMember]]]:
        """Results of the members in some places."""
        if not places:
            return
        best = bank.state.best
        if len(places) < len(bank.seats):  # the first repeated up to a fixed size, so that one shape is compiled
            padded = [*places, *[places[0]] * (len(bank.seats) - len(places))]
            best = select_slots(best, np.array(padded, np.int32))
        best = jax.tree.map(np.asarray, best)
        epochs, best_epoch, best_loss = map(np.asarray, (bank.state.epoch, bank.state.best_epoch, bank.state.best_loss))
        for at, place in enumerate(places):
            number, config = bank.seats[place], self.block.config
            assert number is not None
            train, loss = (np.concatenate(parts) for parts in zip(*self.losses[number], strict=True))
            results = []
            for twin in range(best_epoch.shape[1]):
                last = min(int(epochs[place]), config.max_epochs)
                if self.block.stops:
                    last = min(last, int(best_epoch[place, twin]) + config.patience)
                results.append(
                    FittedMember(
                        params=jax.tree.map(lambda leaf, which=(at, twin): leaf[which].copy(), best),
                        best_epoch=int(best_epoch[place, twin]),
                        best_loss=float(best_loss[place, twin]),
                        train_loss=train[:last],
                        validation_loss=loss[:last, twin] if self.block.stops else np.empty(0),
                    )
                )
            self.done += len(results)
            yield number, results

    def _seated(self, bank: _Bank, places: list[int]) -> State:
        """The state with new trainings in the places that were left."""
        arriving, empty = np.zeros(len(bank.seats), bool), np.array([number is None for number in bank.seats])
        arriving[places] = True
        if (arriving & ~empty).any():
            return where_slots(self.block.put(arriving), self.block.fresh(bank.seats), bank.state)
        return bank.state._replace(stopped=self.block.put(np.asarray(bank.state.stopped) | empty[:, None]))

    def _tail(self, bank: _Bank) -> list[int]:
        """Places to keep: fewer once it pays to compile a smaller block for the slow members that are left.

        The rule counts rows, not seconds: the fit must not depend on how busy the machine is.
        """
        seats = bank.seats
        active = [place for place, number in enumerate(seats) if number is not None]
        smaller = self.block.rounded(-(-bank.size // 3))
        rows_left = len(seats) * self.epoch_rows * self.block.config.patience
        worth_it = rows_left > TAIL_ROWS.get(self.block.devices[0].platform, TAIL_ROWS_ELSEWHERE)
        if len(active) <= smaller < len(seats) and worth_it:
            return (active + [place for place, number in enumerate(seats) if number is None])[:smaller]
        return list(range(len(seats)))
