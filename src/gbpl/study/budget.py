"""A budget in a study: what actions take from it, the rule that keeps within it, and the curve of the summary.

Where costs are given by a column of what was spent, an action takes the mean of it from the budget, so that later rows
can be decided without a model of costs; what is spent in the curve is estimated by that column all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.budget import budget_price, check_budget
from gbpl.decisions.capacity import priced_action
from gbpl.decisions.decisions import Rule
from gbpl.estimators.budget import LOT, budget_cost, curve_of_training, estimated_cost
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import TableFeedback
from gbpl.tables.frames import TableError, column, is_missing
from gbpl.tables.labels import by_label
from gbpl.value.curve import BudgetCurve
from gbpl.value.estimate import Value

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["BudgetTerms", "spend_column"]

LEVEL = 0.9
MOST_ROWS = 5_000  # on which the probability of being in is counted
BINS = np.linspace(0.0, 1.0, 11)
TINY = float(np.finfo(np.float64).tiny)


def spend_column(budget: Any, budget_cost: Any, capacity: Any, names: list[str], source: str) -> list[str]:
    """The column of what was spent, if there is one, for the features to leave it out; wrong options are refused."""
    if budget is None:
        if budget_cost is not None:
            raise TableError("budget_cost says what actions take from a budget; give budget too (--budget AMOUNT)")
        return []
    check_budget(budget)
    if capacity:
        raise TableError("capacity and budget both limit who gets what; give one of them")
    if not isinstance(budget_cost, str):
        return []
    if budget_cost not in names:
        raise TableError(f"budget_cost names the column {budget_cost!r}, which {source} does not have; it has {names}")
    return [budget_cost]


@dataclass(frozen=True, slots=True, eq=False)
class BudgetTerms:
    """A `total` budget for so many `rows`, and what each action takes from it, relative to the default one.

    `cost` has one number per action; `spent` what was spent on each row that is learned from, where costs are given by
    a `column`.
    """

    total: float
    rows: int
    cost: Float[np.ndarray, " action"]
    default: int
    column: str | None = None
    spent: Float[np.ndarray, " row"] | None = None

    @classmethod
    def of(
        cls, data: TableFeedback, frame: Any, budget: Any, given: Any, default: Any, population: int | None
    ) -> BudgetTerms | None:
        """Checked against the rows that are learned from; None without a budget."""
        if budget is None:
            return None
        labels, feedback = data.labels, data.feedback
        number, rows = labels.index(default), len(feedback) if population is None else population
        if not isinstance(given, str):
            costs = (
                None if given is None else [by_label(given, labels, "budget_cost").get(label, 0.0) for label in labels]
            )
            table = budget_cost(costs, feedback.actions, 1, number)[0]
            return cls(check_budget(budget), rows, table - table[number], number)
        if not isinstance(feedback, LoggedFeedback):
            raise TableError("a column of what was spent is for a log of actions; give budget_cost as ACTION=AMOUNT")
        spent = column(frame, given)[data.kept]
        if spent.dtype.kind not in "fiu" or is_missing(spent).any():
            raise TableError(
                f"column {given!r} must be a number in every row, what was spent on it; fill in 0 for nothing"
            )
        spent = spent.astype(np.float64)
        means = _means(feedback, spent, np.arange(len(spent)))
        return cls(check_budget(budget), rows, means - means[number], number, given, spent)

    @property
    def per_row(self) -> float:
        return self.total / self.rows

    def limits(self) -> dict[int, float]:
        """Shares of rows that could get each action by lot, where not all of them could."""
        costs = enumerate(self.cost.tolist())
        return {number: self.per_row / cost for number, cost in costs if number != self.default and cost > self.per_row}

    # -- deciding -----------------------------------------------------------------------------------------

    def price(self, gain: Float[np.ndarray, "row action"], weights: Any, cost: Any = None) -> float:
        """The price of a unit of budget by these gains; where nothing is gained, one at which nobody buys."""
        if not np.ptp(gain, axis=1).any():
            return TINY * 2.0**60
        table = np.broadcast_to(np.maximum(self.cost if cost is None else cost, 0.0), gain.shape)
        return budget_price(gain, table, self.per_row, self.default, weights)

    def rule(self, gain: Float[np.ndarray, "row action"], weights: Any, defer: float) -> tuple[Rule, float]:
        """The rule at the price of all rows; actions cost their price in outcome units."""
        price = self.price(gain, weights)
        prices = tuple((price * np.maximum(self.cost, 0.0)).tolist()) if price > 0.0 else ()
        return Rule(self.default, defer, prices), price

    def held_out(self, policy: GBPLNet, decided: Int[np.ndarray, " row"], label: Any) -> Int[np.ndarray, " row"]:
        """Decisions for rows that nothing has seen, each fold at a price of its own."""
        training, chosen = policy.training("learn again"), decided.copy()
        gain, weights = policy.expected_gain(default=label), training.feedback.weights
        for fold, cost in zip(training.held_out.folds, self._fold_costs(policy), strict=True):
            price = self.price(gain[fold], None if weights is None else weights[fold], cost)
            if price > 0.0:
                chosen[fold] = priced_action(gain[fold], price * np.maximum(cost, 0.0))
        return chosen

    def _fold_costs(self, policy: GBPLNet) -> list[Float[np.ndarray, " action"]]:
        """What each action costs by the rows outside each fold."""
        training = policy.training("learn again")
        folds, known = training.held_out.folds, training.nuisances
        if self.spent is None or known is None:
            return [self.cost] * len(folds)
        every, costs = np.arange(len(self.spent)), []
        for fold in folds:
            means = _means(known.feedback, self.spent, np.setdiff1d(every, fold))
            costs.append(means - means[self.default])
        return costs

    # -- summary ------------------------------------------------------------------------------------------

    def summary(
        self, policy: GBPLNet, label: Any, x: Float[np.ndarray, "row feature"], smallest: int
    ) -> dict[str, Any]:
        """The curve, the asked budget on it, and how sure the places are, without rows."""
        training = policy.training("learn again")
        count = len(policy.actions_)
        order = np.empty((len(training.feedback), count))
        for fold, cost in zip(training.held_out.folds, self._fold_costs(policy), strict=True):
            order[fold] = np.maximum(cost, 0.0)
        scores = None
        if self.spent is not None:
            settings = policy.cross_fit_settings(training.fit.settings.seed)
            scores = estimated_cost(training, self.spent, settings).scores
        gain = policy.expected_gain(default=label)
        shared: dict[str, Any] = {"spent": scores, "default": self.default}
        curve = curve_of_training(training, gain, order, **shared).apart(smallest)
        lot = curve_of_training(training, gain, order, **shared, order=LOT)
        at, (low, high) = curve.at(self.per_row), curve.bands(LEVEL).T
        first, last = at.gain.interval(LEVEL)
        return {
            "asked": self.total, "rows": self.rows, "cost": self.cost.tolist(), "cost_column": self.column,
            "level": LEVEL, "spend": curve.spend, "gain": curve.gain, "se": curve.se, "low": low, "high": high,
            "lot": np.interp(curve.spend, lot.spend, lot.gain), "price": curve.price, "shares": curve.shares,
            "at": {
                "spend": at.spend, "gain": at.gain.estimate, "se": at.gain.se, "low": first, "high": last,
                "price": at.price, "marginal": at.marginal.estimate, "marginal_se": at.marginal.se,
                "shares": list(at.shares.values()),
            },
            "area": _mean_height(curve.area(), curve),
            "over_lot": _mean_height((curve - lot).area(float(curve.spend[-1])), curve),
            "inclusion": self._inclusion(policy, label, x),
        }  # fmt: skip

    def _inclusion(self, policy: GBPLNet, label: Any, x: Float[np.ndarray, "row feature"]) -> dict[str, Any] | None:
        """Rows by the posterior probability of being in, with the budget that these rows have."""
        rows = np.random.default_rng(0).permutation(len(x))[:MOST_ROWS]
        cost = np.maximum(self.cost, 0.0)
        found = policy.within_budget(x[rows], self.per_row * len(rows), cost=cost, default=label).decisions.inclusion
        if found is None:
            return None
        return {"edges": BINS.tolist(), "counts": np.histogram(found, BINS)[0].tolist()}


def _means(
    log: LoggedFeedback, spent: Float[np.ndarray, " row"], rows: Int[np.ndarray, " some"]
) -> Float[np.ndarray, " action"]:
    """The mean of what was spent with each action; by the inverse of its propensity where that is known."""
    chance = log.propensity
    weight = np.ones(len(rows)) if log.weights is None else log.weights[rows]
    if chance is not None:
        weight = weight / (chance[rows] if chance.ndim == 1 else chance[rows, log.action[rows]])
    count = len(log.actions)
    total = np.bincount(log.action[rows], weight, count)
    return np.bincount(log.action[rows], weight * spent[rows], count) / np.maximum(total, TINY)


def _mean_height(area: Value, curve: BudgetCurve) -> dict[str, float]:
    """The mean gain over the budgets of a curve, which its area is a multiple of."""
    width = float(curve.spend[-1]) or 1.0
    low, high = area.interval(LEVEL)
    return {"estimate": area.estimate / width, "se": area.se / width, "low": low / width, "high": high / width}
