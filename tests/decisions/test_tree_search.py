"""The best tree of a table of scores, against an exhaustive search that knows nothing of sums or cuts in a line."""

from itertools import product

import numpy as np
import pytest

from gbpl.decisions.cuts import Cuts, Limits
from gbpl.decisions.every_cut import best_of_every_cut
from gbpl.decisions.tree_search import TreeSearch


def every_tree(x, scores, rows, depth, limits):
    """The best welfare by number of leaves and set of actions used, over all trees of at most a depth."""
    best = {(1, frozenset([a])): scores[rows, a].sum() for a in range(scores.shape[1])}
    if depth == 0:
        return best
    for j in range(x.shape[1]):
        for cut in np.unique(x[:, j])[:-1]:
            left, right = rows[x[rows, j] <= cut], rows[x[rows, j] > cut]
            if min(len(left), len(right)) < limits.rows:
                continue
            parts = [every_tree(x, scores, part, depth - 1, limits).items() for part in (left, right)]
            for ((one, a), value), ((two, b), other) in product(*parts):
                ranks = limits.ranks.get(j)
                if ranks is not None and max(ranks[k] for k in a) > min(ranks[k] for k in b):
                    continue
                key = one + two, a | b
                best[key] = max(best.get(key, -np.inf), value + other)
    return best


def problem(seed):
    """A small problem with ties, and limits of some kind."""
    rng = np.random.default_rng(seed)
    depth, actions = 1 + seed % 3, 2 + seed % 4 % 3
    n, d = (14, 2) if depth == 3 else (24, 3)
    x = rng.integers(0, 4 if depth == 3 else 7, (n, d)).astype(float)
    scores = rng.normal(size=(n, actions)).round(1)
    kind = seed % 5
    limits = Limits(
        leaves=[None, 3, None, 2, 5][kind],
        rows=[1, 1, 3, 2, 1][kind],
        ranks={1: tuple(rng.permutation(actions).tolist())} if kind in (2, 4) else {},
    )
    return x, scores, depth, limits


def welfare_of(tree, x, scores):
    return scores[np.arange(len(x)), tree.actions(x)].sum()


def search_of(x, scores, limits, most=None):
    return TreeSearch(Cuts.of(x, tuple(range(x.shape[1])), most), scores[:, 1:] - scores[:, :1], limits)


@pytest.mark.parametrize("batch", range(4))
def test_no_tree_is_better(batch):
    """100 random problems: depths 1 to 3, two to four actions, ties, leaves, rows and ranks."""
    for seed in range(25 * batch, 25 * batch + 25):
        x, scores, depth, limits = problem(seed)
        tree = search_of(x, scores, limits).best(depth)
        all_trees = every_tree(x, scores, np.arange(len(x)), depth, limits)
        best = max(value for (leaves, _), value in all_trees.items() if leaves <= (limits.leaves or 99))
        assert welfare_of(tree, x, scores) == pytest.approx(best, abs=1e-9)
        assert tree.leaves <= (limits.leaves or 2**depth)
        assert np.unique(tree.leaf(x), return_counts=True)[1].min() >= limits.rows
        for j, ranks in limits.ranks.items():  # raising the feature, all else equal, never lowers the rank
            low, high = x.copy(), x.copy()
            for a, b in product(range(7), range(7)):
                low[:, j], high[:, j] = min(a, b), max(a, b)
                assert np.all(np.array(ranks)[tree.actions(low)] <= np.array(ranks)[tree.actions(high)])


@pytest.mark.parametrize("seed", range(12))
def test_every_cut_of_continuous_features(seed):
    """The merge of halves gives what the table of pairs gives with all cuts; so with leaves and rows."""
    rng = np.random.default_rng(seed)
    n, d, actions = [(40, 3, 2), (65, 2, 3), (33, 3, 4)][seed % 3]
    x, scores = rng.normal(size=(n, d)), rng.normal(size=(n, actions))
    x[:, 0] = x[:, 0].round(seed % 2)
    for limits in (Limits(), Limits(rows=4), Limits(leaves=3), Limits(leaves=2, rows=5)):
        search = search_of(x, scores, limits)
        tree, exact = best_of_every_cut(search)
        assert exact
        assert welfare_of(tree, x, scores) == pytest.approx(welfare_of(search.best(2), x, scores), abs=1e-9)
        assert np.unique(tree.leaf(x), return_counts=True)[1].min() >= limits.rows


def test_depth_four_and_weights():
    """Depth 4 is at least as good as 3, and weighted scores are scores of repeated rows."""
    rng = np.random.default_rng(0)
    x, scores = rng.integers(0, 4, (40, 2)).astype(float), rng.normal(size=(40, 2))
    values = [welfare_of(search_of(x, scores, Limits()).best(depth), x, scores) for depth in (1, 2, 3, 4)]
    assert values == sorted(values)
    assert values[3] == pytest.approx(max(every_tree(x, scores, np.arange(40), 4, Limits()).values()), abs=1e-9)


def test_nothing_to_split():
    """Constant features, or no better split: one leaf."""
    x, scores = np.ones((10, 2)), np.tile([0.0, 1.0], (10, 1))
    for depth in (1, 2, 3):
        tree = search_of(x, scores, Limits()).best(depth)
        assert tree.leaves == 1
        assert tree.actions(x).tolist() == [1] * 10
    x = np.arange(20.0).reshape(10, 2)
    assert search_of(x, scores, Limits()).best(2).leaves == 1
    assert best_of_every_cut(search_of(x, scores, Limits()))[0].leaves == 1


def test_cuts_at_quantiles():
    """At most so many cuts in all, each with the plainest number between two values, and every row on its side."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.normal(size=500), rng.integers(0, 2, 500), np.full(500, 3.0)])
    cuts = Cuts.of(x, (0, 1, 2), 9)
    assert cuts.features == (0, 1)
    assert [len(low) for low in cuts.low] == [8, 1]
    assert not cuts.exact
    assert Cuts.of(x, (1, 2), 1).exact
    for place in range(8):
        number, feature, point = cuts.at(place)
        assert (number, feature) == (0, 0)
        assert np.array_equal(x[:, 0] <= point, cuts.bins[:, 0] <= place)
        assert np.mean(x[:, 0] <= point) == pytest.approx((place + 1) / 9, abs=0.003)
