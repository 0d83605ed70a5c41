"""Policies judged on rows they did not learn from: what `policy_value` says, against single actions and each other."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression
from support.calls import forbid_calls
from support.policies import small_study_net

import gbpl
from gbpl import CrossFit, LoggedFeedback, PerAction, TableError
from gbpl.study.compare import roles_of

N = 180


def rows(seed: int, n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(rng.normal(size=(n, 3)), columns=["a", "b", "c"])
    made["sex"] = rng.choice(["f", "m"], n)
    made["arm"] = rng.integers(0, 2, n)
    gain = made["a"] + (made["sex"] == "m")
    made["y"] = 2.0 + made["b"] + made["arm"] * gain + rng.normal(size=n)
    made["y0"], made["y1"] = made["b"], made["b"] + gain
    return made


pytestmark = pytest.mark.filterwarnings("ignore:'b' is a copy of the outcome")  # y0, without noise
FEATURES = ["a", "b", "c", "sex"]
ROLES = {"outcome": "y", "action": "arm", "propensity": 0.5, "features": FEATURES}
COST = {1: 0.3}
NEW = rows(77, 400)


@pytest.fixture(scope="module")
def policy():
    return gbpl.learn(rows(1), **ROLES, cost=COST, estimator=small_study_net()).policy


@pytest.fixture(scope="module")
def other():
    return gbpl.learn(rows(2), **ROLES, cost=COST, capacity={1: 0.3}, estimator=small_study_net(random_state=5)).policy


@pytest.fixture(autouse=True)
def linear_models(monkeypatch):
    """The outcome model of an evaluation is a network; a linear one is as good to restate the formulas by."""
    monkeypatch.setattr("gbpl.study.compare.CrossFit", crossed)


def crossed() -> CrossFit:
    return CrossFit(outcome_model=PerAction(LinearRegression()))


def log_for(policy, raw, **changed) -> LoggedFeedback:
    given = {"propensity": 0.5, "cost": COST, "actions": [0, 1]} | changed
    return LoggedFeedback.of(policy.encoder.apply(raw)[0], raw["y"], raw["arm"], **given)


@pytest.mark.parametrize("name", ["dr", "ipw", "snipw", "dm"])
def test_evaluation_is_policy_value_by_hand(policy, name):
    evaluation = gbpl.evaluate_policy(policy, NEW, estimator=name)
    log = log_for(policy, NEW)
    decided = policy.decide(NEW).action
    assert 0.1 < np.mean(decided == 1) < 0.95, "one action for all would prove little"
    mine = gbpl.policy_value(decided, log, estimator=name, nuisances=crossed())
    assert_allclose([evaluation.value.estimate, evaluation.value.se], [mine.estimate, mine.se])
    assert [part[0] for part in evaluation.alternatives] == ["everybody gets 0", "everybody gets 1", "as logged"]
    for (_, value, gain), baseline in zip(evaluation.alternatives, [0, 1, "logging"], strict=True):
        by_hand = gbpl.policy_value(decided, log, estimator=name, baseline=baseline, nuisances=crossed())
        assert_allclose([gain.estimate, gain.se], [by_hand.estimate, by_hand.se])
        assert_allclose(value.estimate, mine.estimate - by_hand.estimate)
    assert_allclose(evaluation.alternatives[2][1].estimate, np.mean(NEW["y"] - 0.3 * NEW["arm"]))
    assert_allclose(evaluation.shares, [np.mean(decided == 0), np.mean(decided == 1)])
    assert evaluation.rows == len(NEW)
    assert evaluation.overlap is not None


def test_inverse_propensity_values_are_the_formula(policy):
    value = gbpl.evaluate_policy(policy, NEW, estimator="ipw").value
    decided, arm = policy.decide(NEW).action, NEW["arm"].to_numpy()
    terms = (decided == arm) * NEW["y"].to_numpy() / 0.5 - 0.3 * (decided == 1)
    assert_allclose([value.estimate, value.se], [terms.mean(), terms.std(ddof=1) / np.sqrt(len(NEW))])


def test_full_feedback_is_the_mean_of_the_outcomes_of_what_is_decided(policy):
    evaluation = gbpl.evaluate_policy(policy, NEW, outcomes=["y0", "y1"])
    decided = policy.decide(NEW).action
    net = NEW[["y0", "y1"]].to_numpy() - [0.0, 0.3]
    mine = net[np.arange(len(NEW)), decided]
    assert_allclose([evaluation.value.estimate, evaluation.value.se], [mine.mean(), mine.std(ddof=1) / 20.0])
    gain = mine - net[:, 1]
    assert_allclose(evaluation.alternatives[1][2].estimate, gain.mean())
    assert_allclose(evaluation.alternatives[1][2].se, gain.std(ddof=1) / 20.0)
    assert len(evaluation.alternatives) == 2
    assert evaluation.overlap is None
    json.dumps(evaluation.to_dict(), allow_nan=False)


def test_a_policy_of_full_feedback_reads_its_columns_by_name():
    study = gbpl.learn(rows(1), outcomes=["y0", "y1"], features=FEATURES, estimator=small_study_net())
    straight = gbpl.evaluate_policy(study.policy, NEW)
    turned = gbpl.evaluate_policy(study.policy, NEW, outcomes=["y1", "y0"])
    assert_allclose(straight.value.estimate, turned.value.estimate)
    assert straight.actions == ["y0", "y1"]
    named = NEW.assign(arm=np.where(NEW["arm"] == 1, "Y1", "Y0"))
    evaluation = gbpl.evaluate_policy(study.policy, named, outcome="y", action="arm", propensity={"y0": 0.5, "Y1": 0.5})
    assert evaluation.actions == ["y0", "y1"]
    assert evaluation.rows == len(NEW)


def test_costs_are_those_of_the_fit_unless_others_are_given(policy):
    usual = gbpl.evaluate_policy(policy, NEW, estimator="ipw")
    free = gbpl.evaluate_policy(policy, NEW, estimator="ipw", cost={})
    dear = gbpl.evaluate_policy(policy, NEW, estimator="ipw", cost={"1": 2.3, "0": 1})
    share = usual.shares[1]
    assert_allclose(free.value.estimate - usual.value.estimate, 0.3 * share)
    assert_allclose(free.value.estimate - dear.value.estimate, 2.3 * share + 1.0 * (1 - share))
    with pytest.raises(TableError, match="cost names the action '7'"):
        gbpl.evaluate_policy(policy, NEW, cost={7: 1})


def test_labels_may_be_written_as_text_and_rows_may_lack_outcomes(policy):
    expected = gbpl.evaluate_policy(policy, NEW, estimator="ipw")
    more = pd.concat([NEW.assign(arm=NEW["arm"].astype(str)), rows(3, 5).assign(y=np.nan, arm="0")])
    evaluation = gbpl.evaluate_policy(policy, more, estimator="ipw")
    assert_allclose(evaluation.value.estimate, expected.value.estimate)
    assert evaluation.rows == 400
    assert evaluation.notes == ["5 rows without an outcome (y) left out"]
    assert_allclose(gbpl.evaluate_policy(policy, pl.from_pandas(NEW), estimator="ipw").value.se, expected.value.se)


def test_a_loaded_policy_judges_the_same(policy, tmp_path):
    policy.save(tmp_path / "p")
    evaluation = gbpl.evaluate_policy(gbpl.load(tmp_path / "p"), NEW, estimator="snipw")
    assert_allclose(evaluation.value.influence, gbpl.evaluate_policy(policy, NEW, estimator="snipw").value.influence)


def test_weights_and_groups_of_the_fit_are_read_again():
    raw = rows(1).assign(w=np.random.default_rng(0).uniform(1, 2, N), home=np.arange(N) // 3)
    made = gbpl.learn(raw, **ROLES, weight="w", group="home", estimator=small_study_net()).policy
    new = NEW.assign(w=np.r_[np.zeros(40), np.random.default_rng(1).uniform(1, 2, 360)], home=np.arange(400) // 4)
    evaluation = gbpl.evaluate_policy(made, new, estimator="ipw")
    used = new.iloc[40:]
    decided = made.decide(used).action
    terms = (decided == used["arm"]) * used["y"] / 0.5
    weight = used["w"] / used["w"].sum()
    assert_allclose(evaluation.value.estimate, weight @ terms)
    grouped = (weight * (terms - weight @ terms)).groupby(used["home"]).sum()
    assert_allclose(evaluation.value.se, np.sqrt(np.sum(grouped**2) * 90 / 89))
    assert evaluation.rows == 360
    with pytest.raises(TableError, match="no column 'w'"):
        gbpl.evaluate_policy(made, NEW)


def test_estimated_propensities_are_told(policy):
    made = gbpl.learn(rows(1), **ROLES | {"propensity": None}, estimator=small_study_net()).policy
    evaluation = gbpl.evaluate_policy(made, NEW, estimator="ipw")
    assert len(evaluation.notes) == 1
    assert "estimated" in evaluation.notes[0]
    assert gbpl.evaluate_policy(made, NEW, estimator="ipw", propensity=0.5).notes == []


def test_evaluations_are_plain_json(policy):
    evaluation = gbpl.evaluate_policy(policy, NEW).to_dict(level=0.8)
    assert json.loads(json.dumps(evaluation, allow_nan=False)) == evaluation
    gain = evaluation["alternatives"][0]["gain"]
    assert gain["low"] < gain["estimate"] < gain["high"]
    assert 0.0 <= gain["chance"] <= 1.0
    assert evaluation["shares"].keys() == {"0", "1"}
    assert set(evaluation["overlap"]) == {"weak", "reasons"}


# -- two policies ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dr", "ipw", "snipw"])
def test_the_difference_has_the_error_of_pairs(policy, other, name):
    comparison = gbpl.compare_policies(policy, other, NEW, estimator=name)
    log = log_for(policy, NEW)
    mine, yours = policy.decide(NEW).action, other.decide(NEW).action
    assert 0.05 < np.mean(mine != yours) < 0.95
    by_hand = gbpl.policy_value(mine, log, estimator=name, baseline=yours, nuisances=crossed())
    assert_allclose([comparison.difference.estimate, comparison.difference.se], [by_hand.estimate, by_hand.se])
    for value, chosen in ((comparison.first, mine), (comparison.second, yours)):
        alone = gbpl.policy_value(chosen, log, estimator=name, nuisances=crossed())
        assert_allclose([value.estimate, value.se], [alone.estimate, alone.se])
    assert comparison.difference.se < np.hypot(comparison.first.se, comparison.second.se), "rows in common cost nothing"
    assert_allclose(comparison.differ, np.mean(mine != yours))
    assert (comparison.rows, comparison.notes) == (400, [])
    as_dict = comparison.to_dict()
    assert json.loads(json.dumps(as_dict, allow_nan=False)) == as_dict


def test_a_policy_does_not_differ_from_itself(policy):
    comparison = gbpl.compare_policies(policy, policy, NEW, estimator="ipw")
    assert (comparison.difference.estimate, comparison.difference.se, comparison.differ) == (0.0, 0.0, 0.0)


def test_policies_of_other_columns_are_compared_each_by_its_own(policy):
    narrow = gbpl.learn(
        rows(2), **ROLES | {"features": ["a", "sex", "b", "c"]}, estimator=small_study_net(random_state=1)
    ).policy
    comparison = gbpl.compare_policies(policy, narrow, NEW, outcomes=["y0", "y1"])
    decided = narrow.decide(NEW).action
    net = NEW[["y0", "y1"]].to_numpy() - [0.0, 0.3]
    assert_allclose(comparison.second.estimate, net[np.arange(400), decided].mean())


# -- refusals -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_judged_is_refused(policy, other, monkeypatch):
    forbid_calls(monkeypatch, (CrossFit, "run"))
    bare = gbpl.learn(rows(1), outcomes=["y0", "y1"], features=FEATURES, estimator=small_study_net()).policy
    cases = [
        (lambda: gbpl.evaluate_policy(policy, NEW, estimator="magic"), "estimator must be one of"),
        (lambda: gbpl.evaluate_policy(policy, NEW.drop(columns="y")), "the table has no column 'y'"),
        (lambda: gbpl.evaluate_policy(policy, NEW.drop(columns="a"), source="new.csv"), "has no column 'a'"),
        (lambda: gbpl.evaluate_policy(policy, NEW.assign(arm=NEW["arm"] + 1)), "column 'arm' names the action '2'"),
        (lambda: gbpl.evaluate_policy(policy, NEW.assign(arm=0)), "every row took the action 0"),
        (lambda: gbpl.evaluate_policy(policy, NEW, outcomes=["y0", "y1", "y"]), "outcomes names 3 columns"),
        (lambda: gbpl.evaluate_policy(policy, NEW, propensity=1.5), "propensity as one number"),
        (lambda: gbpl.evaluate_policy(policy, NEW.head(19)), "at least 20 are needed"),
        (lambda: gbpl.evaluate_policy(policy, NEW.assign(arm=[1] * 3 + [0] * 397)), "1 is taken in 3 of 400 rows"),
        (lambda: gbpl.compare_policies(policy, bare, NEW), "the first policy has the actions .0, 1., the second"),
    ]  # fmt: skip
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    arrays = small_study_net().fit(rows(1)[["a", "b", "c"]], rows(1)[["y0", "y1"]]).frozen(draws=0)
    with pytest.raises(TableError, match="reads arrays, not tables"):
        gbpl.evaluate_policy(arrays, NEW, outcome="y", action="arm")
    with pytest.raises(TableError, match="outcome is not named"):
        gbpl.evaluate_policy(arrays, NEW)


def test_roles_are_those_of_the_fit_some_changed(policy):
    roles = roles_of(policy)
    assert (roles.outcome, roles.action, roles.propensity, roles.outcomes) == ("y", "arm", 0.5, None)
    assert roles.features is None, "the encoder knows them"
    assert roles_of(policy, outcome="z", weight=None).outcome == "z"
    full = roles_of(policy, outcomes=["y0", "y1"])
    assert (full.outcome, full.action, full.propensity) == (None, None, None)
    assert_array_equal(full.outcomes, ["y0", "y1"])
