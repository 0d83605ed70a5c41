"""GBPLNet as its users see it: what fit takes, what the policy says, and what must not change it (section 6)."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from support.calls import Call, record_calls
from support.checks import assert_same_fit, hidden_layer_policy, nearest_on_simplex
from support.policies import small_net
from support.samples import outcomes_table

import gbpl.fitting.stack
from gbpl import GBPL, MLP, BaselineGap, Binary, FitConfig, FullVector, GBPLNet, Linear, fit_many
from gbpl.fitting.apply import member_policies

ROWS = 60
LONG = FitConfig(max_epochs=40, learning_rate=0.03)


X, Y = outcomes_table(2)
X4, Y4 = outcomes_table(4)
NEW = np.random.default_rng(99).normal(size=(30, 3))


@pytest.fixture(scope="session")
def policy() -> GBPLNet:
    """Two actions, zeta averaged; no test changes it."""
    return small_net(zeta="auto", actions=["wait", "treat"]).fit(X, Y)


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Calls of `fit_stack` while the test runs."""
    return record_calls(monkeypatch, "fit_stack", gbpl.fitting.stack)


@pytest.fixture(scope="session")
def policy4() -> GBPLNet:
    """Four actions, zeta averaged; no test changes it."""
    return small_net(zeta="auto").fit(X4, Y4)


# -- the policy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "zeta"), [(2, 1.0), (2, "auto"), (4, "auto")])
def test_policy_is_the_average_of_its_members(count: int, zeta: Any) -> None:
    """d = sum_m weight_m (delta_m - 1/K); where zetas are averaged, the expected effects (slope d + level) / unit."""
    x, y = outcomes_table(count)
    fitted = small_net(zeta=zeta).fit(x, y)
    standard = ((NEW - x.mean(axis=0)) / x.std(axis=0))[:, fitted.standardizer_.columns]
    around = sum(
        weight * (hidden_layer_policy(fitted.params_, member, standard) - 1 / count)
        for member, weight in enumerate(fitted.member_weights_)
    )
    assert (fitted.effect_ is None) == (zeta != "auto")
    if fitted.effect_ is not None:
        effect = fitted.effect_
        assert effect.slope > 0.0
        assert_allclose(effect.level.sum(), 0.0, atol=1e-9)
        around = (effect.slope * around + effect.level) / effect.unit
    assert_allclose(fitted.predict_proba(NEW), nearest_on_simplex(1 / count + around), atol=1e-5)


def test_members_of_one_zeta_count_the_same() -> None:
    fitted = small_net().fit(X, Y)
    assert_allclose(fitted.member_weights_, 1 / 2)
    standard = ((NEW - X.mean(axis=0)) / X.std(axis=0))[:, fitted.standardizer_.columns]
    mean = np.mean([hidden_layer_policy(fitted.params_, member, standard) for member in range(2)], axis=0)
    assert_allclose(fitted.predict_proba(NEW), mean, atol=1e-5)


@pytest.mark.parametrize("count", [2, 4])
def test_probabilities(policy: GBPLNet, policy4: GBPLNet, count: int) -> None:
    fitted = policy if count == 2 else policy4
    probability = fitted.predict_proba(NEW)
    assert probability.shape == (len(NEW), count)
    assert (probability >= 0).all()
    assert_allclose(probability.sum(axis=1), 1.0, atol=1e-6)
    assert_array_equal(fitted.predict(NEW), fitted.actions_[np.argmax(probability, axis=1)])


def test_decision_function_of_two_actions(policy: GBPLNet) -> None:
    f = policy.decision_function(NEW)
    assert f.shape == (len(NEW),)
    assert (np.abs(f) <= 1).all()
    assert_allclose(f, 2.0 * policy.predict_proba(NEW)[:, 1] - 1.0, atol=1e-6)  # delta = (f + 1) / 2, section 4
    assert_array_equal(policy.predict(NEW), np.where(f >= 0, "treat", "wait"))


def test_decision_function_of_four_actions(policy4: GBPLNet) -> None:
    assert_allclose(policy4.decision_function(NEW), policy4.predict_proba(NEW), atol=1e-6)  # full vector: s = delta


def test_a_row_is_decided_alone(policy: GBPLNet) -> None:
    one_by_one = np.concatenate([policy.predict_proba(row[None]) for row in NEW])
    assert_allclose(policy.predict_proba(NEW), one_by_one, atol=1e-6)


