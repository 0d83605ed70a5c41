"""Guards: what is read, the walk against its definition, relative changes against a bootstrap, and their level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm, t

from gbpl import Value
from gbpl.value.guards import Guard, check_against, read_guards, relative_change, split_guard, walked

# -- words ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sign", "bound", "relative"),
    [
        ("<=0.01", "<=", 0.01, False),
        (">= -2 %", ">=", -0.02, True),
        ("<=1%", "<=", 0.01, True),
        ("<=1e-3", "<=", 1e-3, False),
    ],
)  # fmt: skip
def test_a_guard_is_a_sign_and_a_bound(text: str, sign: str, bound: float, relative: bool) -> None:
    made = Guard.of("complaints", text)
    assert (made.sign, made.bound, made.relative) == (sign, pytest.approx(bound), relative)
    assert Guard.of("complaints", str(made).removeprefix("complaints")) == made  # its own words read as itself


@pytest.mark.parametrize("text", ["<0.01", "0.01", "<=", "<=one", "<=nan", "<=1 2", 0.01, None, "==1"])
def test_other_words_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"guard of 'complaints' must be a sign and a bound, such as '<=0.01'.*got"):
        Guard.of("complaints", text)


def test_the_column_of_a_guard_may_hold_signs() -> None:
    assert split_guard("a<=b<=0.01") == ("a<=b", "<=0.01")
    assert split_guard("complaints >= -1%") == ("complaints", ">= -1%")
    for wrong in ("complaints", "<=0.01", "complaints<0.01", "complaints=0.01"):
        with pytest.raises(ValueError, match="must be COLUMN<=NUMBER"):
            split_guard(wrong)
    with pytest.raises(ValueError, match="must be a mapping"):
        read_guards(["complaints<=0.01"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="against must be one of default, logging, best, got 'log'"):
        check_against("log")


# -- one guard --------------------------------------------------------------------------------------------


def of_rows(rng: np.random.Generator, groups: np.ndarray | None = None) -> tuple[Value, Value]:
    n, weights = 200, rng.uniform(0.5, 2.0, 200)
    base = rng.normal(2.0, 1.0, n)
    return Value(base + rng.normal(0.1, 0.5, n), "dr", weights, groups), Value(base, "dr", weights, groups)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("sign", ["<=", ">="])
def test_it_holds_where_the_one_sided_limit_keeps_the_bound(sign: str, grouped: bool) -> None:
    groups = np.arange(200) % 12 if grouped else None
    value, base = of_rows(np.random.default_rng(0), groups)
    share = value.weights / value.weights.sum()
    rows = value.influence - base.influence
    change = share @ rows
    sums = share * (rows - change)
    if grouped:
        sums = np.array([sums[groups == g].sum() for g in range(12)])
    se = np.sqrt(len(sums) / (len(sums) - 1) * np.sum(sums**2))
    reach = (t(11).ppf(0.95) if grouped else norm.ppf(0.95)) * se
    limit = change + reach if sign == "<=" else change - reach
    for bound in (limit - 1e-6, limit + 1e-6):
        made = Guard("y", sign, bound).result(value, base, 0.95)
        assert (made.change, made.se, made.limit) == pytest.approx((change, se, limit))
        assert made.holds == (limit <= bound if sign == "<=" else limit >= bound)
        assert made.to_dict()["holds"] is made.holds


def test_what_cannot_be_known_does_not_hold() -> None:
    one = Value(np.array([0.1]), "dr")  # a single row has no error
    assert not Guard("y", "<=", 1e9).result(one, Value(np.array([0.0]), "dr"), 0.95).holds
    below = Value(np.array([-1.0, -2.0]), "dr")
    assert not Guard("y", "<=", 1e9, relative=True).result(below, below, 0.95).holds  # no share of a mean below zero


def test_nothing_changes_where_nothing_is_done() -> None:
    _, base = of_rows(np.random.default_rng(1))
    for relative in (False, True):
        made = Guard("y", "<=", 0.0, relative).result(base, base, 0.95)
        assert (made.change, made.se) == pytest.approx((0.0, 0.0), abs=1e-12)
    assert Guard("y", "<=", 0.0).result(base, base, 0.95).holds


def test_a_relative_change_has_the_error_of_a_bootstrap() -> None:
    """V / V_0 - 1 by the delta method, beside 4,000 samples of the rows with replacement."""
    rng = np.random.default_rng(2)
    base = rng.exponential(1.0, 600)
    value = 1.1 * base + rng.normal(0.0, 0.3, 600)
    made = relative_change(Value(value, "dr"), Value(base, "dr"))
    assert made.estimate == pytest.approx(value.mean() / base.mean() - 1.0)
    drawn = rng.integers(0, 600, (4_000, 600))
    again = value[drawn].mean(axis=1) / base[drawn].mean(axis=1) - 1.0
    assert made.se == pytest.approx(again.std(), rel=4.0 / np.sqrt(2 * 4_000) + 0.01)


def test_what_learning_adds_is_in_a_relative_change_too() -> None:
    """Everything that adds to the error of a value is a share of the baseline's mean as well."""
    rng = np.random.default_rng(3)
    base = Value(rng.normal(2.0, 0.2, 100), "dr")
    plain = Value(base.influence.copy(), "dr")
    learned = replace(plain, dependence=rng.normal(size=(100, 2)), allowance=0.3, unseen=np.array([0.1, 0.2]))
    more = relative_change(learned, base).se ** 2 - relative_change(plain, base).se ** 2
    mean = base.estimate
    dependence = np.sum(learned.dependence**2) / 100**2 * 100 / 99
    assert_allclose(more, (dependence + 0.3**2 + 0.1**2 + 0.2**2) / mean**2)


# -- the walk ---------------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=12))
def test_the_walk_ends_at_the_first_that_fails(holds: list[bool]) -> None:
    passed = walked(holds)
    assert all(holds[:passed])
    assert passed == len(holds) or not holds[passed]


def test_the_walk_passes_a_violating_policy_in_at_most_one_sample_of_twenty() -> None:
    """Nine policies whose changes grow, shared noise, the fifth just beyond the bound: the worst case for the walk.

    Of 4,000 samples a share of 0.05 passes it, up to three Monte Carlo errors; without the order (any policy whose own
    test passes) it would be more.
    """
    rng = np.random.default_rng(4)
    change = np.array([0.0, 0.25, 0.5, 0.75, 1.0 + 1e-9, 1.05, 1.1, 1.2, 1.5])
    samples, se = 4_000, 0.2
    noise = rng.normal(size=(samples, 1)) * np.sqrt(0.5) + rng.normal(size=(samples, 9)) * np.sqrt(0.5)
    holds = change + se * (noise + norm.ppf(0.95)) <= 1.0
    passed = np.array([walked(row) for row in holds.tolist()])
    wrong, error = np.mean(passed > 4), np.sqrt(0.05 * 0.95 / samples)
    assert 0.02 < wrong <= 0.05 + 3 * error
    assert np.mean(holds[:, 4:].any(axis=1)) > 0.07
