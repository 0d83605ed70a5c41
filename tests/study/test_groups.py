"""A study by group: the table is the estimator's, a bound holds where it is decided, and the file carries it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.cli import run
from support.policies import small_study_net

import gbpl
from gbpl.cli.console import stdout
from gbpl.cli.messages import print_study
from gbpl.decisions.decisions import Rule
from gbpl.decisions.gain import GainSlope
from gbpl.feedback.read import TableFeedback
from gbpl.report.schema import check_summary
from gbpl.study.decide_file import decide_file
from gbpl.study.groups import AskedGroups, bounded_rule
from gbpl.study.small_rule import check_rule_text
from gbpl.tables.frames import TableError

N = 300
ROLES = {"outcome": "y", "action": "arm", "propensity": 0.5, "default": "none"}


def frame(seed: int = 0) -> pd.DataFrame:
    """Bern gains most, so that most of Bern is called."""
    rng = np.random.default_rng(seed)
    made = pd.DataFrame({
        "age": rng.normal(40.0, 10.0, N).round(1), "city": rng.choice(["Bern", "Graz", "Ulm"], N, p=[0.4, 0.3, 0.3]),
        "vip": rng.random(N) < 0.4, "arm": np.array(["call", "none"])[rng.permutation(np.arange(N) % 2)],
    })  # fmt: skip
    gain = (made["age"] - 40.0) / 10.0 + 2.0 * (made["city"] == "Bern") - (made["city"] == "Ulm")
    made["town"] = made["city"].str.upper()
    made["y"] = (made["arm"] == "call") * gain + 0.5 * rng.normal(size=N)
    return made


FRAME = frame()


def learned(**more):
    return gbpl.learn(FRAME, **ROLES, exclude=["town"], estimator=small_study_net(), **more)


@pytest.fixture(scope="module")
def bounded():
    return learned(by="vip", share_gap={"city": 0.3})


@pytest.fixture(scope="module")
def capped():
    return learned(gain_gap={"city": 0.5})


def shares(action: np.ndarray) -> pd.Series:
    return pd.Series(action == "call").groupby(FRAME["city"].to_numpy()).mean()


def test_the_table_is_that_of_the_estimator(bounded):
    found = bounded.summary["by_group"]
    check_summary(bounded.summary)
    json.dumps(found, allow_nan=False)
    assert [one["column"] for one in found["columns"]] == ["vip", "city"]
    city = found["columns"][1]
    assert [group["label"] for group in city["groups"]] == ["Bern", "Graz", "Ulm"]
    assert [group["rows"] for group in city["groups"]] == FRAME["city"].value_counts().sort_index().tolist()
    given = [group["shares"][0]["estimate"] for group in city["groups"]]  # call is the first of the two labels
    assert_allclose(given, shares(bounded.decisions.action))
    assert_allclose(
        sum(group["rows"] * group["value"]["estimate"] for group in city["groups"]) / N,
        bounded.summary["welfare"]["estimate"],
    )
    gain = next(item["gain"] for item in bounded.summary["alternatives"] if item["label"] == "everybody gets none")
    assert_allclose(sum(group["rows"] * group["gain"]["estimate"] for group in city["groups"]) / N, gain)


def test_shares_keep_within_the_bound_and_cost_something(bounded):
    found = bounded.summary["by_group"]["bound"]
    assert found["free_gap"] > 0.4
    assert found["gap"] <= found["aim"] + 1e-9
    assert found["aim"] < found["bound"] == 0.3
    assert found["chance"] <= 0.05
    assert_allclose(np.ptp(shares(bounded.decisions.action)), found["gap"])
    assert_allclose([one["reached"] for one in found["groups"]], shares(bounded.decisions.action))
    assert np.argmax([one["price"] for one in found["groups"]]) == 0  # Bern has the most to give
    assert found["price"]["low"] <= found["price"]["estimate"] <= found["price"]["high"]
    assert found["price"]["estimate"] > 0.0


def test_the_price_is_the_difference_of_held_out_values(bounded):
    policy = bounded.fitted
    free = policy.cross_fitted_value()
    alone = replace(free, influence=policy.training("").evaluator("dr").value(policy.training("").untouched).influence)
    found = bounded.summary["by_group"]["bound"]["price"]["estimate"]
    assert_allclose(alone.estimate - bounded.summary["welfare"]["estimate"], found, atol=1e-9)


def test_gains_keep_within_a_bound_by_outcomes(capped):
    found = capped.summary["by_group"]["bound"]
    assert (found["of"], found["bound"], found["level"], found["chance"]) == ("gains", 0.5, 0.95, None)
    assert found["held_out_gap"] <= 0.5
    assert all(one["reached"] <= found["aim"] * (1 + 1e-6) for one in found["groups"])
    assert found["free_gap"] > found["gap"]


def test_a_decision_within_a_bound_is_explained_at_the_price_of_its_group(bounded):
    prices = dict(zip(bounded.policy.rule.groups.parts.names, bounded.policy.rule.groups.prices, strict=True))
    fixed = str(next(name for name in bounded.policy.encoder.columns if name != "city"))
    for row in (0, 1, 2):
        one = FRAME.iloc[[row]]
        found = bounded.policy.explain(one, fixed=fixed)
        assert found.decided == bounded.decisions.action[row]
        assert max(gain.price for gain in found.gains) == pytest.approx(max(prices[one["city"].iloc[0]], 0.0))
        assert fixed in found.fixed
        assert not any(
            name == "city" for flip in found.flips for name in [c["column"] for c in flip.to_dict()["changes"]]
        )


def test_a_small_rule_would_not_keep_a_limit():
    limits = {"capacity": {"call": 0.2}, "budget": 10.0, "share_gap": {"city": 0.1}, "outcome_weights": {"z": 1.0}}
    for name, limit in limits.items():
        with pytest.raises(TableError, match=f"a small rule does not keep within {name}, and its price would be"):
            check_rule_text("tree:2", **{name: limit})
    assert check_rule_text(None, budget=10.0) is None


def test_a_saved_policy_keeps_its_prices(bounded, tmp_path):
    path = tmp_path / "policy.gbpl"
    bounded.save(path)
    loaded = gbpl.load(path)
    assert loaded.rule == bounded.policy.rule
    assert loaded.digest() == bounded.policy.digest()
    assert_array_equal(loaded.decide(FRAME).action, bounded.decisions.action)
    features = bounded.policy.encoder.apply(FRAME)[0]
    assert_array_equal(loaded.decide(features, group=FRAME["city"]).action, bounded.decisions.action)
    prices = dict(zip(loaded.rule.groups.parts.names, loaded.rule.groups.prices, strict=True))
    net = bounded.policy.expected_gain(FRAME)[:, 0] - FRAME["city"].map(prices)
    assert_array_equal(loaded.decide(FRAME).action == "call", net.to_numpy() > 0.0)
    with pytest.raises(ValueError, match="has prices by 'city'; give a table with that column, or group="):
        loaded.decide(features)
    with pytest.raises(ValueError, match="prices by 'city', which to_onnx does not write"):
        loaded.to_onnx(tmp_path / "p.onnx")


def test_rows_of_no_known_group_are_counted_and_decided_without_a_price(bounded):
    new = FRAME.assign(city="Rom")
    decided = bounded.policy.decide(new)
    assert decided.counts["row(s) of no group of 'city' that was learned, decided without its price"] == N
    free = bounded.policy.with_study(
        rule=replace(bounded.policy.rule, groups=None), encoder=bounded.policy.encoder, summary=None
    )
    assert_array_equal(decided.action, free.decide(new).action)


def test_a_file_is_decided_as_the_table(bounded, tmp_path):
    data, out = tmp_path / "data.csv", tmp_path / "out.csv"
    FRAME.to_csv(data, index=False)
    decide_file(bounded.policy, data, out)
    assert_array_equal(pd.read_csv(out)["action"], bounded.decisions.action)


def test_a_group_that_must_not_decide_still_has_a_price(tmp_path):
    study = learned(share_gap={"town": 0.3})
    assert "town" not in study.policy.encoder.columns
    assert study.summary["by_group"]["columns"][0]["feature"] is False
    assert study.policy.rule.groups.column == "town"
    data = tmp_path / "data.csv"
    FRAME.to_csv(data, index=False)
    decide_file(study.policy, data, tmp_path / "out.csv")
    assert_array_equal(pd.read_csv(tmp_path / "out.csv")["action"], study.decisions.action)


def test_where_nobody_is_known_to_gain_nobody_is_treated(bounded, monkeypatch):
    """A slope of zero: there is no order by which some could be left out."""
    policy = bounded.fitted
    monkeypatch.setattr(policy, "gain_slope_", GainSlope(0.0, 1.0))
    feedback, features = policy.training("").nuisances.feedback, bounded.policy.encoder.apply(FRAME)[0]
    data, frozen = TableFeedback(feedback, features, np.ones(N, bool), []), policy.frozen(draws=0)
    free = np.argmax(policy.training("").untouched, axis=1)
    for asked in (AskedGroups(("city",), "city", 0.3), AskedGroups(("city",), "city", 0.3, "gains")):
        found = bounded_rule(policy, frozen, data, FRAME, Rule(1), free, asked, 10, [])
        decided = frozen.with_study(rule=found.rule, encoder=None, summary=None).decide(features, group=FRAME["city"])
        assert (decided.action == "none").all()
        assert (found.decided == 1).all()
        assert found.found.gap == 0.0
        assert found.price.estimate > 0.0
    wide = bounded_rule(policy, frozen, data, FRAME, Rule(1), free, AskedGroups(("city",), "city", 0.999), 10, [])
    assert wide.rule.groups is None
    assert_array_equal(wide.decided, free)


def test_without_groups_there_is_nothing():
    study = learned()
    assert study.summary["by_group"] is None
    assert study.policy.rule.groups is None


WRONG = {
    "unknown column": ({"by": "cty"}, "no column 'cty'; did you mean 'city'"),
    "the outcome": ({"by": ["y"]}, "'y' is the outcome or the action, and no group"),
    "two bounds": ({"share_gap": {"city": 0.1}, "gain_gap": {"city": 0.1}}, "of one column, in shares or in gains"),
    "two columns": ({"share_gap": {"city": 0.1, "vip": 0.1}}, "of one column, in shares or in gains"),
    "no mapping": ({"share_gap": 0.1}, "of one column, in shares or in gains"),
    "a share above one": ({"share_gap": {"city": 1.5}}, "must be a share between 0 and 1, got 1.5; try 0.1"),
    "a gain below zero": ({"gain_gap": {"city": -1.0}}, "a finite number above 0, in units of the outcome, got -1.0"),
    "with a capacity": ({"share_gap": {"city": 0.1}, "capacity": {"call": 0.2}}, "cannot be kept together yet"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_before_any_work(name):
    given, message = WRONG[name]
    with pytest.raises(TableError, match=message):
        gbpl.learn(FRAME, **ROLES, estimator=small_study_net(), **given)


def test_columns_are_named_once():
    assert AskedGroups.read(["a", "b", "a"], None, {"b": 2}, None) == AskedGroups(("a", "b"), "b", 2.0, "gains")
    assert AskedGroups.read(None, {}, {}, {}) == AskedGroups()


def test_the_estimator_takes_any_column():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(120, 2))
    outcomes = rng.normal(size=(120, 2)) + np.column_stack([0 * x[:, 0], x[:, 0]])
    policy = small_study_net().fit(x, outcomes)
    made = policy.by_group(x[:, 1], name="second")
    assert sum(made.rows) == 120
    assert_allclose(np.average(made.values.estimates, weights=made.rows), policy.cross_fitted_value().estimate)
    frame = pd.DataFrame(x, columns=["a", "b"])
    named = small_study_net().fit(frame, outcomes).by_group("b")
    assert named.column == "b"
    assert_allclose(named.gains.estimates, made.gains.estimates)
    with pytest.raises(ValueError, match="one value for each of the 120 rows of the fit, got 5"):
        policy.by_group(np.arange(5))
    with pytest.raises(ValueError, match="default must be one of the actions"):
        policy.by_group(x[:, 1], default="x")


def test_the_terminal_says_it(bounded, capped, capsys):
    print_study(stdout(), bounded, {})
    said = " ".join(capsys.readouterr().out.split())
    assert "Who gets what by vip, and what it brings over none" in said
    assert "The gains of these groups differ (p < 0.001)." in said
    assert "The shares with another action than none of the groups of city differ by at most 30 %: by" in said
    assert "the chance that new rows differ by more is" in said
    assert "The bound costs" in said
    print_study(stdout(), capped, {})
    assert "The gains of the groups of city differ by at most 0.5" in " ".join(capsys.readouterr().out.split())


def test_the_command_line_refuses_it_first(tmp_path, capsys):
    data = tmp_path / "data.csv"
    FRAME.to_csv(data, index=False)
    for given, message in (
        (["--share-gap", "city"], "--share-gap must be COLUMN=NUMBER, such as --share-gap city=0.2, got 'city'"),
        (["--by", "cty"], "no column 'cty'"),
    ):
        done = run(capsys, "fit", data, "--outcome", "y", "--action", "arm", *given, "--out", tmp_path / "out")
        assert done.code == 2
        assert message in done.words
