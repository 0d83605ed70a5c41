"""Curves of gain against budget, with errors for a point, an area, and the whole curve at once.

A point of a curve is a mean of one number per row, as every value is (`value.estimate`). At the budget B the order of
the rows gives s_i, the score of what row i has, and c_i, that of what it costs. The budget is met by these rows,
mean c_i = B, so that the price at which it is met varies with them. To first order

    gain(B) - V(B) = mean of  s_i - V(B) - m(B) (c_i - B),

with m(B) the slope of the curve, what another unit of budget brings: rows that happen to be dear are not counted as
gains. Bands follow from the covariance of all points (sup-t; Montiel Olea and Plagborg-Moller 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.report.numbers import ascii_number, decimal_places
from gbpl.value.budget import Path, follow, upgrades
from gbpl.value.estimate import Value, value_covariance
from gbpl.value.gains import largest_error

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["BudgetCurve", "BudgetPoint", "Curve", "budget_curve"]

POINTS = 101
WINDOW = 0.15  # of the budgets, to each side, for the slope with 500 rows; narrower as n^(-1/5)
LEVEL = 0.9
SHOWN = 6  # points of a curve that is printed


@dataclass(frozen=True, eq=False)
class Curve:
    """Values at growing budgets per row, `spend`: one column of `influence` per point, as in `Value`.

    `learned` is the covariance of the points that comes from folds which decide each other (`value.dependence`), and
    `inflation` as in `Value`. Between points a curve is a straight line; beyond the last it stays as it is.
    """

    spend: Float[np.ndarray, " point"]
    influence: Float[np.ndarray, "row point"]
    weights: Float[np.ndarray, " row"] | None = None
    groups: Int[np.ndarray, " row"] | None = None
    what: str = "gain"
    estimator: str = "dr"
    learned: Float[np.ndarray, "point point"] | None = None
    inflation: float = 0.0

    @property
    def gain(self) -> Float[np.ndarray, " point"]:
        """The estimated curve."""
        return np.average(self.influence, axis=0, weights=self.weights)

    @cached_property
    def covariance(self) -> Float[np.ndarray, "point point"]:
        """Covariance of the points."""
        rows = [
            Value(column, self.estimator, self.weights, self.groups, inflation=self.inflation)
            for column in self.influence.T
        ]
        return value_covariance(rows) + (0.0 if self.learned is None else self.learned)

    @property
    def se(self) -> Float[np.ndarray, " point"]:
        """Standard errors of the points."""
        return np.sqrt(np.diag(self.covariance))

    @cached_property
    def _largest(self) -> Float[np.ndarray, " draw"]:
        return largest_error(self.covariance, self._combined(np.eye(len(self.spend))[0]).freedom)

    def bands(self, level: float = LEVEL) -> Float[np.ndarray, "point 2"]:
        """Ends of a band that contains the whole curve with probability `level`."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}; try {LEVEL}")
        reach = float(np.quantile(self._largest, level)) * self.se
        return np.column_stack([self.gain - reach, self.gain + reach])

    def _combined(self, weight: Float[np.ndarray, " point"], what: str | None = None) -> Value:
        """A linear combination of the points."""
        more = 0.0 if self.learned is None else float(np.sqrt(max(weight @ self.learned @ weight, 0.0)))
        return Value(
            self.influence @ weight, self.estimator, self.weights, self.groups, what or self.what, allowance=more,
            inflation=self.inflation,
        )  # fmt: skip

    def _between(self, budgets: Float[np.ndarray, " other"]) -> Float[np.ndarray, "point other"]:
        """Weights of the points by which the curve has its value at other budgets."""
        return np.stack([np.interp(budgets, self.spend, one) for one in np.eye(len(self.spend))])

    def value_at(self, budget: float) -> Value:
        """The value at a budget per row."""
        return self._combined(self._between(np.array([_checked(budget)]))[:, 0])

    def area(self, upto: float | None = None) -> Value:
        """The area under the curve, up to a budget per row or to its end."""
        end = float(self.spend[-1]) if upto is None else _checked(upto)
        grid = np.unique(np.append(self.spend[self.spend < end], end))
        width = np.diff(grid) / 2.0
        weight = np.append(width, 0.0) + np.append(0.0, width)
        return self._combined(self._between(grid) @ weight, f"area under the {self.what} curve")

    def __sub__(self, other: Curve) -> Curve:
        """The difference of two curves of the same rows, at every budget, with its own error."""
        if not isinstance(other, Curve):
            return NotImplemented
        self.value_at(0.0) - other.value_at(0.0)  # which refuses other rows
        longer = self if self.spend[-1] >= other.spend[-1] else other
        mine, yours = self._between(longer.spend), other._between(longer.spend)
        parts = [
            weight.T @ curve.learned @ weight
            for curve, weight in ((self, mine), (other, yours))
            if curve.learned is not None
        ]
        return Curve(
            longer.spend, self.influence @ mine - other.influence @ yours, self.weights, self.groups,
            f"difference of {self.what}", self.estimator, np.sum(parts, axis=0) if parts else None,
            max(self.inflation, other.inflation),
        )  # fmt: skip

    def to_dict(self, level: float = LEVEL) -> dict[str, Any]:
        """Columns by name, one row per point, as `pandas.DataFrame` or `polars.DataFrame` take them."""
        low, high = self.bands(level).T
        return {"spend": self.spend, self.what: self.gain, "se": self.se, "low": low, "high": high}

    def __str__(self) -> str:
        columns = self.to_dict()
        shown = np.unique(np.linspace(0, len(self.spend) - 1, SHOWN).astype(int))
        rows = f"{len(self.influence):,} rows"
        lines = [f"{'spend':>12} {self.what:>12} {f'{LEVEL:.0%} band for the whole curve':>36}   per row, {rows}"]
        places = decimal_places(float(self.se.max()))
        for spend, gain, _, low, high in zip(*(column[shown] for column in columns.values()), strict=True):
            known, a, b = (ascii_number(x, places) for x in (gain, low, high))
            lines.append(f"{spend:>12.4g} {known:>12} {f'{a} to {b}':>36}")
        return "\n".join(lines)

    __repr__ = __str__


