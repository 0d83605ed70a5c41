"""Gains over several alternatives at once: their covariance restated, and bands and chances by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, t
from support.calls import record_calls
from support.policies import small_net

import gbpl.value.estimate
import gbpl.value.gains
from gbpl import Value
from gbpl.datasets import BinaryDesign
from gbpl.value.estimate import value_covariance
from gbpl.value.gains import Gains, gains_over

ROWS, SAMPLES = 150, 400
CLUSTERS = 8
LABELS = ("a", "b", "c")


def gains_of(rng: np.random.Generator, true: np.ndarray, groups: np.ndarray | None = None) -> Gains:
    """Outcomes of a policy and three alternatives that share noise, so that gains over them depend on each other."""
    n = ROWS if groups is None else len(groups)
    shared = rng.normal(size=n) if groups is None else rng.normal(size=groups.max() + 1)[groups]
    own = rng.normal(size=(n, 3)) * [0.5, 1.0, 2.0]
    others = [Value(column, "mean", None, groups) for column in (own - true).T]
    return gains_over(Value(shared, "mean", None, groups), LABELS, others)


def learned(rng: np.random.Generator) -> tuple[Value, list[Value]]:
    """A value with everything that adds to its error, and two alternatives; rows are weighted and come in groups."""
    weights, groups = rng.uniform(0.5, 2.0, 40), rng.permutation(np.arange(40) % 9)
    value = Value(rng.normal(size=40), "dr", weights, groups, "value", rng.normal(size=(40, 2)), 0.07)
    return value, [Value(rng.normal(size=40), "dr", weights, groups) for _ in range(2)]


# -- covariance -----------------------------------------------------------------------------------------------------


def test_the_covariance_restated() -> None:
    """Between gains: products of sums over groups, the squares of what learning adds to both, and of the allowance."""
    value, others = learned(np.random.default_rng(0))
    share = value.weights / value.weights.sum()
    rows = [value.influence - other.influence for other in others]
    expected = np.zeros((2, 2))
    for a in range(2):
        for b in range(2):
            for group in range(9):
                at = [i for i in range(40) if value.groups[i] == group]
                one, two = (sum(share[i] * (r[i] - share @ r) for i in at) for r in (rows[a], rows[b]))
                pulled = [sum(share[i] * value.dependence[i, d] for i in at) for d in range(2)]
                expected[a, b] += 9 / 8 * (one * two + pulled[0] ** 2 + pulled[1] ** 2)
            expected[a, b] += 0.07**2
    gains = gains_over(value, LABELS[:2], others)
    assert_allclose(value_covariance(gains.values), expected)
    assert_allclose(gains.ses, np.sqrt(np.diag(expected)))
    assert_allclose(gains.estimates, [share @ r for r in rows])
    # The same from the covariance of the values themselves.
    contrast = np.array([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]])
    assert_allclose(contrast @ value_covariance([value, *others]) @ contrast.T, expected)


def test_values_learned_in_different_ways_have_no_common_covariance() -> None:
    value, others = learned(np.random.default_rng(1))
    with pytest.raises(ValueError, match="learned in different ways"):
        value_covariance([value, replace(value, dependence=value.dependence[:, :1])])
    alone = [replace(one, groups=np.zeros(40, int)) for one in others]
    assert np.isnan(value_covariance(alone)).all(), "a single group has no error"


# -- bands and chances ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clusters", [None, CLUSTERS])
def test_bands_contain_all_gains_as_often_as_they_say(clusters: int | None) -> None:
    rng, true, level = np.random.default_rng(2), np.array([0.5, 0.0, -0.2]), 0.9
    groups = None if clusters is None else np.arange(10 * clusters) % clusters
    inside, one_by_one, jointly, normal = [], [], [], []
    for _ in range(SAMPLES):
        gains = gains_of(rng, true, groups)
        bands, intervals = gains.bands(level), gains.intervals(level)
        reach = norm.ppf(0.5 + level / 2) * gains.ses
        inside.append(np.all((bands[:, 0] <= true) & (true <= bands[:, 1])))
        one_by_one.append((intervals[:, 0] <= true) & (true <= intervals[:, 1]))
        jointly.append(one_by_one[-1].all())
        normal.append(np.mean(np.abs(gains.estimates - true) <= reach))
        assert (bands[:, 0] < intervals[:, 0]).all()
        assert (intervals[:, 1] < bands[:, 1]).all()
    error = math.sqrt(level * (1.0 - level) / SAMPLES)
    assert abs(np.mean(inside) - level) < 3.0 * error
    assert abs(np.mean(one_by_one) - level) < 3.0 * error
    assert np.mean(jointly) < level - 3.0 * error, "intervals one by one do not hold together"
    if clusters is not None:
        assert np.mean(normal) < level - 2.0 * error, "with few groups a normal interval would be too short"


def test_one_band_is_an_interval_and_groups_have_students_t() -> None:
    rng, level = np.random.default_rng(3), 0.95
    value, other = Value(rng.normal(size=80), "mean"), Value(rng.normal(size=80), "mean")
    plain = gains_over(value, ["a"], [other])
    assert plain.reach(level) == pytest.approx(norm.ppf(0.975), rel=0.02)
    twice = gains_over(value, ["a", "again"], [other, other])
    assert twice.reach(level) == pytest.approx(norm.ppf(0.975), rel=0.02), "the same gain twice is one"
    groups = np.arange(80) % 5
    few = gains_over(replace(value, groups=groups), ["a"], [replace(other, groups=groups)])
    assert few.reach(level) == pytest.approx(t.ppf(0.975, 4), rel=0.04)
    assert_allclose(few.chances, [t.cdf(few.estimates[0] / few.ses[0], 4)])
    apart = t.ppf(0.975, 4) * few.ses[0]
    assert_allclose(few.intervals(level), [[few.estimates[0] - apart, few.estimates[0] + apart]])


def test_an_alternative_without_error_is_left_out_of_the_reach() -> None:
    rng = np.random.default_rng(4)
    value, other = Value(rng.normal(size=80), "mean"), Value(rng.normal(size=80), "mean")
    both, alone = gains_over(value, ["same", "other"], [value, other]), gains_over(value, ["other"], [other])
    assert both.reach(0.9) == pytest.approx(alone.reach(0.9), rel=0.02)
    assert both.bands(0.9)[0].tolist() == [0.0, 0.0]
    assert both.chances[0] == both.chance == 0.0, "it is no better than itself"
    assert gains_over(value, ["same"], [value]).reach(0.9) == 0.0


def test_the_chance_is_the_smallest_and_errs_no_more_often_than_it_says() -> None:
    """No better than one alternative, or than two: said to be better with 90 % in at most a tenth of samples."""
    rng, share = np.random.default_rng(5), {}
    for name, true in {"one": np.array([0.0, 2.0, 3.0]), "two": np.array([0.0, 0.0, 3.0])}.items():
        sure = []
        for _ in range(SAMPLES):
            gains = gains_of(rng, true)
            assert gains.chance == gains.chances.min()
            assert_allclose(gains.chances, norm.cdf(gains.estimates / gains.ses))
            sure.append(gains.chance > 0.9)
        share[name] = np.mean(sure)
    assert share["one"] == pytest.approx(0.1, abs=0.045)
    assert share["two"] < share["one"]


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan])
def test_levels_are_between_0_and_1(level: float) -> None:
    gains = gains_of(np.random.default_rng(6), np.zeros(3))
    for asked in (gains.reach, gains.bands, gains.intervals):
        with pytest.raises(ValueError, match="level must be between 0 and 1"):
            asked(level)


# -- as a table, and of a policy ------------------------------------------------------------------------------------


def test_gains_as_a_table() -> None:
    gains = gains_of(np.random.default_rng(7), np.array([0.5, 0.1, 0.0]))
    columns = gains.to_dict(0.8)
    assert list(columns) == ["over", "gain", "se", "low", "high", "band_low", "band_high", "chance"]
    assert columns["over"] == list(LABELS)
    assert_array_equal(np.column_stack([columns["low"], columns["high"]]), gains.intervals(0.8))
    assert_array_equal(np.column_stack([columns["band_low"], columns["band_high"]]), gains.bands(0.8))
    lines = str(gains).splitlines()
    assert lines[0].split()[:3] == ["gain", "over", "gain"]
    assert [line.split()[0] for line in lines[1:4]] == list(LABELS)
    assert lines[-1] == f"chance that it is better than all of these: {gains.chance:.1%}"
    assert repr(gains) == str(gains)


def test_the_gains_of_a_policy_are_its_value_less_that_of_each_action() -> None:
    sample = BinaryDesign("DGP3").sample(120, seed=0)
    policy = small_net(committee=3).fit(sample.x, sample.outcomes)
    value, gains = policy.cross_fitted_value(), policy.gains()
    assert gains.labels == tuple(f"everybody gets {label}" for label in policy.actions_)
    for action, gain in enumerate(gains.values):
        single = Value(sample.outcomes[:, action], "mean")
        assert_allclose([gain.estimate, gain.se], [(value - single).estimate, (value - single).se], rtol=1e-6)
    assert_array_equal(policy.gains().bands(), gains.bands())


def test_errors_are_computed_once_for_all_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report asks for fifty levels: with 34 actions that was 1,700 sums over all rows."""
    values = [Value(np.random.default_rng(seed).normal(size=200), "dr") for seed in range(6)]
    gains = gains_over(values[0], list("abcde"), values[1:])
    calls = record_calls(monkeypatch, "value_covariance", gbpl.value.estimate, gbpl.value.gains)
    reaches = [gains.reach(level) for level in (0.5, 0.9, 0.95, 0.99)]
    assert reaches == sorted(reaches)
    assert len(calls) == 1  # that of all together
