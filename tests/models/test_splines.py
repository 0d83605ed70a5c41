"""Splines: orthonormal curves, smooth at the knots, straight beyond them, additive over features."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad_vec
from scipy.stats import norm

from gbpl import Binary, FitConfig, GBPLNet, Linear, Member, Splines, fit_stack, load
from gbpl.models.splines import spline_curves

KNOTS = [3, 6, 9]


def places(knots: int) -> np.ndarray:
    """Normal quantiles of even probabilities."""
    return norm.ppf((np.arange(knots) + 0.5) / knots)


def curves(x: Any, knots: int) -> np.ndarray:
    """Curves of one feature, "point curve", in float64."""
    return spline_curves(np.asarray(x, np.float64).reshape(-1, 1), knots)


@pytest.mark.parametrize("knots", KNOTS)
def test_curves_are_orthonormal_under_the_standard_normal(knots: int) -> None:
    def products(x: float) -> np.ndarray:
        with_one = np.append(1.0, curves(x, knots)[0])
        return np.outer(with_one, with_one) * norm.pdf(x)

    found, _ = quad_vec(products, -9.0, 9.0, points=places(knots), epsabs=1e-8)
    assert found.shape == (knots, knots)  # the constant beside knots - 1 curves
    assert_allclose(found, np.eye(knots), atol=1e-5)


@pytest.mark.parametrize("knots", KNOTS)
def test_the_first_curve_is_the_line(knots: int) -> None:
    x = np.linspace(-5.0, 5.0, 21)
    assert_allclose(curves(x, knots)[:, 0], x, atol=1e-5)


@pytest.mark.parametrize("knots", KNOTS)
def test_curves_are_natural_cubic_splines(knots: int) -> None:
    """The space of them is that of the textbook's basis: 1, x and d_k - d_{K-1} (Hastie, Tibshirani, Friedman 5.4)."""
    k, x = places(knots), np.linspace(-4.0, 4.0, 301)

    def d(place: float) -> np.ndarray:
        return (np.maximum(x - place, 0.0) ** 3 - np.maximum(x - k[-1], 0.0) ** 3) / (k[-1] - place)

    textbook = np.column_stack([np.ones_like(x), x, *(d(place) - d(k[-2]) for place in k[:-2])])
    ours = np.column_stack([np.ones_like(x), curves(x, knots)])
    assert np.linalg.matrix_rank(ours) == knots
    told = textbook @ np.linalg.lstsq(textbook, ours, rcond=None)[0]
    assert_allclose(told, ours, atol=1e-5)


@pytest.mark.parametrize("knots", KNOTS)
def test_curves_are_straight_beyond_the_outer_knots(knots: int) -> None:
    for end in places(knots)[[0, -1]]:
        far = end + np.sign(end) * np.array([0.0, 1.0, 2.0, 50.0])
        at = curves(far, knots)
        slope = (at[1] - at[0])[None]
        steps = np.array([0.0, 1.0, 2.0, 50.0])[:, None]
        assert_allclose(at, at[0] + steps * slope, rtol=1e-5, atol=1e-4)


def test_far_rows_keep_their_digits_in_float32() -> None:
    """A feature with heavy tails: cubes of a thousand would cancel to a line only in exact arithmetic."""
    far = np.array([[1000.0], [1001.0], [-1000.0], [-1001.0]], np.float32)
    near = curves([3.0, 4.0, -3.0, -4.0], 6)
    at = np.asarray(spline_curves(jnp.asarray(far), 6, jnp))
    for one, other in ((0, 1), (2, 3)):
        assert_allclose(at[other] - at[one], near[other] - near[one], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("knots", KNOTS)
def test_curves_have_two_continuous_derivatives_at_the_knots(knots: int) -> None:
    """On either side of a knot a curve is a cubic: its Taylor coefficients up to the second are the same on both."""
    step = 0.05
    at = step * np.arange(5)
    for place in places(knots):
        sides = []
        for sign in (-1.0, 1.0):
            rows = np.vander(sign * at, 4, increasing=True)
            fitted, rest, *_ = np.linalg.lstsq(rows, curves(place + sign * at, knots), rcond=None)
            assert np.all(rest < 1e-9), "within a piece it is a cubic"
            sides.append(fitted)
        assert_allclose(sides[0][:3], sides[1][:3], atol=2e-2)
        assert_allclose(sides[0][:2], sides[1][:2], atol=1e-3)


def test_third_derivatives_jump() -> None:
    """Or the test above would say nothing: at an inner knot the cubics of both sides differ."""
    place, at = places(6)[2], 0.1 * np.arange(5)
    third = [
        np.linalg.lstsq(np.vander(sign * at, 4), curves(place + sign * at, 6), rcond=None)[0][0] for sign in (-1.0, 1.0)
    ]
    assert np.abs(third[0] - third[1]).max() > 0.1


def test_jax_and_numpy_agree() -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert_allclose(spline_curves(jnp.asarray(x), 6, jnp), spline_curves(x, 6), atol=1e-5)
    assert_array_equal(Splines().features([], jnp.asarray(x)), spline_curves(jnp.asarray(x), 6, jnp))


def test_scores_are_additive() -> None:
    """The mixed difference in two features, f(a,b) - f(a,b') - f(a',b) + f(a',b'), is zero."""
    model, key = Splines(), jax.random.key(0)
    made = model.init(key, 3, 2)
    assert made[0]["weight"].shape == (3 * model.curves, 2)
    params = jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape), made)
    a, b = jax.random.normal(key, (2, 40, 3))

    def raw(first: jax.Array, second: jax.Array) -> jax.Array:
        return model.apply(params, jnp.stack([first[:, 0], second[:, 1], a[:, 2]], axis=1))

    assert np.abs(raw(a, a) - raw(a, b)).max() > 1.0
    assert_allclose(raw(a, a) - raw(a, b) - raw(b, a) + raw(b, b), 0.0, atol=1e-4)


