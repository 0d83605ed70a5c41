"""Welfare certificates: a number that a policy's welfare is at least, with a stated probability (section 8).

Policies are drawn from the posterior of a fit that has seen nothing of the certifying rows. The prior P of the bound is
uniform over those m draws, and Q any reweighting of them, so KL(Q || P) = sum_j q_j log(m q_j) is exact: there is no
Monte Carlo error in a certificate. A row's value under a policy lies in a known range [low, low + width]; its share of
that range is the one bounded gain, and no constant is left over:

    V(Q) >= low + width (smallest p with kl(p_hat || p) <= (KL + log(2 sqrt(n) / rho)) / n).

The bound holds for all Q at once, so Q is chosen after looking: q_j proportional to exp(strength p_j), at the strength
with the best bound. Draws come from several loss scales, and the reweighting picks one at a KL of at most the log of
their number. With logged feedback a row's value is low + delta_A (Y - low) / max(e_A, clip): the gain is never below
zero, so clipping can only lower it and the bound still holds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax, xlogy
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from gbpl.certificates.bounds import (
    Moments,
    catoni_bound_over_rates,
    chernoff_bound,
    inverse_kl_lower_bound,
    pac_bayes_bound_over_rates,
)
from gbpl.feedback.checks import check_cost
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import of_logged_action
from gbpl.fitting.members import fold_rows
from gbpl.nuisance.cross_fit import CrossFit, EstimatedPropensityWarning, Nuisances
from gbpl.posterior.methods import METHODS, Bootstrap, PosteriorError, Problem, member_posterior
from gbpl.value.evaluate import check_rule
from gbpl.value.overlap import OverlapWarning

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Certificate", "CertificateSettings", "CertifiedDraws", "CertifyingRows", "certify_draws"]

SCALES = (1.0, 4.0, 16.0, 64.0, 4096.0)  # of the loss, in units of eta_; the last is next to the MAP
INVERSE_KL, CATONI, THEOREM = "inverse kl", "Catoni, best of a grid of rates", "the paper's theorem, best of a grid"
CLOSED_FORM = ("exact", "last_layer", "laplace")  # whose demands on the model are checked before anything is fitted
CONDITIONAL = "so the certificate speaks of people with the features of these rows, not of a wider population"


# -- the bound on draws ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedDraws:
    """What is certified of a reweighting of policies on `n` rows; `confidence` is what the gap would be without KL."""

    n: int
    estimate: float
    lower: float
    kl: float
    confidence: float
    forms: Mapping[str, float]
    weights: Float[np.ndarray, " draw"]


def certify_draws(
    values: Float[np.ndarray, " draw"], n: int, *, low: float, width: float, failure_probability: float
) -> CertifiedDraws:
    """Certify the best reweighting of policies whose mean values on n independent rows are given.

    Every row's value must lie in [low, low + width] whatever the policy, and the policies must not have seen the rows.
    Each form of the bound has its own best reweighting; the certificate is the inverse-kl one, fixed in advance.

    >>> found = certify_draws(np.array([0.2, 0.9]), 1000, low=0.0, width=1.0, failure_probability=0.05)
    >>> round(found.estimate, 2), 0.8 < found.lower < 0.9, round(found.kl, 2)
    (0.9, True, 0.69)
    """
    gains = np.clip((np.asarray(values, np.float64) - low) / width, 0.0, 1.0)  # outside by rounding alone
    strengths = np.concatenate([[0.0], 2.0 ** np.arange(math.ceil(math.log2(16 * n)) + 1)])
    weights = softmax(strengths[:, None] * gains, axis=1)
    kl = np.maximum(np.sum(xlogy(weights, len(gains) * weights), axis=1), 0.0)
    means = np.clip(weights @ gains, 0.0, 1.0)
    given: dict[str, Any] = {"failure_probability": failure_probability}
    forms = {
        INVERSE_KL: np.asarray(inverse_kl_lower_bound(means, kl, n, **given)),
        CATONI: 1.0 - np.asarray(catoni_bound_over_rates(1.0 - means, kl, n, **given)),
        THEOREM: 1.0 - np.asarray(
            pac_bayes_bound_over_rates(1.0 - means, kl, n, moments=Moments.bounded(0.0, 1.0), **given)
        ),
    }  # fmt: skip
    best = int(np.argmax(forms[INVERSE_KL]))
    estimate = low + width * float(means[best])
    alone = low + width * float(inverse_kl_lower_bound(float(means[best]), 0.0, n, **given))
    return CertifiedDraws(
        n=n,
        estimate=estimate,
        lower=min(low + width * float(forms[INVERSE_KL][best]), estimate),
        kl=float(kl[best]),
        confidence=estimate - alone,
        forms={name: low + width * max(0.0, float(lowers.max())) for name, lowers in forms.items()},
        weights=weights[best],
    )


# -- the rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class CertifyingRows:
    """A table whose expected mean under a policy is at most its welfare, and the range of a row's value.

    `action_low` and `action_width` are that range where everybody gets one action.
    """

    x: Float[np.ndarray, "row feature"]
    table: Float[np.ndarray, "row action"]
    low: float
    width: float
    action_low: Float[np.ndarray, " action"]
    action_width: Float[np.ndarray, " action"]
    certified: bool
    caveats: tuple[str, ...]

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "row feature"],
        gross: Float[np.ndarray, "row action"],
        cost: Float[np.ndarray, "row action"] | None,
        outcome_range: tuple[float, float],
        stretch: Float[np.ndarray, " action"] | float = 1.0,
        caveats: tuple[str, ...] = (),
        certified: bool = True,
    ) -> CertifyingRows:
        """From values before costs in [lowest, lowest + stretch_a (highest - lowest)] for action a."""
        paid = np.zeros(gross.shape) if cost is None else cost
        if cost is not None and np.ptp(cost, axis=0).any():
            caveats = (*caveats, f"costs differ between rows: the range is that of these rows' costs, {CONDITIONAL}")
        dearest, cheapest = paid.max(axis=0), paid.min(axis=0)
        span = np.broadcast_to(np.asarray(stretch) * (outcome_range[1] - outcome_range[0]), dearest.shape)
        low = outcome_range[0] - float(dearest.max())
        return cls(
            x=x,
            table=gross if cost is None else gross - paid,
            low=low,
            width=outcome_range[0] + float(span.max()) - float(cheapest.min()) - low,
            action_low=outcome_range[0] - dearest,
            action_width=span + dearest - cheapest,
            certified=certified,
            caveats=caveats,
        )

    def part(self, rows: Int[np.ndarray, " part"]) -> CertifyingRows:
        return replace(self, x=self.x[rows], table=self.table[rows])

    def single_actions(self, failure_probability: float) -> Float[np.ndarray, " action"]:
        """What giving everybody one action is worth at least, for all actions together (Chernoff's bound, shared)."""
        share = failure_probability / self.table.shape[1]
        gains = np.clip((self.table.mean(axis=0) - self.action_low) / self.action_width, 0.0, 1.0)
        losses = np.asarray(chernoff_bound(1.0 - gains, len(self.table), failure_probability=share))
        return self.action_low + self.action_width * (1.0 - losses)


def _check_within(values: Float[np.ndarray, "..."], outcome_range: tuple[float, float], what: str) -> None:
    low, high = outcome_range
    wrong = (values < low) | (values > high)
    if wrong.any():
        place = tuple(int(index[0]) for index in np.nonzero(wrong))
        raise ValueError(
            f"{what} is {values[place]:g} in row {place[0]} ({int(wrong.sum())} such value(s)), outside "
            f"outcome_range=({low:g}, {high:g}); state the range outcomes can take, or cut them to it first (cut from "
            "above, what is certified of the cut outcomes holds for the whole ones)"
        )


def full_rows(
    x: Float[np.ndarray, "row feature"],
    outcomes: Float[np.ndarray, "row action"],
    cost: Float[np.ndarray, "row action"] | None,
    outcome_range: tuple[float, float],
) -> CertifyingRows:
    """A row's value is sum_a delta_a (Y(a) - c_a)."""
    _check_within(outcomes, outcome_range, "an outcome")
    return CertifyingRows.of(x, np.asarray(outcomes, np.float64), cost, outcome_range)


def logged_rows(
    log: LoggedFeedback,
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"],
    clip: float,
    outcome_range: tuple[float, float],
    *,
    estimated: bool,
) -> CertifyingRows:
    """A row's value is low + delta_A (Y - low) / max(e_A, clip) - sum_a delta_a c_a, its mean at most the welfare.

    The range takes the smallest propensity that an action can have: by design where every row has the same, else that
    of these rows, or `clip` where it is larger; and `clip` where propensities of the other actions are not known.
    """
    _check_within(log.outcome, outcome_range, "the outcome")
    count, low = len(log.actions), outcome_range[0]
    caveats: tuple[str, ...] = ()
    if propensity.ndim == 2:
        taken, smallest = of_logged_action(propensity, log.action), propensity.min(axis=0)
        if np.ptp(propensity, axis=0).max() > 1e-12 and smallest.min() > clip:
            caveats = (f"propensities differ between rows: the range is that of the smallest, {CONDITIONAL}",)
    else:
        taken, smallest = propensity, np.zeros(count)
        if clip == 0.0:
            raise ValueError(
                "propensity is known for the action taken alone and clip is 0: a row's value has no range; give a "
                "column for each action, or a clip > 0 to GBPLNet"
            )
        caveats = (f"propensities of actions not taken are unknown: the range is that of clip={clip:g}, which is wide",)
    if estimated:
        caveats = ("propensities are estimated: the bound takes them as true, and nothing is certified", *caveats)
    gross = np.full((len(log), count), float(low))
    gross[np.arange(len(log)), log.action] += (log.outcome - low) / np.maximum(taken, clip)
    stretch = 1.0 / np.maximum(smallest, clip)
    return CertifyingRows.of(log.x, gross, log.cost, outcome_range, stretch, caveats, certified=not estimated)


# -- what is asked, and what is answered ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSettings:
    """What a certificate is asked for; `draws` are of each of the five loss scales."""

    outcome_range: tuple[float, float]
    failure_probability: float = 0.05
    rule: str = "deterministic"
    draws: int = 200
    seed: int = 0
    folds: int = 2
    method: str = "last_layer"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.outcome_range is None:
            raise ValueError(
                "outcome_range is missing: a certificate needs the lowest and the highest value an outcome can take, "
                "known without the data, such as outcome_range=(0, 1) for yes or no; cut an outcome without a limit to "
                "a range first, and certify that"
            )
        try:
            low, high = (float(end) for end in self.outcome_range)
        except (TypeError, ValueError):
            low = high = math.nan
        if not -math.inf < low < high < math.inf:
            raise ValueError(f"outcome_range must be finite (low, high) with low < high, got {self.outcome_range!r}")
        object.__setattr__(self, "outcome_range", (low, high))
        if not 0.0 < self.failure_probability < 1.0:
            raise ValueError(f"failure_probability must be in (0, 1), got {self.failure_probability}; try 0.05")
        check_rule(self.rule)
        for name, least in (("draws", 1), ("folds", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
        if self.method not in METHODS:
            raise PosteriorError(f"method must be one of {', '.join(sorted(METHODS))}, got {self.method!r}")

    def check_model(self, problem: Problem) -> None:
        """Let a method refuse the model on two rows, before anything is fitted."""
        if self.method in CLOSED_FORM:
            few = None if problem.weights is None else problem.weights[:2]
            phi = None if problem.phi is None else problem.phi[:2]
            rows = replace(problem, x=problem.x[:2], target=problem.target[:2], weights=few, phi=phi, curvature=None)
            member_posterior(self.method, rows, **self.options)


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """With probability at least 1 - `failure_probability` over the rows, the certified policy's welfare is >= `lower`.

    The certified policy takes a draw of the posterior with the probabilities `weights` (an array for each part) and
    follows its rule; cross-fitted, it first takes one of the parts' posteriors, each with the same probability.
    `estimate` is its mean value on the certifying rows, `kl` its divergence from uniform weights (a mean over parts),
    `n` all certifying rows.

    `forms` are the lower bounds by each form of the theorem, every one at the full failure probability and with its own
    best weights; `lower` is that of the inverse kl, fixed in advance (the best of several forms would not hold at that
    probability). `single_actions` are lower bounds of giving everybody one action, which hold together at the failure
    probability. `vacuous` with its `reason` says when the certificate is worth nothing. Without `certified` the number
    is a guide; `caveats` say why, and what else there is to know. `what_dominates` splits estimate - lower into `kl`
    and `confidence`, the rest, which falls as one over the square root of n; both are proportional to `range`, the
    width of a row's value, `widening` times that of the outcomes.
    """

    lower: float
    estimate: float
    failure_probability: float
    outcome_range: tuple[float, float]
    kl: float
    n: int
    rule: str
    forms: Mapping[str, float]
    single_actions: Mapping[Any, float]
    vacuous: bool
    reason: str
    certified: bool
    caveats: tuple[str, ...]
    what_dominates: Mapping[str, float]
    weights: tuple[Float[np.ndarray, " draw"], ...]

    @property
    def best_action(self) -> Any:
        """The single action with the highest lower bound."""
        return max(self.single_actions, key=lambda label: self.single_actions[label])

    @property
    def dominant(self) -> str:
        """The largest reason for the gap: "kl", "range" (the row's value is wider than the outcome), or "rows"."""
        if self.what_dominates["kl"] > self.what_dominates["confidence"]:
            return "kl"
        return "range" if self.what_dominates["widening"] > 2.0 else "rows"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a table or JSON; the weights are left out."""
        return {
            "lower": self.lower, "estimate": self.estimate, "failure_probability": self.failure_probability,
            "outcome_range": list(self.outcome_range), "kl": self.kl, "n": self.n, "rule": self.rule,
            "forms": dict(self.forms), "single_actions": {str(a): v for a, v in self.single_actions.items()},
            "best_action": str(self.best_action), "vacuous": self.vacuous, "reason": self.reason,
            "certified": self.certified, "caveats": list(self.caveats), "what_dominates": dict(self.what_dominates),
            "dominant": self.dominant, "parts": len(self.weights),
        }  # fmt: skip

    def __str__(self) -> str:
        gap, split = self.estimate - self.lower, self.what_dominates
        many = len(self.weights) > 1
        whose = f"posteriors of {len(self.weights)} fits in equal shares, each judged on rows it has not seen,"
        lines = [
            f"{'Certified' if self.certified else 'NOT certified, a guide'}: with probability at least "
            f"{1.0 - self.failure_probability:.4g}, {self.rule} policies drawn from the "
            f"{whose if many else 'posterior'} are worth {_short(self.lower)} or more a person on average "
            f"({_short(self.estimate)} on the {self.n} rows), outcomes between {self.outcome_range[0]:g} and "
            f"{self.outcome_range[1]:g}.",
            f"Of the difference of {_short(gap)}, {_short(split['kl'])} is the price of choosing among the draws (KL "
            f"{self.kl:.2g}) and {_short(split['confidence'])} that of certainty from {self.n} rows"
            f"{f' in {len(self.weights)} parts' if many else ''}; both are proportional to the range of a row's value, "
            f"{_short(split['range'])} ({split['widening']:.3g} times that of the outcomes).",
        ]
        if self.vacuous:
            lines.append(f"Vacuous: {self.reason}.")
        lines += [f"Note: {caveat}." for caveat in self.caveats]
        rows = [(f"{name}{' (the certificate)' if name == INVERSE_KL else ''}", v) for name, v in self.forms.items()]
        rows += [(f"everybody gets {label!r}", value) for label, value in self.single_actions.items()]
        length = max(len(name) for name, _ in rows)
        return "\n".join([*lines, "", *(f"{name:<{length}}  >= {_short(value)}" for name, value in rows)])

    __repr__ = __str__


def _short(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


# -- making one -----------------------------------------------------------------------------------------------------


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
        _check_within(data.outcome, settings.outcome_range, "the outcome")
        known = cross_fit.run(data, "ipw")
        rows = logged_rows(data, known.propensity, known.clip, settings.outcome_range, estimated=known.estimated)
    else:
        paid = None if cost is None else check_cost(cost, data.actions, len(data))
        rows = full_rows(data.x, data.outcomes, paid, settings.outcome_range)
    found = _certify(policy, rows, settings, settings.failure_probability)
    return _answer([found], rows, policy.actions_, settings)


def cross_fitted_certificate(
    policy: Any, feedback: FullFeedback, nuisances: Nuisances | None, settings: CertificateSettings
) -> Certificate:
    """Certify on the training rows: on each part a clone of the policy that was fitted on the others alone.

    Each part has failure_probability over their number, so all hold together; the even mixture of the parts' policies
    is worth at least the mean of their bounds. Parts are dealt by row number, whatever the rows hold.
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
    found = []
    for part in fold_rows(len(data), settings.folds, seed=settings.seed):
        others = np.setdiff1d(np.arange(len(data)), part, assume_unique=True)
        with warnings.catch_warnings():
            for told in (EstimatedPropensityWarning, OverlapWarning):  # by the policy's own fit
                warnings.simplefilter("ignore", told)
            fitted = clone(policy).fit(*_arguments(data, others))
        found.append(_certify(fitted, rows.part(part), settings, settings.failure_probability / settings.folds))
    return _answer(found, rows, policy.actions_, settings)


def _arguments(data: FullFeedback | LoggedFeedback, rows: Int[np.ndarray, " part"]) -> tuple[Any, ...]:
    """What `fit` takes of these rows alone."""
    if isinstance(data, FullFeedback):
        return data.x[rows], data.outcomes[rows]
    names = ("x", "outcome", "action", "propensity", "controls", "cost", "weights")
    parts = {name: getattr(data, name) for name in names}
    kept = {name: part[rows] for name, part in parts.items() if part is not None}
    return (replace(data, **kept, source=_safe_indexing(data.source, rows)),)


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


def _answer(
    found: list[CertifiedDraws], rows: CertifyingRows, actions: np.ndarray, settings: CertificateSettings
) -> Certificate:
    def mean(name: str) -> float:
        return float(np.mean([getattr(part, name) for part in found]))

    lower, estimate, confidence = mean("lower"), mean("estimate"), mean("confidence")
    singles = rows.single_actions(settings.failure_probability)
    best = int(np.argmax(singles))
    reason = ""
    if lower <= rows.low:
        reason = f"no policy can be worth less than {_short(rows.low)}"
    elif lower <= singles[best]:
        reason = (
            f"giving everybody {actions.tolist()[best]!r} is certified to be worth {_short(singles[best])} or more, "
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
        forms={name: float(np.mean([part.forms[name] for part in found])) for name in found[0].forms},
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
        weights=tuple(part.weights for part in found),
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
