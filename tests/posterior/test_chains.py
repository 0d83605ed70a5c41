"""SGLD and NUTS against a posterior known exactly: a linear score without squashing makes it Gaussian."""

import subprocess
import sys
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.diagnostics import effective_sample_size
from blackjax.util import generate_gaussian_noise
from support.checks import enable_x64

import gbpl.posterior.sgld
from gbpl import MLP, Binary, FullVector, Linear, PosteriorError, PosteriorWarning
from gbpl.posterior.chains import ChainQuality, assess, chain_keys, interleave, summaries, to_arviz, traced
from gbpl.posterior.nuts import NUTS
from gbpl.posterior.problem import Problem
from gbpl.posterior.sgld import SGLD, clip_by_norm, minibatch_gradient, step_at

N, ETA, ZETA, PRIOR_SD = 60, 1.0, 1.0, 1.0
QUIET = pytest.mark.filterwarnings("ignore::gbpl.posterior.problem.PosteriorWarning")


def tree_of(w):
    """Bias last, as in `vectors`."""
    w = np.asarray(w, np.float32)
    return [{"weight": w[:-1, None], "bias": w[-1:]}]


def vectors(params):
    """The weights of a linear score as vectors, whatever axes lead."""
    layer = params[0]
    return np.concatenate([np.asarray(layer["weight"])[..., 0], np.asarray(layer["bias"])], -1).astype(np.float64)


def make_data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((N, 2)) @ np.array([[1.0, 0.5], [0.0, 0.8]])
    target = x @ np.array([[0.6], [-0.3]]) + 0.2 + rng.standard_normal((N, 1))
    return x.astype(np.float32), target.astype(np.float32)


X, TARGET = make_data()
PHI = np.column_stack([X, np.ones(N)]).astype(np.float64)
PRECISION = ETA * ZETA * PHI.T @ PHI + np.eye(3) / PRIOR_SD**2
MEAN = np.linalg.solve(PRECISION, ETA * PHI.T @ TARGET[:, 0].astype(np.float64))


def gaussian(params=None, weights=None):
    start = tree_of(MEAN) if params is None else params
    return Problem(Linear(), Binary(squash=False), X, TARGET, weights, ZETA, ETA, PRIOR_SD, start)


def network(surrogate, model):
    target = np.random.default_rng(1).standard_normal((N, surrogate.n_raw)).astype(np.float32)
    params = model.init(jax.random.key(0), 2, surrogate.n_raw)
    return Problem(model, surrogate, X, target, None, 1.0, 1.0, 1.0, params)


def gradient_of_potential(w):
    """Phi(w) = eta sum_i {-t_i s_i + zeta s_i^2 / 2} + |w|^2 / (2 sd^2) with s = Phi w."""
    return PRECISION @ w - ETA * PHI.T @ TARGET[:, 0].astype(np.float64)


def assert_moments(draws, mean, covariance, sigmas=5.0):
    """Mean and covariance of (chain, draw, weight) are the expected ones, within standard errors that count ESS."""
    lower = np.tril_indices(len(mean))
    products = (draws - mean)[..., lower[0]] * (draws - mean)[..., lower[1]]
    values = np.concatenate([draws, products], axis=-1)
    expected = np.concatenate([mean, covariance[lower]])
    error = values.std((0, 1)) / np.sqrt(np.asarray(effective_sample_size(jnp.asarray(values, jnp.float32))))
    np.testing.assert_array_less(np.abs(values.mean((0, 1)) - expected) / error, sigmas)


def test_the_problem_is_the_gaussian():
    w = np.array([0.3, -1.0, 0.7])
    slope = jax.grad(gaussian().log_density)(tree_of(w))
    np.testing.assert_allclose(vectors(slope), -gradient_of_potential(w), rtol=1e-4)


# NUTS


@pytest.fixture(scope="module")
def nuts():
    posterior = NUTS(gaussian(), warmup=300)
    return posterior, posterior.sample(3001, seed=1)


def test_nuts_draws_the_gaussian(nuts):
    posterior, _ = nuts
    assert_moments(vectors(posterior.diagnostics["chain_draws"]), MEAN, np.linalg.inv(PRECISION))


