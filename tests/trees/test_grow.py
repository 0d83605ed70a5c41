"""Trees by histograms: scikit-learn's own where bins hold one value each, nearly as good where they hold more."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

import gbpl.trees.grow
from gbpl.models.basis import leaf_numbers
from gbpl.trees.grow import LEFT, Binned, forest_predictions, grow_trees, leaves_of

N = 400


def sample(values: int | None, outputs: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features with so many different values, and a step, an interaction and noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 3)) if values is None else rng.integers(values, size=(N, 3)).astype(float)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    mean = np.column_stack([np.where(x[:, 0] > 0.3, 1.0, -1.0) + x[:, 1] * x[:, 2], x[:, 1]])[:, :outputs]
    return x.astype(np.float32), mean + rng.normal(size=mean.shape)


def tree(x, y, *, depth=3, min_leaf=8, weights=None, max_features=1.0):
    binned = Binned.of(x)
    grown = grow_trees(
        binned, y, np.ones((1, N), bool), depth=depth, min_leaf=min_leaf, max_features=max_features, seed=0,
        weights=weights,
    )  # fmt: skip
    return binned, *grown


def squared_error(leaf, y):
    return sum(np.sum((y[leaf == one] - y[leaf == one].mean(axis=0)) ** 2) for one in np.unique(leaf))


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_with_a_value_per_bin_the_tree_is_that_of_scikit_learn(outputs, weighted):
    x, y = sample(40, outputs)
    weights = np.random.default_rng(5).uniform(0.2, 3.0, N) if weighted else None
    leaf = leaves_of(*tree(x, y, weights=weights))[:, 0]
    oracle = DecisionTreeRegressor(max_depth=3, min_samples_leaf=8, random_state=0)
    theirs = oracle.fit(x, y, sample_weight=weights).apply(x)
    assert len(np.unique(theirs)) > 5
    assert_array_equal(leaf[:, None] == leaf, theirs[:, None] == theirs)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_splits_by_sorted_rows_are_those_of_scikit_learn(outputs, weighted, monkeypatch):
    """However many values there are: each cut lies between two neighbours of its node."""
    monkeypatch.setattr(gbpl.trees.grow, "FEW_ROWS", N + 1)
    x, y = sample(None, outputs)
    weights = np.random.default_rng(5).uniform(0.2, 3.0, N) if weighted else None
    leaf = leaves_of(*tree(x, y, depth=6, min_leaf=4, weights=weights))[:, 0]
    oracle = DecisionTreeRegressor(max_depth=6, min_samples_leaf=4, random_state=0)
    theirs = oracle.fit(x, y, sample_weight=weights).apply(x)
    assert len(np.unique(theirs)) > 15
    assert_array_equal(leaf[:, None] == leaf, theirs[:, None] == theirs)


@pytest.mark.parametrize("weighted", [False, True])
def test_both_searches_find_the_same_trees_where_a_bin_holds_one_value(weighted, monkeypatch):
    x, y = sample(40, 2)
    bags, weights = np.random.default_rng(1).random((7, N)) < 0.5, np.random.default_rng(5).uniform(0.2, 3.0, N)
    found = []
    for few in (0, N + 1):
        monkeypatch.setattr(gbpl.trees.grow, "FEW_ROWS", few)
        binned = Binned.of(x)
        found.append(grow_trees(
            binned, y, bags, depth=6, min_leaf=2, max_features=0.7, seed=3, weights=weights if weighted else None
        ))  # fmt: skip
    (feature, cut), (others, other_cut) = found
    for leaf, other, own in zip(
        leaves_of(binned, feature, cut).T, leaves_of(binned, others, other_cut).T, bags, strict=True
    ):
        assert_array_equal(leaf[own], other[own])


def test_with_many_values_the_first_split_is_as_good_as_the_best():
    for seed in range(5):
        x, y = sample(None, seed=seed)
        ours = squared_error(leaves_of(*tree(x, y, depth=1))[:, 0], y)
        best = squared_error(DecisionTreeRegressor(max_depth=1, min_samples_leaf=8).fit(x, y).apply(x), y)
        assert best <= ours * (1 + 1e-9)
        assert ours <= 1.005 * best


def test_thresholds_send_rows_where_the_bins_did():
    for values in (7, None):
        x, y = sample(values)
        binned, feature, cut = tree(x, y)
        assert_array_equal(leaf_numbers(feature, binned.thresholds(feature, cut), x), leaves_of(binned, feature, cut))


def test_leaves_have_their_rows_and_a_level_of_the_target_changes_nothing():
    x, y = sample(None)
    binned, feature, cut = tree(x, y, depth=5, min_leaf=20)
    assert np.unique(leaves_of(binned, feature, cut), return_counts=True)[1].min() >= 20
    _, again, same = tree(x, y + 1e6, depth=5, min_leaf=20)
    assert_array_equal(feature, again)
    assert_array_equal(cut, same)


def test_what_cannot_be_split_is_not():
    x, y = sample(None)
    assert np.all(tree(x, np.full((N, 1), 0.1))[2] == LEFT)
    assert np.all(tree(np.ones_like(x), y)[2] == LEFT)
    assert np.all(tree(x, y, min_leaf=N // 2 + 1)[2] == LEFT)


def test_a_node_looks_at_a_share_of_the_features():
    x, y = sample(None)
    bags = np.ones((60, N), bool)
    feature, _ = grow_trees(Binned.of(x), y, bags, depth=1, min_leaf=8, max_features=0.34, seed=0)
    assert_allclose(np.bincount(feature[:, 0], minlength=3) / 60, 1 / 3, atol=4 * np.sqrt(2 / 9 / 60))


def test_a_forest_predicts_like_that_of_scikit_learn():
    (x, y), rows = sample(None, 2), np.arange(300)
    ours = forest_predictions(
        Binned.of(x), y, rows, trees=200, bag=0.5, min_leaf=3, max_features=0.5, seed=0
    )  # fmt: skip
    oracle = RandomForestRegressor(
        200, min_samples_leaf=3, max_features=0.5, max_samples=0.5, oob_score=True, random_state=0
    ).fit(x[:300], y[:300])  # fmt: skip
    truth = np.column_stack([np.where(x[:, 0] > 0.3, 1.0, -1.0) + x[:, 1] * x[:, 2], x[:, 1]])
    error, theirs = np.mean((ours[300:] - truth[300:]) ** 2), np.mean((oracle.predict(x[300:]) - truth[300:]) ** 2)
    assert error < 1.1 * theirs
    out_of_bag, theirs = np.mean((ours[:300] - y[:300]) ** 2), np.mean((oracle.oob_prediction_ - y[:300]) ** 2)
    assert 0.9 * theirs < out_of_bag < 1.1 * theirs  # by trees that did not see the row


def test_rows_outside_the_bags_are_not_looked_at():
    (x, y), rows = sample(None), np.arange(200)
    other = y.copy()
    other[200:] = 1e3
    settings = dict(trees=10, bag=0.6, min_leaf=3, max_features=1.0, seed=3)
    assert_array_equal(
        forest_predictions(Binned.of(x), y, rows, **settings), forest_predictions(Binned.of(x), other, rows, **settings)
    )


@pytest.mark.parametrize("cores", ["1", "3"])
def test_trees_grown_a_few_at_a_time_are_the_same(cores, monkeypatch):
    """Where every feature is looked at nothing is drawn; where some are, groups draw apart, however many threads."""
    x, y = sample(None)
    binned, bags = Binned.of(x), np.random.default_rng(1).random((25, N)) < 0.5
    monkeypatch.setenv("GBPL_CPU_DEVICES", cores)
    settings = {"depth": 3, "min_leaf": 5, "seed": 4}
    together = grow_trees(binned, y, bags, max_features=1.0, **settings)
    monkeypatch.setattr(gbpl.trees.grow, "MANY_SEEN", 100)
    for one, other in zip(together, grow_trees(binned, y, bags, max_features=1.0, **settings), strict=True):
        assert_array_equal(one, other)
    drawn = grow_trees(binned, y, np.repeat(bags[:1], 25, axis=0), max_features=0.4, **settings)
    assert len(np.unique(np.column_stack(drawn), axis=0)) > 10
    first, *_ = drawn
    assert not np.array_equal(first[:10], first[10:20])
    monkeypatch.setenv("GBPL_CPU_DEVICES", "2")
    again = grow_trees(binned, y, np.repeat(bags[:1], 25, axis=0), max_features=0.4, **settings)
    assert_array_equal(first, again[0])
