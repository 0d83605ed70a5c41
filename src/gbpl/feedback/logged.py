"""Logged feedback: features, the action taken, its outcome, and how likely the action was (section 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import _safe_indexing

from gbpl.feedback.actions import check_actions, check_propensity
from gbpl.feedback.checks import check_column, check_cost, check_features, check_groups, check_weights, feature_names
from gbpl.feedback.given import check_given
from gbpl.tables.frames import TableError, column, column_names
from gbpl.tables.roles import Roles

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["LoggedFeedback"]


@dataclass(frozen=True, slots=True, eq=False)
class LoggedFeedback:
    """Rows on which somebody chose: features, action, outcome of that action.

    `action` holds column numbers and `actions` the user's labels. `propensity` has one column per action, or one
    number per row (that of the action taken), or is None where it is to be estimated by `classifier` (None: the
    default). The policy sees `x`; models of outcomes and propensities see `x` and `controls`. `source` is the table
    of features as it was given, and `names` say which column each of `context` comes from, where columns have names.
    `cut` counts outcomes that were cut (`feedback.tails`).
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
    names: Sequence[str] | None = None
    cut: int = 0

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
        label to probability, one number per row, one column per action, a scikit-learn classifier, or None.
        `cost`: a mapping from label to cost, one number per action, or a table.
        `actions`: the labels in the order wanted; those found in the data, sorted, if None.
        """
        check_given(
            X, y=y, action=action, propensity=propensity, controls=controls, cost=cost, sample_weight=sample_weight,
            groups=groups,
        )  # fmt: skip
        x = check_features(X, min_rows=2)
        outcome = check_column(y, len(x), "y", "the outcome of the action taken")
        labels, numbers = check_actions(action, len(x), actions)
        chances, classifier = None, None
        if hasattr(propensity, "fit"):
            classifier = _check_classifier(propensity)
        elif propensity is not None:
            chances = check_propensity(propensity, numbers, labels)
        extra = None
        if controls is not None:
            extra = check_features(controls, min_rows=2, name="controls")
            if len(extra) != len(x):
                raise TableError(f"X and controls have inconsistent numbers of samples: {len(x)} and {len(extra)}")
        weights = None if sample_weight is None else check_weights(sample_weight, len(x))
        made = cls(
            x=x,
            outcome=outcome,
            action=numbers,
            actions=labels,
            propensity=chances,
            classifier=classifier,
            controls=extra,
            weights=weights,
            groups=None if groups is None else check_groups(groups, len(x)),
            source=X,
            names=feature_names(X) if controls is None else feature_names(X, controls),
        ).less(cost)
        if weights is None or (weights > 0.0).all():
            return made
        lost = np.setdiff1d(np.arange(len(labels)), numbers[weights > 0.0])
        if len(lost):
            raise TableError(
                f"action {labels.tolist()[lost[0]]!r} is taken only in rows of sample_weight 0; leave it out of the "
                "actions, or give such rows a weight"
            )
        return made.take(weights > 0.0)

    def less(self, cost: Any) -> LoggedFeedback:
        """The same rows with what each action costs; `cost` as in `fit`, None for nothing."""
        return self if cost is None else replace(self, cost=check_cost(cost, self.actions, len(self)))

    def take(self, rows: Bool[np.ndarray, " row"] | Int[np.ndarray, " some"]) -> LoggedFeedback:
        """Some of the rows, by mask or number."""
        numbers = np.flatnonzero(rows) if rows.dtype == bool else rows
        names = ("x", "outcome", "action", "propensity", "controls", "cost", "weights")
        parts = {name: getattr(self, name) for name in names}
        some = {name: part[rows] for name, part in parts.items() if part is not None}
        groups = None if self.groups is None else check_groups(self.groups[rows], len(numbers))
        source = None if self.source is None else _safe_indexing(self.source, numbers)
        return replace(self, **some, groups=groups, source=source)

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

        `features` are all columns with no other role if None. `propensity` is a column, a list of columns (one per
        action, in the order of the actions), or anything `of` takes.
        """
        if not hasattr(frame, "columns"):
            raise TypeError(
                f"expected a pandas or polars frame, got {type(frame).__name__}; arrays go to LoggedFeedback.of"
            )
        listed = isinstance(propensity, list | tuple) and propensity and all(isinstance(p, str) for p in propensity)
        roles = Roles(
            outcome=outcome, action=action, features=features, controls=controls or (), weight=sample_weight,
            group=groups, propensity=propensity if isinstance(propensity, str) else None,
        )  # fmt: skip
        names = column_names(frame)
        used = [*roles.used(), *(propensity if listed else ())]
        roles.check(names, "the frame", also=propensity if listed else ())
        chosen = [name for name in names if name not in used] if roles.features is None else list(roles.features)
        if not chosen:
            raise TableError(f"no column is left for the features: {names} all have a role; name the features")
        if isinstance(propensity, str):
            propensity = column(frame, propensity)
        elif listed:
            propensity = np.column_stack([column(frame, name) for name in propensity])
        return cls.of(
            frame[chosen],
            column(frame, outcome),
            column(frame, action),
            propensity=propensity,
            controls=frame[list(roles.controls)] if roles.controls else None,
            cost=cost,
            sample_weight=None if sample_weight is None else column(frame, sample_weight),
            groups=None if groups is None else column(frame, groups),
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
            raise TableError(f"the feedback dict has no {', '.join(missing)}; it has {sorted(feedback)}")
        action = np.asarray(feedback["action"])
        rows = np.ones(len(action), bool)
        place = 0
        if feedback.get("position") is not None:
            positions = np.asarray(feedback["position"])
            seen = np.unique(positions)
            if position is None and len(seen) > 1:
                raise TableError(
                    f"the log has positions {seen.tolist()}, where actions differ in their chances; name one, such as "
                    f"position={seen[0]}"
                )
            place = int(seen[0] if position is None else position)
            rows = positions == place
            if not rows.any():
                raise TableError(f"no row has position {place}; the log has positions {seen.tolist()}")
        elif position not in (None, 0):
            raise TableError(f"the log has no positions, got position={position}; leave it out")
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
            raise TableError(
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


def _check_classifier(given: Any) -> Any:
    if not hasattr(given, "predict_proba") or isinstance(given, type):
        raise TypeError(f"propensity must be a classifier with predict_proba, got {given!r}")
    return given
