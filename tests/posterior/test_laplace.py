"""The Gaussian approximation against its formula, restated here with forward derivatives of the scores in float64.

H = eta zeta sum_i weight_i S_i' S_i + I / prior_sd^2, where S_i is the Jacobian of row i's scores (squashing and all)
in all weights; the rows of S_i outside the robust loss's threshold do not count.
"""

import pickle
from typing import Any

import jax
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from support.checks import enable_x64

from gbpl import MLP, BaselineGap, Binary, FullVector, Linear, PosteriorError, RandomFeatures, Surrogate
from gbpl.models.adapters import FunctionModel
from gbpl.posterior import laplace
from gbpl.posterior.laplace import Laplace
from gbpl.posterior.problem import Problem, flatten

N_FEATURES = 3
NARROW, WIDE = MLP((4,)), MLP((16, 8), activation="silu")  # fewer and more weights than rows of J~
CASES = {
    "binary-primal": (NARROW, Binary(), 40),
    "binary-dual": (WIDE, Binary(), 20),
    "vector-primal": (NARROW, FullVector(n_actions=3), 30),
    "vector-dual": (WIDE, FullVector(n_actions=3), 20),
    "gap-dual": (WIDE, BaselineGap(n_actions=3), 20),  # fewer scores than raw outputs
}


def make(model: Any, surrogate: Surrogate, n: int, *, weighted: bool = True) -> Problem:
    rng = np.random.default_rng(0)
    shape = jax.eval_shape(lambda key: model.init(key, N_FEATURES, surrogate.n_raw), jax.random.key(0))
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.7, leaf.shape).astype(np.float32), shape)
    x = rng.standard_normal((n, N_FEATURES)).astype(np.float32)
    target = np.asarray(surrogate.target(rng.standard_normal((n, surrogate.n_actions)).astype(np.float32)))
    weights = rng.uniform(0.2, 2.0, n) if weighted else None
    weights = None if weights is None else (weights / weights.mean()).astype(np.float32)
    return Problem(model, surrogate, x, target, weights, 0.6, 1.7, 0.8, params)


def case(name: str) -> Problem:
    return make(*CASES[name])


def score_jacobian(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Scores (row score) and their Jacobian in all weights (row score weight), in float64."""
    with enable_x64(True):
        params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.params)
        flat, unravel = ravel_pytree(params)
        x = problem.x.astype(np.float64)

        def scores(w: Any) -> Any:
            return problem.surrogate.scores(problem.model.apply(unravel(w), x))

        return tuple(np.asarray(part) for part in jax.jit(lambda w: (scores(w), jax.jacfwd(scores)(w)))(flat))


def scaled_jacobian(problem: Problem) -> np.ndarray:
    """J~: sqrt(eta weight zeta) times the score's Jacobian, stacked."""
    scores, jacobian = score_jacobian(problem)
    weights = np.ones(len(problem)) if problem.weights is None else problem.weights.astype(np.float64)
    inside = np.abs(problem.target - problem.zeta * scores) <= problem.surrogate.huber
    scale = np.sqrt(problem.eta * problem.zeta * weights)[:, None] * inside
    return (scale[:, :, None] * jacobian).reshape(-1, jacobian.shape[-1])


def precision_of(problem: Problem) -> np.ndarray:
    rows = scaled_jacobian(problem)
    return rows.T @ rows + np.eye(rows.shape[1]) / problem.prior_sd**2


def assert_close(actual: np.ndarray, expected: np.ndarray, rtol: float = 1e-6) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max() * 1e-2)


def is_dual(posterior: Laplace) -> bool:
    return posterior._n_normals > len(posterior.mean)


# --- Full --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_full_is_the_inverse_of_the_gauss_newton_hessian(name: str) -> None:
    problem = case(name)
    posterior = Laplace(problem)
    assert is_dual(posterior) == name.endswith("dual")
    assert_close(posterior.covariance(), np.linalg.inv(precision_of(problem)))


@pytest.mark.parametrize("name", ["binary-dual", "vector-dual"])
def test_dual_form_is_the_explicit_form(name: str) -> None:
    """sd^2 I - sd^4 J~' (I + sd^2 J~ J~')^-1 J~ = (J~' J~ + I / sd^2)^-1, and the draws have this covariance."""
    problem = case(name)
    rows, sd = scaled_jacobian(problem), problem.prior_sd
    assert rows.shape[1] > rows.shape[0]
    inner = np.linalg.solve(np.eye(len(rows)) + sd**2 * rows @ rows.T, rows)
    assert_close(sd**2 * np.eye(rows.shape[1]) - sd**4 * rows.T @ inner, np.linalg.inv(precision_of(problem)))
    with enable_x64(True):
        curve = laplace._Curve.of(problem)
        primal = laplace._primal(curve)(np.eye(curve.n_weights))
    assert_close(Laplace(problem).covariance(), primal.T @ primal)


