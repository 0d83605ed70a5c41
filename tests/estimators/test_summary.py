"""A policy on one page, and keywords of other libraries answered with the right one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.policies import small_study_net

import gbpl
from gbpl import GBPL, GBPLNet, Value

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 2))
A = RNG.choice(["wait", "tr&at"], 200)
Y = 17_000.0 + 900.0 * (A == "tr&at") * X[:, 0] + 500.0 * RNG.normal(size=200)


@pytest.fixture(scope="module")
def policy() -> GBPLNet:
    return small_study_net().fit(X, Y, action=A, propensity=0.5, groups=np.arange(200) // 4)


def test_text_html_and_latex_have_the_same_numbers(policy: GBPLNet) -> None:
    made, value, gains = policy.summary(), policy.cross_fitted_value(), policy.gains()
    text, html, latex = str(made), made._repr_html_(), made.to_latex()
    places = max(0, 1 - int(np.floor(np.log10(value.se))))
    low, high = gains.values[1].interval()
    for page in (text, html, latex):
        assert f"{value.estimate:,.{places}f}" in page
        assert f"{low:,.{places}f} to {high:,.{places}f}" in page
        assert "50 groups of rows" in page
        assert "the given propensities are right" in page
        assert "groups of rows are independent of each other" in page
    assert "seeds" in text
    assert f"1 (random_state={policy.random_state!r})" in text
    assert "tr&amp;at" in html
    assert r"everybody gets tr\&at" in latex
    assert latex.count("&") - latex.count(r"\&") == 6 * 4
    assert "e+" not in text


def test_values_are_written_in_ordinary_numbers() -> None:
    value = Value(np.array([17_200.0, 17_300.0, 17_280.0]), "dr")
    assert str(value) == "value 17,260 (se 31, 95 % interval 17,200 to 17,320, dr, 3 rows)"
    assert str(Value(np.array([-1.0, -3.0]), "dr")).startswith("value -2.00 (se 1.00, 95 % interval -3.96 to -0.04,")


def test_a_posterior_says_what_it_is(policy: GBPLNet) -> None:
    said = str(policy.posterior())
    assert said.startswith("posterior over policies by '")
    assert "2 actions (tr&at, wait)" in said
    assert "<gbpl" not in repr(policy.posterior())


def test_a_study_prints_as_its_report_begins() -> None:
    table = {"x": X[:, 0], "arm": A, "y": Y}
    study = gbpl.learn(table, outcome="y", action="arm", propensity=0.5, estimator=small_study_net(), source="t.csv")
    said = str(study)
    assert said.startswith("t.csv: who should get which action (arm)\n")
    assert study.summary["advice"]["text"].replace("\u00a0", " ").replace("\u2212", "-") in said
    assert said.isascii()


@pytest.mark.parametrize(
    ("keyword", "right"),
    [("treatment", "action"), ("T", "action"), ("cluster", "groups"), ("group", "groups"), ("weights", "sample_weight"),
     ("pscore", "propensity"), ("reward", "y"), ("costs", "cost"), ("confounders", "controls")],
)  # fmt: skip
def test_keywords_of_others_are_answered_in_fit(keyword: str, right: str) -> None:
    wrong: dict[str, Any] = {keyword: A}
    with pytest.raises(TypeError, match=rf"fit\(\) has no keyword '{keyword}'; it is {right}= here"):
        GBPL().fit(X, **wrong)


@pytest.mark.parametrize(
    ("keyword", "said"),
    [("treatment", "it is action= here"), ("cluster", "it is group= here"), ("weights", "it is weight= here"),
     ("baseline", "it is default= here"), ("budgets", "it is budget= here"),
     ("capacities", "it is capacity= here"), ("outcom", "did you mean outcome=?"),
     ("zzz", "those there are: frame, outcome, action")],
)  # fmt: skip
def test_keywords_of_others_are_answered_in_learn(keyword: str, said: str) -> None:
    wrong: dict[str, Any] = {keyword: "arm"}
    with pytest.raises(TypeError) as error:
        gbpl.learn({}, **wrong)
    assert said in str(error.value)
