"""What each column of a table is for: outcome, action, features, propensity, weight, group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbpl.tables.frames import TableError, require_columns

__all__ = ["DRAW_SHARE", "Roles"]

DRAW_SHARE = "share of draws for"  # how the columns of decisions begin that say how sure they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Columns by what they are for.

    Logged feedback has an `outcome` and an `action` column; full feedback has `outcomes`, one column per action.
    `features` decide (None: every column without another role), `controls` only help to estimate. `propensity` is a
    column with the probability of the action taken, a number (that of the second of two actions, or of each of more), a
    mapping from label to probability, or None, where it is estimated.
    """

    outcome: str | None = None
    action: str | None = None
    outcomes: Sequence[str] | None = None
    features: Sequence[str] | None = None
    controls: Sequence[str] = ()
    propensity: str | float | Mapping[Any, float] | None = None
    weight: str | None = None
    group: str | None = None

    def __post_init__(self) -> None:
        for name in ("outcomes", "features", "controls"):
            if isinstance(getattr(self, name), str):
                object.__setattr__(self, name, [getattr(self, name)])
        if isinstance(self.propensity, str) and self.propensity.startswith(DRAW_SHARE):
            raise TableError(
                f"the column {self.propensity!r} says how sure a decision was, and is no propensity: the action was "
                "not drawn by it; log the probabilities of predict_proba where actions are drawn by them"
            )
        if self.outcomes is None and (self.outcome is None or self.action is None):
            raise TableError(
                f"{'outcome' if self.outcome is None else 'action'} is not named; give outcome and action (one of each "
                "per row), or outcomes (one column per action)"
            )
        if self.outcomes is None:
            return
        beside = [name for name in ("outcome", "action", "propensity") if getattr(self, name) is not None]
        if beside or self.controls:
            raise TableError(
                f"outcomes names one column per action, so {(beside or ['controls'])[0]} has no meaning with it; "
                "give outcomes alone, or outcome and action"
            )
        if len(self.outcomes) < 2:
            raise TableError(f"outcomes must name two columns or more, one per action; got {self.outcomes}")

    def to_json(self) -> dict[str, Any]:
        """Plain types, features aside: an encoder knows those."""
        chance = self.propensity
        return {
            "outcome": self.outcome, "action": self.action,
            "outcomes": None if self.outcomes is None else list(self.outcomes), "controls": list(self.controls),
            "propensity": {str(k): float(v) for k, v in chance.items()} if isinstance(chance, Mapping) else chance,
            "weight": self.weight, "group": self.group,
        }  # fmt: skip

    def used(self) -> list[str]:
        """Columns with a role other than feature, each of which may have one role only."""
        single = (self.outcome, self.action, self.weight, self.group)
        names = [name for name in single if name is not None]
        names += [*(self.outcomes or ()), *self.controls]
        if isinstance(self.propensity, str):
            names.append(self.propensity)
        return names

    def check(self, available: Sequence[str], what: str, also: Sequence[str] = ()) -> None:
        """Refuse names the table does not have, and columns with two roles; `also` are further columns with a role."""
        names = [*self.used(), *also, *(self.features or ())]
        require_columns(names, list(available), what)
        twice = [name for number, name in enumerate(names) if name in names[:number]]
        if twice:
            raise TableError(f"column {twice[0]!r} has two roles; a column has one, so leave it out of the other")
