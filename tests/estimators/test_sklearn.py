"""GBPLNet is a scikit-learn estimator: its conformance suite, and the tools that work on any estimator."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, has_fit_parameter
from support.policies import from_one_column, small_net

from gbpl import MLP, Binary, FitConfig, GBPLNet, PerAction

ROWS = 60


RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
Y = 0.3 * RNG.normal(size=(ROWS, 2))
Y[:, 1] += X[:, 0]
Y4 = RNG.normal(size=(ROWS, 4))
WEIGHT = RNG.uniform(0.5, 2.0, ROWS)


# -- the conformance suite --------------------------------------------------------------------------------

# As for scikit-learn's own bagging and boosting: rows are dealt to folds and batches at random, and a row dealt
# twice is not a row of weight two. What does hold, weight zero and the ratios, test_estimator.py checks.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "sample_weight is not equivalent to repeating rows"}


def expected(estimator: GBPLNet) -> dict[str, str]:
    return EXPECTED


@parametrize_with_checks([from_one_column()], expected_failed_checks=expected)
def test_conforms(estimator: GBPLNet, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([from_one_column(committee=None, zeta="auto")], expected_failed_checks=expected)
def test_one_network_conforms(estimator: GBPLNet, check: Any) -> None:
    check(estimator)


def test_one_check_is_expected_to_fail_and_none_left_out() -> None:
    drawn = list(
        estimator_checks_generator(from_one_column(), legacy=True, expected_failed_checks=EXPECTED, mark="xfail")
    )
    assert len(drawn) >= 45
    assert sum(hasattr(item, "marks") for item in drawn) == 1  # what is expected to fail carries a mark
    assert has_fit_parameter(small_net(), "sample_weight")
    tags = get_tags(small_net())
    assert tags.requires_fit
    assert tags.target_tags.required
    assert tags.target_tags.multi_output
    dodged = {
        "_skip_test": tags._skip_test,
        "no_validation": tags.no_validation,
        "allow_nan": tags.input_tags.allow_nan,
    }
    assert not any(dodged.values()), dodged
    assert not tags.non_deterministic


# -- parameters -------------------------------------------------------------------------------------------


def test_parameters_go_in_and_out() -> None:
    config, model, surrogate = FitConfig(max_epochs=1), MLP(hidden=(3,)), Binary(huber=2.0)
    given = {
        "zeta": [1.0, 0.1], "eta": 2.0, "prior_sd": 0.5, "surrogate": surrogate, "model": model, "committee": 3,
        "validation_fraction": 0.3, "actions": ["a", "b"], "fit_config": config, "random_state": 4, "device": "cpu",
        "progress": False, "pseudo_outcome": "ipw", "outcome_model": MLP(hidden=(5,)), "correction": 0.5,
        "nuisance_folds": 3, "nuisance_repeats": 2, "clip": 0.03, "confounding": 1.5, "confounding_baseline": "a",
        "outliers": "keep", "zeta_selection": "reduced_loss",
    }  # fmt: skip
    policy = GBPLNet(**given)
    assert set(GBPLNet().get_params()) == set(given)
    assert all(GBPLNet().get_params()[name] != value for name, value in given.items())  # nothing is a default
    assert policy.get_params() == given
    assert GBPLNet().set_params(**given).get_params() == given
    assert clone(policy).get_params() == given
    assert policy.get_params()["zeta"] is given["zeta"]  # stored, not copied: __init__ does nothing else
    with pytest.raises(ValueError, match="Invalid parameter 'zetta'"):
        policy.set_params(zetta=1.0)


def test_an_outcome_model_of_scikit_learn_goes_in_and_out() -> None:
    model = PerAction(Ridge(alpha=3.0))
    policy = GBPLNet(outcome_model=model)
    assert policy.get_params()["outcome_model"] is model
    again = clone(policy).outcome_model
    assert isinstance(again, PerAction)
    assert again.regressor is not model.regressor  # a clone shares nothing that can be fitted
    assert again.regressor.get_params() == model.regressor.get_params()
    assert repr(clone(policy)) == repr(policy)


def test_parameters_of_a_regressor_can_be_set() -> None:
    policy = GBPLNet(outcome_model=Ridge(alpha=3.0))
    assert policy.get_params()["outcome_model__alpha"] == 3.0
    again = clone(policy).set_params(outcome_model__alpha=5.0)
    assert again.outcome_model.alpha == 5.0
    assert policy.outcome_model.alpha == 3.0


def test_parameters_are_keywords() -> None:
    with pytest.raises(TypeError):
        GBPLNet(1.0)  # type: ignore[misc]


def test_nothing_is_checked_before_fit() -> None:
    wrong = GBPLNet(zeta=-1.0, committee="many", model=3, pseudo_outcome="x", correction=2, nuisance_folds=0, clip=9)
    assert clone(wrong).get_params() == wrong.get_params()
    with pytest.raises(ValueError, match="zeta"):
        wrong.fit(X, Y)


def test_a_clone_is_not_fitted() -> None:
    policy = small_net(actions=["wait", "treat"]).fit(X, Y)
    again = clone(policy)
    with pytest.raises(NotFittedError):
        check_is_fitted(again)
    assert_array_equal(again.fit(X, Y).predict_proba(X), policy.predict_proba(X))


def test_repr_shows_what_was_changed() -> None:
    assert repr(GBPLNet(zeta=0.5, committee=None)) == "GBPLNet(committee=None, zeta=0.5)"


# -- tools ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcomes", [Y, Y4], ids=["two", "four"])
def test_cross_val_score_is_welfare_on_each_part(outcomes: np.ndarray) -> None:
    parts = KFold(3)
    expected = []
    for train, test in parts.split(X):
        chosen = small_net().fit(X[train], outcomes[train]).predict(X[test])
        expected.append(np.mean([outcomes[row, action] for row, action in zip(test, chosen, strict=True)]))
    assert_allclose(cross_val_score(small_net(), X, outcomes, cv=parts), expected)


def test_cross_validate_and_cross_val_predict() -> None:
    scores = cross_validate(small_net(), X, Y, cv=2, return_train_score=True, error_score="raise")
    assert np.isfinite(scores["test_score"]).all()
    assert np.isfinite(scores["train_score"]).all()
    decided = cross_val_predict(small_net(actions=["wait", "treat"]), X, Y, cv=2)
    assert decided.shape == (ROWS,)
    assert set(decided) <= {"wait", "treat"}


@pytest.mark.parametrize("outcomes", [Y, Y4], ids=["two", "four"])
def test_grid_search(outcomes: np.ndarray) -> None:
    search = GridSearchCV(small_net(), {"prior_sd": [0.01, 1.0], "zeta": [0.1, "auto"]}, cv=2, error_score="raise")
    search.fit(X, outcomes)
    assert len(search.cv_results_["mean_test_score"]) == 4
    by_hand = cross_val_score(small_net(**search.best_params_), X, outcomes, cv=2).mean()
    assert_allclose(search.best_score_, by_hand)
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    assert_array_equal(search.predict(X), small_net(**search.best_params_).fit(X, outcomes).predict(X))
    assert_allclose(search.score(X, outcomes), search.best_estimator_.score(X, outcomes))


def test_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), small_net()).fit(100.0 * X + 5000.0, Y)
    alone = small_net().fit(X, Y)
    assert_allclose(pipeline.predict_proba(100.0 * X + 5000.0), alone.predict_proba(X), atol=1e-3)
    assert_allclose(pipeline.score(100.0 * X + 5000.0, Y), alone.score(X, Y))
    assert pipeline.decision_function(X).shape == (ROWS,)


def test_pipeline_of_frames() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), small_net())
    pipeline.fit(frame, pd.DataFrame(Y, columns=["wait", "treat"]))
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b", "c"]
    assert set(pipeline.predict(frame)) <= {"wait", "treat"}


def test_pipeline_passes_weights_and_parameters() -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("policy", small_net())])
    pipeline.set_params(policy__zeta=0.5).fit(X, Y, policy__sample_weight=WEIGHT)
    scaled = StandardScaler().fit_transform(X)
    alone = small_net(zeta=0.5).fit(scaled, Y, sample_weight=WEIGHT)
    assert_array_equal(pipeline["policy"].predict_proba(scaled), alone.predict_proba(scaled))
    search = GridSearchCV(pipeline, {"policy__prior_sd": [0.1, 1.0]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_["policy__prior_sd"] in (0.1, 1.0)


def test_weights_are_routed() -> None:
    with config_context(enable_metadata_routing=True):
        policy = small_net().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        parts = KFold(2)
        scores = cross_validate(policy, X, Y, cv=parts, params={"sample_weight": WEIGHT}, error_score="raise")
    expected = []
    for train, test in parts.split(X):
        fitted = small_net().fit(X[train], Y[train], sample_weight=WEIGHT[train])
        expected.append(fitted.score(X[test], Y[test], sample_weight=WEIGHT[test]))
    assert_allclose(scores["test_score"], expected)


def test_pickle_of_a_pipeline() -> None:
    pipeline = make_pipeline(StandardScaler(), small_net()).fit(X, Y)
    again = pickle.loads(pickle.dumps(pipeline))
    assert_array_equal(again.predict_proba(X), pipeline.predict_proba(X))
    assert_array_equal(again.predict(X), pipeline.predict(X))


# -- logged feedback through the tools --------------------------------------------------------------------

LOGGED = 200  # enough for 30 of each action in half of the rows: fewer get a warning
XL = RNG.normal(size=(LOGGED, 3)) * [1.0, 10.0, 0.1] + 3.0
CHANCE = RNG.choice([0.4, 0.5, 0.6], LOGGED)  # of "treat"; few values, so that no row is the lowest by itself
TREATED = RNG.random(LOGGED) < CHANCE
ACTION = np.where(TREATED, "treat", "hold")
TAKEN = np.where(TREATED, CHANCE, 1.0 - CHANCE)
OUTCOME = TREATED * (XL[:, 0] - 3.0) + 0.3 * RNG.normal(size=LOGGED)


def logged_net(**changes: Any) -> GBPLNet:
    given = {"outcome_model": PerAction(Ridge()), "nuisance_folds": 2}
    return small_net(**{**given, **changes})


def routed(**changes: Any) -> Pipeline:
    net = logged_net(**changes)
    net.set_fit_request(action=True, propensity=True).set_score_request(action=True, propensity=True)
    return Pipeline([("scale", StandardScaler()), ("net", net)])


@pytest.mark.parametrize("propensity", [TAKEN, 0.5], ids=["a number a row", "a number"])
def test_a_pipeline_routes_the_log(propensity: Any) -> None:
    with config_context(enable_metadata_routing=True):
        pipeline = routed().fit(XL, OUTCOME, action=ACTION, propensity=propensity)
        score = pipeline.score(XL, OUTCOME, action=ACTION, propensity=propensity)
    scaled = StandardScaler().fit_transform(XL)
    alone = logged_net().fit(scaled, OUTCOME, action=ACTION, propensity=propensity)
    assert pipeline["net"].actions_.tolist() == ["hold", "treat"]
    assert_array_equal(pipeline.predict_proba(XL), alone.predict_proba(scaled))
    assert_array_equal(pipeline.predict(XL), alone.predict(scaled))
    assert_array_equal(pipeline["net"].pseudo_outcomes_, alone.pseudo_outcomes_)
    assert score == alone.score(scaled, OUTCOME, action=ACTION, propensity=propensity)


@pytest.mark.parametrize("propensity", [TAKEN, 0.5], ids=["a number a row", "a number"])
def test_grid_search_routes_the_log(propensity: Any) -> None:
    """Each split is fitted and scored with its own rows of the actions and propensities."""
    widths = [0.5, 1.0]
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(routed(), {"net__prior_sd": widths}, cv=2, error_score="raise")
        search.fit(XL, OUTCOME, action=ACTION, propensity=propensity)
        score = search.score(XL, OUTCOME, action=ACTION, propensity=propensity)
    train, test = list(KFold(2).split(XL))[1]
    scaler = StandardScaler().fit(XL[train])

    def part(rows: np.ndarray) -> dict[str, Any]:
        known = propensity if np.ndim(propensity) == 0 else propensity[rows]
        return {"y": OUTCOME[rows], "action": ACTION[rows], "propensity": known}

    for place, width in enumerate(widths):
        policy = logged_net(prior_sd=width).fit(scaler.transform(XL[train]), **part(train))
        by_hand = policy.score(scaler.transform(XL[test]), **part(test))
        assert_allclose(search.cv_results_["split1_test_score"][place], by_hand, rtol=1e-12)
    assert search.best_params_["net__prior_sd"] in widths
    scaled = StandardScaler().fit_transform(XL)
    best = logged_net(prior_sd=search.best_params_["net__prior_sd"]).fit(scaled, **part(np.arange(LOGGED)))
    assert_array_equal(search.predict(XL), best.predict(scaled))
    assert_allclose(score, best.score(scaled, **part(np.arange(LOGGED))))


def test_propensities_that_are_not_asked_for_are_refused() -> None:
    with config_context(enable_metadata_routing=True):
        pipeline = Pipeline([("scale", StandardScaler()), ("net", logged_net().set_fit_request(action=True))])
        with pytest.raises(ValueError, match=r"\[propensity\] are passed but are not explicitly set"):
            pipeline.fit(XL, OUTCOME, action=ACTION, propensity=TAKEN)


def test_a_pipeline_takes_the_log_without_routing() -> None:
    pipeline = make_pipeline(StandardScaler(), logged_net())
    pipeline.fit(XL, OUTCOME, gbplnet__action=ACTION, gbplnet__propensity=TAKEN)
    scaled = StandardScaler().fit_transform(XL)
    alone = logged_net().fit(scaled, OUTCOME, action=ACTION, propensity=TAKEN)
    assert_array_equal(pipeline.predict_proba(XL), alone.predict_proba(scaled))


def test_score_of_a_log_is_its_doubly_robust_value() -> None:
    half, rest = np.arange(0, LOGGED, 2), np.arange(1, LOGGED, 2)
    policy = logged_net().fit(XL[half], OUTCOME[half], action=ACTION[half], propensity=TAKEN[half])
    score = policy.score(XL[rest], OUTCOME[rest], action=ACTION[rest], propensity=TAKEN[rest])
    value = policy.value(XL[rest], OUTCOME[rest], action=ACTION[rest], propensity=TAKEN[rest], estimator="dr")
    assert score == value.estimate
    follows = policy.predict(XL[rest]) == ACTION[rest]
    plain = np.mean(follows / TAKEN[rest] * OUTCOME[rest])  # inverse propensity: noisier, but of the same thing
    error = np.std(follows / TAKEN[rest] * OUTCOME[rest]) / np.sqrt(len(rest))
    assert abs(score - plain) < 3.0 * error
