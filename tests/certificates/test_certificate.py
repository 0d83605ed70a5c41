"""Welfare certificates: the pure bound restated and simulated, the ranges by brute force, and the estimator's face."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from support.calls import forbid_calls
from support.checks import binary_kl

from gbpl import MLP, Binary, Certificate, FitConfig, GBPLNet, Linear, LoggedFeedback, PosteriorError, load
from gbpl.certificates.bounds import Moments, pac_bayes_rates, posterior_kl
from gbpl.certificates.certifier import Certifier
from gbpl.certificates.certify import SCALES, check_certifiable
from gbpl.certificates.draws import CATONI, INVERSE_KL, THEOREM, CertifiedDraws, certify_draws, smoothed_draws
from gbpl.certificates.means import (
    Units,
    anticipated,
    betting,
    empirical_bernstein,
    inverse_kl,
    learned_bets,
    logarithmic_smoothing,
    normal,
)
from gbpl.certificates.scores import Evidence, Limits, scored, scores
from gbpl.checks.propensities import wrong_propensities
from gbpl.fitting.members import fold_rows
from gbpl.posterior.laplace import Laplace
from gbpl.value.evaluate import LOGGING


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

REPLICATIONS, RHO, STATES = 100, 0.1, 15
ALLOWED = REPLICATIONS * RHO + 3 * math.sqrt(REPLICATIONS * RHO * (1 - RHO))  # 10 %, and three binomial errors


def simulated(
    count: int, n: int, logged: bool, rng: np.random.Generator, mean: np.ndarray, chances: np.ndarray
) -> tuple[np.ndarray, Evidence]:
    """States and evidence; outcomes -1 or 3, costs, K actions, and a model that is wrong."""
    x = rng.integers(0, STATES, n)
    outcomes = -1.0 + 4.0 * (rng.uniform(size=(n, count)) < mean[x])
    paid = np.tile(np.array([0.0, 0.5, 0.2])[:count], (n, 1))
    if not logged:
        return x, Evidence(outcomes - paid)
    action = (rng.uniform(size=(n, 1)) > np.cumsum(chances[x], axis=1)[:, :-1]).sum(axis=1)
    model = -1.0 + 4.0 * np.clip(mean[x] + 0.2 * np.sin(np.arange(count) + x[:, None]), 0.0, 1.0)
    return x, Evidence(outcomes[np.arange(n), action], action, chances[x], model, paid)


def failures(count: int, n: int, logged: bool, smallest: float = 0.15) -> dict[str, int]:
    """How often each bound is on the wrong side of the truth; propensities below `smallest` are clipped."""
    rng = np.random.default_rng(count + logged)
    mean = rng.uniform(0.2, 0.8, (STATES, count))  # of a share of the outcome's range
    chances = 0.1 + (1 - 0.1 * count) * rng.dirichlet(np.ones(count), STATES)
    worth = -1.0 + 4.0 * mean - np.array([0.0, 0.5, 0.2])[:count]
    wrong = dict.fromkeys(("draws", CATONI, THEOREM, "lower", "upper", "gain", "gain above"), 0)
    ends = (-1.0, 3.0) if logged else (-1.5, 3.0)
    one = np.full(count, 1.0)
    for _ in range(REPLICATIONS):
        rules = rng.integers(0, count, (200, STATES))  # policies that have not seen the rows
        truth = worth[np.arange(STATES), rules].mean(axis=1)
        x, evidence = simulated(count, n, logged, rng, mean, chances)
        limits = Limits(*ends, smallest * one if logged else one, ends[0] * one, 2.5 * one, 0.0, 0.5 if logged else 0.0)
        table = scores(evidence, limits, 0.0) - (0.0 if evidence.cost is None else evidence.cost)
        low, width = limits.low - limits.dearest, float(limits.highest.max()) - limits.low + limits.dearest
        each = table[np.arange(n), rules[:, x]]
        logs = np.log1p(0.05 * (each - low)).mean(axis=1)
        drawn = certify_draws(
            each.mean(axis=1), n, low=low, width=width, failure_probability=RHO, log_stakes=logs, bet=0.05
        )
        wrong["draws"] += drawn.weights @ truth < drawn.lower
        for name in (CATONI, THEOREM):  # with weights of their own, which no draw beats
            wrong[name] += truth.max() < drawn.forms[name]
        mine, other = (np.eye(count)[rules[place][x]] for place in range(2))
        certifier = Certifier(evidence, mine, limits)
        value, gain = certifier.bound(RHO), certifier.bound(RHO, other)
        assert value is not None
        assert gain is not None
        wrong["lower"] += truth[0] < value.lower
        wrong["upper"] += truth[0] > value.upper
        wrong["gain"] += truth[0] - truth[1] < gain.lower
        wrong["gain above"] += truth[0] - truth[1] > gain.upper
    return wrong


@pytest.mark.parametrize(("count", "n", "logged"), [(2, 120, False), (2, 200, True), (3, 200, True)])
def test_certificates_fail_no_more_often_than_they_say(count: int, n: int, logged: bool) -> None:
    assert max(failures(count, n, logged).values()) <= ALLOWED


def test_weights_that_are_not_clipped_downwards_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in place of the lower end where weights are clipped: scores are then too high on average."""
    true = scores

    def trusting(evidence: Evidence, limits: Limits, share: float) -> np.ndarray:
        return true(replace(evidence, propensity=np.maximum(evidence.propensity, limits.smallest)), limits, share)

    monkeypatch.setattr("gbpl.certificates.scores.scores", trusting)
    rng = np.random.default_rng(0)
    n = 4000
    x = rng.integers(0, 2, n)
    chance = np.where(x == 0, 0.02, 0.5)
    action = (rng.uniform(size=n) < chance).astype(int)
    outcome = np.where(action == 1, x, 0.5)  # action 1 is worth x
    evidence = Evidence(outcome.astype(float), action, np.column_stack([1 - chance, chance]), np.ones((n, 2)))
    limits = Limits(0.0, 1.0, np.array([0.3, 0.3]), np.zeros(2), np.ones(2))
    everybody = np.tile([0.0, 1.0], (n, 1))
    fooled = scored(evidence, limits, everybody, None, 1.0)
    monkeypatch.undo()
    right = scored(evidence, limits, everybody, None, 1.0)
    assert fooled is not None
    assert right is not None
    assert fooled.values.mean() > 0.9  # where the truth is 0.5
    assert right.values.mean() < 0.53


