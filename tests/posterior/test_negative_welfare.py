"""Negative welfare as the loss of a generalized posterior, against its own formulas and the surrogates' (section 1).

The posterior is exp(eta sum_i V_i) times the prior, V_i the welfare of row i. Its density is restated here in numpy.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from support.checks import enable_x64

from gbpl import Binary, BoostedScore, FitConfig, FullVector, GBPLNet, Linear, NegativeWelfare, PosteriorError
from gbpl.posterior.methods import member_posterior
from gbpl.posterior.problem import PosteriorWarning, Problem
from gbpl.surrogates import Surrogate

N, ETA, PRIOR_SD = 40, 0.5, 2.0
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
LEVELS = np.array([0.0, 0.3])
TABLES = {2: LEVELS + RNG.normal(size=(N, 2)), 4: RNG.normal(size=(N, 4))}


@dataclass(frozen=True, slots=True)
class Constant:
    """The same score for every row: one parameter, whose posterior a sum over a grid gives."""

    def init(self, key: Any, n_features: int, n_raw: int) -> Any:
        return jnp.zeros(n_raw)

    def apply(self, params: Any, x: Any) -> Any:
        return jnp.broadcast_to(params, (x.shape[0], params.shape[-1]))


def problem(surrogate: Surrogate, outcomes: np.ndarray, *, model: Any = None, **settings: Any) -> Problem:
    model = Linear() if model is None else model
    target = np.asarray(surrogate.target(outcomes))
    params = model.init(jax.random.key(0), X.shape[1], surrogate.n_raw)
    given = {"weights": None, "zeta": 1.0, "eta": ETA, "prior_sd": PRIOR_SD, "params": params, **settings}
    return Problem(model, surrogate, X, target, **given)


def densities(posed: Problem) -> np.ndarray:
    """Log densities at some weights, less that at the first: constants do not count."""
    shapes = posed.model.init(jax.random.key(0), X.shape[1], posed.surrogate.n_raw)
    rng = np.random.default_rng(0)
    at = [jax.tree.map(lambda leaf: rng.normal(size=np.shape(leaf)), shapes) for _ in range(5)]
    values = np.array([float(posed.log_density(w)) for w in at])
    return values - values[0]


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with enable_x64(True):
        yield


# -- the posterior itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "options", "tolerance"),
    [("nuts", {"warmup": 200}, 0.02), ("sgld", {"step_size": 0.2, "burn_in": 200, "thin": 5}, 0.03)],
)
def test_draws_are_those_of_welfare_times_the_prior(method: str, options: dict, tolerance: float) -> None:
    outcomes = TABLES[2]
    posed = problem(NegativeWelfare(), outcomes, model=Constant())
    posterior = member_posterior(method, posed, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        treated = (np.tanh(np.asarray(posterior.sample(4000, seed=1), np.float64)[:, 0]) + 1.0) / 2.0
    grid = np.linspace(-8 * PRIOR_SD, 8 * PRIOR_SD, 20_001)
    share = (np.tanh(grid) + 1.0) / 2.0
    welfare = np.sum(outcomes[:, :1] * (1.0 - share) + outcomes[:, 1:] * share, axis=0)
    log_density = ETA * welfare - grid**2 / (2.0 * PRIOR_SD**2)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    assert_allclose(treated.mean(), weight @ share, atol=tolerance)
    for cut in (0.2, 0.5, 0.9):
        assert_allclose(np.mean(treated <= cut), weight[share <= cut].sum(), atol=1.5 * tolerance)


@pytest.mark.parametrize("count", [2, 4])
def test_it_is_the_end_of_the_path(count: int) -> None:
    """At zeta = 0 two actions' surrogate is twice negative welfare, that of more the same."""
    surrogate, eta = (Binary(), ETA / 2.0) if count == 2 else (FullVector(count), ETA)
    of_welfare = densities(problem(NegativeWelfare(count), TABLES[count]))
    assert_allclose(densities(problem(surrogate, TABLES[count], zeta=1e-12, eta=eta)), of_welfare, rtol=1e-9)
    assert np.abs(densities(problem(surrogate, TABLES[count], eta=eta)) - of_welfare).max() > 0.1


@pytest.mark.parametrize("count", [2, 4])
def test_a_constant_of_the_row_changes_neither(count: int) -> None:
    shifted = TABLES[count] + 5.0 * RNG.normal(size=(N, 1))
    for surrogate in (NegativeWelfare(count), Binary() if count == 2 else FullVector(count)):
        assert_allclose(densities(problem(surrogate, shifted)), densities(problem(surrogate, TABLES[count])), rtol=1e-9)


def test_the_unit_of_outcomes_is_in_eta_alone_and_for_a_surrogate_in_zeta_too() -> None:
    ten, one = 10.0 * TABLES[2], TABLES[2]
    foil, squared = NegativeWelfare(), Binary()
    assert_allclose(densities(problem(foil, ten)), densities(problem(foil, one, eta=10.0 * ETA)), rtol=1e-9)
    rescaled = problem(squared, one, zeta=0.1, eta=10.0 * ETA)
    assert_allclose(densities(problem(squared, ten)), densities(rescaled), rtol=1e-9)
    only_eta = densities(problem(squared, one, eta=10.0 * ETA))
    assert np.abs(densities(problem(squared, ten)) - only_eta).max() > 1.0


