"""Off-policy values and their errors: restated in plain loops, by bootstrap, and by coverage (section 7)."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from sklearn.linear_model import LogisticRegression, Ridge
from support.calls import forbid_calls

from gbpl import CrossFit, EstimatedPropensityWarning, LoggedFeedback, Value, policy_value
from gbpl.datasets import BinaryDesign, LoggedDesign
from gbpl.nuisance.nuisances import Nuisances
from gbpl.value.estimate import ESTIMATORS, logged_value, mean_value, off_policy_value

ROWS = 60
every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS)


class Log(NamedTuple):
    """Numbers to evaluate a policy with; all of one log."""

    policy: np.ndarray
    outcome: np.ndarray
    action: np.ndarray
    propensity: np.ndarray  # of the action taken
    outcome_mean: np.ndarray
    cost: np.ndarray
    weights: np.ndarray
    groups: np.ndarray

    def value(self, estimator: str, *options: str, **changes: Any) -> Value:
        """By the implementation, with the named ones of cost, weights and groups."""
        given = {"propensity": self.propensity, "outcome_mean": self.outcome_mean, "estimator": estimator}
        given |= {name: getattr(self, name) for name in options} | changes
        policy, outcome = given.pop("policy", self.policy), given.pop("outcome", self.outcome)
        return off_policy_value(policy, outcome, self.action, **given)


def random_log(count: int, *, n: int = ROWS, randomized: bool = True, level: float = 2.0, seed: int = 0) -> Log:
    rng = np.random.default_rng(seed)
    e = rng.dirichlet(np.full(count, 3.0), n)
    e = 0.1 + (1.0 - 0.1 * count) * e
    action = np.array([rng.choice(count, p=row) for row in e])
    policy = rng.dirichlet(np.ones(count), n) if randomized else np.eye(count)[rng.integers(0, count, n)]
    mean = level + rng.normal(size=(n, count))
    outcome = mean[np.arange(n), action] + rng.normal(size=n)
    return Log(
        policy, outcome, action, e[np.arange(n), action], mean + rng.normal(size=(n, count)),
        rng.exponential(size=(n, count)), rng.uniform(0.2, 3.0, n), rng.permutation(np.arange(n) % 7),
    )  # fmt: skip


def value_by_hand(log: Log, estimator: str, *options: str) -> tuple[float, float]:
    """Estimate and standard error: means of a few numbers a row, and the delta method for what is made of them."""
    n, count = log.policy.shape
    w = [float(log.weights[i]) if "weights" in options else 1.0 for i in range(n)]
    rows: list[tuple[float, ...]] = []
    for i in range(n):
        a, y = log.action[i], log.outcome[i]
        ratio = log.policy[i, a] / log.propensity[i]
        spent = sum(log.policy[i, b] * log.cost[i, b] for b in range(count)) if "cost" in options else 0.0
        model = sum(log.policy[i, b] * log.outcome_mean[i, b] for b in range(count))
        match estimator:
            case "ipw":
                rows.append((spent, ratio * y))
            case "snipw":
                rows.append((spent, ratio * y, ratio))
            case _:
                rows.append((spent, model + ratio * (y - log.outcome_mean[i, a]), model))
    means = [sum(w[i] * rows[i][j] for i in range(n)) / sum(w) for j in range(len(rows[0]))]
    match estimator:
        case "snipw":
            estimate = means[1] / means[2] - means[0]
            gradient = (-1.0, 1.0 / means[2], -means[1] / means[2] ** 2)
        case "dm":  # the error is that of the doubly robust terms
            estimate, gradient = means[2] - means[0], (-1.0, 1.0, 0.0)
        case _:
            estimate, gradient = means[1] - means[0], (-1.0, 1.0, 0.0)
    sums: dict[int, float] = {}
    for i in range(n):
        group = int(log.groups[i]) if "groups" in options else i
        moved = sum(g * (row - mean) for g, row, mean in zip(gradient, rows[i], means, strict=False))
        sums[group] = sums.get(group, 0.0) + w[i] * moved
    count = len(sums)
    return estimate, math.sqrt(count / (count - 1) * sum(s * s for s in sums.values())) / sum(w)


# --- The four estimators -----------------------------------------------------------------------------------------


@every_estimator
@pytest.mark.parametrize(
    "options",
    [(), ("weights",), ("cost",), ("groups",), ("cost", "weights", "groups")],
    ids=lambda options: "-".join(options) or "plain",
)
@pytest.mark.parametrize("randomized", [True, False])
@pytest.mark.parametrize("count", [2, 3])
def test_estimate_and_error_by_hand(count: int, randomized: bool, options: tuple[str, ...], estimator: str) -> None:
    log = random_log(count, randomized=randomized)
    value = log.value(estimator, *options)
    estimate, se = value_by_hand(log, estimator, *options)
    assert_allclose(value.estimate, estimate)
    assert_allclose(value.se, se)
    assert value.estimator == estimator
    assert len(value.influence) == ROWS


@pytest.mark.parametrize("count", [2, 3])
def test_the_formulas_of_the_docstring(count: int) -> None:
    log = random_log(count)
    i = np.arange(ROWS)
    r = log.policy[i, log.action] / log.propensity
    residual = log.outcome - log.outcome_mean[i, log.action]
    model = np.sum(log.policy * log.outcome_mean, axis=1)
    assert_allclose(log.value("ipw").estimate, np.mean(r * log.outcome))
    assert_allclose(log.value("snipw").estimate, np.sum(r * log.outcome) / np.sum(r))
    assert_allclose(log.value("dr").estimate, np.mean(model + r * residual))
    assert_allclose(log.value("dm").estimate, np.mean(model))


@every_estimator
@pytest.mark.parametrize("options", [(), ("weights",), ("groups",)], ids=lambda options: "-".join(options) or "plain")
def test_a_known_cost_moves_the_value_by_what_the_policy_spends(estimator: str, options: tuple[str, ...]) -> None:
    log = random_log(3)
    spent = np.array([sum(log.policy[i, a] * log.cost[i, a] for a in range(3)) for i in range(ROWS)])
    weights = log.weights if "weights" in options else np.ones(ROWS)
    free, net = log.value(estimator, *options), log.value(estimator, "cost", *options)
    assert_allclose(free.estimate - net.estimate, np.sum(weights * spent) / np.sum(weights))
    assert_allclose((free - net).influence, spent)
    # paired: the error of the net value is that of the two parts of each row together
    paired = replace(free, influence=free.influence - spent)
    assert_allclose(net.se, paired.se)


@pytest.mark.parametrize("options", [(), ("weights",), ("groups",)], ids=lambda options: "-".join(options) or "plain")
def test_the_error_of_the_outcome_model_alone_is_that_of_the_doubly_robust_rows(options: tuple[str, ...]) -> None:
    log = random_log(3)
    model, robust = log.value("dm", *options), log.value("dr", *options)
    assert_allclose(model.se, robust.se)
    naive = mean_value(log.policy, log.outcome_mean, weights=model.weights, groups=model.groups)
    assert_allclose(model.estimate, naive.estimate)
    assert naive.se < 0.9 * model.se  # the spread of the predictions knows nothing of the noise


def test_estimators_agree_where_the_model_has_no_error() -> None:
    log = random_log(3)
    mean = log.outcome_mean.copy()
    mean[np.arange(ROWS), log.action] = log.outcome
    exact = log._replace(outcome_mean=mean)
    assert_allclose(exact.value("dr").influence, exact.value("dm").influence)


def test_only_ratios_of_weights_matter_and_equal_ones_are_none() -> None:
    log = random_log(3)
    for estimator in ESTIMATORS:
        weighted, scaled = log.value(estimator, "weights"), log.value(estimator, weights=5.0 * log.weights)
        assert_allclose((weighted.estimate, weighted.se), (scaled.estimate, scaled.se))
        plain, ones = log.value(estimator), log.value(estimator, weights=np.full(ROWS, 2.0))
        assert_allclose((plain.estimate, plain.se), (ones.estimate, ones.se))


# --- The self-normalized estimator, and errors by bootstrap ------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("weights", "groups")], ids=["plain", "weights-groups"])
def test_a_constant_on_top_of_the_outcomes_moves_snipw_by_just_that(options: tuple[str, ...]) -> None:
    log = random_log(3)
    low, high = log.value("snipw", *options), log.value("snipw", *options, outcome=log.outcome + 100.0)
    assert_allclose(high.estimate, low.estimate + 100.0, rtol=1e-13)
    assert_allclose(high.se, low.se, rtol=1e-11)
    plain = log.value("ipw", *options), log.value("ipw", *options, outcome=log.outcome + 100.0)
    assert abs(plain[1].estimate - plain[0].estimate - 100.0) > 0.1  # which the unnormalized one cannot do


def test_snipw_error_is_that_of_a_ratio_and_not_of_its_numerator() -> None:
    log = random_log(2, n=2000, level=20.0)
    ratio = log.policy[np.arange(2000), log.action] / log.propensity
    spread = np.cov(ratio * log.outcome, ratio)
    value = np.sum(ratio * log.outcome) / np.sum(ratio)
    # variance of a ratio of means (Cochran, Sampling Techniques, section 6.4)
    variance = (spread[0, 0] - 2 * value * spread[0, 1] + value**2 * spread[1, 1]) / ratio.mean() ** 2 / 2000
    error = log.value("snipw").se
    assert_allclose(error, math.sqrt(variance))
    frozen = np.std(ratio * log.outcome / ratio.mean(), ddof=1) / math.sqrt(2000)
    assert frozen > 4.0 * error


@pytest.fixture(scope="module")
def resampled() -> np.ndarray:
    """How often each of 2000 rows is drawn, in 2000 bootstrap samples."""
    return np.random.default_rng(9).multinomial(2000, np.full(2000, 1 / 2000), size=2000).astype(np.float64)


@pytest.mark.parametrize("level", [0.0, 10.0])
@pytest.mark.parametrize("count", [2, 3])
def test_errors_agree_with_the_bootstrap(count: int, level: float, resampled: np.ndarray) -> None:
    log = random_log(count, n=2000, level=level)
    rows = np.arange(2000)
    r = log.policy[rows, log.action] / log.propensity
    model = np.sum(log.policy * log.outcome_mean, axis=1)
    robust = model + r * (log.outcome - log.outcome_mean[rows, log.action])
    draws = {
        "ipw": resampled @ (r * log.outcome) / 2000,
        "snipw": (resampled @ (r * log.outcome)) / (resampled @ r),
        "dr": resampled @ robust / 2000,
    }
    for estimator, drawn in draws.items():
        assert_allclose(log.value(estimator).se, drawn.std(ddof=1), rtol=0.1)


# --- A value -----------------------------------------------------------------------------------------------------


def test_the_difference_of_identical_policies_is_exactly_zero() -> None:
    log = random_log(3)
    for estimator in ESTIMATORS:
        same = log.value(estimator, "cost", "weights", "groups") - log.value(estimator, "cost", "weights", "groups")
        assert (same.estimate, same.se, same.what) == (0.0, 0.0, "difference")
        assert same.interval() == (0.0, 0.0)
        assert same.probability_positive == 0.0


@every_estimator
@pytest.mark.parametrize("grouped", [False, True])
def test_the_error_of_a_difference_is_paired(estimator: str, grouped: bool) -> None:
    log = random_log(3, level=10.0)
    options = ("weights", "groups") if grouped else ()
    other = 0.9 * log.policy + 0.1 / 3
    one, two = log.value(estimator, *options), log.value(estimator, *options, policy=other)
    gain = one - two
    assert_allclose(gain.estimate, one.estimate - two.estimate)
    w = log.weights if grouped else np.ones(ROWS)
    sums: dict[int, float] = {}
    for i in range(ROWS):
        group = int(log.groups[i]) if grouped else i
        term = (one.influence[i] - one.estimate) - (two.influence[i] - two.estimate)
        sums[group] = sums.get(group, 0.0) + w[i] * term
    expected = math.sqrt(sum(s * s for s in sums.values()) * len(sums) / (len(sums) - 1)) / sum(w)
    assert_allclose(gain.se, expected)
    assert gain.estimator == estimator
    assert gain.se < 0.5 * math.hypot(one.se, two.se)  # which is the error of two logs


def test_the_error_of_a_gain_over_the_log_is_paired() -> None:
    log = random_log(2, level=10.0)
    gain = log.value("dr") - logged_value(log.outcome)
    terms = log.value("dr").influence - log.outcome
    assert_allclose((gain.estimate, gain.se), (terms.mean(), terms.std(ddof=1) / math.sqrt(ROWS)))
    assert gain.estimator == "dr - mean"


def test_values_of_other_rows_cannot_be_subtracted() -> None:
    with pytest.raises(ValueError, match=r"60 and 59 rows cannot be subtracted; estimate both on the same rows"):
        logged_value(np.ones(60)) - logged_value(np.ones(59))
    with pytest.raises(TypeError):
        logged_value(np.ones(60)) - 1.0


def test_cluster_robust_error() -> None:
    rng = np.random.default_rng(3)
    influence, weights, groups = rng.normal(size=50), rng.uniform(0.5, 2.0, 50), rng.permutation(np.arange(50) % 5)
    value = Value(influence, "dr", weights, groups)
    center = sum(weights * influence) / sum(weights)
    squares = 0.0
    for g in range(5):
        squares += sum(weights[i] * (influence[i] - center) for i in range(50) if groups[i] == g) ** 2
    assert_allclose(value.se, math.sqrt(5 / 4 * squares) / sum(weights))
    alone = Value(influence, "dr", weights, np.arange(50))
    assert_allclose(alone.se, Value(influence, "dr", weights).se)


def test_repeated_rows_in_groups_are_no_more_rows() -> None:
    influence = np.random.default_rng(4).normal(size=20)
    ten_times = Value(np.repeat(influence, 10), "dr", groups=np.repeat(np.arange(20), 10))
    assert_allclose(ten_times.se, Value(influence, "dr").se)
    assert Value(np.repeat(influence, 10), "dr").se < 0.4 * ten_times.se


def test_only_groups_that_have_rows_count() -> None:
    influence = np.array([1.0, 2.0, 4.0, 7.0])
    dense, sparse = (Value(influence, "dr", groups=np.array(g)) for g in ([0, 0, 1, 1], [0, 0, 5, 5]))
    assert_allclose((sparse.se, *sparse.interval()), (dense.se, *dense.interval()))


def test_a_group_of_weight_zero_is_no_group() -> None:
    x, groups = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 6
    action, weight = np.arange(60) // 6 % 2, np.where(np.isin(groups, [2, 3]), 0.0, 1.0)
    kept = weight > 0
    whole = LoggedFeedback.of(x, x[:, 0], action, propensity=0.5, sample_weight=weight, groups=groups)
    part = LoggedFeedback.of(x[kept], x[kept, 0], action[kept], propensity=0.5, groups=groups[kept])
    one, two = (policy_value(1, log, estimator="ipw") for log in (whole, part))
    assert_allclose((one.estimate, one.se), (two.estimate, two.se))


# Quantiles from a printed table: the normal, and Student's t with four degrees of freedom.
@pytest.mark.parametrize(
    ("level", "normal", "student"), [(0.9, 1.644854, 2.131847), (0.95, 1.959964, 2.776445), (0.99, 2.575829, 4.604095)]
)
def test_interval(level: float, normal: float, student: float) -> None:
    influence = np.random.default_rng(0).normal(1.0, 1.0, 50)
    for groups, reach in ((None, normal), (np.arange(50) % 5, student)):
        value = Value(influence, "dr", groups=groups)
        low, high = value.interval(level)
        assert_allclose((value.estimate - low, high - value.estimate), reach * value.se, rtol=1e-6)
    assert Value(influence, "dr").interval() == Value(influence, "dr").interval(0.95)


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.5, float("nan")])
def test_a_level_outside_of_zero_to_one_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, got .*; try 0\.95"):
        Value(np.arange(3.0), "dr").interval(level)


@pytest.mark.parametrize("level", [-0.3, 0.0, 0.3])
def test_probability_positive_is_that_of_a_normal(level: float) -> None:
    influence = np.random.default_rng(0).normal(size=50)
    value = Value(influence - influence.mean() + level, "dr")
    assert_allclose(value.probability_positive, 0.5 * (1 + math.erf(value.estimate / value.se / math.sqrt(2))))


def test_probability_positive_without_error_is_sure() -> None:
    assert [Value(np.full(4, level), "dr").probability_positive for level in (-1.0, 0.0, 1.0)] == [0.0, 0.0, 1.0]


def test_to_dict_is_json() -> None:
    log = random_log(3)
    for value in (log.value("dr"), log.value("snipw", "cost", "weights", "groups"), log.value("dr") - log.value("ipw")):
        as_dict = json.loads(json.dumps(value.to_dict(0.9), allow_nan=False))
        low, high = value.interval(0.9)
        assert as_dict == {
            "what": value.what, "estimate": value.estimate, "se": value.se, "low": low, "high": high, "level": 0.9,
            "estimator": value.estimator, "rows": ROWS,
        }  # fmt: skip
    assert (as_dict["what"], as_dict["estimator"]) == ("difference", "dr - ipw")


def test_a_value_says_what_it_is_and_stays_so() -> None:
    value = Value(np.array([1.0, 3.0]), "dr")
    assert str(value) == repr(value) == "value 2.00 (se 1.00, 95 % interval 0.04 to 3.96, dr, 2 rows)"
    with pytest.raises(FrozenInstanceError):
        value.estimator = "ipw"  # type: ignore[misc]


def test_one_row_or_one_group_has_no_error() -> None:
    assert math.isnan(Value(np.array([1.0]), "dr").se)
    assert math.isnan(Value(np.arange(4.0), "dr", groups=np.zeros(4, int)).se)


# --- What must come out exactly ----------------------------------------------------------------------------------


def test_the_logging_policy_is_worth_the_mean_outcome() -> None:
    outcome, weights = np.random.default_rng(0).normal(size=50), np.random.default_rng(1).uniform(0.5, 2.0, 50)
    value = logged_value(outcome)
    assert_allclose((value.estimate, value.se), (outcome.mean(), outcome.std(ddof=1) / math.sqrt(50)))
    weighted = logged_value(outcome, weights=weights)
    assert_allclose(weighted.estimate, sum(weights * outcome) / sum(weights))
    assert value.estimator == "mean"


@pytest.mark.parametrize("count", [2, 3])
def test_one_action_for_all_is_worth_the_mean_of_its_arm(count: int) -> None:
    rng = np.random.default_rng(2)
    action, outcome = rng.permutation(np.arange(91) % count), rng.normal(5.0, 1.0, 91)
    for arm in range(count):
        policy, mean = np.tile(np.eye(count)[arm], (91, 1)), outcome[action == arm].mean()
        for e in (0.2, 0.7):  # of a trial: any constant
            normalized = off_policy_value(policy, outcome, action, propensity=np.full(91, e), estimator="snipw")
            assert_allclose(normalized.estimate, mean, rtol=1e-14)
        share = np.array([np.mean(action == a) for a in range(count)])[action]
        assert_allclose(
            off_policy_value(policy, outcome, action, propensity=share, estimator="ipw").estimate, mean, rtol=1e-14
        )
        # an outcome model without features, fitted to the same arms, changes nothing
        means = np.tile([outcome[action == a].mean() for a in range(count)], (91, 1))
        robust = off_policy_value(policy, outcome, action, propensity=share, outcome_mean=means)
        assert_allclose(robust.estimate, mean, rtol=1e-14)


def test_what_an_estimator_needs_it_asks_for() -> None:
    policy, outcome, action = np.full((4, 2), 0.5), np.arange(4.0), np.array([0, 1, 0, 1])
    for estimator in ESTIMATORS:
        with pytest.raises(ValueError, match=f"'{estimator}' needs the propensity of the action taken"):
            off_policy_value(policy, outcome, action, estimator=estimator)
    for estimator in ("dr", "dm"):
        with pytest.raises(ValueError, match=f"'{estimator}' needs outcome_mean"):
            off_policy_value(policy, outcome, action, propensity=np.full(4, 0.5), estimator=estimator)
    with pytest.raises(ValueError, match="estimator must be one of dr, ipw, snipw, dm, got 'aipw'"):
        off_policy_value(policy, outcome, action, propensity=np.full(4, 0.5), estimator="aipw")


# --- policy_value: whatever policy, from the log itself ----------------------------------------------------------

LABELS = np.array(["none", "letter", "visit"])  # not sorted: the columns are "letter", "none", "visit"
COLUMNS = sorted(LABELS)
RIDGE = CrossFit(outcome_model=Ridge(), folds=3)


class Rule:
    """A policy with `predict`, which remembers what it was asked about."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, []

    def predict(self, x: Any) -> Any:
        self.asked.append(x)
        return self.answer


