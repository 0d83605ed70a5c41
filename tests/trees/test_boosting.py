"""BoostedScore: Newton steps against their formula, trees in JAX against LightGBM's own, and the face of a policy."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gbpl import (
    BaselineGap,
    Binary,
    BoostedScore,
    FitConfig,
    FullVector,
    GBPLNet,
    Linear,
    Member,
    PosteriorError,
    Surrogate,
    fit_stack,
)
from gbpl.datasets import BinaryDesign
from gbpl.estimators.baselines import DiffReg
from gbpl.fitting.stack import StackProblem, fit_stacks
from gbpl.trees.boosting import _Rows

lightgbm = pytest.importorskip("lightgbm")

ROWS, TRAIN = 240, 180
SMALL = BoostedScore(rounds=12, learning_rate=0.2, leaves=5, min_leaf=10, patience=4)


def stepped_outcomes(count: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features on a grid, so that many rows lie on either side of a threshold, and outcomes with steps in them."""
    rng = np.random.default_rng([seed, count])
    x = np.round(rng.normal(size=(ROWS, 3)), 1).astype(np.float32)
    steps = np.column_stack([np.zeros(ROWS), x[:, 0] > 0, x[:, 1] > 0.5])[:, :count]
    return x, 2.0 * steps - 0.7 + 0.5 * rng.normal(size=(ROWS, count))


def stack_problem(surrogate: Surrogate, *members: Member) -> StackProblem:
    x, outcomes = stepped_outcomes(surrogate.n_actions)
    return StackProblem(x, np.asarray(surrogate.target(outcomes), np.float32), list(members))


def member(**changes: Any) -> Member:
    rows = np.arange(ROWS, dtype=np.int32)
    return replace(Member(rows[:TRAIN], rows[TRAIN:], zeta=0.7, eta=0.5, prior_sd=2.0), **changes)


def boosted(surrogate: Surrogate, *members: Member, model: BoostedScore = SMALL) -> Any:
    return fit_stack(*stack_problem(surrogate, *members), surrogate, model)


# -- the objective ----------------------------------------------------------------------------------------


def tanh_score(raw: np.ndarray) -> np.ndarray:
    return np.tanh(raw)


def softmax_score(raw: np.ndarray) -> np.ndarray:
    return np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)


def gap_score(raw: np.ndarray) -> np.ndarray:
    return 2.0 * softmax_score(raw)[:, 1:] - 1.0


SCORES = [
    (Binary(), tanh_score),
    (FullVector(3), softmax_score),
    (BaselineGap(3), gap_score),
    (Binary(squash=False), lambda raw: raw),
]


@pytest.mark.parametrize(("surrogate", "score"), SCORES, ids=["binary", "full", "gap", "unsquashed"])
def test_gradient_and_curvature_are_those_of_differences(surrogate: Surrogate, score: Any) -> None:
    """g = d/dr {-t's(r) + zeta/2 |s(r)|^2} and C = zeta |ds/dr|^2, the scores restated."""
    rng = np.random.default_rng(0)
    raw, zeta, h = rng.normal(size=(9, surrogate.n_raw)), 0.7, 1e-5
    given = stack_problem(surrogate, member(zeta=zeta))
    rows = _Rows.of(given, given.members[0], np.arange(9), None, surrogate, 16)
    target = given.target[:9].astype(float)

    def loss(r: np.ndarray) -> np.ndarray:
        return np.sum(-target * score(r) + 0.5 * zeta * score(r) ** 2, axis=1)

    computed, gradient, curvature = rows.terms(raw)
    assert_allclose(computed, loss(raw), atol=2e-6)
    for k, step in enumerate(h * np.eye(surrogate.n_raw)):
        assert_allclose(gradient[:, k], (loss(raw + step) - loss(raw - step)) / (2 * h), atol=3e-6)
        slope = (score(raw + step) - score(raw - step)) / (2 * h)
        assert_allclose(curvature[:, k], zeta * np.sum(slope**2, axis=1), atol=3e-6)


