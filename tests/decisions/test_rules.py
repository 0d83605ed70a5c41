"""Rules made from a posterior, restated one row or one assignment at a time (appendix: disagreement, thresholds)."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

from gbpl import assess, capacity_rule, defer_rule, disagreement, map_rule, threshold_rule
from gbpl.decisions.decisions import DEFER, Rule
from gbpl.decisions.rules import apply_costs
from gbpl.tables.roles import Roles

ALPHAS = (0.05, 0.1, 0.2, 0.3)  # the paper's
DRAWS = 40


def shares(rows: int, count: int, seed: int = 0) -> np.ndarray:
    """Action probabilities as they come: counts of draws, many of them on the edge of the paper's thresholds."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(DRAWS, rng.dirichlet(np.full(count, 0.4), rows)) / DRAWS


def two(p: np.ndarray | list[float]) -> np.ndarray:
    return np.column_stack([1.0 - np.asarray(p), p])


# The point rules and disagreement.


def test_the_point_rule_takes_the_most_probable_action_and_two_equal_ones_go_to_action_1() -> None:
    decided = map_rule(two([0.2, 0.5, 0.7]))
    assert_array_equal(decided.action, [0, 1, 1])  # 1[f >= 0]
    assert_allclose(decided.probability, two([0.2, 0.5, 0.7]))
    assert_array_equal(map_rule(np.array([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]])).action, [1, 0])
    assert decided.deferred is None
    assert list(decided.to_dict()) == ["action", "probability of 0", "probability of 1"]


def test_shares_of_draws_are_not_called_probabilities_and_are_refused_as_propensities() -> None:
    decided = threshold_rule(two([0.02, 0.6]), alpha=0.05)
    assert list(decided.to_dict()) == ["action", "share of draws for 0", "share of draws for 1", "disagreement"]
    assert decided.probability is None
    with pytest.raises(ValueError, match="says how sure a decision was, and is no propensity"):
        Roles(outcome="y", action="arm", propensity="share of draws for 1")


