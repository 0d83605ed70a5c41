"""Trees of many outputs: what the splits look at, and how that grows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.calls import record_calls

import gbpl.trees.grow
from gbpl.trees.grow import OUTPUTS, Binned, _columns, forest_predictions

TREE, ROW = np.repeat(np.arange(2000, dtype=np.int32), 3), np.tile(np.arange(3, dtype=np.int32), 2000)


def test_few_outputs_are_seen_as_they_are() -> None:
    target = np.random.default_rng(0).normal(size=(3, 2 * OUTPUTS))
    columns = _columns(target, TREE, ROW, np.random.default_rng(1))
    assert_array_equal(np.array(columns), target[ROW].T)


def test_products_of_random_directions_have_those_of_all_outputs_as_their_mean() -> None:
    """E sum_j (y'g_j)(z'g_j) / J = y'z: the sums of squares of a split, and so its score, in expectation over trees."""
    target = np.random.default_rng(0).normal(size=(3, 30))
    columns = np.array(_columns(target, TREE, ROW, np.random.default_rng(1))).reshape(OUTPUTS, 2000, 3)
    products = np.einsum("jtr,jts->trs", columns, columns) / OUTPUTS
    error = products.std(axis=0, ddof=1) / np.sqrt(2000)
    assert np.all(np.abs(products.mean(axis=0) - target @ target.T) < 4.0 * error)
    assert not np.allclose(columns[:, 0], columns[:, 1])  # each tree has its own


@pytest.mark.parametrize("outputs", [20, 40])
def test_work_does_not_grow_with_the_outputs(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over the rows for each output made 34 actions take minutes."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    x[:, 0] = np.sign(x[:, 0])  # two values, so that no row is on the other side of another tree's cut
    target = np.where(x[:, :1] > 0, 1.0, -1.0) * rng.normal(size=outputs)
    calls = record_calls(monkeypatch, "_sums", gbpl.trees.grow)
    found = forest_predictions(
        Binned.of(x), target, np.arange(200), trees=20, bag=0.5, min_leaf=3, max_features=1.0, seed=0
    )
    assert {len(call.arguments[1]) for call in calls} == {OUTPUTS}
    assert_allclose(found, target, atol=1e-9)  # the leaves hold the means of all outputs
