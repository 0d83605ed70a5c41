"""GBPLNet with logged feedback: the ways to say it, what is learned from, and what the policy is worth (section 7)."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import StratifiedKFold
from support.calls import record_calls
from support.checks import assert_same_fit
from support.learned import held_out_value
from support.policies import small_logged_net
from support.samples import drawn_actions

import gbpl.nuisance.plan
import gbpl.path.held_out
import gbpl.path.path
from gbpl import (
    MLP,
    Binary,
    EstimatedPropensityWarning,
    FitConfig,
    FullVector,
    GBPLNet,
    Linear,
    LoggedFeedback,
    OverlapWarning,
    PosteriorError,
    Surrogate,
    fit_many,
    policy_value,
)
from gbpl.datasets import BinaryDesign, LoggedDesign
from gbpl.feedback.pseudo_outcomes import doubly_robust
from gbpl.path.held_out import hold_out

ROWS = 240
CHANCES = {2: (0.25, 0.75), 3: (0.25, 0.25, 0.5)}  # a randomized trial; exact in binary, so that ways to say it agree
LABELS = {2: ["control", "treated"], 3: ["call", "letter", "visit"]}


def means(x: np.ndarray, count: int) -> np.ndarray:
    """Action 1 is good where the first feature is positive, action 2 where it is negative."""
    return np.column_stack([np.zeros(len(x)), x[:, 0], -x[:, 0]])[:, :count]


def log(count: int = 2, *, rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outcome and label of the action taken."""
    rng = np.random.default_rng([count, seed])
    x = rng.normal(size=(rows, 3))
    taken = rng.permutation(np.repeat(np.arange(count), np.round(np.array(CHANCES[count]) * rows).astype(int)))
    y = means(x, count)[np.arange(rows), taken] + 0.5 * x[:, 1] + 0.3 * rng.normal(size=rows)
    return x, y, np.array(LABELS[count])[taken]


def chances(count: int) -> dict[str, float]:
    return dict(zip(LABELS[count], CHANCES[count], strict=True))


X, Y, A = log(2)
X3, Y3, A3 = log(3)
NEW, NEW_Y, NEW_A = log(2, seed=1)
NEW3, NEW_Y3, NEW_A3 = log(3, seed=1)


@pytest.fixture(scope="module")
def policy() -> GBPLNet:
    """Two actions, everything averaged; no test changes it."""
    return small_logged_net(zeta="auto").fit(X, Y, action=A, propensity=chances(2))


@pytest.fixture(scope="module")
def policy3() -> GBPLNet:
    """Three actions, everything averaged; no test changes it."""
    return small_logged_net(zeta="auto").fit(X3, Y3, action=A3, propensity=chances(3))


def columns(table: np.ndarray) -> dict[str, np.ndarray]:
    return {name: table[:, number] for number, name in enumerate("abc")}


# -- ways to say it ---------------------------------------------------------------------------------------


def propensities(count: int, action: np.ndarray) -> dict[str, Any]:
    table = np.tile(CHANCES[count], (ROWS, 1))
    taken = np.array([chances(count)[label] for label in action])
    ways: dict[str, Any] = {
        "table": table,
        "frame": pd.DataFrame(table, columns=LABELS[count])[LABELS[count][::-1]],
        "a row each": taken,
        "a column": taken[:, None],
        "list": taken.tolist(),
        "series": pd.Series(taken),
        "mapping": dict(reversed(chances(count).items())),
    }
    return ways | ({"number": CHANCES[2][1]} if count == 2 else {})


@pytest.mark.parametrize("count", [2, 3])
def test_propensity_said_in_any_way(policy: GBPLNet, policy3: GBPLNet, count: int) -> None:
    x, y, a = log(count)
    for way, propensity in propensities(count, a).items():
        fitted = small_logged_net(zeta="auto").fit(x, y, action=a, propensity=propensity)
        assert_same_fit(fitted, policy if count == 2 else policy3, NEW)
        assert not fitted.overlap_.estimated, way


@pytest.mark.filterwarnings("ignore::gbpl.checks.suspicion.SuspectDataWarning")  # wrong propensities on purpose
def test_one_number_for_each_of_three_actions() -> None:
    one = small_logged_net().fit(X3, Y3, action=A3, propensity=1 / 3)
    other = small_logged_net().fit(X3, Y3, action=A3, propensity=dict.fromkeys(LABELS[3], 1 / 3))
    assert_same_fit(one, other, NEW)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_data_said_in_any_way(policy: GBPLNet, frame: Callable[[dict], Any]) -> None:
    assert_same_fit(small_logged_net(zeta="auto").fit(LoggedFeedback.of(X, Y, A, propensity=chances(2))), policy, NEW)
    taken = np.array([chances(2)[label] for label in A])
    rest = np.full(ROWS, CHANCES[2][0])
    table = frame({**columns(X), "outcome": Y, "did": A, "e": taken, "e0": rest, "e1": 1.0 - rest})
    names: dict[str, Any] = {"outcome": "outcome", "action": "did", "features": ["a", "b", "c"]}
    no_table = frame({**columns(X), "outcome": Y, "did": A, "e": taken})
    for logged in (
        LoggedFeedback.from_frame(table, **names, propensity="e"),
        LoggedFeedback.from_frame(table, **names, propensity=["e0", "e1"]),
        LoggedFeedback.from_frame(table, **names, propensity=chances(2)),
        LoggedFeedback.from_frame(no_table, outcome="outcome", action="did", propensity="e"),
    ):
        fitted = small_logged_net(zeta="auto").fit(logged)
        assert fitted.feature_names_in_.tolist() == ["a", "b", "c"]
        assert_array_equal(fitted.predict_proba(frame(columns(NEW))), policy.predict_proba(NEW))
    series = pd.Series if frame is pd.DataFrame else pl.Series
    fitted = small_logged_net(zeta="auto").fit(frame(columns(X)), series(Y), action=series(A), propensity=chances(2))
    assert_array_equal(fitted.predict_proba(frame(columns(NEW))), policy.predict_proba(NEW))
    assert_same_fit(
        small_logged_net(zeta="auto").fit(X.tolist(), Y.tolist(), action=A.tolist(), propensity=0.75), policy, NEW
    )
    assert_same_fit(small_logged_net(zeta="auto").fit(X, Y[:, None], action=A[:, None], propensity=0.75), policy, NEW)


