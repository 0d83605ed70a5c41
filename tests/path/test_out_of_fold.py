"""The zeta path: welfare out of fold against plain NumPy, selection and averaging (sections 4.2 and 9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from support.calls import record_calls
from support.checks import hidden_layer_policy
from support.policies import small_net
from support.samples import outcomes_table, path_of, random_policies

import gbpl.fitting.stack
from gbpl import BaselineGap, Binary, FullVector, Surrogate
from gbpl.fitting.stack import StackFit
from gbpl.path.grid import AUTO_PATH
from gbpl.path.out_of_fold import (
    OutOfFold,
    ZetaPath,
    average_weights,
    common_size,
    select_by_reduced_loss,
    select_weights,
)

ZETAS = np.array([2.0, 0.5, 0.01])
ROWS = 40


def judged(
    policies: np.ndarray,
    outcomes: np.ndarray,
    weight: np.ndarray | None,
    surrogate: Surrogate,
    zetas: np.ndarray = ZETAS,
    *,
    level: float = 0.0,
) -> ZetaPath:
    judge = OutOfFold(zetas, surrogate, level=level)
    judge.add(policies, outcomes, weight)
    return judge.path()


def gains(policy: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """Outcome of the action that the deterministic rule takes (no ties in made-up policies)."""
    return np.array([outcomes[i, int(np.argmax(policy[i]))] for i in range(len(outcomes))])


def standard_error(values: np.ndarray, weight: np.ndarray) -> float:
    """Of a weighted mean, rows independent: sqrt(sum w^2 (v - V)^2) / sum w."""
    mean = np.average(values, weights=weight)
    return float(np.sqrt(np.sum(weight**2 * (values - mean) ** 2)) / np.sum(weight))


# -- judging ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_welfare_and_its_standard_error(count: int, weighted: bool) -> None:
    policies, outcomes, weight = random_policies(count, ROWS, len(ZETAS))
    surrogate = Binary() if count == 2 else FullVector(count)
    path = judged(policies, outcomes, weight if weighted else None, surrogate)
    weight = weight if weighted else np.ones(ROWS)
    taken = [gains(policy, outcomes) for policy in policies]
    welfare = [np.average(v, weights=weight) for v in taken]
    best = int(np.argmax(welfare))
    assert_allclose(path.welfare, welfare)
    assert_allclose(path.welfare_se, [standard_error(v, weight) for v in taken])
    assert_allclose(path.shortfall, max(welfare) - np.array(welfare), atol=1e-12)
    assert_allclose(path.shortfall_se, [standard_error(taken[best] - v, weight) for v in taken], atol=1e-8)
    assert path.shortfall[best] == 0.0
    assert path.shortfall_se[best] == 0.0


def test_unweighted_standard_error_is_the_textbook_one() -> None:
    policies, outcomes, _ = random_policies(2, ROWS, len(ZETAS))
    path = judged(policies, outcomes, None, Binary())
    assert_allclose(path.welfare_se, [gains(policy, outcomes).std() / np.sqrt(ROWS) for policy in policies])


def test_covariance_of_the_welfares() -> None:
    policies, outcomes, weight = random_policies(2, ROWS, len(ZETAS))
    taken = np.stack([gains(policy, outcomes) for policy in policies])
    centred = (taken - np.average(taken, axis=1, weights=weight)[:, None]) * weight
    assert_allclose(judged(policies, outcomes, weight, Binary()).covariance, centred @ centred.T / weight.sum() ** 2)


@pytest.mark.parametrize("weighted", [False, True])
def test_randomized_and_penalized_welfare_binary(weighted: bool) -> None:
    policies, outcomes, weight = random_policies(2, ROWS, len(ZETAS))
    path = judged(policies, outcomes, weight if weighted else None, Binary())
    weight = weight if weighted else np.ones(ROWS)
    randomized = [np.average(np.sum(p * outcomes, axis=1), weights=weight) for p in policies]
    squares = [np.average((2 * p[:, 1] - 1) ** 2, weights=weight) for p in policies]
    assert_allclose(path.randomized_welfare, randomized)
    # equivalence theorem, binary: W = V - zeta/4 E f^2
    assert_allclose(path.penalized_welfare, randomized - ZETAS / 4.0 * np.array(squares), rtol=1e-6)


@pytest.mark.parametrize(
    ("surrogate", "penalty"),
    [
        (FullVector(3), lambda p: np.sum(p**2, axis=1) / 2.0),  # equivalence theorem, full vector: zeta/2 |delta|^2
        (BaselineGap(3, baseline=1), lambda p: np.sum((2.0 * p[:, [0, 2]] - 1.0) ** 2, axis=1) / 4.0),  # zeta/4 |f|^2
    ],
    ids=["full", "gap"],
)
def test_penalized_welfare_of_more_actions(surrogate: Surrogate, penalty: Any) -> None:
    policies, outcomes, weight = random_policies(3, ROWS, len(ZETAS))
    path = judged(policies, outcomes, weight, surrogate)
    expected = [
        np.average(np.sum(p * outcomes, axis=1) - zeta * penalty(p), weights=weight)
        for p, zeta in zip(policies, ZETAS, strict=True)
    ]
    assert_allclose(path.penalized_welfare, expected, rtol=1e-5)


def test_size_is_the_distance_from_uniform() -> None:
    policies, outcomes, weight = random_policies(3, ROWS, len(ZETAS))
    path = judged(policies, outcomes, weight, FullVector(3))
    expected = [np.sqrt(np.average(np.sum((p - 1 / 3) ** 2, axis=1), weights=weight)) for p in policies]
    assert_allclose(path.size, expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_may_come_in_parts(weighted: bool) -> None:
    policies, outcomes, weight = random_policies(3, ROWS, len(ZETAS))
    given = weight if weighted else None
    whole = judged(policies, outcomes, given, FullVector(3))
    judge = OutOfFold(ZETAS, FullVector(3))
    for rows in (slice(0, 7), slice(7, 8), slice(8, ROWS)):
        judge.add(policies[:, rows], outcomes[rows], None if given is None else given[rows])
    parts = judge.path()
    for name in (*whole.to_dict(), "covariance"):
        assert_allclose(getattr(parts, name), getattr(whole, name), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_added_are_one_pass(weighted: bool) -> None:
    policies, outcomes, weight = random_policies(3, ROWS, len(ZETAS))
    given, correction = weight if weighted else None, np.array([1.0, 0.0, 1.0])
    whole = OutOfFold(ZETAS, FullVector(3), correction, level=0.7)
    whole.add(policies, outcomes, given)
    empty = whole.fresh()
    assert (empty.total, empty.level) == (0.0, 0.7)
    parts = []
    for rows in (slice(0, 7), slice(7, 8), slice(8, ROWS)):
        parts.append(empty.fresh())
        parts[-1].add(policies[:, rows], outcomes[rows], None if given is None else given[rows])
    before = [part.path() for part in parts]
    together, again = (parts[0] + parts[1] + parts[2]).path(), (parts[2] + empty + parts[0] + parts[1]).path()
    expected = whole.path()
    assert_array_equal(expected.correction, correction)
    assert (expected.covariance != 0.0).all()
    for name in (*expected.to_dict(), "covariance"):
        assert_allclose(getattr(together, name), getattr(expected, name), atol=1e-12, err_msg=name)
        assert_allclose(getattr(again, name), getattr(expected, name), atol=1e-12, err_msg=name)
        for part, old in zip(parts, before, strict=True):  # adding leaves the parts as they were
            assert_array_equal(getattr(part.path(), name), getattr(old, name), err_msg=name)


@pytest.mark.parametrize("level", [-3.0, 0.4, 100.0])
def test_the_level_taken_off_is_given_back(level: float) -> None:
    policies, outcomes, weight = random_policies(3, ROWS, len(ZETAS))
    plain, moved = (judged(policies, outcomes, weight, FullVector(3), level=c) for c in (0.0, level))
    for name in (*plain.to_dict(), "covariance"):
        assert_allclose(getattr(moved, name), getattr(plain, name), atol=1e-7, err_msg=name)


def test_only_ratios_of_weights_matter_to_the_path() -> None:
    policies, outcomes, weight = random_policies(2, ROWS, len(ZETAS))
    one, other = (judged(policies, outcomes, c * weight, Binary()) for c in (1.0, 100.0))
    for name in (*one.to_dict(), "covariance"):
        assert_allclose(getattr(one, name), getattr(other, name), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("shift", [1e6, 1e9])
def test_a_large_common_level_leaves_the_standard_errors_alone(shift: float) -> None:
    policies, outcomes, weight = random_policies(2, ROWS, len(ZETAS))
    near, far = (
        judged(policies, outcomes + c, weight, Binary(), level=float(np.mean(outcomes + c))) for c in (0.0, shift)
    )
    assert_allclose(far.welfare - shift, near.welfare, atol=1e-14 * shift)
    assert_allclose(far.welfare_se, near.welfare_se, rtol=1e-4)
    assert_allclose(far.shortfall_se, near.shortfall_se, rtol=1e-4, atol=1e-6)
    assert_allclose(average_weights(far), average_weights(near), atol=0.02)


def test_the_path_is_a_table() -> None:
    path = judged(*random_policies(2, ROWS, len(ZETAS)), Binary())
    columns = path.to_dict()
    assert {"zeta", "welfare", "welfare_se", "randomized_welfare", "penalized_welfare", "weight"} <= set(columns)
    assert columns["correction"].tolist() == [1.0] * len(ZETAS)  # full feedback has no correction to leave out
    frame = pd.DataFrame(columns)
    assert frame.shape == (len(ZETAS), len(columns))
    assert_array_equal(frame["welfare"], path.welfare)
    assert_array_equal(pl.DataFrame(columns)["zeta"].to_numpy(), ZETAS)
    lines = str(path).splitlines()
    assert len(lines) == 1 + len(ZETAS)
    assert lines[0].split() == list(columns)


# -- what to make of it -----------------------------------------------------------------------------------


def test_select_takes_the_highest_welfare() -> None:
    assert select_weights(path_of([0.1, 0.5, 0.4], np.eye(3))).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("best", [1, 3])
def test_select_averages_the_corrections_of_the_best_zeta(best: int) -> None:
    """Two tables at the same two zetas: the zeta is chosen, and its two entries share by who may be better."""
    rng = np.random.default_rng(best)
    root = 0.2 * rng.normal(size=(4, 6))
    covariance = root @ root.T
    welfare = np.array([0.9, 1.0, 0.95, 1.0])
    welfare[best] += 0.1
    path = path_of(welfare, covariance, zeta=[3.0, 0.3, 3.0, 0.3], correction=[1.0, 1.0, 0.0, 0.0])
    weights = select_weights(path)
    assert weights[[0, 2]].tolist() == [0.0, 0.0]
    spread = np.sqrt(covariance[1, 1] + covariance[3, 3] - 2.0 * covariance[1, 3])
    chance = norm.cdf((welfare[1] - welfare[3]) / spread)  # P(V_1 > V_3) of two joint normals
    assert 0.05 < chance < 0.95
    assert_allclose(weights[[1, 3]], [chance, 1.0 - chance], atol=0.025)
    assert weights.sum() == 1.0


@pytest.mark.parametrize("count", [2, 3])
def test_select_by_reduced_loss_takes_the_least_mean_of_it(count: int) -> None:
    """-U f + zeta / 2 f^2 for two actions, -sum_a delta_a Y(a) + zeta / 2 delta_a^2 for more (appendix G.3)."""
    rng, surrogate, other = np.random.default_rng(0), Binary() if count == 2 else FullVector(count), 0
    for _ in range(10):
        policies, outcomes = rng.dirichlet(np.ones(count), (len(ZETAS), ROWS)), rng.normal(size=(ROWS, count))
        losses = []
        for policy, zeta in zip(policies, ZETAS, strict=True):
            score, target = (policy, outcomes) if count > 2 else (2 * policy[:, 1:] - 1, np.diff(outcomes))
            losses.append(np.mean(np.sum(-target * score + zeta / 2 * score**2, axis=1)))
        path = judged(policies, outcomes, None, surrogate)
        assert select_by_reduced_loss(path).tolist() == np.eye(len(ZETAS))[np.argmin(losses)].tolist()
        other += np.argmin(losses) != np.argmax(path.welfare)
    assert other > 0, "or this would not tell it from selection by welfare"


@pytest.mark.parametrize("surrogate", [Binary(), BaselineGap(3), FullVector(3)])
def test_the_reduced_loss_prefers_the_smallest_zeta_whatever_the_policy(surrogate: Surrogate) -> None:
    """The same policy at every zeta, so no zeta decides better: the loss still is least at the smallest."""
    policies, outcomes, _ = random_policies(surrogate.n_actions, ROWS, 1)
    path = judged(np.repeat(policies, len(ZETAS), axis=0), outcomes, None, surrogate)
    assert np.ptp(path.welfare) < 1e-12
    assert select_by_reduced_loss(path).tolist() == np.eye(len(ZETAS))[np.argmin(ZETAS)].tolist()


def test_select_gives_all_to_the_better_correction_where_that_is_clear() -> None:
    path = path_of([0.0, 1.0, 0.5, 0.2], 1e-6 * np.eye(4), zeta=[3.0, 0.3, 3.0, 0.3], correction=[1, 1, 0, 0])
    assert select_weights(path).tolist() == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("difference", "covariance"),
    [
        (0.0, [[1.0, 0.0], [0.0, 1.0]]),
        (0.5, [[1.0, 0.0], [0.0, 1.0]]),
        (0.5, [[1.0, 0.9], [0.9, 1.0]]),
        (-0.2, [[0.04, 0.01], [0.01, 0.09]]),
    ],
)
def test_average_of_two_is_the_normal_probability(difference: float, covariance: list[list[float]]) -> None:
    c = np.array(covariance)
    spread = np.sqrt(c[0, 0] + c[1, 1] - 2.0 * c[0, 1])
    weights = average_weights(path_of([1.0 + difference, 1.0], c))
    # V_0 - V_1 is normal with mean d and this spread, so P(V_0 > V_1) = Phi(d / spread)
    assert_allclose(weights[0], norm.cdf(difference / spread), atol=0.025)
    assert_allclose(weights.sum(), 1.0)


def test_average_gives_all_to_a_clear_winner() -> None:
    assert average_weights(path_of([0.0, 1.0, 0.0], 1e-4 * np.eye(3))).tolist() == [0.0, 1.0, 0.0]


def test_average_ignores_noise_that_zetas_share() -> None:
    shared = 100.0 * np.ones((2, 2)) + 1e-4 * np.eye(2)
    assert average_weights(path_of([1.0, 0.9], shared)).tolist() == [1.0, 0.0]


def test_zetas_with_the_same_decisions_share_their_weight() -> None:
    policies, outcomes, weight = random_policies(2, ROWS, len(ZETAS))
    same = np.stack([policies[0]] * 3)
    assert_allclose(average_weights(judged(same, outcomes, weight, Binary())), 1 / 3, atol=0.03)


def test_average_is_the_same_in_every_unit() -> None:
    policies, outcomes, weight = random_policies(2, ROWS, len(ZETAS))
    one = average_weights(judged(policies, outcomes, weight, Binary()))
    for unit in (1e-6, 1e6):
        other = average_weights(judged(policies, unit * outcomes, weight, Binary(), unit * ZETAS))
        assert_allclose(other, one, atol=0.001)


def test_average_without_any_noise() -> None:
    assert_allclose(average_weights(path_of([1.0, 1.0], np.zeros((2, 2)))).sum(), 1.0)
    assert average_weights(path_of([1.0, 2.0], np.zeros((2, 2)))).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e6 / 3])
@pytest.mark.parametrize("seed", range(5))
def test_average_when_every_rule_takes_an_action_of_constant_outcome(constant: float, seed: int) -> None:
    """As with one column, the gap, when nobody should be treated: every rule gains the same on every row."""
    rng = np.random.default_rng(seed)
    outcomes = np.column_stack([np.full(ROWS, constant), constant + rng.normal(size=ROWS)])
    policies = np.stack([np.tile([p, 1.0 - p], (ROWS, 1)) for p in (0.6, 0.7, 0.9)])
    path = judged(policies, outcomes, rng.uniform(0.2, 3.0, ROWS), Binary())
    assert_allclose(path.welfare, constant, atol=1e-12)
    assert_allclose(path.welfare_se, 0.0, atol=1e-6 * (1.0 + constant))
    weights = average_weights(path)
    assert (weights >= 0).all()
    assert_allclose(weights.sum(), 1.0)


def test_average_takes_a_covariance_with_rounding_errors() -> None:
    """Equal rows of a covariance leave eigenvalues a little below zero."""
    rough = np.full((3, 3), 1.0) - 1e-8 * np.eye(3)
    assert_allclose(average_weights(path_of([1.0, 1.0, 1.0], rough)).sum(), 1.0)
    assert average_weights(path_of([1.0, 2.0, 1.0], rough)).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("size", [0.3, 1e-9, 0.7071])
@pytest.mark.parametrize("count", [1, 3])
def test_a_single_zeta_counts_exactly_one(count: int, size: float) -> None:
    """Selected members are not rescaled, whatever the sizes of the others."""
    weight = np.eye(count)[-1]
    sizes = np.append(np.full(count - 1, 0.5), size)
    assert common_size(path_of(np.zeros(count), size=sizes, weight=weight)).tolist() == weight.tolist()


def test_equal_sizes_leave_the_weights() -> None:
    weight = np.array([0.2, 0.5, 0.3])
    weights = common_size(path_of(np.zeros(3), size=np.full(3, 0.37), weight=weight))
    assert_allclose(weights, weight, rtol=1e-12)
    assert_allclose(weights.sum(), weight.sum(), rtol=1e-12)


def test_scores_are_brought_to_their_mean_size() -> None:
    """Each zeta's deviation from uniform, once multiplied, has its weight times the mean size."""
    rng = np.random.default_rng(0)
    weight, size = rng.dirichlet(np.ones(5)), rng.uniform(1e-3, 0.7, 5)
    mean = sum(w * s for w, s in zip(weight, size, strict=True))
    weights = common_size(path_of(np.zeros(5), size=size, weight=weight))
    assert_allclose(weights * size, weight * mean)
    assert_allclose(np.sum(weights * size), mean)
    twice = common_size(path_of(np.zeros(5), size=2.0 * size, weight=weight))
    assert_allclose(twice, weights)  # only ratios of sizes matter