def test_it_learns() -> None:
    clear = np.abs(NEW[:, 0]) > 0.5
    two = small_net(fit_config=LONG).fit(X, Y)
    assert_array_equal(two.predict(NEW[clear]), NEW[clear, 0] > 0)
    outcomes = Y4.copy()
    outcomes[:, 3] -= X4[:, 0]
    four = small_net(fit_config=LONG).fit(X4, outcomes)
    assert_array_equal(four.predict(NEW[clear]), np.where(NEW[clear, 0] > 0, 1, 3))


# -- outcomes and labels ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        ["wait", "treat"],
        ("wait", "treat"),
        [10, 20],
        [0.5, 1.5],
        [False, True],
        ["none", 1],
        [1, "1"],
        [None, "drug"],
        [True, 2],
        [("drug", 1), ("drug", 2)],
        np.array(["b", "a"]),
        pd.Index(["wait", "treat"]),
    ],
    ids=lambda labels: f"{type(labels).__name__} {list(labels)}",
)
def test_labels_come_back_as_they_went_in(labels: Any) -> None:
    fitted = small_net(actions=labels).fit(X, Y)
    numbers = small_net().fit(X, Y).predict(NEW)
    assert set(numbers) == {0, 1}
    predictions = fitted.predict(NEW).tolist()
    expected = [list(labels)[i] for i in numbers]
    assert predictions == expected
    assert [isinstance(a, str) for a in predictions] == [isinstance(a, str) for a in expected]
    assert [isinstance(a, bool) for a in predictions] == [isinstance(a, bool | np.bool_) for a in expected]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_are_arrays_with_names(frame: Callable[[dict], Any]) -> None:
    features = frame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
    outcomes = frame({"wait": Y[:, 0], "treat": Y[:, 1]})
    new = frame({"a": NEW[:, 0], "b": NEW[:, 1], "c": NEW[:, 2]})
    fitted, plain = small_net().fit(features, outcomes), small_net(actions=["wait", "treat"]).fit(X, Y)
    assert fitted.actions_.tolist() == ["wait", "treat"]
    assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
    assert_array_equal(fitted.predict_proba(new), plain.predict_proba(NEW))
    assert_array_equal(fitted.predict(new), plain.predict(NEW))
    assert fitted.score(features, outcomes) == plain.score(X, Y)


def test_columns_may_be_numbers() -> None:
    fitted = small_net().fit(X, pd.DataFrame(Y, columns=[7, 3]))
    assert fitted.actions_.tolist() == [7, 3]
    assert set(fitted.predict(NEW).tolist()) == {7, 3}


def test_actions_go_before_columns() -> None:
    fitted = small_net(actions=["a", "b"]).fit(X, pd.DataFrame(Y, columns=["wait", "treat"]))
    assert fitted.actions_.tolist() == ["a", "b"]


def test_rows_go_by_their_place_and_indexes_that_say_otherwise_are_refused() -> None:
    shuffled = np.random.default_rng(0).permutation(ROWS)
    fitted = small_net().fit(pd.DataFrame(X, index=shuffled), pd.DataFrame(Y, index=shuffled))
    assert_same_fit(fitted, small_net().fit(X, Y), NEW)
    with pytest.raises(ValueError, match="y has the index of X in another order"):
        small_net().fit(pd.DataFrame(X, index=shuffled), pd.DataFrame(Y))


GAP = Y[:, 1] - Y[:, 0]


@pytest.mark.parametrize(
    "gap",
    [
        GAP,
        GAP[:, None],
        GAP.tolist(),
        pd.Series(GAP, name="gap"),
        pd.DataFrame({"gap": GAP}),
        pl.Series("gap", GAP),
        pl.DataFrame({"gap": GAP}),
    ],
    ids=["1-D", "column", "list", "pandas series", "pandas frame", "polars series", "polars frame"],
)
def test_the_gap_stands_for_both_outcomes(gap: Any) -> None:
    fitted = small_net(zeta="auto").fit(X, outcome_gap=gap)
    both = small_net(zeta="auto").fit(X, np.column_stack([np.zeros(ROWS), GAP]))  # Y(0) = 0, Y(1) = U
    assert fitted.actions_.tolist() == [0, 1]
    assert_same_fit(fitted, both, NEW)
    assert fitted.score(X, outcome_gap=gap) == both.score(X, np.column_stack([np.zeros(ROWS), GAP]))


def test_the_gap_takes_labels() -> None:
    assert set(small_net(actions=["wait", "treat"]).fit(X, outcome_gap=GAP).predict(NEW)) == {"wait", "treat"}