def test_a_logged_feedback_goes_alone() -> None:
    logged = LoggedFeedback.of(X, Y, A, propensity=0.75)
    for extra in ({"y": Y}, {"action": A}, {"propensity": 0.75}, {"cost": {"treated": 1.0}}, {"controls": X}):
        with pytest.raises(ValueError, match="give it alone"):
            small_logged_net().fit(logged, **extra)
    with pytest.raises(ValueError, match="treated"):
        small_logged_net(actions=["treated", "control"]).fit(logged)
    for name in ("propensity", "controls"):
        with pytest.raises(ValueError, match=f"{name} is given without action"):
            small_logged_net().fit(X, np.column_stack([Y, Y]), **{name: np.full((ROWS, 1), 0.5)})


@pytest.mark.parametrize(
    "labels",
    [
        ["wait", "treat"],
        [20, 10],
        [0.5, 1.5],
        [False, True],
        ["none", 1],
        [True, 2],
        [("drug", 1), ("drug", 2)],
        np.array(["b", "a"]),
        pd.Index(["wait", "treat"]),
    ],
    ids=lambda labels: f"{type(labels).__name__} {list(labels)}",
)
def test_labels_come_back_as_they_went_in(policy: GBPLNet, labels: Any) -> None:
    names = dict(zip(LABELS[2], list(labels), strict=True))
    did = [names[label] for label in A]
    fitted = small_logged_net(zeta="auto", actions=labels).fit(X, Y, action=did, propensity=0.75)
    assert_same_fit(fitted, policy, NEW, same_labels=False)
    predictions, expected = fitted.predict(NEW).tolist(), [names[label] for label in policy.predict(NEW)]
    assert predictions == expected
    assert len(set(predictions)) == 2
    assert [isinstance(label, str) for label in predictions] == [isinstance(label, str) for label in expected]
    assert [isinstance(label, bool) for label in predictions] == [
        isinstance(label, bool | np.bool_) for label in expected
    ]
    plain = small_logged_net().fit(X, Y, action=did, propensity=dict(zip(labels, CHANCES[2], strict=True)))
    assert set(plain.actions_.tolist()) == set(list(labels))
    assert set(plain.predict(NEW).tolist()) == set(list(labels))


def test_actions_are_sorted_unless_named() -> None:
    assert small_logged_net().fit(X3, Y3, action=A3, propensity=chances(3)).actions_.tolist() == sorted(LABELS[3])
    order = ["visit", "call", "letter"]
    fitted = small_logged_net(actions=order).fit(X3, Y3, action=A3, propensity=chances(3))
    assert fitted.actions_.tolist() == order
    assert_allclose(fitted.overlap_.smallest_propensity, [chances(3)[label] for label in order])
    clear = np.abs(NEW3[:, 0]) > 0.7
    assert_array_equal(fitted.predict(NEW3[clear]), np.where(NEW3[clear, 0] > 0, "letter", "visit"))


# -- what is learned from ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_it_decides_well(policy: GBPLNet, policy3: GBPLNet, count: int) -> None:
    fitted, new = (policy, NEW) if count == 2 else (policy3, NEW3)
    clear = np.abs(new[:, 0]) > 0.7
    best = np.array(LABELS[count])[means(new, count).argmax(axis=1)]
    assert np.mean(fitted.predict(new[clear]) == best[clear]) > 0.97


@pytest.mark.parametrize("construction", ["dr", "ipw", "centered_ipw", "dm"])
def test_pseudo_outcomes_restated(policy3: GBPLNet, construction: str) -> None:
    fitted = policy3
    if construction != "dr":
        fitted = small_logged_net(pseudo_outcome=construction, outcome_model=LinearRegression(), zeta=[2.0, 0.2])
        fitted.fit(X3, Y3, action=A3, propensity=chances(3))
        assert fitted.zeta_path_.zeta.tolist() == [2.0, 0.2]  # one entry a zeta: there is one table
    nuisances = fitted._training.nuisances
    by_hand = np.zeros((ROWS, 3))
    for i, label in enumerate(A3):
        for a, name in enumerate(LABELS[3]):
            center = 0.0 if construction == "ipw" else nuisances.means[i, a if construction in ("dr", "dm") else 0]
            seen = construction != "dm" and label == name
            by_hand[i, a] = center + (Y3[i] - center) / chances(3)[name] * seen
    assert fitted.pseudo_outcomes_.shape == (ROWS, 3)
    assert_allclose(fitted.pseudo_outcomes_, by_hand, rtol=1e-12, atol=1e-12)
    if construction == "dr":
        taken = np.array([LABELS[3].index(label) for label in A3])
        formula = doubly_robust(Y3, taken, np.array(CHANCES[3])[taken], nuisances.outcome_mean)
        assert_allclose(fitted.pseudo_outcomes_, formula, rtol=1e-12)
        assert_allclose(nuisances.outcome_mean.mean(axis=0), means(X3, 3).mean(axis=0), atol=0.3)
    else:
        assert (nuisances.outcome_mean is None) == (construction != "dm")


def test_the_table_can_be_had_and_given_back(policy3: GBPLNet) -> None:
    """Section 7 ends in a table; from there on it is full feedback (sections 4 and 5)."""
    again = small_logged_net(zeta="auto", actions=LABELS[3]).fit(X3, policy3.pseudo_outcomes_)
    truth = means(NEW3, 3)
    ours, theirs = (truth[np.arange(ROWS), np.argmax(p.predict_proba(NEW3), axis=1)].mean() for p in (policy3, again))
    best = truth.max(axis=1).mean()
    assert theirs > 0.9 * best
    assert abs(ours - theirs) < 0.05 * best
    assert not hasattr(again, "overlap_")
    assert not hasattr(again, "pseudo_outcomes_")


def scores_from_elsewhere() -> np.ndarray:
    """Doubly robust scores as EconML or DoubleML make them: folds, a regression an arm, a classifier."""
    table = np.zeros((ROWS, 2))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(X, A):
        chance = LogisticRegression().fit(X[train], A[train]).predict_proba(X[test])
        for a, name in enumerate(LABELS[2]):
            arm = train[A[train] == name]
            mean = LinearRegression().fit(X[arm], Y[arm]).predict(X[test])
            table[test, a] = mean + (A[test] == name) * (Y[test] - mean) / chance[:, a]
    return table


