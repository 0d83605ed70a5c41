"""One contract for every posterior, and the exact Gaussian as the yardstick."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from sklearn.linear_model import Ridge
from support.checks import enable_x64, nearest_on_simplex

import gbpl.posterior.bootstrap
from gbpl import (
    MLP,
    Binary,
    Draws,
    FitConfig,
    FullVector,
    GBPLNet,
    Linear,
    PerAction,
    Posterior,
    PosteriorError,
    regret,
    welfare,
)
from gbpl.posterior.curvature import BLOCK, STEP, block_rows, gauss_newton, training_blocks
from gbpl.posterior.exact import Exact
from gbpl.posterior.gaussian import row_noise
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.methods import METHODS
from gbpl.posterior.problem import Problem
from gbpl.posterior.variational import Variational

RNG = np.random.default_rng(0)
N = 80
X = RNG.normal(size=(N, 3))
Y = {
    k: 0.3 * RNG.normal(size=(N, k)) + np.column_stack([np.zeros(N), *[X[:, j % 3] for j in range(k - 1)]])
    for k in (2, 3)
}
NEW = RNG.normal(size=(50, 3))
MEAN = {k: np.column_stack([np.zeros(50), *[NEW[:, j % 3] for j in range(k - 1)]]) for k in (2, 3)}

OPTIONS = {
    "exact": [{}],
    "last_layer": [{}],
    "laplace": [{"structure": s} for s in ("full", "diag", "kron", "low_rank")],
    "sgld": [{"burn_in": 20, "thin": 2, "chains": 2}],
    "nuts": [{"warmup": 50, "chains": 1}],
    "variational": [{"family": f, "steps": 50} for f in ("mean_field", "last_layer")],
    "bootstrap": [{"refits": 24}],
}
CASES = [(method, options) for method, listed in OPTIONS.items() for options in listed]
FITS: dict = {}


def fitted(method, count, committee):
    key = (method == "exact", count, committee)
    if key not in FITS:
        surrogate = "auto"
        rows = N if committee else N * 5 // 8  # 40 to train each network on, and one compilation for all of them
        if method == "exact":
            surrogate = Binary(squash=False) if count == 2 else FullVector(count, squash=False)
        FITS[key] = GBPLNet(
            zeta=1.0,
            surrogate=surrogate,
            committee=committee,
            model=Linear() if method == "exact" else MLP(hidden=(4,)),
            fit_config=FitConfig(max_epochs=15),
            actions=list("abc")[:count],
            random_state=0,
        ).fit(X[:rows], Y[count][:rows])
    return FITS[key]


def test_every_method_is_in_the_contract():
    assert set(OPTIONS) == set(METHODS)


@pytest.mark.filterwarnings("ignore::gbpl.posterior.problem.PosteriorWarning")
@pytest.mark.parametrize("committee", [None, 2], ids=["one network", "committee"])
@pytest.mark.parametrize("count", [2, 3], ids=["binary", "three actions"])
@pytest.mark.parametrize(("method", "options"), CASES, ids=[f"{m} {next(iter(o.values()), '')}" for m, o in CASES])
def test_contract(method, options, count, committee):
    policy = fitted(method, count, committee)
    posterior = policy.posterior(method, **options)
    members = len(policy.member_weights_)
    n = 12 * members
    draws = posterior.sample(n, seed=3)
    form = jax.tree.map(lambda leaf: leaf[0], policy.params_)
    assert jax.tree.structure(draws) == jax.tree.structure(form)
    for got, want in zip(jax.tree.leaves(draws), jax.tree.leaves(form), strict=True):
        assert got.shape == (n, *want.shape)
        assert got.dtype == np.float32
        assert np.isfinite(got).all()
    again, other = posterior.sample(n, seed=3), posterior.sample(n, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(draws), jax.tree.leaves(again), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(draws), jax.tree.leaves(other), strict=True))

    # The draws are members: the summaries restated from their parameters.
    x = jnp.asarray(policy.standardizer_.apply(NEW))
    member = np.repeat(np.arange(members), 12)

    def raw(i):
        one = jax.tree.map(lambda leaf: leaf[i], draws)
        if method != "laplace":
            return policy.model_.apply(one, x)
        at = jax.tree.map(lambda leaf: leaf[member[i]], policy.params_)  # linearised: g(x) + J(x) (w - MAP)
        step = jax.tree.map(lambda a, b: a - b, one, at)
        value, slope = jax.jvp(lambda params: policy.model_.apply(params, x), (at,), (step,))
        return value + slope

    scores = np.stack([np.asarray(posterior.surrogate.scores(raw(i))) for i in range(n)])
    np.testing.assert_allclose(posterior.scores(NEW, draws=n, seed=3), scores, atol=5e-5)
    policies = np.asarray(posterior.surrogate.policy(scores), np.float64)
    means = [welfare(p, MEAN[count]) for p in policies]
    asked = {"of": "member", "draws": n, "seed": 3}
    drawn = posterior.welfare(NEW, MEAN[count], rule="randomized", **asked)
    np.testing.assert_allclose(drawn.values, means, atol=1e-5)
    np.testing.assert_allclose(
        posterior.regret(NEW, MEAN[count], rule="randomized", **asked).values,
        [regret(p, MEAN[count]) for p in policies],
        atol=1e-5,
    )
    chosen = (scores[..., 0] >= 0).astype(int) if count == 2 else policies.argmax(axis=2)
    share = np.stack([(chosen == a).mean(axis=0) for a in range(count)], axis=1)
    np.testing.assert_allclose(posterior.action_probability(NEW, draws=n, seed=3), share, atol=1e-12)
    u = count / (count - 1) * (1 - share.max(axis=1))
    np.testing.assert_allclose(posterior.disagreement(NEW, draws=n, seed=3), u, atol=1e-12)
    taken = np.eye(count)[chosen]
    rule = posterior.welfare(NEW, MEAN[count], rule="deterministic", **asked)
    np.testing.assert_allclose(rule.values, [welfare(p, MEAN[count]) for p in taken], atol=1e-5)
    default = posterior.welfare(NEW, MEAN[count], **asked)
    np.testing.assert_array_equal(default.values, rule.values)
    assert "deterministic" in default.about
    np.testing.assert_allclose(
        posterior.regret(NEW, MEAN[count], **asked).values, [regret(p, MEAN[count]) for p in taken], atol=1e-5
    )


def test_committee_is_the_equal_mixture():
    policy = fitted("last_layer", 2, 2)
    posterior = policy.posterior()
    np.testing.assert_allclose(posterior.weights, 0.5)
    draws = posterior.sample(20, seed=0)
    hidden = draws[0]["weight"]
    assert np.array_equal(hidden[:10], np.broadcast_to(policy.params_[0]["weight"][0], hidden[:10].shape))
    assert np.array_equal(hidden[10:], np.broadcast_to(policy.params_[0]["weight"][1], hidden[10:].shape))


def test_a_log_s_members_are_refitted_to_their_own_tables(monkeypatch):
    """Each fold has pseudo-outcomes that have not seen it: the posterior of its members is that of those."""
    seen = []
    real = gbpl.posterior.bootstrap.fit_stack
    monkeypatch.setattr(
        gbpl.posterior.bootstrap, "fit_stack", lambda *given, **options: seen.append(given) or real(*given, **options)
    )
    rng = np.random.default_rng(5)
    action = rng.permutation(np.arange(N) % 2)
    policy = GBPLNet(
        committee=2, model=Linear(), outcome_model=PerAction(Ridge()), nuisance_folds=2, random_state=0,
        fit_config=FitConfig(max_epochs=5),
    ).fit(X, Y[2][np.arange(N), action], action=action, propensity=0.5)  # fmt: skip
    posterior = policy.posterior("bootstrap", refits=28)
    ((x, target, members, *_),) = seen
    assert target.shape[0] == 4 * N  # with the correction and without, two folds each
    assert x.shape[0] == N
    fold = np.array([member.fold for member in members])
    table = np.array([member.table for member in members])
    np.testing.assert_array_equal(table % 2, fold)
    assert set(table) == {0, 1, 2, 3}
    counts = np.maximum(1, np.ceil(28 * policy._training.fit.shares - 1e-9)).astype(int)
    assert [part.count for part in posterior.parts] == counts.tolist()
    assert len(members) == counts.sum()


def problem_of(model, surrogate, *, n=40, weights=None, eta=1.3, zeta=0.7, prior_sd=0.8, seed=1, scale=1.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)).astype(np.float32)
    outcomes = rng.normal(size=(n, surrogate.n_actions))
    target = np.asarray(surrogate.target(outcomes))
    params = jax.tree.map(lambda leaf: scale * np.asarray(leaf), model.init(jax.random.key(seed), 2, surrogate.n_raw))
    return Problem(model, surrogate, x, target, weights, zeta, eta, prior_sd, params)


def conjugate_posterior(problem):
    """Mean and covariance of the conjugate Gaussian, restated: precision eta zeta Phi'WPhi + I/sd^2."""
    phi = np.column_stack([problem.x, np.ones(len(problem.x))]).astype(float)
    w = np.ones(len(phi)) if problem.weights is None else problem.weights
    precision = problem.eta * problem.zeta * phi.T @ (w[:, None] * phi) + np.eye(3) / problem.prior_sd**2
    mean = np.linalg.solve(precision, problem.eta * phi.T @ (w[:, None] * problem.target))
    return mean, np.linalg.inv(precision)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("surrogate", [Binary(squash=False), FullVector(3, squash=False)], ids=["binary", "full"])
