"""Welfare, regret, penalized welfare and the deterministic rule, restated in NumPy (sections 2, 4, 5 and 8)."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.samples import random_policies

from gbpl import BaselineGap, Binary, FullVector, regret, welfare
from gbpl.value.welfare import deterministic, penalized_welfare

ROWS = 50


def weighted_mean(values: np.ndarray, weight: np.ndarray | None) -> float:
    weight = np.ones(len(values)) if weight is None else weight
    return sum(w * v for w, v in zip(weight, values, strict=True)) / sum(weight)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_welfare_is_the_mean_outcome_under_the_policy(count: int, weighted: bool) -> None:
    policy, outcomes, weight = random_policies(count, ROWS)
    given = weight if weighted else None
    rows = [sum(policy[i, a] * outcomes[i, a] for a in range(count)) for i in range(ROWS)]  # V, section 2
    assert_allclose(welfare(policy, outcomes, sample_weight=given), weighted_mean(rows, given))


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_regret_is_what_the_best_action_of_each_row_adds(count: int, weighted: bool) -> None:
    policy, outcomes, weight = random_policies(count, ROWS)
    given = weight if weighted else None
    rows = [max(outcomes[i]) - sum(policy[i] * outcomes[i]) for i in range(ROWS)]
    lost = regret(policy, outcomes, sample_weight=given)
    assert_allclose(lost, weighted_mean(rows, given))
    assert lost >= 0


def test_the_best_rule_has_no_regret() -> None:
    _, outcomes, weight = random_policies(4, ROWS)
    best = np.eye(4)[np.argmax(outcomes, axis=1)]
    assert_allclose(regret(best, outcomes, sample_weight=weight), 0.0, atol=1e-12)


def test_only_ratios_of_weights_matter_and_zero_removes_a_row() -> None:
    policy, outcomes, weight = random_policies(3, ROWS)
    weight[::3] = 0.0
    kept = weight > 0
    for value in (welfare, regret):
        whole = value(policy, outcomes, sample_weight=weight)
        assert_allclose(whole, value(policy, outcomes, sample_weight=7.0 * weight))
        assert_allclose(whole, value(policy[kept], outcomes[kept], sample_weight=weight[kept]))


def test_integer_weights_are_repeated_rows() -> None:
    policy, outcomes, _ = random_policies(3, ROWS)
    times = np.random.default_rng(1).integers(0, 4, ROWS)
    repeated = np.repeat(np.arange(ROWS), times)
    assert_allclose(
        welfare(policy, outcomes, sample_weight=times.astype(float)), welfare(policy[repeated], outcomes[repeated])
    )


@pytest.mark.parametrize("zeta", [0.001, 0.7, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_penalized_welfare_binary(zeta: float, weighted: bool) -> None:
    policy, outcomes, weight = random_policies(2, ROWS)
    given = weight if weighted else None
    f = 2.0 * policy[:, 1] - 1.0
    # equivalence theorem, binary: W = V - zeta/4 E f^2
    expected = weighted_mean(np.sum(policy * outcomes, axis=1), given) - zeta / 4.0 * weighted_mean(f**2, given)
    penalized = penalized_welfare(policy, outcomes, zeta=zeta, surrogate=Binary(), sample_weight=given)
    assert_allclose(penalized, expected, rtol=1e-6)


@pytest.mark.parametrize("baseline", [0, 2])
def test_penalized_welfare_baseline_gap(baseline: int) -> None:
    policy, outcomes, weight = random_policies(4, ROWS)
    others = [a for a in range(4) if a != baseline]
    squares = np.sum((2.0 * policy[:, others] - 1.0) ** 2, axis=1)
    # equivalence theorem, baseline gap: W = V - zeta/4 E sum over the other actions of f_a^2
    expected = weighted_mean(np.sum(policy * outcomes, axis=1), weight) - 0.7 / 4.0 * weighted_mean(squares, weight)
    penalized = penalized_welfare(
        policy, outcomes, zeta=0.7, surrogate=BaselineGap(4, baseline=baseline), sample_weight=weight
    )
    assert_allclose(penalized, expected, rtol=1e-6)


def test_penalized_welfare_full_vector() -> None:
    policy, outcomes, weight = random_policies(4, ROWS)
    squares = np.sum(policy**2, axis=1)
    # equivalence theorem, full vector: W = V - zeta/2 E |delta|^2
    expected = weighted_mean(np.sum(policy * outcomes, axis=1), weight) - 0.7 / 2.0 * weighted_mean(squares, weight)
    penalized = penalized_welfare(policy, outcomes, zeta=0.7, surrogate=FullVector(4), sample_weight=weight)
    assert_allclose(penalized, expected, rtol=1e-6)


def test_deterministic_takes_the_most_probable_action() -> None:
    for count in (2, 3, 5):
        policy, _, _ = random_policies(count, ROWS)
        assert_array_equal(deterministic(policy), [list(row).index(max(row)) for row in policy])


def test_a_tie_of_two_actions_goes_to_action_one() -> None:
    assert deterministic(np.array([[0.5, 0.5]])).tolist() == [1]  # f >= 0, section 4
    assert deterministic(np.array([[0.5, np.nextafter(0.5, 0)]])).tolist() == [0]


def test_a_tie_of_many_actions_goes_to_the_first() -> None:
    ties = np.array([[0.2, 0.4, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.4, 0.2, 0.4]])
    assert deterministic(ties).tolist() == [1, 0, 0]


def test_a_deterministic_rule_is_worth_the_outcomes_it_takes() -> None:
    policy, outcomes, weight = random_policies(3, ROWS)
    chosen = deterministic(policy)
    expected = weighted_mean([outcomes[i, chosen[i]] for i in range(ROWS)], weight)
    assert_allclose(welfare(np.eye(3)[chosen], outcomes, sample_weight=weight), expected)


def test_float32_policies_are_added_up_in_double_precision() -> None:
    policy = np.full((100_000, 2), 0.5, np.float32)
    outcomes = np.tile([0.1, 0.3], (100_000, 1))
    assert_allclose(welfare(policy, outcomes), 0.2, rtol=1e-12)
