"""Several outcomes: one fit of their models, many objectives as members of a stack, and the choice among them.

Pseudo-outcomes are linear in the outcome. So models of the outcomes are fitted once, on the same folds and with the
same propensities, and the table of any objective sum_j w_j Y_j is a sum of theirs. All objectives are one stack, and so
are the fits without each fold by which they are evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import t
from sklearn.base import clone

from gbpl.checks.copies import refuse_copies
from gbpl.estimators.aims import Aims, Objective
from gbpl.estimators.choice import Several
from gbpl.estimators.gbpl import GBPL
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.estimators.settled import settled
from gbpl.estimators.together import Request, fit_nuisances, fit_together
from gbpl.estimators.training import Training, hold_out_together
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import Feedback, read_feedback
from gbpl.nuisance.nuisances import Nuisances, combined
from gbpl.nuisance.off_policy import log_evaluator
from gbpl.runtime.keywords import answer_keywords
from gbpl.tables.labels import same_label
from gbpl.value.estimate import Value
from gbpl.value.evaluate import LOGGING, Evaluator
from gbpl.value.front import Front, FrontPoint
from gbpl.value.guards import GuardResult, walked

__all__ = ["check_estimator", "fit_aims", "fit_several"]

Outcome = FullFeedback | Nuisances  # what evaluates one outcome


@answer_keywords
def fit_several(
    X: Any,
    outcomes: Mapping[str, Any],
    *,
    guard: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
    against: str = "default",
    default: Any = None,
    level: float = 0.95,
    action: Any = None,
    propensity: Any = None,
    controls: Any = None,
    cost: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    estimator: GBPLNet | None = None,
) -> Several:
    """Learn a policy that raises the first of several outcomes while others keep their guards, or a weighted sum.

    `outcomes` has one entry per outcome, each as `y` in `GBPL.fit`; more of the first is better, and `cost` is in its
    unit. With `guard`, such as `{"complaints": "<=0.01"}`, the mean of that outcome may rise by at most 0.01 over that
    under the `default` action for all (the first label if None): `"<=1%"` is a share of that mean, and `">=-2%"` guards
    against a loss. A front of objectives, from the guarded outcomes alone to the first alone, is fitted as one stack.
    The policies are tested from the most careful to the least, and the last one is chosen before a guard is not shown
    to hold at this `level`, on rows that nothing of it saw (`value.guards`): the first outcome rises along that way, so
    it has the largest. Where already the most careful one fails, everybody gets the default action.

    `against="logging"` compares with the policy that wrote the log, `"best"` with the best policy for the one guarded
    outcome: that is the lexicographic order, the guarded outcome first within its bound, then the first of `outcomes`.

    With `weights`, such as `{"spend": 1, "complaints": -5}`, one objective is learned.

    >>> import numpy as np
    >>> from gbpl import MLP, FitConfig
    >>> rng = np.random.default_rng(0)
    >>> X, mail = rng.normal(size=(300, 2)), rng.integers(2, size=300)
    >>> spend, calls = mail * X[:, 0] + rng.normal(size=300), 0.1 * mail * X[:, 1] + 0.1 * rng.normal(size=300)
    >>> fast = GBPLNet(model=MLP(hidden=(8,)), fit_config=FitConfig(max_epochs=3), random_state=0)
    >>> several = fit_several(X, {"spend": spend, "calls": calls}, guard={"calls": "<=0.05"}, action=mail,
    ...                       propensity=0.5, estimator=fast)
    >>> [one.holds for one in several.guards]
    [True]
    """
    if not isinstance(outcomes, Mapping) or not outcomes:
        raise ValueError(f"outcomes must map names to outcomes, such as {{'spend': y}}, got {type(outcomes).__name__}")
    aims = Aims.of(list(outcomes), guard, weights, against=against, level=level)
    policy = GBPL() if estimator is None else clone(estimator)
    check_estimator(policy)
    given: dict[str, Any] = {
        "action": action, "propensity": propensity, "controls": controls, "sample_weight": sample_weight,
        "groups": groups,
    }  # fmt: skip
    feedback = {aims.outcomes[0]: policy.read_training(X=X, y=outcomes[aims.outcomes[0]], cost=cost, **given)}
    for name in aims.outcomes[1:]:
        feedback[name] = read_feedback(X=X, y=outcomes[name], **given, actions=policy.actions)
    labels = feedback[aims.outcomes[0]].actions.tolist()
    chosen = labels[0] if default is None else same_label(default, labels, "default")
    return fit_aims(policy, feedback, aims, chosen)


def check_estimator(policy: GBPLNet) -> None:
    """Refuse an estimator that cannot learn from several outcomes."""
    if not isinstance(policy, GBPLNet):
        raise TypeError(f"estimator must be a GBPL or GBPLNet, got {type(policy).__name__}")
    if policy.committee is None or not (isinstance(policy.zeta, str) and isinstance(policy.eta, str)):
        raise ValueError(
            f"several outcomes need zeta='auto', eta='auto' and a committee, got zeta={policy.zeta!r}, "
            f"eta={policy.eta!r} and committee={policy.committee!r}; use GBPL()"
        )
    if policy.pseudo_outcome != "dr" or policy.confounding > 1.0:
        raise ValueError(
            f"several outcomes need pseudo_outcome='dr' and confounding=1, got {policy.pseudo_outcome!r} and "
            f"{policy.confounding:g}; fit one outcome for those"
        )


def fit_aims(policy: GBPLNet, feedback: Mapping[str, Feedback], aims: Aims, default: Any) -> Several:
    """`fit_several`, from data that have been read; `policy` is fitted, and is that of the result."""
    rows = [feedback[name] for name in aims.outcomes]
    _check_rows(rows, aims)
    request = policy.request(rows[0])
    known = _outcomes(request, rows)
    place = rows[0].actions.tolist().index(default)
    doubts = [_doubt(aims, outcome, default) for outcome in known[1:]]
    objectives = aims.objectives([_spread(one) for one in rows], doubts)
    trainings = _fit_objectives(request, known, objectives, place)
    hold_out_together(trainings)
    points, base, against = _points(aims, known, objectives, trainings, place)
    front = Front(aims.outcomes, aims.directions, tuple(points), tuple(base), against, aims.level)
    results = tuple(_guarded(aims, point, base) for point in points)
    chosen, tested = _chosen(aims, results, len(points) - len(trainings))
    fallback = chosen < len(points) - len(trainings)
    fit = settled(trainings[0], place) if fallback else trainings[chosen - (len(points) - len(trainings))]
    policy.remember(fit.judged_by(known[0]), rows[0].source)
    allowed = _allowed(aims, known, base, place)
    return Several(aims, policy, front, results, chosen, tested, fallback, allowed)


def _check_rows(rows: Sequence[Feedback], aims: Aims) -> None:
    first = rows[0]
    for one, name in zip(rows, aims.outcomes, strict=True):
        logged = isinstance(first, LoggedFeedback) and isinstance(one, LoggedFeedback)
        same = len(one) == len(first) and np.array_equal(one.x, first.x)
        if not same or (logged and not np.array_equal(one.action, first.action)):  # type: ignore[union-attr]
            raise ValueError(
                f"{name!r} has other rows than {aims.outcomes[0]!r}, once copies are left out; give groups= if rows "
                "that are there several times are not copies"
            )
        if not _spread(one) > 0.0:
            raise ValueError(f"{name!r} never varies, so nothing can be learned or shown of it; leave it out")
        if one is not first and logged:
            refuse_copies(one)
    if aims.against == LOGGING and not isinstance(first, LoggedFeedback):
        raise ValueError("against='logging' needs logged feedback; here the outcomes of every action are given")
    for guard in aims.guards:
        outcome = rows[aims.outcomes.index(guard.outcome)]
        table = outcome.outcome if isinstance(outcome, LoggedFeedback) else outcome.outcomes
        if guard.relative and not float(np.mean(table)) > 0.0:
            raise ValueError(
                f"the guard {guard} is a share of the mean of {guard.outcome!r}, which is {float(np.mean(table)):.4g}; "
                "a share needs a mean above zero, so give the bound in the outcome's unit"
            )


def _spread(rows: Feedback) -> float:
    """Standard deviation of a logged outcome; with full feedback that of the difference of two actions."""
    if isinstance(rows, FullFeedback):
        return rows.scale
    return float(np.sqrt(np.cov(rows.outcome, aweights=rows.weights)))


def _outcomes(request: Request, rows: Sequence[Feedback]) -> list[FullFeedback] | list[Nuisances]:
    """What evaluates each outcome: models of a log on the same folds, propensities estimated once; or the table."""
    (first,) = fit_nuisances([replace(request, feedback=rows[0])])
    if first is None:
        return [one for one in rows if isinstance(one, FullFeedback)]
    logs = [one for one in rows[1:] if isinstance(one, LoggedFeedback)]
    known = [replace(one, propensity=first.propensity, classifier=None) for one in logs]
    more = fit_nuisances([replace(request, feedback=one) for one in known])
    own = zip(more, logs, strict=True)
    return [first, *(replace(one, estimated=first.estimated, feedback=log) for one, log in own if one is not None)]


def _evaluator(outcome: Outcome) -> Evaluator:
    if isinstance(outcome, FullFeedback):
        return Evaluator.of_outcomes(outcome)
    return log_evaluator(outcome.feedback, outcome)


def _doubt(aims: Aims, outcome: Outcome, default: Any) -> float:
    """How far the limit of an outcome's change is from it, where all rows leave the default for one other action."""
    if aims.against == "best":
        return 0.0
    evaluator = _evaluator(outcome)
    base = evaluator.value(default)
    others = [evaluator.value(label) - base for label in evaluator.actions.tolist() if label != default]
    return float(np.mean([t.ppf(aims.level, one.freedom) * one.se for one in others]))