def test_exact_is_the_conjugate_gaussian(surrogate, weighted):
    weights = np.random.default_rng(5).uniform(0.5, 1.5, 40) if weighted else None
    problem = problem_of(Linear(), surrogate, weights=weights)
    exact = Exact(problem)
    mean, covariance = conjugate_posterior(problem)
    np.testing.assert_allclose(exact.mean.reshape(mean.shape), mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(exact.covariance, np.kron(covariance, np.eye(surrogate.n_raw)), rtol=1e-5, atol=1e-9)
    draws = exact.sample(40_000, seed=0)
    vectors = np.concatenate([draws[-1]["weight"], draws[-1]["bias"][:, None]], axis=1).reshape(40_000, -1)
    np.testing.assert_allclose(np.cov(vectors.T), exact.covariance, atol=6 * exact.covariance.max() / 200)


@pytest.mark.parametrize("surrogate", [Binary(), FullVector(3), Binary(huber=0.8)], ids=["tanh", "softmax", "huber"])
@pytest.mark.parametrize("weighted", [False, True])
def test_last_layer_is_the_gauss_newton_block(surrogate, weighted):
    """Against automatic differentiation of the scores in the last layer, in float64."""
    weights = np.random.default_rng(5).uniform(0.5, 1.5, 40).astype(np.float32) if weighted else None
    model = MLP(hidden=(5,))
    problem = problem_of(model, surrogate, weights=weights)
    with enable_x64(True):
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), problem.params)
        x, target = jnp.asarray(problem.x, jnp.float64), jnp.asarray(problem.target, jnp.float64)

        def scores(vector):
            last = vector.reshape(-1, surrogate.n_raw)
            return surrogate.scores(model.apply([*params[:-1], {"weight": last[:-1], "bias": last[-1]}], x))

        at = jnp.concatenate([params[-1]["weight"], params[-1]["bias"][None]]).ravel()
        jacobian = np.asarray(jax.jacfwd(scores)(at))
        inside = np.asarray(jnp.abs(target - problem.zeta * scores(at)) <= surrogate.huber)
    w = np.ones(40) if weights is None else weights
    expected = problem.zeta * np.einsum("nsp,nsq,ns,n->pq", jacobian, jacobian, inside, w)
    np.testing.assert_allclose(gauss_newton(problem), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())
    posterior = LastLayer(problem)
    precision = problem.eta * expected + np.eye(len(expected)) / problem.prior_sd**2
    np.testing.assert_allclose(posterior.root @ posterior.root.T, precision, rtol=1e-5, atol=1e-6 * precision.max())


def test_linear_without_squashing_last_layer_has_the_exact_covariance():
    problem = problem_of(Linear(), Binary(squash=False))
    np.testing.assert_allclose(LastLayer(problem).covariance, Exact(problem).covariance, rtol=1e-5)


