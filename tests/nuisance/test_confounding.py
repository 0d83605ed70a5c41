"""Bounds under hidden confounding from estimated models: the forest of residuals, its folds, and what users call."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.linear_model import LinearRegression, LogisticRegression

import gbpl.nuisance.confounding
from gbpl import CrossFit, LoggedFeedback, policy_sensitivity, policy_value
from gbpl.nuisance.confounding import Confounding
from gbpl.nuisance.nuisances import Nuisances
from gbpl.value.confounding import Curves, TwoValues

SETTINGS = CrossFit(folds=3, outcome_model=LinearRegression())


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.nuisance.confounding, "TREES", 10)


def log_of(n: int = 300, *, count: int = 2, binary: bool = False, seed: int = 0, **more: object) -> LoggedFeedback:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    action = rng.integers(0, count, n)
    mean = 0.5 * x[:, 0] + action * x[:, 1]
    spread = np.where(x[:, 2] > 0, 2.0, 0.5)
    y = (rng.uniform(size=n) < norm.cdf(mean)).astype(float) if binary else mean + spread * rng.normal(size=n)
    given = {"propensity": LogisticRegression(), "actions": list(range(count))} | more
    return LoggedFeedback.of(x, y, action, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_gamma_of_one_is_policy_value_to_the_last_bit(count: int, binary: bool) -> None:
    rng = np.random.default_rng(1)
    log = log_of(count=count, binary=binary, sample_weight=rng.uniform(0.5, 2, 300), groups=np.arange(300) // 2,
                 cost=[0.1 * a for a in range(count)])  # fmt: skip
    known = SETTINGS.run(log)
    rule = (log.x[:, 1] > 0).astype(int)
    found = policy_sensitivity(rule, log, gammas=(1.0, 2.0), baseline=0, nuisances=known)
    value, gain = policy_value(rule, log, nuisances=known), policy_value(rule, log, baseline=0, nuisances=known)
    for bound in (found.lower[0], found.upper[0]):
        assert_array_equal(bound.influence, value.influence)
        assert bound.se == value.se
    for bound in (found.gain_lower[0], found.gain_upper[0]):
        assert_array_equal(bound.influence, gain.influence)
    assert found.lower[1].estimate < value.estimate < found.upper[1].estimate
    logged = policy_sensitivity(rule, log, gammas=(1.0,), baseline="logging", nuisances=known)
    assert logged.gain_lower[0].estimate == policy_value(rule, log, baseline="logging", nuisances=known).estimate


def test_forest_finds_where_outcomes_spread() -> None:
    log = log_of(1500)
    shape = Confounding(SETTINGS.run(log)).bounds.shape
    assert isinstance(shape, Curves)
    _, shift = shape.worst(2.0, upper=False)
    exact = -0.5 * norm.pdf(norm.ppf(1 / 3)) * 3  # (1 - 1/Gamma) times the tail mean of a standard normal
    wide = log.x[:, 2] > 0
    assert_allclose(shift[wide].mean() / exact, 2.0, rtol=0.1)
    assert_allclose(shift[~wide].mean() / exact, 0.5, rtol=0.15)


def test_two_values_need_no_forest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Confounding, "_tails", None)
    bounds = Confounding(SETTINGS.run(log_of(binary=True))).bounds
    assert isinstance(bounds.shape, TwoValues)
    assert np.all(bounds.conditional(3.0, upper=False) <= bounds.mean)


def changed_row(known: Nuisances, row: int) -> Nuisances:
    outcome = known.feedback.outcome.copy()
    outcome[row] += 50.0
    return replace(known, feedback=replace(known.feedback, outcome=outcome))


def test_no_row_has_a_part_in_its_own_bounds() -> None:
    log = log_of()
    known = SETTINGS.run(log, outer=[np.arange(i, 300, 3) for i in range(3)])
    row = 6  # of fold 0
    before, after = Confounding(known), Confounding(changed_row(known, row))
    for fold in (None, 0):
        shapes = [made.bounds.shape if fold is None else made._of_fold(0).shape for made in (before, after)]
        rows = [row] if fold is None else slice(None)  # of fold 0, nothing has a part in the table for it
        tails = [shape.worst(2.0, upper=False)[1][rows] for shape in shapes]
        # Cuts are quantiles of all residuals of the action, which one row can move a little.
        assert_allclose(tails[0], tails[1], atol=0.02)
    others = np.setdiff1d(np.arange(300), known.folds[0])
    moved = after.bounds.shape.worst(2.0, upper=False)[1] - before.bounds.shape.worst(2.0, upper=False)[1]
    assert np.abs(moved[others]).max() > 0.1  # the outlier does count elsewhere


def test_rows_a_forest_was_grown_on_are_predicted_out_of_bag() -> None:
    log = log_of()
    known = SETTINGS.run(log, outer=[np.arange(i, 300, 3) for i in range(3)])
    row = int(np.flatnonzero(log.action == 1)[np.flatnonzero(log.action == 1) % 3 == 1][0])  # of fold 1
    before, after = Confounding(known)._of_fold(0), Confounding(changed_row(known, row))._of_fold(0)
    tails = [made.shape.worst(2.0, upper=False)[1] for made in (before, after)]
    moved = np.abs(tails[0] - tails[1])[:, 1]
    assert moved[row] < 0.02
    assert moved.max() > 0.3  # rows like it do see it


def test_tables_to_learn_from() -> None:
    log = log_of(count=3, cost=[0.0, 0.2, 0.3])
    made = Confounding(SETTINGS.run(log))
    low, high = (made.bounds.scores(1.5, upper=upper) for upper in (False, True))
    cost = np.array([0.0, 0.2, 0.3])
    assert_allclose(made.scores(1.5), low - cost)
    gains = made.scores(1.5, baseline=1)
    assert np.all(gains[:, 1] == 0.0)
    assert_allclose(gains[:, 2], (low[:, 2] - 0.3) - (high[:, 1] - 0.2))
    assert_allclose(made.scores(1.0), made.nuisances.pseudo_outcomes("dr"), atol=1e-12)


@pytest.mark.parametrize("count", [2, 3])
def test_one_propensity_per_row_is_enough(count: int) -> None:
    log = log_of(count=count)
    known = SETTINGS.run(log)
    each = replace(known, propensity=known.logged_propensity, clip=0.0)
    both = [Confounding(made).bounds for made in (replace(known, clip=0.0), each)]
    assert_array_equal(both[0].scores(2.0, upper=False), both[1].scores(2.0, upper=False))
    if count == 2:
        assert_allclose(both[0].others, both[1].others, atol=1e-12)
    assert np.all(both[1].others >= both[0].others - 1e-12)  # never narrower


def test_baseline_is_the_best_single_action() -> None:
    log = log_of()
    known = SETTINGS.run(log)
    values = [policy_value(a, log, nuisances=known).estimate for a in (0, 1)]
    best = int(np.argmax(values))
    rule = (log.x[:, 1] > 0).astype(int)
    assert policy_sensitivity(rule, log, nuisances=known).baseline == str(best)
    assert policy_sensitivity(best, log, nuisances=known).baseline == str(1 - best)


def test_what_cannot_be_is_refused() -> None:
    log = log_of()
    with pytest.raises(ValueError, match="need a model of each action's outcome"):
        policy_sensitivity(0, log, nuisances=SETTINGS.run(log, "ipw"))
    known = SETTINGS.run(log)
    with pytest.raises(ValueError, match=r"gamma must be a finite number >= 1, got 0\.5"):
        policy_sensitivity(0, log, gammas=(0.5,), nuisances=known)
    with pytest.raises(ValueError, match="at least one number"):
        policy_sensitivity(0, log, gammas=(), nuisances=known)
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 95"):
        policy_sensitivity(0, log, level=95, nuisances=known)
    with pytest.raises(ValueError, match="of another log"):
        policy_sensitivity(0, log_of(seed=1), nuisances=known)
