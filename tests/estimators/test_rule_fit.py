"""A small rule beside a policy: its value and price restated from held-out decisions, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from support.policies import small_logged_net, small_net

from gbpl.decisions.rule_fits import fold_doubt
from gbpl.decisions.rule_search import coarse_cuts, gap_of, rule_on_cuts, search_rule
from gbpl.decisions.rule_settings import Columns, RuleSettings
from gbpl.frozen.small_rule import SmallRule

N, COST = 240, 0.25
NAMES = ("feature 0", "feature 1", "feature 2")


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x, action = rng.normal(size=(N, 3)), rng.integers(0, 2, N)
    y = rng.normal(size=N) + action * np.where(x[:, 0] > 0.0, 1.5, -1.0)
    return x, y, action


@pytest.fixture(scope="module")
def logged():
    x, y, action = rows()
    cost = np.tile([0.0, COST], (N, 1))
    return small_logged_net(zeta="auto").fit(x, y, action=action, propensity=np.full(N, 0.5), cost=cost)


def test_value_and_price(logged):
    """psi_i of rules without the fold, plus what all rows add; dependence and the luck of the search in the error."""
    x, _, _ = rows()
    fit = logged.small_rule("threshold", replicates=20, seed=3)
    training = logged._training
    settings = RuleSettings(kind="threshold", replicates=20, seed=3)
    resolved = settings.resolved(Columns(NAMES, NAMES, (True,) * 3), [0, 1], N)
    scores = training.nuisances.pseudo_outcomes("dr")
    whole = search_rule(x, scores, settings, resolved).rule
    assert np.array_equal(fit.rule.predict(x), whole.actions(x))
    held = np.empty(N, int)
    for number, fold in enumerate(training.held_out.folds):
        rest = np.setdiff1d(np.arange(N), fold)
        table = training.nuisances.pseudo_outcomes("dr", fold=number)  # by models that saw nothing of the fold
        held[fold] = search_rule(x[rest], table[rest], settings, resolved).rule.actions(x[fold])
    at = np.arange(N)
    theta = logged.expected_gain(x)
    doubt = training.fit.effect.doubt
    more = (theta[at, whole.actions(x)] - theta[at, held]) / doubt
    psi = scores[at, held] + more
    assert fit.value.estimate == pytest.approx(psi.mean(), rel=1e-5)
    rng = np.random.default_rng([3, 23])
    given = []
    cuts = coarse_cuts(x, settings, resolved)
    for _ in range(20):
        weighted = gap_of(scores, rng.standard_exponential(N))
        given.append(rule_on_cuts(cuts, weighted, settings, resolved.limits).rule.actions(x))
    given = np.stack(given)
    spread = np.std([theta[at, own].mean() / doubt for own in given])
    squares = 1.12 * np.sum((psi - psi.mean()) ** 2) + np.sum(fold_doubt(given, scores) ** 2)
    variance = squares / (N * (N - 1)) + (0.5 * more.mean()) ** 2 + spread**2
    assert fit.value.se == pytest.approx(np.sqrt(variance), rel=1e-4)
    full = logged.cross_fitted_value()
    assert fit.price.estimate == pytest.approx(full.estimate - fit.value.estimate)
    assert_allclose(fit.price.influence, full.influence - fit.value.influence)
    assert fit.price.what == "price"
    assert fit.agreement == pytest.approx(np.mean(logged.predict(x) == fit.rule.predict(x)))


def test_in_words_and_json(logged):
    x, _, _ = rows()
    fit = logged.small_rule("tree", 2, replicates=10, without=["feature 2"], monotone={"feature 0": 1}, leaves=3)
    assert "feature 2" not in str(fit.rule)
    low, high = x.copy(), x.copy()
    low[:, 0], high[:, 0] = -3.0, 3.0
    assert np.all(fit.rule.predict(low) <= fit.rule.predict(high))
    told = fit.to_dict(x)
    assert told["constraints"] == {
        "without": ["feature 2"], "monotone": {"feature 0": "1"}, "leaves": 3, "min_share": 0.05
    }  # fmt: skip
    nodes = {node["id"]: node for node in told["nodes"]}
    assert nodes[0]["rows"] == N
    for node in nodes.values():
        if node["left"] is not None:
            assert nodes[node["left"]]["rows"] + nodes[node["right"]]["rows"] == node["rows"]
        else:
            assert node["rows"] >= 12
            assert 0.0 <= node["share"] <= 1.0
    assert sum(told["shares"]) == pytest.approx(1.0)
    assert SmallRule.of_dict(told["rule"]).predict(x).tolist() == fit.rule.predict(x).tolist()
    assert "price against the full policy" in str(fit)
    card = logged.small_rule("scorecard", 2, replicates=10).to_dict(x)
    assert card["nodes"] is None
    assert len(card["card"]["conditions"]) <= 2


def test_full_feedback_weights_and_groups():
    x, _, _ = rows()
    outcomes = np.column_stack([np.zeros(N), np.where(x[:, 1] > 0.0, 1.0, -1.0), np.full(N, -0.5)])
    weights, groups = np.linspace(1.0, 2.0, N), np.arange(N) // 2
    policy = small_net(zeta="auto").fit(x, outcomes, sample_weight=weights, groups=groups)
    fit = policy.small_rule("threshold", replicates=10)
    assert fit.rule.columns == ["feature 1"]
    assert fit.value.freedom == N / 2 - 1
    assert fit.value.estimate == pytest.approx(np.average(np.maximum(outcomes[:, 1], 0.0), weights=weights), abs=0.05)


def test_refused(logged):
    with pytest.raises(ValueError, match="depth of a tree"):
        logged.small_rule("tree", 9)
    with pytest.raises(ValueError, match="no feature"):
        logged.small_rule(without=["age"])
