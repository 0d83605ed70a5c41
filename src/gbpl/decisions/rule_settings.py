"""What small rule is asked for: its kind, size and constraints, in the user's words and then by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from gbpl.decisions.cuts import Limits

__all__ = ["CARD", "KINDS", "THRESHOLD", "TREE", "Columns", "Resolved", "RuleSettings"]

TREE, THRESHOLD, CARD = "tree", "threshold", "scorecard"
SIZES = {TREE: (1, 4, 2), THRESHOLD: (1, 1, 1), CARD: (1, 10, 4)}  # least, most, and what is taken if none is given
KINDS = tuple(SIZES)
MIN_SHARE = 0.05
REPLICATES = 50


class Columns(NamedTuple):
    """The encoded features of a table: names, the raw column of each, and whether larger means more of something."""

    names: tuple[str, ...]
    raw: tuple[str, ...]
    ordered: tuple[bool, ...]


class Resolved(NamedTuple):
    """Settings by number: features that may be used, and limits."""

    features: tuple[int, ...]
    limits: Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSettings:
    """A `kind` of rule and its `size`: the depth of a tree, 1 to 4, or the most conditions of a scorecard, 1 to 10.

    A `"threshold"` is a tree of depth 1. Columns in `without` are not used. `monotone` has for a column the action that
    raising it may only move towards, or all actions in the order that raising it may only move up. `leaves` bounds
    those of a tree, and each side of every cut has at least `min_share` of the rows. With `exact` every cut is looked
    at for trees of depth 2, however many rows there are; otherwise only where that is quick, and else cuts at
    quantiles. `replicates` refits say how sure the splits are.
    """

    kind: str = TREE
    size: int | None = None
    leaves: int | None = None
    without: Sequence[Any] = ()
    monotone: Mapping[Any, Any] = field(default_factory=dict)
    min_share: float = MIN_SHARE
    exact: bool = False
    replicates: int = REPLICATES
    seed: int = 0

    def __post_init__(self) -> None:
        if self.kind not in SIZES:
            raise ValueError(f"the kind of rule must be one of {', '.join(KINDS)}, got {self.kind!r}")
        low, high, usual = SIZES[self.kind]
        object.__setattr__(self, "size", usual if self.size is None else self.size)
        what = "conditions of a scorecard" if self.kind == CARD else f"depth of a {self.kind}"
        _whole(f"the {what} (size)", self.size, low, high)
        if self.leaves is not None:
            if self.kind == CARD:
                raise ValueError("leaves is for trees; bound the conditions of a scorecard by its size")
            _whole("leaves", self.leaves, 1, 16)
        if not 0.0 <= self.min_share < 0.5:
            raise ValueError(f"min_share must be at least 0 and below 0.5, got {self.min_share}; try {MIN_SHARE}")
        if self.exact and (self.kind == CARD or self.monotone or self.depth > 2):
            raise ValueError("exact=True looks at every cut of trees of depth 1 or 2 without monotone; leave it out")
        _whole("replicates", self.replicates, 10, 10_000)
        if isinstance(self.without, str):
            object.__setattr__(self, "without", (self.without,))

    @classmethod
    def of(cls, given: RuleSettings | Mapping[str, Any] | str) -> RuleSettings:
        """From "tree:2", "threshold" or "scorecard:4", or a mapping with the names of the settings.

        >>> RuleSettings.of("tree:3").size
        3
        """
        if isinstance(given, RuleSettings):
            return given
        if isinstance(given, str):
            kind, _, size = given.partition(":")
            if size and not size.isdecimal():
                raise ValueError(f"a rule is a kind and its size, such as tree:2 or scorecard:4, got {given!r}")
            return cls(kind=kind, size=int(size) if size else None)
        if not isinstance(given, Mapping):
            raise ValueError(f"a rule is text such as 'tree:2', or a mapping of settings, got {type(given).__name__}")
        known = [one.name for one in fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"a rule has no setting {unknown[0]!r}; it has {', '.join(known)}")
        return cls(**given)

    @property
    def depth(self) -> int:
        """Of a tree."""
        assert self.size is not None
        return self.size

    def resolved(self, columns: Columns, labels: Sequence[Any], rows: int, smallest: int = 1) -> Resolved:
        """By number, for some columns, actions and rows; names that do not exist are refused."""
        away = {j for name in self.without for j in _found(name, columns, "without")}
        features = tuple(j for j in range(len(columns.names)) if j not in away)
        if not features:
            raise ValueError("without leaves no column for the rule; name fewer of them")
        ranks: dict[int, tuple[int, ...]] = {}
        for name, towards in self.monotone.items():
            places = [j for j in _found(name, columns, "monotone") if columns.ordered[j]]
            if not places:
                raise ValueError(f"monotone names {name!r}, whose values have no order; leave it out")
            ranks |= dict.fromkeys(places, _ranks(towards, list(labels)))
        least = max(1, smallest, int(-(-self.min_share * rows // 1)))
        return Resolved(features, Limits(leaves=self.leaves, rows=least, ranks=ranks))

    def to_dict(self) -> dict[str, Any]:
        """The constraints, for a summary."""
        return {
            "without": [str(name) for name in self.without],
            "monotone": {
                str(name): [str(label) for label in towards] if _listed(towards) else str(towards)
                for name, towards in self.monotone.items()
            },
            "leaves": self.leaves,
            "min_share": self.min_share,
        }


def _whole(what: str, value: Any, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        wanted = f"{low}" if low == high else f"a whole number from {low} to {high}"
        raise ValueError(f"{what} must be {wanted}, got {value!r:.40}")


def _listed(towards: Any) -> bool:
    return isinstance(towards, list | tuple)


def _found(name: Any, columns: Columns, what: str) -> list[int]:
    """The features of a column, by its name or, where there are no names, its number."""
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(columns.names):
        return [name]
    found = [j for j, raw in enumerate(columns.raw) if raw == name]
    if not found:
        known = ", ".join(dict.fromkeys(columns.raw))
        raise ValueError(f"{what} names {name!r}, which is no feature; the features are {known:.200}")
    return found


def _ranks(towards: Any, labels: list[Any]) -> tuple[int, ...]:
    order = list(towards) if _listed(towards) else [towards]
    text = [str(label) for label in labels]
    unknown = [label for label in order if str(label) not in text]
    if unknown:
        raise ValueError(f"monotone moves towards {unknown[0]!r}, which is no action; the actions are {labels}")
    if not _listed(towards):
        return tuple(int(label == str(towards)) for label in text)
    if len(set(map(str, order))) != len(labels):
        raise ValueError(f"monotone must name all actions in their order, or one of them; the actions are {labels}")
    return tuple([str(label) for label in order].index(label) for label in text)