def _fit_objectives(
    request: Request, known: list[FullFeedback] | list[Nuisances], objectives: Sequence[Objective], default: int
) -> list[Training]:
    """Every objective fitted to the same rows and folds, as one stack."""
    left = np.arange(len(request.feedback.actions)) != default
    logs = [one for one in known if isinstance(one, Nuisances)]
    if logs:
        made = [combined(logs, one.weights, toll=one.toll * left) for one in objectives]
        return fit_together([replace(request, feedback=one.feedback) for one in made], made)
    full = [one for one in known if isinstance(one, FullFeedback)]
    tables = np.stack([one.outcomes for one in full])
    summed = [np.tensordot(np.array(one.weights), tables, axes=1) - one.toll * left for one in objectives]
    requests = [replace(request, feedback=replace(full[0], outcomes=table)) for table in summed]
    return fit_together(requests, [None] * len(requests))


def _points(
    aims: Aims, known: Sequence[Outcome], objectives: Sequence[Objective], trainings: Sequence[Training], default: int
) -> tuple[list[FrontPoint], list[Value], str]:
    """The front, the values it is compared with, and what these are in words."""
    points = [
        FrontPoint(one.label, one.tradeoff, one.weights, tuple(_value(training, outcome) for outcome in known))
        for one, training in zip(objectives, trainings, strict=True)
    ]
    evaluators = [_evaluator(outcome) for outcome in known]
    label = evaluators[0].actions.tolist()[default]
    usual = tuple(one.value(label) for one in evaluators)
    everybody = f"everybody gets {label}"
    if aims.against == "best":
        return points, list(points[0].values), f"the best policy for {aims.outcomes[1]}"
    points = [FrontPoint(everybody, None, None, usual), *points]
    if aims.against == LOGGING:
        return points, [one.logged for one in evaluators if one.logged is not None], "the policy that wrote the log"
    return points, list(usual), everybody


