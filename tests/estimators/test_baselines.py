"""The comparison methods as estimators: what each learns, from which feedback, and what it refuses (section 9)."""

from __future__ import annotations

import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import estimator_checks_generator
from support.calls import Call, record_calls
from support.policies import FromOneColumn

import gbpl.estimators.baselines
from gbpl import MLP, EstimatedPropensityWarning, FitConfig, GBPLNet, Linear, LoggedFeedback, PerAction
from gbpl.estimators.baselines import (
    DiffReg,
    DirectDRWelfare,
    DirectIPWWelfare,
    DirectWelfare,
    PluginReg,
    PluginRegK,
    WeightedLogistic,
)

ROWS = 400
EVERY = [DiffReg, DirectDRWelfare, DirectIPWWelfare, DirectWelfare, PluginReg, PluginRegK, WeightedLogistic]
FULL = [DiffReg, DirectWelfare, PluginReg, WeightedLogistic]
LOGGED = [DirectDRWelfare, DirectIPWWelfare, PluginReg, WeightedLogistic]
WITH_MEANS = (DirectDRWelfare, WeightedLogistic)
COMMON = {
    "model": MLP(hidden=(16,)), "committee": 2, "fit_config": FitConfig(max_epochs=15, learning_rate=0.02),
    "random_state": 0, "device": "cpu", "progress": False,
}  # fmt: skip


def quick_baseline(method: Any, **changes: Any) -> Any:
    given = {**COMMON, **({"outcome_model": PerAction(Ridge())} if issubclass(method, WITH_MEANS) else {})}
    return method(**{**given, **changes})


