"""Curves of gain against budget, with errors for a point, an area, and the whole curve at once.

A point of a curve is a mean of one number per row, as every value is (`value.estimate`). At the budget B the order of
the rows gives s_i, the score of what row i has, and c_i, that of what it costs. The budget is met by these rows,
mean c_i = B, so that the price at which it is met varies with them. To first order

    gain(B) - V(B) = mean of  s_i - V(B) - m(B) (c_i - B),

with m(B) the slope of the curve, what another unit of budget brings: rows that happen to be dear are not counted as
gains. Bands follow from the covariance of all points (sup-t; Montiel Olea and Plagborg-Moller 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.report.numbers import ascii_number, decimal_places
from gbpl.value.estimate import Value, value_covariance
from gbpl.value.gains import largest_error

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["BudgetCurve", "BudgetPoint", "Curve", "slope_window"]

WINDOW = 0.15  # of the budgets, to each side, for the slope with 500 rows; narrower as n^(-1/5)
LEVEL = 0.9
SHOWN = 6  # points of a curve that is printed


@dataclass(frozen=True, eq=False)
class Curve:
    """Values at growing budgets per row, `spend`: one column of `influence` per point, as in `Value`.

    `extra` is the covariance of the points that the rows do not show, and `inflation` as in `Value`. Between points a
    curve is a straight line; beyond the last it stays as it is.
    """

    spend: Float[np.ndarray, " point"]
    influence: Float[np.ndarray, "row point"]
    weights: Float[np.ndarray, " row"] | None = None
    groups: Int[np.ndarray, " row"] | None = None
    what: str = "gain"
    estimator: str = "dr"
    extra: Float[np.ndarray, "point point"] | None = None
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
        return value_covariance(rows) + (0.0 if self.extra is None else self.extra)

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
        more = 0.0 if self.extra is None else float(np.sqrt(max(weight @ self.extra @ weight, 0.0)))
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
            weight.T @ curve.extra @ weight
            for curve, weight in ((self, mine), (other, yours))
            if curve.extra is not None
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
    the points, `slope` is m(B), `changed` how many rows no longer have what they had at first, and `actions` are the
    labels.
    """

    price: Float[np.ndarray, " point"] = None  # type: ignore[assignment]
    shares: Float[np.ndarray, "point action"] = None  # type: ignore[assignment]
    slope: Float[np.ndarray, " point"] = None  # type: ignore[assignment]
    changed: Int[np.ndarray, " point"] = None  # type: ignore[assignment]
    actions: tuple[Any, ...] = ()

    def at(self, budget: float) -> BudgetPoint:
        """Who gets what for a budget per row, what it gains, its price, and what more would bring."""
        budget = _checked(budget)
        spend = min(budget, float(self.spend[-1]))
        low, high = slope_window(np.array([spend]), float(self.spend[-1]), len(self.influence))
        ends = self._between(np.concatenate([low, high]))
        more = self._combined((ends[:, 1] - ends[:, 0]) / (high - low)[0] if high > low else 0.0 * ends[:, 0])
        shares = [float(np.interp(spend, self.spend, column)) for column in self.shares.T]
        return BudgetPoint(
            budget, spend, self.value_at(budget),
            0.0 if budget > spend else float(np.interp(spend, self.spend, self.price)),
            replace(more, what="marginal gain"), dict(zip(self.actions, shares, strict=True)),
        )  # fmt: skip

    def apart(self, rows: int) -> BudgetCurve:
        """The same curve at points between which at least so many rows change what they have: no few are told."""
        kept = [0]
        for point, changed in enumerate(self.changed.tolist()):
            if changed - self.changed[kept[-1]] >= rows:
                kept.append(point)
        if len(kept) > 1:
            kept[-1] = len(self.spend) - 1
        parts = {name: getattr(self, name)[kept] for name in ("spend", "price", "shares", "slope", "changed")}
        extra = None if self.extra is None else self.extra[np.ix_(kept, kept)]
        return replace(self, influence=self.influence[:, kept], extra=extra, **parts)

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
        extra = None if self.extra is None else matrix.T @ self.extra @ matrix
        return Curve(
            self.spend, self.influence @ matrix, self.weights, self.groups, "targeting gain", self.estimator, extra,
            self.inflation,
        )  # fmt: skip


def _checked(budget: float) -> float:
    if not (np.ndim(budget) == 0 and 0.0 <= budget < np.inf):
        raise ValueError(f"a budget is one finite number >= 0, per row, got {budget!r}; divide a total by the rows")
    return float(budget)


def slope_window(
    budgets: Float[np.ndarray, " point"], end: float, rows: int
) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """Budgets to both sides, between which the slope at a budget is taken."""
    half = min(WINDOW * (500.0 / rows) ** 0.2, 0.5) * end
    return np.maximum(budgets - half, 0.0), np.minimum(budgets + half, end)
