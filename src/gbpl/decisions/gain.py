"""What an action is expected to gain, in outcome units, and the prices that keep decisions within a capacity.

A policy's deviation from uniform, d_a(x) = sum_m weight_m (delta_m,a(x) - 1/K), orders actions and rows, but its size
is that of no outcome: zeta has shrunk it. One number brings it there, the slope b of the (pseudo-)outcomes, centred in
each row, on the deviations of members that did not train on the row; b (d_a - d_default) is then the expected gain. A
slope that does not differ from zero says that the order is not borne out by the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["GainSlope", "capacity_prices", "gain_slope", "priced_action"]

CHUNK = 65_536
ROUNDS = 200


@dataclass(frozen=True, slots=True)
class GainSlope:
    """Outcome units per unit of deviation, with its standard error; never below zero."""

    slope: float
    se: float

    def gains(self, deviation: Float[np.ndarray, "row action"], default: int) -> Float[np.ndarray, "row action"]:
        """What each action is expected to gain over the default one, from deviations: slope (d_a - d_default)."""
        return self.slope * (deviation - deviation[:, [default]])


def gain_slope(
    deviation: Float[np.ndarray, "row action"],
    outcomes: Float[np.ndarray, "row action"],
    weights: Float[np.ndarray, " row"] | None = None,
) -> GainSlope:
    """b = sum_i w_i d_i'y_i / sum_i w_i |d_i|^2, y_i centred over the actions of its row; se by rows.

    >>> d = np.array([[-0.2, 0.2], [0.1, -0.1]])
    >>> round(gain_slope(d, 3.0 * d + 7.0).slope, 6)
    3.0
    """
    products = np.empty(len(deviation))
    squares = np.empty(len(deviation))
    for start in range(0, len(deviation), CHUNK):
        rows = slice(start, start + CHUNK)
        d, y = np.asarray(deviation[rows], np.float64), np.asarray(outcomes[rows], np.float64)
        products[rows] = np.sum(d * (y - y.mean(axis=1, keepdims=True)), axis=1)
        squares[rows] = np.sum(d**2, axis=1)
    weight = np.ones(len(deviation)) if weights is None else weights
    total = float(weight @ squares)
    if total == 0.0:
        return GainSlope(0.0, 0.0)
    slope = float(weight @ products) / total
    se = float(np.sqrt(np.sum((weight * (products - slope * squares)) ** 2))) / total
    return GainSlope(max(slope, 0.0), se)


def priced_action(
    gain: Float[np.ndarray, "row action"], prices: Float[np.ndarray, " action"]
) -> Int[np.ndarray, " row"]:
    """The action of largest gain less its price; equal ones go to the later of two actions, the first of more."""
    return deterministic(gain - prices)


def capacity_prices(
    gain: Float[np.ndarray, "row action"], capacity: Mapping[int, float], *, rounding: float = 0.0
) -> Float[np.ndarray, " action"]:
    """Prices in outcome units at which no more than `capacity` (a share of the rows) want each action.

    The dual of the assignment, min_p sum_i max_a (gain_ia - p_a) + sum_a p_a capacity_a n: with one limited action its
    price lies between the gain of the last one to get it and that of the first one who does not. Rows that come later
    can be decided one by one at these prices, and keep to the shares as far as they resemble these rows.

    On these rows the shares are never exceeded. A price cannot tell equal gains apart: of rows with the same gain
    either all get the action or, where there are not places for all, none does, and places stay empty; two actions of
    the same gain to everybody do not share a row's favour. Gains closer than `rounding` count as equal, so that numbers
    added up in another order lead to no other decision.

    >>> capacity_prices(np.array([[0.0, 3.0], [0.0, 5.0], [0.0, 1.0]]), {1: 0.34}).round(6).tolist()
    [0.0, 4.0]
    """
    n, count = gain.shape
    places = {action: int(np.floor(share * n + 1e-9)) for action, share in capacity.items()}
    if len(places) >= count:
        raise ValueError(f"all {count} actions have a capacity; leave one without, for those who get no other")
    prices = np.zeros(count)
    if len(places) > 1:  # where they compete with each other alone, prices would climb from zero in small steps
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
    """What each row would pay for the best of some actions: its gain over the best of the others, at their prices."""
    net = gain - prices
    net[:, actions] = -np.inf
    return gain[:, actions].max(axis=1) - net.max(axis=1)


def _clearing(over: Float[np.ndarray, " row"], places: int, rounding: float) -> float:
    """The price at which no more than so many rows want what they would pay `over` for."""
    if places >= len(over):
        return 0.0
    first_out = len(over) - 1 - places
    ordered = np.partition(over, [first_out, min(first_out + 1, len(over) - 1)])
    low = float(np.nextafter(ordered[first_out] + rounding, np.inf))
    if low <= 0.0:
        return 0.0
    # Between the two, not at the edge: a row that does not care would be taken up by one action, then by another.
    last_in = float(ordered[first_out + 1]) if places else low
    return max(low, (low + last_in) / 2.0)


def _raised(
    gain: Float[np.ndarray, "row action"], prices: Float[np.ndarray, " action"], places: Mapping[int, int],
    rounding: float,
) -> Float[np.ndarray, " action"]:  # fmt: skip
    """Prices of crowded actions raised until none has more rows than places: for ties, and rounds that ran out."""
    prices, step = prices.copy(), max(rounding, 1e-9 * float(np.abs(gain).max(initial=0.0)), 1e-300)
    while True:
        taken = np.bincount(priced_action(gain, prices), minlength=len(prices))
        crowded = [action for action in places if taken[action] > places[action]]
        if not crowded:
            return prices
        for action in crowded:
            clearing = _clearing(_over_others(gain, prices, [action]), places[action], rounding)
            prices[action] = max(clearing, prices[action] + step)
        step *= 1.5  # so that an end comes, whatever the ties