def test_a_table_of_scores_from_elsewhere() -> None:
    scores = scores_from_elsewhere()
    clear = np.abs(NEW[:, 0]) > 0.7
    for fitted in (
        small_logged_net(actions=LABELS[2]).fit(X, scores),
        small_logged_net().fit(X, pd.DataFrame(scores, columns=LABELS[2])),
        small_logged_net(actions=LABELS[2]).fit(X, outcome_gap=scores[:, 1] - scores[:, 0]),  # DoubleML's psi_b
    ):
        expected = np.where(NEW[clear, 0] > 0, "treated", "control")
        assert np.mean(fitted.predict(NEW[clear]) == expected) > 0.97
        assert np.isfinite(fitted.cross_fitted_value().se)


@pytest.mark.filterwarnings("ignore:.*predicts the outcome far better")  # as it should here
def test_controls_are_for_the_models_only() -> None:
    """Models of outcomes and propensities speak as if the controls were features; the policy never sees them."""
    extra = np.random.default_rng(5).normal(size=(ROWS, 1))
    shifted = Y + 5.0 * extra[:, 0]
    given = {"outcome_model": LinearRegression(), "correction": 1.0}
    fitted = small_logged_net(**given).fit(X, shifted, action=A, propensity=LogisticRegression(), controls=extra)
    assert fitted.n_features_in_ == 3
    assert_array_equal(fitted.predict(NEW), fitted.actions_[np.argmax(fitted.predict_proba(NEW), axis=1)])
    folds = [member.validation for member in fitted._training.fit.members]
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    seen = LoggedFeedback.of(np.hstack([X, extra]), shifted, A, propensity=LogisticRegression())
    whole, nuisances = fitted.cross_fit_settings(seed).run(seen, outer=folds), fitted._training.nuisances
    # Rows are dealt by what the policy sees, so the parts differ where the controls are features: nearly the same.
    assert np.std(nuisances.outcome_mean - whole.outcome_mean) < 0.1 * np.std(whole.outcome_mean)
    assert np.corrcoef(nuisances.outcome_mean[:, 0], extra[:, 0])[0, 1] > 0.9
    blind = small_logged_net(**given).fit(X, shifted, action=A, propensity=LogisticRegression())
    assert fitted.pseudo_outcomes_.std() < 0.7 * blind.pseudo_outcomes_.std()


# -- costs ------------------------------------------------------------------------------------------------


def test_nobody_gets_what_costs_too_much() -> None:
    free = small_logged_net().fit(X3, Y3, action=A3, propensity=chances(3))
    assert {"letter", "visit"} <= set(free.predict(NEW3))
    for cost in ({"letter": 50.0}, [0.0, 50.0, 0.0], np.tile([0.0, 50.0, 0.0], (ROWS, 1))):
        dear = small_logged_net().fit(X3, Y3, action=A3, propensity=chances(3), cost=cost)
        assert "letter" not in set(dear.predict(NEW3))


def test_a_cost_is_taken_off_the_outcome_of_its_action() -> None:
    """With arms regressed apart, cost c of an action is the outcome y - c 1[A = a]."""
    price, treated = 0.4, A == "treated"
    given = {"outcome_model": LinearRegression(), "zeta": "auto"}
    priced = small_logged_net(**given).fit(X, Y, action=A, propensity=0.75, cost={"treated": price})
    netted = small_logged_net(**given).fit(X, Y - price * treated, action=A, propensity=0.75)
    free = small_logged_net(**given).fit(X, Y, action=A, propensity=0.75)
    assert_allclose(priced.pseudo_outcomes_, netted.pseudo_outcomes_, rtol=1e-9, atol=1e-9)
    assert_allclose(priced.pseudo_outcomes_, free.pseudo_outcomes_ - [0.0, price], rtol=1e-9, atol=1e-9)
    assert_allclose(priced.predict_proba(NEW), netted.predict_proba(NEW), atol=1e-4)
    for estimator in ("dr", "dm"):  # the others weight an outcome, but never a cost, which is known
        one, other = (p.cross_fitted_value(estimator=estimator) for p in (priced, netted))
        assert_allclose(one.estimate, other.estimate, atol=1e-6)
    gain = priced.cross_fitted_value(baseline="logging")
    value = priced.cross_fitted_value()
    assert_allclose(gain.estimate, value.estimate - np.mean(Y - price * treated))  # the log paid too


def test_a_cost_of_full_feedback_is_taken_off_its_column() -> None:
    table = means(X3, 3) + 0.3 * np.random.default_rng(0).normal(size=(ROWS, 3))
    cost = [0.0, 0.3, 0.1]
    priced = small_logged_net(actions=LABELS[3]).fit(X3, table, cost={"letter": 0.3, "visit": 0.1})
    netted = small_logged_net(actions=LABELS[3]).fit(X3, table - cost)
    assert_same_fit(priced, netted, NEW3)
    truth = means(NEW3, 3)
    assert_allclose(
        priced.value(NEW3, truth, cost=dict(zip(LABELS[3], cost, strict=True))).estimate,
        netted.value(NEW3, truth - cost).estimate,
    )


# -- folds and rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [True, False])
def test_folds(monkeypatch: pytest.MonkeyPatch, grouped: bool) -> None:
    """A policy's table comes from models that saw nothing of its fold, and groups stay together throughout."""
    groups = np.arange(ROWS)
    if grouped:  # a control and three treated each, so that folds of equal size are possible
        for name in LABELS[2]:
            mine = np.flatnonzero(name == A)
            groups[mine] = np.random.default_rng(len(mine)).permutation(len(mine)) % 60
    label = [f"family {group}" for group in groups]
    stacks = [record_calls(monkeypatch, "fit_stacks", module) for module in (gbpl.nuisance.plan, gbpl.path.path)]
    small_logged_net().fit(X, Y, action=A, propensity=0.75, groups=label if grouped else None)
    (models,), (policies,) = (call.result for (call,) in stacks)
    rows = np.arange(ROWS)
    folds = [member.validation for member in policies.members[:2]]
    assert_array_equal(np.sort(np.concatenate(folds)), rows)
    for member in policies.members:
        assert_array_equal(np.sort(np.concatenate([member.train, member.validation])), rows)
        assert not set(groups[member.train]) & set(groups[member.validation])
    held_back = []
    for member in models.members:
        held = np.setdiff1d(rows, np.concatenate([member.train, member.validation]))
        held_back.append(held.tolist())
        assert not set(groups[member.train]) & set(groups[member.validation])
        assert not set(groups[held]) & set(groups[np.concatenate([member.train, member.validation])])
    for fold in folds:
        assert held_back.count(np.sort(fold).tolist()) == 2  # nuisance_folds models, none of which saw the fold
    for fold in folds:
        assert np.mean(A[fold] == "treated") == pytest.approx(0.75, abs=0.05)