def objective(problem, mean, covariance):
    """J(Q) of a Gaussian in the conjugate case, in closed form: the expectation of a quadratic, plus KL."""
    phi = np.column_stack([problem.x, np.ones(len(problem.x))]).astype(float)
    residual = problem.target[:, 0] - problem.zeta * phi @ mean
    spread = problem.zeta**2 * np.einsum("np,pq,nq->n", phi, covariance, phi)
    data = problem.eta * np.sum(residual**2 + spread) / (2 * problem.zeta)
    sd, p = problem.prior_sd, len(mean)
    kl = 0.5 * (
        (np.trace(covariance) + mean @ mean) / sd**2 - p - np.linalg.slogdet(covariance)[1] + 2 * p * np.log(sd)
    )
    return data + kl


def gaussian_kl(m0, c0, m1, c1):
    inverse = np.linalg.inv(c1)
    d = m1 - m0
    return 0.5 * (
        np.trace(inverse @ c0) + d @ inverse @ d - len(m0) + np.linalg.slogdet(c1)[1] - np.linalg.slogdet(c0)[1]
    )


def test_variational_proposition():
    """The closed-form posterior has the lowest objective, and any other's gap is its KL divergence from it."""
    problem = problem_of(Linear(), Binary(squash=False))
    exact = Exact(problem)
    lowest = objective(problem, exact.mean, exact.covariance)
    rng = np.random.default_rng(3)
    for _ in range(200):
        mean = exact.mean + rng.normal(size=3) * rng.choice([0.01, 0.1, 1.0])
        root = np.linalg.cholesky(exact.covariance) @ (np.eye(3) + rng.choice([0.01, 0.3]) * rng.normal(size=(3, 3)))
        covariance = root @ root.T
        gap = objective(problem, mean, covariance) - lowest
        assert gap >= -1e-9
        assert gap == pytest.approx(gaussian_kl(mean, covariance, exact.mean, exact.covariance), rel=1e-6, abs=1e-9)


def test_variational_families_reach_their_minimum_and_never_beat_the_exact():
    problem = problem_of(Linear(), Binary(squash=False))
    exact = Exact(problem)
    lowest = objective(problem, exact.mean, exact.covariance)

    full = Variational(problem, family="last_layer")
    covariance = full.root @ full.root.T
    assert lowest - 1e-6 <= objective(problem, full.mean, covariance) <= lowest + 0.01
    np.testing.assert_allclose(covariance, exact.covariance, rtol=0.15, atol=0.02 * exact.covariance.max())

    # The best product of independent normals has the exact mean and variances 1 / diag(precision).
    product = Variational(problem, family="mean_field")
    order = [1, 2, 0]  # the tree has the bias first
    mean, variance = product.mean[order], np.exp(2 * product.spread)[order]
    best = objective(problem, exact.mean, np.diag(1 / np.diag(np.linalg.inv(exact.covariance))))
    assert lowest < best - 1e-3, "the weights must be correlated for this to mean anything"
    assert best - 1e-6 <= objective(problem, mean, np.diag(variance)) <= best + 0.01

    value, error = full.objective(draws=2000)
    assert value == pytest.approx(objective(problem, full.mean, covariance), abs=5 * error)
    assert product.diagnostics["objective"] > lowest - 5 * product.diagnostics["objective_se"]


@pytest.mark.parametrize("surrogate", [Binary(), FullVector(3), Binary(huber=0.8)], ids=["tanh", "softmax", "huber"])
def test_the_last_layer_family_is_at_its_minimum(surrogate):
    """J by plain Monte Carlo, with the same normals at every Gaussian: none nearby is lower, and weights count."""
    weights = np.random.default_rng(5).uniform(0.5, 1.5, 40)
    problem = problem_of(MLP(hidden=(3,)), surrogate, weights=weights / weights.mean(), eta=2.0)
    best = Variational(problem)
    assert best.full
    phi = np.tanh(problem.x @ problem.params[0]["weight"] + problem.params[0]["bias"])
    phi = np.column_stack([phi, np.ones(40)]).astype(float)
    size, sd, rng = len(best.mean), problem.prior_sd, np.random.default_rng(2)
    noise = rng.normal(size=(500, size))
    noise = np.concatenate([noise, -noise])
    noise = noise @ np.linalg.inv(np.linalg.cholesky(noise.T @ noise / len(noise))).T

    @jax.jit
    def losses(raw):
        return jax.vmap(lambda r: surrogate.loss(surrogate.scores(r), problem.target, problem.zeta))(raw)

    def plain(mean, root):
        raw = np.einsum("nb,dbk->dnk", phi, (mean + noise @ root.T).reshape(len(noise), -1, surrogate.n_raw))
        data = problem.eta * float(np.mean(np.asarray(losses(raw), float) @ problem.weights))
        trace, log_det = np.sum(root**2), 2 * np.linalg.slogdet(root)[1]
        return data + 0.5 * ((trace + mean @ mean) / sd**2 - size - log_det) + size * np.log(sd)

    lowest = plain(best.mean, best.root)
    value, error = best.objective()
    assert value == pytest.approx(lowest, abs=5 * error)
    for axis in np.eye(size):
        for way in (-0.1, 0.1):  # standard deviations in the mean, or of a tenth more or less in a direction
            assert plain(best.mean + way * best.root @ axis, best.root) > lowest
            assert plain(best.mean, best.root @ (np.eye(size) + way * np.diag(axis))) > lowest
    gaussian = LastLayer(problem)
    assert plain(gaussian.mean, np.linalg.cholesky(gaussian.covariance)) > lowest + 0.1
    assert np.all(np.diff(best.path) < 0)
    assert 1 < len(best.path) < 25, "a few steps"


def test_simulation_based_calibration_of_the_exact_posterior():
    """Parameters from the prior, data from the pseudo-likelihood: ranks among posterior draws are uniform."""
    rng = np.random.default_rng(11)
    surrogate, zeta, eta, sd, n, draws = Binary(squash=False), 0.7, 1.3, 0.8, 15, 19
    ranks = []
    for replication in range(600):
        truth = sd * rng.normal(size=3)
        x = rng.normal(size=(n, 2)).astype(np.float32)
        mean = zeta * (x @ truth[:2] + truth[2])
        gap = (mean + np.sqrt(zeta / eta) * rng.normal(size=n))[:, None]
        zero = [{"weight": np.zeros((2, 1), np.float32), "bias": np.zeros(1, np.float32)}]
        exact = Exact(Problem(Linear(), surrogate, x, gap, None, zeta, eta, sd, zero))
        drawn = exact.sample(draws, seed=replication)
        at = np.array([0.4, -0.8])
        ranks.append(np.sum(drawn[-1]["weight"][:, :, 0] @ at + drawn[-1]["bias"][:, 0] < truth[:2] @ at + truth[2]))
    counts = np.bincount(ranks, minlength=draws + 1)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_draws_summaries():
    draws = Draws(np.arange(100.0), "a number")
    assert draws.mean == 49.5
    assert draws.interval(0.9) == pytest.approx((4.95, 94.05))  # linear interpolation between order statistics
    assert draws.above(49.5) == 0.5
    assert draws.above(Draws(np.arange(100.0) - 1, "another")) == 1.0
    with pytest.raises(PosteriorError, match=r"100 draws are too few for the 0\.001 quantile; take at least 1000"):
        draws.quantile(0.001)
    with pytest.raises(ValueError, match=r"level must lie between 0 and 1, got 1\.5"):
        draws.interval(1.5)
    assert "a number" in str(draws)


