"""Pseudo-outcomes of logged data, restated row by row, and their conditional means by enumeration (section 7)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import rel_entr
from support.checks import enable_x64

from gbpl import Binary, FullVector
from gbpl.datasets import BinaryDesign, LoggedDesign, MultiActionDesign
from gbpl.feedback.pseudo_outcomes import clip_propensity, doubly_robust, ipw, of_logged_action
from gbpl.value.welfare import penalized_welfare

ROWS = 40
PROPERTY = settings(deadline=None, max_examples=100)


class Log(NamedTuple):
    outcome: np.ndarray
    action: np.ndarray
    propensity: np.ndarray  # of every action
    outcome_mean: np.ndarray

    @property
    def taken(self) -> np.ndarray:
        """Propensity of the action taken."""
        return np.array([self.propensity[i, a] for i, a in enumerate(self.action)])


def log_of_every_action(count: int, seed: int = 0) -> Log:
    """A log in which every action is taken, and an outcome model that is wrong."""
    rng = np.random.default_rng(seed)
    action = rng.permutation(np.arange(ROWS) % count)
    return Log(rng.normal(2.0, 1.0, ROWS), action, rng.dirichlet(np.ones(count), ROWS), rng.normal(size=(ROWS, count)))


# --- Clipped propensities ----------------------------------------------------------------------------------------


def raised_by_bisection(row: np.ndarray, clip: float) -> np.ndarray:
    """max(clip, c e), the common factor c found by halving: the sum grows with c.

    It solves both problems of Kullback-Leibler: with a multiplier m for the sum and one per bound, the derivative of
    sum e log(e / q) in q_a gives q_a = e_a / m where the bound is slack, that of sum q log(q / e) gives
    q_a = e_a exp(-1 - m). Either is a common multiple of e_a, and the sum settles the multiple.
    """
    low, high = 0.0, 2.0
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.maximum(clip, c * row).sum() < 1 else (low, c)
    return np.maximum(clip, c * row)


def divergences(e: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """KL(e || q) and KL(q || e), over the last axis."""
    return rel_entr(e, q).sum(-1), rel_entr(q, e).sum(-1)


@st.composite
def clippings(draw: st.DrawFn) -> tuple[np.ndarray, float, np.ndarray]:
    """A distribution, a clip level it can satisfy, and some other distribution that does."""
    count = draw(st.integers(2, 6))
    sizes = st.lists(st.floats(-12.0, 0.0), min_size=count, max_size=count).map(np.exp)  # shares of 1e-6 too
    e, other = draw(sizes), draw(sizes)
    clip = draw(st.floats(1e-4, 0.98)) / count
    return e / e.sum(), clip, clip + (1.0 - count * clip) * other / other.sum()


@pytest.mark.parametrize("clip", [0.0, 0.01, 0.1, 0.3, 0.49])
def test_two_actions_are_clipped_as_in_the_paper(clip: float) -> None:
    e1 = np.concatenate([[0.0, 1e-300, 1e-12, clip, 0.5, 1.0 - clip, 1.0], np.random.default_rng(0).random(200)])
    expected = [max(clip, min(1.0 - clip, e)) for e in e1]
    clipped = clip_propensity(np.column_stack([1.0 - e1, e1]), clip)
    assert_allclose(clipped[:, 1], expected, rtol=1e-15, atol=1e-300)
    assert_allclose(clipped[:, 0], [1.0 - e for e in expected], rtol=0, atol=1e-15)


def test_three_actions_by_hand() -> None:
    table = np.array(
        [
            [0.01, 0.39, 0.60],  # one is raised: the others share 0.9 as 39 to 60
            [0.02, 0.102, 0.878],  # 0.102 * 0.9 / 0.98 is below 0.1: the second pass raises it too
            [0.0, 0.0, 1.0],
            [0.1, 0.2, 0.7],  # on the bound
        ]
    )
    expected = [[0.1, 0.9 * 0.39 / 0.99, 0.9 * 0.60 / 0.99], [0.1, 0.1, 0.8], [0.1, 0.1, 0.8], [0.1, 0.2, 0.7]]
    assert_allclose(clip_propensity(table, 0.1), expected, rtol=1e-14)


@given(clippings())
@PROPERTY
def test_clipping_keeps_a_distribution_and_its_order(drawn: tuple[np.ndarray, float, np.ndarray]) -> None:
    e, clip, _ = drawn
    [clipped] = clip_propensity(e[None], clip)
    assert_allclose(clipped.sum(), 1.0, rtol=1e-14)
    assert (clipped >= clip).all()
    assert (np.diff(clipped[np.argsort(e, kind="stable")]) >= 0).all()
    assert (clipped[e >= clip] <= e[e >= clip] * (1 + 1e-15)).all()  # what was above pays for what was below


@given(clippings())
@PROPERTY
def test_clipping_is_nearest_in_both_directions_of_the_divergence(drawn: tuple[np.ndarray, float, np.ndarray]) -> None:
    e, clip, other = drawn
    [clipped] = clip_propensity(e[None], clip)
    assert_allclose(clipped, raised_by_bisection(e, clip), rtol=1e-10)
    for of_found, of_other in zip(divergences(e, clipped), divergences(e, other), strict=True):
        assert of_found <= of_other + 1e-12


@pytest.mark.parametrize("e", [(0.01, 0.39, 0.6), (0.02, 0.102, 0.878), (0.3, 0.001, 0.699), (0.2, 0.3, 0.5)])
def test_no_point_of_a_grid_and_no_solver_comes_nearer(e: tuple[float, ...]) -> None:
    row, clip = np.array(e), 0.1
    [clipped] = clip_propensity(row[None], clip)
    steps = np.arange(clip, 1.0 - 2 * clip + 1e-9, 0.002)
    first, second = (side.ravel() for side in np.meshgrid(steps, steps))
    grid = np.column_stack([first, second, 1.0 - first - second])
    grid = grid[grid[:, 2] >= clip]
    for direction in (0, 1):
        assert divergences(row, clipped)[direction] <= divergences(row, grid)[direction].min() + 1e-12
        solved = scipy.optimize.minimize(
            lambda q, direction=direction: divergences(row, q)[direction],
            np.full(3, 1 / 3),
            method="SLSQP",
            bounds=[(clip, 1.0)] * 3,
            constraints=[{"type": "eq", "fun": lambda q: q.sum() - 1}],
            options={"ftol": 1e-14},
        )
        assert_allclose(clipped, solved.x, atol=1e-5)


def test_an_impossible_action_is_raised_by_the_one_divergence_that_allows_it() -> None:
    row, other = np.array([0.0, 0.3, 0.7]), np.array([0.1, 0.25, 0.65])
    [clipped] = clip_propensity(row[None], 0.1)
    assert_allclose(clipped, [0.1, 0.27, 0.63], rtol=1e-14)
    assert divergences(row, clipped)[0] < divergences(row, other)[0]  # KL(e || q); KL(q || e) is infinite for every q
    assert np.isinf(divergences(row, clipped)[1])


@pytest.mark.parametrize("count", [2, 3, 7])
def test_clipped_once_is_clipped_and_other_rows_stay_as_they_are(count: int) -> None:
    table = np.random.default_rng(0).dirichlet(np.full(count, 1.5), 500)
    clip = 0.3 / count
    kept = table.copy()
    once = clip_propensity(table, clip)
    below = (table < clip).any(axis=1)
    assert 50 < below.sum() < 450
    assert_array_equal(once[~below], table[~below])
    assert_array_equal(clip_propensity(once, clip), once)
    assert_array_equal(table, kept)
    # a row's answer is its own, whatever the others need
    assert_array_equal(once, np.vstack([clip_propensity(row[None], clip) for row in table]))


def test_propensities_of_the_action_taken_alone_are_raised_alone() -> None:
    assert_array_equal(clip_propensity(np.array([0.001, 0.1, 0.4, 1.0]), 0.1), [0.1, 0.1, 0.4, 1.0])


# --- The formulas ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_ipw_row_by_row(count: int) -> None:
    log = log_of_every_action(count)
    scores = ipw(log.outcome, log.action, log.taken, count)
    for i in range(ROWS):
        for a in range(count):
            expected = (log.action[i] == a) * log.outcome[i] / log.propensity[i, a]  # eq. ipw-pseudo
            assert_allclose(scores[i, a], expected)


@pytest.mark.parametrize("count", [2, 3])
def test_doubly_robust_row_by_row(count: int) -> None:
    log = log_of_every_action(count)
    given_mean = log.outcome_mean.copy()
    scores = doubly_robust(log.outcome, log.action, log.taken, given_mean)
    for i in range(ROWS):
        for a in range(count):
            gamma = log.outcome_mean[i, a]
            expected = gamma + (log.action[i] == a) * (log.outcome[i] - gamma) / log.propensity[i, a]  # eq. dr-pseudo
            assert_allclose(scores[i, a], expected)
    assert_array_equal(given_mean, log.outcome_mean)
    assert scores is not given_mean


def test_binary_pseudo_differences() -> None:
    outcome, action, e, gamma = log = log_of_every_action(2)
    ipw_gap = Binary().target(ipw(outcome, action, log.taken, 2))
    dr_gap = Binary().target(doubly_robust(outcome, action, log.taken, gamma))
    for i in range(ROWS):
        one, zero = action[i] == 1, action[i] == 0
        expected = one * outcome[i] / e[i, 1] - zero * outcome[i] / e[i, 0]  # U~ of section 7.4
        assert_allclose(ipw_gap[i, 0], expected, rtol=1e-5)
        expected = (
            (gamma[i, 1] - gamma[i, 0])
            + one * (outcome[i] - gamma[i, 1]) / e[i, 1]
            - zero * (outcome[i] - gamma[i, 0]) / e[i, 0]
        )
        assert_allclose(dr_gap[i, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [2, 3])
def test_centered_ipw_is_doubly_robust_with_one_mean_for_all_actions(count: int) -> None:
    log = log_of_every_action(count)
    center = np.random.default_rng(1).normal(size=ROWS)
    scores = ipw(log.outcome, log.action, log.taken, count, center=center)
    common = np.column_stack([center] * count)
    assert_array_equal(scores, doubly_robust(log.outcome, log.action, log.taken, common))
    number = ipw(log.outcome, log.action, log.taken, count, center=1.5)
    assert_array_equal(number, ipw(log.outcome, log.action, log.taken, count, center=np.full(ROWS, 1.5)))
    plain = ipw(log.outcome, log.action, log.taken, count)
    assert_array_equal(ipw(log.outcome, log.action, log.taken, count, center=0.0), plain)
    for i in range(ROWS):
        for a in range(count):
            weight = (log.action[i] == a) / log.propensity[i, a]
            assert_allclose(scores[i, a], center[i] + weight * (log.outcome[i] - center[i]))


def test_of_logged_action_takes_one_entry_of_each_row() -> None:
    log = log_of_every_action(3)
    assert_array_equal(of_logged_action(log.propensity, log.action), log.taken)


# --- Conditional means, exactly ----------------------------------------------------------------------------------


class Point(NamedTuple):
    """Everything that can happen at one x: each action, and each of two outcomes of it."""

    outcome: np.ndarray
    action: np.ndarray
    probability: np.ndarray
    e: np.ndarray
    gamma: np.ndarray

    def mean(self, table: np.ndarray) -> np.ndarray:
        """Exact conditional mean of a pseudo-outcome, a row of `table` for each event."""
        return sum(p * row for p, row in zip(self.probability, table, strict=True))

    def taken(self, propensity: np.ndarray) -> np.ndarray:
        return propensity[self.action]


def point(count: int, seed: int) -> Point:
    rng = np.random.default_rng(seed)
    e, high, chance = rng.dirichlet(np.full(count, 2.0)), rng.normal(2.0, 1.0, count), rng.uniform(0.2, 0.8, count)
    low = high - rng.exponential(2.0, count)
    events = [(y, a, e[a] * p) for a in range(count) for y, p in ((low[a], 1 - chance[a]), (high[a], chance[a]))]
    outcome, action, probability = (np.array(part) for part in zip(*events, strict=True))
    return Point(outcome, action, probability, e, chance * high + (1 - chance) * low)


points = pytest.mark.parametrize(("count", "seed"), [(2, 0), (2, 1), (3, 2), (3, 3), (5, 4)])


def wrong_models(at: Point, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A propensity and an outcome mean that are not the point's."""
    rng = np.random.default_rng(100 + seed)
    return rng.dirichlet(np.full(len(at.e), 2.0)), at.gamma + rng.normal(size=len(at.e))