def test_each_fold_learns_from_its_own_table(policy: GBPLNet) -> None:
    training = policy._training
    tables = {
        (correction, fold): training.nuisances.pseudo_outcomes("dr", correction=correction, fold=fold)
        for correction in (1.0, 0.0)
        for fold in (0, 1)
    }
    numbers = {key: number for number, key in enumerate(tables)}
    targets = {number: training.fit.target[number * ROWS : (number + 1) * ROWS, 0] for number in numbers.values()}
    for key, table in tables.items():
        gap = (table[:, 1] - table[:, 0]) / policy.outcome_scale_
        assert_allclose(targets[numbers[key]], gap, rtol=1e-4, atol=1e-4)
    for member, problem in zip(training.fit.members, training.fit.problems(), strict=True):
        assert member.table in (member.fold, 2 + member.fold)
        assert_array_equal(problem.target[:, 0], targets[member.table][member.train])
        assert_array_equal(problem.x, training.fit.x[member.train])


@pytest.mark.parametrize("count", [2, 3])
def test_weight_zero_removes_a_row(count: int) -> None:
    x, y, a = log(count, rows=300)
    rng = np.random.default_rng(0)
    parts: dict[str, Any] = {
        "X": x,
        "y": y,
        "action": a,
        "propensity": np.array([chances(count)[label] for label in a]),
        "cost": rng.uniform(0.0, 0.2, (300, count)),
        "controls": rng.normal(size=(300, 1)),
        "sample_weight": rng.uniform(0.5, 2.0, 300),
    }
    kept = np.arange(300) % 5 > 0
    model = LinearRegression() if count == 2 else MLP(hidden=(16,))
    if count == 3:
        del parts["controls"]
    weighted = small_logged_net(outcome_model=model)
    weighted.fit(**{**parts, "sample_weight": np.where(kept, parts["sample_weight"], 0.0)})
    removed = small_logged_net(outcome_model=model).fit(**{name: part[kept] for name, part in parts.items()})
    assert_same_fit(weighted, removed, NEW)
    assert_array_equal(weighted.pseudo_outcomes_, removed.pseudo_outcomes_)
    for baseline in (None, "logging", LABELS[count][0], removed):
        one, other = (p.cross_fitted_value(baseline=baseline) for p in (weighted, removed))
        assert (one.estimate, one.se) == (other.estimate, other.se)
    assert weighted.overlap_.to_dict() == removed.overlap_.to_dict()


def test_an_action_of_weight_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'letter'.*sample_weight 0"):
        small_logged_net().fit(
            X3, Y3, action=A3, propensity=chances(3), sample_weight=np.where(A3 == "letter", 0.0, 1.0)
        )


@pytest.mark.parametrize("construction", ["dr", "ipw"])
def test_weights_decide_where_rows_disagree(construction: str) -> None:
    """Half of the rows like the treatment, half do not; who counts more gets their way."""
    likes = np.arange(ROWS) % 2 == 0
    same, y = np.ones((ROWS, 3)), np.where(A == "treated", np.where(likes, 1.0, -1.0), 0.0)
    for favoured, label in ((likes, "treated"), (~likes, "control")):
        weight = np.where(favoured, 5.0, 1.0)
        fitted = small_logged_net(pseudo_outcome=construction)
        fitted.fit(same, y, action=A, propensity=0.75, sample_weight=weight)
        assert fitted.predict(same[:1]).tolist() == [label]


def test_the_same_random_state_gives_the_same_policy(policy: GBPLNet) -> None:
    assert_same_fit(small_logged_net(zeta="auto").fit(X, Y, action=A, propensity=0.75), policy, NEW)
    other = small_logged_net(zeta="auto", random_state=1).fit(X, Y, action=A, propensity=0.75)
    assert not np.array_equal(other.predict_proba(NEW), policy.predict_proba(NEW))
    assert not np.array_equal(other.pseudo_outcomes_, policy.pseudo_outcomes_)


def test_fit_leaves_its_input_alone() -> None:
    parts = {"X": X.copy(), "y": Y.copy(), "propensity": np.tile(CHANCES[2], (ROWS, 1)), "cost": np.ones((ROWS, 2))}
    before = {name: part.copy() for name, part in parts.items()}
    for part in parts.values():
        part.flags.writeable = False
    small_logged_net().fit(**parts, action=A)
    for name, part in parts.items():
        assert_array_equal(part, before[name])


# -- what it converges to ---------------------------------------------------------------------------------

CELLS = np.eye(4)
LARGE = 20_000