def _value(training: Training, outcome: Outcome) -> Value:
    """The value of one outcome under a fit's held-out decisions, with the error of learning them."""
    return training.judged_by(outcome).value(training.untouched, estimator="dr", rule="deterministic")


def _allowed(aims: Aims, known: Sequence[Outcome], base: Sequence[Value], default: int) -> tuple[int, ...]:
    """Actions that are shown to keep the guards where everybody gets them, and the default."""
    evaluators = [_evaluator(outcome) for outcome in known]
    allowed = []
    for number, label in enumerate(evaluators[0].actions.tolist()):
        point = FrontPoint(str(label), None, None, tuple(one.value(label) for one in evaluators))
        if number == default or all(one.holds for one in _guarded(aims, point, base)):
            allowed.append(number)
    return tuple(allowed)


def _guarded(aims: Aims, point: FrontPoint, base: Sequence[Value]) -> tuple[GuardResult, ...]:
    places = [aims.outcomes.index(one.outcome) for one in aims.guards]
    return tuple(
        one.result(point.values[at], base[at], aims.level) for one, at in zip(aims.guards, places, strict=True)
    )


def _chosen(aims: Aims, results: Sequence[Sequence[GuardResult]], first: int) -> tuple[int, int]:
    """The place of the chosen point, and how many points were tested; those before `first` are no part of the walk."""
    if not aims.guards:
        return len(results) - 1, 0
    passed = walked([all(one.holds for one in point) for point in results[first:]])
    tested = first + min(passed + 1, len(results) - first)
    return (first + passed - 1 if passed else 0), tested