@pytest.mark.parametrize("y", [GAP, GAP[:, None], pd.DataFrame({"earnings": GAP})], ids=["1-D", "column", "frame"])
def test_one_outcome_column_without_the_action_says_what_to_pass(y: Any) -> None:
    """It used to be taken for a gap: everybody treated, and a value in the thousands."""
    words = "y has one column, and which action each row took is not given: pass action=.*outcome_gap="
    with pytest.raises(ValueError, match=words):
        GBPL().fit(X, y)
    with pytest.raises(ValueError, match="y and outcome_gap are both given"):
        GBPL().fit(X, Y, outcome_gap=GAP)
    with pytest.raises(ValueError, match="outcome_gap is given with action"):
        GBPL().fit(X, outcome_gap=GAP, action=np.arange(ROWS) % 2)


def test_score_minds_the_names_of_the_actions() -> None:
    """Outcome columns in another order are put right or refused, never read by position."""
    outcomes = pd.DataFrame(Y, columns=["wait", "treat"])
    fitted = small_net().fit(X, outcomes)
    right = fitted.score(X, outcomes)
    try:
        score = fitted.score(X, outcomes[["treat", "wait"]])
    except ValueError:
        return
    assert score == right


# -- weights ----------------------------------------------------------------------------------------------

WEIGHT = np.random.default_rng(5).uniform(0.2, 3.0, ROWS)


@pytest.mark.parametrize("committee", [2, None])
def test_weight_zero_removes_a_row(committee: int | None) -> None:
    kept = np.arange(ROWS) % 3 > 0
    weighted = small_net(committee=committee).fit(X, Y, sample_weight=np.where(kept, WEIGHT, 0.0))
    removed = small_net(committee=committee).fit(X[kept], Y[kept], sample_weight=WEIGHT[kept])
    assert_same_fit(weighted, removed, NEW)
    for name, column in removed.zeta_path_.to_dict().items():
        assert_array_equal(weighted.zeta_path_.to_dict()[name], column)


def test_what_stands_in_a_removed_row_means_nothing() -> None:
    weight = np.where(np.arange(ROWS) == 7, 0.0, WEIGHT)
    other, y = X.copy(), Y.copy()
    other[7], y[7] = 1e6, -1e6
    assert_same_fit(small_net().fit(X, Y, sample_weight=weight), small_net().fit(other, y, sample_weight=weight), NEW)


@pytest.mark.parametrize("zeta", [1.0, "auto"])
def test_only_ratios_of_weights_matter(zeta: Any) -> None:
    one, other = (small_net(zeta=zeta).fit(X, Y, sample_weight=c * WEIGHT) for c in (1.0, 10.0))
    for a, b in zip(one.params_, other.params_, strict=True):
        assert_allclose(a["weight"], b["weight"], atol=1e-4)
        assert_allclose(a["bias"], b["bias"], atol=1e-4)
    assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-4)


@pytest.mark.parametrize("weight", [np.ones(ROWS), np.full(ROWS, 2.0), [1] * ROWS, pd.Series(np.ones(ROWS))])
def test_equal_weights_are_no_weights(weight: Any) -> None:
    one, other = small_net().fit(X, Y, sample_weight=weight), small_net().fit(X, Y)
    assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-4)
    assert_allclose(one.zeta_path_.welfare_se, other.zeta_path_.welfare_se)


@pytest.mark.parametrize("favoured", [0, 1])
def test_weights_decide_where_rows_disagree(favoured: int) -> None:
    winner = np.arange(ROWS) % 2
    outcomes = np.eye(2)[winner]
    weight = np.where(winner == favoured, 4.0, 1.0)
    fitted = small_net(fit_config=LONG).fit(np.ones((ROWS, 1)), outcomes, sample_weight=weight)
    assert fitted.predict([[1.0]]).tolist() == [favoured]


# -- units ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("unit", [1000.0, 0.001])
def test_defaults_do_not_depend_on_the_unit_of_outcomes(count: int, unit: float) -> None:
    x, y = outcomes_table(count)
    one, other = small_net(zeta="auto").fit(x, y), small_net(zeta="auto").fit(x, unit * y)
    assert_array_equal(one.predict(NEW), other.predict(NEW))
    assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-3)
    assert_allclose(other.outcome_scale_, unit * one.outcome_scale_)
    assert_allclose(other.eta_, one.eta_ / unit)
    assert_allclose(other.zeta_, unit * one.zeta_)
    assert_allclose(other.zeta_path_.welfare, unit * one.zeta_path_.welfare)
    assert_allclose(other.zeta_path_.weight, one.zeta_path_.weight, atol=0.01)