class Chances(Rule):
    """A policy with `predict` and `predict_proba`, such as a classifier."""

    def __init__(self, answer: Any, table: np.ndarray, known: Any = COLUMNS) -> None:
        super().__init__(answer)
        self.table, self.classes_ = table, np.array(known)

    def predict_proba(self, x: Any) -> np.ndarray:
        self.asked.append(x)
        return self.table


class Fitted:
    """A policy with `actions_` and probabilities: the deterministic rule is read from those, as of GBPLNet."""

    def __init__(self, table: np.ndarray) -> None:
        self.table, self.actions_ = table, np.array(COLUMNS)

    def predict_proba(self, x: Any) -> np.ndarray:
        return self.table

    def predict(self, x: Any) -> Any:
        raise AssertionError("the probabilities say it")


def labelled_log(seed: int = 0, **options: Any) -> LoggedFeedback:
    rng = np.random.default_rng(seed)
    x, e = rng.normal(size=(ROWS, 2)), 0.1 + 0.7 * rng.dirichlet(np.ones(3), ROWS)
    number = np.array([rng.choice(3, p=row) for row in e])
    frame = pd.DataFrame(x, columns=["age", "dose"])
    given = {"propensity": pd.DataFrame(e, columns=COLUMNS), **options}
    return LoggedFeedback.of(frame, x[:, 0] * number + rng.normal(size=ROWS), np.array(COLUMNS)[number], **given)