# --- Scores and their ends -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_scores_are_unbiased_or_too_low_and_within_their_ends(share: float) -> None:
    """By enumeration over actions and outcomes 0 or 1, at propensities above and below the smallest one used."""
    limits = Limits(0.0, 1.0, np.array([0.2, 0.3]), np.array([0.1, 0.2]), np.array([0.7, 0.9]), 0.0, 0.25)
    gamma, cost = np.array([0.35, 0.6]), np.array([[0.0, 0.25]])
    for chance, model in itertools.product((0.1, 0.25, 0.5, 0.75), ((0.1, 0.9), (0.7, 0.2), (-3.0, 5.0))):
        mean, means = np.zeros(2), {name: 0.0 for name in ("gain", "logging", "above")}
        one, other = np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])
        for action, y in itertools.product((0, 1), (0.0, 1.0)):
            weight = (1 - chance, chance)[action] * (gamma[action] if y else 1 - gamma[action])
            evidence = Evidence(
                np.array([y]), np.array([action]), np.array([[1 - chance, chance]]), np.array([model]), cost
            )
            table = scores(evidence, limits, share)
            assert np.all(table >= limits.lowest(share) - 1e-12)
            assert np.all(table <= limits.highest + 1e-12)
            mean += weight * table[0]
            for name, against in (("gain", other), ("logging", LOGGING)):
                made = scored(evidence, limits, one, against, share)
                assert made is not None
                assert made.low - 1e-12 <= made.values[0] <= made.high + 1e-12
                means[name] += weight * made.values[0]
            back = scored(evidence.reflected(), limits.reflected(), one, None, share)
            assert back is not None
            assert back.low - 1e-12 <= back.values[0]
            means["above"] -= weight * back.values[0]
        exact = np.array([1 - chance, chance]) >= limits.smallest
        assert_allclose(mean[exact], gamma[exact])
        assert np.all(mean <= gamma + 1e-12)
        gain = gamma[1] - gamma[0] - 0.25
        paid = 0.25 * chance
        logged = gamma[1] - 0.25 - (chance * gamma[1] + (1 - chance) * gamma[0] - paid)
        assert means["gain"] <= gain + 1e-12
        assert means["logging"] <= logged + 1e-12
        assert means["above"] >= gamma[1] - 0.25 - 1e-12
        if exact.all():
            means_ = [means["gain"], means["logging"], means["above"]]
            assert_allclose(means_, [gain, logged, gamma[1] - 0.25], atol=1e-12)


def test_no_gain_without_an_upper_end() -> None:
    limits = Limits(0.0, math.inf, np.ones(2) / 2, np.zeros(2), np.zeros(2))
    rng = np.random.default_rng(0)
    evidence = Evidence(rng.exponential(size=400), rng.integers(0, 2, 400), np.full((400, 2), 0.5))
    certifier = Certifier(evidence, np.tile([0.0, 1.0], (400, 1)), limits)
    assert certifier.bound(0.05, np.tile([1.0, 0.0], (400, 1))) is None
    bound = certifier.bound(0.05)
    assert bound is not None
    assert bound.upper is None
    assert 0.5 < bound.lower < bound.estimate


# --- Weights and groups ----------------------------------------------------------------------------------------------


def test_equal_weights_and_groups_of_one_change_nothing() -> None:
    values = np.random.default_rng(0).uniform(size=200)
    plain = betting(Units.of(values, None, None), 0.05, low=0.0, bets=learned_bets(0.3))
    for units in (Units.of(values, np.full(200, 3.0), None), Units.of(values, None, np.arange(200))):
        assert betting(units, 0.05, low=0.0, bets=learned_bets(0.3)) == plain
    # almost equal weights: almost the same, by the other formula
    nearly = Units.of(values, 1.0 + 1e-9 * np.arange(200), None)
    assert_allclose(betting(nearly, 0.05, low=0.0, bets=learned_bets(0.3)), plain, rtol=1e-6)


