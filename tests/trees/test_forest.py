"""ForestFeatures: features by trees that did not see the row, exact posteriors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gbpl import Binary, FitConfig, ForestFeatures, FullVector, GBPLNet, Linear, Member, fit_stack
from gbpl.fitting.members import across_folds, fold_rows, over_zeta
from gbpl.fitting.stack import StackProblem, fit_stacks
from gbpl.models.basis import leaf_numbers
from gbpl.posterior.exact import Exact
from gbpl.posterior.methods import member_posterior
from gbpl.posterior.problem import Problem
from gbpl.trees.forest import SIZE, _orthonormal
from gbpl.trees.grow import Binned

ROWS, NEW = 150, 60
SMALL = ForestFeatures(trees=12, depth=3, components=20)
CONFIG = FitConfig(max_epochs=3)


def stepped_targets(seed: int = 0, rows: int = ROWS + NEW) -> tuple[np.ndarray, np.ndarray]:
    """Features, and targets with a step and a noise in them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    return x, (np.where(x[:, :1] > 0.2, 1.0, -1.0) + 0.5 * rng.normal(size=(rows, 1))).astype(np.float32)


def grown(
    target: np.ndarray | None = None, *, model: ForestFeatures = SMALL, **changes: Any
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A forest of the first rows of the table, and its features of all of them."""
    x, given = stepped_targets()
    member = Member(np.arange(ROWS), **changes)
    return model.grow(StackProblem(x, given if target is None else target, [member]), Binned.of(x), member)


def bags(model: ForestFeatures = SMALL, seed: int = 0) -> np.ndarray:
    """Which rows each tree sees: the first numbers drawn from the member's seed."""
    return np.random.default_rng([seed, 11]).random((model.trees, ROWS)) < model.bag


def indicators(trees: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Row, tree, leaf: one for the leaf that a row falls into."""
    leaf = leaf_numbers(trees["feature"].astype(int), trees["threshold"], x)
    return np.eye(2**SMALL.depth)[leaf]


# -- trees ------------------------------------------------------------------------------------------------


def test_a_row_on_a_threshold_stays_on_its_side() -> None:
    """The middle of neighbouring float32 values, rounded to float32, may be the upper one: then both go left."""
    low = np.nextafter(np.float32(5.0), np.float32(6.0))
    values = np.array([low, np.nextafter(low, np.float32(6.0))])
    assert np.float32((float(values[0]) + float(values[1])) / 2.0) == values[1]
    x = np.repeat(values, ROWS // 2)[:, None]
    target = np.repeat([[0.0], [1.0]], ROWS // 2, axis=0).astype(np.float32)
    member = Member(np.arange(ROWS))
    trees, phi = SMALL.grow(StackProblem(x, target, [member]), Binned.of(x), member)
    leaf = leaf_numbers(trees["feature"].astype(int), trees["threshold"], values[:, None])
    assert np.all(leaf[0] != leaf[1])
    assert np.linalg.norm(phi[0] - phi[-1]) > 1.0


def test_leaf_numbers_of_a_tree_by_hand() -> None:
    """x_0 <= 0 left; then x_1 <= 1 there, and x_0 <= 5 to the right."""
    feature, threshold = np.array([[0, 1, 0]]), np.array([[0.0, 1.0, 5.0]], np.float32)
    x = np.array([[0.0, 1.0], [-1.0, 1.5], [5.0, 9.0], [5.5, 0.0], [0.1, 0.0]], np.float32)
    assert_array_equal(leaf_numbers(feature, threshold, x)[:, 0], [0, 1, 2, 3, 2])


def test_a_node_without_a_split_sends_all_to_the_left() -> None:
    trees, _ = grown(np.ones((ROWS + NEW, 1), np.float32))
    assert np.all(np.isinf(trees["threshold"]))
    assert np.all(leaf_numbers(trees["feature"].astype(int), trees["threshold"], stepped_targets()[0]) == 0)


# -- features ---------------------------------------------------------------------------------------------


def test_features_of_new_rows_are_the_sums_of_leaf_values() -> None:
    trees, phi = grown()
    x = stepped_targets()[0][ROWS:]
    expected = np.einsum("ntl,tlc->nc", indicators(trees, x), trees["value"])
    assert_allclose(phi[ROWS:], expected, atol=1e-5)
    assert_allclose(SMALL.features([trees, {}], jnp.asarray(x)), expected, atol=1e-5)


def test_features_of_training_rows_come_from_trees_that_did_not_see_them() -> None:
    trees, phi = grown()
    unseen = (~bags()).T.astype(float)
    assert 1 < unseen.sum(axis=1).min() < unseen.sum(axis=1).max() < SMALL.trees
    unseen *= SMALL.trees / unseen.sum(axis=1, keepdims=True)  # as many votes as a new row has
    expected = np.einsum("ntl,nt,tlc->nc", indicators(trees, stepped_targets()[0][:ROWS]), unseen, trees["value"])
    assert_allclose(phi[:ROWS], expected, atol=1e-5)
    again = SMALL.training_features([trees, {}], stepped_targets()[0][:ROWS], 0)
    assert_allclose(again, expected, atol=1e-5)
    assert (
        np.abs(np.asarray(SMALL.features([trees, {}], jnp.asarray(stepped_targets()[0][:ROWS]))) - expected).max() > 0.1
    )


def test_a_row_cannot_tell_its_own_target() -> None:
    """Another target of a row leaves the trees that it was not in as they are, bit for bit, and changes the others."""
    row, (before, _) = 3, grown()
    target = stepped_targets()[1].copy()
    target[row] += 50.0
    after, _ = grown(target)
    seen = bags()[:, row]
    assert 2 < seen.sum() < SMALL.trees - 2
    for name in ("feature", "threshold"):
        assert_array_equal(before[name][~seen], after[name][~seen])
    changed = np.any(before["threshold"] != after["threshold"], axis=1)
    assert np.all(changed[seen])
    assert not np.any(changed[~seen])


def test_features_are_the_leading_part_of_the_kernel() -> None:
    """With all components, phi(x)'phi(x') is the centred count of shared leaves, its mean diagonal made SIZE^2."""
    model = replace(SMALL, components=SMALL.trees * 2**SMALL.depth - 1)
    trees, phi = grown(model=model)
    unseen = (~bags(model)).T.astype(float)
    unseen *= SMALL.trees / unseen.sum(axis=1, keepdims=True)
    share = (indicators(trees, stepped_targets()[0][:ROWS]) * unseen[:, :, None]).reshape(ROWS, -1)
    centred = share - share.mean(axis=0)
    kernel = centred @ centred.T
    expected = SIZE**2 * kernel / np.mean(np.diag(kernel))
    assert_allclose(phi[:ROWS] @ phi[:ROWS].T, expected, atol=2e-3)
    assert_allclose(np.mean(np.sum(phi[:ROWS] ** 2, axis=1)), SIZE**2, rtol=1e-4)
    assert_allclose(phi[:ROWS].mean(axis=0), 0.0, atol=1e-4)


def test_few_components_are_the_best_of_all() -> None:
    """The singular values of the features are the largest of the indicators', up to one factor (Eckart and Young)."""
    whole = np.linalg.svd(grown(model=replace(SMALL, components=95))[1][:ROWS], compute_uv=False)
    few = np.linalg.svd(grown()[1][:ROWS], compute_uv=False)[:20]
    assert_allclose(few / few[0], whole[:20] / whole[0], rtol=0.02)  # as near as two rounds of products bring them


def test_a_basis_spans_the_columns_and_leaves_out_what_is_hardly_there() -> None:
    rng = np.random.default_rng(0)
    block = (rng.normal(size=(300, 8)) * 10.0 ** -np.arange(8)).astype(np.float32)[:, [3, 0, 7, 1, 5, 2, 4, 6]]
    basis = _orthonormal(block)
    strong = np.linalg.qr(block[:, [1, 3, 5]].astype(np.float64))[0]
    assert_allclose(strong.T @ basis @ basis.T @ strong, np.eye(3), atol=1e-4)
    assert np.linalg.norm(basis, ord=2) < 1.0 + 1e-4
    for flat in (np.zeros((300, 4), np.float32), np.ones((300, 4), np.float32)):
        assert np.isfinite(_orthonormal(flat)).all()
        assert np.linalg.norm(_orthonormal(flat), ord=2) < 1.0 + 1e-4


def test_rows_of_weight_zero_have_no_part_in_a_tree() -> None:
    """Neither their targets nor their number count: a leaf needs `min_leaf` rows that weigh something."""
    model, weights = replace(SMALL, min_leaf=10), np.ones(ROWS)
    weights[:100] = 0.0
    target = stepped_targets()[1].copy()
    target[:100] += 100.0 * np.random.default_rng(1).normal(size=(100, 1)).astype(np.float32)
    plain, poisoned = (grown(given, model=model, weights=weights)[0] for given in (None, target))
    assert_array_equal(plain["feature"], poisoned["feature"])
    assert_array_equal(plain["threshold"], poisoned["threshold"])
    assert not np.array_equal(plain["threshold"], grown(model=model)[0]["threshold"])
    leaf = leaf_numbers(plain["feature"].astype(int), plain["threshold"], stepped_targets()[0][100:ROWS])
    for number, seen in enumerate(bags()[:, 100:]):
        assert np.unique(leaf[seen, number], return_counts=True)[1].min() >= 10


# -- fits -------------------------------------------------------------------------------------------------


def folds_and_zetas(count: int = 2) -> list[Member]:
    return over_zeta(across_folds(Member(np.arange(ROWS)), fold_rows(ROWS, count, seed=0), seed=1), [1.0, 0.1])


def test_a_fit_has_the_shapes_of_init_and_linear_scores() -> None:
    x, target = stepped_targets(rows=ROWS)
    stack = fit_stack(x, target, folds_and_zetas(), Binary(), SMALL, config=CONFIG)
    made = SMALL.init(jax.random.key(0), 4, 1)
    jax.tree.map(lambda leaf, fitted: np.testing.assert_equal(fitted.shape, (4, *leaf.shape)), made, stack.params)
    params = stack.select(0)
    phi = SMALL.features(params, jnp.asarray(x))
    expected = phi @ params[1]["weight"] + params[1]["bias"]
    assert_allclose(SMALL.apply(params, jnp.asarray(x)), expected, atol=1e-6)


def test_members_of_one_fold_share_their_forest() -> None:
    x, target = stepped_targets(rows=ROWS)
    stack = fit_stack(x, target, folds_and_zetas(), Binary(), SMALL, config=CONFIG)
    first, other = stack.find(fold=0), stack.find(fold=1)
    for leaf in jax.tree.leaves(stack.params[0]):
        assert_array_equal(leaf[first[0]], leaf[first[1]])
    assert not np.array_equal(stack.params[0]["threshold"][first[0]], stack.params[0]["threshold"][other[0]])


def test_last_layers_are_fitted_to_the_features_by_other_trees() -> None:
    """The same stack by hand: a linear score on the features of `grow`, with steps of twice the size."""
    x, target = stepped_targets(rows=ROWS)
    own = [m for m in folds_and_zetas() if m.fold == 1]
    _, phi = SMALL.grow(StackProblem(x, target, own), Binned.of(x), own[0])
    steps = replace(CONFIG, learning_rate=2.0 * CONFIG.learning_rate)
    linear = fit_stack(phi, target, own, Binary(), Linear(), config=steps)
    stack = fit_stack(x, target, folds_and_zetas(), Binary(), SMALL, config=CONFIG)
    chosen = stack.find(fold=1)
    for name in ("weight", "bias"):
        assert_allclose(stack.params[1][name][chosen], linear.params[0][name], atol=1e-5)
    assert_allclose(stack.best_loss[chosen], linear.best_loss, atol=1e-5)


def test_two_problems_at_once_are_two_fits() -> None:
    problems = [StackProblem(*stepped_targets(seed, rows=ROWS), folds_and_zetas()) for seed in (0, 1)]
    both = fit_stacks(problems, Binary(), SMALL, config=CONFIG)
    for problem, stack in zip(problems, both, strict=True):
        alone = fit_stack(*problem, Binary(), SMALL, config=CONFIG)
        jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-5), stack.params, alone.params)
        assert_array_equal(stack.best_epoch, alone.best_epoch)