def test_beyond_the_huber_threshold_there_is_no_curvature() -> None:
    surrogate = Binary(huber=0.8)
    given = stack_problem(surrogate, member())
    _, gradient, curvature = _Rows.of(given, member(), np.arange(ROWS), None, surrogate, ROWS).terms(
        np.zeros((ROWS, 1))
    )
    beyond = np.abs(given.target) > 0.8
    assert 0 < beyond.sum() < ROWS
    assert_allclose(curvature, np.where(beyond, 0.0, 0.7), rtol=1e-6)
    assert_allclose(gradient, -np.clip(given.target, -0.8, 0.8), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_one_round_is_a_newton_step_of_each_leaf(weighted: bool) -> None:
    """Constant and leaf weights, -sum w g / (sum w h + 1 / (prior_sd^2 eta)), tanh and its derivatives restated."""
    weights = np.random.default_rng(1).uniform(0.2, 3.0, TRAIN) if weighted else None
    one = member(weights=weights, validation=member().validation[:0])
    stump = BoostedScore(rounds=1, learning_rate=0.5, leaves=2, min_leaf=10)
    params = boosted(Binary(), one, model=stump).select([0])
    t, x = (part[:TRAIN].astype(float) for part in (stack_problem(Binary()).target[:, 0], stack_problem(Binary()).x))
    w = np.ones(TRAIN) if weights is None else weights / weights.mean()
    floor, ridge = np.sqrt(np.mean(w * t**2)), 1.0 / (2.0**2 * 0.5)

    def newton(rows: np.ndarray, raw: float) -> float:
        inside = 1.0 - np.tanh(raw) ** 2  # the derivative of tanh
        gradient = (0.7 * np.tanh(raw) - t) * inside
        return float(-np.sum((w * gradient)[rows]) / (np.sum(w[rows] * (0.7 * inside**2 + floor)) + ridge))

    assert_allclose(params["bias"], [[newton(np.ones(TRAIN, bool), 0.0)]], rtol=1e-5)
    above = x[:, int(params["feature"].item())] > params["threshold"].item()
    assert 10 <= above.sum() <= TRAIN - 10
    bias = params["bias"].item()
    assert_allclose(params["value"][0, 0, 0], [0.5 * newton(~above, bias), 0.5 * newton(above, bias)], rtol=1e-5)


def test_a_narrow_prior_holds_every_leaf_back() -> None:
    wide, narrow = boosted(Binary(), member(prior_sd=10.0), member(prior_sd=0.01)).params["value"]
    assert np.abs(narrow).max() < 0.05 * np.abs(wide).max()


# -- the trees --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surrogate", [Binary(), FullVector(3)], ids=["binary", "full"])
@pytest.mark.parametrize("leaves", [5, 20])
def test_jax_says_what_lightgbm_says(surrogate: Surrogate, leaves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grown, train = [], lightgbm.train
    monkeypatch.setattr(lightgbm, "train", lambda *a, **k: grown.append(train(*a, **k)) or grown[-1])
    model = replace(SMALL, leaves=leaves, min_leaf=3)
    stack = boosted(surrogate, member(), model=model)
    assert 1 < stack.best_epoch[0] <= 12
    params = stack.select([0])
    # rows on the grid the trees were grown on, on the thresholds themselves, and a float32 step to either side
    x = stack_problem(surrogate).x
    cuts = params["threshold"][np.isfinite(params["threshold"])]
    cuts = np.where(np.abs(cuts) < 1e-30, 0.0, cuts)  # LightGBM cuts just beside zero, and reads such numbers as zero
    cuts = np.resize(cuts, (ROWS, 3)).astype(np.float32)
    beside = [np.where(cuts == 0.0, 0.1, np.nextafter(cuts, np.float32(end))) for end in (np.inf, -np.inf)]
    for rows in (x, cuts, *(part.astype(np.float32) for part in beside)):
        by_lightgbm = grown[0].predict(rows, raw_score=True, num_iteration=int(stack.best_epoch[0])).reshape(ROWS, -1)
        by_jax = model.apply(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), params), jnp.asarray(rows))
        assert_allclose(by_jax, by_lightgbm + params["bias"], rtol=1e-5, atol=1e-6)