def cells(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Four kinds of rows with means and propensities of their own: kind, action, outcome, means, propensities."""
    rng = np.random.default_rng(count)
    mean, chance = rng.uniform(-1.0, 1.0, (4, count)), rng.uniform(0.3, 1.0, (4, count))
    chance /= chance.sum(axis=1, keepdims=True)
    kind = rng.integers(0, 4, LARGE)
    action = drawn_actions(rng, chance[kind])
    return kind, action, mean[kind, action] + 0.1 * rng.normal(size=LARGE), mean, chance


ROUTES: dict[str, dict[str, Any]] = {
    "ipw": {"pseudo_outcome": "ipw"},
    "centered ipw": {"pseudo_outcome": "centered_ipw", "outcome_model": LinearRegression()},
    "dr": {"outcome_model": LinearRegression(), "correction": 1.0},
    "dr, wrong outcomes": {"outcome_model": DummyRegressor(strategy="constant", constant=0.5), "correction": 1.0},
    "dr, wrong propensities": {"outcome_model": LinearRegression(), "correction": 1.0},
    "ipw, wrong propensities": {"pseudo_outcome": "ipw"},
}


@pytest.mark.filterwarnings("ignore::gbpl.checks.suspicion.SuspectDataWarning")  # wrong propensities on purpose
@pytest.mark.parametrize(
    ("count", "route"),
    [(2, route) for route in ROUTES] + [(5, route) for route in ("ipw", "dr", "dr, wrong propensities")],
)
def test_population_target(count: int, route: str) -> None:
    """Proposition on the population targets: the policy of the conditional means if either model is right.

    A linear score of four indicators, unsquashed, can be any function of the kind of row, so what is left is the
    noise of its mean pseudo-outcomes: sd / sqrt(n) a kind, over zeta, and halved for two actions (delta = (1 + f)/2).
    """
    zeta = 1.5
    kind, action, y, mean, chance = cells(count)
    surrogate: Surrogate = Binary(squash=False) if count == 2 else FullVector(count, squash=False)
    exact = FitConfig(batch_size=LARGE, max_epochs=120, patience=120, learning_rate=0.03)
    given = {"zeta": zeta, "surrogate": surrogate, "model": Linear(), "fit_config": exact}
    fitted = small_logged_net(**given, **ROUTES[route])
    wrong = "wrong propensities" in route
    fitted.fit(CELLS[kind], y, action=action, propensity=1 / count if wrong else chance[kind])
    target = np.asarray(surrogate.target(fitted.pseudo_outcomes_), float)
    spread = np.array([target[kind == k].std(axis=0) / np.sqrt(np.sum(kind == k)) for k in range(4)])
    noise = spread.mean() / zeta / (2 if count == 2 else 1)
    off = np.abs(fitted.predict_proba(CELLS) - np.asarray(surrogate.population_policy(mean, zeta))).mean()
    if route == "ipw, wrong propensities":
        assert off > 5 * noise
    else:
        assert off < 3 * noise + 0.001  # a mean of about sqrt(2 / pi) of them; the rest is the optimizer's


@pytest.mark.slow
@pytest.mark.parametrize("construction", ["ipw", "dr"])
@pytest.mark.parametrize("count", [2, 5])
def test_population_target_of_a_network(count: int, construction: str) -> None:
    """The same with the squashed network of the defaults and one continuous feature."""
    rng = np.random.default_rng(count)
    x = rng.uniform(-2.0, 2.0, (LARGE, 1))
    waves = np.linspace(0.5, 2.0, count) * x + np.arange(count)
    mean, index = np.sin(waves), np.cos(1.3 * waves)
    chance = np.exp(index) / np.exp(index).sum(axis=1, keepdims=True)
    action = (rng.random((LARGE, 1)) >= chance.cumsum(axis=1)[:, :-1]).sum(axis=1)
    y = mean[np.arange(LARGE), action] + 0.1 * rng.normal(size=LARGE)
    zeta = {2: 2.0, 5: 6.0}[count]  # the target is inside the simplex: a softmax comes near its edge but slowly
    given = {"pseudo_outcome": construction, "correction": 1.0 if construction == "dr" else "auto"}
    fitted = GBPLNet(zeta=zeta, committee=3, random_state=0, device="cpu", progress=False, **given)
    fitted.fit(x, y, action=action, propensity=chance)
    expected = np.asarray(fitted.surrogate_.population_policy(mean, zeta))
    off = np.abs(fitted.predict_proba(x) - expected).mean()
    assert off < {"ipw": 0.02, "dr": 0.01}[construction]  # the policy itself is 0.09 to 0.16 away from uniform


# -- the path ---------------------------------------------------------------------------------------------


def test_both_corrections_are_on_the_path(policy: GBPLNet) -> None:
    path = policy.zeta_path_
    assert path.correction.tolist() == [1.0] * 5 + [0.0] * 2
    assert_allclose(path.zeta[:5] / path.zeta[0], [1.0, 0.3, 0.1, 0.01, 0.0001])  # in units of the table's scale
    model = policy._training.nuisances.outcome_mean
    typical = np.sqrt(np.mean((model[:, 1] - model[:, 0]) ** 2))
    assert_allclose(path.zeta[5:], np.array([3.0, 0.1]) * typical)
    assert_allclose(path.zeta[0], 10.0 * policy.outcome_scale_)
    assert_allclose(path.weight.sum(), 1.0)
    assert {"zeta", "correction"} <= set(path.to_dict())
    assert len(policy.history_) == 14
    assert [entry["correction"] for entry in policy.history_] == [1.0] * 10 + [0.0] * 4


def test_the_doubly_robust_table_judges_every_entry(policy: GBPLNet) -> None:
    """Also those fitted to the outcome model alone."""
    fitted = small_logged_net(zeta=[2.0]).fit(X, Y, action=A, propensity=0.75)
    assert fitted.zeta_path_.correction.tolist() == [1.0, 0.0]
    training = fitted._training
    assert_allclose(training.feedback.outcomes, training.nuisances.pseudo_outcomes("dr"))
    assert_allclose(fitted.outcome_scale_, np.sqrt(np.mean(np.diff(fitted.pseudo_outcomes_, axis=1) ** 2)))
    for column in (policy.zeta_path_.welfare, fitted.zeta_path_.welfare):
        best = policy.pseudo_outcomes_.max(axis=1).mean()
        assert (column < best).all()


@pytest.mark.parametrize("correction", [1.0, 0.5, 0.0])
def test_a_correction_of_the_user(correction: float) -> None:
    fitted = small_logged_net(correction=correction).fit(X, Y, action=A, propensity=0.75)
    assert fitted.zeta_path_.correction.tolist() == [correction]
    nuisances = fitted._training.nuisances
    robust, model = nuisances.pseudo_outcomes("dr"), nuisances.outcome_mean
    assert_allclose(fitted.pseudo_outcomes_, model + correction * (robust - model))


def test_a_list_of_zetas_is_selected_from(policy: GBPLNet) -> None:
    fitted = small_logged_net(zeta=[2.0, 0.2]).fit(X, Y, action=A, propensity=0.75)
    path = fitted.zeta_path_
    assert path.zeta.tolist() == [2.0, 0.2, 2.0, 0.2]
    assert path.correction.tolist() == [1.0, 1.0, 0.0, 0.0]
    best = path.zeta[np.argmax(path.welfare)]
    assert fitted.zeta_ == best
    assert_allclose(path.weight[path.zeta == best].sum(), 1.0)
    assert_array_equal(path.weight[path.zeta != best], 0.0)
    assert fitted.zeta_path_.to_dict().keys() == policy.zeta_path_.to_dict().keys()


@pytest.mark.parametrize("construction", ["ipw", "centered_ipw", "dm"])
def test_other_tables_have_no_correction(construction: str) -> None:
    with pytest.raises(ValueError, match="pseudo_outcome='dr'"):
        small_logged_net(pseudo_outcome=construction, correction=0.5).fit(X, Y, action=A, propensity=0.75)


# -- overlap and propensities -----------------------------------------------------------------------------


def overlap_fit(strength: float, clip: float) -> GBPLNet:
    seen = LoggedDesign(BinaryDesign("DGP2"), strength=strength, clip=clip).sample(1000, seed=0)
    model = small_logged_net(model=Linear(), outcome_model=LinearRegression())
    return model.fit(seen.x, seen.outcome, action=seen.action, propensity=seen.propensity)


def test_weak_overlap_is_told() -> None:
    with pytest.warns(OverlapWarning, match="weak overlap") as warned:
        weak = overlap_fit(2.5, 0.0)
    assert warned[0].filename == __file__
    assert weak.overlap_.weak
    assert weak.overlap_.actions.tolist() == [0, 1]
    strong = overlap_fit(1.0, 0.05)  # a warning here would be an error
    assert not strong.overlap_.weak
    assert weak.overlap_.effective_size < strong.overlap_.effective_size
    rule = strong._training.fit.out_of_fold
    for row in strong.overlap_.welfare_by_clip:
        log = strong._training.nuisances
        value = policy_value(rule, log.feedback, nuisances=replace(log, clip=row.clip))
        assert_allclose((row.welfare, row.se), (value.estimate, value.se))
    assert [row.clip for row in strong.overlap_.welfare_by_clip] == sorted({0.001, 0.01, 0.02, 0.05, 0.1})


def test_clip(policy: GBPLNet) -> None:
    """clip_propensity with two actions: max(clip, min(1 - clip, e_1)), and its complement."""
    assert policy.overlap_.clip == 0.01
    assert policy.overlap_.clipped_fraction == 0.0
    with pytest.warns(OverlapWarning, match="below the clip of 0.4"):
        fitted = small_logged_net(clip=0.4, pseudo_outcome="ipw").fit(X, Y, action=A, propensity=0.75)
    by_hand = np.where(A[:, None] == LABELS[2], Y[:, None] / [0.4, 0.6], 0.0)
    assert_allclose(fitted.pseudo_outcomes_, by_hand)


def test_without_a_committee() -> None:
    fitted = small_logged_net(committee=None, outcome_model=LinearRegression()).fit(X, Y, action=A, propensity=0.75)
    assert fitted.overlap_.welfare_by_clip == ()
    assert fitted.pseudo_outcomes_.shape == (ROWS, 2)
    with pytest.raises(ValueError, match="use value on new rows"):
        fitted.cross_fitted_value()
    assert fitted.value(NEW, NEW_Y, action=NEW_A, propensity=0.75).estimate > 0.2


def test_an_estimated_propensity_is_told() -> None:
    fitted = small_logged_net()
    known = LoggedFeedback.of(X, Y, A)
    for ask in (
        lambda: fitted.fit(X, Y, action=A),
        lambda: fitted.value(NEW, NEW_Y, action=NEW_A),
        lambda: policy_value("treated", known, estimator="snipw"),
    ):
        with pytest.warns(EstimatedPropensityWarning, match="give their probabilities") as warned:
            ask()
        about = [warning for warning in warned if warning.category is EstimatedPropensityWarning]
        assert [warning.filename for warning in about] == [__file__]
    assert fitted.overlap_.estimated
    estimate = fitted._training.nuisances.propensity
    assert_allclose(estimate.mean(axis=0), CHANCES[2], atol=0.05)
    assert_allclose(estimate.sum(axis=1), 1.0)


def test_score_tells_its_caller() -> None:
    fitted = small_logged_net(outcome_model=LinearRegression()).fit(X, Y, action=A, propensity=0.75)
    with pytest.warns(EstimatedPropensityWarning) as warned:
        fitted.score(NEW, NEW_Y, action=NEW_A)
    assert [warning.filename for warning in warned] == [__file__]


def test_a_classifier_of_the_user_is_not_told() -> None:
    logged = small_logged_net(pseudo_outcome="ipw").fit(X, Y, action=A, propensity=LogisticRegression())
    assert logged.overlap_.estimated
    assert not logged.overlap_.weak


# -- worth ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["deterministic", "randomized"])
@pytest.mark.parametrize("estimator", ["dr", "ipw", "snipw", "dm"])
def test_value_on_new_rows(policy3: GBPLNet, estimator: str, rule: str) -> None:
    value = policy3.value(NEW3, NEW_Y3, action=NEW_A3, propensity=chances(3), estimator=estimator, rule=rule)
    decided = policy3.predict_proba(NEW3).astype(float)
    if rule == "deterministic":
        decided = np.eye(3)[decided.argmax(axis=1)]
    truth = np.mean(np.sum(decided * (means(NEW3, 3) + 0.5 * NEW3[:, 1:2]), axis=1))
    assert value.estimator == estimator
    assert estimator == "dm" or abs(value.estimate - truth) < 4 * value.se  # the bias of a model is in no error
    taken = np.array([LABELS[3].index(label) for label in NEW_A3])
    ratio = decided[np.arange(ROWS), taken] / np.array(CHANCES[3])[taken]
    if estimator == "ipw":
        assert_allclose(value.estimate, np.mean(ratio * NEW_Y3))
        assert_allclose(value.se, np.std(ratio * NEW_Y3, ddof=1) / np.sqrt(ROWS))
    if estimator == "snipw":
        assert_allclose(value.estimate, np.sum(ratio * NEW_Y3) / np.sum(ratio))
    if estimator in ("dr", "dm"):
        nuisances = policy3.cross_fit_settings(0).run(LoggedFeedback.of(NEW3, NEW_Y3, NEW_A3, propensity=chances(3)))
        model = np.sum(decided * nuisances.outcome_mean, axis=1)
        residual = NEW_Y3 - nuisances.outcome_mean[np.arange(ROWS), taken]
        assert_allclose(value.estimate, np.mean(model + (estimator == "dr") * ratio * residual))
        assert_allclose(value.se, np.std(model + ratio * residual, ddof=1) / np.sqrt(ROWS))


def test_value_on_a_table_of_outcomes(policy3: GBPLNet) -> None:
    truth = means(NEW3, 3)
    chosen = policy3.predict(NEW3)
    by_hand = np.array([truth[i, LABELS[3].index(label)] for i, label in enumerate(chosen)])
    value = policy3.value(NEW3, truth)
    assert_allclose(value.estimate, by_hand.mean())
    assert_allclose(value.se, by_hand.std(ddof=1) / np.sqrt(ROWS))
    assert_allclose(policy3.score(NEW3, truth), value.estimate)
    gain = policy3.value(NEW3, truth, baseline="visit")
    assert_allclose(gain.estimate, np.mean(by_hand - truth[:, 2]))
    assert_allclose(gain.se, np.std(by_hand - truth[:, 2], ddof=1) / np.sqrt(ROWS))
    probability = policy3.predict_proba(NEW3)
    assert_allclose(policy3.value(NEW3, truth, rule="randomized").estimate, np.sum(probability * truth) / ROWS)
    turned = pd.DataFrame(truth, columns=LABELS[3])[LABELS[3][::-1]]
    assert_allclose(policy3.value(NEW3, turned).estimate, value.estimate)
    with pytest.raises(ValueError, match="needs logged feedback"):
        policy3.value(NEW3, truth, baseline="logging")


def test_value_over_a_baseline(policy: GBPLNet) -> None:
    rows: dict[str, Any] = {"X": NEW, "y": NEW_Y, "action": NEW_A, "propensity": 0.75}
    own = policy.value(**rows)
    logged = LoggedFeedback.of(NEW, NEW_Y, NEW_A, propensity=0.75)
    settings = policy.cross_fit_settings(0)
    other = small_logged_net(zeta=5.0, random_state=3).fit(X, Y, action=A, propensity=0.75)
    everybody = np.repeat("control", ROWS)
    table = np.tile([1.0, 0.0], (ROWS, 1))
    for baseline in ("control", everybody, table):
        gain, alone = policy.value(**rows, baseline=baseline), policy_value(baseline, logged, nuisances=settings)
        assert_allclose(gain.estimate, own.estimate - alone.estimate)
        assert_allclose(gain.se, np.std(own.influence - alone.influence, ddof=1) / np.sqrt(ROWS))
    assert_allclose(policy.value(**rows, baseline="logging").estimate, own.estimate - NEW_Y.mean())
    assert_allclose(policy.value(**rows, baseline=other).estimate, own.estimate - other.value(**rows).estimate)
    itself = policy.value(**rows, baseline=policy)
    assert (itself.estimate, itself.se) == (0.0, 0.0)
    assert policy.value(**rows, baseline="control").probability_positive > 0.99
    assert_allclose(policy.value(logged).estimate, own.estimate)


def test_value_with_costs_and_weights(policy: GBPLNet) -> None:
    weight = np.random.default_rng(0).uniform(0.0, 2.0, ROWS) * (np.arange(ROWS) % 4 > 0)
    rows: dict[str, Any] = {"X": NEW, "y": NEW_Y, "action": NEW_A, "propensity": 0.75, "estimator": "ipw"}
    treated = policy.predict(NEW) == "treated"
    ratio = np.where(policy.predict(NEW) == NEW_A, 1.0 / np.where(treated, 0.75, 0.25), 0.0)
    value = policy.value(**rows, cost={"treated": 0.2}, sample_weight=weight)
    assert_allclose(value.estimate, np.average(ratio * NEW_Y - 0.2 * treated, weights=weight))
    groups = np.arange(ROWS) // 5
    clustered = policy.value(**rows, groups=groups)
    sums = np.bincount(groups, ratio * NEW_Y - np.mean(ratio * NEW_Y)) / ROWS
    assert_allclose(clustered.se, np.sqrt(np.sum(sums**2) * 48 / 47))


def test_value_minds_the_rows_it_learned_from(policy: GBPLNet) -> None:
    with pytest.warns(UserWarning, match="use cross_fitted_value") as warned:
        policy.value(X, Y, action=A, propensity=0.75)
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="use cross_fitted_value"):
        policy.value(X, np.column_stack([Y, Y]))
    with pytest.warns(UserWarning, match="these are the rows the policy learned from"):
        policy.value(X[::-1], Y[::-1], action=A[::-1], propensity=0.75)  # in another order


def test_score_is_the_value(policy: GBPLNet) -> None:
    rows: dict[str, Any] = {"action": NEW_A, "propensity": 0.75}
    assert policy.score(NEW, NEW_Y, **rows) == policy.value(NEW, NEW_Y, **rows).estimate
    more: dict[str, Any] = {**rows, "cost": {"treated": 0.1}, "sample_weight": np.linspace(0.5, 1.0, ROWS)}
    assert policy.score(NEW, NEW_Y, **more) == policy.value(NEW, NEW_Y, **more).estimate
    assert policy.score(X, Y, action=A, propensity=0.75) > 0.0  # silent on rows of the fit, as scikit-learn's are


def test_cross_fitted_value_restated(policy3: GBPLNet) -> None:
    """Doubly robust terms of the rule of fits that have not seen the row's fold, and what the policy gains on them."""
    scores = policy3.pseudo_outcomes_
    for rule in ("deterministic", "randomized"):
        value = policy3.cross_fitted_value(rule=rule)
        estimate, se = held_out_value(policy3, X3, scores, rule)
        assert_allclose(value.estimate, estimate, rtol=1e-5)
        assert_allclose(value.se, se, rtol=5e-3)  # by other draws
    for baseline, rows in {"logging": Y3, "visit": scores[:, 2]}.items():
        gain = policy3.cross_fitted_value(baseline=baseline)
        estimate, se = held_out_value(policy3, X3, scores, "deterministic", less=rows)
        assert_allclose(gain.estimate, estimate, rtol=1e-5)
        assert_allclose(gain.se, se, rtol=5e-3)
    assert policy3.cross_fitted_value("visit").se == pytest.approx(scores[:, 2].std(ddof=1) / np.sqrt(ROWS))
    paper = small_logged_net(pseudo_outcome="ipw").fit(X3, Y3, action=A3, propensity=chances(3))
    with pytest.raises(ValueError, match="use 'ipw' or 'snipw'"):
        paper.cross_fitted_value()
    assert np.isfinite(paper.cross_fitted_value(estimator="snipw").estimate)


def test_cross_fitted_value_rests_on_networks_that_saw_nothing_of_the_fold(
    policy3: GBPLNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each fit without a fold has the features and the scores of the other rows, by outcome models without it."""
    training = policy3._training
    kept = training.held_out.deviation
    calls = record_calls(monkeypatch, "fit_paths", gbpl.path.held_out)
    held = hold_out([training.problem()])[0]
    assert_array_equal(held.deviation, kept)
    ((parts,), _, fits) = calls[0]
    folds = {member.fold: member.validation for member in training.fit.every}
    assert len(calls) == 1
    assert len(parts) == len(folds)
    for number, (part, fit) in enumerate(zip(parts, fits, strict=True)):
        rest = np.concatenate([folds[(number + step) % len(folds)] for step in range(1, len(folds))])
        assert not set(rest) & set(folds[number])
        assert_array_equal(part.feedback.x, training.feedback.x[rest])
        for table in part.tables:
            (own,) = table.outcomes
            expected = training.nuisances.pseudo_outcomes("dr", correction=table.correction, fold=number)[rest]
            assert_array_equal(own, expected)
        assert_array_equal(part.feedback.outcomes, part.tables[0].outcomes[0])
        for member in fit.every:
            assert_array_equal(np.sort(np.concatenate([member.train, member.validation])), np.arange(len(rest)))
        assert len(fit.every) == len(training.fit.every)
        assert_array_equal(held.unit[folds[number]], fit.effect.mean.unit)


def test_cross_fitted_value_is_honest() -> None:
    """No action does anything: the truth is zero, and who judges by the rows they learned from says more."""
    honest, trained = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x, taken = rng.integers(0, 3, (ROWS, 3)).astype(float), rng.permutation(np.arange(ROWS) % 3)
        y = rng.normal(size=ROWS)
        fitted = small_logged_net(random_state=seed).fit(x, y, action=taken, propensity=1 / 3)
        honest.append(fitted.cross_fitted_value().estimate)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "these are the rows the policy learned from")
            trained.append(fitted.value(x, y, action=taken, propensity=1 / 3).estimate)
    off, too_good = np.mean(honest), np.mean(trained)
    assert abs(off) < 3 * np.std(honest, ddof=1) / np.sqrt(len(honest))
    assert too_good > 2 * np.std(trained, ddof=1) / np.sqrt(len(trained))
    assert off < 0.5 * too_good


@pytest.mark.slow
def test_cross_fitted_value_has_no_bias_at_all() -> None:
    """As above, but with networks that overfit and enough fits to see what early stopping leaves."""
    honest = []
    config = FitConfig(max_epochs=100, learning_rate=0.01)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        x, taken = rng.integers(0, 3, (ROWS, 3)).astype(float), rng.permutation(np.arange(ROWS) % 3)
        fitted = small_logged_net(zeta="auto", random_state=seed, fit_config=config)
        fitted.fit(x, rng.normal(size=ROWS), action=taken, propensity=1 / 3)
        honest.append(fitted.cross_fitted_value().estimate)
    assert abs(np.mean(honest)) < 3 * np.std(honest, ddof=1) / np.sqrt(len(honest))


# -- saved, and how sure ----------------------------------------------------------------------------------


def test_a_saved_policy_carries_no_rows(policy: GBPLNet) -> None:
    again: GBPLNet = pickle.loads(pickle.dumps(policy))
    assert_same_fit(again, policy, NEW)
    assert again.actions_.tolist() == policy.actions_.tolist()
    assert not hasattr(again, "_training")
    assert not hasattr(again, "pseudo_outcomes_")
    assert again.overlap_.to_dict() == policy.overlap_.to_dict()
    assert str(again.zeta_path_) == str(policy.zeta_path_)
    assert len(pickle.dumps(again.overlap_)) < 10_000
    kept = [np.asarray(value) for value in vars(again).values() if isinstance(value, np.ndarray | list | tuple)]
    assert not any(ROWS in value.shape for value in kept if value.dtype != object)
    with pytest.raises(ValueError, match="use value on new rows"):
        again.cross_fitted_value()
    with pytest.raises(PosteriorError, match="loaded without"):
        again.posterior()
    rows: dict[str, Any] = {"action": NEW_A, "propensity": 0.75}
    assert again.value(NEW, NEW_Y, **rows).estimate == policy.value(NEW, NEW_Y, **rows).estimate
    with pytest.warns(UserWarning, match="these are the rows the policy learned from"):  # its fingerprint tells
        again.value(X, Y, action=A, propensity=0.75)
    assert hasattr(policy, "pseudo_outcomes_")


@pytest.mark.filterwarnings("ignore:.*is a copy of the outcome")  # as it is here
def test_a_fit_to_full_feedback_forgets_the_log() -> None:
    fitted = small_logged_net().fit(X, Y, action=A, propensity=0.75)
    fitted.fit(X, means(X, 2))
    assert not hasattr(fitted, "pseudo_outcomes_")
    assert not hasattr(fitted, "overlap_")


def test_posterior(policy: GBPLNet) -> None:
    assert {member.table for member in policy._training.fit.every} == {0, 1, 2, 3}  # two corrections, two folds
    posterior = policy.posterior()
    sure = posterior.action_probability(NEW, draws=100)
    assert_allclose(sure.sum(axis=1), 1.0, atol=1e-6)
    clear = np.abs(NEW[:, 0]) > 1.0
    assert np.mean(policy.actions_[sure.argmax(axis=1)][clear] == policy.predict(NEW)[clear]) > 0.9
    assert posterior.welfare(NEW, means(NEW, 2), draws=100).mean > 0.0


def test_bootstrap_posterior() -> None:
    """Refits stay with the table of their member."""
    fitted = small_logged_net().fit(X, Y, action=A, propensity=0.75)
    posterior = fitted.posterior("bootstrap", refits=4)
    for part, problem in zip(posterior.parts, fitted._training.fit.problems(), strict=True):
        assert_array_equal(part.problem.target, problem.target)
    assert np.isfinite(posterior.welfare(NEW, means(NEW, 2), draws=1).mean)


def test_fit_many_of_logs_is_fit_one_by_one() -> None:
    data = [
        {"X": X, "y": Y, "action": A, "propensity": 0.75},
        {"X": X[:150], "y": Y[:150], "action": A[:150], "propensity": 0.75},
    ]
    together = fit_many([small_logged_net(random_state=seed) for seed in (1, 2)], data)
    for seed, policy, given in zip((1, 2), together, data, strict=True):
        alone = small_logged_net(random_state=seed).fit(**given)
        assert_allclose(policy.pseudo_outcomes_, alone.pseudo_outcomes_, atol=2e-3)
        assert_allclose(policy.predict_proba(X), alone.predict_proba(X), atol=2e-3)