def test_nuts_diagnostics(nuts):
    posterior, draws = nuts
    diagnostics = posterior.diagnostics
    assert (diagnostics["chains"], diagnostics["kept"], diagnostics["divergences"]) == (2, 1501, 0)
    assert diagnostics["max_rhat"] < 1.02
    assert diagnostics["max_rhat_weights"] < 1.02
    assert 500 < diagnostics["min_ess"] < 10_000
    assert 0.6 < diagnostics["mean_acceptance"] <= 1.0
    assert diagnostics["step_size"].shape == (2,)
    assert all(values.shape == (2, 1501) for values in diagnostics["sample_stats"].values())
    chains = vectors(diagnostics["chain_draws"])
    assert chains.shape == (2, 1501, 3)
    np.testing.assert_array_equal(vectors(draws)[:4], [chains[0, 0], chains[1, 0], chains[0, 1], chains[1, 1]])
    log_density = [float(posterior.problem.log_density(tree_of(w))) for w in chains[1, :3]]
    np.testing.assert_allclose(diagnostics["sample_stats"]["lp"][1, :3], log_density, rtol=1e-4, atol=1e-4)


def test_nuts_refuses_many_weights():
    with pytest.raises(PosteriorError, match=r"max_weights=10 .* has 17; use 'last_layer', 'laplace' or 'sgld'"):
        NUTS(network(Binary(), MLP((4,))), max_weights=10)


def test_nuts_warns_of_divergences(monkeypatch):
    posterior = NUTS(gaussian(), warmup=20)
    rng = np.random.default_rng(0)
    draws = jax.tree.map(lambda leaf: rng.standard_normal((2, 200, *leaf.shape)), posterior.problem.params)
    stats = {"diverging": np.arange(400).reshape(2, 200) < 7, "acceptance_rate": np.full((2, 200), 0.8)}
    monkeypatch.setattr(posterior, "_chains", lambda keys, kept: (draws, stats, np.ones(2)))
    with pytest.warns(PosteriorWarning, match="7 of the 400 draws of NUTS diverged.*raise target_acceptance"):
        posterior.sample(400, seed=0)
    assert posterior.diagnostics["divergences"] == 7


def test_nuts_without_a_finite_density():
    with pytest.raises(PosteriorError, match="no finite log density"):
        NUTS(gaussian(tree_of([np.nan, 0, 0])), warmup=300).sample(3001, seed=0)


# SGLD


def variance_of_sgld(step):
    """Per eigendirection: v = (1 - eps l / 2)^2 v + eps, so v = 1 / (l (1 - eps l / 4))."""
    eigenvalue = np.linalg.eigvalsh(PRECISION)
    return 1.0 / (eigenvalue * (1.0 - step * eigenvalue / 4.0))


def test_sgld_has_the_variance_of_its_step():
    exact, directions = np.linalg.eigh(PRECISION)
    excess = {}
    for step in (0.03, 0.006):
        posterior = SGLD(gaussian(), step_size=step, burn_in=200, thin=10, batch_size=N)
        posterior.sample(8000, seed=3)
        assert posterior.diagnostics["max_rhat"] < 1.02
        assert posterior.diagnostics["min_ess"] > 1000
        centred = (vectors(posterior.diagnostics["chain_draws"]) - MEAN) @ directions
        assert_moments(centred, np.zeros(3), np.diag(variance_of_sgld(step)))
        excess[step] = (centred**2).mean((0, 1)) * exact - 1.0
        assert excess[step][-1] > 0.1  # of the stiffest direction: what the formula says is far from no bias at all
    assert np.all(excess[0.006] < 0.5 * excess[0.03])