def test_weighted_and_grouped_bounds_fail_no_more_often_than_they_say() -> None:
    """Weights that go with the value, and groups whose rows are copies: taken as plain rows the bound fails."""
    rng, wrong, naive = np.random.default_rng(0), np.zeros(2, int), np.zeros(2, int)
    for _ in range(REPLICATIONS):
        values = (rng.uniform(size=300) < 0.3).astype(float)
        weights = np.where(values == 1.0, 0.5, 2.0) * rng.uniform(0.5, 1.0, 300)
        truth = 0.3 * 0.5 / (0.3 * 0.5 + 0.7 * 2.0)
        wrong[0] += betting(Units.of(values, weights, None), RHO, low=0.0, bets=learned_bets(0.2), largest=2.0) > truth
        naive[0] += betting(Units.of(values, None, None), RHO, low=0.0, bets=learned_bets(0.2)) > truth
        groups = np.repeat(np.arange(30), 10)
        copies = np.repeat((rng.uniform(size=30) < 0.3).astype(float), 10)
        wrong[1] += betting(Units.of(copies, None, groups), RHO, low=0.0, bets=learned_bets(0.4)) > 0.3
        naive[1] += betting(Units.of(copies, None, None), RHO, low=0.0, bets=learned_bets(0.4)) > 0.3
    assert np.all(wrong <= ALLOWED)
    assert np.all(naive > ALLOWED)


# --- Forms -----------------------------------------------------------------------------------------------------------


def test_forms_restated() -> None:
    values, p = np.random.default_rng(0).beta(0.5, 2.0, 500), 0.05
    n, mean = 500, values.mean()
    root = math.sqrt(2 * values.var(ddof=1) * math.log(2 / p) / n)
    assert_allclose(
        empirical_bernstein(values, p, low=-1.0, high=2.0), mean - root - 7 * 3 * math.log(2 / p) / (3 * 499)
    )
    smoothed = math.sqrt(n) * (math.exp(np.log1p(values / math.sqrt(n)).mean() - math.log(1 / p) / n) - 1)
    assert_allclose(logarithmic_smoothing(values, p, low=0.0, scale=1.0), smoothed, rtol=1e-9)
    assert_allclose(inverse_kl(values, p, low=0.0, high=1.0), lower_kl(mean, math.log(1 / p) / n), rtol=1e-8)
    assert_allclose(normal(Units.of(values, None, None), p), mean - 1.6448536 * values.std(ddof=1) / math.sqrt(n))


def test_the_best_bet_of_other_rows_is_the_best_of_all() -> None:
    values = np.random.default_rng(0).beta(0.5, 2.0, 2000)

    def bound(size: float) -> float:
        return (math.exp(np.log1p(size * values).mean() - math.log(20) / 800) - 1) / size

    gap, size = anticipated(Units.of(values, None, None), 0.05, low=0.0, n=800)
    best = max(np.geomspace(1e-3, 1e2, 2000), key=bound)
    assert_allclose(values.mean() - gap, bound(best), rtol=1e-3)
    assert abs(math.log(size / best)) < 0.3


# --- Wrong propensities ----------------------------------------------------------------------------------------------


def test_propensities_that_the_log_contradicts_are_refused() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        taken = np.where(rng.uniform(size=1000) < 2 / 3, "b", "a")
        x, y = rng.normal(size=(1000, 1)), np.ones(1000)
        for right in ({"a": 1 / 3, "b": 2 / 3}, np.where(taken == "b", 2 / 3, 1 / 3)):  # 1 - 1/3 is not quite 2/3
            check_certifiable(LoggedFeedback.of(x, y, taken, propensity=right), (0.0, 1.0))
        for wrong in (0.5, np.full(1000, 0.5)):
            with pytest.raises(ValueError, match=r"'b' was taken in \d\d\s% of the rows, and they say 50\s%"):
                check_certifiable(LoggedFeedback.of(x, y, taken, propensity=wrong), (0.0, 1.0))


def test_the_propensity_of_the_other_label_is_refused_with_the_remedy() -> None:
    """80 % got 'drug' and the number 0.8 means 'placebo', the second label: mean(1[A = drug] / e) is 4."""
    rng = np.random.default_rng(0)
    taken = rng.permutation(np.repeat(["drug", "placebo"], [320, 80]))
    x, y = rng.normal(size=(400, 2)), rng.random(400)
    with pytest.raises(ValueError, match=r"they say 80\s%.*exchange those of 'drug' and 'placebo'\. No certif"):
        check_certifiable(LoggedFeedback.of(x, y, taken, propensity=0.8), (0.0, 1.0))
    check_certifiable(LoggedFeedback.of(x, y, taken, propensity=0.2), (0.0, 1.0))


