"""GBPL: networks, forests and curves in one committee, restated member by member, and everything that a policy has."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from support.checks import nearest_on_simplex
from support.cli import people, read, run, write

import gbpl.estimators.gbplnet
import gbpl.nuisance.averaged
import gbpl.nuisance.plan
import gbpl.path.grid
import gbpl.path.path
import gbpl.study.options
from gbpl import GBPL, MLP, FitConfig, ForestFeatures, FullFeedback, GBPLNet, PosteriorError, Splines, fit_many, load
from gbpl.datasets import BinaryDesign
from gbpl.fitting.apply import Mixed, Mixture, member_policies, one_member, taken
from gbpl.path.out_of_fold import ZetaPath
from gbpl.study.decide_file import decide_file

ROWS, FOLDS = 300, 2
NETWORK, FOREST = MLP(hidden=(8,)), ForestFeatures(trees=12, depth=3, components=8)
CURVES = Splines(knots=4, curve_sd=0.3)
FAST = FitConfig(max_epochs=6, learning_rate=0.03)
THREE_WEIGHTS = {1: 0.4, 3: 0.3, 5: 0.3}  # of the entries of a path, each of another model
NAMES = {"MLP", "ForestFeatures", "Splines"}


def quick(**changes: Any) -> GBPL:
    given = {"committee": FOLDS, "nuisance_folds": 3, "fit_config": FAST, "random_state": 0, "progress": False}
    return GBPL(**{**given, **changes})


@pytest.fixture(scope="module", autouse=True)
def small_models() -> Iterator[None]:
    """Small ones in place of those that GBPL has: what is tested here does not depend on their size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gbpl.estimators.gbplnet, "NETWORK", NETWORK)
        patch.setattr(gbpl.estimators.gbplnet, "WIDE", NETWORK)
        patch.setattr(gbpl.estimators.gbplnet, "BESIDE", (FOREST,))
        patch.setattr(gbpl.estimators.gbplnet, "OPTIONAL", (CURVES,))
        patch.setattr(gbpl.nuisance.plan, "AUTO_NETWORKS", {"network": NETWORK, "relu network": NETWORK})
        patch.setattr(gbpl.nuisance.averaged, "TREES", 25)
        yield


def gains(x: np.ndarray, actions: int) -> np.ndarray:
    """Mean outcomes: a slope, which networks see, and a step, which trees see."""
    steps = [np.zeros(len(x)), 0.8 * x[:, 0] + np.where(x[:, 1] > 0.3, 0.8, -0.8), np.where(x[:, 2] > 0, 1.0, -1.0)]
    return np.column_stack(steps[:actions])


def stepped_sample(n: int, actions: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outcomes of every action, and an action at random."""
    rng = np.random.default_rng([seed, actions])
    x = rng.normal(size=(n, 3))
    return x, gains(x, actions) + 0.3 * rng.normal(size=(n, actions)), rng.integers(0, actions, n)


X, Y, _ = stepped_sample(ROWS, 3)
NEW = stepped_sample(70, 3, seed=9)[0]
LOG_X, LOG_Y, LOG_A = stepped_sample(ROWS, 2)
LOG = {"X": LOG_X, "y": LOG_Y[np.arange(ROWS), LOG_A], "action": LOG_A, "propensity": 0.5}


def weighed(policy: Any, weights: dict[int, float], **data: Any) -> Any:
    """Fitted, with these weights of the path's entries in place of those that it would find."""

    def given(path: ZetaPath) -> np.ndarray:
        entry_weights = np.zeros(len(path.zeta))
        entry_weights[list(weights)] = list(weights.values())
        return entry_weights

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gbpl.path.path, "average_weights", given)
        return policy.fit(**data)


@pytest.fixture(scope="module")
def three() -> GBPL:
    """Outcomes of three actions are known."""
    return weighed(quick(), THREE_WEIGHTS, X=X, y=Y)


