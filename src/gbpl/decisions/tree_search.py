"""The tree of the largest welfare, exactly, over a grid of cuts (Athey and Wager 2021; Zhou, Athey and Wager 2023).

The welfare of a tree is sum_i Y_i(tree(x_i)) over a table of scores Y, net of costs. The best tree of depth D of a set
of rows is the best split with the best tree of depth D - 1 on each side. Of depth 2, all first and second cuts are
looked at together: for each pair of features, scores are summed by the places of both (`Cuts`), and cumulated along
both, so that sums on all four leaves follow by subtraction. Deeper, rows move from the right of the first cut to its
left, bin by bin, and take their sums along. Where features have few values this is exact; where cuts are at quantiles
it is the best tree with those cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.decisions.cuts import Actions, Cuts, Limits, sides
from gbpl.decisions.tree import LEAF, Tree

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["Choice", "Sums", "TreeSearch", "leaf_value"]


class Choice(NamedTuple):
    """A first split: place of the cut, leaves and allowed actions on each side; `place` -1 is a leaf."""

    place: int
    leaves: tuple[int, int]
    allowed: tuple[Actions, Actions]


class Sums(NamedTuple):
    """Of a set of rows: `total` of the scores less those of action 0, cumulated by `place`, and numbers of rows."""

    total: Float[np.ndarray, " score"]
    rows: int
    place: Float[np.ndarray, "score place"]
    count: Int[np.ndarray, " place"]

    def less(self, other: Sums) -> Sums:
        """Of the rows of this set that are not in the other, a part of it."""
        return Sums(
            self.total - other.total, self.rows - other.rows, self.place - other.place, self.count - other.count
        )


Pair = tuple["Float[np.ndarray, 'score first place']", "Int[np.ndarray, 'first place']"]


def leaf_value(sums: Float[np.ndarray, "score *set"], allowed: Actions) -> Float[np.ndarray, " *set"]:
    """The largest of the sums of the allowed actions; that of action 0 is zero."""
    best: Float[np.ndarray, " *set"] | None = np.zeros(sums.shape[1:]) if 0 in allowed else None
    for action in allowed:
        if action:
            best = np.array(sums[action - 1]) if best is None else np.maximum(best, sums[action - 1], out=best)
    assert best is not None
    return best


@dataclass(frozen=True, slots=True, eq=False)
class TreeSearch:
    """Searches the trees over `cuts` for rows with `scores`: those of every action but the first, less the first's."""

    cuts: Cuts
    scores: Float[np.ndarray, "row score"]
    limits: Limits

    @property
    def rounding(self) -> float:
        """By how much the same sum may differ in another order of additions."""
        return 1e-13 * float(np.abs(self.scores).sum())

    def best(self, depth: int, first: Choice | None = None) -> Tree:
        """The best tree of at most this depth, with a given `first` split if there is one."""
        nodes: list[list[float]] = []
        every = tuple(range(self.scores.shape[1] + 1))
        leaves = min(2**depth, self.limits.leaves or 2**depth)
        self._grow(nodes, np.arange(len(self.scores)), depth, leaves, every, first)
        feature, threshold, left, right, action = zip(*nodes, strict=True)
        return Tree.of(feature, threshold, left, right, action)

    def first_of(self, depth: int, deepest: int) -> Choice:
        """The first split of the best tree of a depth, with room for sides of depth `deepest` - 1."""
        every, most = tuple(range(self.scores.shape[1] + 1)), 2 ** (deepest - 1)
        leaves = min(2 * most, self.limits.leaves or 2 * most)
        values, choices = self.solve(np.arange(len(self.scores)), depth, every)
        choice = choices[int(np.argmax(values[:leaves]))]
        left = min(most, leaves - choice.leaves[1])
        return choice._replace(leaves=(left, min(most, leaves - left)))

    def _grow(
        self, nodes: list[list[float]], rows: Int[np.ndarray, " row"], depth: int, leaves: int, allowed: Actions,
        choice: Choice | None = None,
    ) -> int:  # fmt: skip
        """Add the best tree of some rows to the nodes; its number."""
        if choice is None:
            values, choices = self.solve(rows, depth, allowed)
            choice = choices[int(np.argmax(values[:leaves]))]  # the fewest leaves of the best
        number = len(nodes)
        nodes.append([LEAF, np.nan, -1, -1, -1])
        if choice.place < 0:
            total = np.concatenate([[0.0], self.scores[rows].sum(axis=0)])
            nodes[number][4] = max(allowed, key=lambda a: (total[a], -a))
            return number
        at, feature, point = self.cuts.at(choice.place)
        goes_left = self.cuts.bins[rows, at] <= choice.place
        nodes[number][:2] = feature, point
        for side, own in enumerate((goes_left, ~goes_left)):
            nodes[number][2 + side] = self._grow(nodes, rows[own], depth - 1, choice.leaves[side], choice.allowed[side])
        return number

    # -- the best value by number of leaves ---------------------------------------------------------------

    def solve(
        self, rows: Int[np.ndarray, " row"], depth: int, allowed: Actions
    ) -> tuple[Float[np.ndarray, " leaves"], list[Choice]]:
        """The best value with at most 1, 2, ... leaves, and its first split."""
        sums = self.sums(rows)
        found = _Found(2**depth, float(leaf_value(sums.total, allowed)), allowed, self.rounding)
        if depth == 1:
            self._single(found, sums, allowed)
        elif depth == 2:
            for number, pair in enumerate(self._pairs(rows)):
                self._second(found, number, pair, sums, allowed)
        elif depth > 2:
            self._deeper(found, rows, depth, sums, allowed)
        return found.values, found.choices

    def _single(self, found: _Found, sums: Sums, allowed: Actions) -> None:
        fine = self.fits(sums.count, sums.rows)
        for number, span in enumerate(self.cuts.spans):
            for left, right in sides(self.limits, self.cuts.features[number], allowed):
                own = sums.place[:, span]
                value = leaf_value(own, left) + leaf_value(sums.total[:, None] - own, right)
                found.offer(np.where(fine[span], value, -np.inf)[None], span.start, [(1, 1)], (left, right))

    def fits(
        self, count: Int[np.ndarray, "*set place"], rows: Int[np.ndarray, "*set 1"] | int
    ) -> Bool[np.ndarray, "*set place"]:
        """Whether both sides of a cut have enough rows."""
        least = max(self.limits.rows, 1)
        return (count >= least) & (rows - count >= least)

    def _split(
        self, total: Float[np.ndarray, "score first"], rows: Int[np.ndarray, " first"],
        place: Float[np.ndarray, "score first place"], count: Int[np.ndarray, "first place"], allowed: Actions,
    ) -> Float[np.ndarray, " first"]:  # fmt: skip
        """The best value of each set of rows with one more split, or without."""
        best = leaf_value(total, allowed)
        for span, pairs in self._alike(allowed):
            inside, fits = place[:, :, span], None
            if self.limits.rows > 1:  # a split of nobody is as good as none
                fits = self.fits(count[:, span], rows[:, None])
            for left, right in pairs:
                value = leaf_value(inside, left)
                value += leaf_value(total[:, :, None] - inside, right)
                if fits is not None:
                    np.copyto(value, -np.inf, where=~fits)
                np.maximum(best, value.max(axis=1), out=best)
        return best

    def _alike(self, allowed: Actions) -> Iterator[tuple[slice, list[tuple[Actions, Actions]]]]:
        """Spans of features without ranks, as one, and of each with them."""
        start = 0
        for feature, span in zip(self.cuts.features, self.cuts.spans, strict=True):
            if feature in self.limits.ranks:
                if start < span.start:
                    yield slice(start, span.start), [(allowed, allowed)]
                yield span, sides(self.limits, feature, allowed)
                start = span.stop
        if start < self.cuts.width:
            yield slice(start, self.cuts.width), [(allowed, allowed)]

    def _second(self, found: _Found, number: int, pair: Pair, sums: Sums, allowed: Actions) -> None:
        """Trees of depth 2 with a first split on one of the features."""
        span, (inside, count) = self.cuts.spans[number], pair
        total, rows = sums.place[:, span], sums.count[span]
        other, others = sums.total[:, None] - total, sums.rows - rows
        fine = self.fits(rows, sums.rows)
        for left, right in sides(self.limits, self.cuts.features[number], allowed):
            two = self._split(total, rows, inside, count, left)
            rest = self._split(other, others, sums.place[:, None] - inside, sums.count - count, right)
            one = leaf_value(total, left), leaf_value(other, right)
            values = np.stack([one[0] + one[1], two + one[1], one[0] + rest, two + rest])
            values[:, ~fine] = -np.inf
            found.offer(values, span.start, [(1, 1), (2, 1), (1, 2), (2, 2)], (left, right))

    def _deeper(self, found: _Found, rows: Int[np.ndarray, " row"], depth: int, sums: Sums, allowed: Actions) -> None:
        """Trees of depth 3 or more: first cut by first cut."""
        whole = list(self._pairs(rows)) if depth == 3 else []
        counts = [(a, b) for a in range(1, 2 ** (depth - 1) + 1) for b in range(1, 2 ** (depth - 1) + 1)]
        for number, span in enumerate(self.cuts.spans):
            own = self.cuts.bins[rows, number]
            left = [(np.zeros_like(part), np.zeros_like(count)) for part, count in whole]
            for place in range(span.start, span.stop - 1):
                moved = rows[own == place]
                if depth == 3 and len(moved):
                    for pair, more in zip(left, self._pairs(moved), strict=True):
                        np.add(pair[0], more[0], out=pair[0])
                        np.add(pair[1], more[1], out=pair[1])
                if not len(moved) or not self.fits(sums.count[place], sums.rows):
                    continue
                below = rows[own <= place]
                for pair_of in sides(self.limits, self.cuts.features[number], allowed):
                    if depth == 3:
                        inside = self.sums(below)
                        first = self._of_pairs(left, inside, pair_of[0])
                        away = [(a - b, c - d) for (a, c), (b, d) in zip(whole, left, strict=True)]
                        second = self._of_pairs(away, sums.less(inside), pair_of[1])
                    else:
                        first = self.solve(below, depth - 1, pair_of[0])[0]
                        second = self.solve(rows[own > place], depth - 1, pair_of[1])[0]
                    values = np.array([[first[a - 1] + second[b - 1]] for a, b in counts])
                    found.offer(values, place, counts, pair_of)

    def _of_pairs(self, pairs: list[Pair], sums: Sums, allowed: Actions) -> Float[np.ndarray, " leaves"]:
        found = _Found(4, float(leaf_value(sums.total, allowed)), allowed, self.rounding)
        for number, pair in enumerate(pairs):
            self._second(found, number, pair, sums, allowed)
        return found.values

    # -- sums ---------------------------------------------------------------------------------------------

    def sums(self, rows: Int[np.ndarray, " row"]) -> Sums:
        """Sums of some rows."""
        bins, scores = self.cuts.bins[rows], self.scores[rows]
        flat, width, each = bins.ravel(), self.cuts.width, bins.shape[1]
        place = np.stack([np.bincount(flat, np.repeat(column, each), width) for column in scores.T])
        count = np.bincount(flat, minlength=width)
        for span in self.cuts.spans:
            np.cumsum(place[:, span], axis=1, out=place[:, span])
            np.cumsum(count[span], out=count[span])
        return Sums(scores.sum(axis=0), len(rows), place, count)

    def _pairs(self, rows: Int[np.ndarray, " row"]) -> Iterator[Pair]:
        """For each feature, sums of rows at most at a place of it and at most at a place of any feature."""
        bins, scores = self.cuts.bins[rows], self.scores[rows]
        width, each = self.cuts.width, bins.shape[1]
        repeated = [np.repeat(column, each) for column in scores.T]
        for number, span in enumerate(self.cuts.spans):
            flat = ((bins[:, [number]] - span.start) * width + bins).ravel()
            size = (span.stop - span.start) * width
            parts = [np.bincount(flat, column, size) for column in repeated]
            made = np.stack(parts).reshape(len(parts), -1, width)
            count = np.bincount(flat, minlength=size).reshape(-1, width)
            np.cumsum(made, axis=1, out=made)
            np.cumsum(count, axis=0, out=count)
            for other in self.cuts.spans:
                np.cumsum(made[:, :, other], axis=2, out=made[:, :, other])
                np.cumsum(count[:, other], axis=1, out=count[:, other])
            yield made, count


class _Found:
    """The best value so far with at most 1, 2, ... leaves, and how it is reached."""

    def __init__(self, leaves: int, constant: float, allowed: Actions, rounding: float) -> None:
        self.values, self.rounding = np.full(leaves, constant), rounding
        self.choices = [Choice(-1, (1, 1), (allowed, allowed))] * leaves

    def offer(
        self, values: Float[np.ndarray, "kind place"], start: int, leaves: list[tuple[int, int]],
        allowed: tuple[Actions, Actions],
    ) -> None:  # fmt: skip
        """Values of trees by their leaves on each side and the place of the first cut, from `start`."""
        best = np.argmax(values, axis=1)
        for kind, (place, sided) in enumerate(zip(best.tolist(), leaves, strict=True)):
            value = values[kind, place]
            for count in range(sum(sided) - 1, len(self.values)):
                if value > self.values[count] + self.rounding:
                    self.values[count], self.choices[count] = value, Choice(start + place, sided, allowed)
