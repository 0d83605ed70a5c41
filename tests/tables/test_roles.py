"""A table is read by its roles, and what cannot be used is refused by name before anything is fitted."""

from __future__ import annotations

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from support.calls import forbid_calls
from support.cli import changed

import gbpl
from gbpl import MLP, Encoder, GBPLNet, TableError
from gbpl.feedback.read import read_table
from gbpl.tables.labels import by_label, check_labels, read_labels, same_label
from gbpl.tables.roles import Roles

N = 60


def role_columns(**changes):
    rng = np.random.default_rng(1)
    columns = {
        "age": rng.normal(50, 10, N),
        "arm": np.array(["control", "mail", "call"], object)[np.arange(N) % 3],
        "earnings": rng.normal(size=N),
        "other": rng.normal(size=N),
        "w": np.ones(N),
        "p": np.full(N, 1 / 3),
        "home": np.arange(N) // 2,
    }
    return changed(columns, **changes)


def put(values, row, value, kind=object):
    out = np.array(values, kind)
    out[row] = value
    return out


BASE = {"outcome": "earnings", "action": "arm", "features": ["age"]}


@pytest.fixture
def unfitted(monkeypatch):
    """Whatever is refused is refused before any fitting."""
    forbid_calls(monkeypatch, (GBPLNet, "fit"))