def test_one_step_is_the_papers():
    """w - eps/2 grad Phi + sqrt(eps) xi, with the same xi."""
    start, step = np.array([0.5, 0.1, -0.4]), 0.02
    posterior = SGLD(gaussian(tree_of(start)), step_size=step, burn_in=0, thin=1, batch_size=N, chains=1)
    keys = chain_keys(5, 1)
    noise = generate_gaussian_noise(jax.random.fold_in(jax.random.split(keys[0])[1], 0), tree_of(start))
    expected = start - step / 2 * gradient_of_potential(start) + np.sqrt(step) * vectors(noise)
    np.testing.assert_allclose(vectors(posterior._chains(keys, 1))[0, 0], expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def noiseless(monkeypatch):
    diffusions = sys.modules["blackjax.sgmcmc.diffusions"]
    gbpl.posterior.sgld._run.clear_cache()
    monkeypatch.setattr(diffusions, "generate_gaussian_noise", lambda key, tree: jax.tree.map(jnp.zeros_like, tree))
    yield
    gbpl.posterior.sgld._run.clear_cache()


def test_burn_in_thinning_decay_and_clipping(noiseless):
    """Without noise a chain is gradient descent, written out here."""
    start, step, burn_in, thin, kept, decay, clip_norm = np.full(3, 2.0), 0.01, 4, 2, 3, 0.7, 150.0
    w, path, clipped = start, [], 0
    for t in range(burn_in + thin * kept):
        slope = gradient_of_potential(w)
        clipped += np.linalg.norm(slope) > clip_norm
        slope = slope * min(1.0, clip_norm / np.linalg.norm(slope))
        w = w - step * (1 + t / burn_in) ** (-decay) / 2 * slope
        path.append(w)
    assert 0 < clipped < burn_in + thin * kept
    posterior = SGLD(
        gaussian(tree_of(start)),
        step_size=step,
        burn_in=burn_in,
        thin=thin,
        batch_size=1000,
        chains=1,
        clip_norm=clip_norm,
        decay=decay,
    )
    draws = vectors(posterior.sample(kept, seed=0))
    np.testing.assert_allclose(draws, path[burn_in + thin - 1 :: thin], rtol=1e-4, atol=1e-5)


def test_a_pass_uses_every_row_once(noiseless):
    """Without noise and with steps too small to change the gradient, three batches of 20 move along the full one."""
    posterior = SGLD(gaussian(tree_of(np.zeros(3))), step_size=1e-6, burn_in=0, thin=3, batch_size=20, chains=2)
    one_pass = vectors(posterior._chains(chain_keys(0, 2), 2))
    expected = -3 * (1e-6 / 2) * gradient_of_potential(np.zeros(3))
    np.testing.assert_allclose(one_pass[:, 0], [expected, expected], rtol=1e-3)
    np.testing.assert_allclose(one_pass[:, 1], [2 * expected, 2 * expected], rtol=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_minibatch_gradient_is_unbiased(weighted):
    weights = np.random.default_rng(2).gamma(1.0, size=N).astype(np.float32) if weighted else None
    problem, params = gaussian(weights=weights), tree_of([0.3, -1.0, 0.7])
    parts = np.random.default_rng(0).permutation(N).reshape(4, 15)
    gradients = [vectors(minibatch_gradient(problem, params, jnp.asarray(rows))) for rows in parts]
    full = -vectors(jax.grad(problem.log_density)(params))
    np.testing.assert_allclose(np.mean(gradients, 0), full, rtol=1e-4)
    assert np.ptp(gradients, 0).max() > 1.0


def test_clipping_keeps_direction_and_short_gradients():
    long = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    clipped = clip_by_norm(long, 2.5)
    np.testing.assert_allclose(clipped["a"], [1.5, 0.0])
    np.testing.assert_allclose(clipped["b"], [[2.0]])
    for limit in (5.1, jnp.inf):
        np.testing.assert_array_equal(clip_by_norm(long, limit)["a"], long["a"])
    np.testing.assert_array_equal(clip_by_norm({"a": jnp.zeros(2)}, jnp.inf)["a"], [0.0, 0.0])


def test_step_schedule():
    assert [float(step_at(t, 0.2, 0.0, 100)) for t in (0, 5000)] == pytest.approx([0.2, 0.2])
    assert float(step_at(300, 0.2, 0.5, 100)) == pytest.approx(0.1)
    assert float(step_at(3, 0.2, 0.5, 0)) == pytest.approx(0.1)


def test_sgld_says_when_it_has_not_moved():
    posterior = SGLD(gaussian(), step_size=1e-7, burn_in=10, thin=1, batch_size=32)
    with pytest.warns(PosteriorWarning, match=r"R-hat .* effective sample size .*step_size=1e-07.*larger step_size"):
        posterior.sample(400, seed=0)
    assert posterior.diagnostics["max_rhat"] > 1.1
    assert posterior.diagnostics["min_ess"] < 50


def test_sgld_says_when_it_runs_away():
    posterior = SGLD(gaussian(), step_size=10.0, burn_in=100, thin=1)
    with pytest.raises(PosteriorError, match=r"step_size=10 .*smaller step_size, such as 1, or set clip_norm"):
        posterior.sample(20, seed=0)


# Both


SAMPLERS = {
    "sgld": lambda problem, **options: SGLD(problem, step_size=0.003, burn_in=20, thin=2, batch_size=16, **options),
    "nuts": lambda problem, **options: NUTS(problem, warmup=40, **options),
}


@QUIET
@pytest.mark.parametrize(
    ("method", "surrogate", "model"),
    [
        ("sgld", Binary(), MLP((4,))),
        ("sgld", FullVector(3), Linear()),
        ("nuts", FullVector(3), Linear()),  # test_posteriors.py has NUTS of networks
    ],
    ids=["sgld-network", "sgld-three actions", "nuts-three actions"],
)
def test_contract(method, surrogate, model):
    problem = network(surrogate, model)
    posterior = SAMPLERS[method](problem, chains=3)
    assert posterior.diagnostics == {}
    draws = posterior.sample(10, seed=7)
    for leaf, own in zip(jax.tree.leaves(draws), jax.tree.leaves(problem.params), strict=True):
        assert isinstance(leaf, np.ndarray)
        assert leaf.dtype == np.float32
        assert leaf.shape == (10, *own.shape)
        assert len(np.unique(leaf.reshape(10, -1), axis=0)) > 5
    assert jax.tree.structure(draws) == jax.tree.structure(problem.params)
    assert posterior.raw(draws, X[:5]).shape == (10, 5, surrogate.n_raw)
    assert posterior.diagnostics["kept"] == 4
    assert np.isfinite(posterior.diagnostics["max_rhat"])
    again, other = posterior.sample(10, seed=7), posterior.sample(10, seed=8)
    jax.tree.map(np.testing.assert_array_equal, draws, again)
    assert not any(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (draws, other)), strict=True))