def test_a_power_of_two_is_exact() -> None:
    assert_same_fit(small_net(zeta="auto").fit(X, Y), small_net(zeta="auto").fit(X, 1024.0 * Y), NEW)


@pytest.mark.parametrize("surrogate", ["binary", "gap", "full"])
def test_zeta_and_eta_are_in_units_of_the_outcomes(surrogate: str) -> None:
    given = {"surrogate": surrogate, "prior_sd": 0.5}
    y = Y + 2.0 * X[:, :1] * [0.0, 1.0]  # much to learn, so that no member stops at once
    one = small_net(zeta=0.5, eta=0.2, **given).fit(X, y)
    other = small_net(zeta=500.0, eta=0.0002, **given).fit(X, 1000.0 * y)
    assert (one.zeta_, one.eta_, other.zeta_, other.eta_) == (0.5, 0.2, 500.0, 0.0002)
    assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-4)
    for changed in ({"zeta": 0.5, "eta": 0.0002}, {"zeta": 500.0, "eta": 0.2}):
        wrong = small_net(**changed, **given).fit(X, 1000.0 * y)
        assert np.abs(wrong.predict_proba(NEW) - one.predict_proba(NEW)).max() > 1e-3


def test_the_robust_threshold_is_in_units_of_the_outcomes() -> None:
    one = small_net(zeta=0.5, surrogate=Binary(huber=0.3)).fit(X, Y)
    other = small_net(zeta=500.0, surrogate=Binary(huber=300.0)).fit(X, 1000.0 * Y)
    assert_allclose(one.predict_proba(NEW), other.predict_proba(NEW), atol=1e-4)
    assert np.abs(one.predict_proba(NEW) - small_net(zeta=0.5).fit(X, Y).predict_proba(NEW)).max() > 0.01


def test_outcome_scale_is_the_typical_difference_of_two_actions() -> None:
    for x, y in ((X, Y), (X4, Y4)):
        count = y.shape[1]
        pairs = [(y[:, a] - y[:, b]) ** 2 for a in range(count) for b in range(count) if a != b]
        assert_allclose(small_net().fit(x, y).outcome_scale_, np.sqrt(np.mean(pairs)))
        weighted = small_net().fit(x, y, sample_weight=WEIGHT)
        assert_allclose(weighted.outcome_scale_, np.sqrt(np.average(np.mean(pairs, axis=0), weights=WEIGHT)))


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("level", [1e4, 1e6, 1e9])
def test_a_common_level_of_the_outcomes_means_nothing(count: int, level: float) -> None:
    """Shift invariance (section 5): decisions depend on differences between actions only."""
    x, y = outcomes_table(count)
    one, other = small_net(zeta="auto").fit(x, y), small_net(zeta="auto").fit(x, y + level)
    assert_allclose(other.outcome_scale_, one.outcome_scale_, rtol=1e-5)
    assert_allclose(other.zeta_path_.welfare_se, one.zeta_path_.welfare_se, rtol=0.01)
    assert_allclose(other.predict_proba(NEW), one.predict_proba(NEW), atol=0.01)


@pytest.mark.filterwarnings("ignore:.*its scores call the best")
@pytest.mark.parametrize("surrogate", ["full", "gap"])
def test_a_large_common_level_leaves_the_targets_their_digits(stacks: list[Call], surrogate: str) -> None:
    near = small_net(surrogate=surrogate).fit(X4, Y4)
    small_net(surrogate=surrogate).fit(X4, Y4 + 1e6)
    by_hand = Y4 - Y4.mean(axis=1, keepdims=True) if surrogate == "full" else Y4[:, 1:] - Y4[:, :1]
    if surrogate == "full":
        by_hand = by_hand[:, np.argsort(by_hand.mean(axis=0))]  # the order in which members see the actions
    targets = [np.asarray(call.arguments[1], float) for call in stacks]
    ordered, *fitted_targets = (t[np.argsort(t[:, 0])] for t in (by_hand / near.outcome_scale_, *targets))
    assert len(fitted_targets) == 2
    for target in fitted_targets:
        assert_allclose(target, ordered, atol=1e-4)


@pytest.mark.parametrize("zeta", [0.01, 100.0])
def test_large_zeta_shrinks_towards_uniform(zeta: float) -> None:
    fitted = small_net(zeta=zeta, fit_config=LONG).fit(X, Y)
    distance = np.abs(fitted.predict_proba(NEW) - 0.5).mean()
    assert (distance < 0.1) == (zeta > 1)


