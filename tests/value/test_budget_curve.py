"""Budget curves: the optimum of a linear program at every budget, Qini curves of others, and errors by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from gbpl.value.budget import actions_within, follow, upgrades
from gbpl.value.budget_curve import budget_curve
from gbpl.value.curve import Curve


def problem(seed: int, n: int, count: int, *, ties: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expected gains, costs and scores, zero for the default action."""
    rng = np.random.default_rng(seed)
    gain, cost = rng.normal(size=(n, count)), rng.uniform(0.05, 1.0, (n, count))
    if ties:
        gain, cost = gain.round(), np.ceil(2.0 * cost) / 2.0
    gain[:, 0] = cost[:, 0] = 0.0
    return gain, cost, gain + rng.normal(size=(n, count)) * (np.arange(count) > 0)


def best_by_linear_program(gain: np.ndarray, cost: np.ndarray, budget: float) -> float:
    """max sum pi gain / n, with each row's pi on the simplex and sum pi cost / n <= budget."""
    n, count = gain.shape
    one_each = np.kron(np.eye(n), np.ones(count))
    found = linprog(
        -gain.ravel() / n, A_ub=cost.ravel()[None] / n, b_ub=[budget], A_eq=one_each, b_eq=np.ones(n), bounds=(0, 1)
    )
    return -float(found.fun)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("ties", [False, True])
def test_path_is_the_optimum_of_the_linear_program_at_every_budget(count, ties):
    """Sinha and Zoltners 1979: upgrades along the hulls, in the order of slopes, solve the relaxed knapsack."""
    for seed in range(5):
        gain, cost, _ = problem(seed, 12, count, ties=ties)
        path = follow(upgrades(gain, cost), cost)
        budgets = np.linspace(0.0, 1.2 * path.spend[-1], 9)
        found = path.means(gain, budgets)
        assert_allclose(found, [best_by_linear_program(gain, cost, budget) for budget in budgets], atol=1e-9)
        assert_allclose(path.rows(gain, budgets).mean(axis=0), found, atol=1e-12)
        assert_allclose(path.rows(cost, budgets).mean(axis=0), np.minimum(budgets, path.spend[-1]), atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5), st.booleans())
def test_curve_of_its_own_gains_rises_and_is_concave_and_prices_fall(seed, count, ties):
    gain, cost, _ = problem(seed, 30, count, ties=ties)
    curve, _ = budget_curve(gain, cost, gain)
    rise = np.diff(curve.gain)
    assert np.all(rise >= -1e-12)
    assert np.all(np.diff(rise) <= 1e-10)
    assert np.all(np.diff(curve.price) <= 1e-12)
    assert_allclose(curve.shares.sum(axis=1), 1.0)