def value_by_propensity(log: LoggedFeedback, table: np.ndarray, estimator: str = "ipw", **options: Any) -> Value:
    e = log.propensity[np.arange(len(log)), log.action]  # type: ignore[index]
    return off_policy_value(table, log.outcome, log.action, propensity=e, estimator=estimator, **options)


def one_hot(labels: Any) -> np.ndarray:
    return np.array([[float(label == column) for column in COLUMNS] for label in labels])


def assert_same_value(value: Value, wanted: Value) -> None:
    assert_allclose(value.influence, wanted.influence, rtol=1e-12, atol=1e-12)
    assert_allclose((value.estimate, value.se), (wanted.estimate, wanted.se), rtol=1e-12)


def some_labels() -> np.ndarray:
    return LABELS[np.random.default_rng(7).integers(0, 3, ROWS)]


def some_table() -> np.ndarray:
    return np.random.default_rng(8).dirichlet(np.ones(3), ROWS)


@pytest.mark.parametrize("rule", ["deterministic", "randomized"])
@pytest.mark.parametrize("kind", ["list", "array", "series", "predict"])
def test_a_label_a_row(kind: str, rule: str) -> None:
    log, labels = labelled_log(), some_labels()
    policy = {"list": list(labels), "array": labels, "series": pd.Series(labels), "predict": Rule(labels)}[kind]
    assert_same_value(policy_value(policy, log, estimator="ipw", rule=rule), value_by_propensity(log, one_hot(labels)))


