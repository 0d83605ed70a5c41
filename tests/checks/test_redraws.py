"""Randomization tests: exact where the propensities are right, whatever the features are."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import kstest

from gbpl import LoggedFeedback
from gbpl.checks.placebo import placebo_of_full, placebo_of_log
from gbpl.checks.redraws import Redrawn, basis_of, redraw
from gbpl.feedback.full import FullFeedback


def test_the_basis_is_bounded_and_unmoved_by_outliers() -> None:
    x = np.array([[1.0, 5.0], [2.0, 5.0], [1e9, -3.0], [4.0, 0.0]])
    basis = basis_of(x)
    assert np.abs(basis.values).max() <= 2.0
    assert basis.columns == [(), (0,), (1,), (0,), (0, 1), (1,)]
    assert_allclose(basis.values[:, 1], (np.array([1, 2, 4, 3]) - 2.5) / 1.5)


def test_sums_and_their_errors_are_those_of_independent_coins() -> None:
    """All 2^5 assignments with their probabilities: mean 0 and variance sum e (1 - e) m^2 (randomization)."""
    rng = np.random.default_rng(0)
    chance, moments = rng.uniform(0.2, 0.8, 5), rng.normal(size=(5, 2))
    table = np.column_stack([1.0 - chance, chance])
    each = np.array(list(product([0, 1], repeat=5)))
    weight = np.prod(np.where(each == 1, chance, 1.0 - chance), axis=1)
    z = np.array([redraw(action, table, moments, draws=1, seed=0).z[0] for action in each])
    assert_allclose(weight @ z, 0.0, atol=1e-12)
    assert_allclose(weight @ z**2, 1.0)


def test_redraws_have_the_exact_distribution_of_a_rare_action() -> None:
    """20 rows with e = 0.02: P(at least 2 taken) = 1 - 0.98^20 - 20 0.02 0.98^19, where the normal law says 1e-4."""
    table = np.tile([0.98, 0.02], (20, 1))
    action = np.zeros(20, int)
    action[:2] = 1
    found = redraw(action, table, np.ones((20, 1)), draws=20_000, seed=1)
    exact = 1.0 - 0.98**20 - 20 * 0.02 * 0.98**19
    assert found.p_value() == pytest.approx(exact, abs=4 * np.sqrt(exact / 20_000))


def test_the_table_counts_as_one_of_the_redraws() -> None:
    """p = (1 + draws at least as large) / (1 + draws) (Phipson and Smyth 2010)."""
    found = Redrawn(np.array([[2.0, -3.0]]), np.array([1.0, 3.0, 2.5, 4.0]))
    assert found.p_value() == 3 / 5
    assert found.p_value(5.0) == 1 / 5


def test_groups_of_one_action_are_drawn_together() -> None:
    """With k rows per group the sum of a group's rows has k times their standard deviation: largest z grows by it."""
    groups = np.repeat(np.arange(100), 9)
    action = np.repeat(np.random.default_rng(0).integers(0, 2, 100), 9)
    table = np.full((900, 2), 0.5)
    alone = redraw(action, table, np.ones((900, 1)), draws=2000, seed=0).largest
    together = redraw(action, table, np.ones((900, 1)), draws=2000, seed=0, groups=groups).largest
    assert np.median(together) / np.median(alone) == pytest.approx(3.0, rel=0.1)


def null_log(seed: int, kind: str) -> tuple[LoggedFeedback, np.ndarray]:
    """Outcomes that depend on the features and not on the action."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 2))
    chance = 1.0 / (1.0 + np.exp(-x[:, 0])) if kind == "varying" else np.full(120, 0.3)
    action = (rng.random(120) < chance).astype(int)
    y = x[:, 0] + x[:, 1] ** 2 + rng.standard_t(2.0, 120)
    table = np.column_stack([1.0 - chance, chance])
    return LoggedFeedback.of(x, y, action, propensity=table, actions=[0, 1]), table


@pytest.mark.parametrize("kind", ["constant", "varying"])
def test_placebo_p_values_are_uniform_where_actions_do_nothing(kind: str) -> None:
    values = [placebo_of_log(*null_log(seed, kind), draws=99, seed=seed).p_value() for seed in range(200)]
    assert kstest(values, "uniform").pvalue > 0.01
    assert np.mean(np.array(values) <= 0.1) == pytest.approx(0.1, abs=0.06)


@pytest.mark.parametrize("count", [2, 3])
def test_placebo_p_values_are_uniform_with_full_feedback(count: int) -> None:
    values = []
    for seed in range(120):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(60, 2))
        feedback = FullFeedback.of(x, x[:, :1] + rng.standard_t(2.0, (60, count)))
        values.append(placebo_of_full(feedback, draws=49, seed=seed).p_value())
    assert kstest(values, "uniform").pvalue > 0.01
