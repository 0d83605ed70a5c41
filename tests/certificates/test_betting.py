"""Bounds by betting: exact expectations over every path, the state, and violations at any time."""

import itertools
import json
import math

import numpy as np
import pytest

from gbpl.certificates.betting import Bets, Wealth, interval, lower_bound, plug_in_lower_bound

TWO = Bets((0.3, 4.0), (0.25, 0.75))


def paths(probability, rows):
    """Every path of 0/1 values with its probability; `probability(past)` is that of a one."""
    for path in itertools.product((0.0, 1.0), repeat=rows):
        chances = [probability(path[:t]) for t in range(rows)]
        yield np.array(path), math.prod(p if y else 1.0 - p for y, p in zip(path, chances, strict=True)), chances


def test_wealth_is_the_product_of_stakes_and_is_expected_to_stay_at_one():
    p, low, expected = 0.37, -1.5, 0.0
    for path, chance, _ in paths(lambda past: p, 6):
        values = low + 2.0 * path
        mean = 2.0 * p  # above the lower end
        stakes = [np.prod((1.0 + c * 2.0 * path) / (1.0 + c * mean)) for c in TWO.sizes]
        wealth = float(np.exp(Wealth.start(TWO, low=low).add(values).log_wealth(low + mean)))
        assert wealth == pytest.approx(np.dot(TWO.shares, stakes), rel=1e-12)
        expected += chance * wealth
    assert expected == pytest.approx(1.0, rel=1e-12)


def test_wealth_at_the_running_average_of_changing_means_is_below_a_martingale_on_every_path():
    def chance_of_one(past):  # depends on the past: a contrarian
        return 0.9 if sum(past) < len(past) / 2 else 0.2

    expected = 0.0
    for path, chance, means in paths(chance_of_one, 6):
        martingale = np.dot(TWO.shares, [np.prod((1.0 + c * path) / (1.0 + c * np.array(means))) for c in TWO.sizes])
        assert np.exp(Wealth.start(TWO).add(path).log_wealth(np.mean(means))) <= martingale * (1.0 + 1e-12)
        expected += chance * martingale
    assert expected == pytest.approx(1.0, rel=1e-12)


def test_the_bound_is_where_the_wealth_reaches_one_over_the_failure_probability():
    values = np.random.default_rng(0).exponential(2.0, (3, 400)) - 1.0
    wealth = Wealth.start(low=-1.0, streams=(3,)).add(values)
    bound = wealth.lower(0.05)
    np.testing.assert_allclose(wealth.log_wealth(bound), np.log(20.0), atol=1e-6)
    assert (wealth.log_wealth(bound - 0.01) > wealth.log_wealth(bound)).all()  # W falls in the mean
    assert (bound < wealth.mean).all()
    np.testing.assert_allclose(wealth.mean, values.mean(axis=1))
    # Values that are all alike: (1 + c y)^n = (1 + c m)^n / p has a closed form with one bet.
    one = Wealth.start(Bets((2.0,), (1.0,))).add(np.full(30, 0.5))
    assert float(one.lower(0.1)) == pytest.approx((2.0 / 0.1 ** (-1.0 / 30.0) - 1.0) / 2.0, rel=1e-12)


def test_too_few_values_bound_nothing_and_say_the_lower_end():
    assert float(Wealth.start(low=-3.0).lower(0.05)) == -3.0
    assert float(lower_bound(np.zeros(100), 0.05, low=0.0)) == 0.0
    assert float(plug_in_lower_bound(np.zeros(100), 0.05, low=0.0, scale=1.0)) == 0.0


def test_values_in_pieces_and_through_json_give_the_same_bits():
    values = np.random.default_rng(1).gamma(0.3, 2.0, (2, 777))
    whole = Wealth.start(streams=(2,)).add(values)
    state, first = Wealth.start(streams=(2,)), 0
    for last in (1, 5, 64, 400, 400, 777):
        state = Wealth.from_json(json.loads(json.dumps(state.add(values[:, first:last]).to_json())))
        first = last
    assert state.n == whole.n
    assert state.bets == whole.bets
    np.testing.assert_array_equal(state.log_stakes, whole.log_stakes)
    np.testing.assert_array_equal(state.total, whole.total)
    with pytest.raises(ValueError, match="no state of a wealth"):
        Wealth.from_json(whole.to_json() | {"log_stakes": [1.0]})


def test_blocks_do_not_show(monkeypatch):
    values = np.random.default_rng(2).random(500)
    whole = Wealth.start().add(values)
    monkeypatch.setattr("gbpl.certificates.betting.BLOCK", 100)
    np.testing.assert_array_equal(Wealth.start().add(values).log_stakes, whole.log_stakes)