@pytest.mark.parametrize("rule", ["randomized", "deterministic"])
def test_population_welfare_adds_the_noise_of_the_rows(rule):
    posterior = fitted("last_layer", 2, None).posterior()
    rng = np.random.default_rng(8)
    outcomes = MEAN[2] + rng.normal(size=MEAN[2].shape)
    here = posterior.welfare(NEW, outcomes, rule=rule, draws=4000, seed=1)
    population = posterior.population_welfare(NEW, outcomes, rule=rule, draws=4000, seed=1)
    assert "population" in population.about
    assert "given rows" in here.about
    policies = np.asarray(posterior.surrogate.policy(posterior.scores(NEW, draws=400, seed=1)), float)
    if rule == "deterministic":
        policies = np.eye(2)[policies.argmax(axis=2)]
    row_variance = np.mean([np.var(np.sum(p * outcomes, axis=1)) for p in policies])
    expected = np.sqrt(here.sd**2 + row_variance / len(NEW))
    assert population.sd == pytest.approx(expected, rel=0.06)


WEIGHT = np.random.default_rng(9).integers(0, 4, 50)
GROUP = np.random.default_rng(10).integers(0, 9, 50)


@pytest.mark.parametrize("of", ["committee", "member"])
def test_a_weight_of_two_is_the_row_twice(of):
    posterior = fitted("last_layer", 3, 2).posterior()
    asked = {"rule": "randomized", "of": of, "draws": 20, "seed": 6}
    twice = np.repeat(np.arange(50), WEIGHT)
    for call in (posterior.welfare, posterior.regret):
        weighted = call(NEW, MEAN[3], sample_weight=WEIGHT, **asked).values
        np.testing.assert_allclose(weighted, call(NEW[twice], MEAN[3][twice], **asked).values, atol=1e-6)
        assert not np.allclose(weighted, call(NEW, MEAN[3], **asked).values, atol=1e-3)
    values = posterior.welfare(NEW, MEAN[3], sample_weight=WEIGHT, **asked).values
    than = np.full((50, 3), 1 / 3)
    for other, mean in (("b", MEAN[3][:, 1]), (than, MEAN[3].mean(axis=1))):
        better = posterior.probability_better(NEW, MEAN[3], than=other, sample_weight=WEIGHT, **asked)
        assert better == np.mean(values > WEIGHT @ mean / WEIGHT.sum())


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_rows_noise_is_that_of_a_weighted_mean_with_clusters(weighted, grouped, monkeypatch):
    """sqrt(sum_g (sum_{i in g} w_i (v_i - mean))^2 G / (G - 1)) / sum w of every draw's values v, by plain loops."""
    monkeypatch.setattr("gbpl.fitting.apply.BLOCK", 16)  # groups are cut by blocks of rows
    posterior = fitted("last_layer", 2, 2).posterior()
    asked = {"rule": "randomized", "of": "member", "draws": 20, "seed": 6}
    policies = np.asarray(posterior.surrogate.policy(posterior.scores(NEW, draws=20, seed=6)), float)
    weight = WEIGHT if weighted else np.ones(50)
    group = GROUP if grouped else np.arange(50)
    expected = []
    for policy, noise in zip(policies, np.random.default_rng([6, 1]).standard_normal(20), strict=True):
        value = np.sum(policy * MEAN[2], axis=1)
        mean = weight @ value / weight.sum()
        terms = [np.sum((weight * (value - mean))[group == g]) for g in np.unique(group[weight > 0])]
        se = np.sqrt(np.sum(np.square(terms)) * len(terms) / (len(terms) - 1)) / weight.sum()
        expected.append(mean + se * noise)
    given = ({"sample_weight": WEIGHT} if weighted else {}) | ({"groups": [f"g{g}" for g in group]} if grouped else {})
    drawn = posterior.population_welfare(NEW, MEAN[2], **given, **asked).values
    np.testing.assert_allclose(drawn, expected, atol=1e-5)
    alone = posterior.population_welfare(NEW, MEAN[2], **given | {"groups": np.arange(50)}, **asked).values
    assert np.allclose(alone, drawn, atol=1e-6) == (not grouped), "groups of one are no groups"


def test_one_row_has_no_noise_to_add():
    posterior = fitted("last_layer", 2, None).posterior()
    with pytest.raises(ValueError, match="two or more rows of positive weight, got one; use welfare"):
        posterior.population_welfare(NEW[:2], MEAN[2][:2], sample_weight=[1, 0], draws=4)
    assert posterior.welfare(NEW[:1], MEAN[2][:1], draws=4).values.shape == (4,)
    with pytest.raises(ValueError, match=r"sample_weight is -1 in row 1; a weight is >= 0"):
        posterior.welfare(NEW[:2], MEAN[2][:2], sample_weight=[1, -1])


def test_probability_better():
    policy = fitted("last_layer", 2, None)
    posterior = policy.posterior()
    even = np.full((50, 2), 0.5)
    for rule in ("randomized", "deterministic"):
        asked = {"rule": rule, "draws": 100, "seed": 2}
        values = posterior.welfare(NEW, MEAN[2], **asked).values
        for than, worth in (("b", MEAN[2][:, 1].mean()), (even, MEAN[2].mean())):
            assert posterior.probability_better(NEW, MEAN[2], than=than, **asked) == np.mean(values > worth)
    default = posterior.probability_better(NEW, MEAN[2], than="b", draws=100, seed=2)
    assert default == posterior.probability_better(NEW, MEAN[2], than="b", rule="deterministic", draws=100, seed=2)
    with pytest.raises(ValueError, match="an action of"):
        posterior.probability_better(NEW, MEAN[2], than="z")


