"""Rows that come in chunks, from memory or from files: what learning in passes reads (`gbpl.passes.fit`).

A source gives every row once per pass, in an order drawn from a seed. A row's number never changes, nor does that of
its group; its fold and whether it is in a sample kept in memory follow from these numbers and a seed alone, by hashing,
so that they depend neither on the order of a pass nor on the layout of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, UInt

__all__ = [
    "FEW_GROUPS", "ArrayRows", "Chunk", "RowSource", "Sampling", "even_rows", "few_groups", "folds_of",
    "sample_numbers",
]  # fmt: skip

HASHED = 1 << 20  # row numbers hashed at a time
FEW_GROUPS = 1_000  # with fewer, folds and samples dealt by hash would be uneven
FOLDS, SAMPLE = 1, 2  # what a hash is for: the two must not depend on each other


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Some rows: their numbers and features, and what is known of their outcomes; every array has the rows first.

    Logged feedback has `outcome`, `action` (column numbers) and `propensity` (one column per action, or one number per
    row, that of the action taken; None if it is to be estimated); full feedback has `outcomes`, net of costs. `cost` is
    what each action costs. Rows of one `group` stay together.
    """

    number: Int[np.ndarray, " row"]
    x: Float[np.ndarray, "row feature"]
    outcome: Float[np.ndarray, " row"] | None = None
    action: Int[np.ndarray, " row"] | None = None
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"] | None = None
    outcomes: Float[np.ndarray, "row action"] | None = None
    cost: Float[np.ndarray, "row action"] | None = None
    weight: Float[np.ndarray, " row"] | None = None
    group: Int[np.ndarray, " row"] | None = None

    def __len__(self) -> int:
        return len(self.number)

    def folds(self, folds: int, *, seed: int) -> Int[np.ndarray, " row"]:
        """Fold of each row."""
        return folds_of(self.number if self.group is None else self.group, folds, seed=seed)

    def take(self, rows: Any) -> Chunk:
        """Some of the rows, by place, mask or slice."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        taken: dict[str, Any] = {name: _rows(part, rows) for name, part in parts.items()}
        return Chunk(**taken)

    @classmethod
    def join(cls, parts: Sequence[Chunk]) -> Chunk:
        """The rows of several chunks, one below the other."""
        columns = {part.name: [getattr(chunk, part.name) for chunk in parts] for part in fields(cls)}
        joined: dict[str, Any] = {n: None if held[0] is None else np.concatenate(held) for n, held in columns.items()}
        return cls(**joined)

    def logged(self, actions: np.ndarray) -> LoggedFeedback:
        """The rows as logged feedback."""
        assert self.outcome is not None
        assert self.action is not None
        return LoggedFeedback(
            x=self.x, outcome=self.outcome, action=self.action, actions=actions, propensity=self.propensity,
            cost=self.cost, weights=self.weight, groups=self.group, source=self.x,
        )  # fmt: skip


def _rows(part: np.ndarray | None, rows: Any) -> Any:
    """Some rows of an array, if it is one; `take` is twice as fast as an index of numbers."""
    if part is None:
        return None
    return part[rows] if isinstance(rows, slice) or rows.dtype == bool else part.take(rows, axis=0)


class RowSource(Protocol):
    """Rows that can be gone through any number of times."""

    @property
    def n_rows(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def actions(self) -> np.ndarray:
        """Labels, in the order of the columns."""
        ...

    @property
    def logged(self) -> bool:
        """Whether rows have the outcome of the action taken alone, not that of every action."""
        ...

    @property
    def classifier(self) -> Any:
        """A scikit-learn classifier that estimates propensities, None for the default one."""
        ...

    def chunks(self, rows: int, seed: int | None) -> Iterator[Chunk]:
        """Every row once, `rows` at a time (the last chunk may have fewer), shuffled by `seed`; None: as they lie."""
        ...


def hashed(numbers: Int[np.ndarray, " row"], *key: int) -> UInt[np.ndarray, " row"]:
    """64 random-looking bits for each number, another 64 for another key (SplitMix64; Steele et al. 2014)."""
    start = int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0])
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def folds_of(numbers: Int[np.ndarray, " row"], folds: int, *, seed: int) -> Int[np.ndarray, " row"]:
    """Fold of each row, or group, by its number alone."""
    return (hashed(numbers, seed, FOLDS) % np.uint64(folds)).astype(np.int64)


def sample_numbers(n: int, size: int, *, seed: int) -> Int[np.ndarray, " row"]:
    """A sample of `size` of the rows 0..n-1 without replacement, sorted: those with the smallest hashes."""
    kept, of_kept = np.empty(0, np.int64), np.empty(0, np.uint64)
    for start in range(0, n, HASHED):
        numbers = np.arange(start, min(n, start + HASHED))
        kept, of_kept = np.concatenate([kept, numbers]), np.concatenate([of_kept, hashed(numbers, seed, SAMPLE)])
        if len(kept) > size:
            least = np.argpartition(of_kept, size - 1)[:size]
            kept, of_kept = kept[least], of_kept[least]
    return np.sort(kept)


@dataclass(frozen=True, slots=True, eq=False)
class Sampling:
    """Which rows nothing learns from: those with these sorted `numbers`, or whole groups, a `share` of them by hash."""

    numbers: Int[np.ndarray, " row"]
    share: float
    seed: int

    @classmethod
    def of(cls, n: int, size: int, *, seed: int) -> Sampling:
        return cls(sample_numbers(n, size, seed=seed), size / n, seed)

    def held(self, chunk: Chunk) -> Bool[np.ndarray, " row"]:
        """Whether nothing learns from each row of a chunk."""
        if chunk.group is not None:
            return hashed(chunk.group, self.seed, SAMPLE) < np.uint64(self.share * 2.0**64)
        place = np.minimum(np.searchsorted(self.numbers, chunk.number), len(self.numbers) - 1)
        return self.numbers[place] == chunk.number


def few_groups(count: int) -> str:
    """Why a source has too few groups."""
    return (
        f"there are {count} groups, and learning in passes deals groups by hash, for which it needs {FEW_GROUPS}; fit "
        "in memory, or leave groups out"
    )


def even_rows(n: int, most: int) -> int:
    """Rows of a chunk, at most `most`, such that the last chunk of a pass is hardly shorter than the others."""
    return -(-n // -(-n // most))


@dataclass(frozen=True, slots=True, eq=False)
class ArrayRows:
    """Rows in memory, read in place: a pass copies one chunk at a time."""

    feedback: FullFeedback | LoggedFeedback

    def __post_init__(self) -> None:
        held = self.feedback
        if held.groups is not None and (count := len(np.unique(held.groups))) < FEW_GROUPS:
            raise ValueError(few_groups(count))
        if isinstance(held, LoggedFeedback) and held.controls is not None:
            raise ValueError(
                "controls are given, and learning in passes has one set of features; fit in memory, or leave them out"
            )

    @property
    def n_rows(self) -> int:
        return len(self.feedback)

    @property
    def n_features(self) -> int:
        return self.feedback.x.shape[1]

    @property
    def actions(self) -> np.ndarray:
        return self.feedback.actions

    @property
    def logged(self) -> bool:
        return isinstance(self.feedback, LoggedFeedback)

    @property
    def classifier(self) -> Any:
        return self.feedback.classifier if isinstance(self.feedback, LoggedFeedback) else None

    def chunks(self, rows: int, seed: int | None) -> Iterator[Chunk]:
        n = self.n_rows
        if seed is None:
            for start in range(0, n, rows):
                yield self._chunk(slice(start, start + rows), np.arange(start, min(start + rows, n)))
            return
        order = np.arange(n, dtype=np.int32 if n < 2**31 else np.int64)
        np.random.default_rng(seed).shuffle(order)
        for start in range(0, n, rows):
            taken = order[start : start + rows].astype(np.int64)
            yield self._chunk(taken, taken)

    def _chunk(self, rows: Any, numbers: Int[np.ndarray, " row"]) -> Chunk:
        held = self.feedback
        x, weight, group = (_rows(part, rows) for part in (held.x, held.weights, held.groups))
        if isinstance(held, FullFeedback):
            return Chunk(numbers, x, outcomes=_rows(held.outcomes, rows), weight=weight, group=group)
        return Chunk(
            numbers, x, outcome=_rows(held.outcome, rows), action=_rows(held.action, rows),
            propensity=_rows(held.propensity, rows), cost=_rows(held.cost, rows), weight=weight, group=group,
        )  # fmt: skip
