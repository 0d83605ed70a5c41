"""Scorecards that climb the welfare: against every card of a small kind, and what they keep to."""

from itertools import product

import numpy as np
import pytest

from gbpl.decisions.card_search import best_card
from gbpl.decisions.cuts import Cuts, Limits


def card_of(x, scores, limits=None, conditions=3, features=None):
    cuts = Cuts.of(x, tuple(range(x.shape[1])) if features is None else features)
    return best_card(cuts, scores[:, 1:] - scores[:, :1], limits or Limits(), conditions)


def welfare_of(card, x, scores):
    return scores[np.arange(len(x)), card.actions(x)].sum()


@pytest.mark.parametrize("seed", range(10))
def test_one_condition_is_the_best_threshold(seed):
    """With one condition and two actions, a scorecard is a threshold, and the best one is found."""
    rng = np.random.default_rng(seed)
    x, scores = rng.integers(0, 9, (40, 3)).astype(float), rng.normal(size=(40, 2))
    best = scores.sum(axis=0).max()
    for j, cut, (a, b) in product(range(3), range(8), ((0, 1), (1, 0))):
        best = max(best, np.where(x[:, j] > cut, scores[:, a], scores[:, b]).sum())
    assert welfare_of(card_of(x, scores, conditions=1), x, scores) == pytest.approx(best)


def test_two_of_three():
    """A rule that no tree of depth 2 can say: at least two of three conditions."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(600, 4))
    scores = np.column_stack([np.zeros(600), np.where(np.sum(x[:, :3] > 0.0, axis=1) >= 2, 1.0, -1.0)])
    card = card_of(x, scores)
    assert sorted(card.feature.tolist()) == [0, 1, 2]
    assert welfare_of(card, x, scores) > 0.98 * scores.max(axis=1).sum()


def test_three_actions_ranks_and_rows():
    """Each action where it is best; raising a feature moves towards the ranks; a cut leaves enough rows."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(500, 3))
    scores = np.column_stack([np.zeros(500), np.where(x[:, 0] > 0.0, 1.0, -1.0), np.where(x[:, 1] > 1.0, 3.0, -2.0)])
    card = card_of(x, scores, conditions=4)
    assert welfare_of(card, x, scores) > 0.97 * scores.max(axis=1).sum()
    limits = Limits(rows=100, ranks={0: (0, 0, 1)})
    kept = card_of(x, scores, limits, conditions=4)
    low, high = x.copy(), x.copy()
    low[:, 0], high[:, 0] = -9.0, 9.0
    assert np.all((kept.actions(low) == 2) <= (kept.actions(high) == 2))
    for j, cut in zip(kept.feature, kept.threshold, strict=True):
        assert 100 <= np.sum(x[:, j] > cut) <= 400
    assert set(card_of(x, scores, features=(2,)).feature.tolist()) <= {2}


def test_one_action_for_everybody():
    """Where nothing helps, no condition is left."""
    x, scores = np.arange(20.0).reshape(10, 2), np.tile([0.0, -1.0, 1.0], (10, 1))
    card = card_of(x, scores)
    assert len(card.feature) == 0
    assert card.actions(x).tolist() == [2] * 10