@pytest.mark.parametrize("label", COLUMNS)
@pytest.mark.parametrize("estimator", ["ipw", "snipw"])
def test_a_label_for_everybody(label: str, estimator: str) -> None:
    log = labelled_log()
    assert_same_value(
        policy_value(label, log, estimator=estimator), value_by_propensity(log, one_hot([label] * ROWS), estimator)
    )


def test_numbers_as_labels() -> None:
    number = np.array([2, 5, 2, 5, 5, 2])
    log = LoggedFeedback.of(np.arange(6.0)[:, None], np.arange(6.0), number, propensity=0.5)
    first = policy_value(2, log, estimator="snipw")
    assert_allclose(first.estimate, np.mean([0.0, 2.0, 5.0]))
    assert_same_value(policy_value(np.int64(2), log, estimator="snipw"), first)
    assert_same_value(policy_value([2] * 6, log, estimator="snipw"), first)


@pytest.mark.parametrize("kind", ["table", "object", "fitted"])
def test_probabilities_under_both_rules(kind: str) -> None:
    log, table, labels = labelled_log(), some_table(), some_labels()
    policy = {"table": table, "object": Chances(labels, table), "fitted": Fitted(table)}[kind]
    randomized = policy_value(policy, log, estimator="ipw", rule="randomized")
    assert_same_value(randomized, value_by_propensity(log, table))
    best = one_hot([COLUMNS[list(row).index(max(row))] for row in table])
    # an object of another library decides by its own predict
    certain = one_hot(labels) if kind == "object" else best
    assert_same_value(
        policy_value(policy, log, estimator="ipw", rule="deterministic"), value_by_propensity(log, certain)
    )
    assert_same_value(policy_value(policy, log, estimator="ipw"), value_by_propensity(log, certain))


