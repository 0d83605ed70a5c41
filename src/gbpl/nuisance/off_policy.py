"""Off-policy value of any policy from logged rows: cross-fitted nuisances, then the formulas of `value` (section 7).

Also how far the log can be trusted for that: its overlap, and the policy's value as the clip level changes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.fingerprint import seen_words
from gbpl.feedback.logged import LoggedFeedback
from gbpl.nuisance.cross_fit import CrossFit, Nuisances
from gbpl.runtime.warn import warn
from gbpl.value.estimate import Value, logged_value, needs_outcome_model, off_policy_value
from gbpl.value.evaluate import Evaluator, one_hot_rule
from gbpl.value.overlap import ClipWelfare, OverlapReport, clipping, overlap_report
from gbpl.value.rare import rare_events

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["construction_for", "log_evaluator", "overlap_of", "policy_value"]

CLIP_LEVELS = (0.001, 0.01, 0.02, 0.05, 0.1)  # of two actions; times 2/K for K


def _value_from(nuisances: Nuisances, policy: Float[np.ndarray, "row action"], estimator: str) -> Value:
    log = nuisances.feedback
    value = off_policy_value(
        policy,
        log.outcome,
        log.action,
        propensity=nuisances.logged_propensity,
        outcome_mean=nuisances.outcome_mean,
        estimator=estimator,
        cost=log.cost,
        weights=log.weights,
        groups=log.groups,
    )
    events = rare_events(log.outcome, log.action, len(log.actions))
    if events is None:
        return value
    return replace(value, unseen=events.unseen(policy, log.action, nuisances.logged_propensity))


def construction_for(estimator: str) -> str:
    """The construction of pseudo-outcomes whose models an estimator of value needs."""
    return "dr" if needs_outcome_model(estimator) else "ipw"


def log_evaluator(feedback: LoggedFeedback, nuisances: CrossFit | Nuisances, estimator: str = "dr") -> Evaluator:
    """Evaluates policies on a log; a cross-fitting given by its settings is run at the first value."""
    needed = construction_for(estimator)

    @cache
    def estimated() -> Nuisances:
        return nuisances if isinstance(nuisances, Nuisances) else nuisances.run(feedback, needed)

    return Evaluator(
        feedback.actions,
        len(feedback),
        feedback.source,
        lambda policy: _value_from(estimated(), policy, estimator),
        _as_logged(feedback),
    )


def _as_logged(feedback: LoggedFeedback) -> Value:
    """The value of the policy that wrote the log."""
    value = logged_value(feedback.net_outcome, weights=feedback.weights, groups=feedback.groups)
    events = rare_events(feedback.outcome, feedback.action, len(feedback.actions))
    if events is None:
        return value
    taken = np.eye(len(feedback.actions))[feedback.action]
    return replace(value, unseen=events.unseen(taken, feedback.action, np.ones(len(feedback))))


def policy_value(
    policy: Any,
    feedback: LoggedFeedback,
    *,
    estimator: str = "dr",
    rule: str = "deterministic",
    baseline: Any = None,
    nuisances: CrossFit | Nuisances | None = None,
) -> Value:
    """Value of any policy on logged rows it did not learn from, or its gain over a baseline, with its error.

    `policy` is a fitted policy, a label for everybody, one label per row, or a table of probabilities; with the
    deterministic `rule` a table stands for its most probable actions, with `"randomized"` for itself. `baseline` is
    given likewise, or is `"logging"`, the policy that wrote the log; the value is then the difference.
    `nuisances` are the settings of the cross-fitting on these rows, or the result of an earlier one.

    >>> rng = np.random.default_rng(0)
    >>> x, treated = rng.normal(size=(400, 1)), rng.integers(0, 2, 400)
    >>> log = LoggedFeedback.of(x, treated * x[:, 0], treated, propensity=0.5)
    >>> bool(policy_value((x[:, 0] > 0).astype(int), log, estimator="snipw").estimate > 0.3)
    True
    """
    if isinstance(nuisances, Nuisances) and nuisances.feedback is not feedback:
        raise ValueError("these nuisances are of another log; run the cross-fitting on this one")
    seen = seen_words(policy, feedback)
    if seen is not None:
        warn(seen)
    return log_evaluator(feedback, nuisances or CrossFit(), estimator).value(policy, rule=rule, baseline=baseline)


def overlap_of(
    nuisances: Nuisances,
    pseudo_outcomes: Float[np.ndarray, "row action"],
    policy: Float[np.ndarray, "row action"] | None,
) -> OverlapReport:
    """The overlap of a log; with a policy, also the value of its deterministic rule as the clip level changes."""
    log, count = nuisances.feedback, len(nuisances.feedback.actions)

    report = overlap_report(
        log.action, nuisances.propensity, nuisances.logged_propensity, pseudo_outcomes,
        actions=log.actions, clip=nuisances.clip, sample_weight=log.weights, estimated=nuisances.estimated,
    )  # fmt: skip
    events = rare_events(log.outcome, log.action, count)
    report = report if events is None else replace(report, events=events.counts)
    if policy is None:
        return report
    rule = one_hot_rule(policy)
    estimator = "ipw" if nuisances.outcome_mean is None else "dr"
    moved = []
    for level in CLIP_LEVELS:
        other = replace(nuisances, clip=2.0 * level / count)
        value = _value_from(other, rule, estimator)
        weight = (1.0 if log.weights is None else log.weights) / other.logged_propensity
        changed, size = clipping(log.action, other.propensity, weight, count, other.clip)
        moved.append(ClipWelfare(other.clip, value.estimate, value.se, changed, size))
    return replace(report, welfare_by_clip=tuple(moved))