@dataclass(frozen=True, slots=True, eq=False)
class BudgetPoint:
    """What a budget per row buys: its `gain` over the default action, and what is `spend` of it.

    `price` is the expected gain per unit of budget of the last place, by the policy; `marginal` what another unit of
    budget would bring, estimated from outcomes around this budget; `shares` are the shares of rows with each action.
    """

    budget: float
    spend: float
    gain: Value
    price: float
    marginal: Value
    shares: dict[Any, float]

    def __str__(self) -> str:
        given = ", ".join(f"{share:.1%} {label}" for label, share in self.shares.items())
        return f"{self.spend:.4g} per row: {self.gain}\nanother unit: {self.marginal}\nprice {self.price:.4g}; {given}"

    __repr__ = __str__


@dataclass(frozen=True, eq=False)
class BudgetCurve(Curve):
    """Gain over the default action against what is spent, per row, along the path of `value.budget`.

    It is the mean over folds of the curves of their orders, each met by its own rows. `price` and `shares` belong to
    the points, `slope` is m(B), and `actions` are the labels.
    """

    price: Float[np.ndarray, " point"] = None  # type: ignore[assignment]
    shares: Float[np.ndarray, "point action"] = None  # type: ignore[assignment]
    slope: Float[np.ndarray, " point"] = None  # type: ignore[assignment]
    actions: tuple[Any, ...] = ()

    def at(self, budget: float) -> BudgetPoint:
        """Who gets what for a budget per row, what it gains, its price, and what more would bring."""
        budget = _checked(budget)
        spend = min(budget, float(self.spend[-1]))
        low, high = _window(np.array([spend]), float(self.spend[-1]), len(self.influence))
        ends = self._between(np.concatenate([low, high]))
        more = self._combined((ends[:, 1] - ends[:, 0]) / (high - low)[0] if high > low else 0.0 * ends[:, 0])
        shares = [float(np.interp(spend, self.spend, column)) for column in self.shares.T]
        return BudgetPoint(
            budget, spend, self.value_at(budget),
            0.0 if budget > spend else float(np.interp(spend, self.spend, self.price)),
            replace(more, what="marginal gain"), dict(zip(self.actions, shares, strict=True)),
        )  # fmt: skip

    def compare(self, other: Curve) -> Curve:
        """The difference to another curve of the same rows, such as that of another order: `self - other`."""
        return self - other

    def targeting(self) -> Curve:
        """The targeting-operator curve, TOC(q) = gain of those first in the order, less that of everybody, per row.

        For a curve of shares, which spends 1 on each row in the end (`everyone=True` and no costs); its `area` is the
        AUTOC (Yadlowsky, Fleming, Shah, Brunskill and Wager 2025). Below its first share the curve stays as it is.
        """
        if abs(self.spend[-1] - 1.0) > 1e-9:
            raise ValueError(
                f"a targeting curve is of shares of all rows, and this one ends at {self.spend[-1]:.4g} per row; make "
                "it with everyone=True and without costs"
            )
        matrix = np.diag(1.0 / np.maximum(self.spend, 1e-300))
        matrix[:, 0] = matrix[:, 1]  # at 0, as at the first share
        matrix[-1] -= 1.0
        learned = None if self.learned is None else matrix.T @ self.learned @ matrix
        return Curve(
            self.spend, self.influence @ matrix, self.weights, self.groups, "targeting gain", self.estimator, learned,
            self.inflation,
        )  # fmt: skip


