"""Logged feedback, checked once: features, the action taken, its outcome, and how likely it was (section 7).

Nothing behind this file checks user data again. A message says the value, the rule and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import _safe_indexing

from gbpl.feedback.full import check_column, check_cost, check_features, check_groups, check_weights, label_array

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["LoggedFeedback"]

EXACT_SUM = 1e-12  # within which a table is kept as it is, without a copy
SUM_TOLERANCE = 1e-3  # propensities from float32 or printed with four digits still sum to one within it


@dataclass(frozen=True, slots=True, eq=False)
class LoggedFeedback:
    """Rows on which somebody chose: features, action, outcome of that action.

    `action` holds column numbers and `actions` the user's labels. `propensity` has a column for each action, or one
    number a row (that of the action taken), or is None where it is to be estimated by `classifier` (None: the
    default). The policy sees `x`; models of outcomes and propensities see `x` and `controls`. `source` is the table
    of features as it was given.
    """

    x: Float[np.ndarray, "row feature"]
    outcome: Float[np.ndarray, " row"]
    action: Int[np.ndarray, " row"]
    actions: np.ndarray
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"] | None = None
    classifier: Any = None
    controls: Float[np.ndarray, "row control"] | None = None
    cost: Float[np.ndarray, "row action"] | None = None
    weights: Float[np.ndarray, " row"] | None = None
    groups: Int[np.ndarray, " row"] | None = None
    source: Any = None

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        action: Any,
        *,
        propensity: Any = None,
        controls: Any = None,
        cost: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        actions: Sequence[Any] | None = None,
    ) -> LoggedFeedback:
        """Check a user's arrays or frames.

        `propensity`: a number (two actions: the probability of the second; more: the same for each), a mapping from
        label to probability, one number a row, one column for each action, a scikit-learn classifier, or None.
        `cost`: a mapping from label to cost, one number an action, or a table.
        `actions`: the labels in the order wanted; those found in the data, sorted, if None.
        """
        x = check_features(X, min_rows=2)
        outcome = check_column(y, len(x), "y", "the outcome of the action taken")
        labels, numbers = _check_logged_actions(action, len(x), actions)
        known, classifier = _check_propensity(propensity, numbers, labels, len(x))
        extra = None
        if controls is not None:
            extra = check_features(controls, min_rows=2, name="controls")
            if len(extra) != len(x):
                raise ValueError(f"X and controls have inconsistent numbers of samples: {len(x)} and {len(extra)}")
        weights = check_weights(sample_weight, len(x))
        made = cls(
            x=x,
            outcome=outcome,
            action=numbers,
            actions=labels,
            propensity=known,
            classifier=classifier,
            controls=extra,
            cost=check_cost(cost, labels, len(x)),
            weights=weights,
            groups=check_groups(groups, len(x)),
            source=X,
        )
        return made if weights is None or (weights > 0).all() else made._counted(weights > 0)

    def _counted(self, kept: np.ndarray) -> LoggedFeedback:
        """Without rows of weight zero."""
        lost = np.setdiff1d(np.arange(len(self.actions)), self.action[kept])
        if len(lost):
            raise ValueError(
                f"action {self.actions.tolist()[lost[0]]!r} is taken only in rows of sample_weight 0; leave it out of "
                "the actions, or give such rows a weight"
            )
        names = ("x", "outcome", "action", "propensity", "controls", "cost", "weights")
        parts = {name: getattr(self, name) for name in names}
        counted = {name: part[kept] for name, part in parts.items() if part is not None}
        groups = None if self.groups is None else check_groups(self.groups[kept], int(kept.sum()))
        return replace(self, **counted, groups=groups, source=_safe_indexing(self.source, np.flatnonzero(kept)))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def net_outcome(self) -> Float[np.ndarray, " row"]:
        """Outcome less what the action taken cost."""
        return self.outcome if self.cost is None else self.outcome - self.cost[np.arange(len(self)), self.action]

    @property
    def context(self) -> Float[np.ndarray, "row column"]:
        """What models of outcomes and propensities see: features and controls."""
        return self.x if self.controls is None else np.hstack([self.x, self.controls])

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        outcome: str,
        action: str,
        features: Sequence[str] | None = None,
        propensity: Any = None,
        controls: Sequence[str] | None = None,
        cost: Any = None,
        sample_weight: str | None = None,
        groups: str | None = None,
        actions: Sequence[Any] | None = None,
    ) -> LoggedFeedback:
        """From a pandas or polars frame by column names.

        `features` are all columns with no other role if None. `propensity` is a column, a list of columns (one for
        each action, in the order of the actions), or anything `of` takes.
        """
        table = _Frame(frame)
        features, controls = ([part] if isinstance(part, str) else part for part in (features, controls))
        listed = isinstance(propensity, list | tuple) and propensity and all(isinstance(p, str) for p in propensity)
        roles = [outcome, action, *(controls or []), *[name for name in (sample_weight, groups) if name is not None]]
        if isinstance(propensity, str):
            roles.append(propensity)
        elif listed:
            roles += propensity
        table.check(roles + list(features or []))
        chosen = [name for name in table.columns if name not in roles] if features is None else list(features)
        if not chosen:
            raise ValueError(f"no column is left for the features: {table.columns} all have a role; name the features")
        if isinstance(propensity, str):
            propensity = table.column(propensity)
        elif listed:
            propensity = np.column_stack([table.column(name) for name in propensity])
        return cls.of(
            frame[chosen],
            table.column(outcome),
            table.column(action),
            propensity=propensity,
            controls=frame[list(controls)] if controls else None,
            cost=cost,
            sample_weight=None if sample_weight is None else table.column(sample_weight),
            groups=None if groups is None else table.column(groups),
            actions=actions,
        )

    @classmethod
    def from_obp(
        cls, feedback: Mapping[str, Any], *, position: int | None = None, actions: Sequence[Any] | None = None
    ) -> LoggedFeedback:
        """From the feedback dict of Open Bandit Pipeline.

        `context`, `action`, `reward` and `pscore` are used; `pi_b` gives the propensity of every action where it is
        there. Where the log has several positions, name one: its rows are kept. `actions` are 0 to n_actions - 1 if
        None; an action never taken has to be left out, and then propensities are those of `pscore`.
        """
        missing = [name for name in ("context", "action", "reward") if feedback.get(name) is None]
        if missing:
            raise ValueError(f"the feedback dict has no {', '.join(missing)}; it has {sorted(feedback)}")
        action = np.asarray(feedback["action"])
        rows = np.ones(len(action), bool)
        place = 0
        if feedback.get("position") is not None:
            positions = np.asarray(feedback["position"])
            found = np.unique(positions)
            if position is None and len(found) > 1:
                raise ValueError(
                    f"the log has positions {found.tolist()}, where actions differ in their chances; name one, such as "
                    f"position={found[0]}"
                )
            place = int(found[0] if position is None else position)
            rows = positions == place
            if not rows.any():
                raise ValueError(f"no row has position {place}; the log has positions {found.tolist()}")
        elif position not in (None, 0):
            raise ValueError(f"the log has no positions, got position={position}; leave it out")
        propensity = None
        if feedback.get("pi_b") is not None and actions is None:
            chances = np.asarray(feedback["pi_b"], np.float64)
            propensity = (chances[:, :, min(place, chances.shape[2] - 1)] if chances.ndim == 3 else chances)[rows]
        elif feedback.get("pscore") is not None:
            propensity = np.asarray(feedback["pscore"], np.float64)[rows]
        count = int(feedback.get("n_actions") or action.max() + 1)
        return cls.of(
            np.asarray(feedback["context"])[rows],
            np.asarray(feedback["reward"])[rows],
            action[rows],
            propensity=propensity,
            actions=range(count) if actions is None else actions,
        )

    def to_obp(self) -> dict[str, Any]:
        """The feedback dict of Open Bandit Pipeline; actions are column numbers there."""
        rows = np.arange(len(self))
        chances = self.propensity
        if chances is None:
            raise ValueError(
                "Open Bandit Pipeline needs propensities, and these rows have none; give them, or estimate them"
            )
        known = chances.ndim == 2
        return {
            "n_rounds": len(self),
            "n_actions": len(self.actions),
            "context": self.x,
            "action_context": np.eye(len(self.actions), dtype=int),
            "action": self.action.astype(np.int64),
            "position": None,
            "reward": self.outcome,
            "expected_reward": None,
            "pi_b": chances[:, :, None] if known else None,
            "pscore": chances[rows, self.action] if known else chances,
        }


class _Frame:
    """The few things needed of a pandas or polars frame."""

    def __init__(self, frame: Any) -> None:
        if not hasattr(frame, "columns"):
            raise TypeError(
                f"expected a pandas or polars frame, got {type(frame).__name__}; arrays go to LoggedFeedback.of"
            )
        self.frame, self.columns = frame, list(frame.columns)

    def check(self, names: Sequence[str]) -> None:
        import difflib

        for name in names:
            if name not in self.columns:
                near = difflib.get_close_matches(str(name), [str(column) for column in self.columns], 1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; the columns are {self.columns}"
                raise ValueError(f"the frame has no column {name!r}{hint}")
        twice = {name for name in names if list(names).count(name) > 1}
        if twice:
            raise ValueError(f"column {sorted(twice)[0]!r} has two roles; a column has one")

    def column(self, name: str) -> np.ndarray:
        return self.frame[name].to_numpy()


def _is_missing(label: Any) -> bool:
    """None, NaN, or the NA and NaT of pandas, which answer no comparison."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or label != label


