"""Values of saved policies on other rows: alone, against every single action, and against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.fingerprint import seen_words
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.read import read_table
from gbpl.frozen.file import SavedPolicy
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.off_policy import construction_for, log_evaluator, overlap_of
from gbpl.runtime.warn import collected
from gbpl.study.groups import group_of
from gbpl.study.options import check_folds
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError
from gbpl.tables.labels import by_label
from gbpl.tables.roles import Roles
from gbpl.value.estimate import Value
from gbpl.value.evaluate import Evaluator
from gbpl.value.overlap import OverlapReport

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Comparison", "Evaluation", "compare_policies", "evaluate_policy", "roles_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The value of a policy on rows it did not learn from, and its gain over each alternative."""

    actions: list[Any]
    shares: Float[np.ndarray, " action"]
    value: Value
    alternatives: list[tuple[str, Value, Value]]  # name, its value, gain of the policy over it
    overlap: OverlapReport | None
    rows: int
    notes: list[str] = field(default_factory=list)
    warning: str | None = None  # where the policy learned from these rows

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "rows": self.rows,
            "warning": self.warning,
            "shares": {str(label): float(share) for label, share in zip(self.actions, self.shares, strict=True)},
            "value": self.value.to_dict(level),
            "alternatives": [
                {
                    "label": name, "value": value.to_dict(level),
                    "gain": gain.to_dict(level) | {"chance": gain.probability_positive},
                }
                for name, value, gain in self.alternatives
            ],
            "overlap": None if self.overlap is None
            else {"weak": self.overlap.weak, "reasons": self.overlap.reasons()},
            "notes": self.notes,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Two policies on the same rows: their values, the difference with its own error, and how often they differ."""

    first: Value
    second: Value
    difference: Value  # first less second
    differ: float  # share of rows on which the actions differ
    rows: int
    notes: list[str] = field(default_factory=list)
    warning: str | None = None  # where one of them learned from these rows

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "rows": self.rows,
            "warning": self.warning,
            "first": self.first.to_dict(level),
            "second": self.second.to_dict(level),
            "difference": self.difference.to_dict(level) | {"chance": self.difference.probability_positive},
            "differ": self.differ,
            "notes": self.notes,
        }


def roles_of(policy: SavedPolicy, **changed: Any) -> Roles:
    """The roles of the columns a policy was learned from, some of them changed."""
    known: dict[str, Any] = dict((policy.summary or {}).get("roles") or {})
    given = {name: value for name, value in changed.items() if value is not None}
    if "outcomes" in given:
        known = {}
    elif given.keys() & {"outcome", "action"}:
        known["outcomes"] = None
    return Roles(**(known | given))


def _costs(policy: SavedPolicy) -> dict[str, float]:
    actions = (policy.summary or {}).get("actions") or []
    return {action.get("label"): action["cost"] for action in actions if action and action.get("cost")}


def _encoder(policy: SavedPolicy) -> Encoder:
    if policy.encoder is None:
        raise TableError("this policy reads arrays, not tables: it was saved by GBPLNet.save; use its arrays")
    return policy.encoder


class _Rows:
    """Rows with outcomes, read by the roles and actions of a policy, and the evaluator of decisions on them."""

    def __init__(
        self, policy: SavedPolicy, frame: Any, roles: Mapping[str, Any], cost: Mapping[Any, float] | None,
        estimator: str, source: str,
    ) -> None:  # fmt: skip
        self.construction, self.labels = construction_for(estimator), policy.actions_.tolist()
        self.roles = named = roles_of(policy, **roles)
        self.table = read_table(frame, named, _encoder(policy), what=source, actions=self.labels)
        self.notes = list(self.table.notes)
        self.seen = seen_words(policy, self.table.feedback)
        feedback = self.table.feedback.less(
            by_label(_costs(policy) if cost is None else cost, self.labels, "cost") or None
        )
        self.nuisances: Nuisances | None = None
        if isinstance(feedback, FullFeedback):
            self.evaluator = Evaluator.of_outcomes(feedback)
            return
        check_folds(self.table, named, CrossFit().folds)
        with collected(self.notes):
            self.nuisances = CrossFit().run(feedback, self.construction)
        self.evaluator = log_evaluator(feedback, self.nuisances, estimator)

    def decided(self, policy: SavedPolicy, features: Any, frame: Any) -> Float[np.ndarray, "row action"]:
        """A policy's decisions on the rows that are kept, with a one for the action taken."""
        decisions = policy.decide(features, group=group_of(policy.rule, frame))
        return self.evaluator.table(decisions.action[self.table.kept], "deterministic")

    def overlap(self, table: Float[np.ndarray, "row action"]) -> OverlapReport | None:
        known = self.nuisances
        return None if known is None else overlap_of(known, known.pseudo_outcomes(self.construction), table)


def evaluate_policy(
    policy: SavedPolicy,
    frame: Any,
    *,
    cost: Mapping[Any, float] | None = None,
    estimator: str = "dr",
    source: str = "the table",
    **roles: Any,
) -> Evaluation:
    """The value of a saved policy on rows it did not learn from, with its interval, against every single action.

    Roles of columns and costs are those of the fit unless others are given. The estimator is `"dr"`, `"ipw"`, `"snipw"`
    or `"dm"`, with models of the log cross-fitted on these rows.
    """
    rows = _Rows(policy, frame, roles, cost, estimator, source)
    table = rows.decided(policy, rows.table.features, frame)
    value = rows.evaluator.value_of(table)
    return Evaluation(
        actions=rows.labels,
        shares=table.mean(axis=0),
        value=value,
        alternatives=[(other.label, other.value, value - other.value) for other in rows.evaluator.alternatives()],
        overlap=rows.overlap(table),
        rows=len(table),
        notes=rows.notes,
        warning=rows.seen,
    )


def compare_policies(
    first: SavedPolicy,
    second: SavedPolicy,
    frame: Any,
    *,
    cost: Mapping[Any, float] | None = None,
    estimator: str = "dr",
    source: str = "the table",
    **roles: Any,
) -> Comparison:
    """Two saved policies on the same rows; roles and costs are those of the first one's fit unless others are given."""
    mine, yours = first.actions_.tolist(), second.actions_.tolist()
    if mine != yours:
        raise TableError(
            f"the first policy has the actions {mine}, the second {yours}; only like can be compared with like"
        )
    _encoder(second)
    rows = _Rows(first, frame, roles, cost, estimator, source)
    one, other = rows.decided(first, rows.table.features, frame), rows.decided(second, frame, frame)
    values = rows.evaluator.value_of(one), rows.evaluator.value_of(other)
    theirs = read_table(frame, rows.roles, _encoder(second), what=source, actions=mine).feedback
    warned = {"first": rows.seen, "second": seen_words(second, theirs)}
    warning = "; ".join(f"the {which} policy: {words}" for which, words in warned.items() if words is not None)
    return Comparison(
        *values,
        difference=values[0] - values[1],
        differ=float(np.mean(np.any(one != other, axis=1))),
        rows=len(one),
        notes=rows.notes,
        warning=warning or None,
    )