def test_a_member_does_not_depend_on_its_neighbours() -> None:
    """Another table, other weights, another seed beside it: a member is what it is alone, in whatever order."""
    x, target = stepped_targets(rows=ROWS)
    other = np.where(x[:, 1:2] > 0, 1.0, -1.0).astype(np.float32)
    rows, both = np.arange(ROWS), np.concatenate([target, other])
    weights = np.random.default_rng(3).uniform(0.2, 3.0, ROWS)
    several = [Member(rows), Member(rows, table=1), Member(rows, weights=weights), Member(rows[:100], seed=5)]
    stack = fit_stack(x, both, several, Binary(), SMALL, config=CONFIG)
    turned = fit_stack(x, both, several[::-1], Binary(), SMALL, config=CONFIG)
    for number, member in enumerate(several):
        alone = fit_stack(x, both, [member], Binary(), SMALL, config=CONFIG)
        for name, leaf in alone.params[0].items():
            assert_array_equal(leaf[0], stack.params[0][name][number])
            assert_array_equal(leaf[0], turned.params[0][name][3 - number])
        for name, leaf in alone.params[1].items():
            assert_allclose(stack.params[1][name][number], leaf[0], atol=1e-5)
            assert_allclose(turned.params[1][name][3 - number], leaf[0], atol=1e-5)
    first = stack.params[0]["feature"][:, :, 0]
    assert np.mean(first[0] == 0) > np.mean(first[1] == 0)  # each sees the step of its own table
    assert np.mean(first[1] == 1) > np.mean(first[0] == 1)


