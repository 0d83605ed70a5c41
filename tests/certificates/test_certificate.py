"""Welfare certificates: the pure bound restated and simulated, the ranges by brute force, and the estimator's face."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from support.calls import forbid_calls
from support.checks import binary_kl

from gbpl import Certificate, EstimatedPropensityWarning, FitConfig, GBPLNet, Linear, LoggedFeedback
from gbpl.certificates.certify import SCALES
from gbpl.certificates.draws import CATONI, INVERSE_KL, THEOREM, CertifiedDraws, certify_draws
from gbpl.certificates.rows import CertifyingRows, full_rows, logged_rows
from gbpl.fitting.members import fold_rows


def lower_kl(p: float, budget: float) -> float:
    return float(brentq(lambda q: binary_kl(p, q) - budget, 1e-300, p)) if binary_kl(p, 1e-300) > budget else 0.0


# --- The bound on draws --------------------------------------------------------------------------------------------


def some_values(m: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.0, 2.0, m)


def test_certificate_of_draws_restated() -> None:
    values, n, rho = some_values(), 700, 0.1
    certified = certify_draws(values, n, low=-2.0, width=5.0, failure_probability=rho)
    gains = (values + 2.0) / 5.0
    lowers = []
    for strength in [0.0, *(2.0**j for j in range(15))]:
        weight = np.exp(strength * (gains - gains.max()))
        weight /= weight.sum()
        divergence = sum(q * math.log(q * len(values)) for q in weight if q > 0)
        budget = (divergence + math.log(2 * math.sqrt(n) / rho)) / n
        lowers.append((-2.0 + 5.0 * lower_kl(float(weight @ gains), budget), divergence, weight))
    best = max(lowers, key=lambda entry: entry[0])
    assert_allclose(certified.lower, best[0], rtol=1e-9)
    assert_allclose(certified.kl, best[1], rtol=1e-9)
    assert_allclose(certified.weights, best[2], atol=1e-12)
    assert_allclose(certified.estimate, best[2] @ values)
    assert_allclose(certified.forms[INVERSE_KL], certified.lower)
    alone = -2.0 + 5.0 * lower_kl((certified.estimate + 2) / 5, math.log(2 * math.sqrt(n) / rho) / n)
    assert_allclose(certified.confidence, certified.estimate - alone, rtol=1e-8)
    assert 0 < certified.kl < math.log(len(values))


def test_forms_restated_for_one_draw() -> None:
    """One policy has no KL: the theorem and Catoni's bound over their grids, written out."""
    n, rho, risk = 400, 0.05, 0.3
    certified = certify_draws(np.array([0.7]), n, low=0.0, width=1.0, failure_probability=rho)
    rates = [math.sqrt(2 * 4**j / (0.25 * n)) for j in range(1, 6)]  # 4^5 >= 400
    theorem = min(risk + math.log(len(rates) / rho) / (t * n) + t / 8 for t in rates)
    first = math.sqrt(32 / n)
    grid = [first * 2**j for j in range(math.ceil(math.log2(8 / first)) + 1)]
    catoni = min((1 - math.exp(-t * risk - math.log(len(grid) / rho) / n)) / (1 - math.exp(-t)) for t in grid)
    assert_allclose(certified.forms[THEOREM], 1 - theorem)
    assert_allclose(certified.forms[CATONI], 1 - catoni)
    assert certified.kl == 0.0


def test_units_do_not_matter_and_the_range_is_kept() -> None:
    values = some_values()
    one = certify_draws(values, 300, low=-1.0, width=3.0, failure_probability=0.05)
    other = certify_draws(10 * values + 7, 300, low=-3.0, width=30.0, failure_probability=0.05)
    assert_allclose(other.lower, 10 * one.lower + 7)
    assert_allclose(other.weights, one.weights, atol=1e-9)
    for n, seed in itertools.product((1, 5, 100_000), range(5)):
        certified = certify_draws(some_values(seed=seed), n, low=-1.0, width=3.0, failure_probability=0.05)
        assert -1.0 <= certified.lower <= certified.estimate <= 2.0
        assert all(-1.0 <= value <= certified.estimate for value in certified.forms.values())
        assert_allclose(certified.weights.sum(), 1.0)
    assert certified.lower > certify_draws(some_values(), 50, low=-1.0, width=3.0, failure_probability=0.05).lower


