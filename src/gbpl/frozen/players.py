"""The raw columns of a policy's row, each with the features it makes: what a person sees, and can change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.report.numbers import ascii_number
from gbpl.tables.features import MISSING, OTHER, CategoryColumn, NumberColumn

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Changes", "Player", "players_of"]

GRID = 201  # values of a number that are tried
MOST_PLACES = 10
WITHIN = 2.0  # standard deviations around the mean, where a file does not say what was seen


@dataclass(frozen=True, slots=True, eq=False)
class Changes:
    """What a column could be instead: its features, how far away that is, and the numbers, if it is one.

    A distance is in standard deviations; another category counts 1.
    """

    features: Float[np.ndarray, "change own"]
    distance: Float[np.ndarray, " change"]
    number: Float[np.ndarray, " change"] | None = None

    def some(self, most: int) -> Changes:
        """At most so many of them, evenly."""
        at = np.unique(np.linspace(0, len(self.distance) - 1, min(most, len(self.distance))).round().astype(int))
        return Changes(self.features[at], self.distance[at], None if self.number is None else self.number[at])


@dataclass(frozen=True, slots=True, eq=False)
class Player:
    """A raw column; `at` are its features, `low` to `high` what was seen of a number, `whole` if that was whole."""

    name: str
    at: Int[np.ndarray, " own"]
    column: NumberColumn | CategoryColumn | None
    mean: float
    scale: float
    low: float
    high: float
    whole: bool

    @property
    def reference(self) -> str | None:
        """The value of the average row; None for a category, whose features are then shares."""
        boolean = isinstance(self.column, NumberColumn) and self.column.boolean
        return None if boolean or isinstance(self.column, CategoryColumn) else self._number_text(self.mean)

    @property
    def places(self) -> int:
        """Decimal places of a tenth of the first digit of the standard deviation; below zero for large numbers."""
        return 1 - int(np.floor(np.log10(self.scale)))

    def text(self, x: Float[np.ndarray, " feature"], *, exact: bool = False) -> str:
        """The value of a row, as a person would write it; `exact` with all digits of a number."""
        own, column = x[self.at], self.column
        if isinstance(column, CategoryColumn):
            extra = [column.made(word) for word, used in ((OTHER, column.other), (MISSING, column.missing)) if used]
            if not own.any():
                return column.levels[0] if column.single else column.made(OTHER)
            return [*column.levels[int(column.single) :], *extra][int(np.argmax(own))]
        if column is not None and column.missing and own[1] > 0.5:
            return MISSING
        if column is not None and column.boolean and own[0] in (0.0, 1.0):
            return "true" if own[0] else "false"
        if exact:
            return np.format_float_positional(own[0], trim="-")
        return self._number_text(float(own[0]))

    def _number_text(self, value: float) -> str:
        text = ascii_number(value, int(np.clip(self.places + 1, 0, MOST_PLACES)))
        return text.rstrip("0").rstrip(".") if "." in text else text

    def number(self, value: float) -> Float[np.ndarray, " own"]:
        """The features of a number."""
        return np.append(value, np.zeros(len(self.at) - 1))  # not missing

    def changes(self, x: Float[np.ndarray, " feature"]) -> Changes:
        """What the column of a row could be instead, within what was seen, nearest first."""
        if isinstance(self.column, CategoryColumn) or (self.column is not None and self.column.boolean):
            return self._levels(x)
        values = np.linspace(self.low, self.high, GRID)
        values = np.unique(np.clip(values.round(0 if self.whole else self.places + 1), self.low, self.high))
        values = values[values != x[self.at[0]]]
        values = values[np.argsort(np.abs(values - x[self.at[0]]), kind="stable")]
        features = np.column_stack([values, np.zeros((len(values), len(self.at) - 1))])
        return Changes(features, np.abs(values - x[self.at[0]]) / self.scale, values)

    def _levels(self, x: Float[np.ndarray, " feature"]) -> Changes:
        column, own = self.column, x[self.at]
        assert column is not None
        levels: Any = column.levels if isinstance(column, CategoryColumn) else [False, True]
        made = np.zeros((len(levels), len(self.at)))
        column.encode(np.array(levels, object if isinstance(levels, tuple) else bool), made, 0)
        made = made[(made != own).any(axis=1)]
        return Changes(made, np.ones(len(made)))


def players_of(policy: Any) -> list[Player]:
    """The columns of a `NumpyPolicy`, in order; without an encoder each feature is one."""
    encoder, names = policy.encoder, getattr(policy, "feature_names_in_", None)
    if encoder is not None:
        parts: list[Any] = list(encoder.parts)
        titles, widths = [part.name for part in parts], [len(part.names) for part in parts]
    else:
        widths, parts = [1] * len(policy.mean), [None] * len(policy.mean)
        titles = [f"feature {j}" for j in range(len(widths))] if names is None else [str(name) for name in names]
    made, start = [], 0
    for title, part, width in zip(titles, parts, widths, strict=True):
        mean, scale = float(policy.mean[start]), float(policy.scale[start])
        low, high, whole = mean - WITHIN * scale, mean + WITHIN * scale, False
        if policy.seen is not None:
            low, high = float(policy.seen.low[start]), float(policy.seen.high[start])
            whole = bool(policy.seen.whole[start])
        made.append(Player(title, np.arange(start, start + width), part, mean, scale, low, high, whole))
        start += width
    return made