# -- policies ---------------------------------------------------------------------------------------------


def test_exact_posterior_is_ridge_on_the_features_learned_from() -> None:
    """Lambda = eta zeta Phi'Phi + I / prior_sd^2, mean Lambda^{-1} eta Phi't; Phi by trees that did not see the row."""
    x, gap = stepped_targets(rows=ROWS)
    policy = GBPLNet(
        model=SMALL, surrogate=Binary(squash=False), zeta=1.0, eta=0.5, prior_sd=0.8, committee=2, random_state=0,
        fit_config=CONFIG,
    ).fit(x, outcome_gap=gap[:, 0])  # fmt: skip
    for part in policy.posterior("exact").parts:
        problem = part.problem
        grown, rows = problem.params[0], len(problem.x)
        unseen = ~(SMALL.bag > np.random.default_rng([problem.seed, 11]).random((SMALL.trees, rows)).T)
        share = unseen * (SMALL.trees / unseen.sum(axis=1, keepdims=True))
        phi = np.einsum("ntl,nt,tlc->nc", indicators(grown, problem.x), share, np.asarray(grown["value"]))
        basis = np.column_stack([phi, np.ones(rows)])
        precision = problem.eta * problem.zeta * basis.T @ basis + np.eye(basis.shape[1]) / 0.8**2
        mean = np.linalg.solve(precision, problem.eta * basis.T @ problem.target)[:, 0]
        assert_allclose(part.mean, mean, atol=1e-4)
        assert_allclose(part.covariance, np.linalg.inv(precision), atol=1e-5)