def _checked(budget: float) -> float:
    if not (np.ndim(budget) == 0 and 0.0 <= budget < np.inf):
        raise ValueError(f"a budget is one finite number >= 0, per row, got {budget!r}; divide a total by the rows")
    return float(budget)


def _window(
    budgets: Float[np.ndarray, " point"], end: float, rows: int
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Budgets to both sides, between which the slope at a budget is taken."""
    half = min(WINDOW * (500.0 / rows) ** 0.2, 0.5) * end
    return np.maximum(budgets - half, 0.0), np.minimum(budgets + half, end)


def budget_curve(
    gain: Float[np.ndarray, "row action"],
    cost: Float[np.ndarray, "row action"],
    scores: Float[np.ndarray, "row action"],
    *,
    spent: Float[np.ndarray, "row action"] | None = None,
    default: int = 0,
    folds: Sequence[Int[np.ndarray, " row"]] | None = None,
    weights: Float[np.ndarray, " row"] | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
    actions: Sequence[Any] | None = None,
    everyone: bool = False,
    smallest: int = 10,
    budgets: Float[np.ndarray, " point"] | None = None,
) -> tuple[BudgetCurve, list[Path]]:
    """The curve of an order by expected `gain` and `cost`, evaluated by `scores` that it has not seen; and its paths.

    `scores` have the outcome of each action, or doubly robust ones, and `spent` likewise its cost, None where `cost`
    is known. Each of the `folds` has an order of its own, and meets every budget by itself. Between two points at
    least `smallest` rows change their action; `budgets` are the points if given.
    """
    rows = len(gain)
    known, labels = cost if spent is None else spent, range(gain.shape[1]) if actions is None else actions
    scored, paid = scores - scores[:, [default]], known - known[:, [default]]
    folds = [np.arange(rows)] if folds is None else folds
    part = np.ones(rows) if weights is None else weights
    paths = [
        follow(upgrades(gain[fold], cost[fold], default, everyone=everyone), paid[fold], part[fold]) for fold in folds
    ]
    share = np.array([part[fold].sum() for fold in folds]) / part.sum()
    grid = _grid(paths, smallest) if budgets is None else np.asarray(budgets, np.float64)

    def averaged(each: list[np.ndarray]) -> np.ndarray:
        return np.tensordot(share, np.stack(each), axes=1)

    end = max(path.spend[-1] for path in paths)
    low, high = _window(grid, end, rows)
    ends = [averaged([path.means(scored[fold], at) for fold, path in zip(folds, paths, strict=True)]) for at in (low, high)]
    slope = np.where(high > low, (ends[1] - ends[0]) / np.where(high > low, high - low, 1.0), 0.0)
    influence = np.empty((rows, len(grid)))
    for fold, path in zip(folds, paths, strict=True):
        met = np.clip(grid, path.spend[0], path.spend[-1])
        influence[fold] = path.rows(scored[fold], grid) - slope * (path.rows(paid[fold], grid) - met)
    curve = BudgetCurve(
        grid, influence, weights, groups, price=averaged([path.prices(grid) for path in paths]),
        shares=averaged([path.shares(gain.shape[1], grid) for path in paths]), slope=slope, actions=tuple(labels),
    )  # fmt: skip
    return curve, paths


def _grid(paths: Sequence[Path], smallest: int) -> Float[np.ndarray, " point"]:
    """Budgets at equal distances from nothing to all that helps, with enough rows between two of them."""
    end = max(float(path.spend[-1]) for path in paths)
    if not end > 0.0:
        return np.zeros(1)
    every = np.linspace(0.0, end, POINTS)
    kept, places = [0], [path.places(every) for path in paths]

    def changed(first: int, last: int) -> int:
        count = 0
        for path, at in zip(paths, places, strict=True):
            between = np.searchsorted(path.step, [np.floor(at[first]), np.ceil(at[last])])
            count += len(np.unique(path.upgrades.row[slice(*between)]))
        return count

    for number in range(1, POINTS):
        if changed(kept[-1], number) >= smallest:
            kept.append(number)
    if kept[-1] != POINTS - 1:
        kept[max(len(kept) - 1, 1) :] = [POINTS - 1]
    return every[kept]