def test_many_equal_draws_cost_nothing() -> None:
    one = certify_draws(np.array([0.6]), 200, low=0.0, width=1.0, failure_probability=0.05)
    many = certify_draws(np.full(500, 0.6), 200, low=0.0, width=1.0, failure_probability=0.05)
    assert_allclose(many.lower, one.lower)


# --- Simulated rows, true welfare known ------------------------------------------------------------------------------

REPLICATIONS, RHO, STATES = 200, 0.1, 15
ALLOWED = REPLICATIONS * RHO + 3 * math.sqrt(REPLICATIONS * RHO * (1 - RHO))  # 10 %, and three binomial errors


def failures(count: int, n: int, logged: bool) -> dict[str, int]:
    """How often each form is above the true welfare of what it certifies; outcomes in [-1, 3], costs, K actions."""
    rng = np.random.default_rng(count + logged)
    mean = rng.uniform(0.2, 0.8, (STATES, count))  # of a share of the outcome's range
    chances = 0.1 + (1 - 0.1 * count) * rng.dirichlet(np.ones(count), STATES)
    cost = np.array([0.0, 0.5, 0.2])[:count]
    worth = -1.0 + 4.0 * mean - cost
    wrong = dict.fromkeys((INVERSE_KL, CATONI, THEOREM, "singles"), 0)
    for _ in range(REPLICATIONS):
        rules = rng.integers(0, count, (200, STATES))  # policies that have not seen the rows
        truth = worth[np.arange(STATES), rules].mean(axis=1)
        x = rng.integers(0, STATES, n)
        outcomes = -1.0 + 4.0 * (rng.uniform(size=(n, count)) < mean[x])
        paid = np.tile(cost, (n, 1))
        if logged:
            action = np.array([rng.choice(count, p=chances[state]) for state in x])
            log = LoggedFeedback(
                x[:, None], outcomes[np.arange(n), action], action, np.arange(count), chances[x], cost=paid
            )
            rows = logged_rows(log, chances[x], 0.15, (-1.0, 3.0), estimated=False)
        else:
            rows = full_rows(x[:, None], outcomes, paid, (-1.0, 3.0))
        values = rows.table[np.arange(n), rules[:, x]].mean(axis=1)
        certified = certify_draws(values, n, low=rows.low, width=rows.width, failure_probability=RHO)
        wrong[INVERSE_KL] += certified.weights @ truth < certified.lower
        # the other forms have weights of their own, which no draw beats
        for name in (CATONI, THEOREM):
            wrong[name] += truth.max() < certified.forms[name]
        wrong["singles"] += np.any(worth.mean(axis=0) < rows.single_actions(RHO))
    return wrong


@pytest.mark.parametrize(("count", "n", "logged"), [(2, 120, False), (3, 40, False), (2, 300, True), (3, 300, True)])
def test_certificates_fail_no_more_often_than_they_say(count: int, n: int, logged: bool) -> None:
    assert max(failures(count, n, logged).values()) <= ALLOWED


