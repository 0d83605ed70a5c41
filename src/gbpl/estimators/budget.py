"""Budget curves of a fitted policy, and who is in within a budget, from rows that nothing of the policy has seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.budget import WithinBudget, budget_rule
from gbpl.estimators.training import LEARNED, Training
from gbpl.feedback.checks import check_column, check_cost
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.posterior.committee import CommitteePosterior
from gbpl.value.budget import Path
from gbpl.value.budget_curve import budget_curve
from gbpl.value.curve import BudgetCurve
from gbpl.value.dependence import fold_dependence

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LOT", "budget_cost", "curve_of_policy", "curve_of_training", "estimated_cost", "within"]

LOT = "lot"  # the order that knows no features
KNOTS = 21  # budgets at which the dependence of folds is computed


def _default_number(labels: list[Any], default: Any) -> int:
    """The column number of the default action; the first if None."""
    if default is not None and default not in labels:
        raise ValueError(f"default must be one of the actions {labels}, got {default!r}")
    return 0 if default is None else labels.index(default)


def budget_cost(cost: Any, actions: np.ndarray, rows: int, default: int) -> Float[np.ndarray, "row action"]:
    """What each action takes from the budget on each row; 1 for every action but the default one if None."""
    count = len(actions)
    table = check_cost(np.arange(count) != default if cost is None else cost, actions, rows)
    over = np.delete(table - table[:, [default]], default, axis=1)
    if over.min() < 0.0:
        labels = actions.tolist()
        number = np.delete(np.arange(count), default)[int(np.argmin(over.min(axis=0)))]
        raise ValueError(
            f"the cost of {labels[number]!r} is below that of the default action {labels[default]!r}, by up to "
            f"{-over.min():g}; a budget is spent on what costs more than the default: choose the cheapest as default"
        )
    if not over.max() > 0.0:
        raise ValueError("no action costs more than the default one, so there is nothing to budget; give their costs")
    return np.array(table, np.float64)


def curve_of_policy(
    policy: Any, training: Training, *, cost: Any, cost_outcome: Any, default: Any, order: Any, everyone: bool
) -> BudgetCurve:
    """The budget curve of a fitted policy, with known or estimated costs."""
    actions, rows = policy.actions_, len(training.feedback)
    number = _default_number(actions.tolist(), default)
    if cost_outcome is None:
        known, spent = budget_cost(cost, actions, rows, number), None
    elif cost is not None:
        raise ValueError("cost and cost_outcome both say what actions cost; give one of them")
    else:
        made = estimated_cost(training, cost_outcome, policy.cross_fit_settings(training.fit.settings.seed))
        known, spent = made.expected, made.scores
    gain = policy.expected_gain(default=default)
    return curve_of_training(training, gain, known, spent=spent, default=number, order=order, everyone=everyone)


def within(
    policy: Any, X: Any, budget: float, *, cost: Any, default: Any, draws: int | None, seed: int
) -> WithinBudget:
    """Who gets what of a total budget by the policy's expected gains, and by every draw of its posterior."""
    actions = policy.actions_
    number = _default_number(actions.tolist(), default)
    gain = policy.expected_gain(X, default=default)
    training, drawn = policy.training("use budget_rule with its expected gains"), None
    posterior = training.posterior() if training.averages else None
    if isinstance(posterior, CommitteePosterior):
        drawn = np.concatenate([part for _, part in posterior.effects(X, draws=draws, seed=seed)], axis=1)
    table = budget_cost(cost, actions, len(gain), number)
    found = budget_rule(gain, cost=table, budget=budget, default=number, draws=drawn)
    return found._replace(decisions=replace(found.decisions, action=actions[found.decisions.action], actions=actions))


@dataclass(frozen=True, slots=True, eq=False)
class EstimatedCost:
    """Costs from a column of what was spent: `expected` by models of other folds, `scores` doubly robust."""

    expected: Float[np.ndarray, "row action"]
    scores: Float[np.ndarray, "row action"]


def estimated_cost(training: Training, spent: Any, settings: CrossFit) -> EstimatedCost:
    """The mean cost of each action given the features, by models that saw nothing of the row's fold."""
    known = training.nuisances
    if known is None:
        raise ValueError(
            "cost_outcome is for a log of actions; with all outcomes known give cost, one column per action"
        )
    column = check_column(spent, len(known.feedback), "cost_outcome", "what was spent on the row")
    log = replace(known.feedback, outcome=column, cost=None, propensity=known.propensity, classifier=None)
    made = settings.run(log, "dr", outer=list(training.held_out.folds))
    assert made.outcome_mean is not None
    return EstimatedCost(np.asarray(made.outcome_mean, np.float64), made.pseudo_outcomes("dr"))


