"""Held-out decisions: nothing of a fold is in the fit that decides it, and how such fits vary.

Outcomes are multiples of 1/64 and there are 128 rows, so that means over rows are exact in any order: what must not
change is compared bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from support.calls import record_calls
from support.checks import hidden_layer_policy, nearest_on_simplex
from support.policies import small_net

import gbpl.path.held_out
from gbpl import MLP, Binary, FitConfig, FullFeedback, FullVector, GBPLNet, PerAction
from gbpl.estimators.training import hold_out_together
from gbpl.fitting.members import fold_rows
from gbpl.path.held_out import HeldOut, hold_out, out_of_fold
from gbpl.path.path import fit_paths
from gbpl.path.plan import PathProblem, PathSettings, Table

ROWS = 128
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
OUTCOMES = np.round(64.0 * (np.column_stack([0.0 * X[:, 0], X[:, 0], -X[:, 1]]) + RNG.normal(size=(ROWS, 3)))) / 64.0
ACTION = RNG.permutation(np.arange(ROWS) % 2)
GROUPS = np.arange(ROWS) // 4


def held_out(policy: GBPLNet) -> HeldOut:
    return policy._training.held_out


def full(outcomes: np.ndarray, **changes: Any) -> GBPLNet:
    return small_net(**{"committee": 3, "zeta": "auto", **changes}).fit(X, outcomes)


def logged(outcome: np.ndarray, outcome_model: Any, **changes: Any) -> GBPLNet:
    given = {"committee": 3, "zeta": "auto", "outcome_model": outcome_model, "nuisance_folds": 2} | changes
    return small_net(**given).fit(X, outcome, action=ACTION, propensity=0.5)


def assert_one_fold_stays(one: HeldOut, other: HeldOut, number: int) -> None:
    """The decisions of a fold are the same bit for bit, those elsewhere are others."""
    for fold, same in zip(one.folds, other.folds, strict=True):
        assert_array_equal(fold, same)
    fold = one.folds[number]
    assert_array_equal(other.deviation[fold], one.deviation[fold])
    assert_array_equal(other.unit[fold], one.unit[fold])
    elsewhere = np.setdiff1d(np.arange(ROWS), fold)
    assert np.abs(other.deviation[elsewhere] - one.deviation[elsewhere]).max() > 1e-3


# -- nothing of a fold ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "committee"), [(2, 2), (3, 3)])
def test_outcomes_of_a_fold_do_not_decide_it(count: int, committee: int) -> None:
    """They all change, level, scale and all; the fits of other folds see them."""
    policy = full(OUTCOMES[:, :count], committee=committee)
    one, number = held_out(policy), committee - 1
    changed = OUTCOMES[:, :count].copy()
    changed[one.folds[number]] = 7.0 - 20.0 * changed[one.folds[number]]
    again = full(changed, committee=committee)
    assert_one_fold_stays(one, held_out(again), number)
    fold = one.folds[number]
    assert_array_equal(again._training.untouched[fold], policy._training.untouched[fold])
    assert_array_equal(again.expected_gain()[fold], policy.expected_gain()[fold])
    assert not np.array_equal(again.predict_proba(X[fold]), policy.predict_proba(X[fold]))


def test_logged_outcomes_of_a_fold_do_not_decide_it() -> None:
    """Nor by the outcome models, whose scores the other rows have."""
    outcome, model = OUTCOMES[np.arange(ROWS), ACTION], PerAction(LinearRegression())
    one = held_out(logged(outcome, model, committee=2))
    changed = outcome.copy()
    changed[one.folds[0]] = 7.0 - 20.0 * changed[one.folds[0]]
    assert_one_fold_stays(one, held_out(logged(changed, model, committee=2)), 0)


def test_networks_that_model_outcomes_do_not_decide_a_fold_by_it_either() -> None:
    """Outcomes of the fold change places: networks learn in units of the outcomes of all rows, which stay."""
    outcome, model = OUTCOMES[np.arange(ROWS), ACTION], MLP(hidden=(4,), activation="relu")
    one = held_out(logged(outcome, model))
    changed = outcome.copy()
    changed[one.folds[1]] = changed[one.folds[1]][::-1]
    assert_one_fold_stays(one, held_out(logged(changed, model)), 1)


@pytest.mark.parametrize("committee", [2, 4])
def test_groups_stay_together(committee: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folds that are held out, and in those that stop and weigh the fits without them."""
    calls = record_calls(monkeypatch, "fit_paths", gbpl.path.held_out)
    policy = small_net(committee=committee).fit(X, OUTCOMES[:, :2], groups=GROUPS)
    held = held_out(policy)
    assert_array_equal(np.sort(np.concatenate(held.folds)), np.arange(ROWS))
    assert sum(len(np.unique(GROUPS[fold])) for fold in held.folds) == len(np.unique(GROUPS))
    ((parts,), *_) = calls[0]
    for fold, part in zip(held.folds, parts, strict=True):
        assert set(part.feedback.groups) == set(GROUPS) - set(GROUPS[fold])
        inside = [np.unique(part.feedback.groups[inner]) for inner in part.folds]
        assert len(inside) == 2
        assert not np.intersect1d(*inside).size
        left = np.setdiff1d(np.arange(len(part.feedback)), np.concatenate(part.folds))
        assert not np.intersect1d(part.feedback.groups[left], np.concatenate(inside)).size


# -- the fits, restated -----------------------------------------------------------------------------------