def test_a_fit_has_the_shapes_of_init() -> None:
    made = SMALL.init(jax.random.key(0), 3, 3)
    stack = boosted(FullVector(3), member(), member(zeta=0.1))
    for name, leaf in made.items():
        assert stack.params[name].shape == (2, *leaf.shape)
        assert stack.params[name].dtype == np.float32
    assert_array_equal(SMALL.apply(made, jnp.ones((4, 3))), np.zeros((4, 3)))


def test_trees_learn_a_step_exactly_where_it_is() -> None:
    x = np.linspace(-1.0, 1.0, ROWS, dtype=np.float32)[:, None]
    target = np.where(x > 0.25, 1.0, -1.0).astype(np.float32)
    given, stump = Member(np.arange(0, ROWS, 2), np.arange(1, ROWS, 2)), replace(SMALL, leaves=2)
    stack = fit_stack(x, target, [given], Binary(), stump)
    assert_array_equal(np.sign(stump.apply(stack.select(0), jnp.asarray(x))), target)


# -- the stack --------------------------------------------------------------------------------------------


def test_a_member_does_not_depend_on_its_neighbours() -> None:
    members = [member(), member(zeta=0.1), member(train=np.arange(90), seed=3), member(validation=np.arange(0))]
    stack = boosted(Binary(), *members)
    again = boosted(Binary(), *members[::-1])
    for number, one in enumerate(members):
        alone = boosted(Binary(), one)
        assert alone.best_epoch[0] == stack.best_epoch[number] == again.best_epoch[3 - number]
        for name, leaf in alone.params.items():
            assert_array_equal(leaf[0], stack.params[name][number])
            assert_array_equal(leaf[0], again.params[name][3 - number])


def test_problems_and_tables_are_fitted_as_if_alone() -> None:
    x, outcomes = stepped_outcomes()
    first = np.asarray(Binary().target(outcomes), np.float32)
    tables = np.concatenate([first, -first])
    two = fit_stacks(
        [StackProblem(x, first, [member()]), StackProblem(x[:, ::-1].copy(), tables, [member(), member(table=1)])],
        Binary(), SMALL,
    )  # fmt: skip
    assert [len(stack.members) for stack in two] == [1, 2]
    expected = [fit_stack(x, first, [member()], Binary(), SMALL)]
    expected += [fit_stack(x[:, ::-1].copy(), target, [member()], Binary(), SMALL) for target in (first, -first)]
    losses = [two[0].select([0]), two[1].select([0]), two[1].select([1])]
    for params, alone in zip(losses, expected, strict=True):
        jax.tree.map(assert_array_equal, params, alone.params)


def test_the_best_round_by_the_validation_loss_is_kept() -> None:
    fast = replace(SMALL, rounds=60, learning_rate=1.0, min_leaf=2)
    stack = boosted(Binary(), member(), model=fast)
    losses, best = stack.validation_loss[0], int(stack.best_epoch[0])
    assert 0 < best < len(losses) < 60, "it must stop early to test this"
    assert len(losses) == len(stack.train_loss[0]) == best + fast.patience
    assert losses[best - 1] == losses.min() == stack.best_loss[0]
    given = stack_problem(Binary())
    raw = fast.apply(stack.select(0), jnp.asarray(given.x[TRAIN:]))
    assert_allclose(np.mean(Binary().row_loss(raw, given.target[TRAIN:], 0.7)), losses.min(), rtol=1e-4)
    assert np.any(stack.params["value"][0, best - 1])
    assert not np.any(stack.params["value"][0, best:])