def test_a_sine_is_learned_better_than_by_a_linear_score() -> None:
    rng = np.random.default_rng(1)
    x, new = rng.normal(size=(400, 3)), rng.normal(size=(2000, 3))
    gap = np.sin(2.0 * x[:, 0]) + 0.5 * rng.normal(size=400)
    config = FitConfig(max_epochs=40, learning_rate=0.02)

    def shortfall(model: Any) -> float:
        policy = GBPLNet(model=model, zeta=1.0, committee=2, random_state=0, fit_config=config).fit(x, outcome_gap=gap)
        best = np.maximum(np.sin(2.0 * new[:, 0]), 0.0)
        return float(np.mean(best - policy.predict(new) * np.sin(2.0 * new[:, 0])))

    assert shortfall(Splines()) < 0.3 * shortfall(Linear())


@pytest.mark.parametrize("knots", [2, 51, 4.0, True])
def test_settings_are_checked(knots: Any) -> None:
    with pytest.raises(ValueError, match=r"knots must be a whole number from 3 to 50, got .*; try 6"):
        Splines(knots=knots)


@pytest.mark.parametrize("curve_sd", [0.0, -1.0, float("inf")])
def test_the_prior_of_curves_is_checked(curve_sd: float) -> None:
    with pytest.raises(ValueError, match=r"curve_sd must be > 0 and finite, got .*; try 0.3"):
        Splines(curve_sd=curve_sd)


def test_curve_sd_is_the_prior_sd_of_what_bends() -> None:
    """Least squares again: sum (u - zeta f)^2 / (2 zeta) + |w|^2 / (2 eta sd^2), each weight with its own prior sd."""
    rng = np.random.default_rng(3)
    x, zeta, eta = rng.normal(size=(80, 2)).astype(np.float32), 0.5, 2.0
    gap = (np.sin(2.0 * x[:, :1]) + 0.1 * rng.normal(size=(80, 1))).astype(np.float32)
    model, member = Splines(knots=5, curve_sd=0.3), Member(np.arange(80), zeta=zeta, eta=eta, prior_sd=0.2)
    fit = fit_stack(x, gap, [member], Binary(squash=False), model)
    basis = np.column_stack([curves(x[:, 0], 5), curves(x[:, 1], 5), np.ones(80)])
    sd = 0.2 * np.array([1.0, 0.3, 0.3, 0.3, 1.0, 0.3, 0.3, 0.3, 1.0])
    expected = np.linalg.solve(zeta * basis.T @ basis + np.diag(1.0 / (eta * sd**2)), basis.T @ gap)
    found = model.apply(jax.tree.map(lambda leaf: leaf[0], fit.params), jnp.asarray(x))
    assert_allclose(found, basis @ expected, atol=1e-4)
    frozen = model.frozen(fit.params, 2)  # without the model, its weights count for the curves as they are
    assert_allclose(frozen.basis(0, x) @ frozen.last[0], found, atol=1e-5)


def test_draws_of_shrunk_curves_are_saved_in_the_units_of_the_file(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(120, 2))
    config = FitConfig(max_epochs=20, learning_rate=0.05)
    policy = GBPLNet(
        model=Splines(knots=4, curve_sd=0.3), zeta=1.0, committee=2, random_state=0, fit_config=config
    ).fit(x, outcome_gap=np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=120))
    posterior = policy.posterior()
    policy.save(tmp_path / "policy.gbpl", draws=40)
    saved = load(tmp_path / "policy.gbpl")
    assert_allclose(saved.predict_proba(x), policy.predict_proba(x), atol=1e-6)
    expected = posterior.action_probability(x[:30], draws=40, seed=0)
    assert_allclose(saved.action_probability(x[:30]), expected, atol=0.03)