def test_rare_propensities_that_are_off_are_refused() -> None:
    """Said to be 0.02 in every tenth row and truly 0.08: shares hardly move, but mean(1[A = b] / e) is 1.3."""
    rng = np.random.default_rng(0)
    rare = np.arange(10_000) % 10 == 0
    taken = np.where(rng.uniform(size=10_000) < np.where(rare, 0.08, 0.5), "b", "a")
    said = np.where(rare, 0.02, 0.5)
    log = LoggedFeedback.of(rare[:, None] + 0.0, np.ones(10_000), taken, propensity=np.column_stack([1 - said, said]))
    with pytest.raises(ValueError, match="actions do not follow the propensities"):
        check_certifiable(log, (0.0, 1.0))


def test_no_deviation_is_too_small_and_groups_may_act_together() -> None:
    """A warning leaves half a per cent of 400,000 rows alone; a certificate, which it would move, does not."""
    rng = np.random.default_rng(0)
    taken = (rng.uniform(size=400_000) < 0.505).astype(int)
    log = LoggedFeedback.of(np.zeros((400_000, 1)), np.ones(400_000), taken, propensity=0.5)
    assert wrong_propensities(log) is None
    with pytest.raises(ValueError, match="actions do not follow the propensities"):
        check_certifiable(log, (0.0, 1.0))
    households = np.repeat(np.arange(60), 30)  # one coin for all but the first of a household
    coins, first = np.arange(60) < 42, rng.uniform(size=60) < 0.5  # 3.1 standard errors of households, 17 of rows
    together = np.where(np.arange(1800) % 30 == 0, first[households], coins[households]).astype(int)
    grouped = LoggedFeedback.of(np.zeros((1800, 1)), np.ones(1800), together, propensity=0.5, groups=households)
    assert wrong_propensities(grouped) is not None  # as if rows were drawn one by one
    check_certifiable(grouped, (0.0, 1.0))


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
    return policy.certificate(*binary_outcomes(400, 1), outcome_range=(0, 1))


@pytest.fixture(scope="module")
def logged_policy() -> GBPLNet:
    x, y = binary_outcomes(300, 0)
    action = np.random.default_rng(5).integers(0, 2, 300)
    taken = y[np.arange(300), action]
    names = np.array(["wait", "treat"])[action]
    return GBPLNet(**QUICK, outcome_model=Ridge(), nuisance_folds=2, correction=1.0, actions=["wait", "treat"]).fit(
        x, taken, action=names, propensity=0.5, cost={"treat": 0.1}
    )


def test_the_policy_itself_on_fresh_rows(policy: GBPLNet, certificate: Certificate) -> None:
    """The bet is learned on the rows of the fit, out of fold; the bound is that of a mixture of three bets."""
    x, y = binary_outcomes(400, 1)
    values = y[np.arange(400), policy.predict(x)]
    _, before = binary_outcomes(300, 0)
    held = before[np.arange(300), np.argmax(policy.training("").fit.deviation, axis=1)]
    _, size = anticipated(Units.of(held, None, None), 0.05, low=0.0, n=400)
    logs = [np.log1p(factor * size * values).sum() for factor in (0.5, 1.0, 2.0)]

    def evidence(m: float) -> float:
        each = [total - 400 * math.log1p(factor * size * m) for total, factor in zip(logs, (0.5, 1, 2), strict=True)]
        return float(np.log(np.array([0.1, 0.8, 0.1]) @ np.exp(each))) - math.log(20)

    assert_allclose(certificate.lower, brentq(evidence, 0.0, values.mean()), rtol=1e-6)
    assert certificate.estimate == values.mean()
    assert certificate.lower < certificate.estimate < certificate.upper < 1.0
    assert certificate.kl == 0.0
    assert (certificate.n, certificate.learned, certificate.rule) == (400, 300, "deterministic")
    assert next(iter(certificate.forms)) == "betting"
    best = certificate.best_action
    assert best == int(np.argmax(before.mean(axis=0)))
    true_gain = (values - y[:, best]).mean()
    assert certificate.gain.estimate == pytest.approx(true_gain)
    assert 0.0 < certificate.gain.lower < true_gain < certificate.gain.upper
    assert certificate.gains[best].lower < certificate.gain.lower  # all together cost more
    assert not certificate.vacuous
    with pytest.raises(FrozenInstanceError):
        certificate.rule = "randomized"  # type: ignore[misc]


def test_what_it_says(certificate: Certificate) -> None:
    said = str(certificate)
    assert certificate.sentence in said
    for words in ("Certified: this policy is worth", "0.95", "400 rows", "and gains", "over giving everybody"):
        assert words in certificate.sentence
    assert "\n" not in certificate.sentence
    assert repr(certificate) == said
    as_dict = json.loads(json.dumps(certificate.to_dict()))
    assert as_dict["lower"] == certificate.lower
    assert as_dict["gain"]["lower"] == certificate.gain.lower
    assert as_dict["outcome_range"] == [0.0, 1.0]


def test_less_certainty_more_rows_and_the_true_range_help(policy: GBPLNet, certificate: Certificate) -> None:
    x, y = binary_outcomes(400, 1)
    bold = policy.certificate(x, y, outcome_range=(0, 1), failure_probability=0.3)
    fewer = policy.certificate(x[:100], y[:100], outcome_range=(0, 1))
    wide = policy.certificate(x, y, outcome_range=(-1, 4))
    assert max(fewer.lower, wide.gain.lower) < certificate.lower < bold.lower


