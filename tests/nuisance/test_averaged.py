"""Averages of learners: weights against brute force, folds that see nothing of each other, two accounts of welfare."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from support.calls import record_calls
from support.checks import rows_outside
from support.samples import path_of

import gbpl.nuisance.averaged
import gbpl.nuisance.plan
from gbpl import MLP, CrossFit, EstimatedPropensityWarning, FitConfig, LoggedFeedback
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.members import fold_rows
from gbpl.models.splines import spline_curves
from gbpl.nuisance.averaged import (
    BENDS,
    RIDGES,
    additive_means,
    averaged_propensity,
    convex_weights,
    earned_weights,
    forest_means,
    mixture_weights,
)  # fmt: skip
from gbpl.path.out_of_fold import LEAST_DOUBT, average_weights, dropped_small, pooled_contrasts

ROWS, FOLDS = 160, 3


def log_with_a_step(
    n: int = ROWS, *, seed: int = 0, actions: int = 2, features: int = 3, **given: Any
) -> LoggedFeedback:
    """A randomized log: action 1 pays where the first feature is positive, action 2 as much as the second."""
    rng = np.random.default_rng(seed)
    x, action = rng.normal(size=(n, features)), rng.integers(0, actions, n)
    means = np.column_stack([np.zeros(n), 2.0 * (x[:, 0] > 0), x[:, 1]])
    outcome = 10.0 + means[np.arange(n), action] + 0.5 * rng.normal(size=n)
    return LoggedFeedback.of(x, outcome, action, **{"propensity": np.full((n, actions), 1.0 / actions), **given})


def stratified_folds(log: LoggedFeedback, folds: int = FOLDS) -> list[np.ndarray]:
    return fold_rows(len(log), folds, seed=0, strata=log.action, groups=log.groups)


def with_outcomes(log: LoggedFeedback, outcome: np.ndarray) -> LoggedFeedback:
    given = {"propensity": log.propensity, "sample_weight": log.weights, "groups": log.groups}
    return LoggedFeedback.of(log.x, outcome, log.action, **given)


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough of them that every row is out of some bag."""
    monkeypatch.setattr(gbpl.nuisance.averaged, "TREES", 25)


AUTO = MLP(hidden=(64, 64))  # the first network of outcome_model="auto"


# -- weights ----------------------------------------------------------------------------------------------


def grid(count: int, steps: int = 50) -> np.ndarray:
    """Points c >= 0 with sum one."""
    points = itertools.product(range(steps + 1), repeat=count - 1)
    return np.array([(*point, steps - sum(point)) for point in points if sum(point) <= steps]) / steps


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_convex_weights_have_the_least_squared_error(weighted: bool, scale: float) -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(size=80)
    predictions = truth[:, None] * [1.2, 0.5, -1.0] + rng.normal(size=(80, 3)) * [0.5, 0.3, 1.0]
    outcome, weights = truth + rng.normal(size=80), rng.uniform(0.0, 3.0, 80) if weighted else None
    shares = convex_weights(scale * predictions, scale * outcome, weights)
    assert shares.min() >= 0.0
    assert shares.sum() == pytest.approx(1.0)

    def error(c: np.ndarray) -> float:
        return float(np.average((outcome - predictions @ c) ** 2, weights=weights))

    errors = [error(c) for c in grid(3)]
    assert error(shares) <= min(errors)
    assert_allclose(shares, grid(3)[int(np.argmin(errors))], atol=0.02)


def test_convex_weights_of_learners_that_agree() -> None:
    predictions = np.arange(5.0)[:, None].repeat(2, axis=1)
    for outcome in (np.arange(5.0), np.zeros(5)):
        shares = convex_weights(predictions, outcome, None)
        assert np.all(shares >= 0.0)
        assert shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("weighted", [False, True])
def test_mixture_weights_have_the_greatest_likelihood(weighted: bool) -> None:
    rng = np.random.default_rng(2)
    likelihood, weights = rng.uniform(0.05, 1.0, (60, 3)), rng.uniform(0.0, 3.0, 60) if weighted else None
    likelihood[:, 2] *= 0.3
    shares = mixture_weights(likelihood, weights)
    assert shares.min() >= 0.0
    assert shares.sum() == pytest.approx(1.0)

    def log_likelihood(c: np.ndarray) -> float:
        return float(np.average(np.log(likelihood @ c), weights=weights))

    best = max(log_likelihood(c) for c in grid(3))
    assert log_likelihood(shares) > best - 1e-4
    assert shares[2] < 0.02


