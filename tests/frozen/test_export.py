"""Exported rules and policies decide as numpy does, in databases and without it; what cannot be written is refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from support.exports import (
    CUTS,
    ENCODER,
    HOSTILE,
    LABELS,
    in_duckdb,
    in_onnx,
    in_python,
    in_sqlite,
    json_logic,
    json_rows,
    people,
    random_card,
    random_tree,
    small_rules,
)  # fmt: skip

from gbpl import to_conditions, to_python, to_sql
from gbpl.decisions.decisions import Rule
from gbpl.decisions.gain import GainSlope
from gbpl.frozen.committee import Effects, Part
from gbpl.frozen.export.dialects import DIALECTS
from gbpl.frozen.export.members import rounding_edges
from gbpl.frozen.file import SavedPolicy
from gbpl.frozen.small_rule import SmallRule
from gbpl.models.numpy_form import Forests, Networks

ROWS = 12_000
TABLE = people(ROWS)
RULES = small_rules()
RUN = {"duckdb": in_duckdb, "sqlite": in_sqlite}

# -- small rules: the same for every row ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_sql_decides_as_the_rule(dialect, name):
    expected = RULES[name].predict(TABLE).tolist()
    query = RULES[name].to_sql(dialect=dialect, keep=["id"])
    assert RUN[dialect](query, TABLE) == expected
    assert len(set(expected)) > 1 or name == "one action"


@pytest.mark.parametrize("name", RULES)
def test_python_decides_as_the_rule(name):
    assert in_python(RULES[name].to_python(), TABLE) == RULES[name].predict(TABLE).tolist()


@pytest.mark.parametrize("name", RULES)
def test_json_conditions_decide_as_the_rule(name):
    decide = json_logic(json.loads(json.dumps(RULES[name].to_conditions(), allow_nan=False)))
    assert [decide(row) for row in json_rows(TABLE)] == RULES[name].predict(TABLE).tolist()


@pytest.mark.parametrize("name", RULES)
def test_onnx_decides_as_the_rule(name, tmp_path):
    """An empty text stands for a missing one in ONNX files, unless it is a level, as it is here."""
    pytest.importorskip("onnxruntime")
    kept = np.array([level is not None for level in TABLE["région"].tolist()])
    table = {column: values[kept] for column, values in TABLE.items()}
    RULES[name].to_onnx(tmp_path / "rule.onnx")
    number = in_onnx(tmp_path / "rule.onnx", ENCODER, table)
    assert_array_equal(RULES[name].actions_[number], RULES[name].predict(table))


def test_ties_and_missing_values_are_among_the_rows():
    rule = RULES["tree of depth 6"]
    x, tree = rule.encode(TABLE), rule.rule
    tied = np.zeros(ROWS, bool)
    for node in np.flatnonzero(tree.feature >= 0):
        tied |= x[:, tree.feature[node]] == tree.threshold[node]
    assert tied.mean() > 0.2
    card = RULES["scorecard of 3"].rule
    points = np.sort(card.total(x), axis=1)
    assert (points[:, -1] == points[:, -2]).mean() > 0.05
    assert np.isnan(TABLE["income"]).any()


@pytest.mark.parametrize("kind", ["tree", "scorecard"])
def test_a_rule_without_encoder_decides_nothing_where_a_number_is_missing(kind):
    made = random_tree(3, 5, encoder=None) if kind == "tree" else random_card(4, 2, 3, None)
    rule = SmallRule(made, np.array(LABELS, object), ("age", "in come"))
    full = {"age": np.repeat(CUTS, 7), "in come": np.tile(CUTS, 7)}
    expected = rule.predict(np.column_stack(list(full.values()))).tolist()
    gone = full | {"in come": np.full(42, np.nan)}
    for dialect, run in RUN.items():
        assert run(rule.to_sql(dialect=dialect, keep=["id"]), full) == expected
        assert run(rule.to_sql(dialect=dialect, keep=["id"]), gone) == [None] * 42
    assert in_python(rule.to_python(), full) == expected
    assert in_python(rule.to_python(), gone) == [None] * 42
    decide = json_logic(rule.to_conditions())
    assert [decide(row) for row in json_rows(full)] == expected
    assert [decide(row) for row in json_rows(gone)] == [None] * 42


def test_without_keep_a_rule_adds_its_action_to_all_columns():
    rule = RULES["tree of depth 4"]
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        import pandas as pd

        frame = pd.DataFrame({name: values[:10] for name, values in TABLE.items()})
        connection.register("people", frame)
        found = connection.execute(rule.to_sql())
        assert [column[0] for column in found.description] == [*frame.columns, "action"]
        alone = connection.execute(f"SELECT {rule.to_sql(table=None)} FROM people").fetchall()
        assert sorted(row[0] for row in alone) == sorted(rule.predict(frame).tolist())


def test_a_column_that_is_not_there_is_an_error_in_sqlite_too():
    """SQLite would take a name in double quotes for a text."""
    table = {name: values[:5] for name, values in TABLE.items() if name != "income"}
    rule = SmallRule(random_tree(2, 0, encoder=None), np.array(LABELS, object), ("income", "other"))
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        in_sqlite(rule.to_sql(dialect="sqlite", keep=["id"]), table)


def test_a_file_of_flags():
    rule = RULES["tree of depth 4"]
    flags = json.loads(json.dumps(rule.to_conditions(flag="offer")))
    flag = flags["flags"]["offer"]
    assert flag["state"] == "ENABLED"
    assert list(flag["variants"].values()) == LABELS
    assert flag["defaultVariant"] in flag["variants"]
    rows = json_rows({name: values[:500] for name, values in TABLE.items()})
    decide = json_logic(flag["targeting"])
    given = [flag["variants"][decide(row)] for row in rows]
    assert given == rule.predict(TABLE).tolist()[:500]
    numbered = RULES["scorecard of 2"].to_conditions(flag="offer")["flags"]["offer"]
    assert numbered["variants"] == {"7": 7, "3": 3}


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_databases_read_every_float_as_it_was(dialect):
    rng = np.random.default_rng(0)
    wide = np.exp(rng.uniform(-700.0, 700.0, 500)) * rng.choice([-1.0, 1.0], 500)
    decimals = [round(v, d) for d in range(1, 15) for v in rng.normal(size=100).tolist()]
    values = [*wide.tolist(), *decimals, *rng.integers(-(2**60), 2**60, 100).astype(float).tolist(), *CUTS]
    values += [5e-324, 2.0**-1022, 1.7976931348623157e308, 0.0, -0.0, 1e22, 1e23, 2.0**53, 9007199254740993.0]
    texts = [DIALECTS[dialect].float(value) for value in values]
    if dialect == "sqlite":
        connection = sqlite3.connect(":memory:")
        read = [connection.execute(f"SELECT {text}").fetchone()[0] for text in texts]
    else:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as connection:
            read = [row[0] for row in connection.execute(f"SELECT unnest([{', '.join(texts)}])").fetchall()]
    assert read == values
    assert DIALECTS["sqlite"].float(34.5) == "34.5"


def test_edges_are_where_float32_rounds_to_the_next():
    rng = np.random.default_rng(1)
    cut = np.concatenate([rng.normal(size=500), [0.0, 1.0, -1.0, 2.0**-130]]).astype(np.float32)
    edge = rounding_edges(cut)
    near = np.concatenate([edge, np.nextafter(edge, np.inf), np.nextafter(edge, -np.inf), cut.astype(np.float64)])
    again = np.tile(cut, 4)
    assert_array_equal(near > np.tile(edge, 4), near.astype(np.float32) > again)
    assert np.isinf(rounding_edges(np.array([np.inf], np.float32))).all()


# -- whole policies ---------------------------------------------------------------------------------------------------

CENTRE, SPREAD = np.array([0.0, 2e7, -3.0, 0.5]), np.array([1.0, 2.0, 10.0, 0.01])
X = CENTRE + SPREAD * np.random.default_rng(0).normal(size=(400, 4))


def networks(activation, hidden, raw, members=3, width=4):
    rng = np.random.default_rng([len(hidden), raw])
    widths = [width, *hidden, raw]
    *layers, last = [rng.normal(size=(members, a + 1, b)).astype(np.float32) for a, b in pairwise(widths)]
    if activation == "cos":  # random features, which all members share
        layers = [np.broadcast_to(layers[0][:1], layers[0].shape)]
        return Networks(tuple(layers), last, "cos", gain=float(np.sqrt(2.0 / hidden[0])))
    made = Networks(tuple(layers), last, activation)
    return centred(made) if width == 4 else made


def centred(form):
    """The same with raw outputs of mean zero over X, so that the action varies."""
    x = ((X - CENTRE) / SPREAD).astype(np.float32)
    for member in range(len(form.last)):
        form.last[member, -1] -= (form.basis(member, x) @ form.last[member]).mean(axis=0)
    return form


def splines(raw, knots=5, members=3):
    rng = np.random.default_rng([knots, raw])
    return Networks((), rng.normal(size=(members, 4 * (knots - 1) + 1, raw)).astype(np.float32), knots=knots)


def forests(raw, members=5, depth=3):
    """A quarter of the nodes are not split; every threshold is a row's own value, rounded as the policy does."""
    rng = np.random.default_rng([depth, raw])
    shape = (3, 6, 2**depth - 1)
    feature = rng.integers(0, 4, shape).astype(np.int32)
    threshold = ((X - CENTRE) / SPREAD).astype(np.float32)[rng.integers(len(X), size=shape), feature]
    threshold = np.where(rng.random(shape) < 0.25, np.float32(np.inf), threshold)
    value = rng.normal(size=(3, 6, 2**depth, 4)).astype(np.float32)
    forest = np.array([2, 0, 1, 0, 2], np.int32)[:members]
    return centred(Forests(feature, threshold, value, forest, rng.normal(size=(members, 5, raw)).astype(np.float32)))


