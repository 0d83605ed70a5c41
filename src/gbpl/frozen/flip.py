"""The nearest change of a row that would change its decision: one column, or else two.

Numbers are tried on a grid within what was seen, the end of the change is found by bisection and rounded to few digits;
of categories every other level is tried. Every change that is given has been decided by the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.frozen.players import Changes, Player

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Flip", "nearest_flips"]

MOST = 3  # flips that are given
COLUMNS = 40  # that are tried, the most important ones
PAIRED = 4  # columns whose pairs are tried, the most important ones
PAIR_GRID = 25  # values of each of two
HALVINGS = 20
ROUND = 0.05  # of the move: what rounding may add to it
DIGITS = 4  # from that of the standard deviation on, at most

Decide = Callable[["Float[np.ndarray, 'row feature']"], "Int[np.ndarray, ' row']"]


@dataclass(frozen=True, slots=True)
class Flip:
    """A change, column by column from one value to another, the action it leads to, and how far away it is.

    `distance` is in standard deviations, over two columns the root of the sum of squares; another category counts 1.
    `features` is the changed row as the policy sees it.
    """

    changes: tuple[tuple[str, str, str], ...]
    decided: Any
    distance: float
    features: tuple[float, ...]

    def __str__(self) -> str:
        changed = " and ".join(f"{name} from {before} to {after}" for name, before, after in self.changes)
        return f"{changed}, which would give {self.decided}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        changes = [{"column": name, "from": before, "to": after} for name, before, after in self.changes]
        return {"changes": changes, "decided": str(self.decided), "distance": self.distance}


def nearest_flips(
    decide: Decide, x: Float[np.ndarray, " feature"], players: Sequence[Player], actions: np.ndarray
) -> list[Flip]:
    """Changes of one column that flip the decision, one per column and nearest first; if there are none, of two.

    `players` are the columns that may be changed, the most important first; `decide` gives column numbers of actions.
    """
    players = players[:COLUMNS]
    now, options = int(decide(x[None])[0]), [player.changes(x) for player in players]
    found: list[tuple[float, list[Player], np.ndarray]] = []
    if players:
        ends = np.cumsum([0, *(len(one.distance) for one in options)])
        tried = np.concatenate([_changed(x, player, one) for player, one in zip(players, options, strict=True)])
        flipped = decide(tried) != now if len(tried) else np.zeros(0, bool)
        for number, (player, one) in enumerate(zip(players, options, strict=True)):
            hits = np.flatnonzero(flipped[ends[number] : ends[number + 1]])
            if len(hits):
                row = tried[ends[number] + hits[0]]
                row = row if one.number is None else _refined(decide, x, row, player, one, int(hits[0]), now)
                found.append((_distance(x, row, player), [player], row))
    if not found:
        found = _pairs(decide, x, players[:PAIRED], options, now)
    found.sort(key=lambda one: one[0])
    return [_flip(decide, x, row, changed, far, actions) for far, changed, row in found[:MOST]]


def _changed(x: Float[np.ndarray, " feature"], player: Player, options: Changes) -> Float[np.ndarray, "row feature"]:
    rows = np.tile(x, (len(options.distance), 1))
    rows[:, player.at] = options.features
    return rows


def _distance(x: np.ndarray, row: np.ndarray, player: Player) -> float:
    number = player.column is None or not (hasattr(player.column, "levels") or player.column.boolean)
    return abs(float(row[player.at[0]] - x[player.at[0]])) / player.scale if number else 1.0


def _refined(
    decide: Decide, x: np.ndarray, row: np.ndarray, player: Player, options: Changes, hit: int, now: int
) -> Float[np.ndarray, " feature"]:
    """The nearest number that flips, up to few digits: between the first of the grid that does and the one before."""
    assert options.number is not None
    before, far = float(x[player.at[0]]), float(options.number[hit])
    if player.whole:
        return row
    nearer = options.number[:hit]
    same = nearer[np.sign(nearer - before) == np.sign(far - before)]
    near = float(same[-1]) if len(same) else before

    def flips(values: Sequence[float]) -> np.ndarray:
        rows = np.tile(x, (len(values), 1))
        rows[:, player.at] = [player.number(value) for value in values]
        return decide(rows) != now

    for _ in range(HALVINGS):
        middle = near / 2.0 + far / 2.0
        near, far = (near, middle) if flips([middle])[0] else (middle, far)
    moved = row.copy()
    moved[player.at] = player.number(_plain(flips, before, far, player))
    return moved


def _plain(flips: Callable[[Sequence[float]], np.ndarray], before: float, far: float, player: Player) -> float:
    """The number of fewest digits that still flips and lies little farther; the number itself where none does."""
    first = player.places - 1
    outward = np.ceil if far > before else np.floor
    tried = [round(float(outward(far * 10.0**p) / 10.0**p), p) for p in range(first, first + DIGITS)]
    slack = max(ROUND * abs(far - before), ROUND * ROUND * player.scale)
    fine = flips(tried) & np.array([abs(one - far) <= slack and player.low <= one <= player.high for one in tried])
    return tried[int(np.argmax(fine))] if fine.any() else far


def _pairs(
    decide: Decide, x: np.ndarray, players: Sequence[Player], options: Sequence[Changes], now: int
) -> list[tuple[float, list[Player], np.ndarray]]:
    """For each pair of columns, its nearest change on a coarse grid that flips the decision."""
    found = []
    for (one, first), (other, second) in combinations(zip(players, options, strict=False), 2):
        first, second = first.some(PAIR_GRID), second.some(PAIR_GRID)
        i, j = (grid.ravel() for grid in np.indices((len(first.distance), len(second.distance))))
        if not len(i):
            continue
        rows = np.tile(x, (len(i), 1))
        rows[:, one.at], rows[:, other.at] = first.features[i], second.features[j]
        far = np.hypot(first.distance[i], second.distance[j])
        hits = np.flatnonzero(decide(rows) != now)
        if len(hits):
            best = hits[np.argmin(far[hits])]
            found.append((float(far[best]), [one, other], rows[best]))
    return found


def _flip(
    decide: Decide, x: np.ndarray, row: np.ndarray, changed: Sequence[Player], far: float, actions: np.ndarray
) -> Flip:
    changes = tuple((player.name, player.text(x), player.text(row, exact=True)) for player in changed)
    return Flip(changes, actions.tolist()[int(decide(row[None])[0])], far, tuple(row.tolist()))