# -- additive means ---------------------------------------------------------------------------------------


def ridge_by_hand(log: LoggedFeedback, rows: np.ndarray, action: int, bend: float, ridge: float) -> np.ndarray:
    """Means of an action from the given rows that took it, with a ridge on lines and `bend` times as much on curves."""
    n = len(log)
    x = Standardizer.fit(log.context, np.arange(n), log.weights).apply(log.context)
    basis = np.column_stack([np.ones(n), spline_curves(x, 5)]).astype(float)
    weight = np.ones(n) if log.weights is None else log.weights / log.weights.mean()
    own = rows[log.action[rows] == action]
    root = np.sqrt(weight[own])[:, None]
    held = np.sqrt(ridge * np.array([1e-9, *[1.0, bend, bend, bend] * x.shape[1]]))
    design = np.vstack([root * basis[own], np.diag(held)])  # pseudo-rows that pull each coefficient to zero
    wanted = np.append(root[:, 0] * log.outcome[own], np.zeros(basis.shape[1]))
    return basis @ np.linalg.lstsq(design, wanted, rcond=None)[0]


def best_ridges(log: LoggedFeedback, folds: list[np.ndarray], one: int) -> tuple[float, float]:
    """Of the least squared error of the other folds, each by models that saw neither it nor this one."""
    weight = np.ones(len(log)) if log.weights is None else log.weights

    def error(ridges: tuple[float, float]) -> float:
        total = 0.0
        others = [fold for number, fold in enumerate(folds) if number != one]
        for fold, action in itertools.product(others, range(len(log.actions))):
            own = fold[log.action[fold] == action]
            means = ridge_by_hand(log, rows_outside(len(log), fold, folds[one]), action, *ridges)
            total += float(weight[own] @ (log.outcome[own] - means[own]) ** 2)
        return total

    return min(itertools.product(BENDS, RIDGES), key=error)


@pytest.mark.parametrize("features", [3, 20])  # fewer curves than rows of an action, and more: the dual
@pytest.mark.parametrize("weighted", [False, True])
def test_additive_means_are_ridge_regressions_without_the_folds(weighted: bool, features: int) -> None:
    weights = np.random.default_rng(3).uniform(0.5, 2.0, ROWS) if weighted else None
    log = log_with_a_step(actions=3, features=features, sample_weight=weights)
    folds = stratified_folds(log)
    means, fold_means = additive_means(log, folds)
    ridges = [best_ridges(log, folds, one) for one in range(FOLDS)]
    assert all(RIDGES[0] < ridge < RIDGES[-1] for _, ridge in ridges)
    for one, other in itertools.product(range(FOLDS), repeat=2):
        for action in range(3):
            by_hand = ridge_by_hand(log, rows_outside(len(log), folds[one], folds[other]), action, *ridges[one])
            assert_allclose(fold_means[one, folds[other], action], by_hand[folds[other]], atol=1e-6)
            if one == other:
                assert_allclose(means[folds[one], action], by_hand[folds[one]], atol=1e-6)


def test_lines_that_nothing_bends_get_a_ridge_that_keeps_them_straight() -> None:
    """With ten features and 120 rows per action, where means are lines; with curves the smaller ridge is chosen."""
    rng = np.random.default_rng(1)
    x, action = rng.normal(size=(240, 10)), np.arange(240) % 2
    straight, curved = x @ rng.normal(size=10), 3.0 * np.abs(x).sum(axis=1)
    for mean, wanted in ((straight, max(BENDS)), (curved, min(BENDS))):
        log = LoggedFeedback.of(x, mean + rng.normal(size=240), action, propensity=0.5)
        folds = stratified_folds(log)
        assert {best_ridges(log, folds, one)[0] for one in range(FOLDS)} == {wanted}
        error = np.mean((additive_means(log, folds)[0] - mean[:, None]) ** 2)
        assert error < (0.6 if wanted > 1.0 else 0.2 * np.var(mean))


