"""PAC-Bayes bounds: formulas restated, divergences against dense algebra and quadrature, and 1,000 simulated data sets.

In the simulation x has 50 equally likely values and outcomes are 0 or 1, so the population risk of every posterior over
the 2^50 deterministic rules is known by enumeration: a posterior that decides each value of x by itself is a product,
and so are its risk and its KL to the uniform prior.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, rel_entr
from scipy.stats import beta, binom, multivariate_normal, norm
from support.checks import binary_kl

from gbpl import MLP, BaselineGap, Binary, FullVector, Linear, PosteriorError, Surrogate
from gbpl.certificates.bounds import (
    Moments,
    catoni_bound,
    catoni_bound_over_rates,
    catoni_rates,
    chernoff_bound,
    curvature_kl,
    gaussian_kl,
    gibbs_kl,
    inverse_kl,
    inverse_kl_bound,
    inverse_kl_lower_bound,
    mcallester_bound,
    monte_carlo_kl,
    optimal_rate,
    pac_bayes_bound,
    pac_bayes_bound_over_rates,
    pac_bayes_interval,
    pac_bayes_rates,
    penalized_regret_bound,
    penalized_welfare_difference,
    penalty_range,
    posterior_kl,
    surrogate_range,
    welfare_from_penalized,
    welfare_regret_bound,
)
from gbpl.posterior import laplace as laplace_module
from gbpl.posterior.bootstrap import Bootstrap
from gbpl.posterior.exact import Exact
from gbpl.posterior.laplace import Laplace
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.nuts import NUTS
from gbpl.posterior.problem import Problem
from gbpl.posterior.sgld import SGLD
from gbpl.posterior.variational import Variational

UNIT = Moments.bounded(0.0, 1.0)
HEAVY = Moments(2.0, 0.5, True)  # rates below 2


# --- The loss ------------------------------------------------------------------------------------------------------


def test_bounded_moments_are_hoeffdings_and_hold() -> None:
    moments = Moments.bounded(-1.0, 3.0)
    assert moments == Moments(4.0, 0.0, True)
    for share, t in itertools.product((0.1, 0.5, 0.9), (-2.0, -0.3, 0.7, 3.0)):  # two-point losses are the worst
        mean = -1.0 + 4.0 * share
        log_mean = math.log(share * math.exp(t * (3.0 - mean)) + (1 - share) * math.exp(t * (-1.0 - mean)))
        assert log_mean <= t**2 * moments.variance_proxy / 2


def test_estimated_moments_are_bernsteins_and_not_certified() -> None:
    losses = np.random.default_rng(0).exponential(size=(3, 400)) * np.array([[1.0], [2.0], [0.5]])
    moments = Moments.estimated(losses)
    centred = losses - losses.mean(axis=1, keepdims=True)
    assert not moments.certified
    assert_allclose(moments.variance_proxy, 2 * max(np.var(row, ddof=1) for row in losses))
    assert_allclose(moments.tail_scale, 2 / 3 * np.abs(centred).max())
    # and for the sample itself, as a population, the assumption holds with them
    for t in np.linspace(-0.99, 0.99, 9) / moments.tail_scale:
        assert np.all(np.log(np.exp(t * centred).mean(axis=1)) <= t**2 * moments.variance_proxy / 2)
    assert Moments.estimated(losses[0]) == Moments.estimated(losses[:1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Moments.bounded(1.0, 1.0), "low < high, got 1.0 and 1.0"),
        (lambda: Moments(0.0, 0.0, True), "variance_proxy must be > 0"),
        (lambda: Moments(1.0, -1.0, True), "tail_scale must be >= 0"),
        (lambda: Moments.estimated(np.ones(5)), "do not vary"),
        (lambda: Moments.estimated(np.array([1.0, np.nan])), "finite"),
    ],
)
def test_moments_refused(make: Callable[[], Moments], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


SURROGATES: list[Surrogate] = [
    Binary(), Binary(huber=0.7), BaselineGap(2), BaselineGap(3, baseline=1), BaselineGap(4), BaselineGap(4, huber=0.6),
    FullVector(2), FullVector(3), FullVector(4, huber=0.6), FullVector(3, centered=False),
    FullVector(4, centered=False, huber=0.5),
]  # fmt: skip


@pytest.mark.parametrize("zeta", [0.3, 5.0])
@pytest.mark.parametrize("outcome_range", [(0.0, 1.0), (-2.0, -0.5)])
@pytest.mark.parametrize("surrogate", SURROGATES, ids=str)
def test_surrogate_range_is_that_of_a_grid(
    surrogate: Surrogate, outcome_range: tuple[float, float], zeta: float
) -> None:
    """All outcomes of a grid with its corners, all policies in twelfths: what is attained is the range."""
    count, (low, high) = surrogate.n_actions, outcome_range
    inner = [zeta / count, low + zeta * (count - 3) / max(count - 1, 1)]  # where the smallest loss can be
    ends = [low, (low + high) / 2, high, *(value for value in inner if low < value < high)]
    outcomes = np.array(list(itertools.product(ends, repeat=count)))
    steps = [c for c in itertools.product(range(13), repeat=count) if sum(c) == 12]
    policies = np.array(steps) / 12.0
    y, policy = (a.reshape(-1, count) for a in np.broadcast_arrays(outcomes[:, None], policies[None]))
    losses = np.asarray(surrogate.loss(surrogate.scores_of_policy(policy), surrogate.target(y), zeta), np.float64)
    smallest, largest = surrogate_range(surrogate, outcome_range, zeta)
    assert_allclose([smallest, largest], [losses.min(), losses.max()], rtol=2e-6, atol=2e-6 * largest)


def test_surrogate_range_refused() -> None:
    with pytest.raises(ValueError, match="unbounded scores"):
        surrogate_range(Binary(squash=False), (0.0, 1.0), 1.0)
    with pytest.raises(ValueError, match="low < high"):
        surrogate_range(Binary(), (1.0, 0.0), 1.0)
    with pytest.raises(ValueError, match="zeta must be > 0"):
        surrogate_range(Binary(), (0.0, 1.0), 0.0)


# --- Formulas ------------------------------------------------------------------------------------------------------


def test_theorem() -> None:
    # risk + (KL + log(1/rho)) / (t n) + t v / 2
    assert_allclose(
        pac_bayes_bound(0.3, 2.0, 500, rate=0.4, moments=HEAVY, failure_probability=0.01),
        0.3 + (2.0 + math.log(100.0)) / 200.0 + 0.4,
    )


def test_two_sided_is_one_sided_at_half_the_failure_probability() -> None:
    low, high = pac_bayes_interval(0.3, 2.0, 500, rate=0.4, moments=HEAVY, failure_probability=0.1)
    reach = (2.0 + math.log(2.0 / 0.1)) / (0.4 * 500) + 0.4 * 2.0 / 2
    assert_allclose([low, high], [0.3 - reach, 0.3 + reach])
    assert high == pac_bayes_bound(0.3, 2.0, 500, rate=0.4, moments=HEAVY, failure_probability=0.05)


def test_catoni() -> None:
    risk, divergence, n, rate, rho = 0.1, 3.0, 400, 0.8, 0.02
    expected = (1 - math.exp(-rate * risk - (divergence + math.log(1 / rho)) / n)) / (1 - math.exp(-rate))
    assert_allclose(catoni_bound(risk, divergence, n, rate=rate, failure_probability=rho), expected)
    assert catoni_bound(0.9, 500.0, 10, rate=0.5) == 1.0


@pytest.mark.parametrize("risk", [0.0, 1e-6, 0.03, 0.5, 0.97, 1.0])
@pytest.mark.parametrize("budget", [0.0, 1e-7, 0.01, 0.4, 6.0])
def test_inverse_kl_inverts_kl(risk: float, budget: float) -> None:
    bound = inverse_kl(risk, budget)
    if binary_kl(risk, 1 - 1e-15) <= budget:
        expected = 1.0
    else:
        expected = brentq(lambda q: binary_kl(risk, q) - budget, max(risk, 1e-300), 1 - 1e-15, xtol=1e-15)
    assert_allclose(bound, expected, atol=1e-7 if budget < 1e-5 else 1e-11)


def test_inverse_kl_bound_and_its_lower_counterpart() -> None:
    risk, divergence, n, rho = 0.2, 1.5, 300, 0.05
    budget = (divergence + math.log(2 * math.sqrt(n) / rho)) / n
    high = float(inverse_kl_bound(risk, divergence, n, failure_probability=rho))
    low = float(inverse_kl_lower_bound(risk, divergence, n, failure_probability=rho))
    assert low < risk < high
    assert_allclose([binary_kl(risk, low), binary_kl(risk, high)], budget, rtol=1e-9)
    assert_allclose(low, 1 - float(inverse_kl_bound(1 - risk, divergence, n, failure_probability=rho)))


@pytest.mark.parametrize("n", [1, 2, 5, 8, 40, 300])
def test_the_constant_of_the_inverse_kl_bound(n: int) -> None:
    """Maurer: E exp(n kl(mean || p)) <= 2 sqrt(n), worst for 0/1 losses, here by summing over the binomial."""
    counts = np.arange(n + 1)
    for p in np.linspace(0.01, 0.99, 25):
        terms = binom.logpmf(counts, n, p) + [n * binary_kl(k / n, p) for k in counts]
        assert np.exp(terms).sum() <= 2 * math.sqrt(n) + 1e-9


def test_chernoff_is_never_below_clopper_and_pearson() -> None:
    for n, hits in itertools.product((20, 300), (0, 3, 11)):
        exact = beta.ppf(0.95, hits + 1, n - hits)
        bound = float(chernoff_bound(hits / n, n, failure_probability=0.05))
        assert exact - 1e-12 <= bound <= exact + 0.1
        assert_allclose(binary_kl(hits / n, bound), math.log(20) / n, rtol=1e-9)


def test_inverse_kl_is_tighter_than_mcallester() -> None:
    risk, divergence = np.linspace(0, 1, 21)[:, None], np.array([0.0, 2.0, 30.0])
    loose = mcallester_bound(risk, divergence, 200)
    assert_allclose(loose, risk + np.sqrt((divergence + math.log(2 * math.sqrt(200) / 0.05)) / 400))
    assert np.all(np.asarray(inverse_kl_bound(risk, divergence, 200)) <= loose)


Form = Callable[..., Any]
FORMS: dict[str, Form] = {
    "theorem": lambda *a, **k: pac_bayes_bound(*a, rate=0.5, moments=UNIT, **k),
    "theorem over rates": lambda *a, **k: pac_bayes_bound_over_rates(*a, moments=UNIT, rates=(0.1, 0.5, 1.0), **k),
    "catoni": lambda *a, **k: catoni_bound(*a, rate=0.5, **k),
    "catoni over rates": lambda *a, **k: catoni_bound_over_rates(*a, rates=(0.1, 0.5, 1.0), **k),
    "inverse kl": inverse_kl_bound,
    "mcallester": mcallester_bound,
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_form
def test_looser_with_kl_and_certainty_tighter_with_n_and_above_the_risk(form: Form) -> None:
    assert np.all(np.diff(form(0.2, np.array([0.0, 0.5, 2.0, 8.0]), 500)) > 0)
    assert form(0.2, 1.0, 300) > form(0.2, 1.0, 500) > form(0.2, 1.0, 5000) > 0.2
    assert form(0.2, 1.0, 500, failure_probability=0.01) > form(0.2, 1.0, 500, failure_probability=0.1)


@every_form
def test_arrays_are_numbers_one_by_one(form: Form) -> None:
    risk, divergence = np.array([0.0, 0.3]), np.array([1.0, 4.0])
    bounds = form(risk, divergence, 200)
    assert_allclose(bounds, [form(r, d, 200) for r, d in zip(risk, divergence, strict=True)])
    assert isinstance(form(0.3, 1.0, 200), float)


@every_form
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0.2, -1.0, 100, 0.05), "kl must be >= 0, got -1.0"),
        ((0.2, math.nan, 100, 0.05), "kl must be >= 0"),
        ((0.2, 1.0, 0, 0.05), "n must be >= 1, got 0"),
        ((0.2, 1.0, 100, 0.0), r"failure_probability must be in \(0, 1\), got 0.0; try 0.05"),
    ],
)
def test_what_makes_no_sense_is_refused(form: Form, given: tuple[float, float, int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        form(*given[:3], failure_probability=given[3])


@pytest.mark.parametrize("name", ["catoni", "catoni over rates", "inverse kl", "mcallester"])
def test_forms_of_a_loss_in_the_unit_interval_refuse_others(name: str) -> None:
    for risk in (-0.01, 1.2):
        with pytest.raises(ValueError, match=r"a loss in \[0, 1\].*divide by the range"):
            FORMS[name](risk, 1.0, 100)


@pytest.mark.parametrize("rate", [0.0, -1.0, 2.0, math.nan])
def test_rates_outside_the_range_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"rate must be in \(0, 2\).*optimal_rate.*over_rates"):
        pac_bayes_bound(0.2, 1.0, 100, rate=rate, moments=HEAVY)
    assert np.isfinite(pac_bayes_bound(0.2, 1.0, 100, rate=1.999, moments=HEAVY))


# --- Rates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("divergence", "n"), [(0.0, 100), (5.0, 2000), (80.0, 30)])
@pytest.mark.parametrize("moments", [UNIT, HEAVY])
def test_optimal_rate_is_the_minimiser(moments: Moments, divergence: float, n: int) -> None:
    optimum = float(optimal_rate(divergence, n, moments, 0.02))

    def bound(rate: float) -> float:
        return float(pac_bayes_bound(0.1, divergence, n, rate=rate, moments=moments, failure_probability=0.02))

    largest = 2.0 if moments is HEAVY else 100.0
    best = minimize_scalar(bound, bounds=(1e-6, largest * (1 - 1e-7)), method="bounded", options={"xatol": 1e-9})
    assert 0 < optimum < largest
    assert_allclose(optimum, best.x, rtol=1e-3)
    assert bound(optimum) <= best.fun + 1e-9
    if optimum < 1.9:
        assert_allclose(optimum, math.sqrt(2 * (divergence + math.log(50)) / (moments.variance_proxy * n)))


@pytest.mark.parametrize("moments", [UNIT, HEAVY])
@pytest.mark.parametrize("n", [10, 1000, 100_000])
def test_union_over_rates_pays_for_its_choice(n: int, moments: Moments) -> None:
    for divergence in (0.0, 1.0, 10.0, 0.3 * n):
        over = float(pac_bayes_bound_over_rates(0.2, divergence, n, moments=moments))
        rate = float(optimal_rate(divergence, n, moments))
        fixed = float(pac_bayes_bound(0.2, divergence, n, rate=rate, moments=moments))
        rates = pac_bayes_rates(n, moments)
        assert over > fixed  # no choice is free
        share = 0.05 / len(rates)
        by_hand = [
            pac_bayes_bound(0.2, divergence, n, rate=float(r), moments=moments, failure_probability=share)
            for r in rates
        ]
        assert over == min(by_hand)
        shared = float(optimal_rate(divergence, n, moments, share))
        ideal = pac_bayes_bound(0.2, divergence, n, rate=shared, moments=moments, failure_probability=share)
        if 4.0 <= divergence - math.log(share) <= n:
            assert over - 0.2 <= 1.061 * (float(ideal) - 0.2)  # the grid itself costs at most 6 %


def test_catoni_rates_pay_too() -> None:
    for n, risk, divergence in itertools.product((10, 1000, 100_000), (0.0, 0.02, 0.4), (0.0, 5.0)):
        rates = catoni_rates(n)
        assert_allclose(rates[1:] / rates[:-1], 2.0)
        assert rates[-1] >= 8.0
        best = min(float(catoni_bound(risk, divergence, n, rate=float(r))) for r in np.geomspace(1e-3, 50, 400))
        over = float(catoni_bound_over_rates(risk, divergence, n))
        assert best <= over
        share = 0.05 / len(rates)
        assert over == min(catoni_bound(risk, divergence, n, rate=float(r), failure_probability=share) for r in rates)


# --- Divergences ---------------------------------------------------------------------------------------------------


def dense_kl(mean: np.ndarray, covariance: np.ndarray, sd: float) -> float:
    ratio = covariance / sd**2
    return 0.5 * (np.trace(ratio) + mean @ mean / sd**2 - len(mean) - np.linalg.slogdet(ratio)[1])


def test_gaussian_kl_by_quadrature() -> None:
    q, p = norm(0.7, 0.4), norm(-0.2, 1.5)
    expected, _ = quad(lambda w: q.pdf(w) * (q.logpdf(w) - p.logpdf(w)), -6, 6, epsabs=1e-12)
    assert_allclose(gaussian_kl(np.array([0.7]), np.array([0.16]), 1.5, -0.2), expected)
    assert_allclose(gaussian_kl(np.array([0.7]), np.array([[0.16]]), 1.5, np.array([-0.2])), expected)
    assert gaussian_kl(np.full(4, 2.0), np.full(4, 9.0), 3.0, 2.0) == 0.0


def test_gaussian_kl_by_monte_carlo() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    mean, covariance, sd = rng.normal(size=3), root @ root.T + 0.1 * np.eye(3), 1.3
    q, p = multivariate_normal(mean, covariance), multivariate_normal(np.zeros(3), sd**2 * np.eye(3))
    draws = q.rvs(20_000, random_state=1)
    ratios = q.logpdf(draws) - p.logpdf(draws)
    divergence = monte_carlo_kl(ratios)
    assert_allclose([divergence.estimate, divergence.se], [ratios.mean(), ratios.std(ddof=1) / math.sqrt(20_000)])
    assert abs(gaussian_kl(mean, covariance, sd) - divergence.estimate) < 4 * divergence.se


def test_low_rank_form_is_the_dense_one() -> None:
    rng = np.random.default_rng(1)
    values, sd = np.array([0.0, 0.3, 20.0, 1e6]), 0.7
    directions = np.linalg.qr(rng.normal(size=(9, 4)))[0]
    mean = rng.normal(size=9)
    covariance = np.linalg.inv((directions * values) @ directions.T + np.eye(9) / sd**2)
    expected = dense_kl(mean, covariance, sd)
    assert_allclose(curvature_kl(mean, values, sd), expected, rtol=1e-8)
    assert_allclose(curvature_kl(mean + 1.0, values, sd, prior_mean=1.0), expected, rtol=1e-8)
    with pytest.raises(ValueError, match="eigenvalues must be >= 0, got -2"):
        curvature_kl(mean, np.array([-2.0]), sd)


def test_gaussian_kl_refused() -> None:
    with pytest.raises(ValueError, match="not positive definite"):
        gaussian_kl(np.zeros(2), np.ones((2, 2)), 1.0)
    with pytest.raises(ValueError, match="not positive definite"):
        gaussian_kl(np.zeros(2), np.array([1.0, 0.0]), 1.0)
    with pytest.raises(ValueError, match="a matrix or its diagonal"):
        gaussian_kl(np.zeros(2), np.ones(3), 1.0)
    with pytest.raises(ValueError, match="prior_sd must be > 0"):
        gaussian_kl(np.zeros(2), np.ones(2), 0.0)
    with pytest.raises(ValueError, match="two or more"):
        monte_carlo_kl(np.zeros(1))


def drawn_problem(model: Any, surrogate: Surrogate, n: int) -> Problem:
    rng = np.random.default_rng(0)
    shape = jax.eval_shape(lambda key: model.init(key, 3, surrogate.n_raw), jax.random.key(0))
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.7, leaf.shape).astype(np.float32), shape)
    x = rng.standard_normal((n, 3)).astype(np.float32)
    target = np.asarray(surrogate.target(rng.standard_normal((n, surrogate.n_actions)).astype(np.float32)))
    return Problem(model, surrogate, x, target, None, 0.6, 1.7, 0.8, params)


PRIMAL, DUAL = drawn_problem(MLP((4,)), FullVector(3), 30), drawn_problem(MLP((16, 8)), Binary(), 20)


@pytest.mark.parametrize("structure", laplace_module.STRUCTURES)
@pytest.mark.parametrize("given", [PRIMAL, DUAL], ids=["primal", "dual"])
def test_kl_of_laplace_is_that_of_its_covariance(
    given: Problem, structure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Laplace(given, structure=structure, rank=5)
    expected = dense_kl(part.mean, part.covariance(), given.prior_sd)
    assert_allclose(posterior_kl(part), expected, rtol=1e-9)
    monkeypatch.setattr("gbpl.posterior.precision.BLOCK", 500)  # in blocks
    assert_allclose(posterior_kl(part), expected, rtol=1e-9)


def test_kl_of_laplace_without_curvature_is_that_of_the_shift() -> None:
    given = drawn_problem(MLP((4,)), Binary(huber=1e-9), 30)
    for structure in laplace_module.STRUCTURES:
        part = Laplace(given, structure=structure)
        assert_allclose(posterior_kl(part), part.mean @ part.mean / (2 * 0.64), rtol=1e-6)


def test_kl_of_the_last_layer() -> None:
    for part in (LastLayer(PRIMAL), LastLayer(DUAL), Exact(drawn_problem(Linear(), FullVector(3, squash=False), 25))):
        assert_allclose(posterior_kl(part), dense_kl(part.mean, part.covariance, 0.8), rtol=1e-9)


@pytest.mark.parametrize("family", ["mean_field", "last_layer"])
def test_kl_of_variational_families(family: str) -> None:
    part = Variational(PRIMAL, family=family, steps=20)
    assert_allclose(posterior_kl(part), dense_kl(part.mean, part.root @ part.root.T, 0.8), rtol=1e-9)


def test_more_rows_and_larger_eta_mean_more_kl() -> None:
    divergences = []
    for eta in (0.1, 1.0, 10.0):
        fields = {name: getattr(PRIMAL, name) for name in Problem.__dataclass_fields__}
        divergences.append(posterior_kl(LastLayer(Problem(**fields | {"eta": eta}))))
    assert divergences[0] < divergences[1] < divergences[2]


@pytest.mark.parametrize("kind", [Bootstrap, SGLD, NUTS])
def test_draws_without_a_density_have_no_kl(kind: Any) -> None:
    part = kind.__new__(kind)
    part.problem = PRIMAL
    with pytest.raises(PosteriorError, match=rf"{kind.method}.*without a density.*last_layer.*gibbs_kl.*certificate"):
        posterior_kl(part)


def test_gibbs_kl_of_a_conjugate_posterior() -> None:
    """Loss w^2 / 2 and prior N(0, 1): the posterior is N(0, 1 / (1 + eta n))."""
    rng, eta_n = np.random.default_rng(0), 6.0
    exact = gaussian_kl(np.zeros(1), np.array([1 / (1 + eta_n)]), 1.0)
    prior, posterior = rng.normal(size=40_000), rng.normal(size=40_000) / math.sqrt(1 + eta_n)
    divergence = gibbs_kl(posterior**2 / 2, prior**2 / 2, eta_n)
    assert 0 < divergence.se < 0.02
    assert abs(divergence.estimate - exact) < 4 * divergence.se
    many = [
        gibbs_kl(rng.normal(size=500) ** 2 / 2 / (1 + eta_n), rng.normal(size=500) ** 2 / 2, eta_n) for _ in range(300)
    ]
    estimates, errors = np.array(many).T
    assert_allclose(errors.mean(), estimates.std(ddof=1), rtol=0.15)
    far = gibbs_kl(np.array([1e5, 1e5 + 1]), np.array([1e5 + 2, 1e5 + 3]), 1.0)  # exp(-1e5) is zero as a float
    assert np.isfinite(far.estimate)
    with pytest.raises(ValueError, match="two draws or more"):
        gibbs_kl(np.zeros(1), np.zeros(5), 1.0)


# --- Welfare -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("surrogate", "factor"), [(Binary(), 0.5), (FullVector(4), 1.0), (BaselineGap(4), 0.5)])
def test_welfare_identity_and_its_corollaries(surrogate: Surrogate, factor: float) -> None:
    """On a finite population, with V, W and R written out."""
    rng, zeta, count = np.random.default_rng(2), 0.7, surrogate.n_actions
    y = rng.normal(size=(40, count))
    policies = rng.dirichlet(np.full(count, 0.5), size=(6, 40))

    def parts(policy: np.ndarray) -> tuple[float, float, float]:
        if isinstance(surrogate, FullVector):
            scores, target, penalty = policy, y - y.mean(axis=1, keepdims=True), zeta / 2
        else:
            scores, target, penalty = 2 * policy[:, 1:] - 1, y[:, 1:] - y[:, :1], zeta / 4
        risk = np.mean(np.sum((target / math.sqrt(zeta) - math.sqrt(zeta) * scores) ** 2, axis=1)) / 2
        welfare = np.mean(np.sum(policy * y, axis=1))
        return float(welfare), float(welfare - penalty * np.mean(np.sum(scores**2, axis=1))), float(risk)

    figures = [parts(policy) for policy in policies]
    for (_, w1, r1), (_, w2, r2) in itertools.combinations(figures, 2):
        assert_allclose(w1 - w2, factor * (r2 - r1))
        assert_allclose(penalized_welfare_difference(r1, r2, surrogate), w1 - w2)
    best, best_penalized, _ = (max(column) for column in zip(*figures, strict=True))
    least = min(r for _, _, r in figures)
    for v, w, r in figures:
        assert_allclose(penalized_regret_bound(r, least, surrogate), best_penalized - w, atol=1e-12)
        assert penalized_regret_bound(r + 0.1, least - 0.1, surrogate) > best_penalized - w
        low, high = welfare_from_penalized(w, zeta, surrogate)
        assert low <= v <= high
        assert best - v <= float(welfare_regret_bound(best_penalized - w, zeta, surrogate)) + 1e-12


def test_penalties_as_in_the_corollaries() -> None:
    assert welfare_from_penalized(1.0, 0.8, Binary()) == (1.0, 1.2)  # W <= V <= W + zeta/4
    assert_allclose(welfare_from_penalized(1.0, 0.8, FullVector(4)), (1.1, 1.4))  # lambda = zeta/2, lambda/K to lambda
    assert_allclose(welfare_regret_bound(0.3, 0.8, Binary()), 0.5)
    assert_allclose(welfare_regret_bound(0.3, 0.8, FullVector(4)), 0.3 + 0.4 * (1 - 1 / 4))
    for surrogate in SURROGATES:
        count = surrogate.n_actions
        grid = np.array([c for c in itertools.product(range(13), repeat=count) if sum(c) == 12]) / 12.0
        sizes = np.sum(np.asarray(surrogate.scores_of_policy(grid)) ** 2, axis=1)
        assert_allclose(penalty_range(surrogate), (sizes.min(), sizes.max()), atol=1e-6)
    with pytest.raises(ValueError, match=r"squared loss, got huber=1\.0"):
        penalized_welfare_difference(0.1, 0.2, Binary(huber=1.0))


# --- 1,000 data sets -----------------------------------------------------------------------------------------------

SETS, STATES, ROWS, RHO = 1000, 50, 100, 0.05
ALLOWED = SETS * RHO + 3 * math.sqrt(SETS * RHO * (1 - RHO))  # 5 %, and three binomial errors


class Sets(NamedTuple):
    """Losses of each action's share of each state, a data set each, and those of the population."""

    empirical: np.ndarray  # set state action
    population: np.ndarray  # state action

    def risks(self, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Empirical and true risk, and KL, of posteriors that take action 1 with this chance in each state."""
        both = np.stack([1 - chance, chance], axis=-1)
        divergence = np.sum(rel_entr(both, 0.5), axis=(-2, -1))
        return np.sum(both * self.empirical, axis=(-2, -1)), np.sum(both * self.population, axis=(-2, -1)), divergence


@pytest.fixture(scope="module")
def sets() -> Sets:
    rng = np.random.default_rng(0)
    mean = 0.5 + 0.1 * rng.choice([-1.0, 1.0], size=(STATES, 2))
    x = rng.integers(0, STATES, (SETS, ROWS))
    loss = 1.0 - (rng.uniform(size=(SETS, ROWS, 2)) < mean[x])
    place = (np.arange(SETS)[:, None] * STATES + x).ravel()
    sums = [np.bincount(place, loss[..., a].ravel(), SETS * STATES).reshape(SETS, STATES) for a in range(2)]
    return Sets(np.stack(sums, axis=-1) / ROWS, (1.0 - mean) / STATES)


def posteriors(sets: Sets) -> dict[str, np.ndarray]:
    """Chance of action 1 in each state; all but the prior have looked at the data."""
    gain = ROWS * (sets.empirical[..., 0] - sets.empirical[..., 1])
    chances = {"prior": np.full(gain.shape, 0.5), "best rule": np.where(gain == 0, 0.5, gain > 0).astype(float)}
    return chances | {f"gibbs {eta:g}": expit(eta * gain) for eta in 2.0 ** np.arange(-6, 4)}


FIXED = float(optimal_rate(10.0, ROWS, UNIT, RHO))  # for a KL guessed before the data
UPPER: dict[str, Form] = {
    "theorem": lambda risk, d: pac_bayes_bound(risk, d, ROWS, rate=FIXED, moments=UNIT, failure_probability=RHO),
    "theorem over rates": lambda risk, d: pac_bayes_bound_over_rates(
        risk, d, ROWS, moments=UNIT, failure_probability=RHO
    ),
    "catoni": lambda risk, d: catoni_bound(risk, d, ROWS, rate=1.0, failure_probability=RHO),
    "catoni over rates": lambda risk, d: catoni_bound_over_rates(risk, d, ROWS, failure_probability=RHO),
    "inverse kl": lambda risk, d: inverse_kl_bound(risk, d, ROWS, failure_probability=RHO),
    "mcallester": lambda risk, d: mcallester_bound(risk, d, ROWS, failure_probability=RHO),
}
every_upper = pytest.mark.parametrize("form", UPPER.values(), ids=UPPER)


@every_upper
def test_no_form_fails_more_often_than_it_says(form: Form, sets: Sets) -> None:
    bounds, truths = [], []
    for chance in posteriors(sets).values():
        risk, truth, divergence = sets.risks(chance)
        bounds.append(form(risk, divergence))
        truths.append(truth)
        assert np.sum(bounds[-1] < truth) <= ALLOWED
    # all posteriors at once, and so also the one with the best bound, chosen by looking
    assert np.sum(np.any(np.array(bounds) < truths, axis=0)) <= ALLOWED
    best = np.argmin(bounds, axis=0)
    chosen = np.take_along_axis(np.array(bounds), best[None], axis=0)[0]
    assert np.mean(chosen) < 0.75  # they say something
    assert np.sum(chosen < np.take_along_axis(np.array(truths), best[None], axis=0)[0]) <= ALLOWED


def test_both_sides_fail_no_more_often_than_they_say(sets: Sets) -> None:
    wrong = np.zeros((2, SETS), bool)
    for chance in posteriors(sets).values():
        risk, truth, divergence = sets.risks(chance)
        low, high = pac_bayes_interval(risk, divergence, ROWS, rate=FIXED, moments=UNIT, failure_probability=RHO)
        wrong[0] |= (truth < low) | (truth > high)
        lower = inverse_kl_lower_bound(risk, divergence, ROWS, failure_probability=RHO)
        wrong[1] |= (truth < lower) | (truth > inverse_kl_bound(risk, divergence, ROWS, failure_probability=RHO))
    assert np.all(wrong.sum(axis=1) <= ALLOWED)


def test_the_theorem_on_the_surrogate_loss(sets: Sets) -> None:
    """Scores -0.8 and 0.8 in place of the actions; the loss (u/sqrt(zeta) - sqrt(zeta) f)^2 / 2 has the range told."""
    rng, zeta, f = np.random.default_rng(3), 0.5, np.array([-0.8, 0.8])
    mean = 1.0 - sets.population * STATES
    x = rng.integers(0, STATES, (SETS, ROWS))
    y = (rng.uniform(size=(SETS, ROWS, 2)) < mean[x]).astype(float)

    def loss(gap: Any) -> np.ndarray:
        return (np.asarray(gap)[..., None] / math.sqrt(zeta) - math.sqrt(zeta) * f) ** 2 / 2

    place = (np.arange(SETS)[:, None] * STATES + x).ravel()
    each = loss(y[..., 1] - y[..., 0])
    sums = [np.bincount(place, each[..., a].ravel(), SETS * STATES).reshape(SETS, STATES) for a in range(2)]
    chances = {
        gap: sum(
            (mean[:, 0] if y0 else 1 - mean[:, 0]) * (mean[:, 1] if y1 else 1 - mean[:, 1])
            for y0, y1 in itertools.product((0, 1), repeat=2)
            if y1 - y0 == gap
        )
        for gap in (-1, 0, 1)
    }
    population = sum(chance[:, None] * loss(gap) for gap, chance in chances.items()) / STATES
    mine = Sets(np.stack(sums, axis=-1) / ROWS, population)
    moments = Moments.bounded(*surrogate_range(Binary(), (0.0, 1.0), zeta))
    wrong = np.zeros(SETS, bool)
    for chance in posteriors(mine).values():
        risk, truth, divergence = mine.risks(chance)
        wrong |= np.asarray(pac_bayes_bound_over_rates(risk, divergence, ROWS, moments=moments)) < truth
    assert wrong.sum() <= ALLOWED


@every_upper
def test_without_the_kl_they_fail(form: Form, sets: Sets) -> None:
    risk, truth, _ = sets.risks(posteriors(sets)["best rule"])
    assert np.sum(form(risk, 0.0) < truth) > ALLOWED


def test_with_a_variance_fifty_times_too_small_the_theorem_fails(sets: Sets) -> None:
    risk, truth, divergence = sets.risks(posteriors(sets)["best rule"])
    wrong = Moments(UNIT.variance_proxy / 50, 0.0, False)
    assert np.sum(np.asarray(pac_bayes_bound_over_rates(risk, divergence, ROWS, moments=wrong)) < truth) > ALLOWED
    rate = float(optimal_rate(STATES * math.log(2), ROWS, wrong))
    assert np.sum(np.asarray(pac_bayes_bound(risk, divergence, ROWS, rate=rate, moments=wrong)) < truth) > ALLOWED


def test_one_rule_named_before_has_chernoffs_bound(sets: Sets) -> None:
    fixed = np.broadcast_to(np.arange(STATES) % 2 * 1.0, (SETS, STATES))
    risk, truth, _ = sets.risks(fixed)
    wrong = np.sum(np.asarray(chernoff_bound(risk, ROWS, failure_probability=RHO)) < truth)
    assert 1 <= wrong <= ALLOWED  # close enough to fail now and then
    assert_array_equal(truth, truth[0])