def policy_of(forms, squashing, count, **more):
    weights = np.random.default_rng(1).dirichlet(np.ones(sum(len(form.last) for form in forms)))
    ends = np.cumsum([len(form.last) for form in forms])
    parts = [Part(form, own) for form, own in zip(forms, np.split(weights, ends[:-1]), strict=True)]
    labels = np.array([f"action {number}'" for number in range(count)])
    given = {"squashing": squashing, "mean": CENTRE, "scale": SPREAD, "actions": labels}
    return SavedPolicy(parts, **(given | {"feature_names": ["a", HOSTILE, "SELECT", "d"]} | more))


POLICIES = {
    "tanh networks, softmax of 3": lambda: policy_of([networks("tanh", (8, 5), 3)], "softmax", 3),
    "relu networks, tanh": lambda: policy_of([networks("relu", (6,), 1)], "tanh", 2),
    "silu networks, clip": lambda: policy_of([networks("silu", (6, 4), 1)], "clip", 2),
    "random features, projected on 4": lambda: policy_of([networks("cos", (16,), 4)], "project", 4),
    "lines, gaps of 2": lambda: policy_of([networks("tanh", (), 2)], "gap 0", 2),
    "splines, gaps of 5": lambda: policy_of([splines(5)], "gap 3", 5),
    "forests, softmax of 3": lambda: policy_of([forests(3)], "softmax", 3),
    "forests, tanh": lambda: policy_of([forests(1, members=3, depth=1)], "tanh", 2),
    "all of them, with effects, prices and columns": lambda: policy_of(
        [networks("tanh", (8,), 3), forests(3), splines(3)],
        "softmax",
        3,
        columns=np.array([2, 0, 3, 1]),
        effects=Effects(2.5, 0, np.array([0.1, -0.1, 0.0])),
        gain=GainSlope(3.0, 0.1),
        rule=Rule(default=1, prices=(0.2, 0.0, 0.4)),
    ),
}