def test_noise_is_vacuous() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(700, 2)), rng.integers(0, 2, (700, 2)).astype(float)
    noise = GBPLNet(**QUICK).fit(x[:300], y[:300])
    certificate = noise.certificate(x[300:], y[300:], outcome_range=(0, 1))
    assert certificate.vacuous
    assert "over giving everybody" in certificate.reason
    assert "no gain over giving everybody" in certificate.sentence


def test_without_rows_a_share_of_them_is_held_out(policy: GBPLNet) -> None:
    x, y = binary_outcomes(300, 0)
    certificate = policy.certificate(outcome_range=(0, 1), share=0.4)
    assert certificate.n == len(certificate.rows) == 120
    rest = np.setdiff1d(np.arange(300), certificate.rows)
    again = clone(policy).fit(x[rest], y[rest])
    same = again.certificate(x[certificate.rows], y[certificate.rows], outcome_range=(0, 1))
    assert_allclose(
        [same.lower, same.upper, same.gain.lower], [certificate.lower, certificate.upper, certificate.gain.lower]
    )
    fresh = binary_outcomes(50, 7)[0]
    assert certificate.policy.predict(fresh).tolist() == again.predict(fresh).tolist()


def test_the_certified_policy_is_saved_with_its_certificate(certificate: Certificate, tmp_path: Path) -> None:
    certificate.policy.save(tmp_path / "p.gbpl")
    loaded = load(tmp_path / "p.gbpl")
    assert loaded.certificate["sentence"] == certificate.sentence
    assert loaded.certificate["gain"]["lower"] == certificate.gain.lower
    x, _ = binary_outcomes(50, 9)
    assert loaded.predict(x).tolist() == certificate.fitted.predict(x).tolist()
    loaded.save(tmp_path / "again.gbpl")
    assert load(tmp_path / "again.gbpl").certificate == loaded.certificate


# --- A log -----------------------------------------------------------------------------------------------------------


def logged_rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = binary_outcomes(n, seed)
    action = np.random.default_rng(seed + 4).integers(0, 2, n)
    return x, y[np.arange(n), action], np.array(["wait", "treat"])[action]


@pytest.fixture(scope="module")
def of_log(logged_policy: GBPLNet) -> Certificate:
    x, outcome, names = logged_rows(600, 2)
    return logged_policy.certificate(
        x, outcome, action=names, propensity=0.5, cost={"treat": 0.1}, outcome_range=(0, 1)
    )


def test_logged_certificate(logged_policy: GBPLNet, of_log: Certificate) -> None:
    x, outcome, names = logged_rows(600, 2)
    chosen = logged_policy.predict(x)
    weighted = np.where(chosen == names, outcome / 0.5, 0.0) - 0.1 * (chosen == "treat")
    assert abs(of_log.estimate - weighted.mean()) < 0.1  # doubly robust beside inverse propensities
    assert weighted.mean() - 2.5 * weighted.std() / math.sqrt(600) < of_log.lower < of_log.estimate < of_log.upper
    assert list(of_log.gains) == ["wait", "treat"]
    assert of_log.over_logging.lower > 0.0
    as_one = LoggedFeedback.of(x, outcome, names, propensity=0.5, cost={"treat": 0.1}, actions=["wait", "treat"])
    assert logged_policy.certificate(as_one, outcome_range=(0, 1)).lower == of_log.lower


def test_gain_over_any_policy_and_other_outcomes(logged_policy: GBPLNet, of_log: Certificate) -> None:
    x, outcome, names = logged_rows(600, 2)
    assert of_log.gain_over(of_log.best_action).lower == of_log.gain.lower
    assert of_log.gain_over("logging").lower == of_log.over_logging.lower
    itself = of_log.gain_over(logged_policy)
    assert itself.lower <= 0.0 <= itself.upper
    assert itself.estimate == 0.0
    coin = of_log.gain_over(np.where(np.arange(600) % 2 == 0, "wait", "treat"))
    assert 0.0 < coin.lower < coin.upper
    harm = of_log.outcome(1.0 - outcome, outcome_range=(0, 1))
    chosen = logged_policy.predict(x)
    assert harm.estimate == pytest.approx(np.where(chosen == names, (1.0 - outcome) / 0.5, 0.0).mean())
    assert 0.0 <= harm.lower < harm.estimate < harm.upper < 0.5
    with pytest.raises(ValueError, match="one number per certifying row, 600"):
        of_log.outcome(outcome[:5], outcome_range=(0, 1))
    held = logged_policy.certificate(outcome_range=(0, 1))
    whole = 1.0 - logged_policy.training("").nuisances.feedback.outcome
    assert (
        held.outcome(whole, outcome_range=(0, 1)).upper
        < held.outcome(whole[held.rows], outcome_range=(0, 1)).upper + 0.1
    )


