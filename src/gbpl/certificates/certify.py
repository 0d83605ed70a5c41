"""Certify a fitted policy: on rows it has not seen, or cross-fitted on its own (section 8)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from gbpl.certificates.certificate import Certificate, CertificateSettings, short
from gbpl.certificates.draws import CertifiedDraws, certify_draws
from gbpl.certificates.rows import CertifyingRows, check_within, full_rows, logged_rows
from gbpl.feedback.checks import check_cost
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.fitting.members import fold_rows
from gbpl.nuisance.cross_fit import CrossFit, EstimatedPropensityWarning, Nuisances
from gbpl.posterior.bootstrap import Bootstrap
from gbpl.value.overlap import OverlapWarning

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["cross_fitted_certificate", "fresh_certificate"]

SCALES = (1.0, 4.0, 16.0, 64.0, 4096.0)  # of the loss, in units of eta_; the last is next to the MAP


def fresh_certificate(
    policy: Any,
    data: FullFeedback | LoggedFeedback,
    cost: Any,
    learned_from: Float[np.ndarray, "row feature"],
    cross_fit: CrossFit,
    settings: CertificateSettings,
) -> Certificate:
    """Certify a fitted policy's posterior on rows it has not learned from."""
    _check_equal_rows(data)
    _check_unseen(data.x, learned_from)
    if isinstance(data, LoggedFeedback):
        check_within(data.outcome, settings.outcome_range, "the outcome")
        known = cross_fit.run(data, "ipw")
        rows = logged_rows(data, known.propensity, known.clip, settings.outcome_range, estimated=known.estimated)
    else:
        paid = None if cost is None else check_cost(cost, data.actions, len(data))
        rows = full_rows(data.x, data.outcomes, paid, settings.outcome_range)
    certified = _certify(policy, rows, settings, settings.failure_probability)
    return _certificate([certified], rows, policy.actions_, settings)


def cross_fitted_certificate(
    policy: Any, feedback: FullFeedback, nuisances: Nuisances | None, settings: CertificateSettings
) -> Certificate:
    """Certify on the training rows: each part certifies a clone of the policy that was fitted on the others alone.

    Each part has failure_probability over their number, so all hold together; the welfare of the even mixture of the
    parts' policies is at least the mean of their bounds. Parts depend on row numbers alone, whatever the rows hold.
    """
    data = feedback if nuisances is None else nuisances.feedback
    _check_equal_rows(data)
    if len(data) < 2 * settings.folds:
        raise ValueError(f"too few rows for {settings.folds} folds: n_samples={len(data)}; use fewer folds")
    if nuisances is None:
        rows = full_rows(feedback.x, feedback.outcomes, None, settings.outcome_range)
    else:
        rows = logged_rows(
            nuisances.feedback, nuisances.propensity, nuisances.clip, settings.outcome_range,
            estimated=nuisances.estimated,
        )  # fmt: skip
    parts = []
    for part in fold_rows(len(data), settings.folds, seed=settings.seed):
        others = np.setdiff1d(np.arange(len(data)), part, assume_unique=True)
        with warnings.catch_warnings():
            for category in (EstimatedPropensityWarning, OverlapWarning):  # the policy's own fit has given them
                warnings.simplefilter("ignore", category)
            fitted = clone(policy).fit(
                replace(data.take(others), source=None) if data.source is None else data.take(others)
            )
        parts.append(_certify(fitted, rows.part(part), settings, settings.failure_probability / settings.folds))
    return _certificate(parts, rows, policy.actions_, settings)


def _certify(
    policy: Any, rows: CertifyingRows, settings: CertificateSettings, failure_probability: float
) -> CertifiedDraws:
    """Draw from a fitted policy's posterior at every loss scale, one posterior in memory at a time."""
    bootstrap = settings.method == Bootstrap.method  # its spread does not depend on the scale of the loss
    values = []
    for number, scale in enumerate(SCALES[:1] if bootstrap else SCALES):
        seed = int(np.random.SeedSequence([settings.seed, number]).generate_state(1)[0])
        if bootstrap:
            posterior = policy.posterior(settings.method, refits=max(2, settings.draws), seed=seed)
        else:
            posterior = policy.posterior(settings.method, eta=policy.eta_ * scale, **settings.options)
        drawn = posterior.welfare(rows.x, rows.table, rule=settings.rule, draws=settings.draws, seed=seed)
        values.append(drawn.values)
    return certify_draws(
        np.concatenate(values), len(rows.x), low=rows.low, width=rows.width, failure_probability=failure_probability
    )


def _certificate(
    parts: list[CertifiedDraws], rows: CertifyingRows, actions: np.ndarray, settings: CertificateSettings
) -> Certificate:
    def mean(name: str) -> float:
        return float(np.mean([getattr(part, name) for part in parts]))

    lower, estimate, confidence = mean("lower"), mean("estimate"), mean("confidence")
    singles = rows.single_actions(settings.failure_probability)
    best = int(np.argmax(singles))
    reason = ""
    if lower <= rows.low:
        reason = f"no policy can be worth less than {short(rows.low)}"
    elif lower <= singles[best]:
        reason = (
            f"giving everybody {actions.tolist()[best]!r} is certified to be worth {short(singles[best])} or more, "
            "which is not less"
        )
    low, high = settings.outcome_range
    return Certificate(
        lower=lower,
        estimate=estimate,
        failure_probability=settings.failure_probability,
        outcome_range=settings.outcome_range,
        kl=mean("kl"),
        n=len(rows.x),
        rule=settings.rule,
        forms={name: float(np.mean([part.forms[name] for part in parts])) for name in parts[0].forms},
        single_actions=dict(zip(actions.tolist(), singles.tolist(), strict=True)),
        vacuous=bool(reason),
        reason=reason,
        certified=rows.certified,
        caveats=rows.caveats,
        what_dominates={
            "kl": estimate - lower - confidence,
            "confidence": confidence,
            "range": rows.width,
            "widening": rows.width / (high - low),
        },
        weights=tuple(part.weights for part in parts),
    )


# -- refusals -------------------------------------------------------------------------------------------------------


def _check_equal_rows(data: FullFeedback | LoggedFeedback) -> None:
    if data.groups is not None:
        raise ValueError(
            f"the rows come in {len(np.unique(data.groups))} groups: the bound needs independent rows; certify on one "
            "row of each group, without groups"
        )
    if data.weights is not None and np.ptp(data.weights) > 0.0:
        raise ValueError(
            "the rows have different sample weights: the bound needs rows that count the same; leave sample_weight "
            "out, or draw rows in proportion to it"
        )


def _keys(x: Float[np.ndarray, "row feature"]) -> Int[np.ndarray, " row"]:
    return np.fromiter((hash(row.tobytes()) for row in np.asarray(x, np.float64) + 0.0), np.int64, len(x))


def _check_unseen(x: Float[np.ndarray, "row feature"], learned_from: Float[np.ndarray, "row feature"]) -> None:
    """Refuse the training rows, in any order, or a part of them; some equal rows of discrete features prove nothing."""
    mine, known = _keys(x), _keys(learned_from)
    same = len(mine) == len(known) and np.array_equal(np.sort(mine), np.sort(known))
    rare = len(np.unique(known)) > 0.9 * len(known)
    share = float(np.mean(np.isin(mine, known)))
    if same or (rare and share > 0.5):
        raise ValueError(
            f"{share:.0%} of these rows are rows the policy learned from: on those no certificate holds; give other "
            "rows, or leave X and y out for the cross-fitted certificate of the training rows"
        )
