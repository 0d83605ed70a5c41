"""Groups of a study: what was asked about them, a rule within a bound between them, and what the summary says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.constraints import Bounded, bounded_at_level, bounded_prices, capped_prices, gap_chance
from gbpl.decisions.decisions import GroupPrices, Rule
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.estimators.groups import price_of
from gbpl.estimators.training import LEARNED
from gbpl.feedback.read import TableFeedback
from gbpl.frozen.file import SavedPolicy
from gbpl.report.reading import LEVEL
from gbpl.runtime.json import plain
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError, column, require_columns
from gbpl.tables.parts import Parts
from gbpl.tables.roles import Roles
from gbpl.value.by_group import independent_rows, value_in
from gbpl.value.estimate import Value
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["AskedGroups", "BoundedRule", "bounded_rule", "group_of", "groups_summary"]

HELD = 0.95  # probability with which a bound on shares holds on new rows
ROUNDING = 1e-6  # of a deviation, as in `study.study`
CAPS = np.linspace(0.0, 1.0, 41)[1:]  # of the largest gain of a group


@dataclass(frozen=True, slots=True)
class AskedGroups:
    """Columns to say who gets what by, and a bound on the difference between the groups of one of them."""

    by: tuple[str, ...] = ()
    column: str | None = None
    bound: float = 0.0
    of: str = "shares"

    @classmethod
    def read(cls, by: Any, share_gap: Any, gain_gap: Any, capacity: Any) -> AskedGroups:
        """Checked, before the table is read."""
        listed = [by] if isinstance(by, str) else list(by or ())
        given = [(of, gap) for of, gap in (("shares", share_gap), ("gains", gain_gap)) if gap]
        if not given:
            return cls(tuple(dict.fromkeys(listed)))
        of, gap = given[0]
        name = "share_gap" if of == "shares" else "gain_gap"
        if len(given) > 1 or not isinstance(gap, Mapping) or len(gap) != 1:
            raise TableError(
                f"a bound between groups is of one column, in shares or in gains, such as {name}={{'city': 0.1}}; got "
                f"share_gap={share_gap!r:.60} and gain_gap={gain_gap!r:.60}"
            )
        if capacity:
            raise TableError("capacity and a bound between groups cannot be kept together yet; give one of them")
        ((where, bound),) = gap.items()
        fine = isinstance(bound, int | float | np.number) and not isinstance(bound, bool)
        if not fine or not 0.0 < bound < (1.0 if of == "shares" else np.inf):
            within = "a share between 0 and 1" if of == "shares" else "a finite number above 0, in units of the outcome"
            raise TableError(f"{name} of {str(where)!r} must be {within}, got {bound!r:.40}; try 0.1")
        return cls(tuple(dict.fromkeys([*listed, str(where)])), str(where), float(bound), of)

    def check(self, available: Sequence[str], roles: Roles, what: str) -> None:
        """Refuse columns that the table does not have, and those that are known only once it is decided."""
        require_columns(self.by, list(available), what)
        after = {roles.outcome, roles.action, *(roles.outcomes or ())}
        late = next((name for name in self.by if name in after), None)
        if late is not None:
            raise TableError(f"column {late!r} is the outcome or the action, and no group; name another column")


def group_of(rule: Rule, frame: Any) -> np.ndarray | None:
    """The column of the rule's prices, if it has any by group."""
    return None if rule.groups is None else column(frame, rule.groups.column)


@dataclass(frozen=True, slots=True, eq=False)
class BoundedRule:
    """A rule within a bound between groups, what it decides for held-out rows, and what that costs."""

    rule: Rule
    decided: Int[np.ndarray, " row"]
    asked: AskedGroups
    parts: Parts
    rows: Int[np.ndarray, " group"]
    found: Bounded
    held_out: Float[np.ndarray, " group"]
    price: Value

    def to_dict(self) -> dict[str, Any]:
        """For the summary."""
        found, (low, high) = self.found, self.price.interval(LEVEL)
        listed = zip(self.parts.names, self.rows, found.free, found.reached, self.held_out, found.prices, strict=True)
        groups = [
            dict(zip(("label", "rows", "free", "reached", "held_out", "price"), one, strict=True))
            for one in listed
            if one[1]
        ]
        return {
            "column": self.asked.column, "of": self.asked.of, "bound": self.asked.bound,
            "level": HELD, "aim": found.aim, "chance": found.chance, "gap": found.gap,
            "held_out_gap": float(np.nanmax(self.held_out) - np.nanmin(self.held_out)),
            "free_gap": float(np.nanmax(found.free) - np.nanmin(found.free)), "groups": groups,
            "price": {"estimate": self.price.estimate, "se": self.price.se, "low": low, "high": high},
        }  # fmt: skip


