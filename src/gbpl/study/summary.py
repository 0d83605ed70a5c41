"""The results of a study, as plain JSON without rows: everything the report and the terminal say.

Values are the rows' own outcomes (or doubly robust scores) under decisions of fits that saw nothing of their fold. Who
gets what is that of the policy that was fitted to all rows.
"""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import sklearn

from gbpl.decisions.decisions import Decisions, Rule
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import TableFeedback
from gbpl.runtime.json import plain
from gbpl.study.budget import BudgetTerms
from gbpl.study.imitation import imitation
from gbpl.study.numbers import PROBABILITIES, StudyNumbers
from gbpl.study.options import Wording
from gbpl.study.who import by_feature, review
from gbpl.tables.encoder import Encoder
from gbpl.tables.parts import SMALLEST_GROUP
from gbpl.tables.roles import Roles
from gbpl.value.evaluate import LOGGING
from gbpl.version import __version__

if TYPE_CHECKING:
    from jaxtyping import Int

__all__ = ["FORMAT", "PROBABILITIES", "StudyParts", "summarize"]

FORMAT = 1
STUDY_GAMMAS = (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0)  # of the figure
SENSITIVITY_LEVEL = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class StudyParts:
    """What a summary is made of; `decided` are the held-out actions, column numbers, by the rule of the study."""

    policy: GBPLNet
    data: TableFeedback
    roles: Roles
    encoder: Encoder
    frame: Any
    rule: Rule
    decided: Int[np.ndarray, " row"]
    decisions: Decisions
    cost: Mapping[Any, float]
    capacity: Mapping[Any, float]
    review: int | None
    wording: Wording
    source: str
    notes: Sequence[str]
    certificate: Any
    seconds: float
    smallest_group: int = SMALLEST_GROUP
    allowed: Sequence[int] | None = None
    spending: BudgetTerms | None = None


def summarize(parts: StudyParts) -> dict[str, Any]:
    """The summary of a study, in plain Python types; None for what is not a finite number."""
    policy, data, rule = parts.policy, parts.data, parts.rule
    smallest = parts.smallest_group
    place = {label: number for number, label in enumerate(data.labels)}
    limits = {place[label]: share for label, share in parts.capacity.items()}
    if parts.spending is not None:
        limits = parts.spending.limits()
    numbers = StudyNumbers(policy, parts.decided, rule.default, limits, smallest, parts.allowed)
    given = np.fromiter(map(place.__getitem__, parts.decisions.action.tolist()), np.int64, len(data.feedback))
    split = parts.decisions.disagreement
    assert split is not None
    deferred = parts.decisions.deferred
    assert deferred is not None
    summary = {
        "format": FORMAT,
        "title": parts.wording.title or f"{parts.source}: {_question(parts.roles.action)}",
        "created": datetime.date.today().isoformat(),
        "data": _data(parts),
        "roles": parts.roles.to_json(),
        "actions": _actions(parts, given),
        "default": rule.default,
        "unit": parts.wording.to_dict(),
        "welfare": numbers.welfare() | {"net_of_cost": any(parts.cost.values())},
        "alternatives": numbers.alternatives(),
        "bands": numbers.bands(),
        "moments": numbers.moments(),
        "who": by_feature(parts.frame, parts.encoder, data.kept, given, deferred, len(place), smallest),
        "tree": imitation(data.feedback.x, parts.encoder, given, smallest=smallest),
        "disagreement": numbers.disagreement(split, given, rule.defer),
        "review": review(data.feedback.x, parts.encoder, deferred, smallest),
        "reviewed": _reviewed(parts),
        "budget": _budget(parts),
        "overlap": policy.overlap_.to_dict() if hasattr(policy, "overlap_") else None,
        "sensitivity": _sensitivity(parts, numbers),
        "zeta_path": policy.zeta_path_.to_dict(),
        "calibration": numbers.calibration(),
        "certificate": _certificate(parts.certificate),
        "settings": policy.get_params(deep=False)
        | {"defer": rule.defer, "prices": rule.prices, "smallest_group": smallest},
        "versions": _versions(),
        "seconds": round(parts.seconds, 1),
    }
    return {name: plain(value) for name, value in summary.items()}


def _question(action: str | None) -> str:
    """What the study answers; the name of the action's column is quoted, since it need not be a noun."""
    return "who should get which action" if action is None else f"who should get which action ({action})"