def test_without_validation_rows_all_rounds_are_kept() -> None:
    stack = boosted(Binary(), member(validation=np.arange(0)))
    assert stack.best_epoch[0] == SMALL.rounds
    assert len(stack.validation_loss[0]) == 0
    assert np.all(np.diff(stack.train_loss[0]) < 0.0)


def test_weights_count_by_their_ratios_and_zero_is_left_out() -> None:
    weights = np.random.default_rng(2).uniform(0.5, 2.0, TRAIN)
    weights[::3] = 0.0
    kept = weights > 0
    stack = boosted(
        Binary(), member(weights=weights), member(weights=8.0 * weights),
        member(train=member().train[kept], weights=weights[kept]), member(),
    )  # fmt: skip
    for leaf in jax.tree.leaves(stack.params):
        assert_array_equal(leaf[0], leaf[1])
        assert_array_equal(leaf[0], leaf[2])
    assert not np.array_equal(stack.params["value"][0], stack.params["value"][3])


def test_validation_weights_judge_the_rounds() -> None:
    given = np.zeros(ROWS - TRAIN)
    given[:20] = 1.0
    fast = replace(SMALL, rounds=60, learning_rate=1.0, min_leaf=2)
    some = member(validation=member().validation[:20])
    stack = boosted(Binary(), member(validation_weights=given), some, member(), model=fast)
    assert_allclose(stack.validation_loss[0], stack.validation_loss[1], rtol=1e-6)
    assert stack.best_epoch[0] == stack.best_epoch[1]
    assert not np.allclose(stack.validation_loss[0][:3], stack.validation_loss[2][:3], rtol=1e-2)


def test_with_nothing_to_split_the_constant_is_all() -> None:
    x, outcomes = np.ones((ROWS, 2)), np.column_stack([np.zeros(ROWS), np.full(ROWS, 1.0)])
    outcomes[:, 1] += np.random.default_rng(0).normal(size=ROWS)
    policy = GBPLNet(model=SMALL, zeta=1.0, committee=2, random_state=0).fit(x, outcomes)
    assert policy.predict(x[:2]).tolist() == [1, 1]
    assert not np.any(policy.params_["value"])


# -- the policy -------------------------------------------------------------------------------------------


def test_a_step_is_learned_better_than_by_a_linear_score() -> None:
    design = BinaryDesign("DGP3", n_features=4)
    sample, new = design.sample(300, seed=0), design.sample(4000, seed=1)

    def regret(model: Any) -> float:
        config = FitConfig(learning_rate=0.02, max_epochs=40)  # of the linear score
        policy = GBPLNet(model=model, zeta=1.0, committee=2, random_state=0, fit_config=config)
        policy.fit(sample.x, sample.outcomes)
        return float(np.mean(new.outcome_mean.max(axis=1) - new.outcome_mean[np.arange(4000), policy.predict(new.x)]))

    assert regret(BoostedScore(rounds=40, learning_rate=0.1)) < 0.3 * regret(Linear())


@pytest.fixture(scope="module")
def logged() -> tuple[GBPLNet, dict[str, np.ndarray]]:
    """Three actions, logged at random."""
    x, outcomes = stepped_outcomes(3)
    action = np.random.default_rng(5).integers(0, 3, ROWS)
    data = {"X": x, "y": outcomes[np.arange(ROWS), action], "action": action, "propensity": np.full((ROWS, 3), 1 / 3)}
    policy = GBPLNet(
        model=SMALL, zeta=[1.0, 0.1], committee=2, outcome_model=Linear(), nuisance_folds=2, random_state=0
    )
    return policy.fit(**data), data


