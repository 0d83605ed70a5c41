"""Small rules with their labels and columns: decisions, words, and files that a stranger may have written."""

import copy
import json

import numpy as np
import pytest

from gbpl.decisions.scorecard import Scorecard
from gbpl.decisions.tree import Tree
from gbpl.frozen.small_rule import SmallRule
from gbpl.tables.encoder import Encoder

TABLE = {"age": [31, None, 40, 52, 28, 60], "sex": ["f", "m", "f", "m", "m", "f"], "old": [True, False] * 3}
ENCODER, _ = Encoder.fit(TABLE)  # age, age is missing, sex=m, old
NAN = float("nan")
TREE = Tree.of(
    [0, 2, -1, -1, -1], [34.5, 0.0, NAN, NAN, NAN], [1, 3, -1, -1, -1], [2, 4, -1, -1, -1], [-1, -1, 1, 0, 1]
)
CARD = Scorecard(
    np.array([0, 1, 3]), np.array([40.5, 0.0, 0.0]), np.array([[0, 2], [0, 1], [0, -1]]), np.array([0, -1])
)


def rule_of(rule, encoder=ENCODER):
    return SmallRule(rule, np.array(["no", "email"]), tuple(ENCODER.names), encoder)


def test_tree_decides_and_speaks():
    small = rule_of(TREE)
    rows = [
        {"age": 20, "sex": "m", "old": True},
        {"age": 20, "sex": "f", "old": True},
        {"age": None, "sex": "f", "old": None},
    ]
    assert small.predict(rows).tolist() == ["email", "no", "email"]  # the missing age is filled with 40
    assert small.predict(rows[1]).tolist() == ["no"]
    assert small.predict(ENCODER.apply(TABLE)[0]).tolist() == small.predict(TABLE).tolist()
    assert str(small).splitlines() == [
        "if age is known and <= 34.5:",
        "  if sex is m: give email",
        "  if sex is not m: give no",
        "if age is missing or > 34.5: give email",
    ]
    assert small.columns == ["age", "sex"]


def test_card_decides_and_speaks():
    small = rule_of(CARD)
    rows = {"age": [50, None, 30], "sex": ["m"] * 3, "old": [True, False, False]}
    assert small.predict(rows).tolist() == ["email", "email", "no"]  # 2 - 1 - 1, 1 - 1 and -1 points
    assert str(small).splitlines() == [
        "start: -1 for email",
        "age is known and > 40.5: +2 for email",
        "age is missing: +1 for email",
        "old is true: -1 for email",
        "give the action with the most points; email if equal",
    ]


def test_without_an_encoder():
    small = SmallRule(TREE, np.array([0, 1]), ("a", "b", "c", "d"))
    x = np.array([[30.0, 0.0, 1.0, 0.0], [34.5, 0.0, 0.0, 0.0]])
    assert small.predict(x).tolist() == [1, 0]
    assert small.predict({name: x[:, j] for j, name in enumerate("abcd")}).tolist() == [1, 0]
    assert str(small).startswith("if a <= 34.5:")
    with pytest.raises(ValueError, match="4 features"):
        small.predict(x[:, :2])
    with pytest.raises(ValueError, match="first in row 1"):
        small.predict(np.where(x == 34.5, np.nan, x))


@pytest.mark.parametrize("rule", [TREE, CARD])
def test_file(rule, tmp_path):
    small = rule_of(rule)
    small.save(tmp_path / "rule.json")
    back = SmallRule.load(tmp_path / "rule.json")
    assert str(back) == str(small)
    assert back.to_dict() == small.to_dict()
    assert back.predict(TABLE).tolist() == small.predict(TABLE).tolist()
    (tmp_path / "other.json").write_text("{")
    with pytest.raises(ValueError, match="no rule"):
        SmallRule.load(tmp_path / "other.json")
    with pytest.raises(ValueError, match="no file of a rule"):
        SmallRule.load(tmp_path)


def change(stored, path, value):
    changed = copy.deepcopy(stored)
    part = changed
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("rule", "path", "value", "why"),
    [
        (TREE, ["format"], 2, "format"),
        (TREE, ["kind"], "code", "kind"),
        (TREE, ["actions"], ["no"], "fewer than two"),
        (TREE, ["actions"], ["no", []], "neither text nor"),
        (TREE, ["features"], ["age"], "encoder"),
        (TREE, ["features"], [1], "names"),
        (TREE, ["tree", "feature", 0], 9, "features"),
        (TREE, ["tree", "left", 0], 0, "no tree"),
        (TREE, ["tree", "right", 1], 3, "no tree"),
        (TREE, ["tree", "threshold", 0], None, "threshold"),
        (TREE, ["tree", "threshold", 2], 1.0, "threshold"),
        (TREE, ["tree", "threshold", 0], "1", "threshold"),
        (TREE, ["tree", "action", 2], -1, "no action"),
        (TREE, ["tree", "action", 2], 2, "actions"),
        (TREE, ["tree"], None, "TypeError"),
        (CARD, ["scorecard", "points", 0], [1], "points"),
        (CARD, ["scorecard", "points"], [], "points"),
        (CARD, ["scorecard", "start"], [0.5, 1], "points"),
        (CARD, ["scorecard", "feature", 0], -1, "features"),
    ],
)
def test_what_is_no_rule(rule, path, value, why):
    stored = json.loads(json.dumps(rule_of(rule).to_dict()))
    with pytest.raises(ValueError, match=f"not a stored rule: .*{why}"):
        SmallRule.of_dict(change(stored, path, value))