ARMS = role_columns()["arm"]
TWO = {"arm": np.arange(N) % 2}
REFUSED = {
    # columns
    "missing column": ({}, {"outcome": "earning"}, "table has no column 'earning'; did you mean 'earnings'"),
    "missing feature": ({}, {"features": ["agee"]}, "no column 'agee'; did you mean 'age'"),
    "nothing near": ({}, {"action": "zzz"}, "no column 'zzz'; its columns are 'age'"),
    "missing propensity column": ({}, {"propensity": "q"}, "no column 'q'"),
    "two roles": ({}, {"weight": "earnings"}, "column 'earnings' has two roles"),
    "feature and outcome": ({}, {"features": ["age", "earnings"]}, "column 'earnings' has two roles"),
    "feature twice": ({}, {"features": ["age", "age"]}, "column 'age' has two roles"),
    "no outcome": ({}, {"outcome": None}, "outcome is not named"),
    "no action": ({}, {"action": None}, "action is not named"),
    "outcomes and outcome": ({}, {"outcomes": ["earnings", "other"]}, "outcome has no meaning with it"),
    "outcomes and controls": (
        {}, {"outcome": None, "action": None, "outcomes": ["earnings", "other"], "controls": ["w"]},
        "controls has no meaning with it",
    ),
    "one outcome column": ({}, {"outcome": None, "action": None, "outcomes": "other"}, "two columns or more"),
    "no feature left": ({"age": np.ones(N), "other": None, "w": None, "p": None, "home": None}, {"features": None},
                        "no column is left for the features"),
    # outcomes
    "text outcome": ({"earnings": put(np.zeros(N), 3, "high")}, {}, "'earnings' must be numbers, and row 3 has 'high'"),
    "digits as text": ({"earnings": np.full(N, "12")}, {}, "row 0 has '12'"),
    "dates": ({"earnings": pd.date_range("2020-01-01", periods=N)}, {}, "outcome 'earnings' must be numbers"),
    "nanoseconds": ({"earnings": np.arange(N).astype("M8[ns]")}, {}, "row 0 has '1970-01-01T00:00:00.000000000'"),
    "complex": ({"earnings": np.arange(N) * 1j}, {}, "outcome 'earnings' must be numbers"),
    "true and text": ({"earnings": put([True, False] * (N // 2), [3, 4], [None, "yes"])}, {}, "row 4 has 'yes'"),
    "infinite outcome": ({"earnings": put(np.zeros(N), 5, np.inf, float)}, {}, "infinite in row 5"),
    "no outcome at all": ({"earnings": np.full(N, np.nan)}, {}, "outcome 'earnings' is missing in every row"),
    "few rows": ({"earnings": np.where(np.arange(N) < 19, 1.0, np.nan)}, {}, "19 complete row.s. of 60 are left"),
    # actions
    "one action": ({"arm": np.full(N, "mail")}, {}, "every row took the action 'mail'"),
    "one action left": ({"earnings": np.where(ARMS == "mail", 1.0, np.nan)}, {}, "every row took the action 'mail'"),
    "no action at all": ({"arm": np.full(N, None)}, {}, "action 'arm' is missing in every row"),
    "spelled twice": ({"arm": put(ARMS, 3, "Mail")}, {}, "'Mail' and 'mail', which look like one label spelled twice"),
    "blank at the end": ({"arm": put(ARMS, 3, "mail ")}, {}, "'mail' and 'mail ', which look like one label"),
    "blank label": ({"arm": put(ARMS, 3, "  ")}, {}, "has a blank label"),
    "amounts": ({"arm": np.linspace(0, 1, N)}, {}, "must be a label, and has the number 0.0169"),
    "huge numbers": ({"arm": put(np.arange(N) % 2, 3, 1e300, float)}, {}, "has the number 1e.300"),
    "infinite action": ({"arm": put(np.arange(N) % 2, 3, np.inf, float)}, {}, "has the number inf"),
    "identifiers": ({"arm": np.arange(N)}, {}, "60 different values in 60 rows, such as 0 and 1"),
    "mixed with true": ({"arm": put([True, False] * (N // 2), 3, "maybe")}, {}, "true and false with"),
    "true beside 1": ({"arm": put([True, False] * (N // 2), 3, 2)}, {}, "true and false with"),
    "dates as actions": ({"arm": np.array([datetime.date(2020, 1, 1 + k % 2) for k in range(N)], object)}, {},
                         "values of type date"),
    "lists as actions": ({"arm": pd.Series([[1], [2]] * (N // 2))}, {}, "values of type list"),
    "times as actions": ({"arm": np.arange(N).astype("M8[D]")}, {}, "values of type datetime64"),
    "rare action": ({"arm": put(ARMS, [0, 1], "visit")}, {}, "'visit' is taken in 2 of 60 rows, and 5 are needed"),
    # weights and groups
    "negative weight": ({"w": put(np.ones(N), 4, -2, float)}, {"weight": "w"}, "weight 'w' is -2 in row 4"),
    "infinite weight": ({"w": put(np.ones(N), 4, np.inf, float)}, {"weight": "w"}, "weight 'w' is infinite in row 4"),
    "no weight": ({"w": np.zeros(N)}, {"weight": "w"}, "weight 'w' is zero in every row"),
    "text weight": ({"w": np.full(N, "one")}, {"weight": "w"}, "weight 'w' must be numbers"),
    "one group": ({"home": np.zeros(N)}, {"group": "home"}, "all rows are in one group of 'home'"),
    "few groups": ({"home": np.arange(N) % 3}, {"group": "home"}, "'home' has 3 groups, and 5 are needed"),
    # propensities
    "propensity above one": ({"p": put(np.full(N, 0.5), 9, 1.5, float)}, {"propensity": "p"}, "'p' is 1.5 in row 9"),
    "propensity zero": ({"p": put(np.full(N, 0.5), 9, 0.0, float)}, {"propensity": "p"}, "'p' is 0 in row 9"),
    "no choice": ({"p": put(np.full(N, 0.5), 9, 1.0, float)} | TWO, {"propensity": "p"}, "'p' is 1 in row 9"),
    "infinite propensity": ({"p": put(np.full(N, 0.5), 9, np.inf, float)}, {"propensity": "p"}, "infinite in row 9"),
    "number for three": ({}, {"propensity": 0.5}, "each of 3 actions, so 1/3, in .0, 1.; got 0.5"),
    "number out of range": (TWO, {"propensity": 1.0}, "the second action, in .0, 1.; got 1.0"),
    "propensity of no action": ({}, {"propensity": {"call": 0.5, "visit": 0.5}}, "propensity names the action 'visit'"),
    "propensities incomplete": ({}, {"propensity": {"call": 0.5, "mail": 0.5}}, "not name the action 'control'"),
    "propensities sum": ({}, {"propensity": dict.fromkeys(("call", "mail", "control"), 0.5)}, "sum to 1"),
    "propensity negative": ({}, {"propensity": {"call": -0.5, "mail": 0.5, "control": 1.0}}, "must be > 0"),
    "propensity no number": ({}, {"propensity": {"call": "half", "mail": 0.5}}, "must be a finite number"),
    # costs, capacities, the default
    "cost of no action": ({}, {"cost": {"cal": 3}}, "cost names the action 'cal', .* did you mean 'call'"),
    "cost twice": ({}, {"cost": {"call": 3, " CALL": 4}}, "cost names the action ' CALL' twice"),
    "cost no number": ({}, {"cost": {"call": np.nan}}, "cost of 'call' must be a finite number"),
    "cost true": ({}, {"cost": {"call": True}}, "cost of 'call' must be a finite number"),
    "cost no mapping": ({}, {"cost": [1, 2, 3]}, "cost must be a mapping from action to number"),
    "capacity of no action": ({}, {"capacity": {"post": 0.2}}, "capacity names the action 'post'"),
    "capacity of all": ({}, {"capacity": {"mail": 1.0}}, "a share between 0 and 1, got 1"),
    "capacity none": ({}, {"capacity": {"mail": 0.0}}, "a share between 0 and 1, got 0"),
    "capacity of the default": ({}, {"capacity": {"call": 0.2}}, "the default action, which takes whoever is left"),
    "default unknown": ({}, {"default": "nothing"}, "default names the action 'nothing'"),
    "defer": ({}, {"defer": 1.5}, "defer must be in .0, 1., got 1.5"),
    # certificates
    "range no range": ({}, {"outcome_range": (1, 0)}, "low < high"),
    "range too small": ({}, {"outcome_range": (0, 1)}, "outside outcome_range=.0, 1."),
    "certificate without a range": ({}, {"certify": True}, "needs the lowest and the highest value"),
    "certificate of more than all": ({}, {"certify": 1.5, "outcome_range": (-9, 9)}, "share of rows held out"),
    # the estimator
    "no committee": ({}, {"estimator": GBPLNet(committee=None)}, "committee=None"),
    "no outcome model": ({}, {"estimator": GBPLNet(pseudo_outcome="ipw")}, "pseudo_outcome='ipw'"),
    "model with code": ({}, {"estimator": GBPLNet(model=(lambda k, n, r: 0, lambda p, x: x))}, "holds code"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_before_any_fitting(name, unfitted):
    changed, given, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as caught:
        gbpl.learn(role_columns(**changed), **(BASE | given))
    assert "Error" not in str(caught.value)
    if name not in ("range no range", "no committee", "no outcome model", "model with code"):
        assert isinstance(caught.value, TableError)


def test_other_estimators_are_refused(unfitted):
    with pytest.raises(TypeError, match="must be a GBPL or GBPLNet, got MLP"):
        gbpl.learn(role_columns(), **BASE, estimator=MLP())


def test_a_fine_table_is_fitted_with_the_seed(monkeypatch):
    """The refusals above would prove nothing if the base were refused; and what reaches `fit` is what was given."""
    seen = {}

    class Reached(Exception):
        pass

    def fit(self, feedback):
        seen.update(feedback=feedback, policy=self)
        raise Reached

    monkeypatch.setattr(GBPLNet, "fit_feedback", fit)
    with pytest.raises(Reached):
        gbpl.learn(
            role_columns(), **BASE, seed=7, propensity={"CALL": 0.25, "mail": 0.25, "control": 0.5}, cost={"mail": 2}
        )
    assert seen["policy"].random_state == 7
    assert seen["policy"].actions == ["call", "control", "mail"]
    log = seen["feedback"]
    assert_array_equal(log.propensity, np.tile([0.25, 0.5, 0.25], (N, 1)))
    assert_array_equal(log.cost, np.tile([0.0, 0.0, 2.0], (N, 1)))
    assert taken(log) == role_columns()["arm"].tolist()
    assert_array_equal(log.x[:, 0], role_columns()["age"])
    mine = GBPLNet(random_state=3, actions=["never"])
    with pytest.raises(Reached):
        gbpl.learn(role_columns(), **BASE, estimator=mine)
    assert seen["policy"].random_state == 3
    assert mine.actions == ["never"], "a copy is fitted"
    assert seen["feedback"].cost is None


# -- reading --------------------------------------------------------------------------------------------------------


def taken(log):
    """The label of each row."""
    return log.actions[log.action].tolist()


def read_roles(frame, **roles):
    named = Roles(**({"outcome": "earnings", "action": "arm"} | roles))
    encoder, _ = Encoder.fit(frame, named.features or ["age"], exclude=named.used())
    return read_table(frame, named, encoder)


def test_rows_that_lack_something_are_left_out_and_told():
    frame = role_columns(
        earnings=put(np.arange(N), [0, 1], np.nan, float),
        arm=put(ARMS, 2, None),
        w=put(np.ones(N), [3, 4, 5], [0.0, np.nan, 0.0], float),
        p=put(np.full(N, 0.3), 6, np.nan, float),
        home=put(np.arange(N) // 2, 7, None),
    )
    data = read_roles(frame, weight="w", propensity="p", group="home")
    assert_array_equal(np.flatnonzero(~data.kept), np.arange(8))
    assert data.notes == [
        "2 rows without an outcome (earnings) left out",
        "1 row without an action (arm; NA, None, null and . in a text file mean missing) left out",
        "1 row without a weight (w) left out", "2 rows of weight 0 (w) left out",
        "1 row without a propensity (p) left out", "1 row without a group (home) left out",
    ]  # fmt: skip
    log = data.feedback
    assert_array_equal(log.outcome, np.arange(8, N))
    assert_array_equal(log.x, data.features[8:])
    assert len(data.features) == N, "every row can be decided"
    assert taken(log) == ARMS[8:].tolist()
    assert_array_equal(log.weights, 1.0)
    assert_array_equal(log.propensity, 0.3)
    assert_array_equal(log.groups, np.arange(8, N) // 2 - 4)


def test_a_missing_action_is_told_after_that_of_the_weight_that_is_nan():
    """A weight that is NaN is no weight, and not below zero."""
    data = read_roles(role_columns(w=put(np.ones(N), 3, np.nan, float)), weight="w")
    assert data.notes == ["1 row without a weight (w) left out"]


LABELS = {
    "text": (["b", "a"] * 30, ["a", "b"]),
    "spaces stay": ([" b", "a "] * 30, [" b", "a "]),
    "integers": ([1, 0] * 30, [0, 1]),
    "whole floats": ([2.0, 10.0, np.nan] * 20, [2, 10]),
    "booleans": ([True, False] * 30, [False, True]),
    "booleans, some missing": ([True, None, False] * 20, [False, True]),
    "integers, some missing": ([3, None, 11] * 20, [3, 11]),
    "text and integers": ([1, "1", "b", 2.0] * 15, ["1", "2", "b"]),
    "numpy scalars": ([np.int64(4), np.int64(5)] * 30, [4, 5]),
    "unsigned": (np.array([1, 0] * 30, np.uint8), [0, 1]),
    "numpy text": (np.array(["b", "a"] * 30), ["a", "b"]),
    "decimals": ([Decimal(1), Decimal(2)] * 30, [1, 2]),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("kind", ["dict", "pandas"])
def test_labels_are_text_whole_numbers_or_booleans(name, kind):
    values, expected = LABELS[name]
    columns = {"age": np.arange(60.0) % 7, "earnings": np.arange(60.0), "arm": values}
    data = read_roles(columns if kind == "dict" else pd.DataFrame(columns))
    assert data.labels == expected
    assert [type(label) for label in data.labels] == [type(label) for label in expected]
    present = [value for value in list(values) if value is not None and value == value]
    text = [str(int(v)) if isinstance(v, float | Decimal) and not isinstance(v, bool) else str(v) for v in present]
    assert [str(label) for label in taken(data.feedback)] == text


@pytest.mark.parametrize(
    "kind", ["pandas", "pandas categories", "polars", "polars categories", "pyarrow", "dictionary"]
)
def test_frames_of_every_library_are_read_the_same(kind):
    frame = pd.DataFrame(role_columns(arm=put(ARMS, 2, None), earnings=np.arange(N) % 5))
    expected = read_roles(role_columns(arm=put(ARMS, 2, None), earnings=np.arange(N) % 5), group="home")
    if kind == "pandas categories":
        frame["arm"] = frame["arm"].astype("category")
    if kind.startswith("polars"):
        frame = pl.from_pandas(frame)
        frame = frame.with_columns(pl.col("arm").cast(pl.Categorical)) if "cat" in kind else frame
    if kind in ("pyarrow", "dictionary"):
        frame = pa.Table.from_pandas(frame)
        at = frame.column_names.index("arm")
        frame = frame.set_column(at, "arm", frame["arm"].dictionary_encode()) if kind == "dictionary" else frame
    data = read_roles(frame, group="home")
    assert data.labels == expected.labels
    assert_array_equal(data.kept, expected.kept)
    for name in ("x", "outcome", "action", "groups"):
        assert_array_equal(getattr(data.feedback, name), getattr(expected.feedback, name))


def test_outcomes_of_true_and_false_are_one_and_zero():
    for values in ([True, False] * 30, [True, None, False] * 20, np.array([True, False] * 30), [True, 2.5, None] * 20):
        data = read_roles(role_columns(earnings=values))
        assert_array_equal(data.feedback.outcome, [float(value) for value in list(values) if value is not None])


def test_a_label_that_goes_with_its_rows_is_no_action():
    data = read_roles(role_columns(earnings=np.where(ARMS == "mail", np.nan, 1.0)))
    assert data.labels == ["call", "control"]
    assert taken(data.feedback) == [label for label in ARMS if label != "mail"]


def test_full_feedback_has_its_columns_as_actions():
    data = read_roles(role_columns(), outcome=None, action=None, outcomes=("other", "earnings"))
    assert data.labels == ["other", "earnings"]
    assert_array_equal(data.feedback.outcomes, np.column_stack([role_columns()["other"], role_columns()["earnings"]]))
    assert not data.logged


def test_controls_are_encoded_and_do_not_decide():
    data = read_roles(role_columns(kind=np.array(["u", "v", "z"])[np.arange(N) % 3]), controls="kind", features=["age"])
    assert data.feedback.x.shape == (N, 1)
    assert_array_equal(data.feedback.controls, np.eye(3)[np.arange(N) % 3])


def test_one_name_stands_for_a_list_of_one():
    assert Roles(outcome="y", action="a", features="age").features == ["age"]
    assert Roles(outcome="y", action="a", controls="age").used() == ["y", "a", "age"]


def test_roles_survive_json():
    import json

    roles = Roles(outcome="y", action="a", propensity={1: 0.25, "b": np.float64(0.75)}, weight="w", controls=("c",))
    told = json.loads(json.dumps(roles.to_json(), allow_nan=False))
    again = Roles(**told)
    assert again.propensity == {"1": 0.25, "b": 0.75}
    assert (again.outcome, again.action, again.weight, list(again.controls)) == ("y", "a", "w", ["c"])


# -- labels by hand -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "labels", "expected"),
    [("1", [0, 1], 1), (1.0, [0, 1], 1), (np.int64(0), [0, 1], 0), ("TRUE", [False, True], True),
     (" Mail", ["mail"], "mail"), (True, [False, True], True), (2, ["1", "2"], "2"), ("b ", ["a", " b"], " b")],
)  # fmt: skip
def test_a_label_is_found_however_it_is_written(given, labels, expected):
    found = same_label(given, labels, "cost")
    assert found == expected
    assert type(found) is type(expected)
    assert by_label({given: 3}, labels, "cost") == {expected: 3.0}


def test_a_label_that_is_not_there_is_refused():
    for given in ("x", 7, None, float("nan"), float("inf"), 0.5):
        with pytest.raises(TableError, match="default names the action"):
            same_label(given, [0, 1], "default")
    assert by_label(None, [0, 1], "cost") == {}


def test_up_to_a_hundred_labels_are_a_choice():
    check_labels([f"a{k}" for k in range(100)], "arm", 10_000)
    with pytest.raises(TableError, match="101 different values in 10,000 rows"):
        check_labels([f"a{k}" for k in range(101)], "arm", 10_000)
    codes, labels = read_labels(np.array([3, 1, 2, 1]), "arm")
    assert labels == [1, 2, 3]
    assert codes.tolist() == [2, 0, 1, 0]


# -- a policy's own actions -----------------------------------------------------------------------------------------


def of_policy(frame, actions, **roles):
    named = Roles(**({"outcome": "earnings", "action": "arm"} | roles))
    return read_table(frame, named, Encoder.fit(frame, ["age"])[0], actions=actions)


def test_rows_to_judge_a_policy_by_have_its_actions_in_its_order():
    data = of_policy(
        role_columns(), ["mail", "control", "CALL"], propensity={"call": 0.5, "mail": 0.25, "control": 0.25}
    )
    assert data.labels == ["mail", "control", "CALL"]
    assert taken(data.feedback) == ["CALL" if label == "call" else label for label in ARMS]
    assert_array_equal(data.feedback.propensity[0], [0.25, 0.25, 0.5])
    assert taken(of_policy(role_columns(arm=np.array(["0", "1"] * 30)), [0, 1]).feedback) == [0, 1] * 30
    with pytest.raises(TableError, match="column 'arm' names the action 'call', and the actions are control, mail"):
        of_policy(role_columns(), ["control", "mail"])
    with pytest.raises(TableError, match="no row took the action 'visit', so 'arm' says nothing about it"):
        of_policy(role_columns(), ["call", "control", "mail", "visit"])


def test_outcome_columns_go_by_the_names_of_the_actions():
    full = {"outcome": None, "action": None}
    data = of_policy(role_columns(), ["earnings", "other"], **full, outcomes=["other", "earnings"])
    assert_array_equal(data.feedback.outcomes, np.column_stack([role_columns()["earnings"], role_columns()["other"]]))
    data = of_policy(role_columns(), [0, 1], **full, outcomes=["other", "earnings"])
    assert data.labels == [0, 1]
    assert_array_equal(data.feedback.outcomes[:, 0], role_columns()["other"])
    with pytest.raises(TableError, match="outcomes names 2 columns, and the policy has the actions"):
        of_policy(role_columns(), [0, 1, 2], **full, outcomes=["other", "earnings"])
