"""Budget curves of a fitted policy: its held-out gains put rows in order, and their own outcomes say what it brings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from support.policies import small_net

from gbpl import PerAction
from gbpl.decisions.budget import budget_rule
from gbpl.estimators.training import LEARNED
from gbpl.feedback.pseudo_outcomes import doubly_robust
from gbpl.value.budget_curve import budget_curve

RNG = np.random.default_rng(0)
N = 300
X = RNG.normal(size=(N, 2))
A = RNG.permutation(np.arange(N) % 3)
Y = np.column_stack([0 * X[:, 0], X[:, 0], 0.5 + X[:, 1]])[np.arange(N), A] + RNG.normal(size=N)
SPENT = np.array([0.0, 1.0, 2.0])[A] * RNG.gamma(4.0, 0.25, N)


@pytest.fixture(scope="module")
def policy():
    model = PerAction(LinearRegression())
    net = small_net(zeta="auto", committee=3, outcome_model=model, nuisance_folds=2, correction=1.0)
    return net.fit(X, Y, action=A, propensity=1 / 3)


def scores_of(policy) -> np.ndarray:
    known = policy.training("").nuisances
    return doubly_robust(Y, A, np.full(N, 1 / 3), known.outcome_mean)


def test_curve_is_that_of_held_out_gains_by_doubly_robust_scores(policy):
    curve = policy.budget_curve(cost=[0.0, 1.0, 2.0])
    folds = policy.training("").held_out.folds
    cost = np.tile([0.0, 1.0, 2.0], (N, 1))
    alone, _ = budget_curve(policy.expected_gain(), cost, scores_of(policy), folds=folds, budgets=curve.spend)
    assert_allclose(curve.gain, alone.gain, atol=1e-9)
    assert curve.inflation == LEARNED
    rows = replace(alone, inflation=LEARNED, extra=None).se
    assert np.all(curve.se >= rows - 1e-12)
    assert np.any(curve.se > 1.001 * rows)  # folds depend on each other
    assert curve.actions == (0, 1, 2)


def test_default_is_free_and_every_other_action_takes_one(policy):
    """With `everyone` all rows are treated in the end, whatever the default."""
    curve = policy.budget_curve(default=1, everyone=True)
    assert_allclose(curve.spend[-1], 1.0)
    assert_allclose(curve.shares[0], [0.0, 1.0, 0.0])
    assert_allclose(curve.shares[-1, 1], 0.0, atol=1e-12)


def test_by_lot_the_curve_is_a_straight_line_for_each_action_that_is_worth_it(policy):
    lot = policy.budget_curve(order="lot")
    slopes = np.diff(lot.gain) / np.diff(lot.spend)
    assert np.ptp(slopes[:90]) < 1e-6 * abs(slopes[0]) + 1e-9
    assert lot.inflation == 0.0


def test_estimated_costs_are_those_of_models_of_other_folds(policy):
    curve = policy.budget_curve(cost_outcome=SPENT)
    folds = policy.training("").held_out.folds
    parts = []
    for fold in folds:
        others = np.setdiff1d(np.arange(N), fold)
        rows = [others[A[others] == action] for action in range(3)]
        parts.append(np.column_stack([LinearRegression().fit(X[r], SPENT[r]).predict(X[fold]) for r in rows]))
    expected = np.empty((N, 3))
    for fold, part in zip(folds, parts, strict=True):
        expected[fold] = part
    paid = doubly_robust(SPENT, A, np.full(N, 1 / 3), expected)
    alone, _ = budget_curve(
        policy.expected_gain(), expected, scores_of(policy), spent=paid, folds=folds, budgets=curve.spend
    )
    assert np.corrcoef(curve.gain, alone.gain)[0, 1] > 0.99  # models of two parts of the others are averaged there
    assert abs(curve.spend[-1] - max(1e-9, alone.spend[-1])) < 1e-9
    assert abs(curve.at(0.5).gain.estimate - alone.at(0.5).gain.estimate) < curve.at(0.5).gain.se


def test_within_a_budget_each_draw_has_the_same_budget(policy):
    found = policy.within_budget(X[:50], 20.0, cost=[0.0, 1.0, 2.0], seed=3)
    draws = np.concatenate([part for _, part in policy.posterior().effects(X[:50], seed=3)], axis=1)
    again = budget_rule(policy.expected_gain(X[:50]), cost=[0.0, 1.0, 2.0], budget=20.0, draws=draws)
    assert_array_equal(found.decisions.action, again.decisions.action)
    assert_array_equal(found.decisions.inclusion, again.decisions.inclusion)
    assert found.spend <= 20.0
    assert 0.0 < found.decisions.inclusion.mean() < 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cost": [1.0, 0.0, 2.0]}, "below that of the default"), ({"cost": [1.0, 1.0, 1.0]}, "nothing to budget"),
        ({"cost": {0: 0.0}, "cost_outcome": SPENT}, "give one of them"), ({"order": "best"}, "'lot'"),
        ({"default": 7}, "default must be"), ({"cost_outcome": SPENT[1:]}, "cost_outcome"),
    ],
)  # fmt: skip
def test_wrong_costs_and_orders_are_refused(policy, given, message):
    with pytest.raises(ValueError, match=message):
        policy.budget_curve(**given)