@pytest.fixture(scope="module")
def logged() -> GBPL:
    """One of two actions was taken."""
    return weighed(quick(), {1: 0.2, 3: 0.2, 4: 0.2, 6: 0.1, 7: 0.3}, **LOG)


@pytest.fixture(params=["three", "logged"])
def policy(request: pytest.FixtureRequest) -> GBPL:
    return request.getfixturevalue(request.param)


# -- the committee ----------------------------------------------------------------------------------------


def test_the_committee_holds_both_models(policy: GBPL) -> None:
    path = policy.zeta_path_
    assert set(path.model) == NAMES
    assert path.weight.sum() == pytest.approx(1.0)
    for name in NAMES:
        assert 0.2 < sum(w for w, m in zip(path.weight, path.model, strict=True) if m == name) < 0.7
    assert policy.model_ == Mixture((NETWORK, FOREST, CURVES))
    assert isinstance(policy.params_, Mixed)
    counted = [m for w, m in zip(path.weight, path.model, strict=True) for _ in range(FOLDS) if w > 0.0]
    assert [type(policy.model_.models[owner]).__name__ for owner in policy.params_.owner] == counted
    assert len(policy.member_weights_) == len(counted)


def test_networks_have_a_short_path_and_other_models_fewer_zetas(three: GBPL, logged: GBPL) -> None:
    relative = three.zeta_path_.zeta / three.outcome_scale_
    assert_allclose(relative, [3.0, 1.0, 0.1, 3.0, 0.3, 3.0, 0.3])
    assert list(three.zeta_path_.model) == ["MLP"] * 3 + ["ForestFeatures"] * 2 + ["Splines"] * 2
    logged_models = ["MLP"] * 4 + ["ForestFeatures"] * 3 + ["Splines"] * 3  # the outcome model's table beside
    assert list(logged.zeta_path_.model) == logged_models
    assert_array_equal(logged.zeta_path_.correction, [1, 1, 1, 0, 1, 1, 0, 1, 1, 0])
    by_hand = GBPLNet(model=NETWORK, committee=FOLDS, fit_config=FAST, random_state=0, progress=False).fit(X, Y)
    assert_allclose(by_hand.zeta_path_.zeta / by_hand.outcome_scale_, [10.0, 3.0, 1.0, 0.1, 0.001])  # alone


