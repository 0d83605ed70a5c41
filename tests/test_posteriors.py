"""One contract for every posterior, and the exact Gaussian as the yardstick."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import enable_x64
from sklearn.linear_model import Ridge

import gbpl.posteriors.bootstrap
from gbpl import MLP, Binary, FitConfig, FullVector, GBPLNet, Linear, PerAction, regret, welfare
from gbpl.posterior import Draws
from gbpl.posteriors import METHODS, Exact, LastLayer, PosteriorError, Problem, Variational
from gbpl.posteriors.last_layer import gauss_newton

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
    "bootstrap": [{"refits": 14}],
}
CASES = [(method, options) for method, listed in OPTIONS.items() for options in listed]
FITS: dict = {}


def fitted(method, count, committee):
    key = (method == "exact", count, committee)
    if key not in FITS:
        surrogate = "auto"
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
        ).fit(X, Y[count])
    return FITS[key]


def test_every_method_is_in_the_contract():
    assert set(OPTIONS) == set(METHODS)


@pytest.mark.filterwarnings("ignore::gbpl.posteriors.PosteriorWarning")
@pytest.mark.parametrize("committee", [None, 2], ids=["one network", "committee"])
@pytest.mark.parametrize("count", [2, 3], ids=["binary", "three actions"])
@pytest.mark.parametrize(("method", "options"), CASES, ids=[f"{m} {next(iter(o.values()), '')}" for m, o in CASES])
def test_contract(method, options, count, committee):
    policy = fitted(method, count, committee)
    posterior = policy.posterior(method, **options)
    draws = posterior.sample(12, seed=3)
    form = jax.tree.map(lambda leaf: leaf[0], policy.params_)
    assert jax.tree.structure(draws) == jax.tree.structure(form)
    for got, want in zip(jax.tree.leaves(draws), jax.tree.leaves(form), strict=True):
        assert got.shape == (12, *want.shape)
        assert got.dtype == np.float32
        assert np.isfinite(got).all()
    again, other = posterior.sample(12, seed=3), posterior.sample(12, seed=4)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(draws), jax.tree.leaves(again), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(draws), jax.tree.leaves(other), strict=True))

    # The draws are members: the summaries restated from their parameters.
    x = jnp.asarray(policy.standardizer_.apply(NEW))
    member = np.repeat(np.arange(len(policy.member_weights_)), 12 // len(policy.member_weights_))

    def raw(i):
        one = jax.tree.map(lambda leaf: leaf[i], draws)
        if method != "laplace":
            return policy.model_.apply(one, x)
        at = jax.tree.map(lambda leaf: leaf[member[i]], policy.params_)  # linearised: g(x) + J(x) (w - MAP)
        step = jax.tree.map(lambda a, b: a - b, one, at)
        value, slope = jax.jvp(lambda params: policy.model_.apply(params, x), (at,), (step,))
        return value + slope

    scores = np.stack([np.asarray(posterior.surrogate.scores(raw(i))) for i in range(12)])
    np.testing.assert_allclose(posterior.scores(NEW, draws=12, seed=3), scores, atol=5e-5)
    policies = np.asarray(posterior.surrogate.policy(scores), np.float64)
    means = [welfare(p, MEAN[count]) for p in policies]
    np.testing.assert_allclose(posterior.welfare(NEW, MEAN[count], draws=12, seed=3).values, means, atol=1e-5)
    np.testing.assert_allclose(
        posterior.regret(NEW, MEAN[count], draws=12, seed=3).values,
        [regret(p, MEAN[count]) for p in policies],
        atol=1e-5,
    )
    chosen = (scores[..., 0] >= 0).astype(int) if count == 2 else policies.argmax(axis=2)
    share = np.stack([(chosen == a).mean(axis=0) for a in range(count)], axis=1)
    np.testing.assert_allclose(posterior.action_probability(NEW, draws=12, seed=3), share, atol=1e-12)
    u = count / (count - 1) * (1 - share.max(axis=1))
    np.testing.assert_allclose(posterior.disagreement(NEW, draws=12, seed=3), u, atol=1e-12)
    taken = np.eye(count)[chosen]
    rule = posterior.welfare(NEW, MEAN[count], rule="deterministic", draws=12, seed=3).values
    np.testing.assert_allclose(rule, [welfare(p, MEAN[count]) for p in taken], atol=1e-5)
    gain = policy.zeta_ * (policies - policies[..., :1])
    np.testing.assert_allclose(posterior.gain(NEW, draws=12, seed=3), gain, atol=1e-4)


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
    real = gbpl.posteriors.bootstrap.fit_stack
    monkeypatch.setattr(
        gbpl.posteriors.bootstrap, "fit_stack", lambda *given, **options: seen.append(given) or real(*given, **options)
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
    fold = np.array([member.label["fold"] for member in members])
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


def by_hand(problem):
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
    mean, covariance = by_hand(problem)
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


def test_population_welfare_adds_the_noise_of_the_rows():
    posterior = fitted("last_layer", 2, None).posterior()
    rng = np.random.default_rng(8)
    outcomes = MEAN[2] + rng.normal(size=MEAN[2].shape)
    here = posterior.welfare(NEW, outcomes, draws=4000, seed=1)
    population = posterior.population_welfare(NEW, outcomes, draws=4000, seed=1)
    assert "population" in population.about
    assert "given rows" in here.about
    policies = np.asarray(posterior.surrogate.policy(posterior.scores(NEW, draws=400, seed=1)), float)
    row_variance = np.mean([np.var(np.sum(p * outcomes, axis=1)) for p in policies])
    expected = np.sqrt(here.sd**2 + row_variance / len(NEW))
    assert population.sd == pytest.approx(expected, rel=0.06)


def test_probability_better():
    policy = fitted("last_layer", 2, None)
    posterior = policy.posterior()
    values = posterior.welfare(NEW, MEAN[2], draws=100, seed=2).values
    assert posterior.probability_better(NEW, MEAN[2], than="b", draws=100, seed=2) == np.mean(
        values > MEAN[2][:, 1].mean()
    )
    even = np.full((50, 2), 0.5)
    assert posterior.probability_better(NEW, MEAN[2], than=even, draws=100, seed=2) == np.mean(values > MEAN[2].mean())
    with pytest.raises(ValueError, match="an action of"):
        posterior.probability_better(NEW, MEAN[2], than="z")


def test_blocks_of_rows_and_draws_make_no_difference(monkeypatch):
    posterior = fitted("last_layer", 2, None).posterior()
    one = posterior.welfare(NEW, MEAN[2], draws=30, seed=2).values
    monkeypatch.setattr("gbpl.posterior.DRAWS_AT_A_TIME", 7)
    monkeypatch.setattr("gbpl.evaluate.BLOCK", 16)
    np.testing.assert_allclose(posterior.welfare(NEW, MEAN[2], draws=30, seed=2).values, one, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gibbs", {}, "method must be one of .*got 'gibbs'"),
        ("exact", {}, "linear in its parameters"),
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


@pytest.mark.filterwarnings("ignore::gbpl.posteriors.PosteriorWarning")
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
    assert len(policy.posterior().sample(10)[-1]["bias"]) == 10


def test_bootstrap_of_members_with_unequal_shares_has_draws_for_its_default() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    y = np.column_stack([np.zeros(80), x[:, 0]]) + rng.normal(size=(80, 2))
    net = GBPLNet(random_state=0, committee=2, model=MLP(hidden=(4,)), fit_config=FitConfig(max_epochs=10)).fit(x, y)
    assert len(set(net.zeta_path_.weight)) > 1
    assert net.posterior("bootstrap", refits=20).scores(x).shape[0] == 20
