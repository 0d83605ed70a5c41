"""A scorecard of large welfare: a few conditions with whole points, by coordinate ascent on the welfare itself.

Rows with the same points for every action get the same action, before and after v more points for one of them. With
the scores summed over such rows on both sides of every cut, all conditions "x_j > c: p points", each with the best
change of the start, are compared at once. Conditions are added one at a time, to the points as they are or to others
that decide the same and leave more room between them, and then each is taken out and chosen again until nothing
improves. It need not be the best of all scorecards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.decisions.cuts import Cuts, Limits
from gbpl.decisions.scorecard import Scorecard
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["best_card"]

POINTS = 4  # of a condition for an action, at most
SWEEPS = 10


class _Term(NamedTuple):
    """A condition: points for one action where a feature is beyond the cut at a place."""

    place: int
    action: int
    points: int


class _Card(NamedTuple):
    terms: tuple[_Term, ...]
    start: tuple[int, ...]
    value: float


def best_card(cuts: Cuts, scores: Float[np.ndarray, "row score"], limits: Limits, conditions: int) -> Scorecard:
    """A scorecard of at most so many conditions; `scores` are those of every action but the first, less the first's."""
    search = _Search(cuts, np.column_stack([np.zeros(len(scores)), scores]), limits)
    card = search.constant()
    while len(card.terms) < conditions:
        better = search.added(search.alike(card), card.value)
        if better is None:
            break
        card = better
    for _ in range(SWEEPS):
        before = card.value
        for number in range(len(card.terms)):
            others = card._replace(terms=card.terms[:number] + card.terms[number + 1 :])
            card = search.added([others], card.value) or card
        if card.value <= before + search.rounding:
            break
    return _made(cuts, card)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    cuts: Cuts
    table: Float[np.ndarray, "row action"]
    limits: Limits

    @property
    def rounding(self) -> float:
        return 1e-12 * float(np.abs(self.table).sum())

    def constant(self) -> _Card:
        """One action for everybody."""
        total = self.table.sum(axis=0)
        best = int(np.argmax(total))
        start = [int(action == best) - int(best == 0) for action in range(len(total))]
        return _Card((), tuple(start), float(total.max()))

    def totals(self, card: _Card) -> Int[np.ndarray, "row action"]:
        total = np.tile(np.array(card.start), (len(self.table), 1))
        for term in card.terms:
            total[:, term.action] += term.points * (self.cuts.bins[:, self.cuts.at(term.place)[0]] > term.place)
        return total

    def alike(self, card: _Card) -> Iterator[_Card]:
        """The card, and where points are small with all of them doubled, and with one changed where nothing is lost."""
        yield card
        if not card.terms or max(abs(term.points) for term in card.terms) > POINTS // 2:
            return
        terms = [term._replace(points=2 * term.points) for term in card.terms]
        double = card._replace(terms=tuple(terms), start=tuple(2 * points for points in card.start))
        yield double
        for number, term in enumerate(terms):
            for step in (-1, 1):
                other = [*terms[:number], term._replace(points=term.points + step), *terms[number + 1 :]]
                for shift in (0, -step):
                    start = tuple(p + shift * (a == term.action) for a, p in enumerate(double.start))
                    made = _Card(tuple(other), start, card.value)
                    given = deterministic(self.totals(made))[:, None]
                    if np.take_along_axis(self.table, given, axis=1).sum() >= card.value - self.rounding:
                        yield made

    def added(self, cards: Iterator[_Card] | list[_Card], least: float) -> _Card | None:
        """The best card with one more condition and the best change of the start; None if none is above `least`."""
        best: _Card | None = None
        for card in cards:
            for action in range(1, self.table.shape[1]):
                found = self._one_more(card, action, least if best is None else best.value)
                best = best if found is None else found
        return best

    def _one_more(self, card: _Card, action: int, least: float) -> _Card | None:
        cells, below, whole = self._cells(card)
        reach, kept = 2 * POINTS, least + self.rounding
        best: _Card | None = None
        low, all_rows = {}, {}
        for change in range(-reach - POINTS, reach + POINTS + 1):
            moved = cells.copy()
            moved[:, action] += change
            given = deterministic(moved), np.arange(len(cells))
            low[change], all_rows[change] = below[given].sum(axis=0), float(whole[given].sum())
        for points in (p for p in range(-POINTS, POINTS + 1) if p):
            places = self._places(action, points)
            for shift in range(-reach, reach + 1):
                value = low[shift][places] + all_rows[shift + points] - low[shift + points][places]
                if len(value) and (most := float(value.max())) > kept:
                    kept, term = most, _Term(int(places[np.argmax(value)]), action, points)
                    start = tuple(p + shift * (a == action) for a, p in enumerate(card.start))
                    best = _Card((*card.terms, term), start, most)
        return best

    def _cells(
        self, card: _Card
    ) -> tuple[
        Int[np.ndarray, "cell action"], Float[np.ndarray, "action cell place"], Float[np.ndarray, "action cell"]
    ]:
        """Points that rows have, and for each action the scores of such rows up to each place, and of all of them."""
        total = self.totals(card)
        low, width = total.min(axis=0), self.cuts.width
        code = np.ravel_multi_index(tuple((total - low).T), tuple(total.max(axis=0) - low + 1))
        _, first, cell = np.unique(code, return_index=True, return_inverse=True)
        flat = (cell[:, None] * width + self.cuts.bins).ravel()
        below = np.stack([
            np.bincount(flat, np.repeat(column, self.cuts.bins.shape[1]), len(first) * width) for column in self.table.T
        ]).reshape(self.table.shape[1], len(first), width)  # fmt: skip
        for span in self.cuts.spans:
            np.cumsum(below[:, :, span], axis=2, out=below[:, :, span])
        whole = np.stack([np.bincount(cell, column, len(first)) for column in self.table.T])
        return total[first], below, whole

    def _places(self, action: int, points: int) -> Int[np.ndarray, " place"]:
        """Places of cuts that may have such points, with enough rows on both sides."""
        places, least = [], max(self.limits.rows, 1)
        for number, (feature, span) in enumerate(zip(self.cuts.features, self.cuts.spans, strict=True)):
            ranks = self.limits.ranks.get(feature)
            if ranks is not None and ranks[action] != (max(ranks) if points > 0 else min(ranks)):
                continue
            count = np.cumsum(np.bincount(self.cuts.bins[:, number] - span.start, minlength=span.stop - span.start))
            places.append(span.start + np.flatnonzero((count >= least) & (len(self.table) - count >= least)))
        return np.concatenate(places) if places else np.zeros(0, np.int64)


def _made(cuts: Cuts, card: _Card) -> Scorecard:
    """Terms of one condition together, those with the most points first, in the smallest whole numbers."""
    points: dict[int, Int[np.ndarray, " action"]] = {}
    for term in card.terms:
        points.setdefault(term.place, np.zeros(len(card.start), np.int64))[term.action] += term.points
    order = sorted((place for place in points if points[place].any()), key=lambda p: (-np.abs(points[p]).max(), p))
    asked, start = [cuts.at(place)[1:] for place in order], np.array(card.start, np.int64)
    table = np.array([points[place] for place in order], np.int64).reshape(len(order), len(start))
    unit = max(1, int(np.gcd.reduce([*start.tolist(), *table.ravel().tolist()])))
    return Scorecard(
        np.array([feature for feature, _ in asked], np.int64), np.array([cut for _, cut in asked], np.float64),
        table // unit, start // unit,
    )  # fmt: skip
