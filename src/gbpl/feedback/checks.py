"""Checks of the user's data: features, outcomes, weights, groups, costs.

Nothing behind this folder checks user data again. A message says the value, the rule and the remedy. Each check serves
arrays, frames and tables alike: `name` is what the message calls the values, and `rows` are their row numbers where
some rows of a table have been left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array

from gbpl.feedback.given import LARGEST, SMALLEST, check_magnitude
from gbpl.tables.frames import TableError, is_missing

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = [
    "align_outcomes", "check_column", "check_cost", "check_features", "check_groups", "check_outcomes", "check_weights",
    "feature_names", "label_array", "row_number",
]  # fmt: skip


MOST_WEIGHT = 1e12  # times the smallest weight: beyond, rounding is larger than what the smallest adds


def row_number(wrong: Bool[np.ndarray, " row"], rows: Int[np.ndarray, " row"] | None) -> int:
    """The number of the first row that is wrong."""
    place = int(np.argmax(wrong))
    return place if rows is None else int(rows[place])


def _names(table: Any, columns: Bool[np.ndarray, " column"] | Sequence[int]) -> str:
    """Column names, or numbers where there are none, at most five."""
    numbers = np.flatnonzero(columns) if np.asarray(columns).dtype == bool else np.asarray(columns)
    names = getattr(table, "columns", None)
    shown = [repr(names[i]) if names is not None else str(i) for i in numbers[:5]]
    return ", ".join(shown) + (", ..." if len(numbers) > 5 else "")


def _refuse_text(table: Any, name: str) -> None:
    """Refuse frames with columns that are not numbers, by name."""
    if not hasattr(table, "columns") or not hasattr(table, "dtypes"):
        return
    numeric = [getattr(t, "is_numeric", None) for t in table.dtypes]
    kinds = [
        is_numeric() or str(t) == "Boolean" if callable(is_numeric) else getattr(t, "kind", "O") in "biuf"
        for t, is_numeric in zip(table.dtypes, numeric, strict=True)
    ]
    wrong = [i for i, fine in enumerate(kinds) if not fine]
    if wrong:
        raise TableError(
            f"{name} has {len(wrong)} column(s) that are not numbers: {_names(table, wrong)}; encode them first, for "
            f"example with sklearn.preprocessing.OneHotEncoder or TargetEncoder"
        )


def _refuse_gaps(values: np.ndarray, table: Any, name: str) -> None:
    """Refuse values that are missing or infinite."""
    finite = np.isfinite(values)
    if finite.all():
        return
    missing = int(np.isnan(values).sum())
    infinite = values.size - int(finite.sum()) - missing
    what = " and ".join(
        f"{count} {word} value(s)" for count, word in ((missing, "NaN"), (infinite, "infinite (inf)")) if count
    )
    where = ""
    if values.ndim == 2:
        where = f" in column(s) {_names(table, ~finite.all(axis=0))}"
    row = row_number(~finite.reshape(len(values), -1).all(axis=1), None)
    raise TableError(
        f"{name} contains {what}{where}, first in row {row}; drop those rows or impute them, for example with "
        f"sklearn.impute.SimpleImputer"
    )


def check_features(X: Any, *, min_rows: int = 1, name: str = "X") -> Float[np.ndarray, "row feature"]:
    """Features as a finite float table."""
    _refuse_text(X, name)
    x = check_array(
        X, dtype=(np.float64, np.float32), ensure_all_finite=False, ensure_min_samples=min_rows, input_name=name
    )
    _refuse_gaps(x, X, name)
    large = np.abs(x).max(axis=0, initial=0.0).astype(np.float64) > LARGEST
    if large.any():
        column = int(np.argmax(large))
        check_magnitude(x[:, column], f"column {_names(X, [column])} of {name}")
    return x


def feature_names(*tables: Any) -> list[str] | None:
    """Names of the columns of tables side by side, by number in those that have none; None where none has."""
    if not any(hasattr(table, "columns") for table in tables):
        return None
    listed: list[str] = []
    for table in tables:
        names = getattr(table, "columns", None)
        numbered = [f"column {j}" for j in range(np.shape(table)[1])] if names is None else ()
        listed += numbered if names is None else [str(name) for name in names]
    return listed


def check_column(values: Any, n: int, name: str, what: str) -> Float[np.ndarray, " row"]:
    """One finite number per row."""
    if values is None:
        raise TableError(f"fit requires {name} to be passed, but the target {name} is None: {what}")
    try:
        column = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values, np.float64)
    except (TypeError, ValueError):
        raise TableError(f"{name} must be numbers, {what}; got {values!r:.80}") from None
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (n,):
        raise TableError(f"{name} must have one number for each of the {n} rows, {what}; got shape {column.shape}")
    _refuse_gaps(column, None, name)
    check_magnitude(column, name)
    return column


def check_outcomes(Y: Any, n: int, gap: Any = None) -> Float[np.ndarray, "row action"]:
    """Outcomes as a finite float table with one column per action; of a gap, those of the first action are zero."""
    if gap is not None:
        if Y is not None:
            raise TableError("y and outcome_gap are both given; give the outcomes of every action, or their gap")
        apart = check_column(gap, n, "outcome_gap", "the outcome of the second action less that of the first")
        return np.column_stack([np.zeros_like(apart), apart])  # U = Y(1) - Y(0) with Y(0) = 0
    if Y is None:
        raise TableError("fit requires y to be passed, but the target y is None: one column for each action")
    _refuse_text(Y, "y")
    if hasattr(Y, "to_numpy") and not hasattr(Y, "columns"):
        Y = Y.to_numpy()
    outcomes = check_array(
        Y,
        dtype=(np.float64, np.float32),
        ensure_2d=False,
        ensure_all_finite=False,
        ensure_min_features=0,
        input_name="y",
        allow_nd=True,
    )
    if outcomes.ndim == 1:
        outcomes = outcomes[:, None]
    if outcomes.ndim != 2 or outcomes.shape[1] == 0:
        raise TableError(f"y must be a table with one column for each action; got shape {outcomes.shape}")
    if len(outcomes) != n:
        raise TableError(
            f"X and y have inconsistent numbers of samples: {n} and {len(outcomes)}; every row needs its outcomes"
        )
    _refuse_gaps(outcomes, Y, "y")
    check_magnitude(outcomes, "y")
    if outcomes.shape[1] == 1:
        raise TableError(
            "y has one column, and which action each row took is not given: pass action=, one label per row (and "
            "propensity=, if it is known); or y with one column per action; or outcome_gap=, the outcome of the second "
            "of two actions less that of the first"
        )
    return outcomes


def check_weights(
    weights: Any, n: int, *, name: str = "sample_weight", rows: Int[np.ndarray, " row"] | None = None
) -> Float[np.ndarray, " row"]:
    """One finite weight >= 0 per row, not all of them zero."""
    try:
        numbers = np.asarray(weights, np.float64)
    except (TypeError, ValueError):
        raise TableError(f"{name} must be numbers, got {weights!r:.80}") from None
    if numbers.ndim == 0:
        numbers = np.full(n, float(numbers))
    if numbers.shape != (n,):
        raise TableError(f"{name} must have one number for each of the {n} rows, got shape {numbers.shape}")
    _refuse_gaps(numbers, None, name)
    if (numbers < 0.0).any():
        value, row = numbers[numbers < 0.0][0], row_number(numbers < 0.0, rows)
        raise TableError(f"{name} is {value:g} in row {row}; a weight is >= 0: correct it")
    if not numbers.sum() > 0.0:
        raise TableError(f"{name} is zero in every row; leave it out, or give other weights")
    low, high = float(numbers[numbers > 0.0].min()), float(numbers.max())
    if high / MOST_WEIGHT > low:
        raise TableError(
            f"{name} runs from {low:.3g} to {high:.3g}: rows of the smallest would count for nothing beside the "
            "largest; correct them, or give those rows 0"
        )
    if not SMALLEST <= high <= LARGEST:  # only ratios matter
        numbers = np.ldexp(numbers, -int(np.frexp(high)[1]))
    return numbers


def check_groups(groups: Any, n: int, *, name: str = "groups") -> Int[np.ndarray, " row"]:
    """Group of each row as numbers from zero, in the order in which groups first appear."""
    labels = np.asarray(groups.to_numpy() if hasattr(groups, "to_numpy") else groups)
    if labels.shape != (n,):
        raise TableError(f"{name} must have one label for each of the {n} rows, got shape {labels.shape}")
    gone = is_missing(labels)
    if gone.any():
        raise TableError(
            f"{name} is missing in {int(gone.sum()):,} row(s), first in row {int(np.argmax(gone))}; drop those rows, "
            "or give each a group of its own"
        )
    place: dict[Any, int] = {}
    numbers = np.array([place.setdefault(label, len(place)) for label in labels.tolist()], np.int64)
    if len(place) < 2:
        raise TableError(
            f"all rows are in one group of {name}, {labels.tolist()[0]!r}: folds keep groups together, so two or more "
            "are needed; leave it out"
        )
    return numbers


def check_cost(cost: Any, actions: np.ndarray, n: int) -> Float[np.ndarray, "row action"]:
    """What each action costs on each row, in units of the outcome."""
    labels = actions.tolist()
    if hasattr(cost, "columns"):
        cost = align_outcomes(cost, actions, "cost")
    elif hasattr(cost, "index") and hasattr(cost, "to_dict") and set(cost.index) == set(labels):
        cost = cost.to_dict()
    if isinstance(cost, Mapping):
        unknown = [label for label in cost if label not in labels]
        if unknown:
            raise TableError(f"cost names {unknown[0]!r}, but the actions are {labels}")
        cost = [cost.get(label, 0.0) for label in labels]
    try:
        table = np.asarray(cost.to_numpy() if hasattr(cost, "to_numpy") else cost, np.float64)
    except (TypeError, ValueError):
        raise TableError(f"cost must be numbers, one for each action, got {cost!r:.80}") from None
    if table.ndim == 0:
        raise TableError(
            f"cost is {float(table):g}, but of which action? Give a mapping, such as "
            f"{{{labels[-1]!r}: {float(table):g}}}"
        )
    if table.shape not in ((len(labels),), (n, len(labels))):
        raise TableError(
            f"cost must be a mapping from action to cost, one number for each of the {len(labels)} actions, or a table "
            f"of ({n}, {len(labels)}); got shape {table.shape}"
        )
    if not np.isfinite(table).all():
        raise TableError("cost must be finite, got NaN or inf; an action without a cost has 0")
    return np.broadcast_to(table, (n, len(labels)))


def label_array(labels: Any) -> np.ndarray:
    """Labels of actions as an array that keeps their types, also where they are mixed."""
    try:
        listed = list(labels)
    except TypeError:
        raise TableError(f"actions must be a list of labels, got {labels!r}") from None
    if len({(type(label), label) for label in listed}) != len(listed):
        raise TableError(f"actions must differ from each other, got {listed}")
    array = np.asarray(listed)
    if array.ndim != 1 or [type(label) for label in array.tolist()] != [type(label) for label in listed]:
        array = np.empty(len(listed), object)
        array[:] = listed
    return array


def align_outcomes(Y: Any, actions: np.ndarray, name: str = "y") -> Any:
    """A frame's columns in the order of the actions they are named after; anything else as it is."""
    names = getattr(Y, "columns", None)
    if names is None or len(names) != len(actions) or list(names) == actions.tolist():
        return Y
    unknown = [column for column in names if column not in actions.tolist()]
    if unknown:
        raise TableError(f"{name} has column(s) {unknown}, but the actions are {actions.tolist()}; rename or drop them")
    return Y[actions.tolist()]