def test_a_policy_of_no_size_counts_nothing() -> None:
    weights = common_size(path_of(np.zeros(3), size=[0.0, 0.2, 0.4], weight=[0.5, 0.25, 0.25]))
    assert_allclose(weights, [0.0, 0.25 * 0.15 / 0.2, 0.25 * 0.15 / 0.4])
    assert common_size(path_of(np.zeros(2), weight=[0.5, 0.5])).tolist() == [0.0, 0.0]


# -- in the estimator -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_path_of_a_fit_is_welfare_out_of_fold(monkeypatch: pytest.MonkeyPatch, count: int, weighted: bool) -> None:
    stacks = record_calls(monkeypatch, "fit_stack", gbpl.fitting.stack)
    x, y = outcomes_table(count)
    y = y[:, np.argsort(y.mean(axis=0))]  # the order of actions in which members see them
    weight = np.random.default_rng(0).uniform(0.2, 3.0, len(x))
    policy = small_net(zeta=[3.0, 0.3]).fit(x, y, sample_weight=weight if weighted else None)
    weight = weight if weighted else np.ones(len(x))
    seen_x, stack = stacks[0].arguments[0], stacks[0].result
    standard = ((x - policy.standardizer_.mean) / policy.standardizer_.scale)[:, policy.standardizer_.columns]
    user_row = np.abs(seen_x[:, None] - standard).sum(axis=2).argmin(axis=1)  # members may see rows in another order
    path = policy.zeta_path_
    inner = sorted({float(member.zeta) for member in stack.members}, reverse=True)  # zeta in units of the scale
    assert_allclose(np.array(inner) * policy.outcome_scale_, [3.0, 0.3])
    for place, zeta in enumerate(inner):
        seen, gained, mixed = [], [], []
        for number, member in enumerate(stack.members):
            if member.zeta != zeta:
                continue
            rows = np.setdiff1d(np.arange(len(x)), user_row[member.train])  # out of fold: no row it trained on
            delta = hidden_layer_policy(stack.params, number, standard[rows])
            seen.append(rows)
            gained.append(gains(delta, y[rows]))
            mixed.append(np.sum(delta * y[rows], axis=1))
        order = np.concatenate(seen)
        assert_array_equal(np.sort(order), np.arange(len(x)))  # every row judged once
        taken, w = np.concatenate(gained), weight[order]
        assert_allclose(path.welfare[place], np.average(taken, weights=w))
        assert_allclose(path.welfare_se[place], standard_error(taken, w), rtol=1e-6)
        assert_allclose(path.randomized_welfare[place], np.average(np.concatenate(mixed), weights=w), rtol=1e-4)
    assert policy.zeta_ == path.zeta[np.argmax(path.welfare)]
    assert_array_equal(path.weight, select_weights(path))


