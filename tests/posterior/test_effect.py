"""The posterior of effects, restated: a Gaussian linear model, its marginal likelihood, and policies that follow."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal, norm

from gbpl.models.basis import effect_basis
from gbpl.posterior import effect as module
from gbpl.posterior.effect import contrasts, fit_effect

N = 400


def _folds(n: int = N, count: int = 4) -> list[np.ndarray]:
    return np.array_split(np.random.default_rng(9).permutation(n), count)


def _data(effect: float, *, actions: int = 2, noise: float = 1.0, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Features, outcomes whose effects are `effect` times a committee's deviations, and those deviations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 3)).astype(np.float32)
    d = np.tanh(x @ rng.normal(size=(3, actions)))
    d = (d - d.mean(axis=1, keepdims=True)).astype(np.float32) / 4
    return x, effect * d + x[:, :1] + noise * rng.normal(size=(N, actions)), d


@pytest.mark.parametrize("actions", [2, 3, 6])
def test_contrasts_are_an_orthonormal_basis_of_what_sums_to_zero(actions):
    basis = contrasts(actions)
    assert basis.shape == (actions, actions - 1)
    assert_allclose(basis.T @ basis, np.eye(actions - 1), atol=1e-12)
    assert_allclose(basis.sum(axis=0), 0.0, atol=1e-12)


def test_it_is_the_posterior_of_a_gaussian_linear_model(monkeypatch):
    """With one point in the grid and no optimism: a joint normal of beta and B, given the noise, solved directly."""
    monkeypatch.setattr(module, "SCALES", (0.1,))
    monkeypatch.setattr(module, "CURVE_SCALES", (0.2,))
    monkeypatch.setattr(module, "SLOPE_SCALES", (0.5,))
    monkeypatch.setattr(module, "OPTIMISM", 0.0)
    monkeypatch.setattr(module, "KNOTS", 5)
    x, y, d = _data(2.0)
    fit, _ = fit_effect(x, y, d, _folds())
    (part,) = fit.whole.parts
    assert fit.knots == 0  # too few rows for curves
    c, size = (y @ contrasts(2))[:, 0], fit.size
    design = np.column_stack([effect_basis(x, 0, 4), (d @ contrasts(2))[:, 0] / size])
    variance = float(part.noise[0, 0])
    typical = float(np.mean(c**2))
    prior = np.array([0.1**2, *[0.1**2 / 3] * 3, 0.5**2 * typical / variance]) * variance
    precision = design.T @ design / variance + np.diag(1.0 / prior)
    mean, covariance = np.linalg.solve(precision, design.T @ c / variance), np.linalg.inv(precision)
    assert_allclose(part.slope, mean[-1], rtol=1e-6)
    assert_allclose(part.slope_sd, np.sqrt(covariance[-1, -1]), rtol=1e-6)
    given = part.of_outcomes[:, 0] - part.slope * part.of_deviation[:, 0]
    assert_allclose(given, mean[:-1], rtol=1e-5, atol=1e-9)
    slopes, coefficients = fit.whole.draw(20_000, np.random.default_rng(0))
    drawn = np.column_stack([coefficients[:, :, 0], slopes])
    assert_allclose(np.cov(drawn.T), covariance, atol=5 * np.abs(covariance).max() / np.sqrt(20_000))


def test_points_of_the_grid_count_by_their_marginal_likelihood(monkeypatch):
    """Of levels with a slope near zero: N(0, s^2 (I + v 11')) of the outcomes' contrasts at each v.

    A slope of exactly zero has the weight of the two that are near it.
    """
    monkeypatch.setattr(module, "SLOPE_SCALES", (1e-6, 2e-6))
    monkeypatch.setattr(module, "OPTIMISM", 0.0)
    monkeypatch.setattr(module, "LEAST_SHARE", 0.0)
    rng = np.random.default_rng(1)
    x, d = (
        rng.normal(size=(N, 3)).astype(np.float32),
        np.tile(np.float32([-1e-3, 1e-3]), (N, 1)) * rng.choice([-1, 1], (N, 1)),
    )
    y = np.column_stack([np.zeros(N), 0.3 + rng.normal(size=N)])
    fit, _ = fit_effect(x, y, d.astype(np.float32), _folds())
    c = (y @ contrasts(2))[:, 0]
    log = []
    for part, scale in zip(fit.played.parts[::3], module.SCALES, strict=True):
        s2 = float(part.noise[0, 0])
        log.append(multivariate_normal.logpdf(c, np.zeros(N), s2 * (np.eye(N) + scale**2)))
    shares = np.exp(np.array(log) - max(log))
    expected = np.kron(shares / shares.sum(), [0.5, 0.25, 0.25])
    assert_allclose(fit.played.shares, expected, rtol=0.05, atol=2e-3)
    assert_allclose([part.mean_slope for part in fit.played.parts[::3]], 0.0, atol=1e-6)


@pytest.mark.parametrize("effect", [0.0, 0.6, 1.2])
def test_one_action_for_all_competes_with_a_slope_in_what_is_played(monkeypatch, effect):
    """By marginal likelihoods: N(0, s^2 (I + v 11')) against the same with slope d, slope ~ N(0, t^2) above zero."""
    for name, value in {"SCALES": (0.1,), "SLOPE_SCALES": (0.5,), "OPTIMISM": 0.0, "LEAST_SHARE": 0.0}.items():
        monkeypatch.setattr(module, name, value)
    x, y, d = _data(effect)
    fit, _ = fit_effect(x, y, d, _folds())
    same, sloped = fit.played.parts
    c, along = ((table @ contrasts(2))[:, 0].astype(float) for table in (y, d / fit.size))
    s2, prior = float(same.noise[0, 0]), 0.5**2 * np.mean(c**2)
    covariance = s2 * (np.eye(N) + 0.1**2)
    log = [
        multivariate_normal.logpdf(c, np.zeros(N), covariance + variance * np.outer(along, along))
        for variance in (0.0, prior)
    ]
    log[1] += np.log(2.0) + norm.logcdf(sloped.slope / sloped.slope_sd)
    share = 1.0 / (1.0 + np.exp(log[0] - log[1]))
    assert_allclose(fit.played.shares, [1.0 - share, share], rtol=1e-3)
    ratio = sloped.slope / sloped.slope_sd
    above = sloped.slope + sloped.slope_sd * norm.pdf(ratio) / norm.cdf(ratio)
    assert_allclose(fit.mean.slope, share * above / fit.size, rtol=1e-3)
    assert len(fit.whole.parts) == 1  # draws have the slope alone


def test_rows_in_no_fold_do_not_count():
    x, y, d = _data(1.0)
    folds = _folds()[:3]
    rows, ends = np.concatenate(folds), np.cumsum([0, *map(len, folds)])
    apart = [np.arange(start, end) for start, end in pairwise(ends)]
    weights = np.random.default_rng(4).uniform(0.5, 2.0, N)
    some, outside = fit_effect(x, y, d, folds, weights=weights)
    alone, others = fit_effect(x[rows], y[rows], d[rows], apart, weights=weights[rows])
    for one, other in zip((some.mean, *outside), (alone.mean, *others), strict=True):
        assert (one.slope, *one.level, one.unit) == (other.slope, *other.level, other.unit)
    assert fit_effect(x, y, d, _folds(), weights=weights)[0].mean.slope != some.mean.slope


def test_where_the_committee_finds_nothing_everybody_gets_the_best_action():
    rng = np.random.default_rng(2)
    x, _, d = _data(0.0)
    y = np.column_stack([np.zeros(N), np.full(N, 0.5)]) + rng.normal(size=(N, 2))
    fit, outside = fit_effect(x, y, d, _folds())
    for effect in (fit.mean, *outside):
        assert (np.argmax(effect.deviation(d), axis=1) == 1).mean() > 0.95
    assert (np.argmax(d, axis=1) == 1).mean() < 0.8


def test_where_it_finds_much_its_order_is_kept_and_the_slope_is_right():
    x, y, d = _data(3.0, noise=0.01)
    fit, _ = fit_effect(x, y, d, _folds())
    assert abs(fit.mean.slope - 3.0) < 0.1
    assert (np.argmax(fit.mean.deviation(d), axis=1) == np.argmax(d, axis=1)).mean() > 0.98
    assert_allclose(fit.mean.unit * fit.mean.deviation(d), 3.0 * d, atol=0.1)  # in outcome units


@pytest.mark.parametrize("actions", [2, 4])
def test_the_unit_of_the_outcomes_does_not_matter(actions):
    x, y, d = _data(1.0, actions=actions)
    one, _ = fit_effect(x, y, d, _folds(), unit=1.0)
    other, _ = fit_effect(x, 1000.0 * y + 7.0, d, _folds(), unit=1000.0)
    assert_allclose(other.mean.slope, 1000.0 * one.mean.slope, rtol=1e-6)
    assert_allclose(other.mean.deviation(d), one.mean.deviation(d), atol=1e-5)
    assert_allclose(other.doubt, one.doubt, rtol=1e-6)


def test_what_is_known_outside_a_fold_does_not_depend_on_it():
    x, y, d = _data(1.0)
    folds = _folds()
    changed = y.copy()
    changed[folds[1], 1] += 5.0
    before, after = (fit_effect(x, table, d, folds)[1] for table in (y, changed))
    assert_allclose(after[1].level / after[1].unit * 0 + after[1].slope, before[1].slope, rtol=1e-9)
    assert_allclose(after[1].level, before[1].level, rtol=1e-9)
    assert np.abs(after[0].level - before[0].level).max() > 0.1


def test_a_row_of_weight_two_is_the_row_twice():
    x, y, d = _data(1.0)
    folds, weights = _folds(), np.ones(N)
    weights[:100] = 2.0
    rows = np.concatenate([np.arange(N), np.arange(100)])
    twice = [np.flatnonzero(np.isin(rows, fold)) for fold in folds]
    weighted, _ = fit_effect(x, y, d, folds, weights=weights, thinning=500 / N)
    repeated, _ = fit_effect(x[rows], y[rows], d[rows], twice)
    assert_allclose(weighted.size, repeated.size, rtol=0.05)
    assert_allclose(weighted.mean.slope, repeated.mean.slope, rtol=0.02)
    assert_allclose(weighted.mean.level, repeated.mean.level, atol=5e-3)


def test_doubt_is_how_much_the_best_two_actions_are_closer_than_they_look():
    """Effects of which the best two are a fifth as far apart as the deviations say, the others as they say."""
    rng = np.random.default_rng(3)
    n = 20_000
    d = rng.normal(size=(n, 4)).astype(np.float32)
    d -= d.mean(axis=1, keepdims=True)
    rows = np.arange(n)
    second, first = np.argsort(d, axis=1)[:, -2:].T
    middle = (d[rows, first] + d[rows, second]) / 2
    effects = d.copy()
    effects[rows, first] = middle + (d[rows, first] - middle) / 5
    effects[rows, second] = middle + (d[rows, second] - middle) / 5
    doubted = module._doubt(d, effects + rng.normal(size=d.shape), np.ones(n))
    trusted = module._doubt(d, d + rng.normal(size=d.shape), np.ones(n))
    overall = np.sum(d * (effects - effects.mean(axis=1, keepdims=True))) / np.sum(d * d)
    assert_allclose(trusted, module.SEVERAL, rtol=0.05)
    assert_allclose(doubted, module.SEVERAL * overall * 5, rtol=0.1)
    assert module._doubt(d[:, :2], d[:, :2], np.ones(n)) == 1.0


def test_outcomes_that_are_all_the_same_have_no_effects():
    x, _, d = _data(0.0)
    for y in (np.ones((N, 2)), np.zeros((N, 2)), np.tile(x[:, :1].astype(float) / 3, (1, 2))):
        fit, _ = fit_effect(x, y, d, _folds())
        slopes, coefficients = fit.draw(400, seed=0)
        assert np.isfinite(coefficients).all()
        # nothing but rounding differs between the actions: neither is more often the better one
        effect = slopes[:, None, None] * d + np.matmul(effect_basis(x, fit.knots, coefficients.shape[1]), coefficients)
        assert np.abs(np.mean(effect[..., 1] > effect[..., 0]) - 0.5) < 0.15
        assert_allclose(fit.mean.level, 0.0, atol=1e-4)