@pytest.mark.parametrize("method", SAMPLERS)
def test_stacked_chains_are_the_chains_alone(method):
    """In float64: NUTS turns on a comparison, and float32 rounding grows until it turns elsewhere."""
    posterior = SAMPLERS[method](gaussian(), chains=3)

    def run(keys):
        result = posterior._chains(keys, 3)
        return vectors(result if method == "sgld" else result[0])

    with enable_x64(True):
        keys = chain_keys(2, 3)
        together, alone = run(keys), [run(keys[c : c + 1])[0] for c in range(3)]
    np.testing.assert_allclose(together, alone, rtol=1e-6, atol=1e-6)
    assert np.ptp(together[:, -1], axis=0).min() > 0.0


def test_keys_do_not_depend_on_the_number_of_chains():
    np.testing.assert_array_equal(jax.random.key_data(chain_keys(4, 5))[:2], jax.random.key_data(chain_keys(4, 2)))


def test_too_few_draws():
    posterior = SAMPLERS["sgld"](network(Binary(), Linear()))
    with pytest.raises(PosteriorError, match="draws must be a whole number >= 1, got 0"):
        posterior.sample(0, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert vectors(posterior.sample(9, seed=0)).shape == (9, 3)
    assert posterior.diagnostics["kept"] == 3
    assert np.isnan(posterior.diagnostics["max_rhat"])


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (SGLD, {"step_size": 0.0}, "step_size must be > 0 and finite, got 0.0"),
        (SGLD, {"burn_in": -1}, "burn_in must be a whole number >= 0, got -1"),
        (SGLD, {"thin": 0}, "thin must be a whole number >= 1, got 0"),
        (SGLD, {"batch_size": 2.5}, "batch_size must be a whole number >= 1, got 2.5"),
        (SGLD, {"chains": 0}, "chains must be a whole number >= 1, got 0"),
        (SGLD, {"clip_norm": 0.0}, "clip_norm must be > 0, got 0.0"),
        (SGLD, {"decay": -0.5}, "decay must be >= 0, got -0.5"),
        (NUTS, {"warmup": 5}, "warmup must be a whole number >= 20, got 5"),
        (NUTS, {"target_acceptance": 1.0}, "target_acceptance must be between 0 and 1, got 1.0"),
    ],
)
def test_options_are_checked(build, options, message):
    with pytest.raises(PosteriorError, match=message):
        build(gaussian(), **options)


@pytest.mark.parametrize("build", [SGLD, NUTS])
def test_without_blackjax(build, monkeypatch):
    monkeypatch.setitem(sys.modules, "blackjax", None)
    with pytest.raises(PosteriorError, match="pip install blackjax"):
        build(gaussian()).sample(4, seed=0)