def test_what_learned_from_tables_is_certified_on_a_log(policy: GBPLNet) -> None:
    x, outcome, names = logged_rows(600, 2)
    certificate = policy.certificate(
        x, outcome, action=(names == "treat").astype(int), propensity=0.5, outcome_range=(0, 1)
    )
    chosen = np.array(["wait", "treat"])[policy.predict(x)]
    assert certificate.estimate == pytest.approx(np.where(chosen == names, outcome / 0.5, 0.0).mean())
    assert 0.5 < certificate.lower < certificate.estimate < certificate.upper <= 1.0


def test_outcomes_without_an_upper_end(logged_policy: GBPLNet) -> None:
    x, outcome, names = logged_rows(600, 2)
    open_ended = logged_policy.certificate(x, outcome * 7.0, action=names, propensity=0.5, outcome_range=(0, math.inf))
    assert open_ended.gain is None
    assert open_ended.upper is None
    assert 0.0 < open_ended.lower < open_ended.estimate
    assert "of at least 0" in open_ended.sentence
    json.dumps(open_ended.to_dict(), allow_nan=False)


def test_estimated_and_wrong_propensities_are_refused(logged_policy: GBPLNet) -> None:
    x, outcome, names = logged_rows(600, 2)
    for unknown in (None, LogisticRegression()):
        with pytest.raises(ValueError, match=r"propensities are estimated, and no bound holds"):
            logged_policy.certificate(x, outcome, action=names, propensity=unknown, outcome_range=(0, 1))
    with pytest.raises(ValueError, match=r"do not follow the propensities.*No certificate holds"):
        logged_policy.certificate(
            x, outcome, action=names, propensity={"wait": 0.2, "treat": 0.8}, outcome_range=(0, 1)
        )
    refit = GBPLNet(**QUICK, pseudo_outcome="ipw", nuisance_folds=2).fit(
        x, outcome, action=names, propensity=LogisticRegression()
    )
    with pytest.raises(ValueError, match="propensities are estimated"):
        refit.certificate(outcome_range=(0, 1))


def test_weights_and_groups_are_certified(logged_policy: GBPLNet, of_log: Certificate) -> None:
    x, outcome, names = logged_rows(600, 2)
    given: dict[str, Any] = {"action": names, "propensity": 0.5, "cost": {"treat": 0.1}, "outcome_range": (0, 1)}
    one = logged_policy.certificate(x, outcome, groups=np.arange(600), **given)
    assert one.lower == pytest.approx(of_log.lower)
    copies = np.repeat(np.arange(300), 2)
    twice = logged_policy.certificate(x[copies], outcome[copies], groups=copies, **given | {"action": names[copies]})
    alone = logged_policy.certificate(x[:300], outcome[:300], **given | {"action": names[:300]})
    assert twice.n == 300
    assert twice.lower == pytest.approx(alone.lower)
    weighted = logged_policy.certificate(x, outcome, sample_weight=1.0 + (np.arange(600) % 2), **given)
    assert weighted.lower < weighted.estimate
    assert "the largest of these rows" in weighted.caveats[0]
    with pytest.raises(ValueError, match="draws are certified on independent rows"):
        logged_policy.certificate(x, outcome, groups=np.arange(600), of="draws", draws=5, **given)


# --- Draws -----------------------------------------------------------------------------------------------------------


def restated(policy: GBPLNet, x: np.ndarray, table: np.ndarray, rho: float, bet: float) -> CertifiedDraws:
    """Draws of every scale of the loss, by hand."""
    values, logs = [], []
    for number, scale in enumerate(SCALES):
        seed = int(np.random.SeedSequence([0, number]).generate_state(1)[0])
        drawn = policy.posterior("last_layer", eta=policy.eta_ * scale)
        for made, each in ((values, table), (logs, np.log1p(bet * table))):
            made.append(drawn.welfare(x, each, rule="deterministic", draws=30, seed=seed).values)
    return certify_draws(
        np.concatenate(values), len(x), low=0.0, width=1.0, failure_probability=rho, log_stakes=np.concatenate(logs),
        bet=bet,
    )  # fmt: skip


def test_draws_on_all_rows_are_those_of_clones(policy: GBPLNet) -> None:
    x, y = binary_outcomes(300, 0)
    certificate = policy.certificate(outcome_range=(0, 1), of="draws", draws=30, folds=3)
    expected = []
    for part in fold_rows(300, 3, seed=0):
        others = np.setdiff1d(np.arange(300), part)
        fitted = clone(policy).fit(x[others], y[others])
        held = y[others][np.arange(200), np.argmax(fitted.training("").fit.deviation, axis=1)]
        _, bet = anticipated(Units.of(held, None, None), 0.05 / 3, low=0.0, n=100)
        expected.append(restated(fitted, x[part], y[part], 0.05 / 3, bet))
    assert_allclose(certificate.lower, np.mean([part.lower for part in expected]), rtol=1e-6)
    assert_allclose(certificate.estimate, np.mean([part.estimate for part in expected]), rtol=1e-6)
    assert_allclose(certificate.kl, np.mean([part.kl for part in expected]), rtol=1e-5)
    assert [len(weights) for weights in certificate.weights] == [30 * len(SCALES)] * 3
    assert certificate.n == 300
    assert "policies drawn from the posterior" in certificate.sentence
    with pytest.raises(ValueError, match="of='policy'"):
        certificate.policy  # noqa: B018
    with pytest.raises(ValueError, match="of='policy'"):
        certificate.gain_over(0)


