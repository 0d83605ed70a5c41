"""What is decided for each row, and by which rule: the one result of rules, policies and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.parts import Parts
from gbpl.tables.roles import DRAW_SHARE

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["DEFER", "NOBODY", "Decisions", "GroupPrices", "Rule"]

DEFER = 0.8  # disagreement to try: two actions, where fewer than 60 in 100 draws agree
NOBODY = 1.0  # no disagreement is above it


@dataclass(frozen=True, slots=True)
class GroupPrices:
    """What is taken off the gain of every action but the default in each part of a column (`decisions.constraints`)."""

    column: str
    parts: Parts
    prices: tuple[float, ...]

    def of_rows(
        self, values: np.ndarray, count: int, default: int
    ) -> tuple[Float[np.ndarray, "row action"], dict[str, int]]:
        """Prices of the actions in each row, none in rows of no known group, and how many those are."""
        place = self.parts.place(values)
        unknown = int(np.count_nonzero(place < 0))
        counts = {f"row(s) of no group of {self.column!r} that was learned, decided without its price": unknown}
        return self.table(np.append(self.prices, 0.0), place, count, default), counts if unknown else {}

    @staticmethod
    def table(
        prices: Float[np.ndarray, " group"], place: Int[np.ndarray, " row"], count: int, default: int
    ) -> Float[np.ndarray, "row action"]:
        """The price of a row's group for every action but the default."""
        return np.where(np.arange(count) == default, 0.0, prices[place][:, None])


@dataclass(frozen=True, slots=True)
class Rule:
    """How a policy is used: the default action, which rows go to a person, and the prices of limited actions.

    Rows with a disagreement above `defer` are for a person; unless a level is given, none are. `prices`, in outcome
    units and one per action, keep limited actions within their capacity; 0 for the others. Those by `groups` keep the
    difference between groups within a bound.
    """

    default: int = 0
    defer: float = NOBODY
    prices: tuple[float, ...] = ()
    groups: GroupPrices | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """One action per row, and how sure that is; None for what is not known.

    `action` holds labels, or column numbers where a rule was given arrays; `actions` are the labels in the order of the
    columns. `draw_share` is the share of posterior draws that would take each action: how sure the decision is, and no
    propensity, because the action is not drawn by it. `probability` are those of a randomized policy, where a rule was
    given one (`map_rule`). `disagreement` says how split the draws are, `deferred` which rows are for a person,
    `expected_gain` what the action is expected to gain over the default one, net of costs, `review_value` what a
    person's look at the row is worth at most, in the same unit, and `inclusion`, under limited capacity, the share of
    draws that would give the row any other action than the default one. `counts` says how many values were filled in.
    """

    action: np.ndarray
    actions: np.ndarray
    draw_share: Float[np.ndarray, "row action"] | None = None
    probability: Float[np.ndarray, "row action"] | None = None
    disagreement: Float[np.ndarray, " row"] | None = None
    deferred: Bool[np.ndarray, " row"] | None = None
    expected_gain: Float[np.ndarray, " row"] | None = None
    inclusion: Float[np.ndarray, " row"] | None = None
    review_value: Float[np.ndarray, " row"] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of_columns(cls, action: Int[np.ndarray, " row"], count: int, **known: Any) -> Decisions:
        """By column numbers."""
        return cls(action, np.arange(count), **known)

    def __len__(self) -> int:
        return len(self.action)

    def rows(self, kept: Bool[np.ndarray, " row"]) -> Decisions:
        """The decisions for some rows."""
        columns = [part.name for part in fields(self) if part.name not in ("actions", "counts")]
        known = {name: column for name in columns if (column := getattr(self, name)) is not None}
        return replace(self, **{name: column[kept] for name, column in known.items()})

    def to_dict(self) -> dict[str, np.ndarray]:
        """Columns by name, as `pandas.DataFrame` or `polars.DataFrame` take them; only those that are known."""
        columns: dict[str, Any] = {"action": self.action}
        for words, table in ((DRAW_SHARE, self.draw_share), ("probability of", self.probability)):
            if table is not None:
                columns |= {f"{words} {label}": table[:, a] for a, label in enumerate(self.actions.tolist())}
        for name in ("disagreement", "deferred", "expected_gain", "review_value", "inclusion"):
            if (column := getattr(self, name)) is not None:
                columns[name.replace("_", " ")] = column
        return columns