def test_a_range_ten_times_too_small_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gap is proportional to the width: with a tenth of it the certificates are wrong far too often."""
    true = certify_draws

    def narrow(values: np.ndarray, n: int, *, low: float, width: float, failure_probability: float) -> CertifiedDraws:
        middle = float(np.mean(values)) - width / 20
        return true(values, n, low=middle, width=width / 10, failure_probability=failure_probability)

    monkeypatch.setitem(globals(), "certify_draws", narrow)
    assert failures(2, 300, True)[INVERSE_KL] > ALLOWED


# --- Ranges ----------------------------------------------------------------------------------------------------------


def within(rows: CertifyingRows) -> tuple[float, float]:
    """Smallest and largest value of a row under one action for sure: no policy can do less or more."""
    low = float(rows.table.min())
    assert low >= rows.low - 1e-12
    assert np.all(rows.table <= rows.low + rows.width + 1e-12)
    assert np.all(rows.table >= rows.action_low - 1e-12)
    assert np.all(rows.table <= rows.action_low + rows.action_width + 1e-12)
    return low, float(rows.table.max())


def test_range_of_full_feedback() -> None:
    outcomes = np.array(list(itertools.product((-1.0, 3.0), repeat=3)))
    x = np.zeros((len(outcomes), 1))
    rows = full_rows(x, outcomes, None, (-1.0, 3.0))
    assert within(rows) == (rows.low, rows.low + rows.width) == (-1.0, 3.0)
    cost = np.tile([0.0, 0.5, -0.25], (len(outcomes), 1))
    rows = full_rows(x, outcomes, cost, (-1.0, 3.0))
    assert within(rows) == (rows.low, rows.low + rows.width) == (-1.5, 3.25)
    assert_allclose(rows.action_low, [-1.0, -1.5, -0.75])
    assert_allclose(rows.action_width, 4.0)
    assert rows.certified
    assert not rows.caveats
    uneven = full_rows(x, outcomes, cost * np.arange(len(cost))[:, None], (-1.0, 3.0))
    within(uneven)
    assert "costs differ" in uneven.caveats[0]


def log_without_features(chances: np.ndarray, actions: np.ndarray, outcome: np.ndarray, **more: Any) -> LoggedFeedback:
    return LoggedFeedback(np.zeros((len(actions), 1)), outcome, actions, np.arange(3), chances, **more)


def test_range_of_logged_feedback() -> None:
    """Every action with either end of the outcome, at the chances of a design: the range is attained."""
    actions, ends = (part.ravel() for part in np.meshgrid(np.arange(3), [-1.0, 3.0]))
    chances = np.tile([0.2, 0.3, 0.5], (6, 1))
    cost = np.tile([0.0, 0.0, 0.4], (6, 1))
    rows = logged_rows(log_without_features(chances, actions, ends), chances, 0.0, (-1.0, 3.0), estimated=False)
    assert_allclose(within(rows), (rows.low, rows.low + rows.width))
    assert_allclose((rows.low, rows.width), (-1.0, 4.0 / 0.2))
    assert_allclose(rows.action_width, 4.0 / np.array([0.2, 0.3, 0.5]))
    assert not rows.caveats
    rows = logged_rows(
        log_without_features(chances, actions, ends, cost=cost), chances, 0.25, (-1.0, 3.0), estimated=False
    )
    within(rows)
    assert_allclose((rows.low, rows.width), (-1.4, 4.0 / 0.25 + 0.4))  # the clip is the floor
    # the value itself: low + 1[A = a] (Y - low) / max(e, clip) - c
    expected = [
        -1.0 + (a == actions[i]) * (ends[i] + 1.0) / max(chances[i, a], 0.25) - cost[i, a]
        for i in range(6)
        for a in range(3)
    ]
    assert_allclose(rows.table.ravel(), expected)


def test_propensities_that_vary_or_are_unknown_are_told() -> None:
    rng = np.random.default_rng(0)
    actions, outcome = np.arange(30) % 3, rng.uniform(size=30)
    chances = 0.1 + 0.7 * rng.dirichlet(np.ones(3), 30)
    rows = logged_rows(log_without_features(chances, actions, outcome), chances, 0.01, (0.0, 1.0), estimated=False)
    assert rows.certified
    assert "propensities differ" in rows.caveats[0]
    assert_allclose(rows.width, 1.0 / chances.min())
    clipped = logged_rows(log_without_features(chances, actions, outcome), chances, 0.2, (0.0, 1.0), estimated=False)
    assert_allclose(clipped.width, 5.0)  # fixed in advance, so it is for the population
    assert not clipped.caveats
    taken = chances[np.arange(30), actions]
    one = logged_rows(log_without_features(chances, actions, outcome), taken, 0.05, (0.0, 1.0), estimated=False)
    assert_allclose(one.width, 20.0)
    assert "actions not taken are unknown" in one.caveats[0]
    with pytest.raises(ValueError, match=r"clip is 0.*one column per action"):
        logged_rows(log_without_features(chances, actions, outcome), taken, 0.0, (0.0, 1.0), estimated=False)
    guess = logged_rows(log_without_features(chances, actions, outcome), chances, 0.01, (0.0, 1.0), estimated=True)
    assert not guess.certified
    assert "estimated" in guess.caveats[0]


def test_single_actions_restated() -> None:
    rng = np.random.default_rng(0)
    outcomes = rng.uniform(size=(80, 3))
    rows = full_rows(np.zeros((80, 1)), outcomes, np.tile([0.0, 0.1, 0.0], (80, 1)), (0.0, 1.0))
    expected = [lower_kl(outcomes[:, a].mean(), math.log(3 / 0.05) / 80) for a in range(3)]
    assert_allclose(rows.single_actions(0.05), np.array(expected) - [0.0, 0.1, 0.0], rtol=1e-8)


# --- The estimator ---------------------------------------------------------------------------------------------------

QUICK: dict[str, Any] = {
    "model": Linear(), "committee": 2, "zeta": 0.5, "random_state": 0, "progress": False,
    "fit_config": FitConfig(max_epochs=12, learning_rate=0.02),
}  # fmt: skip


def binary_outcomes(n: int, seed: int, strength: float = 6.0) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes 0 or 1; action 1 is good where the first feature is positive, action 0 elsewhere."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    chance = 1 / (1 + np.exp(-strength * x[:, :1] * [-1.0, 1.0]))
    return x, (rng.uniform(size=(n, 2)) < chance).astype(float)


@pytest.fixture(scope="module")
def policy() -> GBPLNet:
    return GBPLNet(**QUICK).fit(*binary_outcomes(300, 0))


@pytest.fixture(scope="module")
def certificate(policy: GBPLNet) -> Certificate:
    return policy.certificate(*binary_outcomes(400, 1), outcome_range=(0, 1), draws=30)


@pytest.fixture(scope="module")
def logged_policy() -> GBPLNet:
    x, y = binary_outcomes(300, 0)
    action = np.random.default_rng(5).integers(0, 2, 300)
    taken = y[np.arange(300), action]
    names = np.array(["wait", "treat"])[action]
    return GBPLNet(**QUICK, outcome_model=Ridge(), nuisance_folds=2, correction=1.0, actions=["wait", "treat"]).fit(
        x, taken, action=names, propensity=0.5, cost={"treat": 0.1}
    )


def restated(policy: GBPLNet, x: np.ndarray, table: np.ndarray, rho: float, **more: Any) -> CertifiedDraws:
    """Draws of every scale of the loss, by hand."""
    values = []
    for number, scale in enumerate(SCALES):
        seed = int(np.random.SeedSequence([0, number]).generate_state(1)[0])
        drawn = policy.posterior("last_layer", eta=policy.eta_ * scale)
        values.append(drawn.welfare(x, table, rule="deterministic", draws=30, seed=seed).values)
    return certify_draws(np.concatenate(values), len(x), **{"low": 0.0, "width": 1.0, **more}, failure_probability=rho)


def test_certificate_on_fresh_rows(policy: GBPLNet, certificate: Certificate) -> None:
    x, y = binary_outcomes(400, 1)
    expected = restated(policy, x, y, 0.05)
    assert_allclose(certificate.lower, expected.lower)
    assert_allclose(certificate.estimate, expected.estimate)
    assert_allclose(certificate.kl, expected.kl)
    assert certificate.forms == expected.forms
    assert [len(weights) for weights in certificate.weights] == [30 * len(SCALES)]
    assert 0.0 <= certificate.lower <= certificate.estimate <= 1.0
    assert certificate.certified
    assert not certificate.vacuous
    assert certificate.reason == ""
    assert certificate.n == 400
    assert certificate.rule == "deterministic"
    assert_allclose(
        certificate.what_dominates["kl"] + certificate.what_dominates["confidence"],
        certificate.estimate - certificate.lower,
    )
    assert certificate.what_dominates["kl"] >= 0
    assert certificate.what_dominates["range"] == certificate.what_dominates["widening"] == 1.0
    assert certificate.dominant == "rows"
    assert_allclose(
        list(certificate.single_actions.values()),
        [lower_kl(y[:, a].mean(), math.log(2 / 0.05) / 400) for a in range(2)], rtol=1e-8,
    )  # fmt: skip
    with pytest.raises(FrozenInstanceError):
        certificate.lower = 1.0  # type: ignore[misc]


def test_what_it_says(certificate: Certificate) -> None:
    said = str(certificate)
    for words in ("Certified: with probability at least 0.95", "400 rows", f">= {certificate.lower:.4g}", "everybody"):
        assert words in said
    assert repr(certificate) == said
    as_dict = json.loads(json.dumps(certificate.to_dict()))
    assert as_dict["lower"] == certificate.lower
    assert as_dict["single_actions"][as_dict["best_action"]] == max(certificate.single_actions.values())
    assert as_dict["outcome_range"] == [0.0, 1.0]


def test_less_certainty_more_rows_and_the_true_range_help(policy: GBPLNet, certificate: Certificate) -> None:
    x, y = binary_outcomes(400, 1)
    bold = policy.certificate(x, y, outcome_range=(0, 1), draws=30, failure_probability=0.3)
    fewer = policy.certificate(x[:100], y[:100], outcome_range=(0, 1), draws=30)
    wide = policy.certificate(x, y, outcome_range=(-1, 4), draws=30)
    assert max(fewer.lower, wide.lower) < certificate.lower < bold.lower


def test_noise_is_vacuous() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(700, 2)), rng.integers(0, 2, (700, 2)).astype(float)
    noise = GBPLNet(**QUICK).fit(x[:300], y[:300])
    certificate = noise.certificate(x[300:], y[300:], outcome_range=(0, 1), draws=30)
    assert certificate.vacuous
    assert "giving everybody" in certificate.reason
    assert "Vacuous: giving" in str(certificate)
    hopeless = noise.certificate(x[300:], y[300:] * 0, outcome_range=(0, 1), draws=30)
    assert hopeless.vacuous
    assert "worth less than 0" in hopeless.reason


def test_cross_fitted_certificate_is_that_of_clones(policy: GBPLNet) -> None:
    x, y = binary_outcomes(300, 0)
    certificate = policy.certificate(outcome_range=(0, 1), draws=30, folds=3)
    expected = []
    for part in fold_rows(300, 3, seed=0):
        others = np.setdiff1d(np.arange(300), part)
        fitted = clone(policy).fit(x[others], y[others])
        expected.append(restated(fitted, x[part], y[part], 0.05 / 3))
    assert_allclose(certificate.lower, np.mean([part.lower for part in expected]))
    assert_allclose(certificate.estimate, np.mean([part.estimate for part in expected]))
    assert_allclose(certificate.kl, np.mean([part.kl for part in expected]))
    assert len(certificate.weights) == 3
    assert certificate.n == 300
    assert "posteriors of 3 fits in equal shares" in str(certificate)


def test_logged_certificate(logged_policy: GBPLNet) -> None:
    x, y = binary_outcomes(400, 2)
    action = np.random.default_rng(6).integers(0, 2, 400)
    names = np.array(["wait", "treat"])[action]
    outcome = y[np.arange(400), action]
    certificate = logged_policy.certificate(
        x, outcome, action=names, propensity=0.5, cost={"treat": 0.1}, outcome_range=(0, 1), draws=30
    )
    table = np.where(np.arange(2) == action[:, None], outcome[:, None] / 0.5, 0.0) - [0.0, 0.1]
    expected = restated(logged_policy, x, table, 0.05, low=-0.1, width=2.1)
    assert_allclose(certificate.lower, expected.lower)
    assert_allclose(certificate.what_dominates["widening"], 2.1)
    assert certificate.dominant == "range"
    assert certificate.certified
    assert not certificate.caveats
    assert list(certificate.single_actions) == ["wait", "treat"]
    as_one = LoggedFeedback.of(
        x, outcome, names, propensity=0.5, cost={"treat": 0.1}, actions=["wait", "treat"]
    )  # fmt: skip
    assert logged_policy.certificate(as_one, outcome_range=(0, 1), draws=30).lower == certificate.lower


def test_logged_cross_fitted_certificate(logged_policy: GBPLNet) -> None:
    certificate = logged_policy.certificate(outcome_range=(0, 1), draws=20)
    assert certificate.certified
    assert -0.1 <= certificate.lower <= certificate.estimate
    assert_allclose(certificate.what_dominates["range"], 2.1)
    assert len(certificate.weights) == 2


def test_estimated_propensities_are_not_certified(logged_policy: GBPLNet) -> None:
    x, y = binary_outcomes(300, 2)
    action = np.random.default_rng(6).integers(0, 2, 300)
    names, outcome = np.array(["wait", "treat"])[action], y[np.arange(300), action]
    with pytest.warns(EstimatedPropensityWarning) as warned:
        certificate = logged_policy.certificate(x, outcome, action=names, outcome_range=(0, 1), draws=10)
    assert [warning.filename for warning in warned] == [__file__]
    assert not certificate.certified
    assert "NOT certified" in str(certificate)
    assert "propensities are estimated" in certificate.caveats[0]
    learner = LogisticRegression()
    assert not logged_policy.certificate(
        x, outcome, action=names, propensity=learner, outcome_range=(0, 1), draws=10
    ).certified
    refit = GBPLNet(**QUICK, pseudo_outcome="ipw", nuisance_folds=2).fit(x, outcome, action=names, propensity=learner)
    assert not refit.certificate(outcome_range=(0, 1), draws=10).certified


@pytest.mark.parametrize(
    ("method", "options"),
    [("laplace", {"structure": "diag"}), ("bootstrap", {}), ("variational", {"steps": 20})],
)
def test_any_posterior_can_be_certified(method: str, options: dict[str, Any], policy: GBPLNet) -> None:
    x, y = binary_outcomes(400, 3)
    certificate = policy.certificate(x, y, outcome_range=(0, 1), draws=6, method=method, rule="randomized", **options)
    assert 0.0 <= certificate.lower <= certificate.estimate <= 1.0
    assert len(certificate.weights[0]) == 6 * (1 if method == "bootstrap" else len(SCALES))


def test_frames_are_read_by_name() -> None:
    x, y = binary_outcomes(300, 0)
    features = pd.DataFrame(x, columns=["age", "dose"])
    outcomes = pd.DataFrame(y, columns=["wait", "treat"])
    fitted = GBPLNet(**QUICK).fit(features, outcomes)
    fresh, fresh_y = binary_outcomes(400, 1)
    new = pd.DataFrame(fresh, columns=["age", "dose"])
    swapped = pd.DataFrame(fresh_y[:, ::-1], columns=["treat", "wait"])
    certificate = fitted.certificate(new, swapped, outcome_range=(0, 1), draws=30)
    assert certificate.lower == fitted.certificate(new, fresh_y, outcome_range=(0, 1), draws=30).lower
    assert list(certificate.single_actions) == ["wait", "treat"]
    with pytest.raises(ValueError, match="feature names"):
        fitted.certificate(new[["dose", "age"]], swapped, outcome_range=(0, 1))


# --- Refusals --------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_calls(monkeypatch, (GBPLNet, "fit"), (GBPLNet, "posterior"))


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, r"outcome_range is missing.*\(0, 1\)"),
        ({"outcome_range": (1, 0)}, r"low < high, got \(1, 0\)"),
        ({"outcome_range": 1.0}, r"finite \(low, high\)"),
        ({"outcome_range": (0, np.inf)}, r"finite \(low, high\)"),
        ({"outcome_range": (0, 0.5)}, r"is 1 in row \d+ .* outside outcome_range=\(0, 0.5\).*cut"),
        ({"outcome_range": (0.5, 2)}, r"is 0 in row \d+ .* outside"),
        ({"outcome_range": (0, 1), "failure_probability": 1.0}, r"failure_probability must be in \(0, 1\), got 1"),
        ({"outcome_range": (0, 1), "rule": "best"}, r"rule must be 'deterministic' or 'randomized', got 'best'"),
        ({"outcome_range": (0, 1), "draws": 0}, r"draws must be a whole number >= 1, got 0"),
        ({"outcome_range": (0, 1), "folds": 1}, r"folds must be a whole number >= 2, got 1"),
        ({"outcome_range": (0, 1), "method": "map"}, r"method must be one of .*, got 'map'"),
        ({"outcome_range": (0, 1), "method": "exact"}, r"'exact' posterior needs an unsquashed"),
    ],
)
def test_refused_before_anything_is_fitted(asked: dict[str, Any], message: str, rows: bool, policy: GBPLNet) -> None:
    with pytest.raises(ValueError, match=message):
        policy.certificate(*(binary_outcomes(100, 1) if rows else ()), **asked)


@pytest.mark.usefixtures("no_fit")
def test_the_training_rows_are_refused(policy: GBPLNet) -> None:
    x, y = binary_outcomes(300, 0)
    order = np.random.default_rng(0).permutation(300)
    for part in (np.arange(300), order, order[:80]):
        with pytest.raises(ValueError, match=r"100% of these rows are rows the policy learned from.*leave X and y out"):
            policy.certificate(x[part], y[part], outcome_range=(0, 1))
    half = np.concatenate([x[:60], binary_outcomes(40, 1)[0]])
    with pytest.raises(ValueError, match=r"60% of these rows"):
        policy.certificate(half, np.zeros((100, 2)), outcome_range=(0, 1))


def test_new_rows_with_the_same_discrete_features_are_not_refused() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 3, (700, 2)).astype(float), rng.integers(0, 2, (700, 2)).astype(float)
    fitted = GBPLNet(**QUICK).fit(x[:300], y[:300])
    assert fitted.certificate(x[300:], y[300:], outcome_range=(0, 1), draws=30).n == 400
    order = rng.permutation(300)  # all of them in another order are the training rows still
    with pytest.raises(ValueError, match="learned from"):
        fitted.certificate(x[order], y[order], outcome_range=(0, 1))


@pytest.mark.parametrize("given", [{"y": np.ones(3)}, {"cost": [0, 1]}, {"action": [0, 1]}, {"propensity": 0.5}])
def test_data_without_features_is_refused(given: dict[str, Any], policy: GBPLNet) -> None:
    with pytest.raises(ValueError, match="are given without X"):
        policy.certificate(outcome_range=(0, 1), **given)


def test_groups_and_weights_are_refused() -> None:
    x, y = binary_outcomes(300, 0)
    grouped = GBPLNet(**QUICK).fit(x, y, groups=np.arange(300) // 3)
    with pytest.raises(ValueError, match=r"100 groups: the bound needs independent rows"):
        grouped.certificate(outcome_range=(0, 1))
    weighted = GBPLNet(**QUICK).fit(x, y, sample_weight=np.arange(1.0, 301.0))
    with pytest.raises(ValueError, match=r"different sample weights.*count the same"):
        weighted.certificate(outcome_range=(0, 1))
    log = LoggedFeedback.of(
        binary_outcomes(300, 1)[0], y[:, 0], np.arange(300) % 2, propensity=0.5, sample_weight=np.arange(1.0, 301.0)
    )
    with pytest.raises(ValueError, match="different sample weights"):
        grouped.certificate(log, outcome_range=(0, 1))


def test_other_refusals(policy: GBPLNet) -> None:
    loaded = pickle.loads(pickle.dumps(policy))
    with pytest.raises(ValueError, match="loaded without its training rows"):
        loaded.certificate(outcome_range=(0, 1))
    with pytest.raises(ValueError, match="too few rows for 200 folds: n_samples=300"):
        policy.certificate(outcome_range=(0, 1), folds=200)


def test_costs_of_full_feedback(policy: GBPLNet, certificate: Certificate) -> None:
    x, y = binary_outcomes(400, 1)
    priced = policy.certificate(x, y, cost={1: 0.25}, outcome_range=(0, 1), draws=30)
    assert_allclose(priced.what_dominates["range"], 1.25)
    expected = restated(policy, x, y - [0.0, 0.25], 0.05, low=-0.25, width=1.25)
    assert_allclose(priced.lower, expected.lower)
    assert_allclose(priced.single_actions[1], certificate.single_actions[1] - 0.25)
    # of a fit with costs, the rows of the fit are net of them, and so is the range
    paid = GBPLNet(**QUICK).fit(x[:300], y[:300], cost={1: 0.25})
    with pytest.raises(ValueError, match=r"an outcome is -0\.25"):
        paid.certificate(outcome_range=(0, 1))
    assert paid.certificate(outcome_range=(-0.25, 1), draws=30, folds=3).lower >= -0.25