def multi_armed_qini(gain: np.ndarray, cost: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spend and gain along the path, one row and upgrade at a time, as maq does it: a queue of the next upgrades."""
    n, count = gain.shape
    at, spend, total, path = np.zeros(n, int), 0.0, 0.0, []
    while True:
        best = (-np.inf, -1, -1)
        for row in range(n):
            for action in range(count):
                dearer = cost[row, action] - cost[row, at[row]]
                better = gain[row, action] - gain[row, at[row]]
                if dearer > 0.0 and better > 0.0 and better / dearer > best[0]:
                    best = better / dearer, row, action
        _, row, action = best
        if row < 0:
            return tuple(np.array(path).T)
        spend += cost[row, action] - cost[row, at[row]]
        total += scores[row, action] - scores[row, at[row]]
        at[row] = action
        path.append((spend / n, total / n))


@pytest.mark.parametrize("count", [2, 4])
def test_curve_is_the_multi_armed_qini_curve_for_the_same_scores(count):
    """Sverdrup, Wu, Athey and Wager 2024: linear between the points of the path, flat after its end."""
    gain, cost, scores = problem(3, 60, count)
    spend, total = multi_armed_qini(gain, cost, scores)
    budgets = np.linspace(0.0, 1.1 * spend[-1], 40)
    curve, _ = budget_curve(gain, cost, scores, budgets=budgets)
    assert_allclose(curve.gain, np.interp(budgets, np.append(0.0, spend), np.append(0.0, total)), atol=1e-12)


def test_two_actions_at_unit_cost_are_sorted_by_their_gain():
    gain, _, scores = problem(4, 50, 2)
    cost = np.tile([0.0, 1.0], (50, 1))
    curve, _ = budget_curve(gain, cost, scores, everyone=True, budgets=np.arange(51) / 50)
    ranked = scores[np.argsort(-gain[:, 1]), 1]
    assert_allclose(curve.gain, np.append(0.0, np.cumsum(ranked)) / 50)
    assert_allclose(curve.shares[:, 1], np.arange(51) / 50)
    share = np.arange(1, 51) / 50  # TOC(q) = mean of the first q less the mean of all (Yadlowsky and others 2025)
    assert_allclose(curve.targeting().gain[1:], np.cumsum(ranked) / np.arange(1, 51) - ranked.mean(), atol=1e-12)
    assert_allclose(curve.area().estimate, np.trapezoid(np.append(0.0, np.cumsum(ranked)) / 50, np.append(0.0, share)))


def test_one_arm_is_the_qini_curve_of_scikit_uplift():
    """Where each value of the order has as large a share of treated rows, y_t - y_c n_t / n_c = share times n gain."""
    sklift = pytest.importorskip("sklift.metrics", exc_type=ImportError)
    rng = np.random.default_rng(0)
    value = np.repeat(rng.normal(size=40), 5)
    treated = np.tile([1, 1, 0, 0, 0], 40)
    bought = (rng.random(200) < 0.3 + 0.2 * treated * (value > 0)).astype(int)
    places, qini = sklift.qini_curve(bought, value, treated)
    scores = np.column_stack([np.zeros(200), bought * np.where(treated == 1, 1 / 0.4, -1 / 0.6)])
    gain, cost = np.column_stack([np.zeros(200), value]), np.tile([0.0, 1.0], (200, 1))
    curve, _ = budget_curve(gain, cost, scores, everyone=True, budgets=places / 200)
    assert_allclose(0.4 * 200 * curve.gain, qini, atol=1e-9)


def test_free_actions_are_taken_first_and_costs_count_over_the_default():
    gain = np.array([[0.0, 1.0, 3.0], [0.0, -1.0, 2.0]])
    ordered = upgrades(gain + 5.0, np.array([[2.0, 2.0, 3.0]] * 2))
    assert_array_equal(ordered.start, [1, 0])
    assert_array_equal(ordered.slope, [2.0, 2.0])
    assert_array_equal(actions_within(gain, np.array([[0.0, 0.0, 1.0]] * 2), 1.0)[0], [2, 0])


def test_rows_of_equal_slope_share_what_is_left_whatever_their_order():
    gain, cost, scores = problem(5, 40, 3, ties=True)
    order = np.random.default_rng(1).permutation(40)
    mine, _ = budget_curve(gain, cost, scores)
    yours, _ = budget_curve(gain[order], cost[order], scores[order])
    assert_allclose(mine.gain, yours.gain, atol=1e-12)
    assert_allclose(mine.se, yours.se, atol=1e-12)


def test_folds_meet_the_budget_by_themselves_and_are_averaged():
    gain, cost, scores = problem(6, 90, 3)
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 90)
    folds = [np.arange(0, 90, 3), np.setdiff1d(np.arange(90), np.arange(0, 90, 3))]
    budgets = np.linspace(0.0, 0.3, 5)
    whole, _ = budget_curve(gain, cost, scores, folds=folds, weights=weights, budgets=budgets)
    parts = [budget_curve(gain[f], cost[f], scores[f], weights=weights[f], budgets=budgets)[0].gain for f in folds]
    share = [weights[f].sum() / weights.sum() for f in folds]
    assert_allclose(whole.gain, share[0] * parts[0] + share[1] * parts[1])


def test_areas_and_differences_are_of_the_rows():
    gain, cost, scores = problem(7, 200, 3)
    curve, _ = budget_curve(gain, cost, scores)
    other, _ = budget_curve(scores, cost, scores)
    assert_allclose(curve.area().estimate, np.trapezoid(curve.gain, curve.spend))
    assert_allclose(np.diag(curve.covariance)[-1], np.var(curve.influence[:, -1], ddof=1) / 200, rtol=1e-9)
    between = other.compare(curve)
    assert isinstance(between, Curve)
    assert_allclose((curve - curve).gain, 0.0, atol=1e-15)
    budget = float(between.spend[50])
    assert_allclose(
        between.value_at(budget).estimate, other.value_at(budget).estimate - curve.value_at(budget).estimate
    )
    narrow, wide = (np.diff(curve.bands(level), axis=1)[-1, 0] for level in (0.5, 0.95))
    assert wide > narrow > 2 * 0.67 * curve.se[-1]


def test_marginal_gain_is_the_slope_and_the_price_that_of_the_last_place():
    """With rows of all slopes between 0 and 1 at unit cost, gain(b) = b - b^2 / 2, whose slope is 1 - b."""
    n = 4000
    gain = np.column_stack([np.zeros(n), (np.arange(n) + 0.5) / n])
    curve, _ = budget_curve(gain, np.tile([0.0, 1.0], (n, 1)), gain)
    at = curve.at(0.4)
    assert_allclose([at.gain.estimate, at.marginal.estimate, at.price], [0.32, 0.6, 0.6], atol=2e-3)
    assert_allclose(list(at.shares.values()), [0.6, 0.4], atol=1e-6)
    beyond = curve.at(3.0)
    assert_allclose([beyond.spend, beyond.price], [1.0, 0.0], rtol=1e-12)
    with pytest.raises(ValueError, match="per row"):
        curve.at(-1.0)


def sample(rng: np.random.Generator, n: int, count: int, *, estimated: bool) -> tuple[np.ndarray, ...]:
    """A log with known propensities, an order by a wrong model, doubly robust scores of outcomes and of costs."""
    x = rng.normal(size=(n, 2))
    effect = np.sin(np.outer(x[:, 0], np.arange(count))) + 0.2 * (np.arange(count) > 0)
    cost = np.exp(0.3 * x[:, [1]]) * np.arange(count)
    gain = effect + 0.3 * np.outer(np.cos(x[:, 1]), np.arange(count) > 0)
    rows, action = np.arange(n), rng.integers(count, size=n)
    scores = 0.5 * effect
    scores[rows, action] += count * (x[:, 0] + effect[rows, action] + rng.normal(size=n) - scores[rows, action])
    guess = cost * (1.2 + 0.2 * np.sin(x[:, [0]])) if estimated else cost
    paid = guess.copy()
    paid[rows, action] += count * (cost[rows, action] * rng.gamma(2.0, 0.5, n) - guess[rows, action]) * estimated
    return gain, guess, scores, paid, effect, cost


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("estimated", [False, True])
def test_errors_of_points_are_those_over_samples(count, estimated):
    """Known costs are met by every sample; estimated ones have an error, which the price turns into one of the gain."""
    rng = np.random.default_rng(11)
    gain, guess, _, _, effect, cost = sample(rng, 100_000, count, estimated=estimated)
    whole = follow(upgrades(gain, guess), cost)
    budgets = whole.spend[-1] * np.array([0.2, 0.5, 0.8])
    true, errors = whole.means(effect - effect[:, [0]], budgets), []
    for _ in range(150):
        gain, guess, scores, paid, _, _ = sample(rng, 300, count, estimated=estimated)
        curve, _ = budget_curve(gain, guess, scores, spent=paid, budgets=np.append(0.0, budgets))
        errors.append((curve.gain[1:] - true) / curve.se[1:])
    assert_allclose(np.std(errors, axis=0), 1.0, atol=0.2)
    assert_allclose(np.mean(errors, axis=0), 0.0, atol=0.3)


def test_a_budget_that_is_met_takes_the_luck_of_cheap_rows_out_of_the_error():
    """Outcomes are known and costs vary: the gain at a budget varies by s_i - m c_i, not by s_i."""
    rng = np.random.default_rng(12)

    def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, 2))
        return np.column_stack([np.zeros(n), 2.0 + 0.5 * x[:, 0]]), np.column_stack(
            [np.zeros(n), np.exp(0.7 * x[:, 1])]
        )

    gain, cost = rows(100_000)
    true, errors, ignored = follow(upgrades(gain, cost), cost).means(gain, np.array([0.3])), [], []
    for _ in range(200):
        gain, cost = rows(300)
        curve, paths = budget_curve(gain, cost, gain, budgets=np.array([0.0, 0.3]))
        errors.append((curve.gain[1] - true[0]) / curve.se[1])
        ignored.append((curve.gain[1] - true[0]) / (np.std(paths[0].rows(gain, curve.spend)[:, 1]) / np.sqrt(300)))
    assert 0.85 < np.std(errors) < 1.15
    assert np.std(ignored) < 0.8


def test_points_apart_tell_no_few_rows_apart():
    gain, cost, scores = problem(8, 150, 4)
    curve = budget_curve(gain, cost, scores)[0].apart(10)
    assert np.diff(curve.changed).min() >= 10
    assert len(curve.spend) <= 16
    assert curve.spend[-1] == budget_curve(gain, cost, scores)[0].spend[-1]
