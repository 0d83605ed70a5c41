"""Off-policy value of any policy from logged rows: cross-fitted nuisances, then the formulas of `value` (section 7).

Also what the log can say of a policy at all: its overlap, and the policy's value as the clip level moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.full import align_outcomes
from gbpl.feedback.logged import LoggedFeedback
from gbpl.nuisance.cross_fit import CrossFit, Nuisances
from gbpl.value.estimate import Value, check_estimator_name, logged_value, off_policy_value
from gbpl.value.overlap import ClipWelfare, OverlapReport, clipping, overlap_report
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["as_policy", "compare", "overlap_of", "policy_value", "value_from"]

LOGGING = "logging"  # the baseline that is the policy that wrote the log
CLIP_LEVELS = (0.001, 0.01, 0.02, 0.05, 0.1)  # of two actions; times 2/K for K
RULES = ("deterministic", "randomized")


def as_policy(policy: Any, actions: np.ndarray, n: int, *, rule: str, source: Any) -> Float[np.ndarray, "row action"]:
    """Action probabilities from what a user may bring.

    That is: a label (everybody gets it), a label a row, a table of probabilities (a frame whose columns are the labels
    is read by name), or an object with `predict_proba` or `predict`, which is asked about `source`. A deterministic
    rule takes the most probable action.
    """
    if rule not in RULES:
        raise ValueError(f"rule must be 'deterministic' or 'randomized', got {rule!r}")
    labels = actions.tolist()
    if hasattr(policy, "predict_proba") and (rule == "randomized" or hasattr(policy, "actions_")):
        known = getattr(policy, "actions_", getattr(policy, "classes_", actions))
        if list(known) != labels:
            raise ValueError(
                f"the policy's actions are {list(known)}, but the log's are {labels}; give it those labels"
            )
        policy = np.asarray(policy.predict_proba(source))
    elif hasattr(policy, "predict"):
        policy = policy.predict(source)
    if hasattr(policy, "columns"):
        policy = align_outcomes(policy, actions)
    listed = isinstance(policy, list | tuple) and not (len(policy) and np.ndim(policy[0]) == 1)  # labels may be mixed
    if not listed and not isinstance(policy, str | bytes) and np.ndim(policy) == 2:
        table = np.asarray(policy, np.float64)
        if table.shape != (n, len(labels)):
            raise ValueError(f"the policy must be a table of ({n}, {len(labels)}), got shape {table.shape}")
        if not (np.all(table >= -1e-4) and np.all(np.abs(table.sum(axis=1) - 1.0) <= 1e-3)):  # false for NaN too
            raise ValueError("each row of the policy must be >= 0 and sum to 1; divide the rows by their sums")
        return np.eye(len(labels))[deterministic(table)] if rule == "deterministic" else table
    one = isinstance(policy, str | bytes) or np.ndim(policy) == 0
    given = [policy] if one else policy if listed else np.asarray(policy).tolist()
    unknown = [label for label in given if label not in labels]
    if unknown:
        raise ValueError(f"the policy gives {unknown[0]!r}, but the actions are {labels}")
    if not one and len(given) != n:
        raise ValueError(f"the policy must give one action for each of the {n} rows, got {len(given)}")
    place = {label: number for number, label in enumerate(labels)}
    chosen = np.eye(len(labels))[[place[label] for label in given]]
    return np.tile(chosen, (n, 1)) if one else chosen


def value_from(nuisances: Nuisances, policy: Float[np.ndarray, "row action"], *, estimator: str = "dr") -> Value:
    """Value of a table of action probabilities, given the log's nuisances."""
    log = nuisances.feedback
    return off_policy_value(
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


def compare(
    policy: Any,
    baseline: Any,
    worth: Callable[[Float[np.ndarray, "row action"]], Value],
    *,
    actions: np.ndarray,
    n: int,
    rule: str,
    source: Any,
    logged: Value | None,
) -> Value:
    """Value of a policy, or its gain over a baseline if there is one; `logged` is that of the log's own policy."""
    mine = as_policy(policy, actions, n, rule=rule, source=source)
    if baseline is None:
        return worth(mine)
    if isinstance(baseline, str) and baseline == LOGGING and LOGGING not in actions.tolist():
        if logged is None:
            raise ValueError("baseline='logging' needs logged feedback; here the outcomes of every action are given")
        return worth(mine) - logged
    other = as_policy(baseline, actions, n, rule=rule, source=source)
    return worth(mine) - worth(other)


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

    `policy` is a fitted policy, a label for everybody, a label a row, or a table of probabilities; with the
    deterministic `rule` a table stands for its most probable actions, with `"randomized"` for itself. `baseline` is
    one too, or `"logging"`, the policy that wrote the log; the value is then the difference.
    `nuisances` are the settings of the cross-fitting on these rows, or the result of an earlier one.

    >>> rng = np.random.default_rng(0)
    >>> x, treated = rng.normal(size=(400, 1)), rng.integers(0, 2, 400)
    >>> log = LoggedFeedback.of(x, treated * x[:, 0], treated, propensity=0.5)
    >>> bool(policy_value((x[:, 0] > 0).astype(int), log, estimator="snipw").estimate > 0.3)
    True
    """
    check_estimator_name(estimator)
    if isinstance(nuisances, Nuisances) and nuisances.feedback is not feedback:
        raise ValueError("these nuisances are of another log; run the cross-fitting on this one")

    def worth(table: Float[np.ndarray, "row action"]) -> Value:
        nonlocal nuisances  # estimated when first needed: whatever can be refused has been by then
        if not isinstance(nuisances, Nuisances):
            needed = "dr" if estimator in ("dr", "dm") else "ipw"
            nuisances = (nuisances or CrossFit()).run(feedback, needed)
        return value_from(nuisances, table, estimator=estimator)

    return compare(
        policy,
        baseline,
        worth,
        actions=feedback.actions,
        n=len(feedback),
        rule=rule,
        source=feedback.source,
        logged=logged_value(feedback.net_outcome, weights=feedback.weights, groups=feedback.groups),
    )


def overlap_of(
    nuisances: Nuisances,
    pseudo_outcomes: Float[np.ndarray, "row action"],
    policy: Float[np.ndarray, "row action"] | None,
) -> OverlapReport:
    """The overlap of a log; with a policy, also the value of its deterministic rule as the clip level moves."""
    log, count = nuisances.feedback, len(nuisances.feedback.actions)

    report = overlap_report(
        log.action, nuisances.propensity, nuisances.logged_propensity, pseudo_outcomes,
        actions=log.actions, clip=nuisances.clip, sample_weight=log.weights, estimated=nuisances.estimated,
    )  # fmt: skip
    if policy is None:
        return report
    rule = np.eye(count)[deterministic(policy)]
    estimator = "ipw" if nuisances.outcome_mean is None else "dr"
    moved = []
    for level in CLIP_LEVELS:
        other = replace(nuisances, clip=2.0 * level / count)
        value = value_from(other, rule, estimator=estimator)
        weight = (1.0 if log.weights is None else log.weights) / other.logged_propensity
        changed, size = clipping(log.action, other.propensity, weight, count, other.clip)
        moved.append(ClipWelfare(other.clip, value.estimate, value.se, changed, size))
    return replace(report, welfare_by_clip=tuple(moved))