def _check_logged_actions(
    action: Any, n: int, actions: Sequence[Any] | None
) -> tuple[np.ndarray, Int[np.ndarray, " row"]]:
    """Labels, and the column number of each row's action."""
    taken = action.to_numpy() if hasattr(action, "to_numpy") else action
    if isinstance(taken, list | tuple):  # numpy would turn ["a", 1] into strings
        taken = np.fromiter(taken, object, len(taken))
    taken = np.asarray(taken)
    if taken.ndim == 2 and taken.shape[1] == 1:
        taken = taken[:, 0]
    if taken.shape != (n,):
        raise ValueError(f"action must have one label for each of the {n} rows, got shape {taken.shape}")
    listed = taken.tolist()
    missing = [row for row, label in enumerate(listed) if _is_missing(label)]
    if missing:
        raise ValueError(
            f"action is missing in {len(missing)} row(s), first in row {missing[0]}; drop those rows, or make 'none' "
            "an action of its own"
        )
    found = list(dict.fromkeys(listed))
    if actions is None:
        if len(found) > max(100, n // 2):
            raise ValueError(f"action has {len(found)} different values in {n} rows: it must be a choice among few")
        try:
            order = sorted(found)
        except TypeError:  # labels of different types
            order = sorted(found, key=lambda label: (type(label).__name__, str(label)))
    else:
        order = label_array(actions).tolist()
        unknown = [label for label in found if label not in order]
        if unknown:
            raise ValueError(f"action has {unknown[:5]}, which are not among the actions {order}")
        never = [label for label in order if label not in found]
        if never:
            raise ValueError(
                f"action {never[0]!r} is never taken in these {n} rows"
                + (f" (nor {len(never) - 1} more)" if len(never) > 1 else "")
                + ": nothing can be learned of it; leave it out of the actions, or bring rows with it"
            )
    if len(order) < 2:
        raise ValueError(f"every row took the action {order[0]!r}: with one action there is nothing to choose")
    place = {label: number for number, label in enumerate(order)}
    return label_array(order), np.array([place[label] for label in listed], np.int64)


def _check_propensity(
    given: Any, action: Int[np.ndarray, " row"], labels: np.ndarray, n: int
) -> tuple[Float[np.ndarray, "..."] | None, Any]:
    """(table or one number a row, None), or (None, classifier or None)."""
    names, count = labels.tolist(), len(labels)
    if given is None:
        return None, None
    if hasattr(given, "fit"):
        if not hasattr(given, "predict_proba") or isinstance(given, type):
            raise TypeError(f"propensity must be a classifier with predict_proba, got {given!r}")
        return None, given
    if isinstance(given, str):
        raise ValueError(
            f"propensity must be numbers, a classifier or None, got {given!r}; a column's name goes to from_frame"
        )
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise ValueError(f"propensity names the actions {list(given)}, but the actions are {names}; name each once")
        given = np.tile(np.array([given[name] for name in names]), (n, 1))
    if hasattr(given, "columns") and len(given.columns) == count and set(given.columns) == set(names):
        given = given[names]
    chances = np.asarray(given.to_numpy() if hasattr(given, "to_numpy") else given)
    if chances.dtype.kind not in "fiub":
        try:
            chances = chances.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"propensity must be numbers, got {given!r:.80}") from None
    chances = np.asarray(chances, np.float64)
    if chances.ndim == 2 and chances.shape == (n, 1):
        chances = chances[:, 0]
    if chances.ndim == 0:
        if count == 2:
            return _checked_table(np.tile([1.0 - float(chances), float(chances)], (n, 1)), labels), None
        if abs(float(chances) * count - 1.0) > SUM_TOLERANCE:
            raise ValueError(
                f"propensity is {float(chances):g} for each of {count} actions: they do not sum to one; give a mapping "
                f"such as {{{names[0]!r}: ..., {names[1]!r}: ...}}, or a column for each action"
            )
        return np.full((n, count), 1.0 / count), None
    if chances.shape == (n, count):
        return _checked_table(chances, labels), None
    if chances.shape == (n,):
        _checked_range(chances, "the action taken")
        if count == 2:
            other = 1.0 - chances
            return _checked_table(
                np.where(action[:, None] == np.arange(2), chances[:, None], other[:, None]), labels
            ), None
        return chances, None
    raise ValueError(
        f"propensity must be one number, one for each of the {n} rows (that of the action taken), or a table of "
        f"({n}, {count}) with a column for each action; got shape {chances.shape}"
    )


def _checked_range(chances: Float[np.ndarray, " row"], whose: str) -> None:
    wrong = ~((chances > 0.0) & (chances <= 1.0))  # true for NaN
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"propensity of {whose} is {chances[row]:g} in row {row} ({int(wrong.sum())} such row(s)): a probability "
            "in (0, 1] is needed; drop rows in which the action could not be taken, or give a classifier to estimate it"
        )


def _checked_table(table: Float[np.ndarray, "row action"], labels: np.ndarray) -> Float[np.ndarray, "row action"]:
    for number, label in enumerate(labels.tolist()):
        _checked_range(table[:, number], f"action {label!r}")
    total = table.sum(axis=1)
    wrong = np.abs(total - 1.0) > SUM_TOLERANCE
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            f"propensities of row {row} sum to {total[row]:.4g}, not to one ({int(wrong.sum())} such row(s)); give a "
            "column for every action, in the order of the actions " + str(labels.tolist())
        )
    exact = np.abs(total - 1.0).max(initial=0.0) <= EXACT_SUM
    return table if exact else table / total[:, None]
