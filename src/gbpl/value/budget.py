"""Who gets what as a budget grows: the concave path of the knapsack, and what it brings by honest scores.

For each row, the actions on the upper hull of (cost, expected gain) are taken one after the other: an upgrade costs
more and gains more, at a slope, the gain per unit of cost. Upgrades of all rows in the order of their slopes are, at
every budget, the best that it buys (the linear multiple-choice knapsack; Sinha and Zoltners 1979; Sverdrup, Wu, Athey
and Wager 2024, "Qini curves for multi-armed treatment rules"). The slope of the last upgrade is the price of the budget
at that point: a row has the action with the largest gain_a(x) - price cost_a(x).

Expected gains and costs give the order alone. What is spent and gained is by scores of the rows' own outcomes, which
the order has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import isotonic_regression

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Path", "Upgrades", "actions_within", "follow", "upgrades"]


@dataclass(frozen=True, slots=True, eq=False)
class Upgrades:
    """Upgrades in the order in which a growing budget buys them.

    `row` changes from the action `source` to `target` for `slope` of gain per unit of cost; `start` is what each row
    has before any: the default action, or one that is better and no dearer.
    """

    row: Int[np.ndarray, " upgrade"]
    source: Int[np.ndarray, " upgrade"]
    target: Int[np.ndarray, " upgrade"]
    slope: Float[np.ndarray, " upgrade"]
    start: Int[np.ndarray, " row"]


def upgrades(
    gain: Float[np.ndarray, "row action"], cost: Float[np.ndarray, "row action"], default: int = 0, *,
    everyone: bool = False,
) -> Upgrades:  # fmt: skip
    """The upper hulls of all rows, sorted by slope; of equal slopes the dearer action is reached in one step.

    An upgrade gains something, and the path ends where nothing does; with `everyone` it goes on, with the least loss
    first, until every row has its dearest action, as Qini and targeting curves do.

    >>> upgrades(np.array([[0.0, 2.0, 3.0], [0.0, 1.0, 4.0]]), np.array([0.0, 1.0, 2.0])[None].repeat(2, 0)).slope
    array([2., 2., 1.])
    """
    gain, cost = (np.asarray(part, np.float64) - np.asarray(part)[:, [default]] for part in (gain, cost))
    rows = np.arange(len(gain))
    free = np.where(cost <= 0.0, gain, -np.inf)
    start = np.where(free.max(axis=1) > 0.0, np.argmax(free, axis=1), default)
    at, parts = start.copy(), []
    for _ in range(gain.shape[1] - 1):
        dearer, better = cost - cost[rows, at][:, None], gain - gain[rows, at][:, None]
        slope = np.full(gain.shape, -np.inf)
        np.divide(better, dearer, out=slope, where=(dearer > 0.0) & (everyone | (better > 0.0)))
        best = slope.max(axis=1)
        target = np.argmax(np.where(slope == best[:, None], dearer, -np.inf), axis=1)
        moved = np.flatnonzero(best > -np.inf)
        parts.append((moved, at[moved], target[moved], best[moved]))
        at[moved] = target[moved]
    row, source, target, slope = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((row, -slope))
    return Upgrades(row[order], source[order], target[order], slope[order], start)


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The path over some rows: upgrades of equal slope are one step, of which any fraction can be taken.

    `spend` is what is spent per row after each step, zero steps first, by the rows' scores of cost; `step` the step of
    each upgrade, and `price` the slope of each step. Where costs are estimated, their sums need not grow with every
    step, and `spend` is the nearest sequence that does (isotonic regression). `share` is the rows' share of the weight.
    """

    upgrades: Upgrades
    step: Int[np.ndarray, " upgrade"]
    price: Float[np.ndarray, " step"]
    spend: Float[np.ndarray, " step+1"]
    share: Float[np.ndarray, " row"]

    def places(self, budgets: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
        """How many steps each budget per row buys: whole ones, and a fraction of the next."""
        whole = np.clip(np.searchsorted(self.spend, budgets, side="right") - 1, 0, len(self.price))
        after = np.minimum(whole + 1, len(self.price))
        width = self.spend[after] - self.spend[whole]
        part = np.where(width > 0.0, (budgets - self.spend[whole]) / np.where(width > 0.0, width, 1.0), 0.0)
        return whole + np.clip(part, 0.0, 1.0)

    def prices(self, budgets: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
        """The slope of the upgrade that the last unit of each budget buys, or would buy; 0 where nothing is left."""
        step = np.floor(self.places(budgets)).astype(np.int64)
        return np.concatenate([self.price, [0.0]])[step] if len(self.price) else np.zeros(len(budgets))

    def rows(
        self, scores: Float[np.ndarray, "row action"], budgets: Float[np.ndarray, " point"]
    ) -> Float[np.ndarray, "row point"]:
        """The score of what each row has at each budget."""
        up = self.upgrades
        first = scores[np.arange(len(scores)), up.start]
        total = np.repeat(first[:, None], len(budgets), axis=1)
        taken = np.clip(self.places(budgets) - self.step[:, None], 0.0, 1.0)
        np.add.at(total, up.row, taken * (scores[up.row, up.target] - scores[up.row, up.source])[:, None])
        return total

    def means(
        self, scores: Float[np.ndarray, "row action"], budgets: Float[np.ndarray, " point"]
    ) -> Float[np.ndarray, " point"]:
        """The mean score at each budget: the means of `rows`."""
        up = self.upgrades
        more = self.share[up.row] * (scores[up.row, up.target] - scores[up.row, up.source])
        total = np.concatenate([[0.0], np.cumsum(np.bincount(self.step, more, len(self.price)))])
        first = float(self.share @ scores[np.arange(len(scores)), up.start])
        return first + np.interp(self.places(budgets), np.arange(len(total)), total)

    def changed(self, budgets: Float[np.ndarray, " point"]) -> Int[np.ndarray, " point"]:
        """How many rows have had an upgrade at each budget, or a fraction of one."""
        _, first = np.unique(self.upgrades.row, return_index=True)  # upgrades are in the order of their steps
        return np.searchsorted(np.sort(self.step[first]), np.ceil(self.places(budgets)))

    def shares(self, count: int, budgets: Float[np.ndarray, " point"]) -> Float[np.ndarray, "point action"]:
        """The share of rows with each action at each budget."""
        up, one = self.upgrades, np.eye(count)
        taken = np.clip(self.places(budgets)[:, None] - self.step, 0.0, 1.0)
        return self.share @ one[up.start] + taken @ (self.share[up.row, None] * (one[up.target] - one[up.source]))


def follow(
    ordered: Upgrades, cost: Float[np.ndarray, "row action"], weights: Float[np.ndarray, " row"] | None = None
) -> Path:
    """The path along upgrades, with spending by the scores `cost`, relative to that of the default action."""
    rows = np.arange(len(cost))
    share = np.full(len(cost), 1.0 / len(cost)) if weights is None else weights / weights.sum()
    step = np.cumsum(np.diff(ordered.slope, prepend=np.inf) != 0.0) - 1
    dearer = share[ordered.row] * (cost[ordered.row, ordered.target] - cost[ordered.row, ordered.source])
    count = int(step[-1]) + 1 if len(step) else 0
    price = np.zeros(count)
    price[step] = ordered.slope
    spend = np.concatenate([[0.0], np.cumsum(np.bincount(step, dearer, count))])
    spend += float(share @ cost[rows, ordered.start])
    if np.any(np.diff(spend) < 0.0):
        spend = isotonic_regression(spend).x
    return Path(ordered, step, price, spend, share)


def actions_within(
    gain: Float[np.ndarray, "row action"], cost: Float[np.ndarray, "row action"], budget: float, default: int = 0
) -> tuple[Int[np.ndarray, " row"], float]:
    """Whole actions for these rows within a total budget, and the price: that of the first upgrade that is not bought.

    Upgrades are bought in their order, rows of equal slope by their number, until the first that does not fit. The
    price is 0 where all are bought.

    >>> actions_within(np.array([[0.0, 3.0], [0.0, 5.0], [0.0, 1.0]]), np.array([[0.0, 1.0]] * 3), 2.5)
    (array([1, 1, 0]), 1.0)
    """
    ordered = upgrades(gain, cost, default)
    relative = cost - cost[:, [default]]
    dearer = relative[ordered.row, ordered.target] - relative[ordered.row, ordered.source]
    spent = float(relative[np.arange(len(cost)), ordered.start].sum()) + np.cumsum(dearer)
    room = budget + 1e-9 * max(abs(budget), float(np.abs(spent).max(initial=0.0)))  # sums of 0.1 are not exact
    bought = int(np.argmax(spent > room)) if np.any(spent > room) else len(spent)
    action = ordered.start.copy()
    action[ordered.row[:bought]] = ordered.target[:bought]  # later upgrades of a row are written last
    return action, float(ordered.slope[bought]) if bought < len(spent) else 0.0