def curve_of_training(
    training: Training, gain: Float[np.ndarray, "row action"], cost: Float[np.ndarray, "row action"], *,
    spent: Float[np.ndarray, "row action"] | None = None, default: int, order: Any = None, everyone: bool = False,
) -> BudgetCurve:  # fmt: skip
    """The curve of held-out expected gains, or of another order, by the rows' own outcomes.

    Its error counts the rows, that folds depend on each other, and what else was learned from these rows, as
    `Training.learned` does; an order that was not learned from them has the error of the rows alone.
    """
    evaluator, folds = training.evaluator("dr"), training.held_out.folds
    count = len(evaluator.actions)
    values = [evaluator.value_of(np.broadcast_to(row, (evaluator.n, count))) for row in np.eye(count)]
    scores = np.stack([value.influence for value in values], axis=1)
    given = gain if order is None else _ordered(order, scores, folds, values[0].weights)
    curve, paths = budget_curve(
        given, cost, scores, spent=spent, default=default, folds=folds, weights=values[0].weights,
        groups=values[0].groups, actions=evaluator.actions.tolist(), everyone=everyone,
    )  # fmt: skip
    curve = replace(curve, estimator=values[0].estimator)
    if order is not None:
        return curve
    assert curve.extra is not None
    paid = cost if spent is None else spent
    dependence = _dependence(training, curve, paths, gain, cost, scores, paid)
    return replace(curve, extra=curve.extra + dependence, inflation=LEARNED)


def _ordered(
    order: Any, scores: Float[np.ndarray, "row action"], folds: Sequence[Int[np.ndarray, " row"]], weights: Any
) -> Float[np.ndarray, "row action"]:
    """Another order: a table of expected gains, or `"lot"`, the means of the other folds, the same for every row."""
    if not (isinstance(order, str) and order == LOT):
        table = np.asarray(order, np.float64) if not isinstance(order, str) else np.zeros(0)
        if table.shape != scores.shape or not np.isfinite(table).all():
            raise ValueError(
                f"order must be 'lot' or a finite table of expected gains of shape {scores.shape}, one column per "
                f"action, got {order if isinstance(order, str) else table.shape}"
            )
        return table
    table = np.empty_like(scores)
    for fold in folds:
        others = np.setdiff1d(np.arange(len(scores)), fold)
        table[fold] = np.average(scores[others], axis=0, weights=None if weights is None else weights[others])
    return table


def _dependence(
    training: Training, curve: BudgetCurve, paths: Sequence[Path], gain: np.ndarray, cost: np.ndarray,
    scores: np.ndarray, paid: np.ndarray,
) -> Float[np.ndarray, "point point"]:  # fmt: skip
    """Covariance of the points by folds that decide each other: at some budgets, and in between them by lines."""
    held, points = training.held_out, len(curve.spend)
    knots = np.unique(np.linspace(0, points - 1, min(KNOTS, points)).astype(int))
    unit = 1.0 if training.fit.effect is not None else _unit(gain, held.gain)
    prices = np.zeros((len(gain), points))
    for fold, path in zip(held.folds, paths, strict=True):
        prices[fold] = path.prices(curve.spend)
    weight = np.ones(len(gain)) if curve.weights is None else curve.weights
    share, found = weight / weight.sum(), []
    for knot in knots:

        def play(drawn: np.ndarray, rows: slice, knot: int = knot) -> np.ndarray:
            best = np.argmax(drawn - prices[rows, knot, None] * cost[rows], axis=-1)
            return np.eye(drawn.shape[-1])[best]

        net = scores - curve.slope[knot] * paid
        own = fold_dependence(unit * held.gain, unit**2 * held.covariance, net, play) * share[:, None]
        if curve.groups is not None:
            own = np.stack([np.bincount(curve.groups, column) for column in own.T], axis=1)
        found.append(own.ravel())
    between = np.stack([np.interp(np.arange(points), knots, one) for one in np.eye(len(knots))])
    vectors = between.T @ np.stack(found)
    if curve.spend[0] == 0.0:
        vectors[0] = 0.0  # nothing is decided where nothing is spent
    return vectors @ vectors.T


def _unit(gain: Float[np.ndarray, "row action"], held: Float[np.ndarray, "row action"]) -> float:
    """Outcome units per unit of the held-out scores."""
    apart = np.ptp(held, axis=1).sum()
    return float(np.ptp(gain, axis=1).sum() / apart) if apart > 0.0 else 1.0
