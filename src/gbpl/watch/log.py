"""Rows of a log as a monitor takes them; whatever would break its promise is refused by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.frames import TableError, plain_array
from gbpl.tables.labels import by_label, read_labels, same_label

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["read_actions", "read_outcome", "read_propensity"]

SUM_TOLERANCE = 1e-3  # propensities printed with four digits sum to one within it


def _first(wrong: Bool[np.ndarray, " row"], first_row: int) -> int:
    return first_row + int(np.flatnonzero(wrong)[0])


def read_actions(given: Any, actions: Sequence[Any], first_row: int) -> Int[np.ndarray, " row"]:
    """Number of the action that each row took; labels may be written as text."""
    codes, labels = read_labels(plain_array(given, "action"), "action")
    if (codes < 0).any():
        raise TableError(
            f"action is missing in row {_first(codes < 0, first_row)}; drop rows in which nothing was decided"
        )
    numbers = [list(actions).index(same_label(label, actions, "the log")) for label in labels]
    return np.array(numbers, np.int64)[codes]


def read_outcome(given: Any, span: tuple[float, float], cut: bool, first_row: int) -> Float[np.ndarray, " row"]:
    """Outcomes within their range; others are refused, or cut at its ends."""
    outcome = _numbers(given, "outcome")
    gone = ~np.isfinite(outcome)
    if gone.any():
        raise TableError(
            f"outcome is missing or infinite in row {_first(gone, first_row)}; watch rows once their outcome is known"
        )
    wrong = (outcome < span[0]) | (outcome > span[1])
    if wrong.any() and not cut:
        raise TableError(
            f"outcome is {outcome[wrong][0]:g} in row {_first(wrong, first_row)}, outside its range {span[0]:g} to "
            f"{span[1]:g}, for which the bounds hold; begin with a wider one, or with cut, and then the value of "
            "outcomes cut at the range is bounded"
        )
    return np.clip(outcome, *span)


def read_propensity(
    given: Any, taken: Int[np.ndarray, " row"], actions: Sequence[Any], first_row: int
) -> Float[np.ndarray, "row action"] | Float[np.ndarray, " row"]:
    """One column per action, or, with three actions or more, one number per row where no more is known.

    An action may have propensity zero in a row that did not take it.
    """
    rows, count = len(taken), len(actions)
    if given is None:
        raise TableError("the bounds need the propensities of the log, and none are given; those estimated will not do")
    if isinstance(given, Mapping):
        chances = by_label(given, actions, "propensity")
        absent = [label for label in actions if label not in chances]
        if absent:
            raise TableError(f"propensity does not name the action {absent[0]!r}; give that of every action")
        given = np.tile([chances[label] for label in actions], (rows, 1))
    table = _numbers(given, "propensity")
    if table.ndim == 0 and count == 2:
        table = np.tile([1.0 - table, table], (rows, 1))
    elif table.ndim == 0:
        table = np.full((rows, count), table)
    if table.shape not in ((rows,), (rows, count)):
        raise TableError(
            f"propensity must be one number for each of the {rows} rows (that of the action taken), or have one column "
            f"for each of {count} actions; got shape {table.shape}"
        )
    if table.ndim == 1 and count == 2:
        table = np.where(taken[:, None] == np.arange(2), table[:, None], 1.0 - table[:, None])
    of_taken = table if table.ndim == 1 else table[np.arange(rows), taken]
    wrong = ~((of_taken > 0.0) & (of_taken <= 1.0)) | (table.ndim == 2 and ~((table >= 0.0).all(axis=-1)))
    if wrong.any():
        raise TableError(
            f"propensity is {of_taken[wrong][0]:g} for the action taken in row {_first(wrong, first_row)}; it is a "
            "probability above 0, and no other may be below 0"
        )
    if table.ndim == 1:
        return table
    off = np.abs(table.sum(axis=1) - 1.0) > SUM_TOLERANCE
    if off.any():
        raise TableError(
            f"propensities of row {_first(off, first_row)} sum to {table.sum(axis=1)[off][0]:.4g}, not to one; give "
            f"one column per action, in the order {list(actions)}"
        )
    return table / table.sum(axis=1, keepdims=True)


def _numbers(given: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given, np.float64)
    except (TypeError, ValueError):
        raise TableError(f"{what} must be numbers, got {given!r:.60}") from None
