"""What a user brings, checked once: features, outcomes of every action, weights (section 2).

Nothing behind this file checks user data again. A message says the value, the rule and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_array

from gbpl.runtime.devices import aligned_empty
from gbpl.runtime.warn import warn

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = [
    "FullFeedback", "Standardizer", "align_outcomes", "check_column", "check_cost", "check_features", "check_groups",
    "check_outcomes", "check_weights", "label_array", "unit_of",
]  # fmt: skip

CHUNK = 65_536  # rows handled at a time where a temporary copy of everything would cost memory


def _names(table: Any, columns: Bool[np.ndarray, " column"] | Sequence[int]) -> str:
    """Column names, or numbers where there are none, at most five."""
    numbers = np.flatnonzero(columns) if np.asarray(columns).dtype == bool else np.asarray(columns)
    given = getattr(table, "columns", None)
    shown = [repr(given[i]) if given is not None else str(i) for i in numbers[:5]]
    return ", ".join(shown) + (", ..." if len(numbers) > 5 else "")


def _numeric(table: Any, name: str) -> None:
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
        raise ValueError(
            f"{name} has {len(wrong)} column(s) that are not numbers: {_names(table, wrong)}; encode them first, for "
            f"example with sklearn.preprocessing.OneHotEncoder or TargetEncoder"
        )


def _finite(values: np.ndarray, table: Any, name: str) -> None:
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
    row = int(np.flatnonzero(~finite.reshape(len(values), -1).all(axis=1))[0])
    raise ValueError(
        f"{name} contains {what}{where}, first in row {row}; drop those rows or impute them, for example with "
        f"sklearn.impute.SimpleImputer"
    )


def check_features(X: Any, *, min_rows: int = 1, name: str = "X") -> Float[np.ndarray, "row feature"]:
    """Features as a finite float table."""
    _numeric(X, name)
    x = check_array(
        X, dtype=(np.float64, np.float32), ensure_all_finite=False, ensure_min_samples=min_rows, input_name=name
    )
    _finite(x, X, name)
    return x


def check_column(values: Any, n: int, name: str, what: str) -> Float[np.ndarray, " row"]:
    """One finite number a row."""
    if values is None:
        raise ValueError(f"fit requires {name} to be passed, but the target {name} is None: {what}")
    try:
        column = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, {what}; got {values!r:.80}") from None
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.shape != (n,):
        raise ValueError(f"{name} must have one number for each of the {n} rows, {what}; got shape {column.shape}")
    _finite(column, None, name)
    return column


def check_outcomes(Y: Any, n: int) -> Float[np.ndarray, "row action"]:
    """Outcomes as a finite float table with a column for each action."""
    if Y is None:
        raise ValueError("fit requires y to be passed, but the target y is None: one column for each action")
    _numeric(Y, "y")
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
        raise ValueError(
            f"y must be a table with one column for each action, or one column with the gap between two actions; got "
            f"shape {outcomes.shape}"
        )
    if len(outcomes) != n:
        raise ValueError(
            f"X and y have inconsistent numbers of samples: {n} and {len(outcomes)}; every row needs its outcomes"
        )
    _finite(outcomes, Y, "y")
    if outcomes.shape[1] == 1:
        outcomes = np.concatenate([np.zeros_like(outcomes), outcomes], axis=1)  # U = Y(1) - Y(0) with Y(0) = 0
    return outcomes


def check_weights(sample_weight: Any, n: int) -> Float[np.ndarray, " row"] | None:
    """Sample weights as finite numbers >= 0 with a positive sum, or None."""
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"sample_weight must be numbers, got {sample_weight!r:.80}") from None
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have one number for each of the {n} rows, got shape {weights.shape}")
    _finite(weights, None, "sample_weight")
    if (weights < 0).any() or not weights.sum() > 0:
        raise ValueError(
            f"sample_weight must be >= 0 and not all zero, got smallest {weights.min():g} and sum {weights.sum():g}"
        )
    return weights


def check_groups(groups: Any, n: int) -> Int[np.ndarray, " row"] | None:
    """Group of each row as numbers from zero, or None."""
    if groups is None:
        return None
    given = np.asarray(groups.to_numpy() if hasattr(groups, "to_numpy") else groups)
    if given.shape != (n,):
        raise ValueError(f"groups must have one label for each of the {n} rows, got shape {given.shape}")
    place: dict[Any, int] = {}
    numbers = np.array([place.setdefault(label, len(place)) for label in given.tolist()], np.int64)
    if len(place) < 2:
        raise ValueError(
            f"all rows are in one group, {given[0]!r}: folds keep groups together, so two or more are needed"
        )
    return numbers


def check_cost(cost: Any, actions: np.ndarray, n: int) -> Float[np.ndarray, "row action"] | None:
    """What each action costs on each row, in units of the outcome, or None."""
    if cost is None:
        return None
    labels = actions.tolist()
    if hasattr(cost, "columns"):
        cost = align_outcomes(cost, actions, "cost")
    elif hasattr(cost, "index") and hasattr(cost, "to_dict") and set(cost.index) == set(labels):
        cost = cost.to_dict()
    if isinstance(cost, Mapping):
        unknown = [label for label in cost if label not in labels]
        if unknown:
            raise ValueError(f"cost names {unknown[0]!r}, but the actions are {labels}")
        cost = [cost.get(label, 0.0) for label in labels]
    try:
        table = np.asarray(cost.to_numpy() if hasattr(cost, "to_numpy") else cost, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"cost must be numbers, one for each action, got {cost!r:.80}") from None
    if table.ndim == 0:
        raise ValueError(
            f"cost is {float(table):g}, but of which action? Give a mapping, such as "
            f"{{{labels[-1]!r}: {float(table):g}}}"
        )
    if table.shape not in ((len(labels),), (n, len(labels))):
        raise ValueError(
            f"cost must be a mapping from action to cost, one number for each of the {len(labels)} actions, or a table "
            f"of ({n}, {len(labels)}); got shape {table.shape}"
        )
    if not np.isfinite(table).all():
        raise ValueError("cost must be finite, got NaN or inf; an action without a cost has 0")
    return np.broadcast_to(table, (n, len(labels)))


def label_array(labels: Any) -> np.ndarray:
    """Labels of actions as an array that gives them back as they came: mixed ones stay what they are."""
    try:
        listed = list(labels)
    except TypeError:
        raise ValueError(f"actions must be a list of labels, got {labels!r}") from None
    if len({(type(label), label) for label in listed}) != len(listed):
        raise ValueError(f"actions must differ from each other, got {listed}")
    array = np.asarray(listed)
    if array.ndim != 1 or [type(label) for label in array.tolist()] != [type(label) for label in listed]:
        array = np.empty(len(listed), object)
        array[:] = listed
    return array


def _check_actions(actions: Any, Y: Any, count: int) -> np.ndarray:
    if actions is None:
        named = getattr(Y, "columns", None)
        actions = named if named is not None and len(named) == count else range(count)
    labels = label_array(actions)
    if len(labels) != count:
        raise ValueError(f"actions must name the {count} actions of y, got {len(labels)}: {labels.tolist()}")
    return labels


def align_outcomes(Y: Any, actions: np.ndarray, name: str = "y") -> Any:
    """A frame's columns in the order of the actions they are named after; anything else as it is."""
    named = getattr(Y, "columns", None)
    if named is None or len(named) != len(actions) or list(named) == actions.tolist():
        return Y
    unknown = [name for name in named if name not in actions.tolist()]
    if unknown:
        raise ValueError(f"{name} has column(s) {unknown}, but the actions are {actions.tolist()}; rename or drop them")
    return Y[actions.tolist()]