def test_blocks_of_rows_and_draws_make_no_difference(monkeypatch):
    posterior = fitted("last_layer", 2, None).posterior()
    asked = {"rule": "randomized", "draws": 30, "seed": 2}
    one = posterior.welfare(NEW, MEAN[2], **asked).values
    monkeypatch.setattr("gbpl.posterior.posterior.DRAWS_AT_A_TIME", 7)
    monkeypatch.setattr("gbpl.fitting.apply.BLOCK", 16)
    np.testing.assert_allclose(posterior.welfare(NEW, MEAN[2], **asked).values, one, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gibbs", {}, "method must be one of .*got 'gibbs'"),
        ("exact", {}, "linear in its parameters"),
        ("committee", {}, "needs zeta='auto', eta='auto' and a committee; use method='last_layer'"),
        ("variational", {"family": "flow"}, "family must be one of mean_field, last_layer, got 'flow'"),
        ("bootstrap", {"refits": 1}, "refits. >= 2"),
        ("laplace", {"structure": "block"}, "structure.*block"),
    ],
)
def test_bad_requests(method, options, message):
    with pytest.raises(PosteriorError, match=message):
        fitted("last_layer", 2, None).posterior(method, **options)


def test_a_posterior_needs_a_fit_and_its_rows():
    import pickle

    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        GBPLNet().posterior()
    loaded = pickle.loads(pickle.dumps(fitted("last_layer", 2, None)))
    with pytest.raises(PosteriorError, match="without its training rows"):
        loaded.posterior()


def test_models_without_a_last_layer_are_told_what_to_use():
    pair = (lambda key, p, k: {"w": jax.random.normal(key, (p, k))}, lambda params, x: x @ params["w"])
    policy = GBPLNet(zeta=1.0, model=pair, committee=None, fit_config=FitConfig(max_epochs=2), random_state=0).fit(
        X, Y[2]
    )
    with pytest.raises(PosteriorError, match="use method='laplace', 'sgld' or 'bootstrap'"):
        policy.posterior("last_layer")
    assert policy.posterior("laplace").welfare(NEW, MEAN[2], draws=20).values.shape == (20,)


def test_too_many_bootstrap_draws():
    posterior = fitted("bootstrap", 2, None).posterior("bootstrap", refits=5)
    assert len(posterior.welfare(NEW, MEAN[2]).values) == 5
    with pytest.raises(PosteriorError, match="has 5 refits, and 6 draws"):
        posterior.sample(6)


@pytest.mark.filterwarnings("ignore::gbpl.posterior.problem.PosteriorWarning")
@pytest.mark.parametrize(("method", "options", "chains"), [("last_layer", {}, 1), ("sgld", OPTIONS["sgld"][0], 2)])
def test_export_to_arviz(method, options, chains):
    pytest.importorskip("arviz")
    posterior = fitted(method, 2, None).posterior(method, **options)
    exported = posterior.to_arviz(20, seed=1).posterior
    assert exported.sizes["chain"] == chains
    assert exported.sizes["draw"] == 20 // chains
    last = posterior.sample(20, seed=1)[-1]["bias"]
    np.testing.assert_allclose(np.sort(np.asarray(exported["1.bias"]).ravel()), np.sort(last.ravel()))


def test_a_policy_of_no_size_still_has_a_posterior():
    """A linear score that learns nothing stays at zero: its policy is uniform, and so is what is combined from it."""
    with pytest.warns(UserWarning, match="never differ"):
        policy = GBPLNet(model=Linear(), committee=2, fit_config=FitConfig(max_epochs=2), random_state=0).fit(
            X, np.zeros((N, 2))
        )
    np.testing.assert_allclose(policy.predict_proba(NEW), 0.5)
    assert len(policy.posterior("last_layer").sample(10)[-1]["bias"]) == 10
    posterior = policy.posterior()
    draws = posterior.sample(10)
    assert draws["weight"].shape == (10, len(policy.member_weights_))
    assert all(np.isfinite(leaf).all() for leaf in draws.values())
    np.testing.assert_allclose(posterior.action_probability(NEW).sum(axis=1), 1.0)
    np.testing.assert_allclose(posterior.welfare(NEW, np.zeros((50, 2))).values, 0.0)


def test_bootstrap_of_members_with_unequal_shares_has_draws_for_its_default() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = np.column_stack([np.zeros(80), x[:, 0]]) + rng.normal(size=(80, 2))
    net = GBPLNet(random_state=0, committee=2, model=MLP(hidden=(4,)), fit_config=FitConfig(max_epochs=10)).fit(x, y)
    assert len(set(net.zeta_path_.weight)) > 1
    assert net.posterior("bootstrap", refits=20).scores(x).shape[0] == 20


# Joint draws: one perturbation of the rows' targets, answered by every member.

JOINT = {
    "binary": (Binary(), False),
    "binary weighted": (Binary(), True),
    "full weighted": (FullVector(3), True),
    "huber": (Binary(huber=0.8), False),
}
TABLE = 18  # rows that members of a committee share


def joint_problem(surrogate, rows, *, weighted=False, seed=7, **constants):
    """A member with the given rows of one table of features."""
    problem = problem_of(MLP(hidden=(3,)), surrogate, n=TABLE, **constants)
    weights = np.random.default_rng(5).uniform(0.5, 1.5, TABLE).astype(np.float32)[rows] if weighted else None
    return replace(problem, x=problem.x[rows], target=problem.target[rows], weights=weights, rows=rows, seed=seed)


def first_order(surrogate, params, x):
    """Scores (row score) of a network of one hidden tanh layer, and their derivative in the last (row score weight)."""
    hidden, last = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    seen = np.tanh(np.asarray(x, np.float64) @ hidden["weight"] + hidden["bias"])
    raw = seen @ last["weight"] + last["bias"]
    if not surrogate.squash:
        scores, inner = raw, np.broadcast_to(np.eye(raw.shape[1]), (len(raw), raw.shape[1], raw.shape[1]))
    elif raw.shape[1] == 1:
        scores = np.tanh(raw)
        inner = 1 - scores[:, :, None] ** 2
    else:
        scores = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
        inner = scores[:, :, None] * (np.eye(raw.shape[1]) - scores[:, None, :])
    basis = np.column_stack([seen, np.ones(len(seen))])
    return scores, np.einsum("nb,nsk->nsbk", basis, inner).reshape(*scores.shape, -1)