def test_smoothed_draws_restated() -> None:
    """The best of all reweightings is the Gibbs one: no other has a better bound."""
    rng = np.random.default_rng(0)
    values, n, bet, p = rng.uniform(size=(40, 60)), 60, 0.5, 0.1
    stakes = np.log1p(bet * values).mean(axis=1)
    lower, weights = smoothed_draws(stakes, n, bet=bet, failure_probability=p)

    def bound(q: np.ndarray) -> float:
        kl = sum(float(w) * math.log(float(w) * 40) for w in q if w > 0)
        return math.expm1(float(q @ stakes) - (kl + math.log(1 / p)) / n) / bet

    assert_allclose(lower, bound(weights), rtol=1e-9)
    for other in (*rng.dirichlet(np.ones(40), 30), *np.eye(40)[:5], np.full(40, 1 / 40)):
        assert bound(other) <= lower


@pytest.mark.parametrize(
    ("method", "options"),
    [("laplace", {"structure": "diag"}), ("bootstrap", {}), ("variational", {"steps": 20})],
)
def test_any_posterior_can_be_certified(method: str, options: dict[str, Any], policy: GBPLNet) -> None:
    x, y = binary_outcomes(400, 3)
    certificate = policy.certificate(
        x, y, outcome_range=(0, 1), of="draws", draws=6, method=method, rule="randomized", **options
    )
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
    certificate = fitted.certificate(new, swapped, outcome_range=(0, 1))
    assert certificate.lower == fitted.certificate(new, fresh_y, outcome_range=(0, 1)).lower
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
        ({"outcome_range": 1.0}, r"\(low, high\) with a finite low"),
        ({"outcome_range": (-np.inf, 1)}, r"\(low, high\) with a finite low"),
        ({"outcome_range": (0, np.inf), "of": "draws"}, r"only of='policy' takes an infinite high"),
        ({"outcome_range": (0, 1), "of": "members"}, r"of must be 'policy' or 'draws', got 'members'"),
        ({"outcome_range": (0, 1), "share": 1.0}, r"share, of rows that certify, .* got 1.0"),
        ({"outcome_range": (0, 0.5)}, r"is 1 in row \d+ .* outside outcome_range=\(0, 0.5\).*cut"),
        ({"outcome_range": (0.5, 2)}, r"is 0 in row \d+ .* outside"),
        ({"outcome_range": (0, 1), "failure_probability": 1.0}, r"failure_probability must be in \(0, 1\), got 1"),
        ({"outcome_range": (0, 1), "rule": "best"}, r"rule must be 'deterministic' or 'randomized', got 'best'"),
        ({"outcome_range": (0, 1), "draws": 0}, r"draws must be a whole number >= 1, got 0"),
        ({"outcome_range": (0, 1), "folds": 1}, r"folds must be a whole number >= 2, got 1"),
        ({"outcome_range": (0, 1), "method": "map"}, r"method must be one of .*, got 'map'"),
        ({"outcome_range": (0, 1), "of": "draws", "method": "exact"}, r"'exact' posterior needs an unsquashed"),
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
    assert fitted.certificate(x[300:], y[300:], outcome_range=(0, 1)).n == 400
    order = rng.permutation(300)  # all of them in another order are the training rows still
    with pytest.raises(ValueError, match="learned from"):
        fitted.certificate(x[order], y[order], outcome_range=(0, 1))


@pytest.mark.parametrize("given", [{"y": np.ones(3)}, {"cost": [0, 1]}, {"action": [0, 1]}, {"propensity": 0.5}])
def test_data_without_features_is_refused(given: dict[str, Any], policy: GBPLNet) -> None:
    with pytest.raises(ValueError, match="are given without X"):
        policy.certificate(outcome_range=(0, 1), **given)


def test_other_refusals(policy: GBPLNet) -> None:
    loaded = pickle.loads(pickle.dumps(policy))
    with pytest.raises(ValueError, match="loaded without its training rows"):
        loaded.certificate(outcome_range=(0, 1))
    with pytest.raises(ValueError, match="too few rows for 200 folds: n_samples=300"):
        policy.certificate(outcome_range=(0, 1), of="draws", folds=200)


def test_costs_of_full_feedback(policy: GBPLNet, certificate: Certificate) -> None:
    x, y = binary_outcomes(400, 1)
    priced = policy.certificate(x, y, cost={1: 0.25}, outcome_range=(0, 1))
    same = policy.certificate(x, y - [0.0, 0.25], outcome_range=(-0.25, 1))
    assert priced.lower == same.lower
    assert priced.outcome_range == (-0.25, 1.0)
    # of a fit with costs, the rows of the fit are net of them, and so is the range
    paid = GBPLNet(**QUICK).fit(x[:300], y[:300], cost={1: 0.25})
    with pytest.raises(ValueError, match=r"an outcome is -0\.25"):
        paid.certificate(outcome_range=(0, 1))
    assert paid.certificate(outcome_range=(-0.25, 1)).lower >= -0.25