def test_selection_reads_welfare_and_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = outcomes_table()
    plain = small_net(zeta=[3.0, 0.3]).fit(x, y)
    real = gbpl.fitting.stack.fit_stack

    def misleading(*arguments: Any, **options: Any) -> StackFit:
        """The losses say that the zeta chosen above is by far the worst."""
        stack = real(*arguments, **options)
        chosen = plain.zeta_ / plain.outcome_scale_
        bad = np.array([1e9 if np.isclose(m.zeta, chosen) else -1e9 for m in stack.members])
        losses = tuple(np.full_like(loss, b) for loss, b in zip(stack.validation_loss, bad, strict=True))
        return replace(stack, best_loss=bad, validation_loss=losses, train_loss=losses)

    monkeypatch.setattr(gbpl.fitting.stack, "fit_stack", misleading)
    again = small_net(zeta=[3.0, 0.3]).fit(x, y)
    assert again.zeta_ == plain.zeta_
    assert_array_equal(again.predict_proba(x), plain.predict_proba(x))


@pytest.mark.parametrize("worst", [0, 1])
def test_selection_follows_welfare(monkeypatch: pytest.MonkeyPatch, worst: int) -> None:
    """Turning the networks of one zeta round makes it choose against every row: the other one is selected."""
    x, y = outcomes_table()
    real = gbpl.fitting.stack.fit_stack

    def turned(*arguments: Any, **options: Any) -> StackFit:
        stack = real(*arguments, **options)
        zetas = sorted({m.zeta for m in stack.members}, reverse=True)
        signs = np.array([-1.0 if m.zeta == zetas[worst] else 1.0 for m in stack.members], np.float32)
        last = {
            "weight": stack.params[-1]["weight"] * signs[:, None, None],
            "bias": stack.params[-1]["bias"] * signs[:, None],
        }
        return replace(stack, params=[*stack.params[:-1], last])

    monkeypatch.setattr(gbpl.fitting.stack, "fit_stack", turned)
    assert small_net(zeta=[3.0, 0.3]).fit(x, y).zeta_ == [3.0, 0.3][1 - worst]