def test_a_long_fit_ends_at_the_mean_of_its_posterior() -> None:
    """Both minimise eta sum_i loss_i + |w|^2 / (2 prior_sd^2) on the same features; no rows stop this fit."""
    x, target = stepped_targets(rows=ROWS)
    member = Member(np.arange(ROWS), zeta=1.0, eta=0.5, prior_sd=0.3, seed=4)
    surrogate = Binary(squash=False)
    config = FitConfig(max_epochs=400, learning_rate=0.02, decay_steps=2000)
    params = fit_stack(x, target, [member], surrogate, SMALL, config=config).select(0)
    phi = SMALL.training_features(params, x, member.seed)
    problem = Problem(SMALL, surrogate, x, target, None, 1.0, 0.5, 0.3, params, phi=phi)
    mean = Exact(problem).mean
    fitted = np.append(params[1]["weight"], params[1]["bias"])
    assert np.linalg.norm(fitted - mean) < 0.02 * np.linalg.norm(mean)
    seen = Exact(replace(problem, phi=None)).mean  # by all trees, those that saw the row among them
    assert np.linalg.norm(fitted - seen) > 0.2 * np.linalg.norm(mean)


@pytest.mark.parametrize("method", ["last_layer", "laplace", "nuts"])
def test_methods_over_all_weights_draw_the_last_layer_alone(method: str) -> None:
    """Without squashing the posterior is normal, and every method has its mean and spread."""
    x, target = stepped_targets(rows=ROWS)
    surrogate, few = Binary(squash=False), replace(SMALL, components=3)
    member = Member(np.arange(ROWS), prior_sd=0.5)
    config = FitConfig(max_epochs=400, learning_rate=0.02, decay_steps=2000)
    params = fit_stack(x, target, [member], surrogate, few, config=config).select(0)
    phi = few.training_features(params, x, member.seed)
    problem = Problem(few, surrogate, x, target, None, 1.0, 1.0, 0.5, params, phi=phi)
    options = {"warmup": 200} if method == "nuts" else {}
    drawn = member_posterior(method, problem, **options).sample(1000, seed=0)
    for name, leaf in params[0].items():
        assert_array_equal(drawn[0][name], np.broadcast_to(leaf, drawn[0][name].shape))
    exact = Exact(problem)
    last = np.column_stack([drawn[1]["weight"].reshape(1000, -1), drawn[1]["bias"].reshape(1000, -1)])
    sd = np.sqrt(np.diag(exact.covariance))
    assert_allclose(last.std(axis=0), sd, rtol=0.2)
    assert np.all(np.abs(last.mean(axis=0) - exact.mean) < 0.4 * sd)