@pytest.mark.parametrize("name", ["binary-primal", "vector-dual"])
def test_blocks_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done in pieces, rows, weights and draws, is the same in one piece."""
    problem = case(name)
    whole = {s: Laplace(problem, structure=s) for s in laplace.STRUCTURES}
    expected = {s: (posterior.covariance(), flatten(posterior.sample(9, seed=3))[0]) for s, posterior in whole.items()}
    monkeypatch.setattr("gbpl.posterior.precision.BLOCK", 1_000)
    for structure, (covariance, draws) in expected.items():
        posterior = Laplace(problem, structure=structure)
        assert_close(posterior.covariance(), covariance, rtol=1e-9)
        np.testing.assert_allclose(flatten(posterior.sample(9, seed=3))[0], draws, rtol=1e-5, atol=1e-6)


def test_stored_in_float32_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = case("vector-dual")
    monkeypatch.setattr(laplace, "DOUBLE_LIMIT", 0)
    assert_close(Laplace(problem).covariance(), np.linalg.inv(precision_of(problem)), rtol=1e-4)


@pytest.mark.parametrize(("name", "structure"), [(name, "full") for name in CASES] + [("vector-dual", "kron")])
def test_draws_have_the_mean_and_the_covariance(name: str, structure: str) -> None:
    """Along a few directions: means, variances and covariances within five standard errors."""
    problem, n_draws = case(name), 20_000
    posterior = Laplace(problem, structure=structure)
    draws = posterior.sample(n_draws, seed=11)
    vectors = np.concatenate([leaf.reshape(n_draws, -1) for leaf in jax.tree.leaves(draws)], axis=1).astype(np.float64)
    expected = np.linalg.inv(precision_of(problem)) if structure == "full" else posterior.covariance()
    values, eigen = np.linalg.eigh(expected)
    assert values[0] < 0.5 * values[-1]
    directions = np.column_stack([eigen[:, :2], eigen[:, -2:], np.eye(len(values))[:, [0, 5, -1]]])
    projected = (vectors - flatten(problem.params)[0]) @ directions
    truth = directions.T @ expected @ directions
    spread = np.diag(truth)
    assert np.all(np.abs(projected.mean(0)) < 5 * np.sqrt(spread / n_draws))
    error = np.sqrt((np.outer(spread, spread) + truth**2) / n_draws)
    assert np.all(np.abs(projected.T @ projected / n_draws - truth) < 5 * error)


@pytest.mark.parametrize("weighted", [False, True])
def test_linear_without_squashing_is_conjugate(weighted: bool) -> None:
    """Bayesian linear regression: covariance (eta zeta X' W X + I / sd^2)^-1, X with a column of ones."""
    problem = make(Linear(), Binary(squash=False), 25, weighted=weighted)
    design = np.column_stack([np.ones(25), problem.x.astype(np.float64)])  # the bias is the first leaf
    weights = np.ones(25) if problem.weights is None else problem.weights
    precision = problem.eta * problem.zeta * design.T @ (weights[:, None] * design) + np.eye(4) / problem.prior_sd**2
    assert_close(Laplace(problem).covariance(), np.linalg.inv(precision))


def test_squared_loss_without_squashing_has_this_hessian() -> None:
    """Where Gauss-Newton is exact, H is the Hessian of -log_density itself."""
    problem = make(RandomFeatures(6), FullVector(n_actions=3, squash=False), 25)
    with enable_x64(True):
        flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), problem.params))
        hessian = -np.asarray(jax.jit(jax.hessian(lambda w: problem.log_density(unravel(w))))(flat))
    assert_close(np.linalg.inv(Laplace(problem).covariance()), hessian)


# --- What the curvature is made of ---------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", laplace.STRUCTURES)
@pytest.mark.parametrize("name", ["binary-primal", "vector-dual"])
def test_a_weight_of_two_is_two_rows(name: str, structure: str) -> None:
    problem = case(name)
    weights = np.arange(len(problem)) % 3
    doubled = _with(problem, weights=weights.astype(np.float32))
    kept = np.repeat(np.arange(len(problem)), weights)
    repeated = _with(problem, x=problem.x[kept], target=problem.target[kept], weights=None)
    expected = Laplace(repeated, structure=structure).covariance()
    assert_close(Laplace(doubled, structure=structure).covariance(), expected)