def outcomes_and_means(count: int, rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outcomes and their conditional means. Which action is best depends on the signs of two features."""
    rng = np.random.default_rng([count, seed])
    x = rng.normal(size=(rows, 3))
    mean = np.column_stack([np.zeros(rows), x[:, 0], x[:, 1]])[:, :count] + 2.0
    return x, mean + 0.5 * rng.normal(size=mean.shape), mean


def logged_rows(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same rows with the outcome of an action drawn evenly."""
    x, y, _ = outcomes_and_means(count)
    action = np.random.default_rng(count).integers(0, count, ROWS)
    return x, y[np.arange(ROWS), action], action


X2, Y2, _ = outcomes_and_means(2)
X3, Y3, _ = outcomes_and_means(3)
NEW2, NEW3 = outcomes_and_means(2, 2000, 1), outcomes_and_means(3, 2000, 1)


# -- what they learn --------------------------------------------------------------------------------------


def gain(policy: Any, count: int) -> float:
    """Welfare over that of the best single action, as a share of what the best rule has over it."""
    x, _, mean = NEW2 if count == 2 else NEW3
    single = mean.mean(axis=0).max()
    mean_outcome = mean[np.arange(len(x)), policy.predict(x)].mean()
    assert_allclose(policy.score(x, mean), mean_outcome, rtol=1e-6)
    return float((mean_outcome - single) / (mean.max(axis=1).mean() - single))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("method", FULL)
def test_it_learns_from_every_outcome(method: Any, count: int) -> None:
    if count == 3 and method in (DiffReg, WeightedLogistic):
        with pytest.raises(ValueError, match=rf"{method.__name__} is for two actions, got 3: \[0, 1, 2\]; use Plug"):
            quick_baseline(method).fit(X3, Y3)
        return
    x, y, _ = outcomes_and_means(count)
    assert gain(quick_baseline(method).fit(x, y), count) > 0.8


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("method", LOGGED)
def test_it_learns_from_a_log(method: Any, count: int) -> None:
    x, y, action = logged_rows(count)
    known = {} if method is PluginReg else {"propensity": 1 / count}
    if count == 3 and method is WeightedLogistic:
        with pytest.raises(ValueError, match="WeightedLogistic is for two actions, got 3"):
            quick_baseline(method).fit(x, y, action=action, **known)
        return
    policy = quick_baseline(method).fit(x, y, action=action, **known)
    assert gain(policy, count) > (0.5 if method is DirectIPWWelfare else 0.8)


def test_regressions_decide_and_policies_randomize() -> None:
    for method in FULL:
        policy = quick_baseline(method).fit(X2, Y2).predict_proba(NEW2[0])
        assert_allclose(policy.sum(axis=1), 1.0, atol=1e-6)
        assert np.isin(policy, (0.0, 1.0)).all() == (method is not DirectWelfare)


def test_direct_welfare_is_gbplnet_without_penalty() -> None:
    """-U f / 2 is half of the reduced loss as zeta goes to zero, so half the loss scale gives the same fit."""
    y = Y2[:, np.argsort(Y2.mean(axis=0))]  # the order in which members of GBPLNet see the actions
    direct = quick_baseline(DirectWelfare).fit(X2, y)
    limit = GBPLNet(**COMMON, zeta=1e-6, eta=0.5 / direct.outcome_scale_).fit(X2, y)
    assert_allclose(direct.predict_proba(NEW2[0]), limit.predict_proba(NEW2[0]), atol=5e-3)
    assert_allclose(direct.outcome_scale_, np.sqrt(np.mean((y[:, 1] - y[:, 0]) ** 2)))


# -- regressions with linear scores -----------------------------------------------------------------------

LINEAR = {"model": Linear(), "prior_sd": 100.0, "fit_config": FitConfig(learning_rate=0.01, patience=40)}


def predicted(policy: Any, x: np.ndarray) -> np.ndarray:
    """Mean raw output of linear members, in outcome units."""
    scaler = policy.standardizer_
    layer, x = policy.params_[0], ((x - scaler.mean) / scaler.scale)[:, scaler.columns]
    raw = [x @ weight + bias for weight, bias in zip(layer["weight"], layer["bias"], strict=True)]
    return policy.outcome_scale_ * np.mean(raw, axis=0)


def least_squares(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    with_one = np.column_stack([x, np.ones(len(x))])
    return np.column_stack([new, np.ones(len(new))]) @ np.linalg.lstsq(with_one, y, rcond=None)[0]


def gaussian(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    x = 3.0 + 2.0 * rng.normal(size=(rows, 3))
    return x, 50.0 + x @ rng.normal(size=(3, 2)) + rng.normal(size=(rows, 2))


def test_a_linear_regression_is_least_squares() -> None:
    x, y = gaussian(4000)
    new = x[:50]
    plugin = quick_baseline(PluginReg, **LINEAR).fit(x, y)
    assert_allclose(predicted(plugin, new) + y.mean(), least_squares(x, y, new), atol=0.1)
    assert_array_equal(plugin.predict(new), predicted(plugin, new).argmax(axis=1))


@pytest.mark.parametrize("cost", [None, {1: 4.0}])
def test_a_linear_regression_of_a_log_is_least_squares_by_action(cost: Any) -> None:
    x, y = gaussian(4000)
    action = np.random.default_rng(6).integers(0, 2, 4000)
    outcome = y[np.arange(4000), action]
    plugin = quick_baseline(PluginReg, **LINEAR).fit(x, outcome, action=action, cost=cost)
    by_action = np.column_stack([least_squares(x[action == a], outcome[action == a], x) for a in range(2)])
    assert_allclose(plugin.outcome_scale_, outcome.std(), rtol=1e-9)
    assert_allclose(predicted(plugin, x[:50]) + outcome.mean(), by_action[:50], atol=0.15)
    net = by_action - ([0.0, 0.0] if cost is None else [0.0, 4.0])
    clear = np.abs(net[:, 1] - net[:, 0]) > 0.3
    assert 0.02 < np.mean(net[clear].argmax(axis=1)) < 0.98
    assert_array_equal(plugin.predict(x)[clear], net[clear].argmax(axis=1))


def test_costs_that_differ_between_rows_are_learned() -> None:
    """E[Y(a) - c_a | x]: a cost of 2 where the second feature is positive, and a credit of 2 elsewhere."""
    x, y, action = logged_rows(2)
    cost = np.column_stack([np.zeros(ROWS), 2.0 * np.sign(x[:, 1])])
    policy = quick_baseline(PluginReg).fit(x, y, action=action, cost=cost)
    new = NEW2[0][np.abs(NEW2[0][:, 1]) > 0.3]
    best = new[:, 0] - 2.0 * np.sign(new[:, 1]) > 0
    assert np.mean(policy.predict(new) == best) > 0.9


def test_costs_of_full_feedback_are_paid() -> None:
    policy = quick_baseline(PluginReg).fit(X2, Y2, cost={1: 50.0})
    assert (policy.predict(NEW2[0]) == 0).all()
    assert (quick_baseline(DiffReg).fit(X2, Y2, cost={0: 50.0}).predict(NEW2[0]) == 1).all()


# -- committees -------------------------------------------------------------------------------------------


def raw_outputs(policy: Any, x: np.ndarray) -> np.ndarray:
    """Forward pass of every member in NumPy: one hidden tanh layer."""
    x = ((x - policy.standardizer_.mean) / policy.standardizer_.scale)[:, policy.standardizer_.columns]
    first, last = policy.params_
    return np.array(
        [
            np.tanh(x @ first["weight"][m] + first["bias"][m]) @ last["weight"][m] + last["bias"][m]
            for m in range(len(first["bias"]))
        ]
    )


def test_regressions_average_raw_outputs_and_policies_average_policies() -> None:
    x = NEW2[0]
    regression, policy = quick_baseline(PluginReg).fit(X2, Y2), quick_baseline(DirectWelfare).fit(X2, Y2)
    assert [entry["fold"] for entry in regression.history_] == [0, 1]
    means = raw_outputs(regression, x).mean(axis=0)
    sure = np.abs(means[:, 1] - means[:, 0]) > 1e-4
    assert_array_equal(regression.predict(x)[sure], means.argmax(axis=1)[sure])
    treated = ((np.tanh(raw_outputs(policy, x)[..., 0]) + 1) / 2).mean(axis=0)
    assert_allclose(policy.predict_proba(x)[:, 1], treated, atol=1e-5)
    other = (np.tanh(raw_outputs(policy, x)[..., 0].mean(axis=0)) + 1) / 2  # of averaged raw outputs
    assert np.abs(policy.predict_proba(x)[:, 1] - other).max() > 1e-3


def test_one_network_with_a_validation_split() -> None:
    policy = quick_baseline(DiffReg, committee=None, validation_fraction=0.25).fit(X2, Y2)
    assert [entry["fold"] for entry in policy.history_] == [0]
    assert policy.params_[0]["bias"].shape[0] == 1
    assert 1 <= policy.history_[0]["best_epoch"] <= len(policy.history_[0]["train_loss"])
    assert np.abs(policy.standardizer_.mean - X2.mean(axis=0)).max() > 1e-6  # of the rows trained on alone


# -- what goes into the stack -----------------------------------------------------------------------------


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Calls of `fit_stack` while the test runs."""
    return record_calls(monkeypatch, "fit_stack", gbpl.estimators.baselines)


@pytest.mark.filterwarnings("ignore::gbpl.checks.suspicion.SuspectDataWarning")  # wrong propensities on purpose
def test_inverse_propensity_table(stacks: list[Call]) -> None:
    x, y, action = logged_rows(3)
    chance = np.array([0.2, 0.3, 0.5])
    policy = quick_baseline(DirectIPWWelfare).fit(
        x, y, action=action, propensity=dict(enumerate(chance)), cost=[0, 0.1, 0.2]
    )
    table = np.eye(3)[action] * (y / chance[action])[:, None] - [0, 0.1, 0.2]
    table = table - table.mean(axis=1, keepdims=True)
    assert_allclose(stacks[0].arguments[1] * policy.outcome_scale_, table, atol=1e-6)
    pairs = [np.mean((table[:, a] - table[:, b]) ** 2) for a in range(3) for b in range(a)]
    assert_allclose(policy.outcome_scale_, np.sqrt(np.mean(pairs)))


@pytest.mark.filterwarnings("ignore::gbpl.checks.suspicion.SuspectDataWarning")  # wrong propensities on purpose
@pytest.mark.parametrize("method", WITH_MEANS)
def test_doubly_robust_table(method: Any, stacks: list[Call]) -> None:
    """gamma_a + 1[A = a] (Y - gamma_a) / e_a less the cost, with an outcome model that always says 0.7."""
    x, y, action = logged_rows(2)
    policy = quick_baseline(
        method, outcome_model=PerAction(DummyRegressor(strategy="constant", constant=0.7)), clip=0.1
    )
    policy.fit(x, y, action=action, propensity=0.05, cost={1: 0.2})  # 0.05 is clipped to 0.1, and 0.95 to 0.9
    table = 0.7 + np.eye(2)[action] * (y - 0.7)[:, None] / [0.9, 0.1] - [0.0, 0.2]
    target = stacks[0].arguments[1] * policy.outcome_scale_
    assert_allclose(target[:, 1] - target[:, 0], table[:, 1] - table[:, 0], rtol=1e-6)
    assert_allclose(policy.outcome_scale_, np.sqrt(np.mean((table[:, 1] - table[:, 0]) ** 2)))


def test_members_have_weights_seeds_and_the_prior(stacks: list[Call]) -> None:
    weight = np.random.default_rng(3).uniform(0.5, 2.0, ROWS)
    quick_baseline(WeightedLogistic, prior_sd=0.7).fit(X2, Y2, sample_weight=weight)
    built = stacks[0].arguments[2]
    assert [member.prior_sd for member in built] == [0.7, 0.7]
    assert [member.eta for member in built] == [1.0, 1.0]  # one over the scale, in units of the scale
    assert len({member.seed for member in built}) == 2
    for member in built:
        assert_array_equal(np.sort(np.concatenate([member.train, member.validation])), np.arange(ROWS))
        assert_array_equal(member.weights, weight[member.train])
        assert_array_equal(member.validation_weights, weight[member.validation])


def test_groups_stay_together_and_actions_are_balanced(stacks: list[Call]) -> None:
    group = np.arange(ROWS) // 8
    quick_baseline(DiffReg).fit(X2, Y2, groups=group)
    for member in stacks[0].arguments[2]:
        assert not set(group[member.train]) & set(group[member.validation])
    x, y, action = logged_rows(2)
    quick_baseline(PluginReg).fit(x, y, action=action)
    shares = [action[member.validation].mean() for member in stacks[1].arguments[2]]
    assert abs(shares[0] - shares[1]) < 0.01


# -- invariances ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", FULL)
def test_the_unit_and_level_of_the_outcomes_do_not_matter(method: Any) -> None:
    one, other = quick_baseline(method).fit(X2, Y2), quick_baseline(method).fit(X2, 1000.0 * Y2 - 300.0)
    assert_allclose(other.outcome_scale_, 1000.0 * one.outcome_scale_, rtol=1e-6)
    for a, b in zip(one.params_, other.params_, strict=True):
        assert_allclose(a["weight"], b["weight"], atol=2e-3)
    assert np.mean(one.predict(NEW2[0]) == other.predict(NEW2[0])) > 0.995


@pytest.mark.parametrize("method", [PluginReg, DirectWelfare])
def test_the_seed_decides_and_rows_of_weight_zero_do_not_count(method: Any) -> None:
    one = quick_baseline(method).fit(X2, Y2)
    extra = np.concatenate([X2, 100.0 * np.ones((7, 3))]), np.concatenate([Y2, 100.0 * np.ones((7, 2))])
    weight = np.concatenate([np.full(ROWS, 3.0), np.zeros(7)])
    same = quick_baseline(method).fit(*extra, sample_weight=weight)
    for a, b in zip(one.params_, same.params_, strict=True):
        assert_allclose(a["weight"], b["weight"], atol=1e-4)
    assert_array_equal(quick_baseline(method).fit(X2, Y2).params_[0]["weight"], one.params_[0]["weight"])
    assert (quick_baseline(method, random_state=1).fit(X2, Y2).params_[0]["weight"] != one.params_[0]["weight"]).any()


def test_labels() -> None:
    frame = pd.DataFrame(X2, columns=["age", "dose", "site"])
    policy = quick_baseline(DiffReg).fit(frame, pd.DataFrame(Y2, columns=["wait", "treat"]))
    assert policy.actions_.tolist() == ["wait", "treat"]
    assert policy.feature_names_in_.tolist() == ["age", "dose", "site"]
    assert policy.n_features_in_ == 3
    assert set(policy.predict(frame)) == {"wait", "treat"}
    with pytest.raises(ValueError, match="feature names"):
        policy.predict(frame.rename(columns={"age": "years"}))
    x, y, action = logged_rows(2)
    named = np.where(action == 1, "treat", "wait")
    assert quick_baseline(PluginReg, actions=["wait", "treat"]).fit(x, y, action=named).actions_.tolist() == [
        "wait",
        "treat",
    ]


def test_a_log_as_one_object() -> None:
    x, y, action = logged_rows(2)
    whole = LoggedFeedback.of(x, y, action, propensity=0.5)
    one, other = (
        quick_baseline(DirectIPWWelfare).fit(whole),
        quick_baseline(DirectIPWWelfare).fit(x, y, action=action, propensity=0.5),
    )
    assert_array_equal(one.params_[0]["weight"], other.params_[0]["weight"])


def test_estimated_propensities_are_told() -> None:
    x, y, action = logged_rows(2)
    with pytest.warns(EstimatedPropensityWarning) as warned:
        quick_baseline(DirectIPWWelfare).fit(x, y, action=action)
    assert warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick_baseline(PluginReg).fit(x, y, action=action)


# -- worth ------------------------------------------------------------------------------------------------


def test_value_on_new_rows() -> None:
    x, y, _ = NEW2
    policy = quick_baseline(DirectWelfare).fit(X2, Y2)
    chosen = y[np.arange(len(x)), policy.predict(x)]
    value = policy.value(x, y)
    assert_allclose([value.estimate, value.se], [chosen.mean(), chosen.std(ddof=1) / np.sqrt(len(x))], rtol=1e-6)
    mixed = np.mean(np.sum(policy.predict_proba(x) * y, axis=1))
    assert_allclose(policy.value(x, y, rule="randomized").estimate, mixed, rtol=1e-6)
    over = policy.value(x, y, baseline=quick_baseline(DiffReg).fit(X2, Y2))
    assert abs(over.estimate) < 0.05
    action = np.random.default_rng(8).integers(0, 2, len(x))
    logged = policy.value(
        x, y[np.arange(len(x)), action], action=action, propensity=0.5, estimator="snipw", rule="deterministic"
    )
    assert abs(logged.estimate - chosen.mean()) < 4.0 * logged.se


def test_value_of_the_rows_of_the_fit_is_warned_of() -> None:
    policy = quick_baseline(DiffReg).fit(X2, Y2)
    with pytest.warns(UserWarning, match="their value is too good; use new rows") as warned:
        policy.value(X2, Y2)
    assert warned[0].filename == __file__
    assert np.isfinite(policy.score(X2, Y2))


# -- scikit-learn -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", EVERY)
def test_parameters_go_in_and_out(method: Any) -> None:
    names = set(inspect.signature(method).parameters)
    nuisance = {"nuisance_folds", "clip"}
    expected = nuisance | {"outcome_model"} if issubclass(method, WITH_MEANS) else set()
    expected = nuisance if method is DirectIPWWelfare else expected
    shared = {"model", "committee", "validation_fraction", "prior_sd", "actions", "fit_config", "random_state"}
    assert names == shared | {"device", "progress"} | expected
    given = {name: object() for name in names}  # nothing is checked or changed before fit
    policy = method(**given)
    assert policy.get_params(deep=False) == given
    assert clone(quick_baseline(method)).get_params(deep=False).keys() == names
    with pytest.raises(NotFittedError):
        quick_baseline(method).predict(X2)
    with pytest.raises(NotFittedError):
        quick_baseline(method).value(X2, Y2)
    assert repr(method(committee=None)) == f"{method.__name__}(committee=None)"
    for name in ("action", "propensity", "sample_weight"):
        assert name in inspect.signature(method.set_fit_request).parameters
        assert name in inspect.signature(method.set_score_request).parameters


class PluginFromOneColumn(FromOneColumn, PluginReg): ...


CHECKS = {
    "check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_estimators_unfitted",
    "check_requires_y_none", "check_estimators_nan_inf", "check_fit1d", "check_fit2d_1sample",
    "check_estimators_empty_data_messages", "check_dict_unchanged",
}  # fmt: skip


def test_some_of_the_conformance_suite() -> None:
    """All of it held when these were written, but for weights as repeated rows, as for GBPLNet; these are quick."""
    small = quick_baseline(PluginFromOneColumn, model=MLP(hidden=(4,)), fit_config=FitConfig(max_epochs=2))
    drawn = [(e, c) for e, c in estimator_checks_generator(small, legacy=True) if c.func.__name__ in CHECKS]
    assert len(drawn) == len(CHECKS)
    for estimator, check in drawn:
        check(estimator)


def test_a_pickle_has_no_rows() -> None:
    policy = quick_baseline(DirectWelfare).fit(X2, Y2)
    packed = pickle.dumps(policy)
    assert len(packed) < X2.nbytes
    again = pickle.loads(packed)
    assert_array_equal(again.predict_proba(NEW2[0]), policy.predict_proba(NEW2[0]))
    with pytest.warns(UserWarning, match="these are the rows the policy learned from"):  # by their fingerprint
        again.value(X2, Y2)


# -- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "instead"), [(DiffReg, "PluginReg or DirectDRWelfare"), (DirectWelfare, "DirectDRWelfare or DirectIPW")]
)
def test_a_log_is_refused(method: Any, instead: str) -> None:
    x, y, action = logged_rows(2)
    with pytest.raises(ValueError, match=rf"{method.__name__} needs the outcomes of every action .* use {instead}"):
        quick_baseline(method).fit(x, y, action=action, propensity=0.5)


@pytest.mark.parametrize("method", [DirectDRWelfare, DirectIPWWelfare])
def test_outcomes_of_every_action_are_refused(method: Any) -> None:
    with pytest.raises(ValueError, match=rf"{method.__name__} learns from logged feedback.* 2 actions .*DirectWelfare"):
        quick_baseline(method).fit(X2, Y2)


def test_controls_of_a_plugin_are_refused() -> None:
    x, y, action = logged_rows(2)
    with pytest.raises(ValueError, match=r"controls has 2 column\(s\), but .* X alone; .* use DirectDRWelfare"):
        quick_baseline(PluginReg).fit(x, y, action=action, controls=x[:, 1:])
    assert (
        quick_baseline(DirectDRWelfare).fit(x, y, action=action, propensity=0.5, controls=x[:, 1:]).n_features_in_ == 3
    )


def test_an_action_that_some_member_would_not_see_is_refused() -> None:
    x, y, action = logged_rows(2)
    with pytest.raises(ValueError, match="action 'rare' is taken in 1 of 400 rows, and none is left outside one of"):
        quick_baseline(PluginReg).fit(x, y, action=np.array(["rare", *np.where(action[1:] == 1, "a", "b")]))


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"prior_sd": 0.0}, ValueError, "prior_sd must be > 0 and finite, got 0.0; try 1.0"),
        ({"prior_sd": "wide"}, ValueError, "prior_sd must be > 0 and finite, got 'wide'"),
        ({"validation_fraction": 1.0}, ValueError, "validation_fraction must be below 1, got 1.0; try 0.2"),
        ({"committee": 1}, ValueError, "committee must be a whole number >= 2, or None for one network, got 1"),
        ({"committee": 300}, ValueError, "n_samples=400, and committee=300 needs at least 600; use a smaller"),
        ({"fit_config": 3}, TypeError, "fit_config must be a gbpl.FitConfig or None, got 3"),
        ({"device": "tpu"}, ValueError, "device must be 'auto', 'cpu' or 'gpu', got 'tpu'"),
        ({"model": 3}, TypeError, "model must be a score model"),
        ({"nuisance_folds": 1}, ValueError, "nuisance_folds must be a whole number >= 2, got 1; try 5"),
        ({"clip": 0.7}, ValueError, "clip must be 'auto' or a number"),
        ({"outcome_model": Ridge}, TypeError, "outcome_model must be an object, got the class Ridge; add brackets"),
    ],
)
def test_settings_are_refused(changes: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message.replace("(", r"\(")):
        quick_baseline(WeightedLogistic, **changes).fit(X2, Y2)


def test_outcomes_that_never_differ_are_told() -> None:
    x, _, action = logged_rows(2)
    for method, y, more in ((DiffReg, np.ones((ROWS, 2)), {}), (PluginReg, np.ones(ROWS), {"action": action})):
        with pytest.warns(UserWarning, match="never differ: every policy has the same welfare") as warned:
            policy = quick_baseline(method).fit(x, y, **more)
        assert warned[0].filename == __file__
        assert policy.outcome_scale_ == 1.0
    paid = quick_baseline(PluginReg).fit(
        x, np.full(ROWS, 7.0), action=action, cost={1: 1.0}
    )  # without a warning: costs decide
    assert (paid.predict(NEW2[0]) == 0).all()


def test_a_failed_fit_changes_nothing() -> None:
    policy = quick_baseline(DiffReg).fit(X2, Y2)
    before = policy.predict_proba(NEW2[0])
    with pytest.raises(ValueError, match="two actions"):
        policy.fit(X3[:, :2], Y3)
    assert policy.n_features_in_ == 3
    assert_array_equal(policy.predict_proba(NEW2[0]), before)
