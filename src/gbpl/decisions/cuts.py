"""Where a small rule may cut its features, and what else it has to keep to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gbpl.tables.conditions import plainest

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Cuts", "Limits", "sides"]

Actions = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rule keeps to: at most `leaves`, at least `rows` on each side of a cut, and `ranks` of the actions.

    With `ranks[j]`, one number per action, raising feature j never takes a row to an action of a lower rank. A tree
    keeps to it if at every split on j no action on the left ranks above one on the right, which is sufficient (and what
    gradient boosting libraries ask for), and what is searched.
    """

    leaves: int | None = None
    rows: int = 1
    ranks: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


def sides(limits: Limits, feature: int, allowed: Actions) -> list[tuple[Actions, Actions]]:
    """Actions that may be given on the left and on the right of a cut of a feature: one pair per way to allow them.

    >>> sides(Limits(ranks={3: (0, 1, 2)}), 3, (0, 1, 2))
    [((0,), (0, 1, 2)), ((0, 1), (1, 2)), ((0, 1, 2), (2,))]
    """
    ranks = limits.ranks.get(feature)
    if ranks is None:
        return [(allowed, allowed)]
    levels = sorted({ranks[a] for a in allowed})
    return [
        (tuple(a for a in allowed if ranks[a] <= level), tuple(a for a in allowed if ranks[a] >= level))
        for level in levels
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """Cuts of some `features`, and the place of each row among them.

    All places are in one line, feature after feature: those of feature number p are `spans[p]`, one more than it has
    cuts, and a row is at most at cut c of it where `bins[row, p] <= spans[p].start + c`. A cut is anywhere between its
    `low` end, the largest value on its left, and its `high` end. `exact`: every cut between two values is there.
    """

    features: tuple[int, ...]
    low: tuple[Float[np.ndarray, " cut"], ...]
    high: tuple[Float[np.ndarray, " cut"], ...]
    bins: Int[np.ndarray, "row chosen"]
    spans: tuple[slice, ...]
    exact: bool

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "row feature"],
        features: tuple[int, ...],
        most: int | None = None,
        each: int | None = None,
    ) -> Cuts:
        """At most `most` cuts in all and `each` of a feature, at quantiles where it has more values; at least one."""
        values = [np.unique(x[:, j]) for j in features]
        kept = [(j, own) for j, own in zip(features, values, strict=True) if len(own) > 1]
        counts = [len(own) - 1 for _, own in kept]
        highest = max([1, *counts]) if each is None else min(each, max([1, *counts]))
        each = highest if most is None else min(highest, _each(counts, most))
        last = [_last(x[:, j], own, each) for j, own in kept]
        width = np.cumsum([0, *(len(own) + 1 for own in last)]).tolist()
        spans = tuple(slice(start, end) for start, end in pairwise(width))
        low = tuple(own[at] for (_, own), at in zip(kept, last, strict=True))
        high = tuple(own[at + 1] for (_, own), at in zip(kept, last, strict=True))
        bins = np.empty((len(x), len(kept)), np.int64)
        for place, ((j, _), below) in enumerate(zip(kept, low, strict=True)):
            bins[:, place] = np.searchsorted(below, x[:, j]) + width[place]
        return cls(tuple(j for j, _ in kept), low, high, bins, spans, max([0, *counts]) <= each)

    @property
    def width(self) -> int:
        """Places of all features together."""
        return self.spans[-1].stop if self.spans else 0

    def at(self, place: int) -> tuple[int, int, float]:
        """The number among `features`, the feature and the cut point, in the fewest digits, of a place."""
        number = next(number for number, span in enumerate(self.spans) if place < span.stop)
        cut = place - self.spans[number].start
        return number, self.features[number], plainest(float(self.low[number][cut]), float(self.high[number][cut]))


def _each(counts: list[int], most: int) -> int:
    """The largest number of cuts per feature with which there are at most so many in all."""
    low, high = 1, max([1, *counts])
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(count, middle) for count in counts) <= most else (low, middle - 1)
    return low


def _last(column: Float[np.ndarray, " row"], values: Float[np.ndarray, " value"], most: int) -> Int[np.ndarray, " cut"]:
    """Of each cut, the place of the largest value on its left."""
    if len(values) - 1 <= most:
        return np.arange(len(values) - 1)
    at = np.sort(column)[np.round(len(column) * np.arange(1, most + 1) / (most + 1)).astype(int) - 1]
    return np.unique(np.minimum(np.searchsorted(values, at), len(values) - 2))