def test_decisions_of_some_rows_keep_every_column() -> None:
    table = two([0.02, 0.6, 0.9])
    decided = defer_rule(threshold_rule(table, alpha=0.2), disagreement(table), level=0.3)
    some = decided.rows(np.array([True, False, True]))
    assert len(some) == 2
    assert some.to_dict().keys() == decided.to_dict().keys()
    for name, column in decided.to_dict().items():
        assert_array_equal(some.to_dict()[name], column[[0, 2]])


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20))
def test_disagreement_of_two_actions_is_the_papers(p: list[float]) -> None:
    assert_allclose(disagreement(two(p)), [2.0 * min(q, 1.0 - q) for q in p], atol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_disagreement_is_0_where_draws_agree_and_1_where_they_are_split_evenly(count: int) -> None:
    table = np.vstack([np.eye(count), np.full(count, 1.0 / count), shares(50, count)])
    split = disagreement(table)
    assert_allclose(split[:count], 0.0)
    assert_allclose(split[count], 1.0)
    assert_allclose(split, [(1.0 - max(row)) / (1.0 - 1.0 / count) for row in table], atol=1e-12)
    assert np.all((split >= 0.0) & (split <= 1.0))


def test_disagreement_by_hand() -> None:
    assert_allclose(disagreement(np.array([[0.5, 0.25, 0.25]])), [0.75])  # 3/2 x 1/2


# The threshold rule.


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_threshold_rule_of_two_actions_is_the_papers(alpha: float, dtype: type) -> None:
    count = np.arange(DRAWS + 1)  # every share there is, p = 1 - alpha among them
    actions = threshold_rule(two(count / DRAWS).astype(dtype), alpha=alpha)
    assert_array_equal(actions.action, count > round((1.0 - alpha) * DRAWS))  # p > 1 - alpha, in whole draws
    p = count / DRAWS
    assert_allclose(actions.draw_share, two(p), atol=1e-6)
    assert_allclose(actions.disagreement, 2.0 * np.minimum(p, 1.0 - p), atol=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("default", [0, 1, 2, 3])
def test_threshold_rule_of_many_actions_row_by_row(alpha: float, default: int) -> None:
    table = shares(200, 4)
    actions = threshold_rule(table, alpha=alpha, default=default).action
    left = 0
    for row, action in zip(np.round(table * DRAWS).astype(int), actions, strict=True):
        others = [a for a in range(4) if a != default]
        if DRAWS - row[default] > round((1.0 - alpha) * DRAWS):
            left += 1
            assert action in others
            assert row[action] == max(row[a] for a in others)
        else:
            assert action == default
    assert left > 0


def test_threshold_rule_with_the_other_default_mirrors_the_actions() -> None:
    table = shares(100, 2)
    here, there = threshold_rule(table, alpha=0.1), threshold_rule(table[:, ::-1], alpha=0.1, default=1)
    assert_array_equal(here.action, 1 - there.action)


def test_a_larger_alpha_never_returns_a_row_to_the_default() -> None:
    table = shares(300, 3)
    left = [threshold_rule(table, alpha=alpha).action != 0 for alpha in ALPHAS]
    assert all(np.all(b >= a) for a, b in pairwise(left))


# Handing rows to a person.


def test_defer_rule_hands_over_rows_above_the_level() -> None:
    actions = defer_rule(np.array([2, 1, 0]), np.array([0.5, 0.51, 0.0]), level=0.5)
    assert_array_equal(actions.action, [2, 1, 0])
    assert_array_equal(actions.deferred, [False, True, False])


def test_defer_rule_keeps_what_the_rule_knew() -> None:
    table = two([0.02, 0.6])
    actions = defer_rule(map_rule(table), disagreement(table), level=0.3)
    assert_array_equal(actions.action, [0, 1])
    assert_array_equal(actions.deferred, [False, True])
    assert_allclose(actions.probability, table)
    assert_allclose(actions.disagreement, [0.04, 0.8])


def test_the_level_of_the_defer_rule_and_of_policies() -> None:
    """Two actions, fewer than 60 in 100 draws agree: u = 2 min(p, 1 - p) > 0.8 where 0.4 < p < 0.6."""
    p = np.array([0.39, 0.41, 0.5, 0.59, 0.61])
    decided = defer_rule(map_rule(two(p)), disagreement(two(p)))
    assert_array_equal(decided.deferred, [False, True, True, True, False])
    assert DEFER == 0.8
    assert Rule().defer == 1.0, "nobody, unless a level is given"


def test_level_1_defers_nobody() -> None:
    assert not defer_rule(np.zeros(2, int), np.array([1.0, 0.2]), level=1.0).deferred.any()


# Capacity.


def total(gain: np.ndarray, action: np.ndarray) -> float:
    return float(gain[np.arange(len(gain)), action].sum())


def best_total(gain: np.ndarray, places: dict[int, int]) -> float:
    """The largest total gain of all assignments that keep to the places."""
    rows, count = gain.shape
    every = (np.array(actions) for actions in product(range(count), repeat=rows))
    return max(total(gain, a) for a in every if all(np.sum(a == k) <= n for k, n in places.items()))


small = st.integers(-4, 6).map(float)  # whole numbers, so that ties come up


@given(st.lists(small, min_size=1, max_size=7), st.integers(0, 7))
def test_one_limited_action_is_given_as_well_as_can_be(gains: list[float], places: int) -> None:
    gain = np.column_stack([np.zeros(len(gains)), gains])
    actions = capacity_rule(gain, capacity={1: places})
    assert np.sum(actions.action == 1) <= places
    assert_allclose(total(gain, actions.action), best_total(gain, {1: places}))
    assert_allclose(actions.expected_gain, gain[np.arange(len(gain)), actions.action])
    assert np.all(gain[actions.action == 1, 1] > 0.0)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(small, small, small), min_size=1, max_size=5), st.integers(0, 5), st.integers(0, 2))
def test_one_limited_action_beside_an_unlimited_one(
    gains: list[tuple[float, float, float]], places: int, default: int
) -> None:
    gain = np.array(gains)
    limited = (default + 1) % 3
    actions = capacity_rule(gain, capacity={limited: places}, default=default)
    assert np.sum(actions.action == limited) <= places
    assert_allclose(total(gain, actions.action), best_total(gain, {limited: places}))