def test_the_upper_bound_is_the_lower_one_turned_round():
    values = np.random.default_rng(3).beta(2.0, 5.0, 600)
    low, high = interval(values, 0.05, low=0.0, high=1.0)
    turned = interval(1.0 - values, 0.05, low=0.0, high=1.0)
    np.testing.assert_allclose([1.0 - high, 1.0 - low], turned, atol=1e-12)
    assert low == lower_bound(values, 0.025, low=0.0)
    assert low < values.mean() < high


def test_a_crossing_is_the_first_row_at_which_the_bound_passes_the_mean(monkeypatch):
    rng = np.random.default_rng(7)
    before, values = rng.random((2, 30)), np.stack([rng.random(300), 0.4 * rng.random(300)])
    state, levels = Wealth.start(streams=(2,)).add(before), np.array([0.05, 0.2])
    first = [0, 0]
    for row in range(300):
        over = state.add(values[:, : row + 1]).lower(levels) > 0.35
        first = [found or (row + 1 if now else 0) for found, now in zip(first, over, strict=True)]
    assert first[0] > 0
    assert first[1] == 0
    np.testing.assert_array_equal(state.crossing(values, 0.35, levels), first)
    monkeypatch.setattr("gbpl.certificates.betting.BLOCK", 500)
    np.testing.assert_array_equal(state.crossing(values, 0.35, levels), first)


def ever_above(values, mean, failure_probability, bets=None):
    """Share of streams whose bound is above the mean at some row: the wealth there has passed its threshold."""
    crossed = Wealth.start(bets, streams=(len(values),)).crossing(values, mean, failure_probability)
    return np.mean(crossed > 0)


@pytest.mark.parametrize("kind", ["weighted", "skewed"])
def test_violations_at_any_time_stay_below_their_level_and_a_broken_level_is_found(kind):
    rng, streams, rows = np.random.default_rng(4), 500, 400
    if kind == "weighted":  # 0/1 outcomes over propensities of 0.2
        values, mean = 5.0 * (rng.random((streams, rows)) < 0.2) * (rng.random((streams, rows)) < 0.4), 0.4
    else:
        values, mean = rng.lognormal(0.0, 1.0, (streams, rows)), math.exp(0.5)
    limit = 0.1 + 3.0 * math.sqrt(0.1 * 0.9 / streams)
    assert ever_above(values, mean, 0.1) <= limit
    assert ever_above(values, mean, 0.7) > limit  # what the test does to a wrong constant


@pytest.mark.parametrize("rows", [200, 2000])
def test_bounds_lie_within_few_standard_errors_of_the_mean(rows):
    values = np.random.default_rng(5).beta(2.0, 5.0, (40, rows))
    error = values.std(axis=1) / math.sqrt(rows)
    mixture = (values.mean(axis=1) - lower_bound(values, 0.025, low=0.0)) / error
    plug_in = (values.mean(axis=1) - plug_in_lower_bound(values, 0.025, low=0.0, scale=1.0)) / error
    assert 3.2 < mixture.mean() < 3.7
    assert 2.5 < plug_in.mean() < 2.8  # sqrt(2 log 40) = 2.72: the best single bet


def test_plug_in_bets_look_only_back_and_hold_their_level():
    rng, streams = np.random.default_rng(6), 2000
    values = 4.0 * (rng.random((streams, 300)) < 0.25) * rng.random((streams, 300))
    missed = (plug_in_lower_bound(values, 0.1, low=0.0, scale=1.0) > 0.5).mean()
    assert missed <= 0.1 + 3.0 * math.sqrt(0.1 * 0.9 / streams)
    total = 0.0  # every path, a coarse mean
    for path, chance, _ in paths(lambda past: 0.5, 8):
        total += chance * (plug_in_lower_bound(path, 0.2, low=0.0, scale=1.0) > 0.5)
    assert total <= 0.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lower_bound(np.array([0.5, -0.1]), 0.05, low=0.0), "at least low=0, got -0.1"),
        (lambda: lower_bound(np.array([0.5, np.nan]), 0.05, low=0.0), "must be finite"),
        (lambda: lower_bound(np.array([0.5]), 5.0, low=0.0), r"in \(0, 1\), got 5.0"),
        (lambda: interval(np.array([1.5]), 0.05, low=0.0, high=1.0), "at most high=1, got 1.5"),
        (lambda: Wealth.start().log_wealth(-1.0), "impossible, got -1.0"),
        (lambda: Wealth.start(streams=(2,)).add(np.zeros(3)), r"streams \(2,\), got shape \(3,\)"),
        (lambda: Bets((1.0,), (0.5,)), "sum to 1"),
        (lambda: Bets((-1.0,), (1.0,)), ">= 0 and finite"),
        (lambda: Bets.grid(0.0), "scale=0.0"),
    ],
)
def test_what_breaks_the_promise_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