def sure_rows(policy, x):
    """Rows where no two actions are level to rounding."""
    deviation, prices = policy._committee.apply(x, draws=False)[0], policy.rule.prices
    value = deviation if policy.gain is None else policy.expected_gain(x) - (np.array(prices) if prices else 0.0)
    apart = np.sort(value, axis=1)
    return apart[:, -1] - apart[:, -2] > 1e-5


@pytest.mark.parametrize("target", [*DIALECTS, "python"])
@pytest.mark.parametrize("name", POLICIES)
def test_a_whole_policy_decides_as_numpy(name, target):
    policy = POLICIES[name]()
    table = dict(zip(policy.feature_names_in_, X.T, strict=True))
    if target == "python":
        decided = in_python(policy.to_python(), table)
    else:
        decided = RUN[target](policy.to_sql(dialect=target, keep=["id"]), table)
    expected, sure = policy.decide(X).action, sure_rows(policy, X)
    assert sure.mean() > 0.98
    assert len(set(expected.tolist())) > 1
    assert_array_equal(np.array(decided)[sure], expected[sure])


@pytest.mark.parametrize("target", [*DIALECTS, "python"])
@pytest.mark.parametrize("count", [2, 3])
def test_actions_that_are_level_go_to_the_same_one(target, count):
    form = networks("tanh", (3,), count)
    form.last[:] = 0.0
    policy = policy_of([form], "softmax", count)
    table = dict(zip(policy.feature_names_in_, X[:3].T, strict=True))
    decided = (
        in_python(policy.to_python(), table)
        if target == "python"
        else RUN[target](policy.to_sql(dialect=target, keep=["id"]), table)
    )
    assert decided == policy.decide(X[:3]).action.tolist() == [f"action {int(count == 2)}'"] * 3