def dr_mean(at: Point, e: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return at.mean(doubly_robust(at.outcome, at.action, at.taken(e), np.tile(gamma, (len(at.action), 1))))


@points
def test_dr_has_the_right_conditional_mean_if_either_model_is_right(count: int, seed: int) -> None:
    at = point(count, seed)
    e, gamma = wrong_models(at, seed)
    assert_allclose(at.probability.sum(), 1.0)
    assert_allclose(dr_mean(at, at.e, at.gamma), at.gamma)
    assert_allclose(dr_mean(at, at.e, gamma), at.gamma)  # proposition dr-target
    assert_allclose(dr_mean(at, e, at.gamma), at.gamma)


@points
def test_dr_with_both_models_wrong_has_the_product_of_their_errors_as_bias(count: int, seed: int) -> None:
    at = point(count, seed)
    e, gamma = wrong_models(at, seed)
    bias = (1.0 - at.e / e) * (at.gamma - gamma)
    assert np.abs(bias).min() > 1e-3
    assert_allclose(at.gamma - dr_mean(at, e, gamma), bias)


@points
def test_ipw_has_the_right_conditional_mean_if_the_propensity_is_right(count: int, seed: int) -> None:
    at = point(count, seed)
    e, _ = wrong_models(at, seed)
    assert_allclose(at.mean(ipw(at.outcome, at.action, at.taken(at.e), count)), at.gamma)  # proposition dr-target
    assert_allclose(at.mean(ipw(at.outcome, at.action, at.taken(e), count)), at.gamma * at.e / e)


@points
def test_any_center_leaves_the_mean_gaps_between_actions(count: int, seed: int) -> None:
    at = point(count, seed)
    for center in (-3.0, 0.4, 10.0):
        mean = at.mean(ipw(at.outcome, at.action, at.taken(at.e), count, center=center))
        assert_allclose(mean - mean[0], at.gamma - at.gamma[0])
        assert_allclose(mean, at.gamma)


@points
def test_a_good_center_takes_out_variance(count: int, seed: int) -> None:
    at = point(count, seed)

    def variance(center: float) -> float:
        table = ipw(at.outcome + 20.0, at.action, at.taken(at.e), count, center=center)
        return float(np.sum(at.mean(table**2) - at.mean(table) ** 2))

    assert variance(20.0 + at.gamma.mean()) < 0.2 * variance(0.0)


# --- Conditional means, by simulation ----------------------------------------------------------------------------

DESIGNS = {2: LoggedDesign(BinaryDesign("DGP2")), 3: LoggedDesign(MultiActionDesign("DGP1", n_actions=3))}


@pytest.mark.parametrize("count", [2, 3])
def test_double_robustness_in_the_papers_designs(count: int) -> None:
    seen = DESIGNS[count].sample(40_000, seed=3)
    wrong_e, wrong_gamma = np.roll(seen.propensity, 1, axis=1), np.zeros_like(seen.outcome_mean) - 1.0

    def errors(e: np.ndarray, gamma: np.ndarray) -> np.ndarray:
        """Mean error of each action's pseudo-outcome, in standard errors."""
        table = doubly_robust(seen.outcome, seen.action, of_logged_action(e, seen.action), gamma) - seen.outcome_mean
        return np.abs(table.mean(axis=0)) / (table.std(axis=0) / np.sqrt(len(table)))

    assert (errors(seen.propensity, seen.outcome_mean) < 3.5).all()
    assert (errors(seen.propensity, wrong_gamma) < 3.5).all()
    assert (errors(wrong_e, seen.outcome_mean) < 3.5).all()
    assert (errors(wrong_e, wrong_gamma) > 5.0).all()


@pytest.mark.parametrize("count", [2, 3])
def test_ipw_in_the_papers_designs(count: int) -> None:
    seen = DESIGNS[count].sample(40_000, seed=4)
    for center in (0.0, seen.outcome_mean.mean(axis=1)):
        taken = of_logged_action(seen.propensity, seen.action)
        error = ipw(seen.outcome, seen.action, taken, count, center=center) - seen.outcome_mean
        assert (np.abs(error.mean(axis=0)) < 3.5 * error.std(axis=0) / np.sqrt(len(error))).all()


# --- Equivalence with penalized welfare --------------------------------------------------------------------------


def pseudo_tables(count: int) -> dict[str, np.ndarray]:
    log = log_of_every_action(count)
    clipped = of_logged_action(clip_propensity(log.propensity, 0.05), log.action)
    return {
        "ipw": ipw(log.outcome, log.action, log.taken, count),
        "clipped ipw": ipw(log.outcome, log.action, clipped, count),
        "dr": doubly_robust(log.outcome, log.action, log.taken, log.outcome_mean),
        "clipped dr": doubly_robust(log.outcome, log.action, clipped, log.outcome_mean),
    }


def some_policies(count: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    return np.concatenate([rng.dirichlet(np.full(count, size), (3, ROWS)) for size in (0.1, 1.0, 10.0)])


@pytest.mark.parametrize("name", ["ipw", "clipped ipw", "dr", "clipped dr"])
@pytest.mark.parametrize("zeta", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("count", [2, 3])
def test_loss_plus_penalized_pseudo_welfare_is_constant_in_the_policy(count: int, zeta: float, name: str) -> None:
    table = pseudo_tables(count)[name]
    constant = np.sum(table**2) / (2 * zeta)  # all that is left of the squares: it has no theta in it
    with enable_x64(True):
        full = FullVector(count, centered=False)
        for policy in some_policies(count):
            # theorem ipw-equivalence: loss = constant - n * criterion
            loss = sum(
                0.5 * (table[i, a] / zeta**0.5 - zeta**0.5 * policy[i, a]) ** 2
                for i in range(ROWS)
                for a in range(count)
            )
            criterion = np.sum(policy * table) / ROWS - zeta / 2 * np.sum(policy**2) / ROWS
            assert_allclose(loss + ROWS * criterion, constant)
            assert_allclose(np.sum(full.loss(policy, full.target(table), zeta)), loss)
            assert_allclose(penalized_welfare(policy, table, zeta=zeta, surrogate=full), criterion)


@pytest.mark.parametrize("name", ["ipw", "clipped ipw", "dr", "clipped dr"])
def test_binary_loss_plus_twice_the_penalized_pseudo_welfare_is_constant(name: str) -> None:
    table, zeta = pseudo_tables(2)[name], 0.7
    gap = table[:, 1] - table[:, 0]
    constant = np.sum(gap**2) / (2 * zeta) + np.sum(table)
    with enable_x64(True):
        for policy in some_policies(2):
            # appendix, proof for pseudo-differences: the binary identity holds for any U~
            loss = sum(0.5 * (gap[i] / zeta**0.5 - zeta**0.5 * (2 * policy[i, 1] - 1)) ** 2 for i in range(ROWS))
            criterion = penalized_welfare(policy, table, zeta=zeta, surrogate=Binary())
            assert_allclose(loss + 2 * ROWS * criterion, constant)
            scores = Binary().scores_of_policy(policy)
            assert_allclose(np.sum(Binary().loss(scores, Binary().target(table), zeta)), loss)
