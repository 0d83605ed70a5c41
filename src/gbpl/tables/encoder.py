"""A raw table as the numbers a policy sees: learned once, stored with the policy, applied with numpy alone."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.features import LEVELS, CategoryColumn, NumberColumn, learn_column
from gbpl.tables.frames import TableError, column_places, picked_column, require_columns, rows_of

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Encoder"]

FORMAT = 2  # 1: without the spans of numbers


@dataclass(frozen=True, slots=True)
class Encoder:
    """How each column becomes features; the features of a row depend on that row alone.

    >>> encoder, notes = Encoder.fit({"age": [31, None, 40, 52, 28, 60], "sex": ["f", "m", "f", "m", "m", "f"]})
    >>> encoder.names
    ['age', 'age is missing', 'sex=m']
    """

    parts: tuple[NumberColumn | CategoryColumn, ...]

    @classmethod
    def fit(
        cls, frame: Any, features: Sequence[str] | None = None, *, exclude: Iterable[str] = ()
    ) -> tuple[Encoder, list[str]]:
        """Encoder of the named columns, or of all that can be used, and what was decided, in words.

        `exclude`: columns with another role.
        """
        places, rows = column_places(frame), rows_of(frame)
        roles = [exclude] if isinstance(exclude, str) else list(exclude)
        named = [features] if isinstance(features, str) else features
        chosen = [name for name in places if name not in roles] if named is None else list(named)
        require_columns([*roles, *chosen], list(places), "the table")
        twice = next((name for name, count in Counter([*dict.fromkeys(roles), *chosen]).items() if count > 1), None)
        if twice is not None:
            raise TableError(f"column {twice!r} is a feature and named once more; a column has one role")
        if rows == 0 and places:
            raise TableError("the table has no rows; there is nothing to learn from")
        learned = [learn_column(picked_column(frame, places[name]), name, named is not None) for name in chosen]
        notes = [note for _, of_column in learned for note in of_column]
        parts = tuple(part for part, _ in learned if part is not None)
        if not parts:
            why = "; ".join(notes[:5]) or "none is named, or all have another role"
            raise TableError(f"no column is left for the features: {why}")
        return cls(parts), notes

    @property
    def columns(self) -> list[str]:
        """Raw columns that `apply` needs."""
        return [part.name for part in self.parts]

    def arrow_types(self) -> dict[str, str]:
        """What a reader makes of each raw column: number, boolean or category."""
        return {part.name: part.to_json()["kind"] for part in self.parts}

    @property
    def names(self) -> list[str]:
        """Features in order, each name once: a column may be called 'a=b' beside level 'b' of column 'a'."""
        taken: Counter[str] = Counter()
        names: list[str] = []
        for name in (name for part in self.parts for name in part.names):
            text = name
            while taken[text]:
                taken[name] += 1
                text = f"{name} ({taken[name]})"
            taken[text] += 1
            names.append(text)
        return names

    @property
    def raw_names(self) -> list[str]:
        """The column that each feature comes from."""
        return [part.name for part in self.parts for _ in part.names]

    @property
    def kinds(self) -> list[str]:
        """What each feature is: number (booleans too), category (a level), or missing (a mark of missing numbers)."""
        return [kind for part in self.parts for kind in part.kinds]

    def apply(self, frame: Any, *, first_row: int = 0) -> tuple[Float[np.ndarray, "row feature"], Counter[str]]:
        """Features of every row, and counts of what was missing or new: 'missing age', 'new level of region'.

        Columns are taken by name, others ignored. `first_row` is the number of a batch's first row in messages.
        """
        places, rows = column_places(frame), rows_of(frame)
        require_columns(self.columns, list(places), "the table")
        widths = [len(part.kinds) for part in self.parts]
        ends = np.cumsum(widths).tolist()
        out = np.zeros((rows, ends[-1]))
        counts: Counter[str] = Counter()
        for part, end, width in zip(self.parts, ends, widths, strict=True):
            counts += part.encode(picked_column(frame, places[part.name]), out[:, end - width : end], first_row)
        return out, counts

    def to_json(self) -> dict[str, Any]:
        columns = [part.to_json() for part in self.parts]
        return {"format": FORMAT if any("span" in column for column in columns) else 1, "columns": columns}

    @classmethod
    def from_json(cls, stored: Any) -> Encoder:
        """The encoder that `to_json` wrote; anything else is refused."""
        _require(isinstance(stored, dict) and set(stored) == {"format", "columns"}, "format and columns are needed")
        version, listed = stored["format"], stored["columns"]
        _require(
            type(version) is int and 1 <= version <= FORMAT,
            f"format {version!r:.40} is not 1 to {FORMAT}",
        )
        _require(isinstance(listed, list) and len(listed) > 0, "its columns are not a list of some")
        parts = tuple(_part(item, version) for item in listed)
        _require(len({part.name for part in parts}) == len(parts), "a column is there twice")
        return cls(parts)


def _require(fine: bool, what: str) -> None:
    if not fine:
        raise TableError(f"this is not a stored encoder: {what}; save the policy again")


def _part(stored: Any, version: int) -> NumberColumn | CategoryColumn:
    kind = stored.get("kind") if isinstance(stored, dict) else None
    known = isinstance(kind, str) and kind in ("number", "boolean", "category")
    _require(known, f"a column's kind is {kind!r:.40}, not number, boolean or category")
    texts: dict[str, Any] = {"name": str, "kind": str, "missing": bool}
    own: dict[str, Any] = {"levels": list, "other": bool} if kind == "category" else {"fill": (int, float)}
    if version > 1 and kind == "number" and "span" in stored:
        own["span"] = list
    shown = f"column {stored.get('name')!r:.40}"
    _require(set(stored) == {*texts, *own}, f"{shown} must have {', '.join([*texts, *own])}, and no more")
    for key, wanted in (texts | own).items():
        fine = isinstance(stored[key], wanted) and (wanted is bool or not isinstance(stored[key], bool))
        _require(fine, f"{key} of {shown} is {stored[key]!r:.40}")
    if kind == "category":
        levels = stored["levels"]
        fine = all(isinstance(level, str) for level in levels) and levels == sorted(set(levels))
        _require(fine and len(levels) <= LEVELS, f"levels of {shown} are not at most {LEVELS} different texts in order")
        _require(bool(levels) or stored["other"] or stored["missing"], f"{shown} has no level")
        return CategoryColumn(stored["name"], tuple(levels), stored["other"], stored["missing"])
    fill = stored["fill"]
    fine = abs(fill) <= sys.float_info.max and (kind == "number" or 0 <= fill <= 1)  # false for NaN
    _require(bool(fine), f"fill of {shown} is {fill!r:.40}")
    span = stored.get("span")
    if span is not None:
        plain = len(span) == 2 and all(type(end) in (int, float) and abs(end) <= sys.float_info.max for end in span)
        _require(plain and span[0] <= span[1], f"span of {shown} is {span!r:.40}")
        span = float(span[0]), float(span[1])
    return NumberColumn(stored["name"], float(fill), stored["missing"], kind == "boolean", span)
