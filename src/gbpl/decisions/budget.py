"""Who gets what of a budget: the path of the knapsack on some rows, by expected gains and by every posterior draw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbpl.decisions.decisions import Decisions
from gbpl.decisions.rules import check_column_number, disagreement, leaving_probability
from gbpl.value.budget import actions_within, follow, upgrades

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["WithinBudget", "budget_price", "budget_rule", "check_budget"]


class WithinBudget(NamedTuple):
    """Decisions within a budget, what they `spend` of it, and the `price`: the gain per unit of the next place."""

    decisions: Decisions
    price: float
    spend: float


def check_budget(budget: Any) -> float:
    """A finite number >= 0."""
    number = isinstance(budget, int | float | np.number) and not isinstance(budget, bool | np.bool_)
    if not number or not 0.0 <= budget < np.inf:
        raise ValueError(f"budget must be a finite number >= 0, got {budget!r}; try 10000")
    return float(budget)


def budget_rule(
    gain: Float[np.ndarray, "row action"],
    *,
    cost: Any,
    budget: float,
    default: int = 0,
    draws: Float[np.ndarray, "draw row action"] | None = None,
) -> WithinBudget:
    """Who gets what of a total `budget`, given expected gains and what each action costs, per action or per row.

    Upgrades are bought by their gain per unit of cost until the first that does not fit (`value.budget`). With `draws`
    of the gains, the same rule is applied to each by itself: `draw_share` has the share of draws that give a row each
    action, and `inclusion` the posterior probability of getting any but the default one.

    >>> found = budget_rule(np.array([[0.0, 3.0], [0.0, 5.0], [0.0, 1.0]]), cost=[0.0, 10.0], budget=20.0)
    >>> found.decisions.action.tolist(), found.spend, found.price
    ([1, 1, 0], 20.0, 0.1)
    """
    gain = np.asarray(gain, np.float64)
    if gain.ndim != 2 or gain.shape[1] < 2 or not np.isfinite(gain).all():
        raise ValueError(f"gain must be a finite table of rows and two actions or more, got shape {gain.shape}")
    rows, count = gain.shape
    default, budget = check_column_number(default, count), check_budget(budget)
    table = np.asarray(cost, np.float64)
    if table.shape not in ((count,), gain.shape) or not np.isfinite(table).all():
        raise ValueError(
            f"cost must be a finite number per action ({count}), or a table of {gain.shape}, got shape {table.shape}"
        )
    table = np.broadcast_to(table, gain.shape)
    action, price = actions_within(gain, table, budget, default)
    at = np.arange(rows), action
    spend = float((table[at] - table[:, default]).sum())
    decided = {"expected_gain": gain[at] - gain[:, default]}
    if draws is not None:
        times = np.zeros((rows, count))
        for draw in draws:
            times[np.arange(rows), actions_within(draw, table, budget, default)[0]] += 1.0
        share = times / len(draws)
        decided |= {
            "draw_share": share, "disagreement": disagreement(share), "inclusion": leaving_probability(share, default)
        }  # fmt: skip
    return WithinBudget(Decisions.of_columns(action, count, **decided), price, spend)


def budget_price(
    gain: Float[np.ndarray, "row action"],
    cost: Float[np.ndarray, "row action"],
    budget: float,
    default: int = 0,
    weights: Float[np.ndarray, " row"] | None = None,
) -> float:
    """The price per unit of cost at which these rows spend at most `budget` per row; 0 where it does not bind.

    It lies between the slope of the last upgrade that is bought and that of the first that is not, so that later rows
    can be decided one by one, by the largest gain_a(x) - price cost_a(x). Upgrades of equal slope are all bought, or
    none is.

    >>> budget_price(np.array([[0.0, 3.0], [0.0, 5.0], [0.0, 1.0]]), np.array([[0.0, 1.0]] * 3), 1 / 3)
    4.0
    """
    path = follow(upgrades(gain, cost, default), cost - cost[:, [default]], weights)
    bought = int(np.floor(path.places(np.array([budget * (1.0 + 1e-9)]))[0]))
    if bought == len(path.price):
        return 0.0
    first_out = float(path.price[bought])
    return (first_out + (float(path.price[bought - 1]) if bought else 2.0 * first_out)) / 2.0