# --- The theorem -----------------------------------------------------------------------------------------------------


def test_the_theorem_end_to_end(policy: GBPLNet) -> None:
    """Its terms add up, its KL is that of the members, and its loss that of the draws on the rows of the fit."""
    x, y = binary_outcomes(300, 0)
    bound = policy.risk_bound(outcome_range=(0, 1), draws=400)
    fit = policy.training("").fit
    kls = [posterior_kl(Laplace(problem)) for problem in fit.problems()]
    assert_allclose(bound.kl, fit.shares @ kls)
    assert_allclose(bound.zeta, 0.5)
    assert_allclose(bound.high, sum(bound.terms.values()))
    assert_allclose(bound.low, 2 * bound.risk.estimate - bound.high)
    rates = pac_bayes_rates(300, bound.moments)
    assert bound.rate in rates
    reach = (bound.kl + math.log(2 * len(rates) / 0.05)) / (
        bound.rate * 300
    ) + bound.rate * bound.moments.variance_proxy / 2
    assert_allclose(bound.high - bound.risk.estimate, reach)
    gap = y[:, 1] - y[:, 0]
    assert_allclose(bound.coin_flip, np.mean(gap**2) / (2 * 0.5), rtol=1e-5)
    scores_ = policy.decision_function(x)  # the MAP: its risk is near that of the draws
    assert abs(np.mean((gap / 0.5**0.5 - 0.5**0.5 * scores_) ** 2) / 2 - bound.risk.estimate) < 0.1
    least = np.mean((gap / 0.5**0.5 - 0.5**0.5 * np.clip(gap / 0.5, -1, 1)) ** 2) / 2
    low_best = least - (reach - bound.kl / (bound.rate * 300))
    assert_allclose(bound.regret, (bound.high - low_best) / 2, rtol=1e-5)
    assert_allclose(bound.welfare_regret, bound.regret + 0.5 / 4)
    assert bound.gain < (bound.coin_flip - bound.risk.estimate) / 2
    assert_allclose(bound.welfare_gain, bound.gain)
    said = str(bound)
    for words in (
        "between",
        "coin flip",
        "empirical risk",
        "KL",
        "confidence",
        "variance",
        "best in the class",
        "Note:",
    ):
        assert words in said
    fixed = policy.risk_bound(outcome_range=(0, 1), rate=bound.rate, draws=400)
    assert fixed.high < bound.high  # a rate fixed in advance pays for no grid


def test_the_theorem_refuses_what_it_does_not_cover(logged_policy: GBPLNet, policy: GBPLNet) -> None:
    with pytest.raises(ValueError, match="needs outcome_range, or moments"):
        policy.risk_bound()
    with pytest.raises(ValueError, match=r"pseudo_outcome='dr'.*pseudo_outcome='ipw'"):
        logged_policy.risk_bound(outcome_range=(0, 1))
    x, outcome, names = logged_rows(300, 2)
    by_ipw = GBPLNet(**QUICK, pseudo_outcome="ipw").fit(x, outcome, action=names, propensity=0.5)
    bound = by_ipw.risk_bound(outcome_range=(0, 1), draws=20)
    assert bound.moments == Moments.bounded(*Binary().loss_range((0.0, 2.0), bound.zeta))
    deep = GBPLNet(**QUICK | {"model": MLP(hidden=(4,))}).fit(*binary_outcomes(60, 0))
    with pytest.raises(PosteriorError, match="does not draw every weight"):
        deep.risk_bound(outcome_range=(0, 1), method="last_layer")
    given = Moments.sub_gaussian(0.3)
    bound = deep.risk_bound(moments=given, draws=4)
    assert bound.moments == given
    assert bound.kl > 0.0
    assert bound.gain is None


@pytest.mark.parametrize(("noise", "zeta", "mean"), [(1.0, 0.5, 0.5), (0.3, 2.0, 1.0)])
def test_constants_of_gaussian_gaps_hold(noise: float, zeta: float, mean: float) -> None:
    """log E exp(t (loss - R)) <= t^2 v / 2 for |t| < 1 / b, exactly: U normal given x, whose mean and score vary."""
    moments = Moments.gaussian_gap(noise, mean, zeta)
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    for low, high, f in itertools.product((-mean, 0.0), (0.3 * mean, mean), (-1.0, 0.4, 1.0)):
        gaps = np.concatenate([low + noise * nodes, high + noise * nodes])
        scores_ = np.concatenate([np.full(200, -f), np.full(200, f)])
        loss, chance = (gaps - zeta * scores_) ** 2 / (2 * zeta), np.concatenate([weights, weights]) / 2
        centred = loss - chance @ loss
        for t in np.linspace(-0.99, 0.99, 9) / moments.tail_scale:
            assert logsumexp(t * centred, b=chance) <= t**2 * moments.variance_proxy / 2 + 1e-9