def test_a_place_goes_where_it_adds_most_to_what_the_row_has_without_it() -> None:
    gain = np.array([[0.0, 10.0, 9.9], [0.0, 9.0, 0.0]])
    assert_array_equal(capacity_rule(gain, capacity={1: 1}).action, [2, 1])  # 18.9; most gain first has 10


def largest_total(gain: np.ndarray, places: dict[int, int], default: int) -> float:
    """The optimum by the Hungarian algorithm: one column per place, and one per row for unlimited actions."""
    rows, count = gain.shape
    columns = [a for a in range(count) for _ in range(places.get(a, rows))]
    taken = linear_sum_assignment(gain[:, columns], maximize=True)
    return float(gain[:, columns][taken].sum())


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(small, small), min_size=1, max_size=6),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_several_limited_actions_keep_to_their_places_and_come_close_to_the_best(
    gains: list[tuple[float, float]], limits: tuple[int, int]
) -> None:
    gain = np.column_stack([np.zeros(len(gains)), np.array(gains)])
    places = {1: limits[0], 2: limits[1]}
    actions = capacity_rule(gain, capacity=places)
    assert all(np.sum(actions.action == a) <= n for a, n in places.items())
    best = best_total(gain, places)
    assert_allclose(largest_total(gain, places, 0), best)
    assert 2.0 * total(gain, actions.action) >= best - 1e-9


def test_a_place_is_filled_by_a_row_that_has_another_place() -> None:
    """Equal gains leave the dearer action empty at its price; one row moves there."""
    gain = np.array([[0.0, 4.0, 1.0], [0.0, 4.0, 1.0]])
    assert_array_equal(capacity_rule(gain, capacity={1: 1, 2: 2}).action, [1, 2])


def test_many_rows_get_nearly_the_largest_total_gain() -> None:
    gain = np.random.default_rng(0).normal(size=(300, 5))
    gain[:, 3] = 0.0
    places = {0: 20, 1: 70, 2: 5, 4: 300}
    actions = capacity_rule(gain, capacity=places, default=3)
    assert all(np.sum(actions.action == a) <= n for a, n in places.items())
    assert total(gain, actions.action) >= 0.999 * largest_total(gain, places, 3)


def test_only_differences_from_the_default_count() -> None:
    rng = np.random.default_rng(1)
    values, level = rng.normal(size=(9, 3)), rng.normal(size=(9, 1))
    here, there = (capacity_rule(v, capacity={1: 2, 2: 0.34}) for v in (values, values + level))
    assert_array_equal(here.action, there.action)
    assert_allclose(here.expected_gain, values[np.arange(9), here.action] - values[:, 0])


@pytest.mark.parametrize(("limit", "places"), [(1, 1), (1.0, 100), (0.29, 29), (0.005, 0), (0, 0), (500, 100)])
def test_shares_are_floats_and_numbers_of_rows_are_whole(limit: float, places: int) -> None:
    gain = np.column_stack([np.zeros(100), np.arange(1.0, 101.0)])
    assert_array_equal(np.flatnonzero(capacity_rule(gain, capacity={1: limit}).action), np.arange(100 - places, 100))


def test_actions_without_a_limit_go_to_everyone_they_help() -> None:
    gain = np.array([[0.0, 1.0, 2.0], [0.0, -1.0, -2.0], [0.0, 3.0, 1.0], [0.0, 0.0, 0.0]])
    assert_array_equal(capacity_rule(gain, capacity={}).action, [2, 0, 1, 0])


def test_costs_are_taken_off_before_ranking() -> None:
    gain = np.array([[0.0, 1.0], [0.0, 3.0]])
    assert_array_equal(capacity_rule(gain, capacity={1: 2}, costs=[0.0, 2.0]).action, [0, 1])
    assert_allclose(capacity_rule(gain, capacity={1: 2}, costs=[0.0, 2.0]).expected_gain, [0.0, 1.0])
    assert_array_equal(capacity_rule(gain, capacity={1: 2}, costs=[5.0, 5.0]).action, [1, 1])  # a common cost


def test_apply_costs() -> None:
    assert_allclose(apply_costs(np.array([[[1.0, 2.0, 3.0]]]), (0.5, 0.0, 4.0)), [[[0.5, 2.0, -1.0]]])