def test_a_forest_is_certified() -> None:
    x, gap = stepped_targets(rows=ROWS)
    outcomes = np.column_stack([np.zeros(ROWS), np.clip(gap[:, 0], -2.0, 2.0)])
    policy = GBPLNet(model=SMALL, zeta=1.0, committee=2, random_state=0, fit_config=CONFIG).fit(x, outcomes)
    certificate = policy.certificate(outcome_range=(-2.0, 2.0), of="draws", draws=20)
    assert -2.0 <= certificate.lower < certificate.estimate


def test_three_actions_with_weights() -> None:
    x, _ = stepped_targets(rows=ROWS)
    rng = np.random.default_rng(4)
    outcomes = np.column_stack([np.zeros(ROWS), 2.0 * (x[:, 0] > 0) - 1.0, 2.0 * (x[:, 1] > 0) - 1.0])
    config = FitConfig(max_epochs=25, learning_rate=0.02)
    policy = GBPLNet(model=SMALL, zeta=1.0, committee=2, random_state=0, fit_config=config)
    policy.fit(x, outcomes + 0.3 * rng.normal(size=(ROWS, 3)), sample_weight=rng.uniform(0.5, 2.0, ROWS))
    assert isinstance(policy.surrogate_, FullVector)
    gained = outcomes[np.arange(ROWS), policy.predict(x)]
    assert gained.mean() > 0.8 * outcomes.max(axis=1).mean() > outcomes.mean(axis=0).max()


def test_a_step_is_learned_better_than_by_a_linear_score() -> None:
    x, gap = stepped_targets(rows=400)
    new = np.random.default_rng(9).normal(size=(2000, 4))
    config = FitConfig(max_epochs=25, learning_rate=0.02)

    def wrong(model: Any) -> float:
        policy = GBPLNet(model=model, zeta=1.0, committee=2, random_state=0, fit_config=config)
        return float(np.mean(policy.fit(x, outcome_gap=gap[:, 0]).predict(new) != (new[:, 0] > 0.2)))

    assert wrong(replace(SMALL, trees=30)) < 0.5 * wrong(Linear())


# -- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"trees": 3}, "trees must be a whole number >= 4, got 3"),
        ({"depth": 0}, "depth must be a whole number >= 1, got 0"),
        ({"depth": 11}, r"depth must be at most 10 \(1,024 leaves per tree\), got 11; try 5"),
        ({"components": 2.5}, "components must be a whole number >= 1, got 2.5"),
        ({"min_leaf": True}, "min_leaf must be a whole number >= 1, got True"),
        ({"bag": 1.0}, "bag must be a share in"),
        ({"bag": float("nan")}, "bag must be a share in"),
        ({"max_features": 0.0}, "max_features must be a share in"),
    ],
)
def test_settings_are_checked(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ForestFeatures(**changed)


def test_a_forest_is_no_outcome_model() -> None:
    x, gap = stepped_targets(rows=ROWS)
    with pytest.raises(TypeError, match=r"ForestFeatures is a score model; .*RandomForestRegressor"):
        GBPLNet(outcome_model=SMALL, random_state=0).fit(x, gap[:, 0], action=np.arange(ROWS) % 2, propensity=0.5)