def test_with_many_logged_rows_networks_learn_the_outcome_model_unsaturated(
    logged: GBPL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At three times the scale of that table in place of one; all else is as with few rows."""
    few = logged.zeta_path_
    monkeypatch.setattr(gbpl.path.grid, "MANY", ROWS)
    path, full = quick().fit(**LOG).zeta_path_, quick().fit(X, Y)
    assert list(path.model) == list(few.model)
    assert_allclose(path.zeta / few.zeta, [1, 1, 1, 3, 1, 1, 1, 1, 1, 1], rtol=1e-6)
    assert_allclose(full.zeta_path_.zeta[:3] / full.outcome_scale_, [3.0, 1.0, 0.1])
    monkeypatch.setattr(gbpl.path.grid, "MANY", ROWS + 1)
    assert_allclose(quick().fit(**LOG).zeta_path_.zeta, few.zeta, rtol=1e-6)


def test_forests_are_larger_where_actions_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.estimators.gbplnet, "BESIDE", (ForestFeatures(),))  # as it is outside these tests
    five, six = (GBPL().path_settings(count, 0).beside for count in (5, 6))
    assert five == (ForestFeatures(),)
    assert six == (ForestFeatures(depth=7, components=128),)
    assert GBPLNet().path_settings(6, 0).beside == ()


def test_it_has_steps_of_its_own_unless_they_are_given() -> None:
    assert GBPL().path_settings(2, 0).config == FitConfig(learning_rate=2e-3, patience=6, tolerance=2e-3)
    assert quick().path_settings(2, 0).config == FAST
    assert GBPLNet().path_settings(2, 0).config is None


def test_history_names_the_model_of_every_member(policy: GBPL) -> None:
    assert [entry["model"] for entry in policy.history_] == np.repeat(policy.zeta_path_.model, FOLDS).tolist()
    assert [entry["fold"] for entry in policy.history_[:FOLDS]] == list(range(FOLDS))
    assert_allclose([entry["zeta"] for entry in policy.history_], np.repeat(policy.zeta_path_.zeta, FOLDS))


def test_probabilities_are_the_expected_effects_of_the_members_mixture(policy: GBPL) -> None:
    """proj(1/K + (slope d + level) / unit), d = sum_m weight_m (delta_m - 1/K): tanh for two actions, else softmax."""
    new = NEW.astype(np.float32)
    count = len(policy.actions_)
    x = ((new - policy.standardizer_.mean) / policy.standardizer_.scale)[:, policy.standardizer_.columns]
    total = np.zeros((len(new), count))
    for number, weight in enumerate(policy.member_weights_):
        model, params = one_member(policy.model_, policy.params_, number)
        raw = np.asarray(model.apply(params, jnp.asarray(x, jnp.float32)), float)
        if count == 2:
            delta = np.column_stack([1.0 - np.tanh(raw), 1.0 + np.tanh(raw)]) / 2.0
        else:
            delta = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
        total += weight * (delta - 1.0 / count)
    effect = policy.effect_
    assert effect is not None
    effects = effect.slope * total + effect.level
    assert_allclose(policy.predict_proba(new), nearest_on_simplex(1.0 / count + effects / effect.unit), atol=2e-5)
    assert_allclose(policy.expected_gain(new), effects - effects[:, :1], atol=5e-5)


def test_members_are_taken_in_the_order_asked_for(policy: GBPL) -> None:
    owner = policy.params_.owner
    asked = [len(owner) - 1, 0, len(owner) // 2, 1, len(owner) - 1]
    assert len(set(owner[asked])) == 3
    chosen = taken(policy.params_, asked)
    assert_array_equal(chosen.owner, owner[asked])
    x = NEW.astype(np.float32)
    whole = member_policies(policy.model_, policy.surrogate_, policy.params_, x)
    assert_allclose(member_policies(policy.model_, policy.surrogate_, chosen, x), whole[asked], atol=1e-6)
    for place, number in enumerate(asked):
        model, params = one_member(policy.model_, chosen, place)
        same, expected = one_member(policy.model_, policy.params_, number)
        assert model == same
        assert_array_equal(params[-1]["weight"], expected[-1]["weight"])


# -- the estimator ----------------------------------------------------------------------------------------


def test_it_is_the_network_estimator_with_other_models(three: GBPL) -> None:
    settings = GBPL().get_params()
    assert settings.items() <= GBPLNet().get_params().items()
    assert "model" not in settings
    assert (GBPL().model, GBPL().outcome_model) == ("auto", "auto")
    plain = GBPLNet(model="auto", outcome_model="auto", **three.get_params())
    same = weighed(plain, THREE_WEIGHTS, X=X, y=Y)
    assert_allclose(same.predict_proba(NEW), three.predict_proba(NEW), atol=1e-6)


def test_a_clone_is_as_it_was_told_and_not_fitted(three: GBPL) -> None:
    copy = clone(three)
    assert isinstance(copy, GBPL)
    assert copy.get_params() == three.get_params()
    assert (copy.model, copy.outcome_model) == ("auto", "auto")
    assert not hasattr(copy, "params_")


def test_a_pickle_decides_the_same_and_has_no_rows(policy: GBPL) -> None:
    again = pickle.loads(pickle.dumps(policy))
    assert_array_equal(again.predict_proba(NEW), policy.predict_proba(NEW))
    assert list(again.zeta_path_.model) == list(policy.zeta_path_.model)
    with pytest.raises(PosteriorError, match="without its training rows"):
        again.posterior()


def test_a_saved_policy_decides_the_same(policy: GBPL, tmp_path: Path) -> None:
    policy.save(tmp_path / "policy.gbpl", draws=20)
    assert_allclose(load(tmp_path / "policy.gbpl").predict_proba(NEW), policy.predict_proba(NEW), atol=1e-6)


def test_other_words_are_no_model() -> None:
    with pytest.raises(TypeError, match=r"model must be 'auto', None or a score model such as .*, got 'forest'"):
        GBPLNet(model="forest").fit(X, Y)


def test_an_engine_fits_the_same() -> None:
    """At one zeta of the path there is nothing to weigh but the models."""
    here, there = (
        fit_many([quick(zeta=1.0)], [{"X": X, "y": Y}], engine=engine)[0] for engine in ("local", "threading")
    )
    assert set(here.zeta_path_.model) == NAMES
    assert_allclose(there.predict_proba(NEW), here.predict_proba(NEW), atol=1e-5)
    with pytest.raises(ValueError, match="engine must be 'local', 'ray' or a joblib backend"):
        fit_many([quick()], [{"X": X, "y": Y}], engine="spark")


# -- what it is worth, and how sure that is ---------------------------------------------------------------


def test_values_of_the_rows_of_the_fit(logged: GBPL) -> None:
    means = gains(LOG_X, 2)
    best, single = means.max(axis=1).mean(), means.mean(axis=0).max()
    value = logged.cross_fitted_value()
    assert single < value.estimate < best + 3.0 * value.se
    assert len(value.influence) == ROWS
    assert_array_equal(np.sort(np.concatenate(logged._training.held_out.folds)), np.arange(ROWS))
    drawn = logged.population_welfare(draws=500, rule="deterministic")
    assert drawn.values.shape == (500,)
    assert drawn.mean == pytest.approx(value.estimate, abs=4.0 * value.se / np.sqrt(500))
    gains_over = logged.gains()
    assert gains_over.estimates.min() == pytest.approx(value.estimate - logged.pseudo_outcomes_.mean(axis=0).max())
    assert gains_over.chance == gains_over.chances.min() > 0.95


@pytest.mark.parametrize(
    ("method", "options"), [("information_matching", {}), ("refit_matching", {"refits": 8}), ("safe_bayes", {})]
)
def test_eta_is_calibrated(logged: GBPL, method: str, options: dict[str, Any]) -> None:
    choice = logged.calibrate_eta(method, **options)
    assert choice.method == method
    assert 0.0 < choice.eta < np.inf
    assert np.all(np.isfinite(choice.curve))


@pytest.mark.parametrize(
    ("which", "method", "options"),
    [
        ("three", "last_layer", {}), ("logged", "last_layer", {}), ("logged", "laplace", {}),
        ("logged", "bootstrap", {"refits": 20}),
    ],
)  # fmt: skip
def test_every_member_is_drawn(
    which: str, method: str, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    policy = request.getfixturevalue(which)
    posterior = policy.posterior(method, **options)
    assert len(posterior.parts) == len(policy.member_weights_)
    assert_allclose(posterior.weights.sum(), 1.0)
    models = [part.problem.model for part in posterior.parts]
    assert models == [policy.model_.models[owner] for owner in policy.params_.owner]
    scores = posterior.scores(NEW[:12], draws=20)
    assert scores.shape == (20, 12, 1 if len(policy.actions_) == 2 else 3)
    assert scores.std(axis=0).min() > 0.0
    chances = posterior.action_probability(NEW[:12], draws=20)
    assert_allclose(chances.sum(axis=1), 1.0)
    outcomes = gains(NEW, len(policy.actions_))
    assert posterior.welfare(NEW, outcomes, draws=20).values.shape == (20,)
    with pytest.raises(PosteriorError, match=r"several models \(.*, Splines\), whose parameters do not stack"):
        posterior.sample(5)


def test_joint_draws_go_around_the_policy(policy: GBPL) -> None:
    """What draws of the committee are worth on average is about what the committee is worth, under either rule."""
    outcomes, probability = gains(NEW, len(policy.actions_)), policy.predict_proba(NEW)
    played = {"randomized": probability, "deterministic": np.eye(len(policy.actions_))[probability.argmax(axis=1)]}
    for method in ("committee", "last_layer"):
        posterior = policy.posterior() if method == "committee" else policy.posterior(method)
        assert posterior.method == method
        for rule, own in played.items():
            drawn = posterior.welfare(NEW, outcomes, rule=rule, draws=200).values
            assert abs(drawn.mean() - np.mean(np.sum(own * outcomes, axis=1))) < 4.0 * drawn.std() + 0.02, rule


def test_another_engine_refits_the_same(logged: GBPL) -> None:
    here, there = (logged.posterior("bootstrap", refits=20, engine=engine) for engine in ("local", "threading"))
    assert_allclose(there.scores(NEW, draws=20), here.scores(NEW, draws=20), atol=1e-4)
    with pytest.raises(ValueError, match="engine must be 'local', 'ray' or a joblib backend"):
        logged.posterior("bootstrap", refits=20, engine="spark")


def test_it_is_certified(logged: GBPL) -> None:
    certificate = logged.certificate(outcome_range=(-5.0, 5.0), of="draws", draws=10)
    assert -5.0 <= certificate.lower < certificate.estimate
    assert certificate.n == ROWS


def test_a_step_is_decided_better_than_by_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the models that GBPL has: regret of DGP3, of whose ten features one counts."""
    monkeypatch.setattr(gbpl.estimators.gbplnet, "NETWORK", MLP(hidden=(64, 64)))
    monkeypatch.setattr(gbpl.estimators.gbplnet, "BESIDE", (ForestFeatures(),))
    design = BinaryDesign("DGP3")
    sample, new = design.sample(500, seed=0), design.sample(4000, seed=1)

    def regret(policy: GBPLNet) -> float:
        chosen = policy.fit(sample.x, sample.outcomes).predict(new.x)
        return float(np.mean(new.outcome_mean.max(axis=1) - new.outcome_mean[np.arange(4000), chosen]))

    settings: Any = {"zeta": 6.0, "committee": 2, "random_state": 0, "progress": False}
    learner = GBPL(**settings)
    assert regret(learner) < 0.6 * regret(GBPLNet(**settings))
    assert learner.zeta_path_.weight[1] > 0.5, "the forest's"


# -- many rows --------------------------------------------------------------------------------------------


def test_a_file_is_learned_from_as_the_same_rows_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows have the same numbers, hence folds and statistics; the order within a pass is another."""
    monkeypatch.setattr(gbpl.estimators.gbplnet, "LARGE", 1_000)
    x, outcomes, _ = stepped_sample(3_000, 2, seed=3)
    columns = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "wait": outcomes[:, 0], "treat": outcomes[:, 1]}
    file = write(tmp_path / "rows.parquet", columns)
    settings: Any = {"zeta": 1.0, "actions": ["wait", "treat"]}
    here = quick(**settings).fit(x, outcomes)
    there = quick(**settings).fit_parquet(file, outcomes=["wait", "treat"])
    assert here.model_ == there.model_ == Mixture((NETWORK, FOREST))
    table = pa.table({name: columns[name] for name in "cab"})
    assert_array_equal(there.encoder_.apply(table)[0], x)
    assert there.n_features_in_ == 3
    assert there.actions_.tolist() == here.actions_.tolist() == ["wait", "treat"]
    assert_allclose(there.standardizer_.mean, here.standardizer_.mean, atol=1e-9)
    assert_allclose(there.standardizer_.scale, here.standardizer_.scale, rtol=1e-9)
    assert len(there.history_) == len(here.history_) == 2 * FOLDS
    new = stepped_sample(1_000, 2, seed=4)[0]
    best = np.where(gains(new, 2)[:, 1] > 0.0, "treat", "wait")
    assert np.mean(there.predict(new) == here.predict(new)) > 0.95
    assert min(np.mean(policy.predict(new) == best) for policy in (here, there)) > 0.8
    assert_allclose(there.predict_proba(new), here.predict_proba(new), atol=0.25)
    for value in (here.cross_fitted_value(), there.cross_fitted_value()):
        assert value.estimate == pytest.approx(np.maximum(gains(x, 2)[:, 1], 0.0).mean(), abs=0.15)
    assert there.posterior().scores(new[:5], draws=8).shape == (8, 5, 1)
    there.save(tmp_path / "policy.gbpl")  # with its encoder: it decides files
    decide_file(load(tmp_path / "policy.gbpl"), file, tmp_path / "decisions.parquet")
    assert read(tmp_path / "decisions.parquet").column("action").to_pylist() == there.predict(x).tolist()
    assert there.fingerprint_.seen(FullFeedback.of(x[:2000], outcomes[:2000])) > 0.9


def test_in_passes_networks_learn_the_outcome_model_at_large_zetas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten and three times the scale of its table, where networks alone have three and a tenth."""
    monkeypatch.setattr(gbpl.estimators.gbplnet, "LARGE", 1_000)
    x, outcomes, action = stepped_sample(3_000, 2, seed=3)
    log = {"X": x, "y": outcomes[np.arange(3_000), action], "action": action, "propensity": 0.5}
    alone = GBPLNet(model=NETWORK, committee=FOLDS, nuisance_folds=3, fit_config=FAST, random_state=0, progress=False)
    ratios = []
    for policy in (quick(), alone):
        path = policy.fit(**log).zeta_path_
        network = np.array([name == "MLP" for name in path.model]) if path.model else np.ones(len(path.zeta), bool)
        full, modelled = (path.zeta[network & (path.correction == share)] for share in (1.0, 0.0))
        assert_allclose(full / full[0], [1.0, 0.3, 0.1, 0.01, 0.0001], rtol=1e-5)
        ratios.append(modelled[0] / modelled[1])
    assert ratios == pytest.approx([10.0 / 3.0, 30.0])


class InPassesError(Exception):
    """Learning in passes has begun."""


def test_what_cannot_be_learned_in_passes_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: Any, **__: Any) -> Any:
        raise InPassesError

    monkeypatch.setattr(gbpl.estimators.gbplnet, "LARGE", ROWS - 1)
    monkeypatch.setattr(gbpl.estimators.gbplnet, "fit_large", begun)
    with pytest.raises(InPassesError):
        quick().fit(X, Y)
    with pytest.raises(InPassesError):
        quick().fit(**LOG)
    kept = quick().fit(X, Y, groups=np.arange(ROWS) // 3)
    assert isinstance(kept.params_, Mixed)
    monkeypatch.setattr(gbpl.estimators.gbplnet, "LARGE", ROWS)
    assert set(quick().fit(X, Y).zeta_path_.model) == NAMES


# -- the command line -------------------------------------------------------------------------------------


def test_the_command_line_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made: list[GBPL] = []

    def small(random_state: int) -> GBPL:
        made.append(quick(random_state=random_state, zeta=3.0))
        return made[-1]

    monkeypatch.setattr(gbpl.study.options, "GBPL", small)
    data = write(tmp_path / "trial.csv", people(200))
    argv = ["fit", data, "--outcome=earnings", "--action=arm", "--propensity=0.5", "--features", "age", "sex"]
    done = run(capsys, *argv, "--models", "auto", "--seed", "3", "--out", tmp_path / "result")
    assert done.code == 0, done.err
    assert [policy.random_state for policy in made] == [3]
    saved = load(tmp_path / "result" / "policy.gbpl")
    table = {"age": [25.0, 55.0], "sex": ["f", "m"]}
    assert saved.predict(table).tolist() == ["treat", "none"]
    refused = run(capsys, *argv, "--models", "forest", "--out", tmp_path / "other")
    assert refused.code != 0
    assert "--models must be network or auto, got 'forest'" in refused.words
    assert not (tmp_path / "other").exists()