def test_an_object_is_asked_about_the_features_as_they_were_given() -> None:
    log, rule = labelled_log(), Rule(some_labels())
    policy_value(rule, log, estimator="ipw")
    assert len(rule.asked) > 0
    assert all(asked is log.source and list(asked.columns) == ["age", "dose"] for asked in rule.asked)


def test_a_classifier_is_a_policy() -> None:
    log = labelled_log()
    fitted = LogisticRegression().fit(log.source, some_labels())
    labels, table = fitted.predict(log.source), fitted.predict_proba(log.source)
    assert_same_value(policy_value(fitted, log, estimator="ipw"), value_by_propensity(log, one_hot(labels)))
    assert_same_value(policy_value(fitted, log, estimator="ipw", rule="randomized"), value_by_propensity(log, table))


@pytest.mark.parametrize("estimator", ["dr", "ipw", "snipw", "dm"])
def test_gain_over_the_logging_policy(estimator: str) -> None:
    log = labelled_log(cost={"visit": 0.5}, sample_weight=np.random.default_rng(1).uniform(0.5, 2.0, ROWS))
    value = policy_value("visit", log, estimator=estimator, nuisances=RIDGE)
    gain = policy_value("visit", log, estimator=estimator, nuisances=RIDGE, baseline="logging")
    paid = [0.5 if COLUMNS[a] == "visit" else 0.0 for a in log.action]
    assert_allclose(gain.influence, value.influence - (log.outcome - paid))
    assert gain.what == "difference"
    assert gain.estimator == f"{estimator} - mean"


