"""Shapley values against the mean over all orders of the columns, and the axioms (Shapley 1953)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gbpl.frozen.shapley import coalitions, from_leaves, from_orders, from_table


def over_orders(value: Callable[[frozenset[int]], Any], players: int) -> np.ndarray:
    """phi_j = mean over orders of v(before j, and j) - v(before j), one order after the other."""
    known = {frozenset(np.flatnonzero(row).tolist()): None for row in coalitions(players)}
    values = {inside: np.asarray(value(inside), float) for inside in known}
    orders = list(permutations(range(players)))
    total = np.zeros((players, *values[frozenset()].shape))
    for order in orders:
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            total[player] += values[before | {player}] - values[before]
    return total / len(orders)


@pytest.mark.parametrize("players", [1, 2, 6])
def test_a_table_of_coalitions_gives_the_mean_over_all_orders(players: int) -> None:
    table = np.random.default_rng(players).normal(size=2**players)
    found = from_table(table)
    number = {frozenset(np.flatnonzero(row).tolist()): place for place, row in enumerate(coalitions(players))}
    assert_allclose(found, over_orders(lambda inside: table[number[inside]], players), rtol=0, atol=1e-12)
    assert_allclose(found.sum(), table[-1] - table[0], rtol=0, atol=1e-12)  # efficiency


def test_axioms() -> None:
    """A column that changes nothing has 0, two that do the same have the same, and sums of games add up."""
    inside = coalitions(5).astype(float)
    game = np.tanh(inside[:, 0] + inside[:, 1]) * (1.0 + inside[:, 2]) + inside[:, 4]
    found = from_table(game)
    assert abs(found[3]) < 1e-15
    assert_allclose(found[0], found[1], rtol=0, atol=1e-15)
    other = np.random.default_rng(0).normal(size=32)
    assert_allclose(from_table(game + other), found + from_table(other), rtol=0, atol=1e-12)


def walk(feature: np.ndarray, threshold: np.ndarray, x: np.ndarray) -> int:
    """The leaf of a row, node by node."""
    node = 0
    while node < len(feature):
        node = 2 * node + 1 + int(x[feature[node]] > threshold[node])
    return node - len(feature)


@pytest.mark.parametrize("seed", range(5))
def test_leaves_give_the_values_of_trees(seed: int) -> None:
    """Trees of depth 3 in 4 columns, some of which are asked about twice; each column may hold several features."""
    rng = np.random.default_rng(seed)
    trees, players, depth = 6, 4, 3
    owner = np.array([0, 1, 1, 2, 3])
    feature = rng.integers(0, 5, (trees, 2**depth - 1))
    threshold = rng.normal(size=feature.shape)
    value = rng.normal(size=(trees, 2**depth, 2))
    row, reference = rng.normal(size=(2, 5))

    def at(inside: frozenset[int]) -> np.ndarray:
        x = np.where(np.isin(owner, list(inside)), row, reference)
        return sum(value[t, walk(feature[t], threshold[t], x)] for t in range(trees))

    fits = np.ones((2, trees, 2**depth, players), bool)
    for which, x in enumerate((row, reference)):
        for t in range(trees):
            for leaf in range(2**depth):
                node = leaf + 2**depth - 1
                while node:
                    above, right = (node - 1) // 2, node % 2 == 0
                    j = feature[t, above]
                    fits[which, t, leaf, owner[j]] &= (x[j] > threshold[t, above]) == right
                    node = above
    flat = [one.reshape(-1, players) for one in fits]
    assert_allclose(from_leaves(*flat, value.reshape(-1, 2)), over_orders(at, players), rtol=0, atol=1e-12)


def test_orders_estimate_within_their_error_and_add_up_exactly() -> None:
    inside = coalitions(8)
    table = np.random.default_rng(1).normal(size=2**8)
    power = 1 << np.arange(8)
    exact, ratio = from_table(table), []
    for seed in range(40):
        found, error = from_orders(lambda chosen: table[chosen @ power], 8, pairs=50, seed=seed)
        assert_allclose(found.sum(), table[-1] - table[0], rtol=0, atol=1e-12)
        ratio.append((found - exact) / error)
    assert 0.8 < np.std(ratio) < 1.25, "the standard error is what it says"
    assert abs(np.mean(ratio)) < 4.0 / np.sqrt(np.size(ratio))
    assert len(inside) == 256


def test_an_order_and_its_reverse_are_exact_where_at_most_two_columns_interact() -> None:
    """The change of a column depends linearly on who is before it, and each other one is before it once in two."""
    rng = np.random.default_rng(2)
    alone, pairs = rng.normal(size=20), rng.normal(size=(20, 20))

    def value(inside: np.ndarray) -> np.ndarray:
        return inside @ alone + np.einsum("ci,ij,cj->c", inside, pairs, inside)

    found, error = from_orders(value, 20, pairs=3, seed=0)
    assert_allclose(found, alone + np.diag(pairs) + (pairs + pairs.T - 2 * np.diag(np.diag(pairs))).sum(axis=1) / 2)
    assert error.max() < 1e-12
