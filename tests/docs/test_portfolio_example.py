"""The portfolio example: what it learns from, what it pays for, and what it measures."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from support.examples import example, run_once


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return run_once(tmp_path_factory)


def test_portfolio_weights_are_portfolios_and_intervals_hold_years(ran: Callable[..., Any]) -> None:
    results = ran("portfolio", quick=True)
    for name, weights in results["weights"].items():
        assert np.all(weights >= 0), name
        held = weights.sum(axis=1)
        assert np.all((np.abs(held - 1) < 1e-5) | (held == 0)), name  # all in the industries, or all in bills
    years = results["years"]
    inside = {}
    for name in ("mean", "ahead"):
        low, high = np.quantile(years[name], [0.05, 0.95], axis=1)
        inside[name] = np.mean((low <= years["came"]) & (years["came"] <= high))
    assert inside["mean"] + 0.3 < inside["ahead"]  # not knowing a mean is little beside what a year may bring


def test_portfolio_does_not_look_ahead(ran: Callable[..., Any]) -> None:
    module = example("portfolio")
    before = ran("portfolio", quick=True)["weights"]
    months = module.load_months()
    first = int(np.flatnonzero(months["year"] == module.FIRST)[0])
    rng, later = np.random.default_rng(0), np.arange(len(months["returns"]))[:, None] >= first
    changed = months | {"returns": np.where(later, 0.05 * rng.normal(size=months["returns"].shape), months["returns"])}
    weights, lived = module.menu(changed), np.arange(module.MEMORY, len(later))
    for a, name in enumerate(module.MENU[:-1]):  # known when its first month begins
        np.testing.assert_allclose(weights[first, a], before[name][0], atol=1e-9)
    net = np.stack([module.follow(weights[lived, a], changed, lived)["net"] for a in range(len(module.MENU))], axis=1)
    table = module.utilities(net, months["bill"][lived])["log"]
    fits = module.fit_years(changed, dict.fromkeys((module.LOG,), table), [first], 0)
    choice = module.decide(fits[module.LOG], weights, changed, np.array([first]), 1)
    np.testing.assert_allclose(weights[first, choice[0]], before[module.LOG][0], atol=1e-9)


def test_portfolio_folds_are_apart_in_time() -> None:
    module = example("portfolio")
    block, kept = module.purged_blocks(300)
    rows = np.flatnonzero(kept)
    assert len(np.unique(block[rows])) == module.BLOCKS
    between = [later - earlier for earlier, later in pairwise(rows) if block[earlier] != block[later]]
    assert between == [module.GAP + 1] * (module.BLOCKS - 1)
    assert module.GAP >= module.AHEAD + 12  # of outcomes, and of what features look back


def test_portfolio_stays_where_moving_costs_more_than_it_brings() -> None:
    module = example("portfolio")

    class Expects:
        def expected_gain(self, x: np.ndarray, *, default: str) -> np.ndarray:
            return np.array([[0.0, 0.012, 0.0, 0.0, -1.0]])

    returns = np.zeros((12, 2))
    months = {"returns": returns, "bill": np.zeros(12), "state": np.zeros((12, 1))}
    weights = np.tile(np.array([[0.5, 0.5], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5], [0.0, 0.0]]), (12, 1, 1))
    for cost, choice in ((0.011, 1), (0.013, 0)):  # moving trades 0.5 out of one and into the other
        module.COST = cost
        assert set(module.decide([Expects()], weights, months, np.arange(12), 1)) == {choice}


def test_portfolio_measures_are_those_of_the_textbook() -> None:
    module = example("portfolio")
    rng = np.random.default_rng(0)
    net, bill = 0.01 + 0.05 * rng.normal(size=(1200, 2)), np.full(1200, 0.002)
    paths = {name: {"net": net[:, j], "traded": np.full(1200, 0.1)} for j, name in enumerate(("1/N", "other"))}
    part, excess = module.measures(paths, bill)["other"], net[:, 1] - 0.002
    assert part["mean"] == pytest.approx(12 * excess.mean())
    assert part["sharpe"] == pytest.approx(np.sqrt(12) * excess.mean() / excess.std())
    assert part["certain"] == pytest.approx(12 * (excess.mean() - module.AVERSION / 2 * excess.var()))
    assert part["mean se"] == pytest.approx(12 * excess.std() / np.sqrt(1200), rel=0.15)  # independent months
    assert part["growth gain"][0] == pytest.approx(12 * np.diff(np.log1p(net).mean(axis=0))[0])
    assert part["growth gain"][1] < part["growth gain"][0] < part["growth gain"][2]
    assert part["turnover"] == pytest.approx(0.6)
    drawn = module.stationary_bootstrap(500)
    follows = np.diff(drawn, axis=1) % 500 == 1
    assert follows.mean() == pytest.approx(1 - 1 / module.BLOCK + 1 / module.BLOCK / 500, abs=0.002)
    assert np.bincount(drawn.ravel(), minlength=500).std() / module.RESAMPLES < 0.1  # no month is favoured


def test_portfolio_pays_for_its_trades_and_estimates_as_the_field_does() -> None:
    module, rng = example("portfolio"), np.random.default_rng(0)
    returns = 0.01 + 0.05 * rng.normal(size=(120, 2)) * [1.0, 2.0]
    months = {"returns": returns, "bill": np.full(120, 0.002)}
    path = module.follow(np.tile([0.5, 0.25], (3, 1)), months, np.arange(3))
    grown = np.array([0.5, 0.25]) * (1 + returns[0]) / (1 + returns[0] @ [0.5, 0.25] + 0.25 * 0.002)
    assert path["traded"][:2] == pytest.approx([0.0, np.abs(np.array([0.5, 0.25]) - grown).sum()])
    expected = returns[1] @ [0.5, 0.25] + 0.25 * 0.002 - module.COST * path["traded"][1]
    assert path["net"][1] == pytest.approx(expected)
    covariance, mean = np.array([[2.0, 0.5], [0.5, 3.0]]), np.array([0.4, 0.6])
    free = (covariance[1, 1] - covariance[0, 1] + mean[0] - mean[1]) / (covariance[0, 0] + covariance[1, 1] - 1.0)
    assert module.long_only(mean, covariance)[0] == pytest.approx(free, abs=1e-4)  # the first-order condition
    safe, growing = module.estimated(returns)
    assert safe[0] == pytest.approx(0.8, abs=0.06)  # variances of one and four
    assert np.log1p(returns @ growing).mean() >= np.log1p(returns @ safe).mean() - 1e-3
    total = np.log1p(returns)
    year = module.utilities(returns, months["bill"])
    assert year["log"][5] == pytest.approx(total[5:17].sum(axis=0))
    excess = np.expm1(total[5:17].sum(axis=0)) - (1.002**12 - 1)
    assert year["quadratic"][5] == pytest.approx(excess - module.AVERSION / 2 * excess**2)