def weight_jacobian(problem):
    """sqrt(weight zeta) times the derivative of every score in the last layer; zero beyond the robust threshold."""
    scores, slope = first_order(problem.surrogate, problem.params, problem.x)
    inside = np.abs(problem.target - problem.zeta * scores) <= problem.surrogate.huber
    weights = np.ones(len(scores)) if problem.weights is None else np.asarray(problem.weights, np.float64)
    return np.sqrt(problem.zeta * weights)[:, None, None] * inside[:, :, None] * slope


def precision_by_hand(problem):
    rows = weight_jacobian(problem).reshape(problem.target.size, -1)
    return problem.eta * rows.T @ rows + np.eye(rows.shape[1]) / problem.prior_sd**2


def last_layers(params):
    """Draws of the last layer as rows of a matrix, bias last."""
    drawn = np.concatenate([params[-1]["weight"], params[-1]["bias"][:, None]], axis=1)
    return drawn.reshape(len(drawn), -1).astype(np.float64)


def unit_pushes(rows, scores, draws, seed):
    """In place of the rows' noise: draw (row, score) pushes that row's score by one, and no other."""
    return np.eye(TABLE * scores)[:, :draws].reshape(TABLE, scores, draws)[rows].astype(np.float32)


def no_push(rows, scores, draws, seed):
    return np.zeros((len(rows), scores, draws), np.float32)


def row_map(posterior, monkeypatch):
    """How the last layer answers a push of each row and score: H^-1 sqrt(eta weight zeta) J', read off the draws."""
    count = TABLE * posterior.problem.target.shape[1]
    with monkeypatch.context() as patch:
        patch.setattr("gbpl.posterior.gaussian.row_noise", no_push)
        still = last_layers(posterior.joint_sample(count, seed=1))
        patch.setattr("gbpl.posterior.gaussian.row_noise", unit_pushes)
        return last_layers(posterior.joint_sample(count, seed=1)) - still


@pytest.mark.parametrize("name", JOINT)
def test_joint_draws_have_the_posterior_covariance(name, monkeypatch):
    """The rows' share read off unit pushes, the prior's off draws without any: together they are H^-1."""
    surrogate, weighted = JOINT[name]
    rows = np.array([0, 1, 3, 4, 5, 8, 9, 11, 12, 14, 15, 17])
    problem = joint_problem(surrogate, rows, weighted=weighted)
    posterior, precision = LastLayer(problem), precision_by_hand(problem)
    covariance = np.linalg.inv(precision)
    moved = row_map(posterior, monkeypatch)
    share = moved.T @ moved
    prior = covariance @ covariance / problem.prior_sd**2
    np.testing.assert_allclose(share + prior, covariance, atol=1e-5 * covariance.max())
    absent = np.setdiff1d(np.arange(TABLE), rows)
    assert not moved.reshape(TABLE, -1, moved.shape[1])[absent].any()

    draws = 4000
    with monkeypatch.context() as patch:
        patch.setattr("gbpl.posterior.gaussian.row_noise", no_push)
        still = last_layers(posterior.joint_sample(draws, seed=1)) - posterior.mean
    normals = problem.prior_sd * still @ precision  # standard normals z of H^-1 z / prior_sd
    allowed = 5 * np.sqrt(2 / draws)
    np.testing.assert_allclose(np.cov(normals.T), np.eye(len(precision)), atol=allowed)

    drawn = last_layers(posterior.joint_sample(draws, seed=2)) - posterior.mean
    whitened = drawn @ np.linalg.cholesky(precision)
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(len(precision)), atol=allowed)
    np.testing.assert_allclose(whitened.mean(axis=0), 0.0, atol=5 / np.sqrt(draws))


def test_joint_draws_of_the_exact_posterior_have_its_mean_and_covariance():
    problem = replace(problem_of(Linear(), Binary(squash=False), n=TABLE), rows=np.arange(TABLE), seed=7)
    mean, covariance = conjugate_posterior(problem)
    drawn = last_layers(Exact(problem).joint_sample(4000, seed=0))
    whitened = (drawn - mean[:, 0]) @ np.linalg.cholesky(np.linalg.inv(covariance))
    np.testing.assert_allclose(np.cov(whitened.T), np.eye(3), atol=5 * np.sqrt(2 / 4000))
    np.testing.assert_allclose(whitened.mean(axis=0), 0.0, atol=5 / np.sqrt(4000))


@pytest.mark.parametrize("surrogate", [Binary(), FullVector(3)], ids=["binary", "full"])
def test_members_move_together_by_the_rows_they_share(surrogate, monkeypatch):
    """Cross covariance H_1^-1 (sum over shared rows of sqrt(eta_1 eta_2) J_1' J_2) H_2^-1, zero without shared rows."""
    one = joint_problem(surrogate, np.arange(12), seed=7)
    other = joint_problem(surrogate, np.arange(6, TABLE), weighted=True, seed=8, eta=0.9, zeta=0.4)
    far = joint_problem(surrogate, np.arange(12, TABLE), seed=9)
    posteriors = [LastLayer(problem) for problem in (one, other, far)]
    maps = [row_map(posterior, monkeypatch) for posterior in posteriors]
    inverses = [np.linalg.inv(precision_by_hand(problem)) for problem in (one, other, far)]
    shared = np.einsum("nsp,nsq->pq", weight_jacobian(one)[6:], weight_jacobian(other)[:6])
    cross = np.sqrt(one.eta * other.eta) * inverses[0] @ shared @ inverses[1]
    assert np.abs(cross).max() > 0.05 * inverses[0].max()
    np.testing.assert_allclose(maps[0].T @ maps[1], cross, atol=1e-5 * inverses[0].max())
    assert not (maps[0].T @ maps[2]).any()

    draws = 4000
    drawn = [last_layers(p.joint_sample(draws, seed=3)) - p.mean for p in posteriors]
    white = [d @ np.linalg.cholesky(np.linalg.inv(v)) for d, v in zip(drawn, inverses, strict=True)]
    roots = [np.linalg.cholesky(np.linalg.inv(v)) for v in inverses]
    allowed = 5 * np.sqrt(2 / draws)
    np.testing.assert_allclose(white[0].T @ white[1] / draws, roots[0].T @ cross @ roots[1], atol=allowed)
    np.testing.assert_allclose(white[0].T @ white[2] / draws, 0.0, atol=allowed)