def test_three_logged_actions(logged: tuple[GBPLNet, dict[str, np.ndarray]]) -> None:
    policy, _ = logged
    x, outcomes = stepped_outcomes(3, seed=1)
    chosen = outcomes[np.arange(ROWS), policy.predict(x)]
    assert chosen.mean() > outcomes.mean(axis=0).max() + 0.2  # over the best single action; the best policy has 0.5
    assert_allclose(policy.predict_proba(x).sum(axis=1), 1.0, rtol=1e-5)
    assert policy.value(x, outcomes).estimate == pytest.approx(chosen.mean())
    own = policy.cross_fitted_value(baseline=0)
    assert own.estimate > 2.0 * own.se


def test_draws_are_bootstrap_refits(logged: tuple[GBPLNet, dict[str, np.ndarray]]) -> None:
    policy, data = logged
    posterior = policy.posterior("bootstrap", refits=12, seed=1)
    chances = posterior.action_probability(data["X"][:30])
    assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-5)
    first, second = (part[:2] for part in posterior.parts[0].params["value"][:2])
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("method", ["last_layer", "exact", "laplace", "sgld", "nuts", "variational"])
def test_there_are_no_weights_to_draw(logged: tuple[GBPLNet, dict[str, np.ndarray]], method: str) -> None:
    with pytest.raises(PosteriorError, match=f"BoostedScore has no weights .* no '{method}' .*use method='bootstrap'"):
        logged[0].posterior(method)


def test_values_need_no_last_layer(logged: tuple[GBPLNet, dict[str, np.ndarray]]) -> None:
    policy, _ = logged
    drawn, value = policy.population_welfare(rule="deterministic", draws=2000), policy.cross_fitted_value()
    assert drawn.mean == pytest.approx(value.estimate, abs=4.0 * value.se / np.sqrt(2000))
    assert drawn.sd == pytest.approx(value.se, rel=4.0 / np.sqrt(4000))
    assert value.se > value.influence.std(ddof=1) / np.sqrt(ROWS)  # by what folds do to each other
    with pytest.raises(PosteriorError, match=r"got BoostedScore; give eta a number, or use posterior\('bootstrap'\)"):
        policy.calibrate_eta()
    with pytest.raises(PosteriorError, match=r"BoostedScore has no weights .* give eta a number"):
        policy.calibrate_eta(weights="all")


def test_saving_is_refused(logged: tuple[GBPLNet, dict[str, np.ndarray]], tmp_path: Any) -> None:
    for write in (logged[0].save, logged[0].to_onnx):
        with pytest.raises(ValueError, match="BoostedScore holds code, which is neither saved nor exported; fit with"):
            write(tmp_path / "policy.gbpl")
    assert list(tmp_path.iterdir()) == []


# -- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"leaves": 1}, "leaves must be a whole number >= 2, got 1"),
        ({"leaves": 300}, "leaves must be at most 256, got 300; try 15"),
        ({"min_leaf": 2.5}, "min_leaf must be a whole number >= 1, got 2.5"),
        ({"patience": True}, "patience must be a whole number >= 1, got True"),
        ({"learning_rate": 0.0}, r"learning_rate must be in \(0, 1\], got 0.0; try 0.05"),
        ({"learning_rate": float("nan")}, "learning_rate must be in"),
    ],
)
def test_settings_are_checked(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BoostedScore(**changed)


def test_only_surrogates_are_boosted() -> None:
    x, outcomes = stepped_outcomes()
    with pytest.raises(TypeError, match="boosts a surrogate of welfare, got GapSquare"):
        DiffReg(model=SMALL, random_state=0).fit(x, outcomes)
    with pytest.raises(TypeError, match="boosts a surrogate of welfare, got MaskedSquare"):
        GBPLNet(outcome_model=SMALL, random_state=0).fit(x, outcomes[:, 1], action=np.arange(ROWS) % 2, propensity=0.5)


def test_lightgbm_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ImportError, match=r"pip install 'gbpl\[boost\]'"):
        boosted(Binary(), member())
