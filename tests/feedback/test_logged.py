"""Logged feedback: what a user brings becomes arrays, labels stay as they were, and mistakes are named.

Each table of mistakes has a row a mistake: its name, what is passed in place of good input, the error, and what the
message must say (a regular expression): the value, the rule, the remedy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, Ridge
from support.mistakes import each_mistake, replaced

from gbpl import LoggedFeedback

ROWS = 24
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 2))
Y = RNG.normal(size=ROWS)
TWO = ["wait", "treat"] * (ROWS // 2)  # sorted: treat, wait
THREE = ["a", "b", "c"] * (ROWS // 3)
CONTROLS = RNG.normal(size=(ROWS, 3))
WEIGHT = RNG.uniform(0.5, 2.0, ROWS)
GROUPS = np.repeat(["g1", "g2", "g3"], ROWS // 3)
TABLE2 = RNG.dirichlet([4.0, 4.0], ROWS)
TABLE3 = RNG.dirichlet([4.0, 4.0, 4.0], ROWS)


def log_with(action: Any = TWO, **given: Any) -> LoggedFeedback:
    return LoggedFeedback.of(X, Y, action, **given)


# -- actions ----------------------------------------------------------------------------------------------

HALF = ROWS // 2

LABELS: list[tuple[str, Any, list[Any]]] = [
    ("ints", [7, 3] * HALF, [3, 7]),
    ("numpy ints", np.array([7, 3] * HALF), [3, 7]),
    ("negative ints", np.array([1, -1] * HALF, np.int8), [-1, 1]),
    ("floats", [1.5, 0.5] * HALF, [0.5, 1.5]),
    ("strings", ["wait", "treat"] * HALF, ["treat", "wait"]),
    ("strings of different lengths", ["a much longer label", "a"] * HALF, ["a", "a much longer label"]),
    ("numpy strings", np.array(["wait", "treat"] * HALF), ["treat", "wait"]),
    ("bools", [True, False] * HALF, [False, True]),
    ("numpy bools", np.array([True, False] * HALF), [False, True]),
    ("mixed", ["a", 1] * HALF, [1, "a"]),
    ("tuples", [(1, "x"), (0, "x")] * HALF, [(0, "x"), (1, "x")]),
    ("bytes", [b"b", b"a"] * HALF, [b"a", b"b"]),
    ("a column", np.array([[7], [3]] * HALF), [3, 7]),
    ("pandas strings", pd.Series(["wait", "treat"] * HALF), ["treat", "wait"]),
    ("pandas objects", pd.Series(["a", 1] * HALF, dtype=object), [1, "a"]),
    ("pandas categorical", pd.Series(pd.Categorical(["lo", "hi"] * HALF, categories=["lo", "hi"])), ["hi", "lo"]),
    ("pandas categories alone", pd.Categorical(["lo", "hi"] * HALF), ["hi", "lo"]),
    ("pandas categories of ints", pd.Series(pd.Categorical([7, 3] * HALF)), [3, 7]),
    ("pandas Int64", pd.Series([7, 3] * HALF, dtype="Int64"), [3, 7]),
    ("pandas boolean", pd.Series([True, False] * HALF, dtype="boolean"), [False, True]),
    ("pandas frame of one column", pd.DataFrame({"arm": [7, 3] * HALF}), [3, 7]),
    ("polars strings", pl.Series(["wait", "treat"] * HALF), ["treat", "wait"]),
    ("polars categories", pl.Series(["wait", "treat"] * HALF, dtype=pl.Categorical), ["treat", "wait"]),
    ("polars ints", pl.Series([7, 3] * HALF), [3, 7]),
    ("polars bools", pl.Series([True, False] * HALF), [False, True]),
]


@pytest.mark.parametrize(("action", "labels"), [row[1:] for row in LABELS], ids=[row[0] for row in LABELS])
def test_labels_come_back_as_they_were(action: Any, labels: list[Any]) -> None:
    log = log_with(action)
    assert log.actions.shape == (2,)
    assert log.actions.tolist() == labels
    assert [type(label) for label in log.actions.tolist()] == [type(label) for label in labels]
    assert_array_equal(log.action, [1, 0] * HALF)  # every list above begins with the second in order
    assert log.action.dtype == np.int64


@pytest.mark.parametrize(("action", "labels"), [row[1:] for row in LABELS], ids=[row[0] for row in LABELS])
def test_actions_says_the_order(action: Any, labels: list[Any]) -> None:
    log = log_with(action, actions=labels[::-1])
    assert log.actions.tolist() == labels[::-1]
    assert [type(label) for label in log.actions.tolist()] == [type(label) for label in labels[::-1]]
    assert_array_equal(log.action, [0, 1] * HALF)


@pytest.mark.parametrize(
    "order", [("c", "a", "b"), pd.Index(["c", "a", "b"]), np.array(["c", "a", "b"])], ids=["tuple", "Index", "array"]
)
def test_the_order_may_be_any_list(order: Any) -> None:
    log = log_with(THREE, actions=order)
    assert log.actions.tolist() == ["c", "a", "b"]
    assert_array_equal(log.action, [1, 2, 0] * (ROWS // 3))


def test_arrays_are_kept() -> None:
    log = log_with(TWO, controls=CONTROLS, sample_weight=WEIGHT, groups=GROUPS)
    assert len(log) == ROWS
    assert_array_equal(log.x, X)
    assert_array_equal(log.outcome, Y)
    assert_array_equal(log.controls, CONTROLS)
    assert_array_equal(log.weights, WEIGHT)
    assert_array_equal(log.groups, np.repeat([0, 1, 2], ROWS // 3))
    assert_array_equal(log.context, np.hstack([X, CONTROLS]))
    assert log.source is X
    assert log.cost is None
    assert_array_equal(log_with().context, X)


# -- propensity -------------------------------------------------------------------------------------------


def test_a_number_is_that_of_the_second_of_two() -> None:
    assert_allclose(log_with(propensity=0.3).propensity, np.tile([0.7, 0.3], (ROWS, 1)))  # treat, wait
    turned = log_with(propensity=0.3, actions=["wait", "treat"])
    assert_allclose(turned.propensity, np.tile([0.7, 0.3], (ROWS, 1)))


@pytest.mark.parametrize("number", [1 / 3, 0.3333, np.float32(1 / 3)], ids=["1/3", "0.3333", "float32"])
def test_a_number_for_three_is_the_same_for_each(number: Any) -> None:
    assert_allclose(log_with(THREE, propensity=number).propensity, np.full((ROWS, 3), 1 / 3), rtol=1e-12)


def test_a_mapping_goes_by_label() -> None:
    chances = {"c": 0.5, "a": 0.2, "b": 0.3}
    assert_allclose(log_with(THREE, propensity=chances).propensity, np.tile([0.2, 0.3, 0.5], (ROWS, 1)))
    turned = log_with(THREE, propensity=chances, actions=["b", "c", "a"])
    assert_allclose(turned.propensity, np.tile([0.3, 0.5, 0.2], (ROWS, 1)))


FORMS = {"array": np.asarray, "list": list, "pandas": pd.Series, "polars": pl.Series, "column": lambda v: v[:, None]}


@pytest.mark.parametrize("form", FORMS)
def test_one_a_row_of_two_makes_a_table(form: str) -> None:
    chance = RNG.uniform(0.1, 0.9, ROWS)
    log = log_with(propensity=FORMS[form](chance))
    for row in range(ROWS):
        taken = log.action[row]
        assert log.propensity[row, taken] == pytest.approx(chance[row])
        assert log.propensity[row, 1 - taken] == pytest.approx(1.0 - chance[row])


@pytest.mark.parametrize("form", FORMS)
def test_one_a_row_of_three_stays_a_vector(form: str) -> None:
    chance = RNG.uniform(0.1, 1.0, ROWS)
    assert_array_equal(log_with(THREE, propensity=FORMS[form](chance)).propensity, chance)


@pytest.mark.parametrize(("action", "table"), [(TWO, TABLE2), (THREE, TABLE3)], ids=["two", "three"])
def test_a_table_is_kept(action: Any, table: np.ndarray) -> None:
    assert_allclose(log_with(action, propensity=table).propensity, table, rtol=1e-14)
    assert_allclose(log_with(action, propensity=table.tolist()).propensity, table, rtol=1e-14)


def test_a_table_of_few_digits_is_scaled_to_one() -> None:
    rounded = TABLE3.round(4)
    kept = log_with(THREE, propensity=rounded).propensity
    assert_allclose(kept.sum(axis=1), 1.0, rtol=1e-15)
    assert_allclose(kept, TABLE3, atol=2e-4)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_frame_named_after_the_actions_is_aligned(kind: Any) -> None:
    frame = kind({"c": TABLE3[:, 2], "a": TABLE3[:, 0], "b": TABLE3[:, 1]})
    assert_allclose(log_with(THREE, propensity=frame).propensity, TABLE3, rtol=1e-14)
    assert_allclose(
        log_with(THREE, propensity=frame, actions=["b", "a", "c"]).propensity, TABLE3[:, [1, 0, 2]], rtol=1e-14
    )


def test_a_frame_named_after_ints_is_aligned() -> None:
    frame = pd.DataFrame({1: TABLE2[:, 1], 0: TABLE2[:, 0]})
    assert_allclose(log_with([0, 1] * HALF, propensity=frame).propensity, TABLE2, rtol=1e-14)


def test_a_frame_named_otherwise_is_refused_and_one_without_names_goes_by_place() -> None:
    with pytest.raises(ValueError, match="a column of propensity names the action 'p1', and the actions are a, b, c"):
        log_with(THREE, propensity=pd.DataFrame(TABLE3, columns=["p1", "p2", "p3"]))
    assert_allclose(log_with(THREE, propensity=pd.DataFrame(TABLE3)).propensity, TABLE3, rtol=1e-14)


def test_a_classifier_is_kept_and_none_is_none() -> None:
    learner = LogisticRegression()
    log = log_with(propensity=learner)
    assert log.propensity is None
    assert log.classifier is learner
    assert log_with().propensity is None
    assert log_with().classifier is None


# -- mistakes ---------------------------------------------------------------------------------------------

MISSING = r"action is missing in 1 row\(s\), first in row 4; drop those rows"


def instead(labels: list[Any], row: int, label: Any) -> list[Any]:
    return [*labels[:row], label, *labels[row + 1 :]]


OF: list[tuple[str, dict[str, Any], Any, str]] = [
    # action
    ("action None", {"action": instead(TWO, 4, None)}, ValueError, MISSING),
    ("action NaN among strings", {"action": instead(TWO, 4, np.nan)}, ValueError, MISSING),
    ("action NaN among numbers", {"action": replaced(np.tile([0.0, 1.0], HALF), (4, np.nan))}, ValueError, MISSING),
    ("action pd.NA", {"action": instead(TWO, 4, pd.NA)}, ValueError, MISSING),
    ("action pd.NaT", {"action": instead(TWO, 4, pd.NaT)}, ValueError, MISSING),
    ("action NA in Int64", {"action": pd.Series(instead([0, 1] * HALF, 4, pd.NA), dtype="Int64")}, ValueError, MISSING),
    ("action NA in categories", {"action": pd.Series(pd.Categorical(instead(TWO, 4, None)))}, ValueError, MISSING),
    ("action null in polars", {"action": pl.Series(instead(TWO, 4, None))}, ValueError, MISSING),
    ("action null in polars ints", {"action": pl.Series(instead([0, 1] * HALF, 4, None))}, ValueError, MISSING),
    ("one action only", {"action": ["wait"] * ROWS}, ValueError, r"every row took.*'wait'.*one action"),
    ("action of another length", {"action": TWO[:-1]}, ValueError, r"action .*\b24 rows.*\(23,\)"),
    ("action a table", {"action": np.eye(2)[[0, 1] * HALF]}, ValueError, r"action .*one label.*\b24 rows.*\(24, 2\)"),
    ("no action", {"action": None}, ValueError, r"action .*one label.*\b24 rows.*\(\)"),
    (
        "an action never taken",
        {"actions": ["wait", "treat", "cut"]},
        ValueError,
        r"no row took the action 'cut', .*leave it out of the actions, or bring rows",
    ),
    (
        "three actions never taken",
        {"actions": ["wait", "cut", "treat", "x", "y"]},
        ValueError,
        r"no row took the action 'cut' \(nor 2 more\)",
    ),
    ("an unknown action", {"actions": ["wait", "cut"]}, ValueError, r"names the action 'treat', and .* wait, cut"),
    ("a number and its name", {"action": ["1", 1] * HALF}, ValueError, r"1 and '1', which look like one label"),
    ("actions twice", {"actions": ["wait", "wait"]}, ValueError, r"differ.*\['wait', 'wait'\]"),
    ("actions a number", {"actions": 2}, ValueError, r"actions must be a list of labels, got 2"),
    # propensity: range
    (
        "propensity zero",
        {"propensity": replaced(TABLE2, ((5, 1), 0.0))},
        ValueError,
        r"propensity is 0 in row 5 \(1 such row\(s\)\); .*action 'wait', in \(0, 1\].*drop rows.*or correct it",
    ),
    (
        "propensity negative",
        {"propensity": replaced(TABLE2, ((5, 0), -0.1))},
        ValueError,
        r"is -0\.1 in row 5 .*'treat'",
    ),
    (
        "propensity above one",
        {"propensity": replaced(TABLE2, ((5, 0), 1.1), ((8, 0), 2.0))},
        ValueError,
        r"is 1\.1 in row 5 \(2 such .*'treat'",
    ),
    ("propensity NaN", {"propensity": replaced(TABLE2, ((5, 1), np.nan))}, ValueError, r"is nan in row 5 .*'wait'"),
    ("a number of zero", {"propensity": 0.0}, ValueError, r"the second action, in \(0, 1\); got 0\.0"),
    ("a number of one", {"propensity": 1}, ValueError, r"the second action, in \(0, 1\); got 1"),
    ("a number above one", {"propensity": 1.5}, ValueError, r"the second action, in \(0, 1\); got 1\.5"),
    (
        "zero in one a row",
        {"propensity": replaced(np.full(ROWS, 0.5), (7, 0.0))},
        ValueError,
        r"propensity is 0 in row 7 .*the action taken",
    ),
    (
        "certain in one a row",
        {"propensity": replaced(np.full(ROWS, 0.5), (7, 1.0))},  # row 7 took treat
        ValueError,
        r"propensity is 1 in row 7 .*the action taken, in \(0, 1\)",
    ),
    (
        "NaN in one a row of three",
        {"action": THREE, "propensity": replaced(np.full(ROWS, 0.5), (7, np.nan))},
        ValueError,
        r"propensity is nan in row 7 .*the action taken",
    ),
    (
        "NA in a nullable column",
        {"propensity": pd.Series([0.5] * (ROWS - 1) + [pd.NA], dtype="Float64")},
        ValueError,
        r"propensity is nan in row 23 .*the action taken",
    ),
    # propensity: sums
    (
        "rows that do not sum to one",
        {"action": THREE, "propensity": replaced(TABLE3, ((6, slice(None)), [0.2, 0.2, 0.2]))},
        ValueError,
        r"propensities of row 6 sum to 0\.6, not to one \(1 such row\(s\)\); .*order of the actions \['a', 'b', 'c'\]",
    ),
    ("a mapping that does not sum", {"propensity": {"wait": 0.3, "treat": 0.3}}, ValueError, r"must be > 0 .*sum to 1"),
    (
        "a number not 1/3 for three",
        {"action": THREE, "propensity": 0.5},
        ValueError,
        r"each of 3 actions, so 1/3, in \(0, 1\); got 0\.5: give a mapping",
    ),
    # propensity: shapes and kinds
    ("one an action", {"propensity": [0.4, 0.6]}, ValueError, r"one number.*\b24 rows.*\(24, 2\).*got shape \(2,\)"),
    ("too few columns", {"action": THREE, "propensity": TABLE2}, ValueError, r"\(24, 3\).*got shape \(24, 2\)"),
    ("too few rows", {"propensity": TABLE2[:-1]}, ValueError, r"\b24 rows.*got shape \(23, 2\)"),
    ("three dimensions", {"propensity": TABLE2[:, :, None]}, ValueError, r"got shape \(24, 2, 1\)"),
    (
        "a mapping with a wrong label",
        {"propensity": {"wait": 0.5, "cut": 0.5}},
        ValueError,
        r"propensity names the action 'cut', and the actions are treat, wait",
    ),
    ("a mapping without one", {"propensity": {"wait": 1.0}}, ValueError, r"does not name the action 'treat'"),
    ("a string", {"propensity": "pscore"}, ValueError, r"propensity must be numbers.*'pscore'.*from_frame"),
    ("strings", {"propensity": ["x"] * ROWS}, ValueError, r"propensity must be numbers, got \['x'"),
    ("a regressor", {"propensity": Ridge()}, TypeError, r"propensity .*classifier with predict_proba, got Ridge"),
    # y
    ("y missing", {"y": None}, ValueError, r"requires y.*None: the outcome of the action taken"),
    ("y a table", {"y": np.ones((ROWS, 2))}, ValueError, r"y .*one number.*\b24 rows.*\(24, 2\)"),
    ("y too short", {"y": Y[:-1]}, ValueError, r"y .*one number.*\b24 rows.*\(23,\)"),
    ("y NaN", {"y": replaced(Y, (9, np.nan))}, ValueError, r"y contains 1 NaN.* row 9; drop those rows"),
    ("y inf", {"y": replaced(Y, (9, -np.inf))}, ValueError, r"y contains 1 infinite.* row 9\b"),
    ("y null in polars", {"y": pl.Series([None, *Y[1:]])}, ValueError, r"y contains 1 NaN.* row 0\b"),
    ("y strings", {"y": ["good", "bad"] * HALF}, ValueError, r"y must be numbers.*the action taken; got \['good'"),
    # controls
    (
        "controls of another length",
        {"controls": CONTROLS[:-1]},
        ValueError,
        r"X and controls .*inconsistent.*\b24 and 23\b",
    ),
    ("controls NaN", {"controls": replaced(CONTROLS, ((3, 1), np.nan))}, ValueError, r"controls .*1 NaN.* 1,.*row 3"),
    (
        "controls not numbers",
        {"controls": pd.DataFrame({"city": TWO})},
        ValueError,
        r"controls .*not numbers.*'city'",
    ),
    # cost
    ("cost a number", {"cost": 0.2}, ValueError, r"cost is 0\.2, but of which action\? .*\{'wait': 0\.2\}"),
    ("cost of an unknown label", {"cost": {"cut": 1.0}}, ValueError, r"cost names 'cut'.*\['treat', 'wait'\]"),
    ("cost too long", {"cost": [1.0, 2.0, 3.0]}, ValueError, r"cost .*2 actions.*\(24, 2\); got shape \(3,\)"),
    ("cost one a row", {"cost": np.ones(ROWS)}, ValueError, r"cost .*got shape \(24,\)"),
    ("cost NaN", {"cost": {"wait": np.nan}}, ValueError, r"cost must be finite.*NaN"),
    # groups
    ("groups of another length", {"groups": GROUPS[:-1]}, ValueError, r"groups .*one label.*\b24 rows.*\(23,\)"),
    ("one group", {"groups": ["all"] * ROWS}, ValueError, r"one group.*'all'.*two or more"),
    # weights
    (
        "an action of weight zero",
        {"sample_weight": np.where(np.array(TWO) == "wait", 0.0, WEIGHT)},
        ValueError,
        r"action .*'wait'.* is taken only in rows of sample_weight 0",
    ),
    ("weights negative", {"sample_weight": replaced(WEIGHT, (3, -1.0))}, ValueError, r"sample_weight is -1 in row 3; "),
    ("weights too few", {"sample_weight": WEIGHT[:-1]}, ValueError, r"sample_weight .*\b24 rows.*\(23,\)"),
    ("weights all zero", {"sample_weight": np.zeros(ROWS)}, ValueError, r"sample_weight is zero in every row"),
    # X
    ("X NaN", {"X": replaced(X, ((2, 1), np.nan))}, ValueError, r"X .*1 NaN.* row 2\b"),
    ("X of one row", {"X": X[:1], "y": Y[:1], "action": ["wait"]}, ValueError, r"1 sample\(s\)"),
]  # fmt: skip


@each_mistake(OF)
def test_of_refuses(given: dict[str, Any], error: Any, message: str) -> None:
    parts = {"X": X, "y": Y, "action": TWO, **given}
    with pytest.raises(error, match=message):
        LoggedFeedback.of(**parts)


def test_a_continuous_action_is_refused() -> None:
    x = np.zeros((300, 1))
    with pytest.raises(ValueError, match=r"300 different values in 300 rows, .*a choice among few"):
        LoggedFeedback.of(x, np.zeros(300), np.linspace(0.0, 1.0, 300))
    assert len(LoggedFeedback.of(x, np.zeros(300), np.arange(300) % 90).actions) == 90  # many, but each taken again


# -- weights and costs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["array", "pandas", "polars", "list"])
def test_rows_of_weight_zero_are_dropped_everywhere(kind: str) -> None:
    frame = {"age": X[:, 0], "dose": X[:, 1]}
    source = {
        "array": X, "pandas": pd.DataFrame(frame, index=np.arange(ROWS) + 100), "polars": pl.DataFrame(frame),
        "list": X.tolist(),
    }[kind]  # fmt: skip
    kept = np.arange(ROWS) % 5 != 0
    cost = RNG.normal(size=(ROWS, 2))
    log = LoggedFeedback.of(
        source, Y, TWO, propensity=TABLE2, controls=CONTROLS, cost=cost, groups=GROUPS,
        sample_weight=np.where(kept, WEIGHT, 0.0),
    )  # fmt: skip
    whole = log_with(propensity=TABLE2, controls=CONTROLS, cost=cost, groups=GROUPS, sample_weight=WEIGHT)
    for name in ("x", "outcome", "action", "propensity", "controls", "cost", "weights", "groups", "context"):
        assert_array_equal(getattr(log, name), getattr(whole, name)[kept], err_msg=name)
    assert len(log) == kept.sum()
    assert log.actions.tolist() == whole.actions.tolist()
    assert type(log.source) is type(source)
    assert_array_equal(np.asarray(log.source), X[kept])
    if kind == "pandas":
        assert_array_equal(log.source.index, np.flatnonzero(kept) + 100)


def test_a_table_of_propensities_is_copied_only_where_it_has_to_be() -> None:
    """A million rows of it are the third of their data."""
    table = np.tile([0.25, 0.75], (2 * HALF, 1))
    assert log_with([0, 1] * HALF, propensity=table).propensity is table
    rough = np.float32(table) + np.float32(1e-5)
    propensity = log_with([0, 1] * HALF, propensity=rough).propensity
    assert_allclose(propensity.sum(axis=1), 1.0, rtol=1e-15)
    assert_allclose(propensity, rough / rough.sum(axis=1, keepdims=True, dtype=np.float64), rtol=1e-6)


def test_rows_of_weight_zero_are_dropped_from_one_propensity_a_row() -> None:
    chance = RNG.uniform(0.1, 0.9, ROWS)
    kept = np.arange(ROWS) % 5 != 0
    log = log_with(THREE, propensity=chance, sample_weight=kept.astype(float))
    assert_array_equal(log.propensity, chance[kept])
    assert_array_equal(log.weights, np.ones(kept.sum()))


def test_one_weight_for_all() -> None:
    assert_array_equal(log_with(sample_weight=2.0).weights, np.full(ROWS, 2.0))


@pytest.mark.parametrize(
    ("cost", "row"),
    [
        ({"wait": 0.5}, [0.0, 0.5]),
        ({"wait": 0.5, "treat": 2.0}, [2.0, 0.5]),
        ([2.0, 0.5], [2.0, 0.5]),
        (np.tile([2.0, 0.5], (ROWS, 1)), [2.0, 0.5]),
    ],
    ids=["one label", "mapping", "one an action", "table"],
)
def test_cost_is_a_table_and_net_outcome_is_net_of_it(cost: Any, row: list[float]) -> None:
    log = log_with(cost=cost)
    assert_array_equal(log.cost, np.tile(row, (ROWS, 1)))
    of_label = dict(zip(["treat", "wait"], row, strict=True))
    assert_allclose(log.net_outcome, [y - of_label[label] for y, label in zip(Y, TWO, strict=True)])
    assert_array_equal(log.outcome, Y)


def test_without_cost_net_is_the_outcome() -> None:
    assert_array_equal(log_with().net_outcome, Y)


# -- frames -----------------------------------------------------------------------------------------------

COLUMNS = {
    "age": X[:, 0],
    "dose": X[:, 1],
    "arm": THREE,
    "sales": Y,
    "weather": CONTROLS[:, 0],
    "weekday": CONTROLS[:, 1],
    "p_a": TABLE3[:, 0],
    "p_b": TABLE3[:, 1],
    "p_c": TABLE3[:, 2],
    "p_taken": np.take_along_axis(TABLE3, np.tile([0, 1, 2], ROWS // 3)[:, None], axis=1)[:, 0],
    "weight": WEIGHT,
    "city": GROUPS,
}
FRAMES = {"pandas": pd.DataFrame(COLUMNS), "polars": pl.DataFrame(COLUMNS)}
EACH = ["p_a", "p_b", "p_c"]


def from_frame(kind: str, **given: Any) -> LoggedFeedback:
    return LoggedFeedback.from_frame(FRAMES[kind], outcome="sales", action="arm", **given)


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_gives_the_arrays_that_of_gives(kind: str) -> None:
    log = from_frame(
        kind, features=["dose", "age"], propensity=EACH, controls=["weather", "weekday"], sample_weight="weight",
        groups="city", cost={"b": 0.5}, actions=["a", "b", "c"],
    )  # fmt: skip
    other = LoggedFeedback.of(
        X[:, [1, 0]], Y, THREE, propensity=TABLE3, controls=CONTROLS[:, :2], sample_weight=WEIGHT, groups=GROUPS,
        cost={"b": 0.5},
    )  # fmt: skip
    for name in ("x", "outcome", "action", "actions", "propensity", "controls", "cost", "weights", "groups"):
        assert_array_equal(getattr(log, name), getattr(other, name), err_msg=name)
    assert list(log.source.columns) == ["dose", "age"]
    assert type(log.source) is type(FRAMES[kind])


@pytest.mark.parametrize("kind", FRAMES)
def test_features_are_the_columns_without_a_role(kind: str) -> None:
    log = from_frame(kind, propensity=EACH, controls=["weekday"], sample_weight="weight", groups="city")
    assert list(log.source.columns) == ["age", "dose", "weather", "p_taken"]
    assert_array_equal(log.x, np.column_stack([COLUMNS[name] for name in log.source.columns]))
    log = from_frame(kind, propensity="p_taken", groups="city")
    assert list(log.source.columns) == ["age", "dose", "weather", "weekday", *EACH, "weight"]
    assert log.weights is None


@pytest.mark.parametrize("kind", FRAMES)
def test_propensity_of_a_frame(kind: str) -> None:
    features = ["age"]
    assert_array_equal(from_frame(kind, features=features, propensity="p_taken").propensity, COLUMNS["p_taken"])
    assert_allclose(from_frame(kind, features=features, propensity=EACH).propensity, TABLE3, rtol=1e-14)
    turned = from_frame(kind, features=features, propensity=["p_c", "p_a", "p_b"], actions=["c", "a", "b"])
    assert_allclose(turned.propensity, TABLE3[:, [2, 0, 1]], rtol=1e-14)
    assert_allclose(from_frame(kind, features=features, propensity=1 / 3).propensity, 1 / 3)
    mapping = {"a": 0.2, "b": 0.3, "c": 0.5}
    assert_allclose(from_frame(kind, features=features, propensity=mapping).propensity[0], [0.2, 0.3, 0.5])
    learner = LogisticRegression()
    assert from_frame(kind, features=features, propensity=learner).classifier is learner


def test_zero_weights_leave_rows_out_of_a_frame() -> None:
    kept = np.arange(ROWS) % 4 != 0
    for frame in (FRAMES["pandas"].assign(weight=kept * 1.0), FRAMES["polars"].with_columns(weight=kept * 1.0)):
        log = LoggedFeedback.from_frame(
            frame, outcome="sales", action="arm", features=["age"], sample_weight="weight", propensity=1 / 3
        )
        assert_array_equal(log.outcome, Y[kept])
        assert_array_equal(log.source["age"].to_numpy(), X[kept, 0])


FROM_FRAME: list[tuple[str, dict[str, Any], Any, str]] = [
    ("outcome unknown", {"outcome": "sale"}, ValueError, r"no column 'sale'; did you mean 'sales'\?"),
    ("action unknown", {"action": "amr"}, ValueError, r"no column 'amr'; did you mean 'arm'\?"),
    ("feature unknown", {"features": ["age", "doze"]}, ValueError, r"no column 'doze'; did you mean 'dose'\?"),
    ("control unknown", {"controls": ["wether"]}, ValueError, r"no column 'wether'; did you mean 'weather'\?"),
    ("propensity unknown", {"propensity": "p_take"}, ValueError, r"no column 'p_take'; did you mean 'p_taken'\?"),
    ("one of the propensities unknown", {"propensity": ["p_a", "p_b", "p_cc"]}, ValueError, r"'p_cc'; did you mean"),
    ("weight unknown", {"sample_weight": "weigth"}, ValueError, r"no column 'weigth'; did you mean 'weight'\?"),
    ("groups unknown", {"groups": "cty"}, ValueError, r"no column 'cty'; did you mean 'city'\?"),
    ("nothing near", {"outcome": "zzz"}, ValueError, r"no column 'zzz'; its columns are 'age', 'dose'"),
    ("outcome is the action", {"outcome": "arm"}, ValueError, r"column 'arm' has two roles; a column has one"),
    ("a feature and control", {"features": ["age", "dose"], "controls": ["dose"]}, ValueError, r"'dose' has two roles"),
    ("a feature twice", {"features": ["age", "age"]}, ValueError, r"column 'age' has two roles"),
    (
        "a feature is a propensity",
        {"features": ["age", "p_taken"], "propensity": "p_taken"},
        ValueError,
        r"'p_taken' has two roles",
    ),
    (
        "no features left",
        {"controls": ["age", "dose", "weather", "weekday"], "propensity": EACH, "sample_weight": "weight",
         "groups": "city", "frame": FRAMES["pandas"].drop(columns="p_taken")},
        ValueError,
        r"no column is left for the features: .*'age'.*name the features",
    ),
    ("an array", {"frame": X}, TypeError, r"pandas or polars frame, got ndarray; .*LoggedFeedback\.of"),
    ("a dict", {"frame": COLUMNS}, TypeError, r"pandas or polars frame, got dict"),
    ("features that are not numbers", {"features": ["age", "city"]}, ValueError, r"not numbers.*'city'"),
]  # fmt: skip


@pytest.mark.parametrize("kind", FRAMES)
@each_mistake(FROM_FRAME)
def test_from_frame_refuses(kind: str, given: dict[str, Any], error: Any, message: str) -> None:
    parts = {"frame": FRAMES[kind], "outcome": "sales", "action": "arm", **given}
    with pytest.raises(error, match=message):
        LoggedFeedback.from_frame(**parts)


# -- Open Bandit Pipeline ---------------------------------------------------------------------------------


def obp_dict(places: int = 1, **changes: Any) -> dict[str, Any]:
    """A feedback dict as obp's SyntheticBanditDataset (one place) or OpenBanditDataset (three) gives it."""
    rng = np.random.default_rng(1)
    chances = np.stack([rng.dirichlet([4.0, 4.0, 4.0], ROWS) for _ in range(places)], axis=2)
    action = np.tile([0, 1, 2], ROWS // 3)
    position = np.repeat(np.arange(places), ROWS // places)
    feedback = {
        "n_rounds": ROWS,
        "n_actions": 3,
        "context": X,
        "action_context": np.eye(3, dtype=int),
        "action": action,
        "position": None if places == 1 else position,
        "reward": Y,
        "expected_reward": rng.normal(size=(ROWS, 3)),
        "pi_b": chances,
        "pscore": chances[np.arange(ROWS), action, position],
    }
    return {**feedback, **changes}


def test_from_obp() -> None:
    feedback = obp_dict()
    log = LoggedFeedback.from_obp(feedback)
    assert_array_equal(log.x, X)
    assert_array_equal(log.outcome, Y)
    assert_array_equal(log.action, feedback["action"])
    assert log.actions.tolist() == [0, 1, 2]
    assert_allclose(log.propensity, feedback["pi_b"][:, :, 0], rtol=1e-14)


def test_the_way_to_obp_and_back() -> None:
    feedback = obp_dict()
    back = LoggedFeedback.from_obp(feedback).to_obp()
    assert back.keys() == feedback.keys()
    assert (back["n_rounds"], back["n_actions"], back["position"]) == (ROWS, 3, None)
    for name in ("context", "action_context", "action", "reward"):
        assert_array_equal(back[name], feedback[name], err_msg=name)
    for name in ("pi_b", "pscore"):
        assert back[name].shape == feedback[name].shape
        assert_allclose(back[name], feedback[name], rtol=1e-14, err_msg=name)


def test_labels_become_numbers_in_obp() -> None:
    log = log_with(THREE, propensity=TABLE3, actions=["c", "a", "b"])
    there = log.to_obp()
    assert_array_equal(there["action"], [1, 2, 0] * (ROWS // 3))
    again = LoggedFeedback.from_obp(there)
    assert again.actions.tolist() == [0, 1, 2]
    assert_array_equal(again.action, log.action)
    assert_allclose(again.propensity, log.propensity)


def test_only_pscore() -> None:
    feedback = obp_dict(pi_b=None)
    log = LoggedFeedback.from_obp(feedback)
    assert_array_equal(log.propensity, feedback["pscore"])
    there = log.to_obp()
    assert there["pi_b"] is None
    assert_array_equal(there["pscore"], feedback["pscore"])
    del feedback["pi_b"]
    assert_array_equal(LoggedFeedback.from_obp(feedback).propensity, feedback["pscore"])


def test_neither_propensity() -> None:
    log = LoggedFeedback.from_obp(obp_dict(pi_b=None, pscore=None))
    assert log.propensity is None
    with pytest.raises(ValueError, match=r"needs propensities.*have none; give them, or estimate them"):
        log.to_obp()


def test_the_number_of_actions_may_be_left_out() -> None:
    feedback = obp_dict()
    del feedback["n_actions"]
    assert LoggedFeedback.from_obp(feedback).actions.tolist() == [0, 1, 2]


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("known", ["pi_b", "pscore"])
def test_one_of_several_positions(position: int, known: str) -> None:
    feedback = obp_dict(3)
    if known == "pscore":
        feedback["pi_b"] = None
    log = LoggedFeedback.from_obp(feedback, position=position)
    rows = feedback["position"] == position
    assert len(log) == rows.sum() == ROWS // 3
    assert_array_equal(log.x, X[rows])
    assert_array_equal(log.outcome, Y[rows])
    assert_array_equal(log.action, feedback["action"][rows])
    wanted = feedback["pscore"][rows] if known == "pscore" else feedback["pi_b"][rows, :, position]
    assert_allclose(log.propensity, wanted, rtol=1e-14)


@pytest.mark.parametrize("place", [0, 2])
def test_a_log_of_one_position_needs_no_name(place: int) -> None:
    feedback = obp_dict(position=np.full(ROWS, place))
    feedback["pi_b"] = np.concatenate([obp_dict(3)["pi_b"][:, :, :place], feedback["pi_b"]], axis=2)
    log = LoggedFeedback.from_obp(feedback)
    assert len(log) == ROWS
    assert_allclose(log.propensity, feedback["pi_b"][:, :, place], rtol=1e-14)
    assert_array_equal(LoggedFeedback.from_obp(feedback, position=place).propensity, log.propensity)


OBP: list[tuple[str, dict[str, Any], Any, str]] = [
    ("several positions", {"feedback": obp_dict(3)}, ValueError, r"positions \[0, 1, 2\].*name one.*position=0"),
    ("no such position", {"feedback": obp_dict(3), "position": 7}, ValueError, r"no row has position 7.*\[0, 1, 2\]"),
    ("no positions", {"feedback": obp_dict(), "position": 1}, ValueError, r"no positions, got position=1; leave it"),
    ("no reward", {"feedback": obp_dict(reward=None)}, ValueError, r"has no reward; it has \[.*'context'"),
    ("empty", {"feedback": {"pscore": Y}}, ValueError, r"has no context, action, reward; it has \['pscore'\]"),
    ("more actions than seen", {"feedback": obp_dict(n_actions=5)}, ValueError, r"no row took the action 3 \(nor 1"),
    ("an action beyond", {"feedback": obp_dict(n_actions=2)}, ValueError, r"names the action '2', and .* 0, 1"),
    ("reward NaN", {"feedback": obp_dict(reward=replaced(Y, (3, np.nan)))}, ValueError, r"y contains 1 NaN.* row 3\b"),
    (
        "pi_b zero",
        {"feedback": obp_dict(pi_b=np.tile([[[0.5], [0.5], [0.0]]], (ROWS, 1, 1)))},
        ValueError,
        r"propensity is 0 in row 0 \(24 such .*action 2",
    ),
]  # fmt: skip


@each_mistake(OBP)
def test_from_obp_refuses(given: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        LoggedFeedback.from_obp(**given)


# -- known bugs: the mark goes when the bug does ----------------------------------------------------------


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_a_frame_of_costs_is_aligned(kind: Any) -> None:
    frame = kind({"wait": np.zeros(ROWS), "treat": np.ones(ROWS)})
    assert_array_equal(log_with(cost=frame).cost, np.tile([1.0, 0.0], (ROWS, 1)))  # treat, wait


def test_groups_are_numbered_after_rows_of_weight_zero_are_dropped() -> None:
    log = log_with(groups=GROUPS, sample_weight=np.where(GROUPS == "g1", 0.0, 1.0))
    assert_array_equal(np.unique(log.groups), [0, 1])


def test_one_group_left_by_zero_weights_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one group"):
        log_with(groups=np.repeat(["g1", "g2"], HALF), sample_weight=np.repeat([0.0, 1.0], HALF))


def test_an_action_of_weight_zero_is_named_plainly() -> None:
    with pytest.raises(ValueError, match=r"action 'wait' is taken only"):
        log_with(sample_weight=np.where(np.array(TWO) == "wait", 0.0, 1.0))