def test_prior_and_eta_regularise() -> None:
    """|w|^2 / (2 prior_sd^2 eta n): a tight prior, or a small eta, keeps the weights small."""

    def size(**changes: Any) -> float:
        return sum(float(np.sum(layer["weight"] ** 2)) for layer in small_net(**changes).fit(X, Y).params_)

    plain = size()
    assert size(prior_sd=0.01) < 0.5 * plain
    assert size(eta=1e-4) < 0.5 * plain
    assert_allclose(size(prior_sd=0.1, eta=1.0), size(prior_sd=1.0, eta=0.01), rtol=1e-3)


# -- features ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "shift"), [(100.0, 5000.0), (1e-3, -2.0), (3600.0, 1.7e9), (0.01, 1e6)])
@pytest.mark.parametrize("committee", [2, None])
def test_units_of_the_features_mean_nothing(factor: float, shift: float, committee: int | None) -> None:
    one = small_net(committee=committee, model=Linear()).fit(X, Y)
    other = small_net(committee=committee, model=Linear()).fit(factor * X + shift, Y)
    assert_allclose(one.predict_proba(NEW), other.predict_proba(factor * NEW + shift), atol=2e-3)


def test_units_of_the_features_mean_nothing_to_a_network() -> None:
    one, other = small_net().fit(X, Y), small_net().fit(100.0 * X + 5000.0, Y)
    assert_allclose(one.predict_proba(NEW), other.predict_proba(100.0 * NEW + 5000.0), atol=2e-3)


