"""What folds that decide each other add to the error of a cross-fitted value: the formula, and a simulation."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from gbpl.value.dependence import DRAWS, fold_dependence
from gbpl.value.estimate import Value

ROWS = 400


def one_hot(scores: np.ndarray, _: slice) -> np.ndarray:
    """The rule that takes the largest score."""
    return np.eye(scores.shape[-1])[scores.argmax(axis=-1)]


def of_two(gap: np.ndarray) -> np.ndarray:
    """Scores of two actions, with this difference."""
    return np.column_stack([-gap, gap]) / 2.0


def shrunk(gap: np.ndarray, t: float) -> np.ndarray:
    """As large as what is left of the mean square once the variance over samples is taken off."""
    return gap * np.sqrt(max(0.0, 1.0 - t**2 / np.mean(gap**2)))


# -- two actions: phi(f / t) |Y(1) - Y(0)| ----------------------------------------------------------------


@pytest.mark.parametrize("t", [0.2, 0.7, 2.0])
def test_of_two_actions_it_is_the_normal_density_at_the_score(t: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbpl.value.dependence.DRAWS", 20_000)
    rng = np.random.default_rng(0)
    gap, outcomes = rng.normal(size=60), 5.0 + rng.normal(size=(60, 2))
    scores = of_two(gap) + rng.normal(size=(60, 1))  # a constant of the row decides nothing
    covariance = t**2 / 4.0 * np.array([[1.0, -1.0], [-1.0, 1.0]])  # of -f/2 and f/2
    v = fold_dependence(scores, covariance, outcomes, one_hot)
    assert_allclose(v.sum(axis=1), 0.0, atol=1e-12)  # the sum of the two scores never varies
    expected = norm.pdf(shrunk(gap, t) / t) * np.abs(outcomes[:, 1] - outcomes[:, 0])
    assert_allclose(np.linalg.norm(v, axis=1), expected, atol=0.03)


def test_what_is_added_where_there_is_nothing_to_find_is_a_third_of_the_variance() -> None:
    """E phi(0)^2 U^2 = E U^2 / (2 pi) against Var(1{f > 0} U) = E U^2 / 2."""
    rng = np.random.default_rng(1)
    gap, u = rng.normal(size=4_000), rng.normal(size=4_000)
    outcomes = np.column_stack([np.zeros(4_000), u])
    v = fold_dependence(of_two(gap), 0.25 * np.array([[1.0, -1.0], [-1.0, 1.0]]), outcomes, one_hot)
    added = np.sum(v**2) / np.sum((np.where(gap > 0, u, 0.0)) ** 2)
    assert added == pytest.approx(1.0 / np.pi, rel=0.1)


def test_nothing_is_added_where_the_decision_is_clear_or_never_varies() -> None:
    gap = np.tile([-3.0, 3.0], 50)
    outcomes = np.random.default_rng(2).normal(size=(100, 2))
    clear = fold_dependence(of_two(gap), 0.01 * np.array([[1.0, -1.0], [-1.0, 1.0]]), outcomes, one_hot)
    assert_allclose(clear, 0.0, atol=1e-12)
    assert_array_equal(fold_dependence(of_two(gap), np.zeros((2, 2)), outcomes, one_hot), np.zeros((100, 2)))
    assert_array_equal(fold_dependence(0.0 * of_two(gap), np.eye(2), outcomes, one_hot), np.zeros((100, 2)))


def test_a_policy_that_is_linear_in_its_scores_moves_by_its_slope() -> None:
    """delta = 1/K + f / unit: by Stein, v_i = T^{1/2} Y_i / unit, whatever the score."""
    rng = np.random.default_rng(3)
    scores, outcomes, root = rng.normal(size=(ROWS, 3)), rng.normal(size=(ROWS, 3)), rng.normal(size=(3, 3))
    root -= root.mean(axis=0)
    covariance, unit = root @ root.T, rng.uniform(1.0, 2.0, ROWS)

    def linear(moved: np.ndarray, rows: slice) -> np.ndarray:
        return 1.0 / 3.0 + moved / unit[rows, None]

    v = fold_dependence(scores, covariance, outcomes, linear)
    centred = outcomes - outcomes.mean(axis=1, keepdims=True)
    expected = np.einsum("ia,ab,ib->i", centred, covariance, centred) / unit**2
    assert_allclose(np.sum(v**2, axis=1), expected, rtol=0.5)  # row by row, by 256 draws
    assert np.sum(v**2) == pytest.approx(expected.sum(), rel=4.0 / np.sqrt(DRAWS))


def test_rows_do_not_depend_on_the_block_they_are_in(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    given = rng.normal(size=(50, 3)), np.cov(rng.normal(size=(3, 9))), rng.normal(size=(50, 3)), one_hot
    whole = fold_dependence(*given)
    monkeypatch.setattr("gbpl.value.dependence.BLOCK", 7)
    assert_allclose(fold_dependence(*given), whole, atol=1e-15)


# -- a simulation -----------------------------------------------------------------------------------------


def cross_fitted(rng: np.random.Generator, signal: float, n: int = 120, p: int = 6, folds: int = 5) -> tuple:
    """A ridge regression of gaps decides each fold: value of its rows, its error with and without, and the truth.

    Gaps are signal x_0 plus noise; the truth is that of the decisions of these fits on new rows, averaged over folds.
    """
    x = rng.normal(size=(n, p))
    u = signal * x[:, 0] + rng.normal(size=n)
    fold = np.arange(n) % folds
    slopes = []
    for k in range(folds):
        known, gaps = x[fold != k], u[fold != k]
        slopes.append(np.linalg.solve(known.T @ known + np.eye(p), known.T @ gaps))
    slopes = np.array(slopes)
    f = np.sum(x * slopes[fold], axis=1)
    outcomes = np.column_stack([np.zeros(n), u])
    psi = np.where(f > 0, u, 0.0)
    each = x @ slopes.T
    t2 = np.mean((each - each.mean(axis=1, keepdims=True)) ** 2) * (folds - 1)  # the jackknife over folds
    v = fold_dependence(of_two(f), t2 / 4.0 * np.array([[1.0, -1.0], [-1.0, 1.0]]), outcomes, one_hot)
    # E[1{x'b > 0} signal x_0] = signal b_0 / (|b| sqrt(2 pi))
    truth = signal * np.mean(slopes[:, 0] / np.linalg.norm(slopes, axis=1)) / np.sqrt(2.0 * np.pi)
    plain = Value(psi, "mean")
    return plain.estimate - truth, plain.se, Value(psi, "mean", dependence=v).se


def standardised(signal: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    off, plain, counted = np.array([cross_fitted(rng, signal) for _ in range(count)]).T
    return off / plain, off / counted


def test_where_there_is_nothing_to_find_errors_are_as_large_as_they_say() -> None:
    """z has mean zero, and standard deviation one with the dependence of folds, about sqrt(1 + 1/pi) without."""
    plain, counted = standardised(0.0, 1_000)
    error = 1.0 / np.sqrt(2_000)
    assert abs(counted.mean()) < 3.0 / np.sqrt(1_000)
    assert plain.std() > 1.0 + 3.0 * error
    assert plain.std() == pytest.approx(np.sqrt(1.0 + 1.0 / np.pi), abs=3.0 * error)
    assert counted.std() == pytest.approx(1.0, abs=3.0 * error)


def test_where_much_is_found_nothing_changes() -> None:
    plain, counted = standardised(2.0, 300)
    assert_allclose(counted, plain, rtol=0.06)
    assert counted.std() == pytest.approx(1.0, abs=4.0 / np.sqrt(600))
