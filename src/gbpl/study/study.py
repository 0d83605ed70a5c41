"""The whole way from a table to a decision: roles of the columns, encoding, fit, summary, and what is kept.

The command line calls `learn`: the same table, roles and seed give the same numbers in both.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.certificates.certificate import Certificate, CertificateSettings
from gbpl.certificates.certify import certify_on
from gbpl.checks.screen import screened
from gbpl.checks.suspicion import warn_of
from gbpl.decisions.capacity import capacity_prices, priced_action
from gbpl.decisions.decisions import Decisions, Rule
from gbpl.estimators.choice import Several
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.estimators.several import fit_aims
from gbpl.feedback.read import TableFeedback, check_rows, read_beside, read_table
from gbpl.frozen.file import SavedPolicy
from gbpl.report.advice import advice
from gbpl.report.reading import read
from gbpl.report.text import study_text
from gbpl.runtime.json import plain
from gbpl.runtime.keywords import answer_keywords
from gbpl.runtime.progress import stage
from gbpl.runtime.warn import collected
from gbpl.study.budget import BudgetTerms, spend_column
from gbpl.study.explained import explained
from gbpl.study.groups import AskedGroups, BoundedRule, bounded_rule, group_of, groups_summary
from gbpl.study.options import Terms, Wording, certified_range, check_folds, checked_estimator, split_rows
from gbpl.study.several import study_aims
from gbpl.study.small_rule import check_rule_text, checked_rule, rule_summary
from gbpl.study.summary import StudyParts, summarize
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError, column_names, rows_of
from gbpl.tables.parts import SMALLEST_GROUP, check_smallest_group
from gbpl.tables.roles import Roles
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Study", "learn"]

ROUNDING = 1e-6  # of a deviation from uniform: what another order of additions, or JAX in place of numpy, can change


@dataclass(frozen=True, slots=True, eq=False)
class Study:
    """A policy learned from a table, and the results about it.

    `fitted` is the estimator, `policy` what is saved and decides, `decisions` those for the rows that were learned
    from, `summary` everything the report says, as plain JSON.
    """

    fitted: GBPLNet
    policy: SavedPolicy
    decisions: Decisions
    summary: dict[str, Any]

    def __str__(self) -> str:
        return study_text(read(self.summary))

    __repr__ = __str__

    def save(self, path: Any) -> None:
        """Write the policy, with encoder, rule and summary, to one file for `gbpl.load` and `gbpl decide`."""
        self.policy.save(path)

    def report(self, path: Any = None) -> str:
        """The report as one HTML page; written to `path` if given."""
        return self.policy.report(path)


def _ruled(
    policy: GBPLNet,
    frozen: SavedPolicy,
    data: TableFeedback,
    terms: Terms,
    spending: BudgetTerms | None,
    notes: list[str],
) -> tuple[Rule, Int[np.ndarray, " row"]]:
    """The rule, and what it decides for each held-out row; both within the limits, each at its own prices."""
    default = data.labels.index(terms.default)
    rule = Rule(default, terms.defer)
    held = policy.training("learn again").held_out
    slope = policy.gain_slope_
    assert slope is not None
    decided = deterministic(held.deviation)
    if not terms.capacity and spending is None:
        return rule, decided
    limits = {data.labels.index(label): share for label, share in terms.capacity.items()}
    # Of the whole table, as `decide` will see it: the same rows in the same blocks are added up in the same order.
    inside = frozen.with_study(rule=rule, encoder=None, summary=None).expected_gain(data.features)[data.kept]
    if spending is not None:
        rule, price = spending.rule(inside, data.feedback.weights, terms.defer)
        if slope.slope == 0.0:
            notes.append("the data do not bear out who gains most, so nobody gets an action that takes from the budget")
        elif price == 0.0:
            notes.append("the budget is enough for everybody who gains, so it changes no decision")
        return rule, spending.held_out(policy, decided, terms.default)
    free = deterministic(frozen.predict_proba(data.features)[data.kept])
    prices = _prices(inside, free, slope.slope, limits, default)
    if slope.slope == 0.0 and prices.any():
        notes.append("the data do not bear out who gains most, so nobody gets an action of limited capacity")
    outside = policy.expected_gain(default=terms.default)
    for fold in held.folds:  # each was learned apart, and keeps within the limits by itself
        away = _prices(outside[fold], decided[fold], slope.slope, limits, default)
        decided[fold] = priced_action(outside[fold], away) if away.any() else decided[fold]
    return Rule(default, terms.defer, tuple(prices.tolist())), decided


def _prices(
    gain: Float[np.ndarray, "row action"], free: Int[np.ndarray, " row"], slope: float, limits: Mapping[int, float],
    default: int,
) -> Float[np.ndarray, " action"]:  # fmt: skip
    """Prices of the actions; zero if the policy keeps within the limits without them."""
    shares = np.bincount(free, minlength=gain.shape[1]) / len(free)
    if all(shares[action] <= share for action, share in limits.items()):
        return np.zeros(gain.shape[1])
    if slope > 0.0:
        return capacity_prices(gain, limits, rounding=slope * ROUNDING)
    prices = np.full(gain.shape[1], np.finfo(np.float64).tiny)  # nobody gains: any price will do
    prices[default] = 0.0
    return prices


@answer_keywords
def learn(
    frame: Any,
    *,
    outcome: str | None = None,
    action: str | None = None,
    outcomes: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    controls: Sequence[str] = (),
    propensity: str | float | Mapping[Any, float] | None = None,
    cost: Mapping[Any, float] | None = None,
    capacity: Mapping[Any, float] | None = None,
    budget: float | None = None,
    budget_cost: Mapping[Any, float] | str | None = None,
    weight: str | None = None,
    group: str | None = None,
    default: Any = None,
    defer: float | None = None,
    review: int | None = None,
    outcome_range: tuple[float, float] | None = None,
    certify: bool | float = False,
    seed: int = 0,
    source: str = "table",
    title: str | None = None,
    unit: str | None = None,
    per: str | None = None,
    population: int | None = None,
    estimator: GBPLNet | None = None,
    check: bool = False,
    small_rule: str | Mapping[str, Any] | None = None,
    smallest_group: int = SMALLEST_GROUP,
    guard: Mapping[str, str] | None = None,
    outcome_weights: Mapping[str, float] | None = None,
    against: str = "default",
    by: str | Sequence[str] = (),
    share_gap: Mapping[str, float] | None = None,
    gain_gap: Mapping[str, float] | None = None,
) -> Study:
    """Learn from a table who gets which action: types are inferred, categories encoded, missing values filled in.

    `frame` is a pandas or polars frame, a pyarrow table or a mapping of columns. Roles of columns are as in
    `tables.roles.Roles`: features may be patterns ("age*", "!visit*"), and `exclude` leaves columns out. Columns that
    look as if measured after the action, wrong propensities and other faults are warned of before anything is fitted
    (docs/check.md). `cost` is what each action costs in outcome units, `capacity` the largest share of people who can
    get an action; `default` is what people get otherwise (the first label if None). A total `budget`, for the rows of
    the table or the `population`, limits what is spent: `budget_cost` is what each action takes from it, in a unit of
    its own, or the column of what was spent on each row; 1 for all but the default if None (docs/budget.md). A person
    should decide the `review` rows where a look is worth most (`SavedPolicy.review_value`), or those with a
    disagreement above `defer`; without either, none. `estimator` replaces `GBPL(random_state=seed)`; it is copied, not
    changed. With `check` the result is put to the tests of `GBPLNet.check`, whose verdicts are then in the summary and
    the report. With a `small_rule`, such as "tree:2" or a mapping of the arguments of `GBPLNet.small_rule`, one is
    learned beside the policy, with its price. Nothing that is saved or reported tells groups of fewer rows than
    `smallest_group` apart.

    The report has a `title`, and says amounts in a `unit` ("$", "visits") `per` row or what a row is ("customer"), with
    totals for a `population` (the rows of the table if None).

    Columns named in `by`, features or not, get a table of who gets what and what it brings by group. With a `share_gap`
    of {column: bound}, the shares of two of its groups that get any action but the default differ by at most the bound,
    on new rows with probability 95 %; with a `gain_gap` their expected gains do. What that costs is in
    `summary["by_group"]` (docs/groups.md).

    With `certify`, half of the rows (or that share) are held out, the policy learns from the others alone, and the
    decisions of that very policy are certified on the rows held out: `summary["certificate"]`, which the saved policy
    carries. That needs an `outcome_range`, of outcomes before costs and known without the data; outcomes that are all 0
    or 1 have one. An `outcome_range` alone asks for a certificate too.

    Several outcomes of a log: `guard` bounds the change of another column's mean ({"complaints": "<=0.01"}, or "<=1%")
    `against` the default action, the policy that wrote the log ("logging") or the best for that column ("best");
    `outcome_weights` adds others to the outcome ({"complaints": -5}). See `fit_several` and docs/outcomes.md; the
    result is `summary["several"]`, and all else in the summary is of `outcome`.

    >>> from gbpl import MLP, FitConfig
    >>> rng = np.random.default_rng(0)
    >>> table = {"age": rng.normal(size=300), "arm": rng.choice(["a", "b"], 300), "y": rng.normal(size=300)}
    >>> fast = GBPLNet(model=MLP(hidden=(8,)), fit_config=FitConfig(max_epochs=3), random_state=0)
    >>> study = learn(table, outcome="y", action="arm", propensity=0.5, estimator=fast)
    >>> study.summary["data"]["features"]
    ['age']
    """
    started = time.perf_counter()
    policy, smallest = checked_estimator(estimator, seed), check_smallest_group(smallest_group)
    aims = study_aims(
        outcome, guard, outcome_weights, against, policy,
        without={
            "capacity": capacity, "certify": certify, "outcome_range": outcome_range, "check": check,
            "share_gap": share_gap, "gain_gap": gain_gap, "budget": budget is not None,
        },
    )  # fmt: skip
    roles = Roles(
        outcome=outcome, action=action, outcomes=outcomes, features=features, exclude=exclude, controls=controls,
        propensity=propensity, weight=weight, group=group, beside=() if aims is None else aims.outcomes[1:],
    )  # fmt: skip
    wording, asked = Wording(title, unit, per, population), AskedGroups.read(by, share_gap, gain_gap, capacity)
    wanted_rule = check_rule_text(
        small_rule, capacity=capacity, budget=budget is not None, share_gap=share_gap, gain_gap=gain_gap, guard=guard,
        outcome_weights=outcome_weights,
    )  # fmt: skip
    roles = roles.resolved(column_names(frame), source)
    roles.check(column_names(frame), source)
    asked.check(column_names(frame), roles, source)
    paid = spend_column(budget, budget_cost, capacity, column_names(frame), source)
    if budget is not None and asked.column is not None:
        raise TableError("budget and a bound between groups cannot be kept together yet; give one of them")
    check_rows(rows_of(frame), rows_of(frame))
    held: Any = None
    if certify or outcome_range is not None:
        frame, held = split_rows(frame, roles.group, certify, seed)
    encoder, notes = Encoder.fit(frame, roles.features, exclude=[*roles.used(), *roles.exclude, *paid])
    data = read_table(frame, roles, encoder, what=source)
    if aims is not None:
        data, beside = read_beside(frame, data, aims.outcomes[1:])
    terms = Terms.of(data, cost, capacity, default, defer, review)
    wanted_rule = checked_rule(wanted_rule, encoder, data, seed, smallest)
    spending = BudgetTerms.of(data, frame, budget, budget_cost, terms.default, population)
    settings: CertificateSettings | None = None
    if held is not None:
        others = read_table(held, roles, encoder, what=source, actions=data.labels)
        settings = certified_range([data, others], outcome_range, terms.cost)
        notes.append(f"{int(others.kept.sum()):,} rows were held out to certify the policy, and not learned from")
    check_folds(data, roles, max(policy.committee or 2, policy.nuisance_folds if data.logged else 2))
    notes = [*notes, *data.notes]
    notes += [
        f"the cost of {label} is {cost:g}: it is counted as a gain" for label, cost in terms.cost.items() if cost < 0
    ]
    certificate: Certificate | None = None
    cut = policy.cuts and settings is None  # what can occur is known, and a certificate is of it
    feedback, suspicions = screened(data.feedback, cut=cut, rows=np.flatnonzero(data.kept))
    warn_of(suspicions)
    several: Several | None = None
    feedback = feedback.less(terms.cost or None)
    with collected(notes):
        policy.set_params(actions=data.labels)
        if aims is None:
            policy.fit_feedback(feedback)
        else:
            several = fit_aims(policy, {aims.outcomes[0]: feedback, **beside}, aims, terms.default)
            notes += several.left_out
    policy.encoder_ = encoder
    frozen = policy.frozen(smallest_group=smallest)
    rule, decided = _ruled(policy, frozen, data, terms, spending, notes)
    bound: BoundedRule | None = None
    if asked.column is not None:
        bound = bounded_rule(policy, frozen, data, frame, rule, decided, asked, smallest, notes)
        rule, decided = bound.rule, bound.decided
    ruled = frozen.with_study(rule=rule, encoder=encoder, summary=None)
    if settings is not None:
        stage("certificate")
        taken = ruled.decide(others.features, group=group_of(rule, held)).rows(others.kept).action.tolist()
        count, place = len(data.labels), {label: number for number, label in enumerate(data.labels)}
        certificate = certify_on(
            policy, others.feedback.less(terms.cost or None), settings,
            decided=np.eye(count)[[place[label] for label in taken]], learned_decided=np.eye(count)[decided],
        )  # fmt: skip
    stage("decisions")
    decisions = ruled.decide(data.features, review=terms.review, group=group_of(rule, frame)).rows(data.kept)
    parts = StudyParts(
        policy=policy, data=data, roles=roles, encoder=encoder, frame=frame, rule=rule, decided=decided,
        decisions=decisions, cost=terms.cost, capacity=terms.capacity, review=terms.review, wording=wording,
        source=source, notes=notes, certificate=certificate, seconds=time.perf_counter() - started,
        smallest_group=smallest, allowed=None if several is None else several.allowed, spending=spending,
    )  # fmt: skip
    stage("summary")
    summary = summarize(parts) | {"check": None, "warnings": [one.to_dict() for one in suspicions]}
    grouped = rule.groups is not None  # a typical row belongs to no group
    summary["explained"] = None if grouped else plain(explained(ruled, data.feedback.x, smallest))
    summary["several"] = None if several is None else plain(several.to_dict())
    summary["by_group"] = groups_summary(
        asked, policy, frame, data, encoder, decided, decisions.action, rule.default, smallest, bound
    )
    summary["small_rule"] = rule_summary(policy, wanted_rule, encoder, smallest)
    if check:
        stage("checks")
        summary["check"] = policy.check(names=encoder.raw_names, seed=seed, progress=policy.progress).to_dict()
    summary["advice"] = advice(read(summary)).to_dict()
    return Study(policy, frozen.with_study(rule=rule, encoder=encoder, summary=summary), decisions, summary)
