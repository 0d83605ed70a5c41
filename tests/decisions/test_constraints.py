"""Bounds between groups: against every assignment of few rows, against a linear program, and on new rows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from gbpl.decisions.constraints import bounded_at_level, bounded_prices, capped_prices, gap_chance


def problem(seed: int, rows: int, groups: int, actions: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Gains over a default action, and the group of each row; every group has one."""
    rng = np.random.default_rng(seed)
    place = rng.permutation(np.concatenate([np.arange(groups), rng.integers(0, groups, rows - groups)]))
    default = int(rng.integers(0, actions))
    gain = rng.normal(size=(rows, actions)) + 0.5 * (place == 0)[:, None]
    return gain - gain[:, [default]], place, default


def shares(treated: np.ndarray, place: np.ndarray, groups: int) -> np.ndarray:
    return np.array([treated[place == g].mean() for g in range(groups)])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 9), st.integers(2, 3), st.integers(2, 3),
       st.sampled_from([0.0, 0.1, 0.25, 0.4, 1.0]))  # fmt: skip
def test_no_assignment_within_the_bound_gains_more(seed, rows, groups, actions, bound):
    gain, place, default = problem(seed, rows, groups, actions)
    found = bounded_prices(gain, place, bound, count=groups, default=default)
    action = found.priced(gain, place, default)
    assert_allclose(shares(action != default, place, groups), found.reached)
    assert found.gap <= bound + 1e-9
    best, over = -np.inf, np.delete(gain, default, axis=1).max(axis=1)
    for treated in map(np.array, product([False, True], repeat=rows)):
        if np.ptp(shares(treated, place, groups)) <= bound + 1e-9:
            best = max(best, float(over[treated].sum()))
    assert_allclose(gain[np.arange(rows), action].sum(), best, atol=1e-9)


def test_it_reaches_the_linear_program():
    """max sum_ia x_ia gain_ia with sum_a x_ia = 1 and t <= share_g <= t + bound: rows may be split there."""
    rows, groups, actions, bound = 300, 4, 3, 0.07
    gain, place, default = problem(3, rows, groups, actions)
    count = np.bincount(place)
    width = rows * actions + 1
    most = np.zeros((2 * groups, width))
    for row in range(rows):
        for action in range(actions):
            if action != default:
                most[place[row], row * actions + action] = 1.0 / count[place[row]]
    most[groups:], most[:groups, -1], most[groups:, -1] = -most[:groups], -1.0, 1.0
    one = np.zeros((rows, width))
    for row in range(rows):
        one[row, row * actions : (row + 1) * actions] = 1.0
    solved = linprog(
        -np.append(gain.ravel(), 0.0), A_ub=most, b_ub=np.r_[np.full(groups, bound), np.zeros(groups)], A_eq=one,
        b_eq=np.ones(rows), bounds=(0.0, 1.0), method="highs",
    )  # fmt: skip
    action = bounded_prices(gain, place, bound, count=groups, default=default).priced(gain, place, default)
    total = gain[np.arange(rows), action].sum()
    free = gain.max(axis=1).sum()
    assert total <= -solved.fun + 1e-6
    assert -solved.fun - total < 0.02 * (free + solved.fun) + 0.5  # but for a row of each group


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 9), st.sampled_from([0.0, 0.1, 0.3, 2.0]))
def test_no_prices_under_a_cap_gain_more(seed, rows, cap):
    """By every threshold of every group, which is what prices can do."""
    gain, place, default = problem(seed, rows, 2, 2)
    found = capped_prices(gain, place, cap, count=2, default=default)
    action, over = found.priced(gain, place, default), gain[:, 1 - default]
    for group in range(2):
        own = place == group
        reached = gain[own, action[own]].mean()
        assert_allclose(found.reached[group], reached, atol=1e-12)
        assert reached <= cap + 1e-9
        prefixes = [over[own & (over >= at)].sum() / own.sum() for at in over[own] if at > 0.0]
        assert_allclose(reached, max([0.0, *(one for one in prefixes if one <= cap + 1e-12)]), atol=1e-9)