def bounded_rule(
    policy: GBPLNet, frozen: SavedPolicy, data: TableFeedback, frame: Any, rule: Rule, free: Int[np.ndarray, " row"],
    asked: AskedGroups, smallest: int, notes: list[str],
) -> BoundedRule:  # fmt: skip
    """The rule with prices by group, those of the rows it learned from; `free` are held-out decisions without them."""
    assert asked.column is not None
    values = column(frame, asked.column)[data.kept]
    parts = Parts.of(values, smallest)
    place, default, slope = parts.place(values), rule.default, policy.gain_slope_
    assert slope is not None
    feedback, count = data.feedback, len(parts.names)
    # Of the whole table, as `decide` will see it: the same rows in the same blocks are added up in the same order.
    gain = frozen.with_study(rule=rule, encoder=None, summary=None).expected_gain(data.features)[data.kept]
    common: dict[str, Any] = {"default": default, "weights": feedback.weights, "rounding": slope.slope * ROUNDING}
    outside = _Outside(policy, place, count, default, free, feedback.weights, slope.slope * ROUNDING)
    independent = np.array([independent_rows(place == g, feedback.weights, feedback.groups) for g in range(count)])
    if slope.slope == 0.0:
        own = deterministic(frozen.predict_proba(data.features)[data.kept])
        found = outside.unordered(own, asked, independent)
    elif asked.of == "gains":
        found = capped_prices(gain, place, outside.cap(asked.bound), count=count, **common)
    else:
        found = bounded_at_level(
            gain, place, asked.bound, independent=independent, level=HELD, inflation=LEARNED, **common
        )
    decided, row_prices = free, np.zeros(len(free))
    if found.prices.any() and slope.slope == 0.0:
        decided, row_prices = np.full(len(free), default), np.full(len(free), np.inf)
    elif found.prices.any():
        decided, row_prices = outside.decided(asked.of, found.aim)
    unit = slope.slope if policy.effect_ is None and slope.slope > 0.0 else 1.0
    table = GroupPrices.table(row_prices / unit, np.arange(len(free)), gain.shape[1], default)
    price = price_of(policy.training("learn again"), free, decided, table)
    notes += _noted(asked, found)
    groups = GroupPrices(asked.column, parts, tuple(found.prices.tolist())) if found.prices.any() else None
    return BoundedRule(
        replace(rule, groups=groups), decided, asked, parts, np.bincount(place, minlength=count), found,
        np.array([value.estimate for value in outside.levels(decided, asked.of)]), price,
    )  # fmt: skip