def test_a_number_is_used_as_it_is() -> None:
    x, y = outcomes_table()
    policy = small_net(zeta=0.7).fit(x, y)
    assert policy.zeta_ == 0.7
    assert policy.zeta_path_.zeta.tolist() == [0.7]
    assert policy.zeta_path_.weight.tolist() == [1.0]
    assert_allclose(policy.member_weights_, [0.5, 0.5])


@pytest.mark.parametrize("listed", [[0.3, 3.0], (0.3, 3.0), np.array([0.3, 3.0])], ids=["list", "tuple", "array"])
def test_a_list_keeps_only_the_selected_members(listed: Any) -> None:
    x, y = outcomes_table()
    policy = small_net(zeta=listed).fit(x, y)
    assert policy.zeta_path_.zeta.tolist() == [0.3, 3.0]
    assert sorted(policy.zeta_path_.weight) == [0.0, 1.0]
    assert len(policy.member_weights_) == 2
    assert policy.params_[0]["weight"].shape[0] == 2
    alone = small_net(zeta=policy.zeta_).fit(x, y)
    assert_allclose(policy.predict_proba(x), alone.predict_proba(x), atol=1e-5)  # neighbours change nothing


def test_auto_averages_the_path() -> None:
    x, y = outcomes_table()
    policy = small_net(zeta="auto").fit(x, y)
    path = policy.zeta_path_
    assert_allclose(path.zeta, np.array(AUTO_PATH) * policy.outcome_scale_)
    assert_allclose(path.weight.sum(), 1.0)
    assert (path.weight >= 0).all()
    assert_allclose(path.weight, average_weights(path))
    assert policy.zeta_ == path.zeta[np.argmax(path.weight)]
    # Scores of different zetas are brought to one size before they are averaged.
    common = np.sum(path.weight * path.size)
    per_zeta = path.weight * common / path.size
    expected = np.repeat(per_zeta / 2, 2)
    assert_allclose(policy.member_weights_, expected[expected > 0])


