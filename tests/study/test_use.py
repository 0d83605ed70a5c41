"""How a policy is used: under a capacity it is compared with what that allows, and people look where a look pays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.cli import run
from support.policies import small_study_net

import gbpl
from gbpl import MLP, FitConfig, GBPLNet
from gbpl.study.decide_file import decide_file
from gbpl.tables.frames import TableError


def trial(n: int = 300, seed: int = 0) -> pd.DataFrame:
    """`mail` gains where age is above zero; everybody gains by it on average."""
    rng = np.random.default_rng(seed)
    age, arm = rng.normal(size=n), rng.choice(["mail", "none"], n)
    spend = (arm == "mail") * (0.4 + age) + 0.5 * rng.normal(size=n)
    return pd.DataFrame({"age": age, "noise": rng.normal(size=n), "arm": arm, "spend": spend})


ROLES = {"outcome": "spend", "action": "arm", "propensity": 0.5, "default": "none"}


@pytest.fixture(scope="module")
def limited() -> gbpl.Study:
    return gbpl.learn(trial(), **ROLES, capacity={"mail": 0.3}, estimator=small_study_net(), unit="$", per="customer")


@pytest.fixture(scope="module")
def averaged() -> gbpl.Study:
    fast = GBPLNet(model=MLP(hidden=(8,)), fit_config=FitConfig(max_epochs=20), random_state=0)
    return gbpl.learn(trial(), **ROLES, review=25, estimator=fast)


# -- capacity ---------------------------------------------------------------------------------------------------------


def test_the_verdict_compares_with_what_the_capacity_allows(limited: gbpl.Study) -> None:
    scores = limited.fitted.pseudo_outcomes_
    lot = 0.3 * scores[:, 0] + 0.7 * scores[:, 1]
    mail, none = limited.summary["alternatives"][:2]
    assert mail["label"] == "30\u00a0% by lot get mail, none for the others"
    assert_allclose([mail["value"], none["value"]], [lot.mean(), scores[:, 1].mean()])
    assert_allclose(mail["se"], lot.std(ddof=1) / np.sqrt(len(lot)))
    assert (mail["share"], none["share"]) == (0.3, 1.0)
    assert mail["best"]
    assert mail["value"] < scores[:, 0].mean(), "mail for everybody is worth more, and is not allowed"
    page = limited.report()
    assert "giving <bdi>mail</bdi> to 30\u00a0% of the rows by lot and none to the others" in page
    assert "everybody gets mail" not in page


def test_draws_decide_at_the_prices_too(limited: gbpl.Study) -> None:
    """Shares of draws are of the policy that is shipped: most of them agree with what it gives, within the capacity."""
    decided = limited.decisions
    assert decided.draw_share is not None
    free = limited.policy.action_probability(trial())
    assert free[:, 0].mean() > 0.5, "without the limit, most draws would give mail to most"
    assert decided.draw_share[:, 0].mean() < 0.45
    best = decided.actions[np.argmax(decided.draw_share, axis=1)]
    assert np.mean(best == decided.action) > 0.9


def test_a_negative_cost_is_noted() -> None:
    study = gbpl.learn(trial(), **ROLES, cost={"none": -0.5}, estimator=small_study_net())
    assert "the cost of none is -0.5: it is counted as a gain" in study.summary["data"]["notes"]


# -- review -----------------------------------------------------------------------------------------------------------


def test_the_value_of_a_review_is_the_expected_loss(averaged: gbpl.Study) -> None:
    """E[max_a effect_a] - E[effect_decided], by the posterior's own draws in JAX."""
    rows = trial()
    effects = np.concatenate(
        [e for _, e in averaged.fitted.posterior().effects(averaged.fitted._training.feedback.x)], 1
    )
    number = (averaged.decisions.action == "none").astype(int)
    loss = effects.max(axis=2).mean(axis=0) - effects.mean(axis=0)[np.arange(len(rows)), number]
    found = averaged.policy.review_value(rows)
    assert_allclose(found, loss, atol=2e-4 * np.abs(effects).max())
    assert (found >= 0.0).all()


def test_the_rows_where_a_look_is_worth_most_and_no_other(averaged: gbpl.Study, tmp_path: Path) -> None:
    value, away = averaged.decisions.review_value, averaged.decisions.deferred
    assert value is not None
    assert away is not None
    assert away.sum() == 25
    assert value[away].min() >= value[~away].max()
    assert averaged.summary["reviewed"] == {"asked": 25, "rows": 25, "value": pytest.approx(value[away].sum())}
    trial().to_csv(tmp_path / "new.csv", index=False)
    decided = decide_file(averaged.policy, tmp_path / "new.csv", tmp_path / "out.csv", review=25)
    written = pd.read_csv(tmp_path / "out.csv")
    assert_array_equal(written["deferred"], away)
    assert_allclose(written["review value"], value, atol=1e-9)
    assert (decided.deferred, decided.review_value) == (25, pytest.approx(value[away].sum()))
    assert not averaged.policy.decide(trial()).deferred.any(), "without a number nobody looks"


def test_without_review_nothing_is_said_of_close_calls(limited: gbpl.Study) -> None:
    assert limited.summary["reviewed"] is None
    page = limited.report()
    assert "have a person look" not in page.partition('<section id="disagreement"')[0]


def test_what_is_no_number_of_rows_is_refused(averaged: gbpl.Study) -> None:
    with pytest.raises(TableError, match="review must be a whole number of rows, 0 or more, got -1; try 200"):
        gbpl.learn(trial(), **ROLES, review=-1)
    with pytest.raises(TableError, match="give one of them"):
        gbpl.learn(trial(), **ROLES, review=5, defer=0.5)
    with pytest.raises(ValueError, match=r"got 2\.5; try 200"):
        averaged.policy.decide(trial(), review=2.5)
    with pytest.raises(TableError, match="unit must be text of 1 to 20 letters"):
        gbpl.learn(trial(), **ROLES, unit=" ")


# -- advice -----------------------------------------------------------------------------------------------------------


def test_decide_says_when_the_report_advises_otherwise(
    limited: gbpl.Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial().to_csv(tmp_path / "new.csv", index=False)
    limited.save(tmp_path / "good.gbpl")
    worse = json.loads(json.dumps(limited.summary))
    for item in worse["alternatives"]:
        item |= {"gain": -0.1, "chance": 0.1}
    limited.policy.with_study(rule=limited.policy.rule, encoder=limited.policy.encoder, summary=worse).save(
        tmp_path / "bad.gbpl"
    )
    good = run(capsys, "decide", tmp_path / "good.gbpl", tmp_path / "new.csv", "-o", tmp_path / "d.csv")
    assert "advises otherwise" not in good.err
    assert "Expected gain over giving everybody none: about +$" in good.out
    bad = run(capsys, "decide", tmp_path / "bad.gbpl", tmp_path / "new.csv", "-o", tmp_path / "d.csv")
    assert bad.code == 0
    assert "The report of this policy advises otherwise:" in bad.err
    answer = run(capsys, "decide", tmp_path / "bad.gbpl", tmp_path / "new.csv", "-o", tmp_path / "d.csv", "--json")
    assert json.loads(answer.out)["advice"]["against_policy"]