def user_rows(fitted: GBPLNet, seen: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Rows of `X` behind the row numbers of a member, which may see the rows in another order."""
    scaler = fitted.standardizer_
    back = seen[numbers] * scaler.scale[scaler.columns] + scaler.mean[scaler.columns]
    rows = np.abs(back[:, None] - X[:, scaler.columns]).sum(axis=2).argmin(axis=1)
    assert len(set(rows)) == len(numbers)
    return rows


def test_features_are_standardized_on_training_rows(stacks: list[Call]) -> None:
    fitted = small_net(committee=None).fit(X, Y)
    seen, stack = stacks[0].arguments[0], stacks[0].result
    train = user_rows(fitted, seen, stack.members[0].train)
    assert len(train) == 48
    assert_allclose(fitted.standardizer_.mean, X[train].mean(axis=0))
    assert_allclose(fitted.standardizer_.scale, X[train].std(axis=0))
    assert np.abs(fitted.standardizer_.mean - X.mean(axis=0)).max() > 1e-3


def test_a_committee_standardizes_on_all_its_rows() -> None:
    fitted = small_net().fit(X, Y)  # every row trains some member
    assert_allclose(fitted.standardizer_.mean, X.mean(axis=0))
    assert_allclose(fitted.standardizer_.scale, X.std(axis=0))


# -- members ----------------------------------------------------------------------------------------------


def test_a_committee_of_five_is_the_default(stacks: list[Call]) -> None:
    assert GBPLNet().get_params(deep=False)["committee"] == 5
    fitted = GBPLNet(zeta=1.0, fit_config=FitConfig(max_epochs=1), progress=False).fit(X, Y)
    assert fitted.model_ == MLP()
    members = stacks[0].result.members
    assert len(members) == len(fitted.member_weights_) == len(fitted.history_) == 5
    assert_array_equal(np.sort(np.concatenate([m.validation for m in members])), np.arange(ROWS))
    for member in members:
        assert_array_equal(np.sort(np.concatenate([member.train, member.validation])), np.arange(ROWS))


@pytest.mark.parametrize(("fraction", "held"), [(0.2, 12), (0.5, 30)])
def test_without_a_committee_it_is_one_network(stacks: list[Call], fraction: float, held: int) -> None:
    fitted = small_net(committee=None, validation_fraction=fraction).fit(X, Y)
    seen, stack = stacks[0].arguments[0], stacks[0].result
    (member,) = stack.members
    assert len(member.validation) == held
    assert_array_equal(np.sort(np.concatenate([member.train, member.validation])), np.arange(ROWS))
    assert fitted.member_weights_.tolist() == [1.0]
    assert len(fitted.history_) == 1
    train = user_rows(fitted, seen, member.train)
    standard = ((NEW - X[train].mean(axis=0)) / X[train].std(axis=0))[:, fitted.standardizer_.columns]
    assert_allclose(fitted.predict_proba(NEW), hidden_layer_policy(fitted.params_, 0, standard), atol=1e-5)


def test_without_a_committee_zeta_is_judged_on_the_held_rows(stacks: list[Call]) -> None:
    fitted = small_net(committee=None, zeta=[3.0, 0.3]).fit(X, Y)
    seen, stack = stacks[0].arguments[0], stacks[0].result
    held, train = (user_rows(fitted, seen, rows) for rows in (stack.members[0].validation, stack.members[0].train))
    standard = ((X[held] - X[train].mean(axis=0)) / X[train].std(axis=0))[:, fitted.standardizer_.columns]
    chosen = hidden_layer_policy(fitted.params_, 0, standard).argmax(axis=1)
    assert_allclose(fitted.zeta_path_.welfare.max(), Y[held, chosen].mean())


def test_zeta_may_be_selected_by_the_reduced_loss() -> None:
    fitted = small_net(zeta=[3.0, 0.3, 0.01], zeta_selection="reduced_loss").fit(X, Y)
    path = fitted.zeta_path_
    assert fitted.zeta_ == path.zeta[int(np.argmax(path.penalized_welfare))]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"zeta": [1.0, 0.1], "zeta_selection": "loss"}, r"must be one of welfare, reduced_loss, got 'loss'"),
        ({"zeta_selection": "reduced_loss"}, r"selects one of several zetas, .*give a list such as"),
        ({"zeta": 0.1, "zeta_selection": "reduced_loss"}, r"selects one of several zetas, .*give a list such as"),
        (
            {"zeta": [1.0, 0.1], "zeta_selection": "reduced_loss", "surrogate": Binary(huber=0.5)},
            r"reduced squared loss, got a surrogate with huber=0.5; leave it out",
        ),
    ],
)
def test_a_selection_without_a_meaning_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_net(**settings).fit(X, Y)


def test_history(policy: GBPLNet) -> None:
    assert len(policy.history_) == 10  # five zetas, two folds
    assert {entry["fold"] for entry in policy.history_} == {0, 1}
    assert {entry["zeta"] for entry in policy.history_} == set(policy.zeta_path_.zeta)
    for entry in policy.history_:
        assert len(entry["train_loss"]) == len(entry["validation_loss"]) <= 10
        assert np.isfinite(entry["train_loss"]).all()
        assert entry["best_epoch"] == 1 + np.argmin(entry["validation_loss"])


def test_attributes(policy: GBPLNet) -> None:
    assert policy.n_features_in_ == 3
    assert not hasattr(policy, "feature_names_in_")
    assert policy.actions_.tolist() == ["wait", "treat"]
    assert isinstance(policy.surrogate_, Binary)
    assert policy.model_ == policy.model
    assert_allclose(policy.eta_ * policy.outcome_scale_, 1.0)
    assert policy.params_[0]["weight"].shape == (len(policy.member_weights_), 3, 4)


def test_a_new_fit_replaces_the_old_one() -> None:
    again = small_net().fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y)
    again.fit(X4[:, :2], Y4)
    assert again.n_features_in_ == 2
    assert not hasattr(again, "feature_names_in_")
    assert_same_fit(again, small_net().fit(X4[:, :2], Y4), NEW[:, :2])


# -- surrogates -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "surrogate", "fitted"),
    [
        (2, "auto", Binary()),
        (2, "binary", Binary()),
        (2, "gap", BaselineGap(2)),
        (2, "full", FullVector(2)),
        (2, Binary(huber=0.3), Binary(huber=0.3)),
        (4, "auto", FullVector(4)),
        (4, "gap", BaselineGap(4)),
        (4, "full", FullVector(4)),
        (4, BaselineGap(4, baseline=2), BaselineGap(4, baseline=2)),
        (4, FullVector(4, centered=False), FullVector(4, centered=False)),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:.*its scores call the best")
def test_surrogates(count: int, surrogate: Any, fitted: Any) -> None:
    x, y = outcomes_table(count)
    policy = small_net(surrogate=surrogate).fit(x, y)
    assert policy.surrogate_ == fitted  # in outcome units, as the user gave it
    probability = policy.predict_proba(NEW)
    assert probability.shape == (len(NEW), count)
    assert_allclose(probability.sum(axis=1), 1.0, atol=1e-6)
    scores = policy.decision_function(NEW)
    if isinstance(fitted, FullVector):
        expected = probability
    else:  # 2 delta_a - 1 of the members' mixture
        members = member_policies(policy.model_, fitted, policy.params_, policy.standardizer_.apply(NEW))
        mixture = np.tensordot(policy.member_weights_, members, axes=1)
        expected = 2.0 * np.delete(mixture, getattr(fitted, "baseline", 0), axis=1) - 1.0
        assert_allclose(policy.surrogate_.policy(scores.reshape(expected.shape)), mixture, atol=1e-6)
    assert_allclose(scores, expected[:, 0] if count == 2 and expected.shape[1] == 1 else expected, atol=1e-6)


# -- score ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_score_is_held_out_welfare(policy: GBPLNet, policy4: GBPLNet, count: int, weighted: bool) -> None:
    fitted = policy if count == 2 else policy4
    outcomes = np.random.default_rng(3).normal(size=(len(NEW), count))
    weight = np.random.default_rng(4).uniform(0.0, 2.0, len(NEW))
    weight[::5] = 0.0
    chosen = [fitted.actions_.tolist().index(label) for label in fitted.predict(NEW)]
    gained = [outcomes[i, a] for i, a in enumerate(chosen)]
    score = fitted.score(NEW, outcomes, sample_weight=weight if weighted else None)
    assert isinstance(score, float)
    assert_allclose(score, np.sum(weight * gained) / weight.sum() if weighted else np.mean(gained))


def test_score_takes_one_row(policy: GBPLNet) -> None:
    assert policy.score(NEW[:1], [[1.5, 1.5]]) == 1.5


# -- the same again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("committee", [2, None])
def test_the_same_seed_gives_the_same_policy(committee: int | None) -> None:
    first = small_net(committee=committee, random_state=7).fit(X, Y)
    assert_same_fit(first, small_net(committee=committee, random_state=7).fit(X, Y), NEW)
    before = first.predict_proba(NEW)
    assert_array_equal(first.fit(X, Y).predict_proba(NEW), before)
    other = small_net(committee=committee, random_state=8).fit(X, Y)
    assert not np.array_equal(other.predict_proba(NEW), before)


def test_random_state_may_be_a_generator() -> None:
    one = small_net(random_state=np.random.RandomState(3)).fit(X, Y)
    assert_same_fit(one, small_net(random_state=np.random.RandomState(3)).fit(X, Y), NEW)
    small_net(random_state=None).fit(X, Y)


def test_fit_leaves_numpy_s_own_random_numbers_alone() -> None:
    np.random.seed(0)  # noqa: NPY002
    expected = np.random.uniform()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    small_net().fit(X, Y)
    assert np.random.uniform() == expected  # noqa: NPY002


def test_pickle(policy: GBPLNet, policy4: GBPLNet) -> None:
    for fitted in (policy, policy4):
        again = pickle.loads(pickle.dumps(fitted))
        assert_same_fit(again, fitted, NEW)
        assert again.actions_.tolist() == fitted.actions_.tolist()
        assert str(again.zeta_path_) == str(fitted.zeta_path_)
        assert again.get_params() == fitted.get_params()


def test_fit_leaves_its_input_alone() -> None:
    x, y, weight = X.copy(), Y.copy(), WEIGHT.copy()
    for array in (x, y, weight):
        array.flags.writeable = False
    fitted = small_net(zeta=[1.0, 0.1]).fit(x, y, sample_weight=weight)
    fitted.predict(x)
    fitted.score(x, y, sample_weight=weight)
    assert fitted.zeta == [1.0, 0.1]
    assert_array_equal(x, X)
    assert_array_equal(y, Y)


# -- odd but fine -----------------------------------------------------------------------------------------

WIDE = np.random.default_rng(1).normal(size=(20, 30))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.column_stack([X, np.full(ROWS, 3.7)]), Y),
        (np.ones((ROWS, 2)), Y),
        (np.full((ROWS, 1), 1e12), Y),
        (WIDE, Y[:20]),
        (X.astype(np.float32), Y.astype(np.float32)),
        (np.round(10 * X).astype(int), np.round(10 * Y).astype(int)),
        (X > 0, Y > 0),
        (np.tile(X[:6], (10, 1)), np.tile(Y[:6], (10, 1))),
        (X[:4], Y[:4]),
        (X.tolist(), Y.tolist()),
        (pd.DataFrame(X > 0, columns=list("abc")), pd.DataFrame(Y > 0)),
        (pd.DataFrame(X, columns=list("abc")).convert_dtypes(), pd.DataFrame(Y).convert_dtypes()),
        (pl.DataFrame({"a": X[:, 0] > 0, "b": np.arange(ROWS)}), pl.DataFrame({"u": Y[:, 0] > 0, "v": Y[:, 1]})),
        (np.asfortranarray(X), np.asfortranarray(Y)),
        (X, np.column_stack([Y[:, 0], Y[:, 0] + 5.0])),
    ],
    ids=[
        "a constant feature", "only constant features", "a large constant feature", "fewer rows than features",
        "float32", "integers", "booleans", "duplicated rows", "two rows a fold", "lists", "boolean frames",
        "nullable frames", "polars of all kinds", "columns first in memory", "a constant gap",
    ],
)  # fmt: skip
def test_this_is_fine(x: Any, y: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)  # ten epochs
        fitted = small_net(zeta="auto").fit(x, y)
        probability = fitted.predict_proba(x)
    assert np.isfinite(probability).all()
    assert_allclose(probability.sum(axis=1), 1.0, atol=1e-6)
    assert np.isfinite(fitted.zeta_path_.welfare).all()


def test_a_constant_feature_changes_little() -> None:
    constant = np.column_stack([X, np.full(ROWS, 0.1)])
    fitted = small_net(model=Linear()).fit(constant, Y)
    assert_allclose(fitted.standardizer_.scale[3], 1.0)
    plain = small_net(model=Linear()).fit(X, Y)
    new = np.column_stack([NEW, np.full(len(NEW), 0.1)])
    assert_allclose(fitted.predict_proba(new), plain.predict_proba(NEW), atol=1e-4)


@pytest.mark.parametrize("zeta", [1.0, "auto"])
@pytest.mark.parametrize(
    "outcomes",
    [
        np.zeros((ROWS, 2)),
        np.full((ROWS, 2), 0.1),
        np.full((ROWS, 3), 0.1),
        np.full((ROWS, 4), 1e6 / 3),
        np.repeat(Y[:, :1], 2, axis=1),
        np.repeat(Y[:, :1], 3, axis=1),
    ],
    ids=["zeros", "two equal", "three equal", "large", "equal actions", "three equal actions"],
)
def test_outcomes_that_never_differ_get_a_warning(outcomes: np.ndarray, zeta: Any) -> None:
    with pytest.warns(UserWarning, match="never differ"):
        fitted = small_net(zeta=zeta).fit(X, outcomes)
    assert_allclose(fitted.outcome_scale_, 1.0)
    assert_allclose(fitted.predict_proba(NEW).sum(axis=1), 1.0, atol=1e-6)
    expected = outcomes[:, 0].mean()
    assert_allclose(fitted.zeta_path_.welfare, expected)
    assert_allclose(fitted.score(X, outcomes), expected)


@pytest.mark.parametrize("seed", range(4))
def test_a_gap_that_is_never_worth_it(seed: int) -> None:
    """Every zeta leaves everybody untreated, so that welfare has no variance at all."""
    gap = -1.0 - np.random.default_rng(seed).uniform(size=ROWS)
    fitted = small_net(zeta="auto", fit_config=LONG, random_state=seed).fit(X, outcome_gap=gap)
    assert set(fitted.predict(X)) == {0}
    assert_allclose(fitted.zeta_path_.weight.sum(), 1.0)


def test_actions_that_differ_get_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_net().fit(X, np.column_stack([np.zeros(ROWS), np.ones(ROWS)]))


def test_fit_many_is_fit_one_by_one() -> None:
    """Different sizes, weights, seeds and a network of another kind, together and alone."""

    def policies() -> list[GBPLNet]:
        return [small_net(random_state=1), small_net(random_state=2), small_net(model=Linear(), random_state=3)]

    data = [{"X": X, "y": Y}, {"X": X[:41], "y": Y[:41], "sample_weight": 1.0 + np.arange(41) % 3}, {"X": X, "y": Y}]
    together = fit_many(policies(), data)
    for policy, alone, given in zip(together, policies(), data, strict=True):
        assert_allclose(policy.predict_proba(X), alone.fit(**given).predict_proba(X), atol=2e-4)
        assert_allclose(policy.zeta_path_.welfare, alone.zeta_path_.welfare, atol=1e-3)
    assert np.abs(together[0].predict_proba(X) - together[1].predict_proba(X)).max() > 1e-2


def test_fit_many_says_what_is_wrong() -> None:
    policy = small_net()
    with pytest.raises(ValueError, match="a policy of its own"):
        fit_many([policy, policy], [{"X": X, "y": Y}] * 2)
    with pytest.raises(ValueError, match=r"as in fit; got .*outcomes"):
        fit_many([policy], [{"X": X, "outcomes": Y}])