@pytest.mark.parametrize("count", [2, 3])
def test_inclusion_is_the_share_of_draws_that_would_rule_so_alone(count: int) -> None:
    draws = np.random.default_rng(2).normal(0.3, 1.0, size=(25, 12, count))
    capacity = {1: 3} if count == 2 else {1: 3, 2: 0.25}
    actions = capacity_rule(draws, capacity=capacity)
    alone = np.stack([capacity_rule(draw, capacity=capacity).action for draw in draws])
    assert_array_equal(actions.action, capacity_rule(draws.mean(axis=0), capacity=capacity).action)
    for i in range(12):
        assert_allclose(actions.inclusion[i], np.mean(alone[:, i] != 0))
        for a in range(count):
            assert_allclose(actions.draw_share[i, a], np.mean(alone[:, i] == a))
    assert_allclose(actions.disagreement, disagreement(actions.draw_share))
    assert {"action", "share of draws for 1", "disagreement", "expected gain", "inclusion"} <= actions.to_dict().keys()


def test_inclusion_by_hand() -> None:
    gain = np.array([[3.0, 2.0, -1.0], [1.0, 2.0, 0.5]])  # two draws of three rows' gains, one place
    draws = np.stack([np.zeros_like(gain), gain], axis=-1)
    actions = capacity_rule(draws, capacity={1: 1})
    assert_array_equal(actions.action, [1, 0, 0])  # means 2, 2, -0.25: the tie goes to the earlier row
    assert_allclose(actions.inclusion, [0.5, 0.5, 0.0])
    assert_allclose(actions.expected_gain, [2.0, 0.0, 0.0])


# What a rule costs.


def test_assess_by_hand() -> None:
    outcomes = np.array([[0.0, 1.0], [2.0, 1.0], [5.0, 5.0], [0.0, 4.0]])
    p = np.array([0.93, 0.5, 0.05, 1.0])
    assessment = assess(
        threshold_rule(two(p), alpha=0.05), outcomes, reference=np.array([1, 1, 0, 1]), action_probability=two(p),
        alpha=0.05,
    )  # fmt: skip
    assert assessment.welfare == (0.0 + 2.0 + 5.0 + 4.0) / 4
    assert assessment.reference_welfare == (1.0 + 1.0 + 5.0 + 4.0) / 4
    assert assessment.difference == 0.0
    assert_allclose(assessment.difference_se, np.std([-1.0, 1.0, 0.0, 0.0]) / np.sqrt(4))
    assert assessment.uncertain_rate == 0.75  # 0.05 <= p <= 0.95
    assert assessment.change_rate == 0.5
    assert assessment.deferred_share == 0.0
    assert assessment.assumed == "no row is deferred"


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_uncertain_rate_row_by_row(alpha: float, count: int, dtype: type) -> None:
    table = shares(200, count)
    zeros = np.zeros(200, int)
    assessment = assess(
        zeros, np.zeros((200, count)), reference=zeros, action_probability=table.astype(dtype), alpha=alpha
    )
    left = DRAWS - np.round(table[:, 0] * DRAWS)
    edge = round(alpha * DRAWS)
    assert_allclose(assessment.uncertain_rate, np.mean([edge <= n <= DRAWS - edge for n in left]))
    assert assess(zeros, np.zeros((200, count)), reference=zeros).uncertain_rate is None


def test_weights_are_repeated_rows() -> None:
    rng = np.random.default_rng(3)
    outcomes, table = rng.normal(size=(30, 3)), shares(30, 3)
    action, reference = rng.integers(-1, 3, 30), rng.integers(0, 3, 30)
    times = rng.integers(0, 4, 30)
    again = np.repeat(np.arange(30), times)
    whole = assess(
        action, outcomes, reference=reference, action_probability=table, alpha=0.1, deferred_value="reference",
        sample_weight=times.astype(float),
    )  # fmt: skip
    rows = assess(
        action[again], outcomes[again], reference=reference[again], action_probability=table[again], alpha=0.1,
        deferred_value="reference",
    )  # fmt: skip
    for name in ("welfare", "reference_welfare", "difference", "change_rate", "deferred_share", "uncertain_rate"):
        assert_allclose(getattr(whole, name), getattr(rows, name), err_msg=name)


