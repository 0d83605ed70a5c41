"""Groups of a study: what was asked about them, a rule within a bound between them, and what the summary says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.constraints import Bounded, bounded_at_level, bounded_prices
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

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["AskedGroups", "BoundedRule", "bounded_rule", "group_of", "groups_summary"]

HELD = 0.95  # probability with which a bound on shares holds on new rows
ROUNDING = 1e-6  # of a deviation, as in `study.study`


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
        shares = self.asked.of == "shares"
        return {
            "column": self.asked.column, "of": self.asked.of, "bound": self.asked.bound,
            "level": HELD if shares else None, "aim": found.aim, "chance": found.chance, "gap": found.gap,
            "held_out_gap": float(np.nanmax(self.held_out) - np.nanmin(self.held_out)),
            "free_gap": float(np.nanmax(found.free) - np.nanmin(found.free)), "groups": groups,
            "price": {"estimate": self.price.estimate, "se": self.price.se, "low": low, "high": high},
        }  # fmt: skip


def bounded_rule(
    policy: GBPLNet, frozen: SavedPolicy, data: TableFeedback, frame: Any, rule: Rule, free: Int[np.ndarray, " row"],
    asked: AskedGroups, smallest: int, notes: list[str],
) -> BoundedRule:  # fmt: skip
    """The rule with prices by group; `free` are the held-out decisions without them.

    Prices of the policy are those of the rows that it learned from. Held-out decisions are at prices of their own, in
    each fold by itself, as it was learned apart; there the gap may be that of one row of the smallest group.
    """
    assert asked.column is not None
    values = column(frame, asked.column)[data.kept]
    parts = Parts.of(values, smallest)
    place, default, slope = parts.place(values), rule.default, policy.gain_slope_
    assert slope is not None
    feedback, count = data.feedback, len(parts.names)
    # Of the whole table, as `decide` will see it: the same rows in the same blocks are added up in the same order.
    gain = frozen.with_study(rule=rule, encoder=None, summary=None).expected_gain(data.features)[data.kept]
    common: dict[str, Any] = {"default": default, "weights": feedback.weights, "rounding": slope.slope * ROUNDING}
    if asked.of == "gains":
        found = bounded_prices(gain, place, asked.bound, count=count, of="gains", **common)
    else:
        inside = [independent_rows(place == g, feedback.weights, feedback.groups) for g in range(count)]
        found = bounded_at_level(
            gain, place, asked.bound, independent=np.array(inside), level=HELD, inflation=LEARNED, **common
        )
    held, decided, row_prices = policy.training("learn again").held_out, free.copy(), np.zeros(len(free))
    outside = policy.expected_gain(default=policy.actions_.tolist()[default])
    for fold in held.folds:
        own, weights = place[fold], None if feedback.weights is None else feedback.weights[fold]
        smallest_part = int(np.bincount(own)[np.unique(own)].min())
        aim = found.aim if asked.of == "gains" else max(found.aim, 1.0 / smallest_part)
        away = bounded_prices(outside[fold], own, aim, count=count, of=asked.of, **common | {"weights": weights})
        row_prices[fold] = away.prices[own]
        decided[fold] = away.priced(outside[fold], own, default) if away.prices.any() else free[fold]
    unit = slope.slope if policy.effect_ is None and slope.slope > 0.0 else 1.0
    table = np.where(np.arange(gain.shape[1]) == default, 0.0, row_prices[:, None] / unit)
    price = price_of(policy.training("learn again"), free, decided, table)
    notes += _noted(asked, found)
    groups = GroupPrices(asked.column, parts, tuple(found.prices.tolist())) if found.prices.any() else None
    return BoundedRule(
        replace(rule, groups=groups), decided, asked, parts, np.bincount(place, minlength=count), found,
        _held_out(policy, decided, place, count, default, asked.of), price,
    )  # fmt: skip


def _held_out(
    policy: GBPLNet, decided: Int[np.ndarray, " row"], place: Int[np.ndarray, " row"], count: int, default: int, of: str
) -> Float[np.ndarray, " group"]:
    """Shares, or estimated gains, of the groups under the held-out decisions."""
    evaluator = policy.training("learn again").evaluator("dr")
    labels = policy.actions_.tolist()
    value = evaluator.value(np.eye(len(labels))[decided], baseline=labels[default])
    if of == "shares":
        value = replace(value, influence=(decided != default).astype(np.float64))
    some = [place == number for number in range(count)]
    return np.array([value_in(value, rows).estimate if rows.any() else np.nan for rows in some])


def _noted(asked: AskedGroups, found: Bounded) -> list[str]:
    notes = []
    if not found.prices.any():
        notes.append(f"the policy is within the bound between groups of {asked.column!r} by itself: it has no price")
    if found.chance is not None and found.chance > 1.0 - HELD:
        notes.append(
            f"the rows are too few to say that the shares of the groups of {asked.column!r} differ by at most "
            f"{asked.bound:g} on new rows: the chance that they do not is {found.chance:.0%}; a larger bound, fewer "
            "groups or more rows would do"
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