@pytest.mark.parametrize(("n", "features"), [(120, 400), (400, 5)])
def test_additive_means_solve_for_rows_or_curves_whichever_are_fewer(
    n: int, features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 400 features there are 1,600 curves: matrices of that order took minutes where a log has 500 rows."""
    log = log_with_a_step(n, features=features)
    calls = record_calls(monkeypatch, "solve", gbpl.nuisance.averaged.scipy.linalg)
    additive_means(log, stratified_folds(log))
    most_rows = np.bincount(log.action).max()
    assert max(len(call.arguments[0]) for call in calls) <= min(most_rows, 4 * features)
    pairs = FOLDS * (FOLDS - 1) // 2
    assert len(calls) == 2 * (pairs * len(BENDS) * len(RIDGES) + FOLDS)  # each pair of folds is left out once


def test_additive_means_follow_the_unit_and_the_level_of_the_outcome() -> None:
    """The unit exactly; the level is held back, but by little: a millionth of what the curves are."""
    log = log_with_a_step()
    folds = stratified_folds(log)
    logs = (log, with_outcomes(log, 3.0 * log.outcome), with_outcomes(log, 100.0 + log.outcome))
    for plain, scaled, moved in zip(*(additive_means(one, folds) for one in logs), strict=True):
        assert_allclose(scaled, 3.0 * plain, rtol=1e-9)
        assert_allclose(moved, 100.0 + plain, atol=1e-3)


# -- who sees whom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("learner", ["additive", "forest"])
@pytest.mark.usefixtures("few_trees")
def test_nothing_of_a_fold_is_in_its_means(learner: str, grouped: bool) -> None:
    """Whatever the outcomes of a fold, level and all: what members judged on it learn from stays as it is."""
    log = log_with_a_step(groups=np.arange(ROWS) // 4 if grouped else None)
    folds = stratified_folds(log)
    outcome = log.outcome.copy()
    outcome[folds[2]] = 300.0 + 30.0 * np.random.default_rng(4).normal(size=len(folds[2]))

    def means(given: LoggedFeedback) -> Any:
        return additive_means(given, folds) if learner == "additive" else forest_means(given, folds, seed=1)

    (plain, nested), (other, other_nested) = means(log), means(with_outcomes(log, outcome))
    assert_allclose(other[folds[2]], plain[folds[2]], rtol=1e-12)  # trees are added up in any order
    assert_allclose(other_nested[2], nested[2], rtol=1e-12)
    assert_allclose(nested[2, folds[2]], plain[folds[2]], rtol=1e-12)
    for number in (0, 1):
        assert np.abs(other[folds[number]] - plain[folds[number]]).max() > 1.0
        assert np.abs(other_nested[number] - nested[number]).max() > 1.0


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.usefixtures("few_trees")
def test_no_row_of_a_forest_is_told_by_itself(grouped: bool) -> None:
    """One outcome is changed: the row's own means stay, on both levels, and with groups those of its whole group."""
    groups = np.arange(ROWS) // 4
    log = log_with_a_step(groups=groups if grouped else None)
    folds, row = stratified_folds(log), 17
    outcome = log.outcome.copy()
    outcome[row] += 100.0
    before, after = (forest_means(given, folds, seed=1) for given in (log, with_outcomes(log, outcome)))
    kept = groups == groups[row] if grouped else np.arange(ROWS) == row
    assert_allclose(after[0][kept], before[0][kept], atol=1e-9)
    assert_allclose(after[1][:, kept], before[1][:, kept], atol=1e-9)
    assert np.abs(after[0] - before[0]).max() > 1.0


@pytest.mark.usefixtures("few_trees")
def test_a_forest_sees_the_step_that_additive_curves_smooth_over() -> None:
    log = log_with_a_step(400)
    folds, rows = stratified_folds(log), np.arange(400)
    truth = 10.0 + 2.0 * (log.x[:, 0] > 0) * (log.action == 1)
    errors = [
        np.mean((means[0][rows, log.action] - truth) ** 2)
        for means in (forest_means(log, folds, seed=0), additive_means(log, folds))
    ]
    assert errors[0] < errors[1] < np.var(truth)


# -- propensities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.usefixtures("few_trees")
def test_averaged_propensity_of_a_step(weighted: bool) -> None:
    """Logged with 0.85 inside a band and 0.15 outside, which no logistic regression in x can say."""
    rng = np.random.default_rng(5)
    n = 500
    x = rng.normal(size=(n, 2))
    chance = np.where(np.abs(x[:, 0]) < 0.7, 0.85, 0.15)
    action = (rng.uniform(size=n) < chance).astype(int)
    log = LoggedFeedback.of(x, rng.normal(size=n), action, sample_weight=rng.uniform(0.5, 2.0, n) if weighted else None)
    folds = [stratified_folds(log), fold_rows(n, FOLDS, seed=1, strata=log.action)]
    table, shares = averaged_propensity(log, folds, seed=0)
    assert_allclose(table.sum(axis=1), 1.0)
    assert table.min() >= 0.0
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["forest"] > 0.7
    logistic = np.zeros((n, 2))
    for fold in itertools.chain(*folds):
        known = rows_outside(len(log), fold)
        weights = None if log.weights is None else log.weights[known]
        fitted = LogisticRegression(max_iter=1000).fit(x[known], action[known], sample_weight=weights)
        logistic[fold] += fitted.predict_proba(x[fold]) / 2.0

    def log_likelihood(chances: np.ndarray) -> float:
        return float(np.average(np.log(chances[np.arange(n), action]), weights=log.weights))

    assert log_likelihood(table) > log_likelihood(logistic) + 0.15
    assert np.mean(np.abs(table[:, 1] - chance)) < 0.12


# -- the average in a cross-fitting -----------------------------------------------------------------------


def test_one_more_learner_must_earn_its_place() -> None:
    """Three of the four columns are the truth with noise; the optional one is noisier, or the truth itself."""
    rng = np.random.default_rng(3)
    truth = rng.normal(size=600)
    outcome, weights = truth + 0.5 * rng.normal(size=600), rng.uniform(0.5, 2.0, size=600)
    others = truth[:, None] + 0.6 * rng.normal(size=(600, 3))
    for noise, earned in ((5.0, False), (0.0, True)):
        optional = truth + noise * rng.normal(size=600)
        columns = np.column_stack([others[:, :1], optional, others[:, 1:]])
        shares = earned_weights(columns, outcome, weights, 1)
        assert shares.sum() == pytest.approx(1.0)
        assert (shares[1] > 0.5) == earned
        if not earned:
            assert shares[1] == 0.0
            assert_allclose(np.delete(shares, 1), convex_weights(others, outcome, weights), atol=1e-9)
    # A learner that repeats another has a share by chance alone, and does not earn it.
    assert earned_weights(np.column_stack([others, others[:, 0]]), outcome, weights, 3)[3] == 0.0


@pytest.mark.usefixtures("few_trees")
def test_the_average_of_the_outcome_models_is_as_good_as_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    learners = {"forest": "forest_means", "additive": "additive_means"}
    calls = {name: record_calls(monkeypatch, learner, gbpl.nuisance.plan) for name, learner in learners.items()}
    log, rows = log_with_a_step(400), np.arange(400)
    settings: Any = {"committee": 2, "fit_config": FitConfig(max_epochs=3), "progress": False, "device": "cpu"}
    outer = stratified_folds(log, 3)
    run = CrossFit(outcome_model="auto", folds=2, **settings).run(log, outer=outer)
    single = {name: recorded[-1].result[0] for name, recorded in calls.items()}
    network = CrossFit(outcome_model=AUTO, folds=2, **settings).run(log, outer=outer)
    kinked = CrossFit(outcome_model=MLP(hidden=(64, 64), activation="relu"), folds=2, **settings).run(log, outer=outer)
    single |= {"network": network.means, "relu network": kinked.means}
    assert set(run.shares) == {"network", "relu network", "forest", "additive"}
    assert sum(run.shares.values()) == pytest.approx(1.0)
    assert min(run.shares.values()) >= 0.0
    expected = sum(share * single[name] for name, share in run.shares.items())
    assert_allclose(run.means, expected, atol=1e-5)

    def error(means: np.ndarray, wanted: np.ndarray) -> float:
        return float(np.mean((means[rows, log.action] - wanted) ** 2))

    del single["relu network"]  # it need not be in the average
    truth = 10.0 + 2.0 * (log.x[:, 0] > 0) * (log.action == 1)
    assert error(run.means, log.outcome) <= min(error(means, log.outcome) for means in single.values()) + 1e-6
    assert error(run.means, truth) < 1.1 * min(error(means, truth) for means in single.values())
    # In the scores of an outer fold, learners are averaged by the rows outside it alone.
    nested = [network.fold_means, kinked.fold_means, *(calls[name][-1].result[1] for name in ("forest", "additive"))]
    for number, fold in enumerate(outer):
        known = rows_outside(400, fold)
        own = [table[number] for table in nested]
        taken = np.column_stack([table[known, log.action[known]] for table in own])
        shares = earned_weights(taken, log.outcome[known], None, 1)
        assert_allclose(run.fold_means[number], np.tensordot(shares, own, axes=1), atol=1e-5)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("earned", [False, True])
def test_the_optional_network_is_tried_by_one_job_per_fold_first(earned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it earns its place its other jobs follow, and it is the network that it would be alone."""
    fits = record_calls(monkeypatch, "fit_stacks", gbpl.nuisance.plan)

    def all_or_nothing(predictions: np.ndarray, outcome: Any, weights: Any, optional: int, **_: Any) -> np.ndarray:
        return np.eye(predictions.shape[1])[optional if earned else (optional + 1) % predictions.shape[1]]

    monkeypatch.setattr(gbpl.nuisance.plan, "earned_weights", all_or_nothing)
    log = log_with_a_step()
    outer = stratified_folds(log, 3)
    settings: Any = {"folds": 2, "committee": 2, "fit_config": FitConfig(max_epochs=3), "progress": False}
    run = CrossFit(outcome_model="auto", device="cpu", **settings).run(log, outer=outer)
    members = {"tanh": [], "relu": []}
    for call in fits:
        members[call.arguments[2].activation].append(len(call.arguments[0][0].members))
    assert members == {"tanh": [6], "relu": [3, 3] if earned else [3]}
    assert run.shares["relu network"] == float(earned)
    if earned:
        kinked = MLP(hidden=(64, 64), activation="relu")
        alone = CrossFit(outcome_model=kinked, device="cpu", **settings).run(log, outer=outer)
        assert_allclose(run.means, alone.means, atol=1e-5)
        assert_allclose(run.fold_means, alone.fold_means, atol=1e-5)


@pytest.mark.usefixtures("few_trees")
def test_nothing_of_a_fold_is_in_the_shares_of_its_scores() -> None:
    """Outcomes of a fold change places, so that the scale of the network's targets stays."""
    settings: Any = {"committee": 2, "fit_config": FitConfig(max_epochs=3), "progress": False, "device": "cpu"}
    log = log_with_a_step()
    outer = stratified_folds(log, 3)
    outcome = log.outcome.copy()
    outcome[outer[1]] = outcome[outer[1]][::-1]
    one, other = (
        CrossFit(outcome_model="auto", folds=2, **settings).run(given, outer=outer)
        for given in (log, with_outcomes(log, outcome))
    )
    assert_allclose(other.fold_means[1], one.fold_means[1], atol=1e-4)
    assert np.abs(other.fold_means[0] - one.fold_means[0]).max() > 0.05
    assert max(abs(other.shares[name] - share) for name, share in one.shares.items()) > 1e-3


@pytest.mark.usefixtures("few_trees")
def test_an_average_without_propensities_averages_them_too() -> None:
    log = log_with_a_step(propensity=None)
    settings: Any = {"fit_config": FitConfig(max_epochs=3), "progress": False, "device": "cpu", "committee": 2}
    with pytest.warns(EstimatedPropensityWarning, match="averaged with a forest"):
        run = CrossFit(outcome_model="auto", folds=3, **settings).run(log)
    assert run.estimated
    assert_allclose(run.propensity.sum(axis=1), 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EstimatedPropensityWarning)
        given = CrossFit(outcome_model="auto", folds=3, **settings).run(log_with_a_step())
    assert_array_equal(given.propensity, np.full((ROWS, 2), 0.5))


@pytest.mark.parametrize("folds", [2, 3])
@pytest.mark.usefixtures("few_trees")
def test_fewer_than_three_folds_leave_the_network_alone(folds: int) -> None:
    """With two of them, a model that leaves both out has nothing to learn from."""
    settings: Any = {"fit_config": FitConfig(max_epochs=3), "progress": False, "device": "cpu", "committee": 2}
    log = log_with_a_step()
    run = CrossFit(outcome_model="auto", folds=folds, **settings).run(log)
    if folds == 3:
        assert set(run.shares) == {"network", "relu network", "forest", "additive"}
        return
    assert run.shares is None
    assert_array_equal(run.means, CrossFit(outcome_model=AUTO, folds=2, **settings).run(log).means)


def test_other_words_are_refused() -> None:
    with pytest.raises(TypeError, match=r"outcome_model must be 'auto', .* got 'best'"):
        CrossFit(outcome_model="best")


# -- two accounts of welfare ------------------------------------------------------------------------------


def accounts_by_hand(dv: float, dm: float, variance: float) -> tuple[float, float]:
    """Difference of two entries and its variance: a normal prior around dm with variance 2 t^2, seen with noise.

    In contrasts, sum (v - m)^2 = (dv - dm)^2 / 2 and the trace of their noise is variance / 2.
    """
    t2 = max((dv - dm) ** 2 / 2.0 - variance / 2.0, LEAST_DOUBT * variance / 2.0)
    gain = 2.0 * t2 / (2.0 * t2 + variance)
    return dm + gain * (dv - dm), 2.0 * t2 * (1.0 - gain)


@pytest.mark.parametrize(("dv", "dm"), [(0.3, 0.25), (0.3, -0.2), (2.0, 0.1), (0.0, 0.0), (-1.0, 1.0)])
def test_two_entries_in_closed_form(dv: float, dm: float) -> None:
    covariance = np.array([[0.09, 0.04], [0.04, 0.06]])
    variance = 0.09 + 0.06 - 2 * 0.04
    mean, spread = pooled_contrasts(np.array([5.0 + dv, 5.0]), covariance, np.array([7.0 + dm, 7.0]))
    expected, its_variance = accounts_by_hand(dv, dm, variance)
    contrast = np.array([1.0, -1.0])
    assert contrast @ mean == pytest.approx(expected)
    assert contrast @ spread @ contrast == pytest.approx(its_variance)


def test_weights_follow_pooled_contrasts() -> None:
    """The probability that an entry is the best is that of a normal difference above zero."""
    covariance = np.array([[0.09, 0.04], [0.04, 0.06]])
    welfare, modelled = np.array([0.2, 0.0]), np.array([0.3, 0.0])
    mean, variance = accounts_by_hand(0.2, 0.3, 0.07)
    weights = average_weights(path_of(welfare, covariance, modelled=modelled))
    assert weights[0] == pytest.approx(norm.cdf(mean / np.sqrt(variance)), abs=0.03)
    alone = average_weights(path_of(welfare, covariance, modelled=None))
    assert alone[0] == pytest.approx(norm.cdf(0.2 / np.sqrt(0.07)), abs=0.03)


def test_entries_that_hardly_count_are_dropped() -> None:
    assert_allclose(dropped_small(np.array([0.5, 0.02, 0.46, 0.02])), [0.5 / 0.96, 0.0, 0.46 / 0.96, 0.0])
    assert_array_equal(dropped_small(np.array([0.97, 0.03])), [0.97, 0.03])


@pytest.mark.parametrize(("known", "noise"), [(False, 0.15), (True, 0.6)])
def test_a_modelled_account_drops_what_hardly_counts(known: bool, noise: float) -> None:
    """The third of three is the best in about one of a hundred draws, by one account or by both."""
    welfare, covariance = np.array([1.0, 1.0, 0.0]), noise * np.eye(3)
    modelled = welfare + 3.0
    accounts = pooled_contrasts(welfare, covariance, modelled) if known else (welfare, covariance)
    draws = np.random.default_rng(1).multivariate_normal(*accounts, 20_000, method="eigh")
    assert 0.002 < np.mean(np.argmax(draws, axis=1) == 2) < 0.018
    weights = average_weights(path_of(welfare, covariance, modelled=modelled if known else None))
    assert weights.sum() == pytest.approx(1.0)
    assert weights[:2].min() > 0.4
    assert (weights[2] == 0.0) == known


def test_accounts_that_agree_are_believed() -> None:
    """No bias to be seen: the mean is near the model's, with less noise than the welfare has."""
    rng = np.random.default_rng(6)
    half = rng.normal(size=(4, 8))
    covariance, modelled = half @ half.T / 8.0, np.array([0.0, 1.0, 2.0, 3.0])
    mean, spread = pooled_contrasts(modelled + 5.0, covariance, modelled)
    assert_allclose(mean - mean.mean(), modelled - modelled.mean())
    contrast = np.eye(4) - 0.25
    assert np.trace(spread) < 0.3 * np.trace(contrast @ covariance @ contrast)


def test_a_model_that_is_far_off_is_not_believed() -> None:
    rng = np.random.default_rng(7)
    half = rng.normal(size=(4, 8))
    covariance, welfare = half @ half.T / 8.0, rng.normal(size=4)
    contrast = np.eye(4) - 0.25
    mean, spread = pooled_contrasts(welfare, covariance, np.array([1e3, -2e3, 3e3, 0.0]))
    assert_allclose(mean, contrast @ welfare, atol=1e-2)
    assert_allclose(spread, contrast @ covariance @ contrast, atol=1e-2)


def test_without_noise_or_difference_the_welfare_is_all_there_is() -> None:
    welfare = np.array([1.0, 2.0])
    mean, spread = pooled_contrasts(welfare, np.zeros((2, 2)), welfare)
    assert_array_equal(mean, welfare)
    assert_array_equal(spread, np.zeros((2, 2)))
