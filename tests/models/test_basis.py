"""Leaves and curves: a walk down each tree, and what makes a natural cubic spline one; numpy and JAX alike."""

from __future__ import annotations

from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.interpolate import CubicSpline

from gbpl import ForestFeatures, Splines
from gbpl.models.basis import leaf_numbers, leaf_sums, spline_curves

rng = np.random.default_rng(0)
X = rng.normal(size=(300, 3)).astype(np.float32)
KNOTS = [3, 4, 6, 12, 20, 50]


# -- trees ----------------------------------------------------------------------------------------------------------


def trees(depth: int, count: int = 5):
    """Nodes of which some are not split, and thresholds of which half are values of rows."""
    nodes = 2**depth - 1
    feature = rng.integers(0, X.shape[1], (count, nodes)).astype(np.int32)
    threshold = rng.normal(size=feature.shape).astype(np.float32)
    threshold = np.where(rng.random(feature.shape) < 0.5, X[rng.integers(0, len(X), feature.shape), feature], threshold)
    threshold[rng.random(feature.shape) < 0.2] = np.inf
    return feature, threshold, rng.normal(size=(count, nodes + 1, 4)).astype(np.float32)


def walk(feature, threshold, row) -> int:
    node = 0
    while node < len(feature):
        node = 2 * node + (1 if row[feature[node]] <= threshold[node] else 2)
    return node - len(feature)


@pytest.mark.parametrize("depth", [1, 2, 5, 10])
def test_leaves_are_those_of_a_walk(depth):
    feature, threshold, _ = trees(depth)
    expected = [[walk(f, t, row) for f, t in zip(feature, threshold, strict=True)] for row in X]
    assert_array_equal(leaf_numbers(feature, threshold, X), expected)
    assert leaf_numbers(feature, threshold, X[:0]).shape == (0, 5)


def test_blocks_of_rows_and_their_layout_change_nothing(monkeypatch):
    feature, threshold, _ = trees(4)
    expected = leaf_numbers(feature, threshold, X)
    monkeypatch.setattr("gbpl.models.basis.ROWS", 77)
    assert_array_equal(leaf_numbers(feature, threshold, np.asfortranarray(X)), expected)
    assert_array_equal(leaf_numbers(feature, threshold, np.repeat(X, 2, axis=1)[:, ::2]), expected)


def test_every_value_goes_left_where_nothing_is_split():
    feature, threshold = np.zeros((1, 3), np.int32), np.full((1, 3), np.inf, np.float32)
    far = np.array([[-np.inf], [np.finfo(np.float32).max], [np.inf]], np.float32)
    assert leaf_numbers(feature, threshold, far).tolist() == [[0], [0], [0]]


@pytest.mark.parametrize("depth", [1, 5])
def test_sums_of_leaves_are_the_model_s_features(depth):
    feature, threshold, value = trees(depth)
    model = ForestFeatures(trees=5, depth=depth, components=4)
    grown = {"feature": jnp.asarray(feature, jnp.float32), "threshold": threshold, "value": value}
    found = leaf_sums(value, leaf_numbers(feature, threshold, X))
    assert_allclose(found, sum(value[t, [walk(feature[t], threshold[t], row) for row in X]] for t in range(5)))
    assert_array_equal(found, model.features([grown], jnp.asarray(X)), "the same sums in the same order")


# -- splines --------------------------------------------------------------------------------------------------------


def knots_at(knots: int) -> np.ndarray:
    return np.array([NormalDist().inv_cdf((number + 0.5) / knots) for number in range(knots)])


def curves(x, knots: int) -> np.ndarray:
    return spline_curves(np.asarray(x, np.float32)[:, None], knots)


@pytest.mark.parametrize("knots", KNOTS)
def test_curves_are_orthonormal_under_the_normal(knots):
    x = np.linspace(-9.0, 9.0, 200_001)
    weight = np.exp(-0.5 * x**2) / np.exp(-0.5 * x**2).sum()
    basis = np.column_stack([np.ones_like(x), curves(x, knots)]).astype(np.float64)
    assert_allclose((basis * weight[:, None]).T @ basis, np.eye(knots), atol=2e-5)


@pytest.mark.parametrize("knots", KNOTS)
def test_curves_are_natural_cubic_splines(knots):
    """Through its values at the knots goes one natural spline, and beyond them one line on either side."""
    places = knots_at(knots)
    x = np.linspace(places[0], places[-1], 501)
    through = CubicSpline(places, curves(places, knots).astype(np.float64), bc_type="natural")
    size = np.abs(through(x)).max()
    assert_allclose(curves(x, knots), through(x), atol=2e-5 * size)
    for end, away in ((places[0], -1.0), (places[-1], 1.0)):
        far = end + away * np.array([0.0, 1.0, 2.0, 50.0])
        line = through(end) + np.outer(far - end, through(end, 1))
        assert_allclose(curves(far, knots), line, rtol=1e-3, atol=2e-4 * size)


def test_the_first_curve_is_the_line_and_features_stand_beside_each_other():
    found = spline_curves(X, 5)
    assert found.shape == (300, 12)
    assert_allclose(found[:, ::4], X, atol=1e-5)
    for j in range(3):
        assert_array_equal(found[:, 4 * j : 4 * j + 4], spline_curves(X[:, [j]], 5))


@pytest.mark.parametrize("knots", KNOTS)
def test_numpy_and_jax_agree_to_rounding(knots):
    """Also far from the knots, where cubes would cancel."""
    for x in (X, 4.0 * X, 100.0 * X):
        found = spline_curves(x, knots)
        assert found.dtype == np.float32
        assert_allclose(found, Splines(knots).features([], jnp.asarray(x)), rtol=3e-6, atol=3e-6 * np.abs(found).max())
