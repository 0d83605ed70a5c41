"""What each column of a table is for: outcome, action, features, propensity, weight, group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from gbpl.tables.frames import TableError, nearest, require_columns

__all__ = ["DRAW_SHARE", "Roles"]

DRAW_SHARE = "share of draws for"  # how the columns of decisions begin that say how sure they are

NOT = "!"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Columns by what they are for.

    Logged feedback has an `outcome` and an `action` column; full feedback has `outcomes`, one column per action.
    `features` decide (None: every column without another role), `controls` only help to estimate. A feature may be a
    pattern with * and ?, such as "age*", and with a ! before it takes columns away; if all do, they are taken away from
    every column without another role. `exclude` are columns, or patterns, that are not used. `propensity` is a
    column with the probability of the action taken, a number (that of the second of two actions, or of each of more), a
    mapping from label to probability, or None, where it is estimated. Columns `beside` the outcome are further outcomes
    of the action, and so no features.
    """

    outcome: str | None = None
    action: str | None = None
    outcomes: Sequence[str] | None = None
    features: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    controls: Sequence[str] = ()
    propensity: str | float | Mapping[Any, float] | None = None
    weight: str | None = None
    group: str | None = None
    beside: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("outcomes", "features", "exclude", "controls"):
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
        names += [*(self.outcomes or ()), *self.controls, *self.beside]
        if isinstance(self.propensity, str):
            names.append(self.propensity)
        return names

    def resolved(self, available: Sequence[str], what: str) -> Roles:
        """The same roles with plain names for patterns; `features` stay None where columns are only taken away.

        >>> roles = Roles(outcome="y", action="a", features=["age*", "!age_sq"])
        >>> roles.resolved(["y", "a", "age", "age_sq"], "the table").features
        ['age']
        """
        used, chosen, gone = self.used(), None, []
        free = [name for name in available if name not in used]
        for given in self.features or ():
            if given.startswith(NOT) and given not in available:
                gone += _matches(given.removeprefix(NOT), free, available, what)
            else:
                found = _matches(given, free, available, what)
                pattern = found != [given]  # what is named twice is refused later; what two patterns match is not
                chosen = [*(chosen or ()), *(name for name in found if not (pattern and name in (chosen or ())))]
        gone += [name for given in self.exclude for name in _matches(given, free, available, what)]
        twice = next((name for name in gone if name in used), None)
        if twice is not None:
            raise TableError(
                f"column {twice!r} has a role and is to be left out; give it no role, or do not exclude it"
            )
        if chosen is not None:
            chosen = [name for name in chosen if name not in gone]
        if chosen == [] or (gone and set(free) <= set(gone)):
            raise TableError(f"no column of {what} is left for the features: all have another role or are left out")
        return replace(self, features=chosen, exclude=gone if chosen is None else ())

    def check(self, available: Sequence[str], what: str, also: Sequence[str] = ()) -> None:
        """Refuse names the table does not have, and columns with two roles; `also` are further columns with a role."""
        names = [*self.used(), *also, *(self.features or ())]
        require_columns(names, list(available), what)
        twice = [name for number, name in enumerate(names) if name in names[:number]]
        if twice:
            raise TableError(f"column {twice[0]!r} has two roles; a column has one, so leave it out of the other")


def _matches(given: str, free: Sequence[str], available: Sequence[str], what: str) -> list[str]:
    """The columns that a name or a pattern stands for; a pattern for columns without another role only."""
    if given in available or not any(sign in given for sign in "*?"):
        require_columns([given], available, what)
        return [given]
    found = [name for name in free if fnmatchcase(name, given)]
    if not found:
        raise TableError(f"no column of {what} that is free to be a feature matches {given!r}{nearest(given, free)}")
    return found