@pytest.mark.parametrize("structure", ["full", "diag", "low_rank"])
def test_rows_outside_the_huber_threshold_do_not_count(structure: str) -> None:
    problem = make(NARROW, Binary(huber=0.8), 40)
    residual = np.abs(problem.target - problem.zeta * score_jacobian(problem)[0])[:, 0]
    inside = residual <= 0.8
    assert 5 < inside.sum() < 35
    assert problem.weights is not None
    without = _with(problem, x=problem.x[inside], target=problem.target[inside], weights=problem.weights[inside])
    assert_close(Laplace(problem, structure=structure).covariance(), Laplace(without, structure=structure).covariance())
    if structure == "full":
        assert_close(Laplace(problem).covariance(), np.linalg.inv(precision_of(problem)))


@pytest.mark.parametrize("structure", laplace.STRUCTURES)
@pytest.mark.parametrize("limit", [0, laplace.SVD_LIMIT])
def test_without_a_row_that_counts_it_is_the_prior(structure: str, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laplace, "SVD_LIMIT", limit)
    problem = make(NARROW, Binary(huber=1e-9), 30)
    assert_close(Laplace(problem, structure=structure).covariance(), 0.64 * np.eye(21))


# --- Structures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_diag_is_the_diagonal_of_the_precision(name: str) -> None:
    problem = case(name)
    expected = np.diag(1.0 / np.diag(precision_of(problem)))
    assert_close(Laplace(problem, structure="diag").covariance(), expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", [Linear(), RandomFeatures(6)], ids=["linear", "features"])
@pytest.mark.parametrize("surrogate", [Binary(squash=False), FullVector(n_actions=3, squash=False)], ids=["one", "K"])
def test_kron_is_full_where_the_curvature_is_constant(model: Any, surrogate: Surrogate, weighted: bool) -> None:
    problem = make(model, surrogate, 25, weighted=weighted)
    assert_close(Laplace(problem, structure="kron").covariance(), np.linalg.inv(precision_of(problem)))


@pytest.mark.parametrize("surrogate", [Binary(), FullVector(n_actions=3)], ids=["binary", "vector"])
def test_kron_of_one_row_is_the_block_diagonal(surrogate: Surrogate) -> None:
    problem = make(MLP((5, 4)), surrogate, 1)
    precision = precision_of(problem)
    layer_of = np.repeat(np.arange(3), [len(flatten(layer)[0]) for layer in problem.params])
    precision[layer_of[:, None] != layer_of] = 0.0
    assert_close(Laplace(problem, structure="kron").covariance(), np.linalg.inv(precision))


def test_kron_is_the_product_of_its_factors() -> None:
    """Second layer of a network, many rows: eta n (mean a a') x (mean G) + I / sd^2, with numpy's own Kronecker."""
    problem = make(MLP((4, 3)), FullVector(n_actions=3), 30, weighted=False)
    first, second, third = problem.params
    with enable_x64(True):
        hidden = np.tanh(problem.x.astype(np.float64) @ first["weight"] + first["bias"])
        inputs = np.column_stack([np.ones(30), hidden])

        def scores(output: Any) -> Any:
            return problem.surrogate.scores((jax.numpy.tanh(output) @ third["weight"] + third["bias"])[None])[0]

        jacobians = np.asarray(jax.jit(jax.vmap(jax.jacfwd(scores)))(hidden @ second["weight"] + second["bias"]))
    mean_curvature = problem.zeta * np.einsum("isa,isb->ab", jacobians, jacobians) / 30
    block = problem.eta * 30 * np.kron(inputs.T @ inputs / 30, mean_curvature) + np.eye(15) / problem.prior_sd**2
    covariance = Laplace(problem, structure="kron").covariance()
    assert_close(covariance[16:31, 16:31], np.linalg.inv(block))
    assert not covariance[16:31, :16].any()
    assert not covariance[16:31, 31:].any()


@pytest.mark.parametrize("iterative", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_low_rank_of_all_the_rank_is_full(name: str, iterative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = case(name)
    rank = np.linalg.matrix_rank(scaled_jacobian(problem))
    if iterative:
        monkeypatch.setattr(laplace, "SVD_LIMIT", 0)
    for extra in (0, 1_000):
        posterior = Laplace(problem, structure="low_rank", rank=int(rank) + extra)
        assert_close(posterior.covariance(), np.linalg.inv(precision_of(problem)), rtol=1e-5 if iterative else 1e-6)


@pytest.mark.parametrize("iterative", [False, True])
@pytest.mark.parametrize("name", ["binary-primal", "vector-dual"])
def test_low_rank_keeps_the_leading_eigenpairs(name: str, iterative: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, rank = case(name), 4
    if iterative:
        monkeypatch.setattr(laplace, "SVD_LIMIT", 0)
    rows = scaled_jacobian(problem)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    kept = (vectors[:, -rank:] * values[-rank:]) @ vectors[:, -rank:].T
    expected = np.linalg.inv(kept + np.eye(len(values)) / problem.prior_sd**2)
    actual = Laplace(problem, structure="low_rank", rank=rank).covariance()
    np.testing.assert_allclose(actual, expected, atol=(1e-5 if iterative else 1e-8) * np.abs(expected).max())


# --- Draws as members ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", laplace.STRUCTURES)
@pytest.mark.parametrize("name", ["binary-primal", "vector-dual"])
def test_draws_are_members_and_follow_from_the_seed(name: str, structure: str) -> None:
    problem = case(name)
    posterior = Laplace(problem, structure=structure)
    draws = posterior.sample(7, seed=5)
    assert jax.tree.structure(draws) == jax.tree.structure(problem.params)
    for draw, leaf in zip(jax.tree.leaves(draws), jax.tree.leaves(problem.params), strict=True):
        assert draw.shape == (7, *leaf.shape)
        assert draw.dtype == np.float32
    assert posterior.raw(draws, problem.x).shape == (7, len(problem), problem.surrogate.n_raw)
    again = Laplace(problem, structure=structure).sample(7, seed=5)
    jax.tree.map(np.testing.assert_array_equal, draws, again)
    first = posterior.sample(3, seed=5)
    jax.tree.map(lambda few, many: np.testing.assert_allclose(few, many[:3], rtol=1e-5, atol=1e-6), first, draws)
    assert not np.allclose(flatten(posterior.sample(7, seed=6))[0], flatten(draws)[0])
    copy = pickle.loads(pickle.dumps(posterior))
    jax.tree.map(np.testing.assert_array_equal, draws, copy.sample(7, seed=5))


def test_any_tree_of_parameters() -> None:
    def init(key: Any, n_features: int, n_raw: int) -> Any:
        return {"b": np.zeros((n_features, n_raw)), "a": (np.zeros(n_raw), np.zeros(()))}

    def apply(params: Any, x: Any) -> Any:
        return params["a"][1] * jax.numpy.tanh(x @ params["b"]) + params["a"][0]

    problem = make(FunctionModel(init, apply), FullVector(n_actions=3), 20)
    assert_close(Laplace(problem).covariance(), np.linalg.inv(precision_of(problem)))
    assert Laplace(problem, structure="low_rank").sample(4, seed=0)["a"][1].shape == (4,)
    with pytest.raises(PosteriorError, match=r"FunctionModel.*'diag' or 'full'"):
        Laplace(problem, structure="kron")


# --- Errors --------------------------------------------------------------------------------------------------------


def test_errors_say_what_to_do() -> None:
    problem = case("binary-primal")
    with pytest.raises(PosteriorError, match=r"one of full, diag, kron, low_rank, got 'lowrank'"):
        Laplace(problem, structure="lowrank")
    with pytest.raises(PosteriorError, match=r"rank must be >= 1, got 0"):
        Laplace(problem, structure="low_rank", rank=0)
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), problem.params)
    with pytest.raises(PosteriorError, match=r"not all finite"):
        Laplace(_with(problem, params=broken))


def test_too_large_for_a_matrix() -> None:
    problem = make(MLP((4_200,)), Binary(), 20_001)
    with pytest.raises(PosteriorError, match=r"21001 weights and 20001 rows.*'kron', 'low_rank' or 'diag'"):
        Laplace(problem)


def test_too_large_for_a_covariance() -> None:
    problem = make(MLP((1_000,)), Binary(), 5)
    with pytest.raises(PosteriorError, match=r"5001 weights.*sample"):
        Laplace(problem).covariance()


def _with(problem: Problem, **changes: Any) -> Problem:
    fields = {name: getattr(problem, name) for name in Problem.__dataclass_fields__}
    return Problem(**fields | changes)