def test_the_path_of_a_fit_goes_into_a_frame() -> None:
    x, y = outcomes_table()
    policy = small_net(zeta=[3.0, 0.3]).fit(x, y)
    frame = pd.DataFrame(policy.zeta_path_.to_dict())
    assert frame["zeta"].tolist() == [3.0, 0.3]
    assert frame.set_index("zeta")["welfare"].idxmax() == policy.zeta_
    assert frame["weight"].sum() == 1.0


def test_optional_models_count_where_they_are_clearly_the_best() -> None:
    """With probability above two thirds: below that the others share their weight, as if they were not there."""
    sd = 0.01
    covariance = sd**2 * np.eye(3)

    def weights(ahead: float) -> np.ndarray:
        path = path_of(np.array([1.0, 1.0, 1.0 + ahead]), covariance, modelled=None)
        return average_weights(replace(path, optional=np.array([False, False, True])))

    # P(third best of three) = E Phi(z + ahead / sd)^2, z standard normal: 0.62 one sd ahead, 0.85 two
    z = np.random.default_rng(0).standard_normal(100_000)
    for ahead in (sd, 2.0 * sd):
        probability = np.mean(norm.cdf(z + ahead / sd) ** 2)
        expected = probability if probability > 2 / 3 else 0.0
        assert_allclose(weights(ahead)[2], expected, atol=0.02)
        assert_allclose(weights(ahead)[:2], (1.0 - expected) / 2.0, atol=0.03)