def test_the_noise_of_a_row_is_its_own():
    rows = np.array([0, 5, 1023, 1024, 2500])
    noise = row_noise(rows, 2, 6, 4)
    assert noise.shape == (5, 2, 6)
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(row_noise(np.array([row]), 2, 6, 4)[0], noise[place])
    assert len(np.unique(noise)) == noise.size
    np.testing.assert_array_equal(row_noise(rows, 2, 6, 4), noise)
    assert not np.isin(row_noise(rows, 2, 6, 5), noise).any()


def test_joint_draws_follow_the_seed_and_not_the_blocks(monkeypatch):
    posterior = LastLayer(joint_problem(FullVector(3), np.arange(TABLE), weighted=True))
    drawn = last_layers(posterior.joint_sample(9, seed=3))
    np.testing.assert_array_equal(last_layers(posterior.joint_sample(9, seed=3)), drawn)
    assert not np.isclose(last_layers(posterior.joint_sample(9, seed=4)), drawn).any()
    monkeypatch.setattr("gbpl.posterior.curvature.BLOCK", 5)
    monkeypatch.setattr("gbpl.posterior.curvature.STEP", 4)
    assert block_rows(TABLE) == 8  # 8, 8 and 2 rows
    np.testing.assert_allclose(last_layers(posterior.joint_sample(9, seed=3)), drawn, atol=1e-6)
    monkeypatch.setattr("gbpl.posterior.gaussian.row_noise", no_push)  # the prior's share follows it too
    still = [last_layers(posterior.joint_sample(9, seed=seed)) for seed in (3, 4)]
    assert not np.isclose(*still).any()


@pytest.mark.parametrize("n", [1, 255, 256, 257, 8192, 8193, 20_000, 52_429])
def test_blocks_of_one_shape_hold_every_row_once(n):
    size = block_rows(n)
    assert size % STEP == 0
    assert size <= BLOCK
    count = -(-n // size)
    assert count * size < n + STEP * count  # little is filling
    problem = joint_problem(Binary(), np.arange(n) % TABLE, weighted=True)
    blocks = list(training_blocks(problem))
    assert len({(block.basis.shape, block.target.shape, block.weight.shape) for block in blocks}) == 1
    for name, expected in (("target", problem.target), ("weight", problem.weights)):
        parts = [getattr(block, name) for block in blocks]
        kept = np.concatenate([part[block.kept] for part, block in zip(parts, blocks, strict=True)])
        np.testing.assert_array_equal(kept, expected)
    assert [block.rows.start for block in blocks] == list(range(0, n, size))
    assert sum(block.weight.sum() for block in blocks) == pytest.approx(problem.weights.sum())  # filling has none


def test_joint_draws_need_the_rows_numbers():
    posterior = LastLayer(joint_problem(Binary(), np.arange(TABLE)))
    posterior.problem = replace(posterior.problem, rows=None)
    with pytest.raises(PosteriorError, match="joint draws need the numbers of the problem's rows"):
        posterior.joint_sample(3, seed=0)


@pytest.mark.parametrize("surrogate", [Binary(), FullVector(3), Binary(squash=False)], ids=["tanh", "softmax", "raw"])
def test_answer_is_the_first_order_in_the_last_layer(surrogate):
    """s(MAP) + ds/dw (w - MAP), by the derivatives and by a central difference of the scores themselves."""
    problem = joint_problem(surrogate, np.arange(TABLE))
    posterior = LastLayer(problem)
    drawn = posterior.joint_sample(4, seed=0)
    x = np.random.default_rng(1).normal(size=(10, 2)).astype(np.float32)
    answered = np.asarray(posterior.answer(drawn, jnp.asarray(x)))
    at = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.params)
    scores, slope = first_order(surrogate, at, x)
    step = last_layers(drawn) - posterior.mean
    np.testing.assert_allclose(answered, scores + np.einsum("nsp,dp->dns", slope, step), atol=1e-5)
    for i in range(4):
        move = step[i].reshape(-1, surrogate.n_raw)

        def moved(h, move=move):
            last = {"weight": at[-1]["weight"] + h * move[:-1], "bias": at[-1]["bias"] + h * move[-1]}
            return first_order(surrogate, [at[0], last], x)[0]

        np.testing.assert_allclose(answered[i] - scores, (moved(1e-5) - moved(-1e-5)) / 2e-5, atol=1e-5)
    fixed = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), problem.params)
    np.testing.assert_allclose(posterior.answer(fixed, jnp.asarray(x)), np.stack([scores, scores]), atol=1e-6)


# The committee as what a draw is.


def rescaled(posterior, **constants):
    """The same members with other constants."""
    parts = [LastLayer(replace(part.problem, **constants)) for part in posterior.parts]
    return Posterior(
        parts, posterior.weights, standardizer=posterior.standardizer, surrogate=posterior.surrogate,
        actions=posterior.actions, policy_weights=posterior.policy_weights,
    )  # fmt: skip


@pytest.mark.parametrize("count", [2, 3], ids=["binary", "three actions"])
@pytest.mark.parametrize("eta", [0.05, 50.0], ids=["wide", "narrow"])
def test_a_draw_of_the_committee_combines_its_members(count, eta):
    """Restated: first-order scores of each member's joint draw, weighed as the policy weighs them, projected."""
    policy = fitted("last_layer", count, 2)
    posterior = policy.posterior(eta=eta)
    posterior.policy_weights = np.array([0.7, 0.6])  # any numbers: different from the mixture's, and not summing to one
    x = policy.standardizer_.apply(NEW)
    total = np.zeros((20, len(NEW), count))
    for part, multiplier in zip(posterior.parts, posterior.policy_weights, strict=True):
        scores, slope = first_order(posterior.surrogate, part.problem.params, x)
        step = last_layers(part.joint_sample(20, seed=5)) - part.mean
        answers = scores + np.einsum("nsp,dp->dns", slope, step)
        policies = np.concatenate([1 - answers, 1 + answers], axis=2) / 2 if count == 2 else answers
        total += multiplier * (policies - 1 / count)
    policies = nearest_on_simplex(1 / count + total)
    assert ((policies == 0).any(axis=2).mean() > 0.1) == (eta < 1), "the wide draws should leave the simplex"
    expected = [welfare(p, MEAN[count]) for p in policies]
    asked = {"rule": "randomized", "of": "committee", "draws": 20, "seed": 5}
    np.testing.assert_allclose(posterior.welfare(NEW, MEAN[count], **asked).values, expected, atol=1e-5)
    np.testing.assert_allclose(
        posterior.regret(NEW, MEAN[count], **asked).values, MEAN[count].max(axis=1).mean() - expected, atol=1e-5
    )
    taken = np.eye(count)[policies.argmax(axis=2)]
    np.testing.assert_allclose(
        posterior.welfare(NEW, MEAN[count], **asked | {"rule": "deterministic"}).values,
        [welfare(p, MEAN[count]) for p in taken],
        atol=1e-5,
    )
    level = float(np.median(expected))
    even = np.full((len(NEW), count), 1 / count)
    shifted = MEAN[count] - MEAN[count].mean() + level  # so that the uniform policy is worth the median draw
    better = posterior.probability_better(NEW, shifted, than=even, **asked)
    moved = expected - MEAN[count].mean() + level
    assert better == np.mean(moved > level)
    many = asked | {"draws": 4000}
    spread = posterior.population_welfare(NEW, MEAN[count], **many)
    rows = np.mean([np.var(np.sum(p * MEAN[count], axis=1)) for p in policies]) / len(NEW)
    here = posterior.welfare(NEW, MEAN[count], **many)
    assert spread.sd == pytest.approx(np.sqrt(here.sd**2 + rows), rel=0.08)


