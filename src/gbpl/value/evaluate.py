"""The one evaluator: the value of any policy on some rows, or its gain over another, with its error.

Every value and gain that a user sees comes from here, for estimators, studies, reports and the command line alike. An
`Evaluator` knows the rows and how to value a table of action probabilities on them; the policies, rules
and baselines that users give are turned into such a table first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.checks import align_outcomes
from gbpl.value.estimate import Value, mean_value
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.feedback.full import FullFeedback

__all__ = ["AS_LOGGED", "LOGGING", "RULES", "Alternative", "Evaluator", "check_rule", "one_hot_rule"]

RULES = ("deterministic", "randomized")
LOGGING = "logging"  # the baseline that is the policy that wrote the log
AS_LOGGED = "as logged"


def check_rule(rule: str) -> None:
    """Refuse a rule that is neither deterministic nor randomized."""
    if rule not in RULES:
        raise ValueError(f"rule must be {' or '.join(map(repr, RULES))}, got {rule!r}")


def one_hot_rule(policy: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
    """The deterministic rule of a policy as a table with a one for the action taken."""
    return np.eye(policy.shape[1])[deterministic(policy)]


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """Something else that could be done: one action for everybody, or (`action` None) what wrote the log."""

    label: str
    action: int | None
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Evaluator:
    """Rows on which policies are evaluated.

    `value_of` gives the value of a table of action probabilities; `logged` is that of the policy that
    wrote the log, None where the outcomes of every action are known. `source` are the features of the rows as the user
    gave them, on which policies predict.
    """

    actions: np.ndarray
    n: int
    source: Any
    value_of: Callable[[Float[np.ndarray, "row action"]], Value]
    logged: Value | None = None

    @classmethod
    def of_outcomes(cls, feedback: FullFeedback) -> Evaluator:
        """By the mean over a table of outcomes."""

        def value_of(policy: Float[np.ndarray, "row action"]) -> Value:
            return mean_value(policy, feedback.outcomes, weights=feedback.weights, groups=feedback.groups)

        source = feedback.x if feedback.source is None else feedback.source
        return cls(feedback.actions, len(feedback), source, value_of)

    def value(self, policy: Any, *, rule: str = "deterministic", baseline: Any = None) -> Value:
        """Value of a policy, or its gain over a baseline if there is one.

        Either is a label (everybody gets it), one label per row, a table of probabilities, or an object with
        `predict_proba` or `predict`; a baseline may also be `"logging"`, the policy that wrote the log.
        """
        mine = self.table(policy, rule)
        if baseline is None:
            return self.value_of(mine)
        if isinstance(baseline, str) and baseline == LOGGING and LOGGING not in self.actions.tolist():
            if self.logged is None:
                raise ValueError(
                    "baseline='logging' needs logged feedback; here the outcomes of every action are given"
                )
            return self.value_of(mine) - self.logged
        other = self.table(baseline, rule)
        return self.value_of(mine) - self.value_of(other)

    def alternatives(self) -> list[Alternative]:
        """Giving everybody one action, for each action, and the policy that wrote the log."""
        alternatives = [
            Alternative(f"everybody gets {label}", number, self.value(label))
            for number, label in enumerate(self.actions.tolist())
        ]
        if self.logged is not None:
            alternatives.append(Alternative(AS_LOGGED, None, self.logged))
        return alternatives

    def table(self, policy: Any, rule: str) -> Float[np.ndarray, "row action"]:
        """Action probabilities of a policy as users give it; a deterministic rule takes the most probable action."""
        check_rule(rule)
        labels = self.actions.tolist()
        if hasattr(policy, "predict_proba") and (rule == "randomized" or hasattr(policy, "actions_")):
            known = getattr(policy, "actions_", getattr(policy, "classes_", self.actions))
            if list(known) != labels:
                raise ValueError(
                    f"the policy's actions are {list(known)}, but the log's are {labels}; give it those labels"
                )
            policy = np.asarray(policy.predict_proba(self.source))
        elif hasattr(policy, "predict"):
            policy = policy.predict(self.source)
        if hasattr(policy, "columns"):
            policy = align_outcomes(policy, self.actions)
        listed = isinstance(policy, list | tuple) and not (len(policy) and np.ndim(policy[0]) == 1)  # may be mixed
        if not listed and not isinstance(policy, str | bytes) and np.ndim(policy) == 2:
            table = self._checked(np.asarray(policy, np.float64))
            return one_hot_rule(table) if rule == "deterministic" else table
        one = isinstance(policy, str | bytes) or np.ndim(policy) == 0
        chosen = [policy] if one else policy if listed else np.asarray(policy).tolist()
        unknown = [label for label in chosen if label not in labels]
        if unknown:
            raise ValueError(f"the policy gives {unknown[0]!r}, but the actions are {labels}")
        if not one and len(chosen) != self.n:
            raise ValueError(f"the policy must give one action for each of the {self.n} rows, got {len(chosen)}")
        place = {label: number for number, label in enumerate(labels)}
        table = np.eye(len(labels))[[place[label] for label in chosen]]
        return np.tile(table, (self.n, 1)) if one else table

    def _checked(self, table: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
        if table.shape != (self.n, len(self.actions)):
            raise ValueError(f"the policy must be a table of ({self.n}, {len(self.actions)}), got shape {table.shape}")
        if not (np.all(table >= -1e-4) and np.all(np.abs(table.sum(axis=1) - 1.0) <= 1e-3)):  # false for NaN too
            raise ValueError("each row of the policy must be >= 0 and sum to 1; divide the rows by their sums")
        return table
