"""What saved policies are worth on other rows: each alone, against every single action, and against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.table import read_roles
from gbpl.frozen.file import SavedPolicy
from gbpl.nuisance.cross_fit import CrossFit, Nuisances
from gbpl.nuisance.off_policy import overlap_of, value_from
from gbpl.runtime.warn import collected
from gbpl.study.options import check_folds
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError
from gbpl.tables.labels import by_label
from gbpl.tables.roles import Roles
from gbpl.value.estimate import Value, check_estimator_name, logged_value, mean_value
from gbpl.value.overlap import OverlapReport

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Comparison", "Evaluation", "compare_policies", "evaluate_policy", "roles_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What a policy is worth on rows it did not learn from, and what it gains over each alternative."""

    actions: list[Any]
    shares: Float[np.ndarray, " action"]
    value: Value
    alternatives: list[tuple[str, Value, Value]]  # name, its value, what the policy gains over it
    overlap: OverlapReport | None
    rows: int
    notes: list[str] = field(default_factory=list)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "rows": self.rows,
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
    """Two policies on the same rows: what each is worth, the difference with its own error, and where they differ."""

    first: Value
    second: Value
    difference: Value  # first less second
    differ: float  # share of rows that get another action
    rows: int
    notes: list[str] = field(default_factory=list)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "rows": self.rows,
            "first": self.first.to_dict(level),
            "second": self.second.to_dict(level),
            "difference": self.difference.to_dict(level) | {"chance": self.difference.probability_positive},
            "differ": self.differ,
            "notes": self.notes,
        }


def roles_of(policy: SavedPolicy, **changed: Any) -> Roles:
    """The roles of the columns a policy was learned from, some of them changed."""
    told: dict[str, Any] = dict((policy.summary or {}).get("roles") or {})
    given = {name: value for name, value in changed.items() if value is not None}
    if "outcomes" in given:
        told = {}
    elif given.keys() & {"outcome", "action"}:
        told["outcomes"] = None
    return Roles(**(told | given))


def _costs(policy: SavedPolicy) -> dict[str, float]:
    actions = (policy.summary or {}).get("actions") or []
    return {action["label"]: action["cost"] for action in actions if action["cost"]}


def _encoder(policy: SavedPolicy) -> Encoder:
    if policy.encoder is None:
        raise TableError("this policy reads arrays, not tables: it was saved by GBPLNet.save; use its arrays")
    return policy.encoder


class _Judge:
    """Rows with outcomes, read by the roles and actions of a policy: what decisions are worth on them."""

    def __init__(
        self, policy: SavedPolicy, frame: Any, roles: Mapping[str, Any], cost: Mapping[Any, float] | None,
        estimator: str, source: str,
    ) -> None:  # fmt: skip
        check_estimator_name(estimator)
        self.estimator, self.labels = estimator, policy.actions_.tolist()
        named = roles_of(policy, **roles)
        data = read_roles(frame, named, _encoder(policy), what=source, actions=self.labels)
        self.data, self.notes = data, list(data.notes)
        costs = by_label(_costs(policy) if cost is None else cost, self.labels, "cost") or None
        shared: dict[str, Any] = {
            "actions": self.labels, "cost": costs, "sample_weight": data.weight, "groups": data.group,
        }  # fmt: skip
        self.nuisances: Nuisances | None = None
        if data.taken is None:
            self.full = FullFeedback.of(data.x, data.y, **shared)
            return
        check_folds(data, named, CrossFit().folds)
        log = LoggedFeedback.of(
            data.x, data.y, data.action, propensity=data.propensity, controls=data.controls, **shared
        )
        self.needed = "dr" if estimator in ("dr", "dm") else "ipw"
        with collected(self.notes):
            self.nuisances = CrossFit().run(log, self.needed)

    def decided(self, policy: SavedPolicy, table: Any) -> Float[np.ndarray, "row action"]:
        """A policy's decisions on the rows that count, a one for the action taken."""
        place = {label: number for number, label in enumerate(self.labels)}
        chosen = policy.decide(table).action[self.data.kept]
        return np.eye(len(place))[[place[label] for label in chosen.tolist()]]

    def worth(self, table: Float[np.ndarray, "row action"]) -> Value:
        if self.nuisances is not None:
            return value_from(self.nuisances, table, estimator=self.estimator)
        return mean_value(table, self.full.outcomes, weights=self.full.weights, groups=self.full.groups)

    def alternatives(self) -> list[tuple[str, Value]]:
        """Everybody gets one action, for each of them, and the policy that wrote the log."""
        count, rows = len(self.labels), len(self.data.x)
        found = [
            (f"everybody gets {label}", self.worth(np.broadcast_to(np.eye(count)[number], (rows, count))))
            for number, label in enumerate(self.labels)
        ]
        if self.nuisances is not None:
            log = self.nuisances.feedback
            found.append(("as logged", logged_value(log.net_outcome, weights=log.weights, groups=log.groups)))
        return found

    def overlap(self, table: Float[np.ndarray, "row action"]) -> OverlapReport | None:
        known = self.nuisances
        return None if known is None else overlap_of(known, known.pseudo_outcomes(self.needed), table)


def evaluate_policy(
    policy: SavedPolicy,
    frame: Any,
    *,
    cost: Mapping[Any, float] | None = None,
    estimator: str = "dr",
    source: str = "the table",
    **roles: Any,
) -> Evaluation:
    """What a saved policy is worth on rows it did not learn from, with its interval, against every single action.

    Roles of columns and costs are those of the fit unless others are given. The estimator is `"dr"`, `"ipw"`, `"snipw"`
    or `"dm"`, with models of the log cross-fitted on these rows.
    """
    judge = _Judge(policy, frame, roles, cost, estimator, source)
    table = judge.decided(policy, judge.data.table)
    value = judge.worth(table)
    return Evaluation(
        actions=judge.labels,
        shares=table.mean(axis=0),
        value=value,
        alternatives=[(name, other, value - other) for name, other in judge.alternatives()],
        overlap=judge.overlap(table),
        rows=len(table),
        notes=judge.notes,
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
    judge = _Judge(first, frame, roles, cost, estimator, source)
    one, other = judge.decided(first, judge.data.table), judge.decided(second, frame)
    values = judge.worth(one), judge.worth(other)
    return Comparison(
        *values,
        difference=values[0] - values[1],
        differ=float(np.mean(np.any(one != other, axis=1))),
        rows=len(one),
        notes=judge.notes,
    )
