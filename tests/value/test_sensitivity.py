"""Bounds under hidden confounding: against linear programmes over everything the model allows, on exact laws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.stats import norm

from gbpl.feedback.pseudo_outcomes import doubly_robust
from gbpl.value.confounding import Curves, LogBounds, TwoValues, check_gamma, excess
from gbpl.value.estimate import Value, off_policy_value
from gbpl.value.sensitivity import breakdown_of, row_breakdown, sensitivity_of

GAMMAS = (1.0, 1.3, 2.0, 4.0)
every_gamma = pytest.mark.parametrize("gamma", GAMMAS)


class Law(NamedTuple):
    """A discrete law at one x: propensities, and for each action the atoms of the outcome and their probabilities."""

    propensity: np.ndarray
    atoms: list[np.ndarray]
    chances: list[np.ndarray]

    @property
    def mean(self) -> np.ndarray:
        return np.array([y @ f for y, f in zip(self.atoms, self.chances, strict=True)])


def random_law(count: int, seed: int, sizes: tuple[int, ...] = (5, 3, 6, 4)) -> Law:
    rng = np.random.default_rng(seed)
    sizes = sizes[:count]
    return Law(
        0.1 + (1 - 0.1 * count) * rng.dirichlet(np.ones(count)),
        [np.sort(rng.normal(size=m) * 2) for m in sizes],
        [rng.dirichlet(np.ones(m)) for m in sizes],
    )


def curves_of(law: Law, mean: np.ndarray) -> Curves:
    """Cuts at all atoms, with exact tails, for the rows of `exact_log`."""
    rows = sum(map(len, law.atoms))
    longest = max(map(len, law.atoms))
    cuts = np.stack([np.resize(y, longest) - m for y, m in zip(law.atoms, mean, strict=True)])
    shortfall = np.stack(
        [
            np.maximum(t[:, None] - (y - m), 0.0) @ f
            for t, y, f, m in zip(cuts, law.atoms, law.chances, mean, strict=True)
        ]
    )
    return Curves(np.tile(mean, (rows, 1)), cuts, np.tile(shortfall, (rows, 1, 1)), np.tile(law.mean - mean, (rows, 1)))


def exact_log(
    law: Law, shape: Any, *, mean: np.ndarray | None = None, propensity: np.ndarray | None = None
) -> LogBounds:
    """One row per action and atom, weighted by its probability: weighted means are expectations."""
    e = law.propensity if propensity is None else propensity
    mean = law.mean if mean is None else mean
    action = np.concatenate([np.full(len(y), a) for a, y in enumerate(law.atoms)])
    outcome = np.concatenate(law.atoms)
    weights = np.concatenate([law.propensity[a] * f for a, f in enumerate(law.chances)])
    table = np.tile(mean, (len(action), 1))
    return LogBounds(
        outcome=outcome, action=action, propensity=e[action], others=np.tile(1 - e, (len(action), 1)),
        robust=doubly_robust(outcome, action, e[action], table), mean=table, shape=shape, weights=weights,
    )  # fmt: skip


def programme(law: Law, action: int, gamma: float, sign: float) -> float:
    """The least (or with sign -1 the greatest) E[Y(a)] by its definition.

    Unknown are q_j = P(Y(a) = y_j, A != a), those who did not take a. With U = Y(a) the odds of A = a at y_j are
    e f_j / q_j, within a factor Gamma of e / (1 - e).
    """
    e, y, f = law.propensity[action], law.atoms[action], law.chances[action]
    done = linprog(
        sign * y, A_eq=np.ones((1, len(y))), b_eq=[1 - e],
        bounds=[(fj * (1 - e) / gamma, fj * (1 - e) * gamma) for fj in f],
    )  # fmt: skip
    return float(e * f @ y + sign * done.fun)


def joint_programme(law: Law, gamma: float) -> float:
    """The least E[Y(1) - Y(0)] over all joint laws of (Y(0), Y(1), A) that give what is seen, U = (Y(0), Y(1))."""
    (y0, y1), (f0, f1), e = law.atoms, law.chances, law.propensity[1]
    m, k = len(y0), len(y1)
    gap = np.broadcast_to(y1[None, :] - y0[:, None], (m, k)).ravel()
    margins, seen = [], []
    for j in range(m):  # P(Y(0) = y0_j, A = 0)
        row = np.zeros((2, m, k))
        row[0, j] = 1
        margins.append(row.ravel())
        seen.append((1 - e) * f0[j])
    for j in range(k):
        row = np.zeros((2, m, k))
        row[1, :, j] = 1
        margins.append(row.ravel())
        seen.append(e * f1[j])
    odds, eye = e / (1 - e), np.eye(m * k)
    ratio = np.vstack([np.hstack([-gamma * odds * eye, eye]), np.hstack([odds / gamma * eye, -eye])])
    done = linprog(np.r_[gap, gap], A_ub=ratio, b_ub=np.zeros(2 * m * k), A_eq=np.array(margins), b_eq=seen)
    return float(done.fun)


@every_gamma
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("count", [2, 4])
def test_bounds_of_each_action_are_those_of_the_linear_programme(gamma: float, seed: int, count: int) -> None:
    law = random_law(count, seed)
    bounds = exact_log(law, curves_of(law, law.mean))
    for a, policy in enumerate(np.eye(count)):
        for upper, sign in ((False, 1.0), (True, -1.0)):
            assert_allclose(
                bounds.value(policy[None], gamma, upper=upper).estimate, programme(law, a, gamma, sign), atol=1e-9
            )


@every_gamma
@pytest.mark.parametrize("seed", range(3))
def test_gain_of_two_actions_is_sharp_over_joint_laws(gamma: float, seed: int) -> None:
    law = random_law(2, seed)
    bounds = exact_log(law, curves_of(law, law.mean))
    ours = bounds.gain(np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]]), gamma, upper=False)
    assert_allclose(ours.estimate, joint_programme(law, gamma), atol=1e-8)


@dataclass
class At:
    """A number q that is not the quantile, with the mean of H(Y, q) - Y that belongs to it, or another."""

    law: Law
    q: float
    wrong: float = 0.0

    def worst(self, gamma: float, *, upper: bool) -> tuple[np.ndarray, np.ndarray]:
        rows = sum(map(len, self.law.atoms))
        shift = [
            f @ excess(y - self.q, gamma, upper=upper) for y, f in zip(self.law.atoms, self.law.chances, strict=True)
        ]
        return np.full((rows, len(shift)), self.q), np.tile(np.array(shift) + self.wrong, (rows, 1))


@pytest.mark.parametrize("q", [-3.0, 0.0, 0.7, 5.0])
@pytest.mark.parametrize("wrong", ["models", "propensity"])
def test_a_wrong_quantile_is_valid_with_one_right_model(q: float, wrong: str) -> None:
    law, gamma = random_law(2, 1), 2.0
    if wrong == "models":  # both the mean and the tails
        bounds = exact_log(law, At(law, q, wrong=0.8), mean=law.mean - 1.0)
    else:
        bounds = exact_log(law, At(law, q), propensity=np.array([0.35, 0.65]))
    for a, policy in enumerate(np.eye(2)):
        low = bounds.value(policy[None], gamma, upper=False).estimate
        high = bounds.value(policy[None], gamma, upper=True).estimate
        assert low <= programme(law, a, gamma, 1.0) + 1e-9
        assert high >= programme(law, a, gamma, -1.0) - 1e-9
        if q in (-3.0, 5.0):
            assert low < programme(law, a, gamma, 1.0) - 0.01


@every_gamma
@pytest.mark.parametrize("p", [0.0, 0.05, 0.4, 0.9, 1.0])
def test_two_values_have_the_closed_form(gamma: float, p: float) -> None:
    _, low = TwoValues(np.array([[p]]), 0.0, 1.0).worst(gamma, upper=False)
    _, high = TwoValues(np.array([[p]]), 0.0, 1.0).worst(gamma, upper=True)
    assert_allclose(p + low, max(p / gamma, 1 - gamma * (1 - p)), atol=1e-12)
    assert_allclose(p + high, min(p * gamma, 1 - (1 - p) / gamma), atol=1e-12)
    shifted = TwoValues(np.array([[3.0 + 2.0 * p]]), 3.0, 5.0).worst(gamma, upper=False)
    assert_allclose(shifted[1], 2.0 * low, atol=1e-12)


def test_normal_outcomes_have_the_tail_mean_of_the_textbook() -> None:
    gamma, t = 2.5, np.linspace(-4, 4, 4001)
    shortfall = t * norm.cdf(t) + norm.pdf(t)
    shape = Curves(np.array([[1.0]]), t[None], shortfall[None, None], np.array([[0.0]]))
    cut, shift = shape.worst(gamma, upper=False)
    order = 1 / (1 + gamma)
    assert_allclose(cut, 1.0 + norm.ppf(order), atol=2e-3)
    tail_mean = -norm.pdf(norm.ppf(order)) / order
    assert_allclose(shift, (1 - 1 / gamma) * tail_mean, atol=1e-5)
    assert_allclose(shape.worst(gamma, upper=True)[1], -shift, atol=1e-5)


def random_bounds(count: int = 3, n: int = 80, seed: int = 0) -> tuple[LogBounds, np.ndarray, np.ndarray, np.ndarray]:
    """A log with costs, weights and groups, and two rules."""
    rng = np.random.default_rng(seed)
    e = 0.1 + (1 - 0.1 * count) * rng.dirichlet(np.ones(count), n)
    action = np.array([rng.choice(count, p=row) for row in e])
    mean, outcome = rng.normal(size=(n, count)), rng.normal(size=n)
    cuts = np.tile(np.linspace(-2, 2, 9), (count, 1))
    spread = rng.uniform(0.5, 2.0, (n, count, 1))
    shortfall = spread * (cuts / spread * norm.cdf(cuts / spread) + norm.pdf(cuts / spread))
    own = e[np.arange(n), action]
    bounds = LogBounds(
        outcome=outcome, action=action, propensity=own, others=1 - e,
        robust=doubly_robust(outcome, action, own, mean), mean=mean,
        shape=Curves(mean, cuts, shortfall, np.zeros((n, count))), cost=rng.uniform(size=(n, count)),
        weights=rng.uniform(0.5, 2.0, n), groups=np.arange(n) % 9,
    )  # fmt: skip
    policy, other = (np.eye(count)[rng.integers(0, count, n)] for _ in range(2))
    return bounds, policy, other, mean


def test_gamma_of_one_is_the_doubly_robust_value_to_the_last_bit() -> None:
    bounds, policy, other, mean = random_bounds()
    mixed = np.random.default_rng(3).dirichlet(np.ones(3), len(policy))

    def today(table: np.ndarray) -> Value:
        return off_policy_value(
            table, bounds.outcome, bounds.action, propensity=bounds.propensity, outcome_mean=mean, cost=bounds.cost,
            weights=bounds.weights, groups=bounds.groups,
        )  # fmt: skip

    for upper in (False, True):
        for table in (policy, mixed):
            assert_array_equal(bounds.value(table, 1.0, upper=upper).influence, today(table).influence)
        gain = bounds.gain(policy, other, 1.0, upper=upper)
        assert_array_equal(gain.influence, (today(policy) - today(other)).influence)
        assert gain.se == (today(policy) - today(other)).se


def test_bounds_widen_with_gamma() -> None:
    bounds, _, _, _ = random_bounds()
    tables = {upper: [bounds.conditional(g, upper=upper) for g in (1.0, 1.1, 1.5, 2.0, 5.0)] for upper in (False, True)}
    for before, after in zip(tables[False], tables[False][1:], strict=False):
        assert np.all(after < before)
    for before, after in zip(tables[True], tables[True][1:], strict=False):
        assert np.all(after > before)


def test_gain_is_exactly_zero_where_both_do_the_same() -> None:
    bounds, policy, other, _ = random_bounds()
    same = np.all(policy == other, axis=1)
    assert 0 < same.sum() < len(same)
    gain = bounds.gain(policy, other, 3.0, upper=False)
    assert np.all(gain.influence[same] == 0.0)
    assert bounds.gain(policy, policy, 3.0, upper=False).estimate == 0.0
    rows = bounds.value(policy, 3.0, upper=False).influence - bounds.value(other, 3.0, upper=True).influence
    assert_allclose(gain.influence[~same], rows[~same])


def test_the_logs_own_value_is_not_bounded() -> None:
    bounds, policy, _, _ = random_bounds()
    logged = Value(bounds.outcome, "mean", bounds.weights, bounds.groups)
    gain = bounds.gain(policy, logged, 2.0, upper=False)
    assert_allclose(gain.estimate, bounds.value(policy, 2.0, upper=False).estimate - logged.estimate)


def test_models_alone_are_what_scores_are_on_average() -> None:
    law = random_law(2, 5)
    bounds = exact_log(law, curves_of(law, law.mean))
    means = np.average(bounds.scores(2.0, upper=False), axis=0, weights=bounds.weights)
    assert_allclose(bounds.scores(2.0, upper=False, correction=0.0)[0], means, atol=1e-12)
    half = bounds.scores(2.0, upper=False, correction=0.5)
    assert_allclose(half, (bounds.scores(2.0, upper=False) + bounds.scores(2.0, upper=False, correction=0.0)) / 2)


def test_breakdown_is_where_the_bound_reaches_zero() -> None:
    law = random_law(2, 2)
    law = law._replace(atoms=[law.atoms[0], law.atoms[1] + 1.0])
    bounds = exact_log(law, curves_of(law, law.mean))
    rows = len(bounds.action)
    policy, other = np.tile([0.0, 1.0], (rows, 1)), np.tile([1.0, 0.0], (rows, 1))
    found = sensitivity_of(bounds, policy, other, "0", level=0.2)
    assert 1.0 < found.breakdown_limit < found.breakdown < 20.0
    assert_allclose(joint_programme(law, found.breakdown), 0.0, atol=1e-3)
    ends = bounds.gain(policy, other, found.breakdown_limit, upper=False).interval(0.2)
    assert_allclose(ends[0], 0.0, atol=1e-3)
    # One x alone: each row has the breakdown of all.
    assert_allclose(found.row_breakdown, found.breakdown, rtol=2e-3)
    assert sensitivity_of(bounds, other, policy, "1").breakdown == 1.0
    assert np.all(sensitivity_of(bounds, other, policy, "1").row_breakdown == 1.0)
    ahead = np.array([0.0, 1e3])
    far = replace(bounds, robust=bounds.robust + ahead, mean=bounds.mean + ahead, kept={})
    assert np.isinf(sensitivity_of(far, policy, other, "0").breakdown)
    assert np.all(np.isinf(row_breakdown(far, policy, other)))
    assert np.all(np.isnan(row_breakdown(far, policy, policy)))


def test_result_in_words_and_plain_numbers() -> None:
    bounds, policy, other, _ = random_bounds()
    found = sensitivity_of(bounds, policy, other, "wait", gammas=(1.0, 2.0), level=0.9)
    numbers = found.to_dict()
    assert [row["gamma"] for row in numbers["gammas"]] == [1.0, 2.0]
    low, high = found.interval(1, gain=True)
    assert (low, high) == (found.gain_lower[1].interval(0.9)[0], found.gain_upper[1].interval(0.9)[1])
    assert numbers["gammas"][1]["gain"]["low"] == low
    assert "gain over wait" in str(found)
    assert "90 % limit at" in str(found)


def test_breakdown_of_never_and_always() -> None:
    assert breakdown_of(lambda gamma: -1.0) == 1.0
    assert np.isinf(breakdown_of(lambda gamma: 1.0))


@pytest.mark.parametrize("gamma", [0.9, float("nan"), float("inf"), "2", True, None])
def test_wrong_gamma_is_refused(gamma: Any) -> None:
    with pytest.raises(ValueError, match="must be a finite number >= 1"):
        check_gamma(gamma)
