"""The Gaussian prior against scipy's density (appendix on GBPLNet: N(0, sigma_w^2 I))."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gbpl import MLP
from gbpl.models.prior import GaussianPrior

PROPERTY = settings(deadline=None, max_examples=50)
numbers = st.floats(-5.0, 5.0, width=32, allow_subnormal=False)
sds = st.floats(0.1, 10.0)


def tree(values: np.ndarray) -> list[dict[str, jax.Array]]:
    """Ten numbers as the parameters of two layers."""
    return [
        {"weight": jnp.asarray(values[:6].reshape(3, 2)), "bias": jnp.asarray(values[6:8])},
        {"weight": jnp.asarray(values[8:9].reshape(1, 1)), "bias": jnp.asarray(values[9])},
    ]


@PROPERTY
@given(arrays(np.float32, 10, elements=numbers), sds)
def test_negative_log_density_is_scipys_summed_over_the_tree(values, sd):
    # Appendix: -log Pi(w) = sum w^2 / (2 sigma_w^2) + const, the constant included.
    expected = -scipy.stats.norm.logpdf(values.astype(np.float64), scale=sd).sum()
    np.testing.assert_allclose(GaussianPrior(sd).negative_log_density(tree(values)), expected, rtol=1e-5, atol=1e-4)


def test_negative_log_density_of_a_network():
    # Every weight and bias of every layer counts, once.
    params = MLP(hidden=(8, 5)).init(jax.random.key(0), 4, 3)
    values = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)]).astype(np.float64)
    assert values.size == (4 + 1) * 8 + (8 + 1) * 5 + (5 + 1) * 3
    expected = -scipy.stats.norm.logpdf(values, scale=0.7).sum()
    np.testing.assert_allclose(GaussianPrior(0.7).negative_log_density(params), expected, rtol=1e-5)


@PROPERTY
@given(arrays(np.float32, 10, elements=numbers), sds)
def test_slope_pulls_a_parameter_to_zero_by_its_precision(values, sd):
    # d/dw of w^2 / (2 sd^2): what a sampler and a MAP fit follow.
    slope = jax.grad(GaussianPrior(sd).negative_log_density)(tree(values))
    for actual, expected in zip(jax.tree.leaves(slope), jax.tree.leaves(tree(values)), strict=True):
        np.testing.assert_allclose(actual, np.asarray(expected, np.float64) / sd**2, rtol=1e-5, atol=1e-6)


@PROPERTY
@given(arrays(np.float32, 10, elements=numbers), sds, st.floats(0.01, 10.0), st.integers(1, 10_000))
def test_penalty_beside_a_mean_loss_is_the_prior_over_eta_n(values, sd, eta, n):
    # MAP objective divided by eta n: mean loss + |w|^2 / (2 sd^2 eta n).
    prior = GaussianPrior(sd)
    assert prior.penalty_scale(eta, n) == pytest.approx(1 / (2 * sd**2 * eta * n), rel=1e-12)
    squares = np.sum(values.astype(np.float64) ** 2)
    rise = -scipy.stats.norm.logpdf(values.astype(np.float64), scale=sd) + scipy.stats.norm.logpdf(0.0, scale=sd)
    np.testing.assert_allclose(eta * n * prior.penalty_scale(eta, n) * squares, rise.sum(), rtol=1e-6, atol=1e-9)


def test_default_is_the_papers_standard_normal():
    assert GaussianPrior() == GaussianPrior(1.0)
    assert hash(GaussianPrior()) == hash(GaussianPrior(1.0))
    np.testing.assert_allclose(GaussianPrior().negative_log_density(jnp.zeros(4)), 2 * np.log(2 * np.pi), rtol=1e-6)


@pytest.mark.parametrize("sd", [0.0, -1.0, float("nan"), float("inf")])
def test_an_invalid_sd_is_named(sd):
    with pytest.raises(ValueError, match=f"prior_sd.*got {sd}"):
        GaussianPrior(sd)
