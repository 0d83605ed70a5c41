"""The budget curve of an order of rows: the path of each fold, evaluated by scores that the order has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.value.budget import Path, follow, upgrades
from gbpl.value.curve import BudgetCurve, Curve, slope_window

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["budget_curve"]

POINTS = 101
LEAST = 0.01  # of the mean, the least that an action is taken to cost where costs are estimated
FEW = 30.0  # rows, counted by their part in a variance, from which it is taken from themselves


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
    budgets: Float[np.ndarray, " point"] | None = None,
) -> tuple[BudgetCurve, list[Path]]:
    """The curve of an order by expected `gain` and `cost`, evaluated by `scores` that it has not seen; and its paths.

    `scores` have the outcome of each action, or doubly robust ones, and `spent` likewise its cost, None where `cost`
    is known. Each of the `folds` has an order of its own, and meets every budget by itself. `budgets` are the points;
    from nothing to all that helps if None.
    """
    rows, count = gain.shape
    known = cost if spent is None else spent
    cost = cost if spent is None else _above(cost - cost[:, [default]], default)
    scored, paid = scores - scores[:, [default]], known - known[:, [default]]
    folds = [np.arange(rows)] if folds is None else folds
    part = np.ones(rows) if weights is None else weights
    paths = [
        follow(upgrades(gain[fold], cost[fold], default, everyone=everyone), paid[fold], part[fold]) for fold in folds
    ]
    end = max(0.0, *(float(path.spend[-1]) for path in paths))
    grid = np.linspace(0.0, end, POINTS if end > 0.0 else 1) if budgets is None else np.asarray(budgets, np.float64)
    share = np.array([part[fold].sum() for fold in folds]) / part.sum()

    def averaged(each: Iterable[np.ndarray]) -> np.ndarray:
        return np.tensordot(share, np.stack(list(each)), axes=1)

    slope = _slope(
        lambda at: averaged(path.means(scored[fold], at) for fold, path in zip(folds, paths, strict=True)),
        grid,
        end,
        rows,
    )
    influence = np.empty((rows, len(grid)))
    for fold, path in zip(folds, paths, strict=True):
        met = np.clip(grid, path.spend[0], path.spend[-1])
        influence[fold] = path.rows(scored[fold], grid) - slope * (path.rows(paid[fold], grid) - met)
    curve = BudgetCurve(
        grid, influence, weights, groups, extra=_few(grid, influence, weights, groups),
        price=averaged(path.prices(grid) for path in paths),
        shares=averaged(path.shares(count, grid) for path in paths), slope=slope,
        changed=np.sum([path.changed(grid) for path in paths], axis=0),
        actions=tuple(range(count) if actions is None else actions),
    )  # fmt: skip
    return curve, paths


def _above(cost: Float[np.ndarray, "row action"], default: int) -> Float[np.ndarray, "row action"]:
    """Estimated costs over the default action, which an estimate puts at zero or below for some rows, above it."""
    others = np.arange(cost.shape[1]) != default
    least = LEAST * float(np.abs(cost[:, others]).mean())
    return np.where(others, np.maximum(cost, least), 0.0)


def _slope(
    mean: Callable[[np.ndarray], np.ndarray], grid: Float[np.ndarray, " point"], end: float, rows: int
) -> Float[np.ndarray, " point"]:
    """What another unit of budget brings at each point, by the curve to both sides."""
    low, high = slope_window(grid, end, rows)
    width = high - low
    slope: Float[np.ndarray, " point"] = np.divide(
        mean(high) - mean(low), width, out=np.zeros(len(grid)), where=width > 0.0
    )
    return slope


def _few(
    grid: Float[np.ndarray, " point"], influence: Float[np.ndarray, "row point"], weights: Any, groups: Any
) -> Float[np.ndarray, "point point"]:
    """What the variances of the first points, which a few rows make, lack to that of the first point with enough.

    A budget that is small buys a share of what the first larger one does, and that share of its variance. Rows are
    counted by their part in the variance, (sum d^2)^2 / sum d^4.
    """
    rows = Curve(grid, influence, weights, groups)
    squares = (influence - rows.gain) ** 2
    counted = squares.sum(axis=0) ** 2 / np.maximum((squares**2).sum(axis=0), 1e-300)
    enough = np.flatnonzero(counted >= FEW)
    first = int(enough[0]) if len(enough) else len(grid) - 1
    variance = rows.se**2
    least = variance[first] * grid / max(float(grid[first]), 1e-300)
    return np.diag(np.where(np.arange(len(grid)) < first, np.maximum(least - variance, 0.0), 0.0))
