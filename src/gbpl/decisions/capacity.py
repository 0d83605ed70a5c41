"""Who gets an action that only so many rows may get: prices that keep decisions within a capacity.

There is one rule: a row gets the action with the largest gain less its price. On known rows (`capacity_rule`) places
that are left among equal gains are filled too; later rows are decided one by one at the prices, and keep to the shares
as far as they resemble these rows.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.decisions.decisions import Decisions
from gbpl.decisions.rules import apply_costs, check_column_number, disagreement, leaving_probability
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["capacity_prices", "capacity_rule", "places_of", "priced_action"]

ROUNDS = 200


def places_of(capacity: Mapping[int, float], rows: int) -> dict[int, int]:
    """Capacity of each limited action as a number of rows: a float in (0, 1] is a share, rounded down."""
    places: dict[int, int] = {}
    for action, limit in capacity.items():
        if isinstance(limit, numbers.Integral) and not isinstance(limit, bool) and limit >= 0:
            places[int(action)] = min(int(limit), rows)
        elif isinstance(limit, numbers.Real) and not isinstance(limit, numbers.Integral) and 0.0 < limit <= 1.0:
            places[int(action)] = math.floor(limit * rows + 1e-9)  # 0.29 * 100 is a little below 29
        else:
            raise ValueError(
                f"capacity of action {action} must be a share in (0, 1] or a whole number >= 0, got {limit!r}; "
                "1.0 is every row, 1 is one row"
            )
    return places


def priced_action(
    gain: Float[np.ndarray, "row action"], prices: Float[np.ndarray, "*row action"]
) -> Int[np.ndarray, " row"]:
    """The action with the largest gain less its price; of equal ones the later of two actions, the first of more."""
    return deterministic(gain - prices)


def capacity_prices(
    gain: Float[np.ndarray, "row action"], capacity: Mapping[int, float], *, rounding: float = 0.0
) -> Float[np.ndarray, " action"]:
    """Prices in outcome units at which no more rows want each limited action than it has places (`places_of`).

    The dual of the assignment, min_p sum_i max_a (gain_ia - p_a) + sum_a p_a places_a: with one limited action its
    price lies between the gain of the last row to get it and that of the first row that does not.

    On these rows the places are never exceeded. A price cannot separate equal gains: of rows with the same gain
    either all get the action or, where there are not enough places, none does, and places stay empty; rows are not
    divided between two actions that have the same gain for everybody. Gains closer than `rounding` count as equal, so
    that decisions do not depend on the order in which numbers are added up.

    >>> capacity_prices(np.array([[0.0, 3.0], [0.0, 5.0], [0.0, 1.0]]), {1: 1}).round(6).tolist()
    [0.0, 4.0]
    """
    count, places = gain.shape[1], places_of(capacity, len(gain))
    if len(places) >= count:
        raise ValueError(f"all {count} actions have a capacity; leave one without, for those who get no other")
    prices = np.zeros(count)
    if len(places) > 1:  # where they compete only with each other, prices would climb from zero in small steps
        prices[list(places)] = _clearing(_over_others(gain, prices, list(places)), sum(places.values()), rounding)
    for _ in range(ROUNDS if len(places) > 1 else 1):
        before = prices.copy()
        for action in places:
            prices[action] = _clearing(_over_others(gain, prices, [action]), places[action], rounding)
        if np.allclose(prices, before, rtol=1e-9, atol=rounding):
            break
    return _raised(gain, prices, places, rounding)


def _over_others(
    gain: Float[np.ndarray, "row action"], prices: Float[np.ndarray, " action"], actions: list[int]
) -> Float[np.ndarray, " row"]:
    """What each row would pay for the best of `actions`: its gain over the best of the others, at their prices."""
    net = gain - prices
    net[:, actions] = -np.inf
    return gain[:, actions].max(axis=1) - net.max(axis=1)


def _clearing(over: Float[np.ndarray, " row"], places: int, rounding: float) -> float:
    """The price at which at most `places` rows buy, when each would pay up to `over`."""
    if places >= len(over):
        return 0.0
    first_out = len(over) - 1 - places
    ordered = np.partition(over, [first_out, min(first_out + 1, len(over) - 1)])
    low = float(np.nextafter(ordered[first_out] + rounding, np.inf))
    if low <= 0.0:
        return 0.0
    # Between the two, not at the edge: an indifferent row would move from one action to another and back.
    last_in = float(ordered[first_out + 1]) if places else low
    return max(low, (low + last_in) / 2.0)


def _raised(
    gain: Float[np.ndarray, "row action"], prices: Float[np.ndarray, " action"], places: Mapping[int, int],
    rounding: float,
) -> Float[np.ndarray, " action"]:  # fmt: skip
    """Prices of crowded actions raised until none has more rows than places: for ties, or if the rounds ran out."""
    prices, step = prices.copy(), max(rounding, 1e-9 * float(np.abs(gain).max(initial=0.0)), 1e-300)
    while True:
        taken = np.bincount(priced_action(gain, prices), minlength=len(prices))
        crowded = [action for action in places if taken[action] > places[action]]
        if not crowded:
            return prices
        for action in crowded:
            clearing = _clearing(_over_others(gain, prices, [action]), places[action], rounding)
            prices[action] = max(clearing, prices[action] + step)
        step *= 1.5  # so that it ends, whatever the ties


def _assigned(
    gain: Float[np.ndarray, "row action"], places: Mapping[int, int], default: int
) -> Int[np.ndarray, " row"]:
    """Actions at the prices; a row that gains nothing keeps the default, and places left go to the largest gains."""
    rows, prices = np.arange(len(gain)), capacity_prices(gain, places)
    action = priced_action(gain, prices)
    net = gain - prices
    action = np.where(net[rows, action] > net[:, default], action, default)
    while True:  # each move adds to the total gain, and may free a place for another
        before = action.copy()
        for limited, count in places.items():
            over = gain[:, limited] - gain[rows, action]
            free = count - int(np.count_nonzero(action == limited))
            next_in = np.argsort(-over, kind="stable")[:free]
            action[next_in[over[next_in] > 0.0]] = limited
        if np.array_equal(action, before):
            return action


def capacity_rule(
    gains: Float[np.ndarray, "draw row action"] | Float[np.ndarray, "row action"],
    *,
    capacity: Mapping[int, float],
    default: int = 0,
    costs: Sequence[float] | Float[np.ndarray, " action"] | None = None,
) -> Decisions:
    """Who gets an action that only so many rows may get: the rows with most to gain by it.

    `gains` are values of the actions, posterior draws or their mean; only differences from the default action's
    column count. `capacity` limits actions by their column: a float in (0, 1] is a share of the rows (rounded
    down), a whole number is that many rows; actions not named are unlimited. `costs` are subtracted per action.

    Rows are decided at the prices of `capacity_prices`; places that are left where gains are equal go to the earlier
    rows. For one limited action this maximises total expected gain; for several it comes close. With draws,
    `probability` and `inclusion` say how sure each row's place is: the same rule is applied to every draw by itself.

    Bounded scores are not gains where they saturate: zeta f is the gap cut off at -zeta and zeta, and rows at the
    bound are ranked by rounding, then by row number.

    >>> capacity_rule(np.array([[0.0, 3.0], [0.0, 5.0], [0.0, -1.0]]), capacity={1: 1}).action.tolist()
    [0, 1, 0]
    """
    table = np.asarray(gains, np.float64)
    if table.ndim not in (2, 3) or table.shape[-1] < 2 or 0 in table.shape:
        raise ValueError(
            f"gains must be (draw, row, action) or (row, action), with two actions or more, got shape {table.shape}"
        )
    if not np.all(np.isfinite(table)):
        raise ValueError("gains must be finite; drop rows with missing values")
    rows, count = table.shape[-2:]
    default = check_column_number(default, count)
    if any(check_column_number(action, count) == default for action in capacity):
        raise ValueError(f"capacity names the default action {default}, which takes whoever is left; leave it out")
    places = places_of(capacity, rows)
    table = table if costs is None else apply_costs(table, costs)
    table = table - table[..., default : default + 1]
    expected = table if table.ndim == 2 else table.mean(axis=0)
    action = _assigned(expected, places, default)
    gained = expected[np.arange(rows), action]
    if table.ndim == 2:
        return Decisions.of_columns(action, count, expected_gain=gained)
    times = np.zeros((rows, count))
    for draw in table:
        times[np.arange(rows), _assigned(draw, places, default)] += 1.0
    share = times / len(table)
    return Decisions.of_columns(
        action,
        count,
        draw_share=share,
        disagreement=disagreement(share),
        expected_gain=gained,
        inclusion=leaving_probability(share, default),
    )