class _Outside:
    """Held-out decisions within a bound: in each fold at prices of its own, as it was learned apart."""

    def __init__(
        self, policy: GBPLNet, place: Int[np.ndarray, " row"], count: int, default: int, free: Int[np.ndarray, " row"],
        weights: Float[np.ndarray, " row"] | None, rounding: float,
    ) -> None:  # fmt: skip
        self.training, self.labels = policy.training("learn again"), policy.actions_.tolist()
        self.gain = policy.expected_gain(default=self.labels[default])
        self.place, self.count, self.default, self.free = place, count, default, free
        self.weights, self.rounding = weights, rounding

    def decided(self, of: str, aim: float) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, " row"]]:
        """Actions of the rows, and the price of each; shares may differ by one row of the smallest group of a fold."""
        decided, prices = self.free.copy(), np.zeros(len(self.free))
        for fold in self.training.held_out.folds:
            own, weights = self.place[fold], None if self.weights is None else self.weights[fold]
            common: dict[str, Any] = {
                "count": self.count, "default": self.default, "weights": weights, "rounding": self.rounding
            }  # fmt: skip
            row = 1.0 / float(np.bincount(own)[np.unique(own)].min())
            away = (
                bounded_prices(self.gain[fold], own, max(aim, row), **common)
                if of == "shares"
                else capped_prices(self.gain[fold], own, aim, **common)
            )
            prices[fold] = away.prices[own]
            decided[fold] = away.priced(self.gain[fold], own, self.default) if away.prices.any() else self.free[fold]
        return decided, prices

    def levels(self, decided: Int[np.ndarray, " row"], of: str) -> list[Value]:
        """Shares, or gains, of the groups under held-out decisions."""
        table = np.eye(len(self.labels))[decided]
        value = self.training.evaluator("dr").value(table, baseline=self.labels[self.default])
        value = self.training.learned(value, "dr", "deterministic", own=False)
        if of == "shares":
            value = replace(value, influence=1.0 - table[:, self.default])
        return [value_in(value, self.place == number) for number in range(self.count)]

    def unordered(
        self, own: Int[np.ndarray, " row"], asked: AskedGroups, independent: Float[np.ndarray, " group"]
    ) -> Bounded:
        """Where the data do not bear out who gains most: the policy's `own` decisions if they are within, or nobody."""
        free, chance = np.zeros(self.count), None
        if asked.of == "shares":
            free = np.array([value.estimate for value in self.levels(own, "shares")])
            chance = gap_chance(free, independent, asked.bound, LEARNED)
        fine = self.within(self.free, asked.bound) if chance is None else chance <= 1.0 - HELD
        if fine:
            return Bounded(np.zeros(self.count), free, free, asked.bound, chance)
        any_price = np.full(self.count, np.finfo(np.float64).tiny)
        return Bounded(any_price, np.zeros(self.count), free, 0.0, None if chance is None else 0.0)

    def within(self, decided: Int[np.ndarray, " row"], bound: float) -> bool:
        """Whether outcomes say, at the level of each difference, that the gains of all groups are within the bound."""
        values = self.levels(decided, "gains")
        pairs = [one - other for one in values for other in values if one is not other]
        return all(pair.interval(2.0 * HELD - 1.0)[1] <= bound for pair in pairs)

    def cap(self, bound: float) -> float:
        """The largest cap on expected gains under which those of all groups differ by at most the bound, by outcomes.

        Caps are tried from zero upwards, and the last is taken before one at which the upper end of some difference is
        above the bound: a sequence of tests fixed in advance, so that together they have the level of one (Maurer,
        Hothorn and Lehmacher 1995).
        """
        rows = [self.place == number for number in range(self.count)]
        most = max(float(np.average(self.gain[own].max(axis=1))) for own in rows)
        kept = 0.0
        for cap in (CAPS * most).tolist():
            if not self.within(self.decided("gains", cap)[0], bound):
                return kept
            kept = cap
        return float("inf")


def _noted(asked: AskedGroups, found: Bounded) -> list[str]:
    notes = []
    if not found.prices.any():
        notes.append(f"the policy is within the bound between groups of {asked.column!r} by itself: it has no price")
    low, high = float(np.nanmin(found.reached)), float(np.nanmax(found.reached))
    if asked.of == "shares" and (low > np.nanmax(found.free) or high < np.nanmin(found.free)):
        notes.append(
            f"the rows are too few to keep the shares of the groups of {asked.column!r} within {asked.bound:g} of each "
            f"other on new rows, unless nearly all or nearly none are treated: it is {low:.0%} to {high:.0%} of each "
            "group; a larger bound, fewer groups or more rows would cost less"
        )
    return notes


def groups_summary(
    asked: AskedGroups, policy: GBPLNet, frame: Any, data: TableFeedback, encoder: Encoder,
    decided: Int[np.ndarray, " row"], given: np.ndarray, default: int, smallest: int, bound: BoundedRule | None,
) -> dict[str, Any] | None:  # fmt: skip
    """Shares, values and gains by each column asked for, and the bound, as plain JSON; None if nothing was asked."""
    if not asked.by:
        return None
    labels = policy.actions_.tolist()
    columns = []
    for name in asked.by:
        values = column(frame, name)[data.kept]
        table = policy.by_group(
            values, name=name, policy=np.eye(len(labels))[decided], given=given, default=labels[default],
            smallest_group=smallest,
        )  # fmt: skip
        known = {"kind": Parts.of(values, smallest).kind, "feature": name in encoder.columns}
        columns.append(table.to_dict(LEVEL) | known)
    made: dict[str, Any] = plain(
        {"level": LEVEL, "columns": columns, "bound": None if bound is None else bound.to_dict()}
    )
    return made
