"""Who is in within a budget: the total is kept, prices clear it, and draws follow the same rule."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gbpl import budget_rule
from gbpl.decisions.budget import budget_price

RNG = np.random.default_rng(0)
GAIN = np.column_stack([np.zeros(60), RNG.normal(size=(60, 2))])
COST = np.array([0.0, 1.0, 2.5])


def test_whole_rows_spend_no_more_than_the_budget_and_nearly_all_of_it():
    for budget in (0.0, 3.0, 17.3, 60.0):
        found = budget_rule(GAIN, cost=COST, budget=budget)
        assert_allclose(found.spend, COST[found.decisions.action].sum())
        assert budget - COST.max() < found.spend <= budget or found.price == 0.0


def test_price_decides_every_row_by_itself():
    """A row has the action with the largest gain less price times cost, but for the first upgrade that did not fit."""
    found = budget_rule(GAIN, cost=COST, budget=17.3)
    alone = np.argmax(GAIN - (found.price + 1e-9) * COST, axis=1)
    assert_array_equal(found.decisions.action, alone)
    price = budget_price(GAIN, np.broadcast_to(COST, GAIN.shape), 17.3 / 60)
    later = np.argmax(GAIN - price * COST, axis=1)
    assert COST[later].sum() <= 17.3
    assert_array_equal(later, alone)
    assert budget_price(GAIN, np.broadcast_to(COST, GAIN.shape), 3.0) == 0.0


def test_unit_costs_are_a_capacity():
    found = budget_rule(GAIN[:, :2], cost=[0.0, 1.0], budget=5)
    assert_array_equal(np.flatnonzero(found.decisions.action), np.sort(np.argsort(-GAIN[:, 1])[:5]))
    assert_allclose(found.price, np.sort(GAIN[:, 1])[-6])


def test_inclusion_is_the_share_of_draws_by_the_same_rule():
    draws = GAIN + RNG.normal(size=(25, 60, 3))
    found = budget_rule(GAIN, cost=COST, budget=20.0, draws=draws)
    alone = np.stack([budget_rule(draw - draw[:, [0]], cost=COST, budget=20.0).decisions.action for draw in draws])
    assert_allclose(found.decisions.inclusion, np.mean(alone != 0, axis=0))
    assert_allclose(found.decisions.draw_share[:, 2], np.mean(alone == 2, axis=0))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"budget": -1.0}, "budget"), ({"budget": float("nan")}, "budget"), ({"cost": [0.0, 1.0]}, "cost must be")],
)
def test_wrong_budgets_and_costs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        budget_rule(GAIN, **({"cost": COST, "budget": 1.0} | change))
