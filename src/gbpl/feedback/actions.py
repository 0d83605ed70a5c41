"""Checks of a log: which action each row took, and how likely that was (section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.checks import label_array, row_number
from gbpl.tables.frames import TableError, is_missing
from gbpl.tables.labels import by_label, check_label_kinds, check_labels, labels_taken, same_label

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["check_actions", "check_propensity"]

NO_CHOICE = "drop rows in which there was no choice, or correct it"
EXACT_SUM = 1e-12  # within which a table is kept as it is, without a copy
SUM_TOLERANCE = 1e-3  # propensities from float32 or printed with four digits still sum to one within it


def check_actions(action: Any, n: int, actions: Sequence[Any] | None) -> tuple[np.ndarray, Int[np.ndarray, " row"]]:
    """Labels, and the column number of each row's action."""
    taken = action.to_numpy() if hasattr(action, "to_numpy") else action
    if isinstance(taken, list | tuple):  # numpy would turn ["a", 1] into strings
        taken = np.fromiter(taken, object, len(taken))
    taken = np.asarray(taken)
    if taken.ndim == 2 and taken.shape[1] == 1:
        taken = taken[:, 0]
    if taken.shape != (n,):
        raise TableError(f"action must have one label for each of the {n} rows, got shape {taken.shape}")
    listed = taken.tolist()
    missing = np.flatnonzero(is_missing(taken)).tolist()
    if missing:
        raise TableError(
            f"action is missing in {len(missing)} row(s), first in row {missing[0]}; drop those rows, or make 'none' "
            "an action of its own"
        )
    labels = list(dict.fromkeys(listed))
    check_label_kinds(labels, "action")
    try:
        labels.sort()
    except TypeError:  # labels of different types
        labels.sort(key=lambda label: (type(label).__name__, str(label)))
    place = {label: number for number, label in enumerate(labels)}
    codes = np.array([place[label] for label in listed], np.int64)
    if actions is None:
        check_labels(labels, "action", n)
        return label_array(labels), codes
    numbers, order = labels_taken(codes, labels, "action", label_array(actions).tolist())
    return label_array(order), numbers


def check_propensity(
    given: Any,
    action: Int[np.ndarray, " row"],
    labels: np.ndarray,
    *,
    name: str = "propensity",
    rows: Int[np.ndarray, " row"] | None = None,
) -> Float[np.ndarray, "row action"] | Float[np.ndarray, " row"]:
    """One column per action, or, where only the action taken is known, one number per row.

    `given` is one number (the probability of the second of two actions, or of each of more), a mapping from label to
    probability, one number per row (that of the action taken), or one column per action.
    """
    names, n, count = labels.tolist(), len(action), len(labels)
    if isinstance(given, str):
        raise TableError(
            f"propensity must be numbers, a classifier or None, got {given!r}; a column's name goes to from_frame"
        )
    if isinstance(given, Mapping):
        return np.tile(_normalized(_of_each(given, names)[None], names, rows), (n, 1))
    if hasattr(given, "columns") and len(given.columns) == count:
        given = _by_column(given, names)
    try:
        chances = np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given, np.float64)
    except (TypeError, ValueError):
        raise TableError(f"propensity must be numbers, got {given!r:.80}") from None
    if chances.ndim == 2 and chances.shape == (n, 1):
        chances = chances[:, 0]
    if chances.ndim == 0:
        return np.tile(_of_one(float(chances), given, count), (n, 1))
    if chances.shape == (n, count):
        for number, label in enumerate(names):
            _check_range(chances[:, number], f"action {label!r}", name, rows)
        return _normalized(chances, names, rows)
    if chances.shape == (n,):
        _check_range(chances, "the action taken", name, rows, below_one=count == 2)
        if count > 2:
            return chances
        return np.where(action[:, None] == np.arange(2), chances[:, None], 1.0 - chances[:, None])
    raise TableError(
        f"propensity must be one number, one for each of the {n} rows (that of the action taken), or a table of "
        f"({n}, {count}) with one column per action; got shape {chances.shape}"
    )


def _by_column(given: Any, names: Sequence[Any]) -> Any:
    """A frame's columns in the order of the actions; those without names (0, 1, ...) are in that order already."""
    columns = list(given.columns)
    if set(columns) == set(names):
        return given[list(names)]
    if all(type(column) is int for column in columns) and columns == list(range(len(columns))):
        return given
    labels = [same_label(column, names, "a column of propensity") for column in columns]
    return given[[columns[labels.index(name)] for name in names]] if len(set(labels)) == len(names) else given


def _of_one(chance: float, given: Any, count: int) -> Float[np.ndarray, " action"]:
    """Of a randomized trial, from one number."""
    if not 0.0 < chance < 1.0 or (count > 2 and abs(chance * count - 1.0) > SUM_TOLERANCE):
        of = "the second action" if count == 2 else f"each of {count} actions, so 1/{count}"
        raise TableError(
            f"propensity as one number is the probability of {of}, in (0, 1); got {given!r:.40}: give a mapping from "
            "action to probability, or one number per row"
        )
    return np.array([1.0 - chance, chance]) if count == 2 else np.full(count, 1.0 / count)


def _of_each(given: Mapping[Any, float], names: Sequence[Any]) -> Float[np.ndarray, " action"]:
    """Of a randomized trial, from a mapping."""
    chances = by_label(given, names, "propensity")
    absent = [label for label in names if label not in chances]
    if absent:
        raise TableError(f"propensity does not name the action {absent[0]!r}; give that of every action")
    if min(chances.values()) <= 0.0 or abs(sum(chances.values()) - 1.0) > SUM_TOLERANCE:
        raise TableError(f"propensity must be > 0 for every action and sum to 1, got {dict(given)!r:.200}")
    return np.array([chances[label] for label in names])


def _check_range(
    chances: Float[np.ndarray, " row"], whose: str, name: str, rows: Int[np.ndarray, " row"] | None, *,
    below_one: bool = False,
) -> None:  # fmt: skip
    wrong = ~((chances > 0.0) & ((chances < 1.0) if below_one else (chances <= 1.0)))  # true for NaN
    if wrong.any():
        percent = bool(np.all((chances > 0.0) & (chances < 100.0)) and np.median(chances) > 1.0)
        raise TableError(
            f"{name} is {chances[wrong][0]:g} in row {row_number(wrong, rows)} ({int(wrong.sum()):,} such row(s)); it "
            f"is the probability of {whose}, in {'(0, 1)' if below_one else '(0, 1]'}: "
            + ("it looks like percent: divide it by 100" if percent else NO_CHOICE)
        )


def _normalized(
    table: Float[np.ndarray, "row action"], names: Sequence[Any], rows: Int[np.ndarray, " row"] | None
) -> Float[np.ndarray, "row action"]:
    total = table.sum(axis=1)
    wrong = np.abs(total - 1.0) > SUM_TOLERANCE
    if wrong.any():
        raise TableError(
            f"propensities of row {row_number(wrong, rows)} sum to {total[wrong][0]:.4g}, not to one "
            f"({int(wrong.sum())} such row(s)); give one column per action, in the order of the actions {list(names)}"
        )
    exact = np.abs(total - 1.0).max(initial=0.0) <= EXACT_SUM
    return table if exact else table / total[:, None]
