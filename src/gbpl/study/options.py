"""The options of a study other than its columns, checked before anything is fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from gbpl.certificates.certificate import CertificateSettings
from gbpl.certificates.certify import check_certifiable, hold_out_rows
from gbpl.decisions.decisions import DEFER, NOBODY
from gbpl.estimators.gbpl import GBPL
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import TableFeedback
from gbpl.frozen.freeze import check_model
from gbpl.models.adapters import as_model
from gbpl.report.reading import LONGEST_UNIT
from gbpl.tables.frames import TableError, column, rows_at, rows_of
from gbpl.tables.labels import by_label, same_label
from gbpl.tables.roles import Roles

__all__ = ["Terms", "Wording", "certified_range", "check_folds", "check_review", "checked_estimator", "split_rows"]

LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """How the policy is to be used, labels as in the data."""

    cost: dict[Any, float]
    capacity: dict[Any, float]
    default: Any
    defer: float
    review: int | None

    @classmethod
    def of(
        cls, data: TableFeedback, cost: Any, capacity: Any, default: Any, defer: float | None, review: int | None
    ) -> Terms:
        """Checked."""
        labels = data.labels
        costs, limits = by_label(cost, labels, "cost"), by_label(capacity, labels, "capacity")
        chosen = labels[0] if default is None else same_label(default, labels, "default")
        for label, share in limits.items():
            if not 0.0 < share < 1.0:
                raise TableError(f"capacity of {str(label)!r} must be a share between 0 and 1, got {share:g}; try 0.2")
        if chosen in limits:
            raise TableError(
                f"capacity names {str(chosen)!r}, the default action, which takes whoever is left; limit another one, "
                "or make another one the default"
            )
        if defer is not None and not 0.0 <= defer <= 1.0:
            raise TableError(f"defer must be in [0, 1], got {defer}; try {DEFER}")
        check_review(review, defer)
        level = NOBODY if defer is None else defer
        return cls(costs, limits, chosen, level, review)


@dataclass(frozen=True, slots=True)
class Wording:
    """How a report speaks: its title, the sign of the outcome's unit, what a row is, and how many totals are for."""

    title: str | None = None
    unit: str | None = None
    per: str | None = None
    population: int | None = None

    def __post_init__(self) -> None:
        for name in ("title", "unit", "per"):
            text, longest = getattr(self, name), LONGEST_TITLE if name == "title" else LONGEST_UNIT
            if text is not None and not (isinstance(text, str) and len(text.strip()) > 0 and len(text) <= longest):
                raise TableError(f"{name} must be text of 1 to {longest} letters, got {text!r}; leave it out for none")
        count = self.population
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise TableError(f"population must be a whole number >= 1, got {count!r}; try 1000")

    def to_dict(self) -> dict[str, Any]:
        """For the summary."""
        return {"sign": self.unit, "per": self.per, "population": self.population}


def check_review(review: Any, defer: float | None) -> None:
    """Refuse what is no number of rows, and a second way to choose them."""
    if review is None:
        return
    if isinstance(review, bool) or not isinstance(review, int) or review < 0:
        raise TableError(f"review must be a whole number of rows, 0 or more, got {review!r}; try 200")
    if defer is not None:
        raise TableError("review and defer both say which rows a person looks at; give one of them")


def split_rows(frame: Any, group: str | None, certify: bool | float, seed: int) -> tuple[Any, Any]:
    """Rows that learn and rows that certify, groups kept together, by their numbers alone."""
    share = 0.5 if isinstance(certify, bool) or not certify else float(certify)
    if not 0.0 < share < 1.0:
        raise TableError(f"certify is the share of rows held out, between 0 and 1, got {certify}; try 0.5")
    groups = None
    if group is not None:
        listed = [str(label) for label in column(frame, group).tolist()]
        groups = np.unique(np.array(listed), return_inverse=True)[1]
    learned, held = hold_out_rows(rows_of(frame), groups, share, seed)
    return rows_at(frame, learned), rows_at(frame, held)


def certified_range(
    parts: Sequence[TableFeedback], given: tuple[float, float] | None, cost: Mapping[Any, float]
) -> CertificateSettings:
    """What to certify; what a certificate would refuse is refused here, before the fit."""
    low, high = CertificateSettings(outcome_range=(0.0, 1.0) if given is None else given).outcome_range
    for log in (part.feedback for part in parts):
        outcomes = log.outcome if isinstance(log, LoggedFeedback) else log.outcomes
        if given is None and not np.isin(outcomes, (0.0, 1.0)).all():
            raise TableError(
                "a certificate needs the lowest and the highest value that an outcome can take, known without the "
                "data; give outcome_range (--outcome-range LOW HIGH)"
            )
        check_certifiable(log, (low, high))
    if not parts[0].logged:
        paid = [cost.get(label, 0.0) for label in parts[0].labels]
        low, high = low - max(paid), high - min(paid)
    return CertificateSettings(outcome_range=(low, high))


def checked_estimator(estimator: GBPLNet | None, seed: int) -> GBPLNet:
    """A copy to fit; an estimator that a study cannot use is refused."""
    if estimator is None:
        return GBPL(random_state=seed)
    if not isinstance(estimator, GBPLNet):
        kind = type(estimator).__name__
        raise TypeError(f"estimator must be a GBPL or GBPLNet, got {kind}; other policies have value()")
    if estimator.committee is None:
        raise ValueError("estimator has committee=None, and a study evaluates on rows left out; try committee=5")
    if estimator.pseudo_outcome not in ("dr", "dm"):
        raise ValueError(
            f"estimator has pseudo_outcome={estimator.pseudo_outcome!r}, and a study evaluates with an outcome "
            "model; use 'dr'"
        )
    if estimator.model is not None and not (isinstance(estimator.model, str) and estimator.model == "auto"):
        check_model(as_model(estimator.model))  # a model that cannot be saved is refused before it is fitted
    return clone(estimator)


def check_folds(data: TableFeedback, roles: Roles, folds: int) -> None:
    """Every fold needs a group, and a row with each action."""
    feedback = data.feedback
    if feedback.groups is not None and (count := int(feedback.groups.max()) + 1) < folds:
        raise TableError(
            f"{roles.group!r} has {count} groups, and {folds} are needed to evaluate on groups left out; leave it out"
        )
    if isinstance(feedback, LoggedFeedback):
        counts = np.bincount(feedback.action)
        rarest = int(np.argmin(counts))
        if counts[rarest] < folds:
            raise TableError(
                f"the action {data.labels[rarest]!r} is taken in {counts[rarest]} of {len(feedback)} rows, and "
                f"{folds} are needed to evaluate it; join it with another, or leave its rows out"
            )