@pytest.mark.parametrize("count", [2, 3], ids=["binary", "three actions"])
def test_a_sure_committee_is_the_policy(count):
    policy = fitted("last_layer", count, 2)
    posterior = rescaled(policy.posterior(eta=1.0), eta=1e9, prior_sd=1e-4)
    drawn = posterior.welfare(NEW, MEAN[count], rule="randomized", draws=10).values  # the committee is the default
    np.testing.assert_allclose(drawn, welfare(policy.predict_proba(NEW), MEAN[count]), atol=1e-5)
    ruled = posterior.welfare(NEW, MEAN[count], draws=10).values  # and so is its deterministic rule
    taken = (policy.predict(NEW)[:, None] == policy.actions_).astype(float)
    np.testing.assert_allclose(ruled, welfare(taken, MEAN[count]), atol=1e-5)


@pytest.mark.parametrize(("count", "wide"), [(2, True), (2, False), (3, False)])
def test_the_committee_s_spread_is_one_over_the_root_of_eta(count, wide):
    """Same seed, same perturbation: four times eta halves every draw's deviation, inside the simplex.

    With the prior too wide to count, or four times as precise itself.
    """
    policy = fitted("last_layer", count, 2)
    posterior = policy.posterior(eta=1.0)
    centre = welfare(policy.predict_proba(NEW), MEAN[count])
    deviations = [
        rescaled(posterior, eta=400 * times, prior_sd=1e4 if wide else times**-0.5)
        .welfare(NEW, MEAN[count], rule="randomized", draws=50, seed=3)
        .values
        - centre
        for times in (1.0, 4.0)
    ]
    assert np.std(deviations[0]) > 1e-3
    np.testing.assert_allclose(deviations[0], 2 * deviations[1], atol=2e-3 * np.std(deviations[0]))


def test_the_committee_is_narrower_than_its_members():
    posterior = fitted("last_layer", 2, 2).posterior(eta=100.0)
    asked = {"rule": "randomized", "draws": 400, "seed": 1}
    draws = {of: posterior.welfare(NEW, MEAN[2], of=of, **asked) for of in ("committee", "member")}
    assert draws["committee"].sd < draws["member"].sd
    default = posterior.welfare(NEW, MEAN[2], **asked)
    np.testing.assert_array_equal(default.values, draws["committee"].values)


def test_methods_without_joint_draws_speak_of_members():
    posterior = fitted("laplace", 2, 2).posterior("laplace", structure="diag")
    asked = {"rule": "randomized", "draws": 10, "seed": 2}
    default = posterior.welfare(NEW, MEAN[2], **asked).values
    np.testing.assert_array_equal(default, posterior.welfare(NEW, MEAN[2], of="member", **asked).values)
    calls = [
        posterior.welfare,
        posterior.regret,
        posterior.population_welfare,
        lambda x, y, **options: posterior.probability_better(x, y, than="a", **options),
    ]
    for call in calls:
        with pytest.raises(PosteriorError, match="the members' 'laplace' draws are independent of each other"):
            call(NEW, MEAN[2], of="committee", **asked)
        with pytest.raises(ValueError, match="of must be one of committee, member, got 'network'"):
            call(NEW, MEAN[2], of="network", **asked)


def test_members_without_row_numbers_have_no_joint_draw():
    posterior = fitted("last_layer", 2, 2).posterior(eta=1.0)
    posterior.parts = tuple(LastLayer(replace(part.problem, rows=None)) for part in posterior.parts)
    asked = {"rule": "randomized", "draws": 10}
    member = posterior.welfare(NEW, MEAN[2], of="member", **asked).values
    np.testing.assert_array_equal(posterior.welfare(NEW, MEAN[2], **asked).values, member)
    with pytest.raises(PosteriorError, match="no joint draw"):
        posterior.welfare(NEW, MEAN[2], of="committee", draws=10)


def test_blocks_of_the_committee_s_draws_make_no_difference(monkeypatch):
    posterior = fitted("last_layer", 3, 2).posterior(eta=3.0)
    asked = {"rule": "randomized", "draws": 30, "seed": 2}
    one = posterior.welfare(NEW, MEAN[3], **asked).values
    monkeypatch.setattr("gbpl.posterior.posterior.DRAWS_AT_A_TIME", 7)
    monkeypatch.setattr("gbpl.fitting.apply.BLOCK", 16)
    np.testing.assert_allclose(posterior.welfare(NEW, MEAN[3], **asked).values, one, atol=1e-6)


def test_draws_are_dealt_where_a_share_comes_out_even():
    """0.57 * 400 is a little below 228 in floating point, and the rest of that member a little below zero."""
    weights = np.array([0.57, 0.21375, 0.21625])
    assert weights[0] * 400 < 228 == round(weights[0] * 400)
    dealt = Posterior([None] * 3, weights, standardizer=None, surrogate=Binary(), actions=np.arange(2))
    counts = [count for count, _ in dealt._shares(400, 0)]
    assert counts[0] == 228
    assert sorted(counts[1:]) in ([85, 87], [86, 86])