def problem(count: int = 2, *, folds: int = 4, zetas: Any = (1.0, 0.1), seed: int = 0) -> PathProblem:
    """With weights, and a table for each fold, as a log has."""
    weights = np.random.default_rng(1).integers(1, 9, ROWS) / 4.0
    feedback = FullFeedback(X, OUTCOMES[:, :count], weights, np.arange(count))
    each = [OUTCOMES[:, :count] + fold / 8.0 * X[:, :1] * np.arange(count) for fold in range(folds)]
    settings = PathSettings(
        surrogate=Binary() if count == 2 else FullVector(count), model=MLP(hidden=(4,), activation="relu"), zetas=zetas,
        eta=None, prior_sd=1.0, committee=True, seed=seed, config=FitConfig(max_epochs=8, learning_rate=0.1),
        device="cpu", progress=False,
    )  # fmt: skip
    return PathProblem(feedback, [Table(each, 1.0)], fold_rows(ROWS, folds, seed=5), settings)


@pytest.mark.parametrize("count", [2, 3])
def test_a_fold_is_decided_by_the_path_of_the_other_rows(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the other folds stop and weigh; the mixture of the members decides, and the folds' mixtures vary."""
    calls = record_calls(monkeypatch, "fit_paths", gbpl.path.held_out)
    given = problem(count)
    (held,) = hold_out([given])
    ((parts,), _, fits) = calls[0]
    each = []
    for number, (fold, part, fit) in enumerate(zip(given.folds, parts, fits, strict=True)):
        rest = np.concatenate([given.folds[(number + step) % 4] for step in (1, 2, 3)])  # in the order dealt
        assert_array_equal(part.feedback.x, X[rest])
        assert_array_equal(part.feedback.weights, given.feedback.weights[rest])
        assert_array_equal(part.feedback.outcomes, given.tables[0].outcomes[number][rest])  # by what does not know it
        assert_array_equal(part.tables[0].outcomes, [part.feedback.outcomes])
        assert part.tables[0].scale == part.feedback.scale
        for inner, step in zip(part.folds, (1, 2), strict=True):
            assert_array_equal(rest[inner], given.folds[(number + step) % 4])
        w = given.feedback.weights[rest]
        mean = np.average(X[rest], axis=0, weights=w)
        x = (X - mean) / np.sqrt(np.average((X[rest] - mean) ** 2, axis=0, weights=w))
        x = x[:, fit.standardizer.columns]
        deviation = sum(
            weight * (hidden_layer_policy(fit.params, place, x) - 1.0 / count)
            for place, weight in enumerate(fit.policy_weights)
        )
        assert_allclose(held.deviation[fold], deviation[fold], atol=1e-5)
        each.append(deviation)
    assert_array_equal(held.unit, 1.0)
    assert_array_equal(held.gain, held.deviation)
    middle = np.mean(each, axis=0)
    expected = sum((one - middle).T @ (one - middle) for one in each) / ROWS * 3 / 4
    assert_allclose(held.covariance, expected, atol=1e-6)


def test_effects_of_the_other_rows_are_played_where_zetas_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = record_calls(monkeypatch, "fit_paths", gbpl.path.held_out)
    policy = full(OUTCOMES[:, :2])
    held = held_out(policy)
    for fold, fit in zip(held.folds, calls[0].result, strict=True):
        rest = np.setdiff1d(np.arange(ROWS), fold)
        x = ((X - X[rest].mean(axis=0)) / X[rest].std(axis=0))[:, fit.standardizer.columns]
        policies = [hidden_layer_policy(fit.params, place, x[fold]) for place in range(len(fit.members))]
        effect = fit.effect.mean
        theta = effect.slope * np.tensordot(fit.policy_weights, np.array(policies) - 0.5, axes=1) + effect.level
        assert_allclose(held.gain[fold], theta, atol=1e-4)
        assert_array_equal(held.unit[fold], effect.unit)
        assert_allclose(policy._training.untouched[fold], nearest_on_simplex(0.5 + theta / effect.unit), atol=1e-4)


def test_several_are_held_out_as_each_alone() -> None:
    given = [problem(), problem(seed=1)]
    for one, many in zip((hold_out([one])[0] for one in given), hold_out(given), strict=True):
        assert_allclose(many.deviation, one.deviation, atol=1e-5)
        assert_allclose(many.covariance, one.covariance, atol=1e-6)
    trainings = [full(OUTCOMES[:, :2], random_state=seed, zeta=1.0)._training for seed in (0, 1)]
    hold_out_together(trainings)
    for training in trainings:
        assert_allclose(vars(training)["held_out"].deviation, hold_out([training.problem()])[0].deviation, atol=1e-5)


@pytest.mark.parametrize("zetas", [None, (1.0, 0.1)], ids=["averaged", "selected"])
def test_members_that_did_not_stop_on_their_fold_decide_it(zetas: Any) -> None:
    """`out_of_fold`: the policy of the fit itself, and how the folds' mixtures vary."""
    given = problem(zetas=zetas)
    fit = fit_paths([given])[0]
    held = out_of_fold(fit)
    assert_array_equal(held.deviation, fit.deviation)
    each = []
    for number, fold in enumerate(given.folds):
        assert_array_equal(held.folds[number], fold)
        own = sum(
            fit.fold_weights[number, member.entry] * (hidden_layer_policy(fit.params, place, fit.x) - 0.5)
            for place, member in enumerate(fit.members)
            if member.fold == number
        )
        if zetas is None:
            own = fit.outside[number].slope * own + fit.outside[number].level
        unit = fit.outside[number].unit if zetas is None else 1.0
        assert_array_equal(held.unit[fold], unit)
        assert_allclose(held.gain[fold], own[fold], atol=1e-4)
        each.append(own)
    middle = np.mean(each, axis=0)
    expected = sum((one - middle).T @ (one - middle) for one in each) / ROWS * 3 / 4
    assert_allclose(held.covariance, expected, atol=1e-5)