def test_members_share_a_compilation():
    posterior = SAMPLERS["sgld"](gaussian(), chains=1)
    posterior.sample(2, seed=0)
    before = gbpl.posterior.sgld._run._cache_size()
    SAMPLERS["sgld"](gaussian(tree_of(np.ones(3))), chains=1).sample(2, seed=1)
    assert gbpl.posterior.sgld._run._cache_size() == before


# Diagnostics


def test_quality_of_known_chains():
    rng = np.random.default_rng(0)
    good = rng.standard_normal((4, 500, 3))
    far = good + np.array([0.0, 0.0, 0.0, 3.0])[:, None, None]
    slow = np.repeat(rng.standard_normal((4, 20, 3)), 25, axis=1)
    drift = good + np.linspace(0, 5, 500)[:, None]
    fine = assess(good, good)
    assert fine.max_rhat < 1.01
    assert fine.min_ess > 1000
    fine.warn_if_poor("")
    assert assess(far, good).max_rhat > 1.5
    assert assess(good, far).max_rhat < 1.01
    assert assess(good, far).max_rhat_weights > 1.5
    assert assess(slow, good).min_ess < 150
    assert assess(drift, good).max_rhat > 1.1  # a drift that all chains share
    assert assess(good[:1], good[:1]).max_rhat < 1.02
    assert np.isnan(assess(good[:, :3], good[:, :3]).max_rhat)
    assert assess(np.ones((2, 10, 1)), good).min_ess == 0.0
    with pytest.warns(PosteriorWarning, match=r"R-hat 1.3 .* size 12 .*; do this"):
        ChainQuality(1.3, 12.0).warn_if_poor("do this")


def test_summaries_are_outputs_and_log_density():
    problem = gaussian()
    chains = tree_of(np.zeros(3))
    chains = jax.tree.map(lambda leaf: np.random.default_rng(0).standard_normal((2, 5, *leaf.shape)), chains)
    summary = summaries(problem, chains)
    assert summary.shape == (2, 5, 20 + 1)
    w = vectors(chains)[1, 3]
    np.testing.assert_allclose(summary[1, 3, [0, 19]], PHI[[0, -1]] @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(summary[1, 3, -1], float(problem.log_density(tree_of(w))), rtol=1e-4)


def test_interleaving_and_precision():
    chains = {"w": np.arange(6.0).reshape(2, 3)}
    assert interleave(chains, 5)["w"].tolist() == [0.0, 3.0, 1.0, 4.0, 2.0]
    assert {leaf.dtype.name for leaf in jax.tree.leaves(traced(gaussian()))} == {"float32"}


def test_to_arviz_keeps_names_and_shapes(nuts):
    arviz = pytest.importorskip("arviz")
    diagnostics = nuts[0].diagnostics
    data = to_arviz(diagnostics["chain_draws"], sample_stats=diagnostics["sample_stats"])
    assert dict(data["posterior"].sizes)["chain"] == 2
    assert data["posterior"]["0.weight"].shape == (2, 1501, 2, 1)
    np.testing.assert_array_equal(data["posterior"]["0.bias"].values, diagnostics["chain_draws"][0]["bias"])
    np.testing.assert_array_equal(data["sample_stats"]["lp"].values, diagnostics["sample_stats"]["lp"])
    assert set(data["sample_stats"].data_vars) == {"lp", "diverging", "acceptance_rate", "n_steps"}
    assert float(arviz.rhat(data)["0.bias"].max()) < 1.02
    assert not hasattr(to_arviz(np.zeros((2, 5))), "sample_stats")


def test_to_arviz_speaks_to_arviz_1(monkeypatch):
    """Its from_dict takes one mapping of groups; the one installed may be of either kind."""
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=lambda data, *, name=None: data))
    groups = to_arviz([{"bias": np.zeros((1, 4))}], sample_stats={"lp": np.ones((1, 4))})
    assert groups.keys() == {"posterior", "sample_stats"}
    assert groups["posterior"]["0.bias"].shape == (1, 4)


def test_without_arviz(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(PosteriorError, match="pip install arviz"):
        to_arviz({"w": np.zeros((1, 4))})


def test_gbpl_does_not_import_blackjax():
    code = "import sys, gbpl.posterior.sgld, gbpl.posterior.nuts; assert 'blackjax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