@dataclass(frozen=True, slots=True, eq=False)
class FullFeedback:
    """Features and the outcome of every action, for every row.

    `weights` are the user's sample weights, rows of weight zero removed; `actions` are the user's labels; rows of one
    of the `groups` stay in one fold.
    """

    x: Float[np.ndarray, "row feature"]
    outcomes: Float[np.ndarray, "row action"]
    weights: Float[np.ndarray, " row"] | None
    actions: np.ndarray
    groups: Int[np.ndarray, " row"] | None = None

    @classmethod
    def of(
        cls,
        X: Any,
        Y: Any,
        *,
        actions: Sequence[Any] | None = None,
        cost: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        min_rows: int = 2,
    ) -> FullFeedback:
        """Check a user's arrays or frames; one outcome column means the gap between two actions."""
        x = check_features(X, min_rows=min_rows)
        outcomes = check_outcomes(Y, len(x))
        weights = check_weights(sample_weight, len(x))
        labels = _check_actions(actions, Y, outcomes.shape[1])
        paid, parts = check_cost(cost, labels, len(x)), check_groups(groups, len(x))
        if paid is not None:
            outcomes = outcomes - paid
        if weights is not None and (weights == 0).any():
            kept = weights > 0
            x, outcomes, weights = x[kept], outcomes[kept], weights[kept]
            parts = None if parts is None else check_groups(parts[kept], int(kept.sum()))
        return cls(x, outcomes, weights, labels, parts)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def scale(self) -> float:
        """Root mean square difference between the outcomes of two different actions."""
        total = 0.0
        count = self.outcomes.shape[1]
        for start in range(0, len(self), CHUNK):
            part = np.asarray(self.outcomes[start : start + CHUNK], np.float64)
            part = part - part[:, :1]  # exactly zero where the actions do not differ
            part = part - part.mean(axis=1, keepdims=True)
            weight = 1.0 if self.weights is None else self.weights[start : start + CHUNK, None]
            total += float(np.sum(weight * part**2))
        size = len(self) if self.weights is None else float(self.weights.sum())
        return float(np.sqrt(2.0 / (count - 1) * total / size))


def unit_of(scale: float) -> float:
    """The outcome scale as a unit; 1, with a warning, where it is 0."""
    if scale > 0.0:
        return scale
    warn(
        "the outcomes of the actions never differ: every policy has the same welfare, and the one fitted means nothing"
    )
    return 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Standardizer:
    """Mean and standard deviation of each feature on the training rows; a constant feature keeps scale 1."""

    mean: Float[np.ndarray, " feature"]
    scale: Float[np.ndarray, " feature"]

    @classmethod
    def fit(
        cls,
        x: Float[np.ndarray, "row feature"],
        rows: Int[np.ndarray, " train"],
        weights: Float[np.ndarray, " train"] | None = None,
    ) -> Standardizer:
        """Weighted moments over the named rows."""

        def parts() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for start in range(0, len(rows), CHUNK):
                named = rows[start : start + CHUNK]
                weight = np.ones(len(named)) if weights is None else weights[start : start + CHUNK]
                yield np.asarray(x[named], np.float64), weight

        total = len(rows) if weights is None else float(weights.sum())
        mean = sum(weight @ part for part, weight in parts()) / total
        variance = sum(weight @ (part - mean) ** 2 for part, weight in parts()) / total
        spread = np.sqrt(variance)
        constant = spread <= 1e-12 * np.abs(mean)  # rounding of the mean, not variation
        return cls(np.asarray(mean), np.where(constant, 1.0, spread))

    def apply(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row feature"]:
        out = aligned_empty(x.shape)
        for start in range(0, len(x), CHUNK):
            out[start : start + CHUNK] = (x[start : start + CHUNK] - self.mean) / self.scale
        return out
