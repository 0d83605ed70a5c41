"""A bound on how far groups may differ in what they get: prices by group that keep decisions within it.

There is one rule: in group g, p_g is taken off the gain of every action but the default (added, where it is negative),
and a row gets the action with the largest gain left. Raising p_g takes away the action from the rows of the group that
gain least by it, so the groups' best gains G_g(s) at a share s are concave, and the best policy within

    max_g s_g - min_g s_g <= bound,    maximise sum_g w_g G_g(s_g),

has shares s_g = min(max(s_g^free, t), t + bound) for the best lower end t of the window, which is one of the shares
that are possible: an exact search, without a solver. A bound on the difference of gains can only be kept by giving less
to the groups that gain most, as every group already has its best: no group may then gain more than a cap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.decisions.decisions import GroupPrices
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Bounded", "bounded_at_level", "bounded_prices", "capped_prices", "gap_chance"]

AIMS = np.linspace(1.0, 0.0, 41)  # of the bound, tried in this order
TRIED = np.linspace(0.0, 1.0, 401)  # lower ends of windows, where the best one is not known well enough
DRAWS = 4_000
ROUNDING = 1e-9  # of a share


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """Prices by group, and the groups' shares (or gains) at them and without them.

    `aim` is the gap, or the cap, that was aimed at, `chance` that of a gap above the bound on new rows, None where it
    is not known.
    """

    prices: Float[np.ndarray, " group"]
    reached: Float[np.ndarray, " group"]
    free: Float[np.ndarray, " group"]
    aim: float
    chance: float | None = None

    @property
    def gap(self) -> float:
        """The largest difference between two groups that have rows."""
        return float(np.nanmax(self.reached) - np.nanmin(self.reached))

    def priced(
        self, gain: Float[np.ndarray, "row action"], place: Int[np.ndarray, " row"], default: int
    ) -> Int[np.ndarray, " row"]:
        """The actions of rows at the prices, column numbers."""
        return deterministic(gain - GroupPrices.table(self.prices, place, gain.shape[1], default))  # type: ignore[no-any-return]


class _Curve(NamedTuple):
    """What a group can get: share with an action, gain per row, and the price, for more and more rows."""

    share: Float[np.ndarray, " end"]
    gain: Float[np.ndarray, " end"]
    price: Float[np.ndarray, " end"]
    free: int
    weight: float


def _curve(
    over: Float[np.ndarray, " row"], treated: np.ndarray, weight: Float[np.ndarray, " row"], rounding: float
) -> _Curve:
    """A price lies between two gains that differ by more than rounding; rows of equal gain stay together."""
    order = np.argsort(-over, kind="stable")
    over, mass = over[order], weight[order] / weight.sum()
    share = np.concatenate([[0.0], np.cumsum(mass)])
    share[-1] = 1.0
    gain = np.concatenate([[0.0], np.cumsum(mass * over)])
    span = max(float(over[0] - over[-1]), abs(float(over[0])), abs(float(over[-1])), 1e-300)
    around = np.concatenate([[over[0] + 2.0 * span], over, [over[-1] - 2.0 * span]])
    count = int(np.count_nonzero(treated))
    ends = around[:-1] - around[1:] > max(rounding, 1e-12 * span)
    ends[count] = True
    price = np.where(np.arange(len(share)) == count, 0.0, (around[:-1] + around[1:]) / 2.0)
    kept = np.flatnonzero(ends)
    return _Curve(share[kept], gain[kept], price[kept], int(np.searchsorted(kept, count)), float(weight.sum()))


def _windows(
    curves: Sequence[_Curve], bound: float, lower: Float[np.ndarray, " window"]
) -> tuple[Float[np.ndarray, " window"], Int[np.ndarray, "group window"]]:
    """Total gain of windows of shares by their lower ends, -inf for impossible ones, and the end of each group."""
    total, fine, ends = np.zeros(len(lower)), np.ones(len(lower), bool), []
    for curve in curves:
        low = np.searchsorted(curve.share, lower - ROUNDING)
        high = np.searchsorted(curve.share, lower + bound + ROUNDING, side="right") - 1
        fine &= low <= high
        ends.append(np.clip(np.clip(curve.free, low, high), 0, len(curve.share) - 1))
        total += curve.weight * curve.gain[ends[-1]]
    return np.where(fine, total, -np.inf), np.array(ends)


def _within_shares(curves: Sequence[_Curve], bound: float) -> list[int]:
    """The end of each group in the window of shares with the largest total gain; nobody at all is always possible."""
    total, ends = _windows(curves, bound, np.unique(np.concatenate([curve.share for curve in curves])))
    made: list[int] = ends[:, int(np.argmax(total))].tolist()
    return made


def bounded_prices(
    gain: Float[np.ndarray, "row action"],
    place: Int[np.ndarray, " row"],
    bound: float,
    *,
    count: int,
    default: int = 0,
    weights: Float[np.ndarray, " row"] | None = None,
    rounding: float = 0.0,
) -> Bounded:
    """Prices of `count` groups, `place` of each row, at which their shares differ by at most `bound` on these rows.

    Shares are of the rows that get any action but the default. The total gain is the largest that prices can have
    within the bound. Groups without rows have price 0.

    >>> gain = np.array([[0.0, 3.0], [0.0, 2.0], [0.0, 1.0], [0.0, -4.0]])
    >>> bounded_prices(gain, np.array([0, 0, 1, 1]), 0.5, count=2).reached.tolist()
    [1.0, 0.5]
    >>> bounded_prices(gain, np.array([0, 0, 1, 1]), 0.0, count=2).reached.tolist()
    [0.5, 0.5]
    """
    if not bound >= 0.0:
        raise ValueError(f"bound must be >= 0, got {bound}; try 0.1")
    curves = _curves(gain, place, count, default, weights, rounding)
    ends = dict(zip(curves, _within_shares(list(curves.values()), bound), strict=True))
    return _bounded(curves, ends, count, bound, "share")


def capped_prices(
    gain: Float[np.ndarray, "row action"],
    place: Int[np.ndarray, " row"],
    cap: float,
    *,
    count: int,
    default: int = 0,
    weights: Float[np.ndarray, " row"] | None = None,
    rounding: float = 0.0,
) -> Bounded:
    """Prices at which no group is expected to gain more than `cap` per row over the default, and each all it then can.

    >>> gain = np.array([[0.0, 3.0], [0.0, 2.0], [0.0, 1.0], [0.0, -4.0]])
    >>> capped_prices(gain, np.array([0, 0, 1, 1]), 2.0, count=2).reached.tolist()
    [1.5, 0.5]
    """
    if not cap >= 0.0:
        raise ValueError(f"cap must be >= 0, got {cap}; at 0 everybody gets the default")
    curves = _curves(gain, place, count, default, weights, rounding)
    most = cap * (1.0 + ROUNDING)
    ends = {
        number: int(np.searchsorted(curve.gain[: curve.free + 1], most, side="right")) - 1
        for number, curve in curves.items()
    }
    return _bounded(curves, ends, count, cap, "gain")


def _curves(
    gain: Float[np.ndarray, "row action"], place: Int[np.ndarray, " row"], count: int, default: int,
    weights: Float[np.ndarray, " row"] | None, rounding: float,
) -> dict[int, _Curve]:  # fmt: skip
    """The curve of each group that has rows."""
    weight = np.ones(len(gain)) if weights is None else weights
    over = np.delete(gain, default, axis=1).max(axis=1) - gain[:, default]
    treated = deterministic(gain) != default
    rows = {number: place == number for number in range(count) if np.any(place == number)}
    return {number: _curve(over[own], treated[own], weight[own], rounding) for number, own in rows.items()}


def _bounded(curves: dict[int, _Curve], ends: dict[int, int], count: int, aim: float, level: str) -> Bounded:
    prices, reached, free = np.zeros(count), np.full(count, np.nan), np.full(count, np.nan)
    for number, curve in curves.items():
        along = getattr(curve, level)
        prices[number], reached[number] = curve.price[ends[number]], along[ends[number]]
        free[number] = along[curve.free]
    return Bounded(prices, reached, free, aim)


def gap_chance(
    shares: Float[np.ndarray, " group"], independent: Float[np.ndarray, " group"], bound: float, inflation: float = 0.0
) -> float:
    """Chance that the shares of new rows differ by more than the bound, given those of `independent` rows each.

    Errors are normal with the variance of Agresti and Coull (1998), as in `value.by_group`.
    """
    near = (independent * shares + 2.0) / (independent + 4.0)
    sd = np.sqrt((1.0 + inflation) * near * (1.0 - near) / (independent + 4.0))
    drawn = shares + sd * np.random.default_rng(0).standard_normal((DRAWS, len(shares)))
    return float(np.mean(drawn.max(axis=1) - drawn.min(axis=1) > bound))


def bounded_at_level(
    gain: Float[np.ndarray, "row action"],
    place: Int[np.ndarray, " row"],
    bound: float,
    *,
    independent: Float[np.ndarray, " group"],
    level: float = 0.95,
    inflation: float = 0.0,
    default: int = 0,
    weights: Float[np.ndarray, " row"] | None = None,
    rounding: float = 0.0,
) -> Bounded:
    """Prices at which shares of new rows differ by more than `bound` with a chance of at most 1 - level.

    On these rows the gap is kept to a smaller `aim`, by as much as their shares are uncertain; it is the largest that
    does. Where the rows are too few for that, all groups get nearly the same share, the best of those that are near
    enough to nobody or everybody to be known so well. `independent` is how many independent rows each group has.
    """
    curves = _curves(gain, place, len(independent), default, weights, rounding)
    row = min(bound, 1.0 / float(independent.min()))  # below it there is hardly a window with shares of all groups
    for aim in dict.fromkeys(max(bound * part, row) for part in AIMS.tolist()):
        ends = dict(zip(curves, _within_shares(list(curves.values()), aim), strict=True))
        made = _bounded(curves, ends, len(independent), aim, "share")
        chance = gap_chance(made.reached, independent, bound, inflation)
        if chance <= 1.0 - level:
            return replace(made, chance=chance)
    total, at = _windows(list(curves.values()), row, TRIED)
    for window in np.argsort(-total, kind="stable").tolist():
        made = _bounded(curves, dict(zip(curves, at[:, window].tolist(), strict=True)), len(independent), row, "share")
        chance = gap_chance(made.reached, independent, bound, inflation)
        if chance <= 1.0 - level:
            break
    return replace(made, chance=chance)
