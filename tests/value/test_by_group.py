"""Values in groups: weighted means with the error of their rows, restated, and bands that hold for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import t

from gbpl.value.by_group import group_table, value_in
from gbpl.value.estimate import Value

rng = np.random.default_rng(3)
N = 200
PLACE = rng.choice(3, N, p=[0.6, 0.3, 0.1])
PSI, USUAL, WEIGHTS = rng.normal(size=N) + PLACE, rng.normal(size=N), rng.uniform(0.5, 2.0, N)
GIVEN = np.eye(2)[rng.integers(0, 2, N)]
CLUSTERS = np.arange(N) // 4


def table(**more):
    extra = {name: more.pop(name) for name in ("weights", "groups", "dependence", "inflation") if name in more}
    plain = {name: extra[name] for name in ("weights", "groups") if name in extra}
    value, usual = Value(PSI, "dr", **extra), Value(USUAL, "dr", **plain)
    return group_table(
        "city", ["a", "b", "c"], PLACE, value=value, usual=usual, given=GIVEN, actions=["no", "yes"], default=0, **more
    )


def test_groups_are_weighted_means_with_the_error_of_their_rows():
    made = table(weights=WEIGHTS)
    for group in range(3):
        own = group == PLACE
        w, x = WEIGHTS[own] / WEIGHTS[own].sum(), (PSI - USUAL)[own]
        mean, count = w @ x, 1.0 / np.sum(w**2)
        assert_allclose(made.gains.estimates[group], mean)
        few = count / (count - 1.0) * (t.ppf(0.975, count - 1.0) / 1.959964) ** 2
        n = WEIGHTS.sum() ** 2 / np.sum(WEIGHTS**2)
        se = np.sqrt(np.sum((w * (x - mean)) ** 2) * few * (n - 1.0) / n * N / (N - 1.0))
        assert_allclose(made.gains.ses[group], se, rtol=1e-5)
        other = np.average((PSI - USUAL)[~own], weights=WEIGHTS[~own])
        assert_allclose(made.gain_differences.estimates[group], mean - other)
        taken = np.average(GIVEN[own, 1], weights=WEIGHTS[own])
        assert_allclose(made.shares.estimates[2 * group + 1], taken)
        rest = np.average(GIVEN[~own, 1], weights=WEIGHTS[~own])
        assert_allclose(made.share_differences.estimates[group], taken - rest)
    assert made.rows == tuple(np.bincount(PLACE).tolist())


def test_rows_that_belong_together_are_counted_together():
    """In every group the error by clusters of copies is twice that by rows: four copies are one row."""
    once = np.repeat(rng.normal(size=N // 4), 4)
    inside = np.repeat(rng.random(N // 4) < 0.5, 4)
    by_rows = value_in(Value(once[::4], "dr"), inside[::4])
    clustered = value_in(Value(once, "dr", groups=CLUSTERS), inside)
    assert_allclose(clustered.estimate, by_rows.estimate)
    ratio = t.ppf(0.975, N // 4 - 1) / t.ppf(0.975, np.inf)  # which the interval of clusters has anyhow
    assert_allclose(clustered.se * ratio, by_rows.se, rtol=1e-6)


def test_what_learning_adds_is_that_of_the_rows_of_the_group():
    dependence, more = rng.normal(size=(N, 2)), rng.normal(size=N) + 0.3
    plain, learned = table(), table(dependence=dependence, inflation=0.12, more=more)
    for group in range(3):
        own = group == PLACE
        added = np.sum(dependence[own] ** 2) / own.sum() ** 2 * N / (N - 1.0) + (more[own].mean() / 2.0) ** 2
        assert_allclose(learned.values.ses[group] ** 2, 1.12 * plain.values.ses[group] ** 2 + added)
        rest = np.sum(dependence[~own] ** 2) / (~own).sum() ** 2 * N / (N - 1.0) + (more[~own].mean() / 2.0) ** 2
        apart = 1.12 * plain.gain_differences.ses[group] ** 2 + added + rest
        assert_allclose(learned.gain_differences.ses[group] ** 2, apart)


def test_a_share_of_all_rows_has_an_error():
    """Agresti and Coull: that of (n + 2) / (n + 4)."""
    made = group_table(
        "city", ["a", "b"], (PLACE > 0).astype(int), value=Value(PSI, "dr"), usual=Value(USUAL, "dr"),
        given=np.eye(2)[np.ones(N, int)], actions=["no", "yes"], default=0,
    )  # fmt: skip
    count = np.sum(PLACE == 0)
    near = (count + 2) / (count + 4)
    assert_allclose(made.shares.ses[1], np.sqrt(near * (1 - near) / (count + 4)))
    assert made.to_dict()["groups"][0]["shares"][1]["band_high"] == 1.0
    assert 0.9 < made.to_dict()["groups"][0]["shares"][1]["band_low"] < 1.0


def test_one_group_has_no_differences():
    made = group_table(
        "city", ["a", "none"], np.zeros(N, int), value=Value(PSI, "dr"), usual=Value(USUAL, "dr"), given=GIVEN,
        actions=["no", "yes"], default=0,
    )  # fmt: skip
    assert made.labels == ("a",)
    assert made.to_dict()["same"] == {"gain": None, "share": None}
    assert made.to_dict()["groups"][0]["gain_difference"] is None
    assert "city" in str(made)
    assert_allclose(made.gains.estimates, [(PSI - USUAL).mean()])


def test_bands_hold_for_all_groups_and_the_test_has_its_level():
    """Samples of skewed values in four groups of unequal size: 90 % bands, and no difference in gains."""
    hits, rejected = [], []
    for seed in range(120):
        draw = np.random.default_rng([seed, 5])
        place = draw.choice(4, 500, p=[0.4, 0.3, 0.2, 0.1])
        psi = draw.exponential(size=500) * (1.0 + place)
        made = group_table(
            "city", list("abcd"), place, value=Value(psi - 1.0 - place, "dr"), usual=Value(np.zeros(500), "dr"),
            given=np.zeros((500, 1)), actions=["no"], default=0,
        )  # fmt: skip
        low, high = made.gains.bands(0.9).T
        hits.append(np.all((low <= 0.0) & (high >= 0.0)))
        rejected.append(made.gain_differences.p_value < 0.1)
    assert 0.83 <= np.mean(hits) <= 0.95
    assert np.mean(rejected) <= 0.1 + 2.5 * np.sqrt(0.1 * 0.9 / 120)


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_table_as_plain_numbers_is_that_of_its_parts(level):
    made = table()
    columns = made.to_dict(level)
    for at, group in enumerate(columns["groups"]):
        assert_allclose([group["gain"]["band_low"], group["gain"]["band_high"]], made.gains.bands(level)[at])
        assert_allclose([group["value"]["low"], group["value"]["high"]], made.values.intervals(level)[at])
        assert [one["estimate"] for one in group["shares"]] == made.shares.estimates[2 * at : 2 * at + 2].tolist()
    assert columns["same"]["gain"] == made.gain_differences.p_value