@pytest.mark.parametrize("target", [*DIALECTS, "python"])
def test_a_policy_of_a_table_takes_its_raw_columns(target):
    encoder, width = ENCODER, len(ENCODER.names)
    form = networks("tanh", (5,), 3, width=width)
    table = {name: values[:300].copy() for name, values in TABLE.items()}
    for name in (HOSTILE, "income"):
        table[name][np.abs(table[name]) > 1e9] = 1.0
    x = encoder.apply(table)[0]
    policy = policy_of(
        [form], "softmax", 3, mean=x.mean(axis=0), scale=x.std(axis=0) + 0.1, feature_names=None, encoder=encoder
    )
    far = {name: values.copy() for name, values in table.items()}
    far["income"][7] = 1e300
    expected = policy.decide(table).action.tolist()
    assert len(set(expected)) == 3
    expected[7] = None  # no score: numpy would refuse it, or leave it to a person
    decided = (
        in_python(policy.to_python(), far)
        if target == "python"
        else RUN[target](policy.to_sql(dialect=target, keep=["id"]), far)
    )
    unsure = set(np.flatnonzero(~sure_rows(policy, x)).tolist())
    assert [a for row, a in enumerate(decided) if row not in unsure] == [
        a for row, a in enumerate(expected) if row not in unsure
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_missing_without_an_encoder_is_not_decided(dialect):
    policy = POLICIES["forests, softmax of 3"]()
    x = X[:4].copy()
    x[1, 2] = np.nan
    table = dict(zip(policy.feature_names_in_, x.T, strict=True))
    decided = RUN[dialect](policy.to_sql(dialect=dialect, keep=["id"]), table)
    assert [action is None for action in decided] == [False, True, False, False]
    assert in_python(policy.to_python(), table) == decided


@pytest.mark.parametrize(("dialect", "width", "count"), [("sqlite", 1200, 2), ("sqlite", 3, 120), ("duckdb", 3, 120)])
def test_many_features_and_actions_keep_within_the_limits_of_databases(dialect, width, count):
    """1,200 terms in a sum and 120 arguments of MAX: SQLite takes a depth of 1,000 and 100 arguments."""
    wide = SavedPolicy(
        [Part(networks("tanh", (), count, members=1, width=width), np.ones(1))], squashing="softmax",
        mean=np.zeros(width), scale=np.ones(width), actions=np.arange(count),
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=(9, width))
    table = {f"feature {number}": column for number, column in enumerate(x.T)}
    decided = RUN[dialect](wide.to_sql(dialect=dialect, keep=["id"]), table)
    assert decided == wide.decide(x).action.tolist()


def test_a_written_file_needs_the_standard_library_alone(tmp_path):
    path = tmp_path / "decide_here.py"
    path.write_text(POLICIES["all of them, with effects, prices and columns"]().to_python(), encoding="utf-8")
    row = dict(zip(["a", HOSTILE, "SELECT", "d"], X[0].tolist(), strict=True))
    code = (
        f"import runpy, sys; decide = runpy.run_path({str(path)!r})['decide']; "
        f"print(decide({row!r})); print([name for name in ('numpy', 'gbpl', 'jax') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    expected = POLICIES["all of them, with effects, prices and columns"]().decide(X[:1]).action[0]
    assert run.stdout.splitlines() == [expected, "[]"]


# -- what cannot be written -------------------------------------------------------------------------------------------


def test_what_python_refuses_is_refused():
    made: dict = {}
    exec(SmallRule(random_tree(1, 0, encoder=None, width=1), np.array(LABELS, object), ("age",)).to_python(), made)
    for bad in ("12", np.inf):
        with pytest.raises(ValueError, match="expected a finite number, got"):
            made["decide"]({"age": bad})
    with pytest.raises(KeyError):
        made["decide"]({})


def test_whole_policies_are_no_conditions():
    with pytest.raises(ValueError, match=r"no list of conditions, got <SavedPolicy.*; learn a small rule"):
        to_conditions(POLICIES["relu networks, tanh"]())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dialect": "oracle"}, "dialect must be one of duckdb, sqlite, got 'oracle'; try 'duckdb'"),
        ({"keep": "id"}, r"keep is a list of columns, got the text 'id'; try keep=\['id'\]"),
        ({"table": ""}, "'' is no name of a table or column in SQL; rename it"),
        ({"table": "a\0b"}, "has letters that SQL cannot hold; rename it"),
        ({"name": "\ud800"}, "has letters that SQL cannot hold; rename it"),
    ],
)
def test_wrong_queries_are_refused(given, said):
    for subject in (RULES["tree of depth 1"], POLICIES["relu networks, tanh"]()):
        with pytest.raises(ValueError, match=said):
            to_sql(subject, **given)


def test_other_refusals():
    with pytest.raises(ValueError, match=r"table=None; give the name of a table"):
        to_sql(POLICIES["relu networks, tanh"](), table=None)
    for export in (to_sql, to_python, to_conditions):
        with pytest.raises(ValueError, match=r"takes a small rule, or a policy of GBPL or GBPLNet.*got dict"):
            export({})
    dotted = SmallRule(random_tree(2, 0, encoder=None), np.array(LABELS, object), ("user.age", "x"))
    with pytest.raises(ValueError, match=r"cannot name the column 'user\.age'"):
        dotted.to_conditions()
    alike = SmallRule(random_tree(2, 0, encoder=None), np.array([1, "1", "b"], object), ("age", "x"))
    with pytest.raises(ValueError, match="read the same as names of variants"):
        alike.to_conditions(flag="offer")
    wide = SavedPolicy(
        [Part(networks("tanh", (), 1, members=1, width=2000), np.ones(1))], squashing="tanh",
        mean=np.zeros(2000), scale=np.ones(2000), actions=np.arange(2),
    )  # fmt: skip
    with pytest.raises(ValueError, match="needs a query of 2,000 columns, and databases take 1,900; use to_onnx"):
        to_sql(wide)
