"""A study within a budget: it is kept, by the saved policy too, and its curve tells no few rows apart."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.policies import small_study_net

import gbpl
from gbpl.report.schema import check_summary
from gbpl.tables.frames import TableError

N = 300
ROLES = {"outcome": "y", "action": "arm", "propensity": 1 / 3, "default": "no"}
AMOUNT = {"letter": 1.0, "call": 4.0}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    arm = rng.permutation(np.arange(N) % 3)
    made = pd.DataFrame({"a": rng.normal(size=N), "b": rng.normal(size=N)})
    effect = np.column_stack([np.zeros(N), made["a"], 1.0 + 2.0 * made["b"]])
    made["y"] = effect[np.arange(N), arm] + rng.normal(size=N)
    made["arm"] = np.array(["no", "letter", "call"])[arm]
    made["spent"] = np.array([0.0, 1.0, 4.0])[arm] * rng.gamma(4.0, 0.25, N)
    return made


@pytest.fixture(scope="module")
def study(table):
    given = table.drop(columns="spent")
    return gbpl.learn(given, **ROLES, budget=150, budget_cost=AMOUNT, estimator=small_study_net(zeta="auto"))


def spend_of(action: np.ndarray) -> float:
    return float(sum(AMOUNT.get(label, 0.0) for label in action.tolist()))


def test_budget_is_kept_and_nearly_spent_by_the_saved_policy(study, table, tmp_path):
    assert 150 - 4 <= spend_of(study.decisions.action) <= 150
    study.save(tmp_path / "p.gbpl")
    decided = gbpl.load(tmp_path / "p.gbpl").decide(table)
    assert_array_equal(decided.action, study.decisions.action)
    price = np.array(study.policy.rule.prices)  # by action, in outcome units: price times cost
    assert_allclose(price / price[1], [4.0, 1.0, 0.0])


def test_summary_has_the_curve_and_the_budget_on_it(study):
    found = study.summary["budget"]
    check_summary(study.summary)
    assert (found["asked"], found["rows"], found["cost"]) == (150.0, N, [4.0, 1.0, 0.0])
    curve = study.fitted.budget_curve(cost=AMOUNT, default="no").apart(10)
    assert_allclose(found["spend"], curve.spend)
    assert_allclose(found["gain"], curve.gain)
    assert_allclose(np.column_stack([found["low"], found["high"]]), curve.bands(0.9))
    assert len(found["spend"]) <= 1 + N // 10
    at = curve.at(150 / N)
    assert_allclose([found["at"]["gain"], found["at"]["price"]], [at.gain.estimate, at.price])
    assert_allclose(np.interp(150 / N, found["spend"], found["gain"]), found["at"]["gain"])
    assert_allclose(found["area"]["estimate"], np.trapezoid(found["gain"], found["spend"]) / found["spend"][-1])
    assert sum(found["inclusion"]["counts"]) == N


def test_alternatives_fit_into_the_budget(study):
    labels = [item["label"].replace("\xa0", " ") for item in study.summary["alternatives"]]
    assert labels[0].startswith("13 % by lot get call")
    assert labels[1].startswith("50 % by lot get letter")


def test_what_was_spent_can_be_a_column(table):
    found = gbpl.learn(table, **ROLES, budget=150, budget_cost="spent", estimator=small_study_net())
    means = table.groupby("arm")["spent"].mean()[["call", "letter", "no"]].to_numpy()
    assert_allclose(found.summary["budget"]["cost"], means - means[2])
    assert found.summary["data"]["features"] == ["a", "b"]
    assert found.summary["budget"]["cost_column"] == "spent"
    assert found.summary["budget"]["inclusion"] is not None or found.fitted.effect_ is None


def test_enough_for_everybody_changes_nothing(table):
    given = table.drop(columns="spent")
    free = gbpl.learn(given, **ROLES, estimator=small_study_net())
    rich = gbpl.learn(given, **ROLES, budget=10_000, budget_cost=AMOUNT, estimator=small_study_net())
    assert_array_equal(rich.decisions.action, free.decisions.action)
    assert free.summary["budget"] is None
    assert rich.summary["budget"]["at"]["price"] == 0.0
    assert any("enough for everybody" in note for note in rich.summary["data"]["notes"])
    assert_allclose(rich.summary["welfare"]["estimate"], free.summary["welfare"]["estimate"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"budget": -5}, "budget must be"), ({"budget_cost": AMOUNT}, "give budget too"),
        ({"budget": 5, "capacity": {"call": 0.1}}, "give one of them"), ({"budget": 5, "budget_cost": "paid"}, "paid"),
        ({"budget": 5, "budget_cost": {"mail": 1}}, "mail"), ({"budget": 5, "budget_cost": {"no": 9}}, "below that"),
        ({"budget": 5, "budget_cost": "arm"}, "must be a number"),
    ],
)  # fmt: skip
def test_wrong_budgets_are_refused_before_any_work(table, given, message):
    with pytest.raises((TableError, ValueError), match=message):
        gbpl.learn(table, **ROLES, **given)