def test_deferred_rows_are_worth_what_is_assumed_and_that_is_said() -> None:
    outcomes = np.array([[0.0, 1.0], [4.0, 3.0]])
    decision = defer_rule(np.array([0, 1]), np.array([0.0, 1.0]))
    reference = np.array([0, 1])
    values = {"best": 4.0, "reference": 3.0}
    for how, value in values.items():
        assessment = assess(decision, outcomes, reference=reference, deferred_value=how)
        assert assessment.welfare == (0.0 + value) / 2
        assert assessment.difference == (value - 3.0) / 2
        assert (assessment.deferred_share, assessment.change_rate) == (0.5, 0.0)  # not counted as changed
        assert how in assessment.assumed
    assessment = assess(decision, outcomes, reference=reference, deferred_value=np.array([99.0, 2.5]))
    assert assessment.welfare == 1.25
    assert "given" in assessment.assumed


# Errors say the value, the rule and the remedy.

GOOD, OUTCOMES, ZEROS = two([0.2, 0.9]), np.zeros((2, 2)), np.zeros(2, int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: map_rule(np.array([0.2, 0.8])), r"\(row, action\).*column_stack"),
        (lambda: disagreement(np.array([[0.2, 0.2]])), "sum to 1"),
        (lambda: disagreement(np.array([[np.nan, 1.0]])), "sum to 1"),
        (lambda: threshold_rule(GOOD, alpha=0.0), r"alpha must be in \(0, 0.5\], got 0.0; try"),
        (lambda: threshold_rule(GOOD, alpha=0.6), "got 0.6.*the default"),
        (lambda: threshold_rule(GOOD, alpha=0.1, default=2), "default must be a column number from 0 to 1, got 2"),
        (lambda: defer_rule(ZEROS, np.zeros(2), level=1.5), "level must be in .*got 1.5"),
        (lambda: defer_rule(ZEROS, np.zeros(3), level=0.5), "one finite number per row"),
        (lambda: defer_rule(np.zeros(2), np.zeros(2), level=0.5), "whole column number"),
        (lambda: apply_costs(OUTCOMES, [1.0]), "one finite number per action"),
        (lambda: capacity_rule(np.zeros(3), capacity={}), "got shape"),
        (lambda: capacity_rule(np.full((2, 2), np.nan), capacity={}), "finite"),
        (lambda: capacity_rule(OUTCOMES, capacity={0: 1}), "names the default action 0"),
        (lambda: capacity_rule(OUTCOMES, capacity={2: 1}), "column number from 0 to 1, got 2"),
        (lambda: capacity_rule(OUTCOMES, capacity={1: 5.0}), "got 5.0; 1.0 is every row, 1 is one row"),
        (lambda: capacity_rule(OUTCOMES, capacity={1: -1}), "got -1"),
        (lambda: capacity_rule(OUTCOMES, capacity={1: True}), "got True"),
        (lambda: assess(np.array([0, -1]), OUTCOMES, reference=ZEROS), "deferred_value is needed"),
        (lambda: assess(np.array([0, -1]), OUTCOMES, reference=ZEROS, deferred_value="x"), "got 'x'"),
        (
            lambda: assess(np.array([0, -1]), OUTCOMES, reference=ZEROS, deferred_value=np.zeros(3)),
            "one number per row",
        ),
        (lambda: assess(ZEROS, OUTCOMES, reference=np.array([0, -1])), "reference must have 2 column numbers from 0"),
        (lambda: assess(np.array([0, 2]), OUTCOMES, reference=ZEROS), "decision must have .* to 1"),
        (lambda: assess(np.zeros(3, int), OUTCOMES, reference=ZEROS), "decision must have 2"),
        (lambda: assess(ZEROS, OUTCOMES, reference=ZEROS, alpha=0.1), "give both or neither"),
        (lambda: assess(ZEROS, OUTCOMES, reference=ZEROS, sample_weight=np.zeros(2)), "zero in every row"),
        (
            lambda: assess(ZEROS, OUTCOMES, reference=ZEROS, alpha=0.1, action_probability=GOOD[:1]),
            "action_probability has 1 rows",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
