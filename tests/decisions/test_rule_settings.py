"""What small rule is asked for: words to numbers, and what is refused."""

import numpy as np
import pytest

from gbpl.decisions.rule_search import search_rule
from gbpl.decisions.rule_settings import Columns, RuleSettings

COLUMNS = Columns(("age", "age is missing", "city=Paris"), ("age", "age", "city"), (True, False, False))


def test_sizes_and_kinds():
    assert RuleSettings.of("tree").size == 2
    assert RuleSettings.of("scorecard:7").size == 7
    assert RuleSettings.of("threshold").size == 1
    assert RuleSettings.of({"kind": "tree", "size": 3, "without": "age"}).without == ("age",)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("bush:2", "must be one of tree, threshold, scorecard"),
        ("tree:5", "from 1 to 4, got 5"),
        ("tree:x", "such as tree:2"),
        ({"size": True}, "got True"),
        ({"leaf": 3}, "no setting 'leaf'"),
        ({"kind": "scorecard", "leaves": 3}, "leaves is for trees"),
        ({"min_share": 0.5}, "below 0.5"),
        ({"size": 3, "exact": True}, "depth 1 or 2"),
        ({"replicates": 2}, "from 10 to"),
        (7, "a mapping of settings, got int"),
    ],
)
def test_what_no_rule_can_have(given, why):
    with pytest.raises(ValueError, match=why):
        RuleSettings.of(given)


def test_by_number():
    settings = RuleSettings(without=["city"], monotone={"age": "email"}, min_share=0.02)
    features, limits = settings.resolved(COLUMNS, ["no", "email"], 1001, smallest=10)
    assert features == (0, 1)
    assert limits.rows == 21
    assert dict(limits.ranks) == {0: (0, 1)}
    ordered = RuleSettings(monotone={0: ["call", "no", "mail"]}, min_share=0.0)
    _, limits = ordered.resolved(COLUMNS, ["mail", "call", "no"], 50, smallest=10)
    assert limits.rows == 10
    assert dict(limits.ranks) == {0: (2, 0, 1)}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"without": ["zip"]}, "no feature; the features are age, city"),
        ({"without": ["age", "city"]}, "no column"),
        ({"monotone": {"city": "email"}}, "no order"),
        ({"monotone": {"age": "fax"}}, "no action"),
        ({"monotone": {"age": ["no"]}}, "all actions"),
    ],
)
def test_names_that_do_not_exist(given, why):
    with pytest.raises(ValueError, match=why):
        RuleSettings(**given).resolved(COLUMNS, ["no", "email"], 100)


def test_each_depth_is_searched():
    """Deeper trees are at least as good on a grid that holds every cut, and the look-ahead of depth 4 too."""
    rng = np.random.default_rng(0)
    x, scores = rng.integers(0, 12, (200, 5)).astype(float), rng.normal(size=(200, 3))
    columns = Columns(tuple("abcde"), tuple("abcde"), (True,) * 5)
    values, exact = [], []
    for depth in (1, 2, 3, 4):
        settings = RuleSettings(size=depth, min_share=0.03)
        found = search_rule(x, scores, settings, settings.resolved(columns, [0, 1, 2], 200))
        values.append(scores[np.arange(200), found.rule.actions(x)].sum())
        exact.append(found.exact)
        assert np.unique(found.rule.leaf(x), return_counts=True)[1].min() >= 6
    assert values == sorted(values)
    assert exact == [True, True, True, False]
    few = RuleSettings(size=4, leaves=5, min_share=0.03)
    assert search_rule(x, scores, few, few.resolved(columns, [0, 1, 2], 200)).rule.leaves <= 5
    twice = search_rule(
        x, scores, RuleSettings(), RuleSettings().resolved(columns, [0, 1, 2], 200), weights=np.full(200, 2.0)
    )
    once = search_rule(x, scores, RuleSettings(), RuleSettings().resolved(columns, [0, 1, 2], 200))
    assert np.array_equal(twice.rule.actions(x), once.rule.actions(x))