@pytest.mark.parametrize("rule", ["deterministic", "randomized"])
def test_gain_over_another_policy(rule: str) -> None:
    log, table, labels = labelled_log(), some_table(), some_labels()
    one = policy_value("visit", log, estimator="snipw", rule=rule)
    for baseline in ("none", labels, table, Rule(labels)):
        two = policy_value(baseline, log, estimator="snipw", rule=rule)
        gain = policy_value("visit", log, estimator="snipw", rule=rule, baseline=baseline)
        assert_allclose(gain.influence, one.influence - two.influence)
    assert policy_value("visit", log, estimator="snipw", baseline="visit").se == 0.0


def test_an_action_named_logging_is_that_action() -> None:
    number, y = np.arange(ROWS) % 2, np.random.default_rng(0).normal(size=ROWS)
    forest = LoggedFeedback.of(y[:, None], y + number, np.array(["logging", "planting"])[number], propensity=0.5)
    gain = policy_value("planting", forest, estimator="snipw", baseline="logging")
    arms = [(y + number)[number == a].mean() for a in (0, 1)]
    assert_allclose(gain.estimate, arms[1] - arms[0])
    assert gain.estimator == "snipw"


BAD_POLICIES: list[tuple[str, Any, dict[str, Any], str]] = [
    ("unknown label", "phone", {}, r"the policy gives 'phone', but the actions are \['letter', 'none', 'visit'\]"),
    ("None", None, {}, "the policy gives None, but the actions are"),
    ("one unknown label", ["none"] * (ROWS - 1) + ["phone"], {}, "the policy gives 'phone'"),
    ("numbers for names", np.zeros(ROWS, int), {}, "the policy gives 0, but the actions are"),
    ("a label too few", ["none"] * (ROWS - 1), {}, "one action for each of the 60 rows, got 59"),
    ("predicts too few", Rule(["none"] * 3), {}, "one action for each of the 60 rows, got 3"),
    ("a row too few", np.full((ROWS - 1, 3), 1 / 3), {}, r"a table of \(60, 3\), got shape \(59, 3\)"),
    ("a column too few", np.full((ROWS, 2), 0.5), {}, r"a table of \(60, 3\), got shape \(60, 2\)"),
    ("one column", np.full((ROWS, 1), 1.0), {}, r"a table of \(60, 3\), got shape \(60, 1\)"),
    ("sums to two", np.full((ROWS, 3), 2 / 3), {}, "must be >= 0 and sum to 1"),
    ("negative", np.tile([-0.2, 0.6, 0.6], (ROWS, 1)), {}, "must be >= 0 and sum to 1"),
    ("NaN", np.tile([np.nan, 0.5, 0.5], (ROWS, 1)), {}, "must be >= 0 and sum to 1"),
    ("other rule", "none", {"rule": "stochastic"}, "rule must be 'deterministic' or 'randomized', got 'stochastic'"),
    (
        "other classes", Chances(None, some_table(), ["letter", "none", "phone"]), {"rule": "randomized"},
        r"the policy's actions are \[.*phone.*\], but the log's are \['letter', 'none', 'visit'\]",
    ),
    (
        "other order", Chances(None, some_table(), ["visit", "none", "letter"]), {"rule": "randomized"},
        "the policy's actions are .* but the log's are",
    ),
    ("estimator", "none", {"estimator": "aipw"}, "estimator must be one of dr, ipw, snipw, dm, got 'aipw'"),
    ("no estimator", "none", {"estimator": None}, "estimator must be one of dr, ipw, snipw, dm, got None"),
]  # fmt: skip


