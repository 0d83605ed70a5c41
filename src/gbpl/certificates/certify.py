"""Certify a fitted policy: itself on rows it has not seen or on a share held out, or draws on all rows (section 8)."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor

from gbpl.certificates import means
from gbpl.certificates.certificate import DRAWS, Certificate, CertificateSettings
from gbpl.certificates.certifier import Bound, Certifier
from gbpl.certificates.draws import CertifiedDraws, certify_draws
from gbpl.certificates.scores import Evidence, Limits, check_within, scored, scores
from gbpl.checks.propensities import wrong_propensities
from gbpl.feedback.checks import check_cost
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.fitting.apply import policy_of_deviation
from gbpl.fitting.members import fold_rows
from gbpl.nuisance.nuisances import Nuisances
from gbpl.posterior.bootstrap import Bootstrap
from gbpl.tables.frames import TableError
from gbpl.value.evaluate import LOGGING, Evaluator, one_hot_rule
from gbpl.value.overlap import OverlapWarning

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Feedback = FullFeedback | LoggedFeedback
    Table = Float[np.ndarray, "row action"]

__all__ = [
    "certify_on", "check_certifiable", "cross_fitted_certificate", "fresh_certificate", "held_out_certificate",
    "hold_out_rows",
]  # fmt: skip

SCALES = (1.0, 4.0, 16.0, 64.0, 4096.0)  # of the loss, in units of eta_; the last is next to the MAP
SMOOTH = ExtraTreesRegressor(50, min_samples_leaf=10, random_state=0)  # of predictions, which have little noise


# -- the policy itself ----------------------------------------------------------------------------------------------


def certify_on(
    policy: Any, data: Feedback, settings: CertificateSettings, *, decided: Table, learned_decided: Table | None = None,
    rows: Int[np.ndarray, " row"] | None = None,
) -> Certificate:  # fmt: skip
    """Certify what a fitted policy `decided` for rows it has not learned from.

    `learned_decided` is what it decides for the rows it learned from, out of fold where that is known.
    """
    training = policy.training("certify it where it was fitted")
    check_certifiable(data, settings.outcome_range)
    count, p = len(data.actions), settings.failure_probability
    learned = _learned(training.feedback, training.nuisances)
    before = _played(training.fit.deviation, settings.rule) if learned_decided is None else learned_decided
    if before is None:  # one network, which has seen every row
        before = Evaluator.of_outcomes(training.feedback).table(policy, settings.rule)
    evidence = _evidence(data, learned, training.nuisances)
    clip = 0.0 if training.nuisances is None else training.nuisances.clip
    limits = Limits.of(settings.outcome_range, learned, count, clip=clip).with_costs(evidence.cost)
    known: Evidence | None = learned
    if (evidence.action is None) != (learned.action is None):  # tables of outcomes say nothing of a log, nor it of them
        known, smallest = None, 1.0 if evidence.action is None else policy.cross_fit_settings(0).clip_for(count)
        limits = replace(limits, smallest=np.full(count, smallest))
    certifier = Certifier(evidence, decided, limits, known, before)
    value = certifier.bound(p)
    assert value is not None
    best = int(np.argmax(_single_values(learned, limits)))
    labels = data.actions.tolist()

    def over(number: int, chance: float) -> Bound | None:
        tables = (np.tile(np.eye(count)[number], (len(part), 1)) for part in (evidence, learned))
        return certifier.bound(chance, *tables)

    gains = {label: bound for number, label in enumerate(labels) if (bound := over(number, p / count)) is not None}
    return Certificate(
        value=value,
        failure_probability=p,
        outcome_range=settings.outcome_range,
        rule=settings.rule,
        learned=len(learned),
        best_action=labels[best],
        single_actions=_single_actions(evidence, limits, known, labels, p),
        gain=over(best, p),
        gains=gains,
        over_logging=None if evidence.action is None else certifier.bound(p, LOGGING, LOGGING),
        caveats=_caveats(evidence, learned, settings.outcome_range),
        rows=rows,
        certifier=certifier,
        fitted=policy,
        evaluator=_evaluator(data),
    )


def fresh_certificate(policy: Any, data: Feedback, cost: Any, settings: CertificateSettings) -> Certificate:
    """Certify a fitted policy, or its draws, on rows it has not learned from."""
    training = policy.training("certify it where it was fitted")
    _check_unseen(data.x, training.feedback.x)
    if cost is not None and isinstance(data, FullFeedback):
        paid = check_cost(cost, data.actions, len(data))
        data = data.less(cost)
        low, high = settings.outcome_range
        settings = replace(settings, outcome_range=(low - float(paid.max()), high - float(paid.min())))
    if settings.of == DRAWS:
        check_certifiable(data, settings.outcome_range)
        return _of_draws(policy, [(policy, data)], settings)
    decided = _evaluator(data).table(policy, settings.rule)
    return certify_on(policy, data, settings, decided=decided)


def held_out_certificate(
    policy: Any, feedback: FullFeedback, nuisances: Nuisances | None, settings: CertificateSettings
) -> Certificate:
    """Certify a clone that is fitted to a part of the rows of a fit, on the others."""
    data: Feedback = feedback if nuisances is None else nuisances.feedback
    check_certifiable(data, settings.outcome_range)
    learned, rows = hold_out_rows(len(data), data.groups, settings.share, settings.seed)
    fitted, held = _refitted(policy, data, learned), data.take(rows)
    decided = _evaluator(held).table(fitted, settings.rule)
    return certify_on(fitted, held, settings, decided=decided, rows=rows)


def hold_out_rows(
    n: int, groups: Int[np.ndarray, " row"] | None, share: float, seed: int
) -> tuple[Int[np.ndarray, " learned"], Int[np.ndarray, " certifying"]]:
    """Rows that learn and rows that certify, at random by row numbers and groups alone."""
    what = "rows" if groups is None else "groups"
    groups = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = int(groups.max()) + 1
    certifying = round(share * count)
    if certifying < 2 or count - certifying < 2:
        raise ValueError(f"too few {what} to certify: {count}, of which share={share:g} holds out {certifying}")
    chosen = np.random.default_rng([seed, 21]).permutation(count)[:certifying]
    held = np.isin(groups, chosen)
    return np.flatnonzero(~held), np.flatnonzero(held)


def _refitted(policy: Any, data: Feedback, rows: Int[np.ndarray, " row"]) -> Any:
    part = data.take(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverlapWarning)  # the policy's own fit has given it
        return (
            clone(policy)
            .set_params(actions=data.actions.tolist())
            .fit(replace(part, source=None) if data.source is None else part)
        )


def _evaluator(data: Feedback) -> Evaluator:
    """Reads policies as users give them; it values nothing."""
    source = data.x if data.source is None else data.source
    return Evaluator(data.actions, len(data), source, lambda table: NotImplemented)


def _played(deviation: Table | None, rule: str) -> Table | None:
    if deviation is None:
        return None
    table = policy_of_deviation(deviation)
    return one_hot_rule(deviation) if rule == "deterministic" else table


def _learned(feedback: FullFeedback, nuisances: Nuisances | None) -> Evidence:
    if nuisances is None:
        return Evidence(feedback.outcomes, weights=feedback.weights, groups=feedback.groups)
    log = nuisances.feedback
    return Evidence(
        log.outcome, log.action, nuisances.propensity, nuisances.outcome_mean, log.cost, log.weights, log.groups
    )


def _evidence(data: Feedback, learned: Evidence, nuisances: Nuisances | None) -> Evidence:
    """The certifying rows, with what a model of the rows learned from expects of them."""
    if isinstance(data, FullFeedback):
        return Evidence(data.outcomes, weights=data.weights, groups=data.groups)
    expected = None
    if learned.expected is not None and nuisances is not None:
        expected = _expected(nuisances.feedback.context, learned.expected, data.context)
    return Evidence(data.outcome, data.action, data.propensity, expected, data.cost, data.weights, data.groups)


def _expected(context: np.ndarray, means_: Table, new: np.ndarray) -> Table | None:
    """What the cross-fitted outcome models of the fit expect, learned from their own predictions: for any row."""
    if context.shape[1] != new.shape[1]:
        return None
    return clone(SMOOTH).fit(context, means_).predict(new)


def _single_values(learned: Evidence, limits: Limits) -> Float[np.ndarray, " action"]:
    """Mean value of each action for everybody, on the rows learned from."""
    table = scores(learned, limits, 1.0) - (0.0 if learned.cost is None else learned.cost)
    return np.average(table, axis=0, weights=learned.weights)


def _single_actions(
    evidence: Evidence, limits: Limits, learned: Evidence | None, labels: list[Any], p: float
) -> dict[Any, float]:
    """Lower bounds of giving everybody one action, which hold together."""
    lowers = {}
    for number, label in enumerate(labels):
        one = np.eye(len(labels))[number]
        mine, before = (None if part is None else np.tile(one, (len(part), 1)) for part in (evidence, learned))
        assert mine is not None
        bound = Certifier(evidence, mine, limits, learned, before).bound(p / len(labels))
        assert bound is not None
        lowers[label] = bound.lower
    return lowers


def _caveats(evidence: Evidence, learned: Evidence, outcome_range: tuple[float, float]) -> tuple[str, ...]:
    caveats = []
    if evidence.cost is not None and np.ptp(evidence.cost, axis=0).any():
        caveats.append("costs differ between rows: those of these rows are taken as the range of all")
    mine, before = (means.Units.of(np.zeros(len(part)), part.weights, part.groups) for part in (evidence, learned))
    if mine.weight is not None and before.weight is None:
        caveats.append("nothing was learned with weights: the largest of these rows is taken as that of all")
    elif mine.weight is not None and (beyond := float(np.mean(mine.weight > before.largest))):
        caveats.append(f"weights above the largest that was learned from ({beyond:.2g} of the rows) count as that")
    if not np.isfinite(outcome_range[1]):
        caveats.append("outcomes have no upper end, so no gain and no upper bound is certified")
    return tuple(caveats)


# -- draws ----------------------------------------------------------------------------------------------------------


def cross_fitted_certificate(
    policy: Any, feedback: FullFeedback, nuisances: Nuisances | None, settings: CertificateSettings
) -> Certificate:
    """Certify draws on all rows: each part certifies those of a clone that was fitted on the others alone.

    Each part has failure_probability over their number, so all hold together; the welfare of the even mixture of the
    parts' policies is at least the mean of their bounds. Parts depend on row numbers alone, whatever the rows hold.
    """
    data: Feedback = feedback if nuisances is None else nuisances.feedback
    check_certifiable(data, settings.outcome_range)
    if len(data) < 2 * settings.folds:
        raise ValueError(f"too few rows for {settings.folds} folds: n_samples={len(data)}; use fewer folds")
    parts = []
    for part in fold_rows(len(data), settings.folds, seed=settings.seed):
        others = np.setdiff1d(np.arange(len(data)), part, assume_unique=True)
        parts.append((_refitted(policy, data, others), data.take(part)))
    return _of_draws(policy, parts, settings)


def _of_draws(policy: Any, parts: list[tuple[Any, Feedback]], settings: CertificateSettings) -> Certificate:
    first = parts[0][1]
    if first.groups is not None or (first.weights is not None and np.ptp(first.weights) > 0.0):
        raise ValueError("draws are certified on independent rows that count the same; use of='policy', or leave out "
                         "groups and sample_weight")  # fmt: skip
    certified, singles, best = [], [], 0
    for fitted, data in parts:
        made, lowers, best = _certified_draws(fitted, data, settings, settings.failure_probability / len(parts))
        certified.append(made)
        singles.append(lowers)

    def mean(name: str) -> float:
        return float(np.mean([getattr(part, name) for part in certified]))

    forms = {name: float(np.mean([part.forms[name] for part in certified])) for name in certified[0].forms}
    n = sum(part.n for part in certified)
    labels = first.actions.tolist()
    return Certificate(
        value=Bound(mean("estimate"), mean("lower"), None, settings.failure_probability, n, forms),
        failure_probability=settings.failure_probability,
        outcome_range=settings.outcome_range,
        rule=settings.rule,
        learned=len(policy.training("certify it where it was fitted").feedback),
        best_action=labels[best],
        single_actions={label: float(np.mean([lower[label] for lower in singles])) for label in labels},
        of=DRAWS,
        kl=mean("kl"),
        weights=tuple(part.weights for part in certified),
    )


def _certified_draws(
    policy: Any, data: Feedback, settings: CertificateSettings, p: float
) -> tuple[CertifiedDraws, dict[Any, float], int]:
    """Draw from a fitted policy's posterior at every loss scale; bounds of single actions beside them."""
    training = policy.training("certify it where it was fitted")
    learned = _learned(training.feedback, training.nuisances)
    evidence = replace(_evidence(data, replace(learned, expected=None), training.nuisances))
    clip = 0.0 if training.nuisances is None else training.nuisances.clip
    limits = Limits.of(settings.outcome_range, learned, len(data.actions), clip=clip).with_costs(evidence.cost)
    table = scores(evidence, limits, 0.0) - (0.0 if evidence.cost is None else evidence.cost)
    low = limits.low - limits.dearest
    width = float(limits.highest.max()) - limits.cheapest - low
    before = _played(training.fit.deviation, settings.rule)
    before = Evaluator.of_outcomes(training.feedback).table(policy, settings.rule) if before is None else before
    values = scored(learned, limits, before)
    assert values is not None
    bet = means.anticipated(means.Units.of(values.values, None, None), p, low=low, n=len(data))[1]
    logs = np.log1p(bet * np.maximum(table - low, 0.0))  # of a mixture of actions: at most that of its value
    drawn: list[tuple[np.ndarray, np.ndarray]] = []
    bootstrap = settings.method == Bootstrap.method  # its spread does not depend on the scale of the loss
    for number, scale in enumerate(SCALES[:1] if bootstrap else SCALES):
        seed = int(np.random.SeedSequence([settings.seed, number]).generate_state(1)[0])
        if bootstrap:
            posterior = policy.posterior(settings.method, refits=max(2, settings.draws), seed=seed)
        else:
            posterior = policy.posterior(settings.method, eta=policy.eta_ * scale, **settings.options)
        given: dict[str, Any] = {"rule": settings.rule, "draws": settings.draws, "seed": seed}
        drawn.append(tuple(posterior.welfare(data.x, each, **given).values for each in (table, logs)))  # type: ignore[arg-type]
    worth, stakes = (np.concatenate(each) for each in zip(*drawn, strict=True))
    made = certify_draws(worth, len(data), low=low, width=width, failure_probability=p, log_stakes=stakes, bet=bet)
    labels = data.actions.tolist()
    best = int(np.argmax(_single_values(learned, limits)))
    return made, _single_actions(evidence, limits, learned, labels, p), best


# -- refusals -------------------------------------------------------------------------------------------------------


def check_certifiable(data: Feedback, outcome_range: tuple[float, float]) -> None:
    """Refuse outcomes outside the range, and propensities that are not known or wrong, before anything is fitted."""
    if isinstance(data, FullFeedback):
        check_within(data.outcomes, outcome_range, "an outcome")
        return
    check_within(data.outcome, outcome_range, "the outcome")
    if data.propensity is None:
        raise TableError(
            "the propensities are estimated, and no bound holds for every number of rows with those; give the "
            "probabilities with which actions were drawn, or use value and sensitivity"
        )
    wrong = wrong_propensities(data, strict=True)
    if wrong is not None:
        raise TableError(f"{wrong}. No certificate holds with wrong propensities, nor with estimated ones")


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
            "rows, or leave X and y out to hold some of the training rows out"
        )