def test_rows_of_equal_gain_stay_together_and_weights_count():
    gain = np.column_stack([np.zeros(6), [2.0, 2.0, 2.0, 1.0, -1.0, -1.0]])
    place = np.array([0, 0, 0, 1, 1, 1])
    found = bounded_prices(gain, place, 0.5, count=2)
    assert found.reached[0] in (0.0, 1.0)
    assert found.gap <= 0.5
    assert_allclose(found.reached, [1.0, 1.0])  # 6 + 1 - 2 is more than nobody, or one of the second group
    weights = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 8.0])
    found = bounded_prices(gain, place, 0.5, count=2, weights=weights)
    assert_allclose(found.reached, [0.0, 0.1])  # now the rows to be added lose too much


def test_nothing_changes_where_the_bound_holds_already():
    gain, place, default = problem(1, 200, 3, 3)
    found = bounded_prices(gain, place, 1.0, count=3, default=default)
    assert not found.prices.any()
    assert_allclose(found.reached, found.free)
    empty = bounded_prices(gain, place, 0.1, count=5, default=default)
    assert (empty.prices[3:] == 0.0).all()
    assert np.isnan(empty.reached[3:]).all()


@pytest.mark.parametrize("call", [bounded_prices, capped_prices])
def test_a_bound_below_zero_is_refused(call):
    with pytest.raises(ValueError, match=r"must be >= 0, got -0\.1"):
        call(np.zeros((3, 2)), np.zeros(3, int), -0.1, count=1)


def test_the_chance_of_a_gap_is_that_of_two_shares():
    """Two groups with errors N(0, v): P(|d + e| > bound) in closed form."""
    from scipy.stats import norm

    s, n = np.array([0.5, 0.4]), np.array([400.0, 900.0])
    near = (n * s + 2) / (n + 4)
    sd = np.sqrt(np.sum(1.12 * near * (1 - near) / (n + 4)))
    exact = norm.sf((0.15 - 0.1) / sd) + norm.cdf((-0.15 - 0.1) / sd)
    assert_allclose(gap_chance(s, n, 0.15, 0.12), exact, atol=0.02)


def test_shares_of_new_rows_keep_within_the_bound_at_its_level():
    """Scores of one distribution per group; a share of 5 % of samples may be beyond, a price without it always is."""
    beyond, without = [], []
    for seed in range(100):
        rng = np.random.default_rng([seed, 4])
        rows, new = rng.choice(3, 900, p=[0.5, 0.3, 0.2]), rng.choice(3, 10_000, p=[0.5, 0.3, 0.2])
        own, other = (np.column_stack([0.0 * at, rng.normal(0.4 * at - 0.4)]) for at in (rows, new))
        found = bounded_at_level(own, rows, 0.15, independent=np.bincount(rows).astype(float))
        assert found.chance <= 0.05
        assert found.gap <= 0.15
        beyond.append(np.ptp(shares(found.priced(other, new, 0), new, 3)) > 0.15)
        without.append(np.ptp(shares(other[:, 1] > 0, new, 3)) > 0.15)
    assert np.mean(beyond) <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 100)
    assert np.mean(without) == 1.0


def test_where_rows_are_too_few_nearly_all_or_none_are_treated():
    """Shares near a half are known worst: the gain is the largest of windows of shares that are known well enough."""
    gain, place, default = problem(5, 600, 3, 2)
    rows = np.bincount(place).astype(float)
    found = bounded_at_level(gain, place, 0.05, independent=rows, default=default)
    assert found.chance <= 0.05
    assert found.gap <= 0.05
    assert found.reached.max() < 0.15 or found.reached.min() > 0.85
    over, best = gain[:, 1 - default], -np.inf
    for share in np.linspace(0.0, 1.0, 101):  # the same share in every group
        cuts = [np.sort(over[place == g])[::-1] for g in range(3)]
        taken = [int(share * len(own)) for own in cuts]
        chance = gap_chance(np.array(taken) / rows, rows, 0.05)
        if chance <= 0.05:
            best = max(best, sum(own[:k].sum() for own, k in zip(cuts, taken, strict=True)))
    action = found.priced(gain, place, default)
    assert gain[np.arange(600), action].sum() >= best - 2.0  # but for a row of each group