@pytest.fixture
def no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_calls(monkeypatch, (CrossFit, "run"))


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize(
    ("policy", "options", "message"), [bad[1:] for bad in BAD_POLICIES], ids=[b[0] for b in BAD_POLICIES]
)
def test_what_is_no_policy_is_refused_before_any_model_is_fitted(
    policy: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        policy_value(policy, labelled_log(), **options)


@pytest.mark.parametrize(("baseline", "message"), [("phone", "the policy gives 'phone'"), (["none"], "got 1")])
def test_what_is_no_baseline_is_refused(baseline: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_value("none", labelled_log(), estimator="ipw", baseline=baseline)


def test_snipw_of_a_policy_that_never_does_what_the_log_did_is_refused() -> None:
    log = labelled_log()
    never = [COLUMNS[(a + 1) % 3] for a in log.action]
    with pytest.raises(ValueError, match="no row took an action this policy would take"):
        policy_value(never, log, estimator="snipw")
    assert policy_value(never, log, estimator="ipw").estimate == 0.0


def test_labels_of_different_types_stay_what_they_are() -> None:
    labels = [["none", 1][i % 2] for i in range(ROWS)]
    log = LoggedFeedback.of(np.arange(ROWS)[:, None], np.arange(ROWS), labels, propensity=0.5)
    assert_allclose(policy_value(labels, log, estimator="ipw").estimate, 2.0 * log.outcome.mean())


def test_a_frame_of_probabilities_is_read_by_name() -> None:
    log, frame = labelled_log(), pd.DataFrame(some_table(), columns=COLUMNS)
    value = policy_value(frame[LABELS], log, estimator="ipw", rule="randomized")
    assert_same_value(value, value_by_propensity(log, frame.to_numpy()))


# --- policy_value: its nuisances ---------------------------------------------------------------------------------


@every_estimator
def test_nuisances_are_those_of_the_cross_fitting(estimator: str) -> None:
    groups = np.random.default_rng(2).integers(0, 12, ROWS)
    log = labelled_log(
        cost={"visit": 0.5}, sample_weight=np.random.default_rng(1).uniform(0.5, 2.0, ROWS), groups=groups
    )
    done = RIDGE.run(log, "dr")
    wanted = value_by_propensity(
        log, some_table(), estimator,
        outcome_mean=done.outcome_mean, cost=log.cost, weights=log.weights, groups=log.groups,
    )  # fmt: skip
    assert_same_value(policy_value(some_table(), log, estimator=estimator, rule="randomized", nuisances=RIDGE), wanted)
    # an earlier result is taken as it is
    assert_same_value(policy_value(some_table(), log, estimator=estimator, rule="randomized", nuisances=done), wanted)


@pytest.mark.usefixtures("no_fit")
def test_given_nuisances_are_not_estimated_again() -> None:
    log = labelled_log()
    known = Nuisances(log, log.propensity, 0.0, False, np.zeros((ROWS, 3)))  # type: ignore[arg-type]
    value = policy_value("none", log, nuisances=known)
    assert_allclose(value.influence, policy_value("none", log, estimator="ipw", nuisances=known).influence)
    with pytest.raises(ValueError, match="'dr' needs outcome_mean"):
        policy_value("none", log, nuisances=replace(known, means=None))


def test_propensities_are_clipped_before_they_divide() -> None:
    number = np.arange(ROWS) % 2
    log = LoggedFeedback.of(np.zeros((ROWS, 1)), np.ones(ROWS), number, propensity=0.001)
    for clip, used in ((0.0, 0.001), (0.05, 0.05), ("auto", 0.01)):
        value = policy_value(1, log, estimator="ipw", nuisances=CrossFit(clip=clip))
        assert_allclose(value.estimate, 0.5 / used)


def test_propensities_that_are_not_given_are_estimated_and_the_caller_told() -> None:
    log = labelled_log(propensity=None)
    with pytest.warns(EstimatedPropensityWarning) as warned:
        value = policy_value("none", log, estimator="snipw")
    assert [warning.filename for warning in warned] == [__file__]
    assert np.isfinite(value.estimate)


# --- Coverage ----------------------------------------------------------------------------------------------------

REPLICATIONS = 200


@pytest.fixture(scope="module")
def replications() -> dict[str, np.ndarray]:
    """(estimate, se, low, high) of a fixed rule and of its gain over action 0, a row for each replication."""
    design = LoggedDesign(BinaryDesign("DGP2"))
    results: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(REPLICATIONS):
        seen = design.sample(500, seed=1000 + seed)
        log = LoggedFeedback.of(seen.x, seen.outcome, seen.action, propensity=seen.propensity)
        nuisances = CrossFit(outcome_model=Ridge(), folds=2).run(log, "dr")
        rule = (seen.x[:, 0] + seen.x[:, 1] > 0).astype(int)
        for estimator in ("dr", "ipw", "snipw"):
            for name, baseline in (("value", None), ("gain", 0)):
                value = policy_value(rule, log, estimator=estimator, baseline=baseline, nuisances=nuisances)
                results.setdefault(f"{estimator} {name}", []).append((value.estimate, value.se, *value.interval()))
    return {name: np.array(rows) for name, rows in results.items()}


@pytest.mark.parametrize("name", ["value", "gain"])
@pytest.mark.parametrize("estimator", ["dr", "ipw", "snipw"])
def test_intervals_cover_the_truth(estimator: str, name: str, replications: dict[str, np.ndarray]) -> None:
    # x_0 + x_1 is normal with variance 2, and E gamma_0 = -0.2 E x_2^2 = -0.2
    gain, _ = quad(lambda s: 1.5 * math.sin(s) * math.exp(-(s**2) / 4) / math.sqrt(4 * math.pi), 0.0, 30.0)
    truth = gain if name == "gain" else gain - 0.2
    estimate, se, low, high = replications[f"{estimator} {name}"].T
    covered = np.mean((low <= truth) & (truth <= high))
    assert 0.90 <= covered <= 0.99  # 0.95, give or take three binomial errors
    assert abs(estimate.mean() - truth) < 3.5 * estimate.std() / math.sqrt(REPLICATIONS)
    assert_allclose(se.mean(), estimate.std(ddof=1), rtol=0.15)  # also three errors, of a standard deviation


def test_the_doubly_robust_error_is_the_smallest(replications: dict[str, np.ndarray]) -> None:
    size = {estimator: replications[f"{estimator} value"][:, 0].std() for estimator in ("dr", "ipw", "snipw")}
    assert size["dr"] < min(size["ipw"], size["snipw"])
    assert_array_equal(replications["dr value"].shape, (REPLICATIONS, 4))