def _reviewed(parts: StudyParts) -> dict[str, Any] | None:
    """How many rows a person was to look at, how many are worth it, and what that is worth at most, in all."""
    value, deferred = parts.decisions.review_value, parts.decisions.deferred
    if parts.review is None or value is None or deferred is None:
        return None
    return {"asked": parts.review, "rows": int(deferred.sum()), "value": float(value[deferred].sum())}


def _budget(parts: StudyParts) -> dict[str, Any] | None:
    if parts.spending is None:
        return None
    label, x = parts.data.labels[parts.rule.default], parts.data.feedback.x
    return parts.spending.summary(parts.policy, label, x, parts.smallest_group)


def _versions() -> dict[str, str]:
    return {
        "gbpl": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
    }


def _propensity_words(parts: StudyParts) -> str | None:
    given, labels = parts.roles.propensity, parts.data.labels
    if parts.roles.outcomes is not None:
        return None
    if given is None:
        return "estimated from the features and controls" if parts.roles.controls else "estimated from the features"
    if isinstance(given, str):
        return f"column {given}"
    if isinstance(given, Mapping):
        return ", ".join(f"{chance:.4g} for {label}" for label, chance in given.items()) + ", given"
    return f"{float(given):.4g} for {labels[1] if len(labels) == 2 else 'each action'}, given"


def _data(parts: StudyParts) -> dict[str, Any]:
    roles, kept = parts.roles, parts.data.kept
    return {
        "source": parts.source,
        "rows": int(kept.sum()),
        "dropped": int(np.sum(~kept)),
        "feedback": "full" if roles.outcomes is not None else "logged",
        "outcome": roles.outcome,
        "action": roles.action,
        "outcomes": None if roles.outcomes is None else list(roles.outcomes),
        "features": list(parts.encoder.columns),
        "controls": list(roles.controls),
        "propensity": _propensity_words(parts),
        "weight": roles.weight,
        "group": roles.group,
        "notes": list(parts.notes),
    }


def _actions(parts: StudyParts, given: Int[np.ndarray, " row"]) -> list[dict[str, Any]]:
    labels, feedback = parts.data.labels, parts.data.feedback
    logged: list[int | None] = [None] * len(labels)
    if isinstance(feedback, LoggedFeedback):
        logged = np.bincount(feedback.action, minlength=len(labels)).tolist()
    shares = np.bincount(given, minlength=len(labels)) / len(given)
    return [
        {
            "label": str(label),
            "cost": parts.cost.get(label, 0.0),
            "capacity": parts.capacity.get(label),
            "share": shares[number],
            "logged_rows": logged[number],
        }
        for number, label in enumerate(labels)
    ]


def _sensitivity(parts: StudyParts, numbers: StudyNumbers) -> dict[str, Any] | None:
    """Bounds under hidden confounding, where propensities are estimated; a breakdown beyond what is tried is None.

    Decisions are those of members that have not seen the row; with capacities or prices by group, those out of fold
    within them, compared with actions that everybody can get.
    """
    training = parts.policy.training("learn again")
    known = training.nuisances
    if known is None or not known.estimated or known.outcome_mean is None:
        return None
    within = numbers.table if numbers.limits or parts.rule.groups is not None else None
    options = [option for option in numbers.options if option.action not in numbers.limits]
    against = []
    for option in options:
        other = LOGGING if option.action is None else parts.data.labels[option.action]
        if option.action is None and LOGGING in parts.data.labels:
            continue
        found = training.sensitivity(other, (1.0,), SENSITIVITY_LEVEL, within)
        entry = {"gain": found.gain_lower[0].estimate, "breakdown": found.breakdown}
        against.append({"label": option.label, **entry, "breakdown_limit": found.breakdown_limit})
    baseline = None
    if numbers.limits or parts.allowed is not None:
        values = {o.action: o.value.estimate for o in options if o.action is not None}
        baseline = parts.data.labels[max(values, key=lambda action: values[action])]
    return training.sensitivity(baseline, STUDY_GAMMAS, SENSITIVITY_LEVEL, within).to_dict() | {"against": against}


def _certificate(certificate: Any) -> dict[str, Any] | None:
    if certificate is None:
        return None
    return certificate.to_dict() | {"text": str(certificate)}
