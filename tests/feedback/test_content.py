"""Orders by content: they follow the rows and columns, not their places, units or names."""

import numpy as np
import pytest

from gbpl.feedback.content import column_order, content_order, distinct_rows
from gbpl.feedback.read import read_feedback


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.normal(size=60), rng.integers(3, size=60), rng.integers(3, size=60)])
    action = rng.integers(3, size=60)
    return x, action, rng.normal(size=60)


def _ordered(x, action, outcome, names=None):
    labels = action if names is None else np.array(names)[action]
    order, rank = content_order(read_feedback(x, outcome, action=labels))
    return order, rank[order]


def test_rows_come_in_one_order_whatever_theirs_was(log):
    x, action, outcome = log
    order, rank = _ordered(*log)
    shuffled = np.random.default_rng(0).permutation(60)
    again, same = _ordered(x[shuffled], action[shuffled], outcome[shuffled])
    np.testing.assert_array_equal(shuffled[again], order)
    np.testing.assert_array_equal(same, rank)


def test_names_of_actions_order_of_columns_and_units_do_not_matter(log):
    x, action, outcome = log
    order, rank = _ordered(*log)
    for again in (
        _ordered(x, action, outcome, names=["b", "c", "a"]),
        _ordered(x[:, [2, 0, 1]], action, outcome),
        _ordered(7.0 * x + 3.0, action, 0.1 * outcome),
        _ordered(np.column_stack([np.ones(60), x]), action, outcome),
    ):
        np.testing.assert_array_equal(again[0], order)
        np.testing.assert_array_equal(again[1], rank)


def test_columns_that_vary_come_in_one_order(log):
    x = log[0]
    order = column_order(x, np.ones(3))
    np.testing.assert_array_equal(np.array([2, 0, 1])[column_order(x[:, [2, 0, 1]], np.ones(3))], order)
    assert column_order(x, np.array([1.0, 0.0, 1.0])).tolist() == [j for j in order if j != 1]


def test_columns_of_the_same_values_in_other_rows_are_told_apart():
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.permutation(40) for _ in range(5)]).astype(float)
    mixed = rng.permutation(5)
    np.testing.assert_array_equal(mixed[column_order(x[:, mixed], np.ones(5))], column_order(x, np.ones(5)))


@pytest.mark.parametrize(("counts", "times"), [([2] * 25, 2), ([4, 6] * 12, 2), ([3] * 30, 3), ([2] * 24 + [1], 1)])
def test_rows_are_there_as_often_as_the_common_divisor_of_their_counts(counts, times):
    values = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts)).astype(float)
    found, rows = distinct_rows(values)
    assert found == times
    np.testing.assert_array_equal(np.bincount(values[rows].astype(int)), np.array(counts) // times)


def test_few_different_rows_repeat_by_chance():
    assert distinct_rows(np.repeat([0.0, 1.0], 50))[0] == 1