def test_without_a_prior_no_score_is_the_best_one() -> None:
    """One score for all rows: welfare rises with it for ever; the surrogate is least at tanh(r) = mean U / zeta."""
    gap = float(np.mean(TABLES[2][:, 1] - TABLES[2][:, 0]))
    zeta = 2.0 * gap
    scores = np.linspace(0.0, 6.0, 601)

    def log_density(surrogate: Surrogate) -> np.ndarray:
        posed = problem(surrogate, TABLES[2], model=Constant(), zeta=zeta, prior_sd=1e9)
        return np.array([float(posed.log_density(jnp.array([r]))) for r in scores])

    assert gap > 0
    assert (np.diff(log_density(NegativeWelfare())) > 0).all()
    assert_allclose(np.tanh(scores[np.argmax(log_density(Binary()))]), gap / zeta, atol=0.01)


def test_how_sure_of_a_sign_is_linear_in_the_gap_and_quadratic_for_the_surrogate() -> None:
    """One score f for all rows, uniform on [-1, 1]: the odds of the wrong sign are exp(-eta n m / 2)."""
    f = np.linspace(-1.0, 1.0, 200_001)[1:-1]

    def log_odds(surrogate: Surrogate, gap: float, zeta: float) -> float:
        losses = surrogate.reduced_loss(f[:, None], np.full((len(f), 1), gap), zeta)
        weight = np.exp(-ETA * N * np.asarray(losses))
        return float(np.log(weight[f < 0].sum() / weight[f > 0].sum()))

    for gap in (0.05, 0.1, 0.4):
        assert_allclose(log_odds(NegativeWelfare(), gap, 1.0), -ETA * N * gap / 2.0, rtol=1e-3)
    wide = 40.0  # so that f is not bounded where it matters: f ~ N(gap / zeta, 1 / (eta n zeta))
    for gap in (1.0, 2.0, 4.0):
        z = gap * np.sqrt(ETA * N / wide)
        assert_allclose(log_odds(Binary(), gap, wide), norm.logcdf(-z) - norm.logcdf(z), rtol=1e-3)


# -- what it has, and what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_the_best_policy_of_known_means_is_the_best_action_for_sure(count: int) -> None:
    means = RNG.normal(size=(50, count))
    policy = np.asarray(NegativeWelfare(count).population_policy(means, 1.0))
    assert_allclose(policy, np.eye(count)[means.argmax(axis=1)])


def test_settings_without_a_meaning_are_refused() -> None:
    with pytest.raises(ValueError, match=r"NegativeWelfare has no residual to cut, got huber=0.3; leave it out"):
        NegativeWelfare(huber=0.3)
    with pytest.raises(ValueError, match=r"unbounded scores has no minimum: squash=False"):
        NegativeWelfare(squash=False)
    with pytest.raises(ValueError, match=r"zeta is 1, 0.1, but the loss of NegativeWelfare .*leave it at 'auto'"):
        GBPLNet(zeta=[1.0, 0.1], surrogate="welfare").fit(X, TABLES[2])


@pytest.mark.parametrize(
    ("method", "options", "remedy"),
    [
        ("last_layer", {}, "'sgld', 'nuts' or 'bootstrap'"),
        ("laplace", {"structure": "diag"}, "'sgld', 'nuts' or 'bootstrap'"),
        ("variational", {}, "family='mean_field'"),
    ],
)
def test_what_needs_a_curvature_is_refused(method: str, options: dict, remedy: str) -> None:
    with pytest.raises(PosteriorError, match=f"curved in the scores, and NegativeWelfare is linear; use .*{remedy}"):
        member_posterior(method, problem(NegativeWelfare(), TABLES[2]), **options)


def test_boosted_trees_refuse_it() -> None:
    with pytest.raises(ValueError, match=r"NegativeWelfare is linear .*such as MLP\(\)"):
        GBPLNet(surrogate="welfare", model=BoostedScore(rounds=2, min_leaf=5), committee=2).fit(X, TABLES[2])


def test_the_estimator_has_one_fit_and_the_same_face() -> None:
    with enable_x64(False):
        policy = GBPLNet(
            surrogate="welfare", model=Linear(), committee=2, random_state=0, fit_config=FitConfig(max_epochs=5)
        ).fit(X, TABLES[2])
        assert isinstance(policy.surrogate_, NegativeWelfare)
        assert len(policy.zeta_path_.zeta) == 1
        assert_allclose(policy.zeta_path_.penalized_welfare, policy.zeta_path_.randomized_welfare)
        for method in ("information_matching", "safe_bayes"):
            with pytest.raises(PosteriorError, match="NegativeWelfare is linear; give eta a number"):
                policy.calibrate_eta(method)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            drawn = policy.posterior("nuts", warmup=20).welfare(X, TABLES[2], draws=20)
        assert len(drawn.values) == 20


def test_eta_changes_the_density_in_proportion() -> None:
    posed = problem(NegativeWelfare(), TABLES[2], prior_sd=1e9)
    assert_allclose(densities(replace(posed, eta=3.0 * ETA)), 3.0 * densities(posed), rtol=1e-9)
