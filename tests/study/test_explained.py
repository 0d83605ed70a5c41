"""Rows that a study explains: made of similar ones, each of which is in one group, and explained as any other row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from support.cli import people, quick_learn

from gbpl.study.explained import MOST, _groups, _typical, explained
from gbpl.study.study import Study


@pytest.fixture(scope="module")
def study() -> Study:
    table = people(200)
    table["sex"] = [None if row % 7 == 0 else value for row, value in enumerate(table["sex"])]
    return quick_learn(table, outcome="earnings", action="arm", propensity=0.5, features=["age", "sex"])


def features(study: Study) -> np.ndarray:
    return study.fitted.training("fit it").feedback.x


@pytest.mark.parametrize("smallest", [1, 10, 30])
def test_groups_are_large_enough_and_share_no_row(study: Study, smallest: int) -> None:
    x, policy = features(study), study.policy
    groups = list(_groups(policy, x, smallest))
    rows = np.concatenate([group for _, group in groups])
    assert len(rows) == len(set(rows.tolist()))
    assert min(len(group) for _, group in groups) >= smallest
    assert 2 <= len(groups) <= MOST
    given = policy.decide(x).action
    for _, group in groups:
        assert len(set(given[group].tolist())) == 1


def test_a_close_call_is_closer_than_a_clear_case(study: Study) -> None:
    x = features(study)
    gain = np.abs(study.policy.expected_gain(x)[:, 1])
    margins: dict[str, list[float]] = {}
    for kind, group in _groups(study.policy, x, 10):
        margins.setdefault(kind, []).append(float(np.median(gain[group])))
    assert all(close < clear for close, clear in zip(margins["close call"], margins["clear case"], strict=True))


def test_what_is_in_the_summary_is_what_the_policy_explains(study: Study) -> None:
    x, policy = features(study), study.policy
    from gbpl.frozen.players import players_of

    said = study.summary["explained"]["rows"]
    groups = list(_groups(policy, x, 10))
    assert [row["kind"] for row in said] == [kind for kind, _ in groups]
    for row, (_, group) in zip(said, groups, strict=True):
        typical = _typical(x, group, players_of(policy), 10)
        age = {one["column"]: one["value"] for one in row["contributions"]}["age"]
        assert float(age) == round(float(np.median(x[group, 0])))
        assert row["decided"] == policy.predict(typical[None])[0]
        assert_allclose(row["gain"], policy.explain(typical[None]).gain)
        assert_allclose(row["reference_gain"] + sum(one["contribution"] for one in row["contributions"]), row["gain"])
        assert row["text"].startswith(f"Decided: {row['decided']}")


def test_nothing_is_explained_of_too_few_rows(study: Study) -> None:
    assert explained(study.policy, features(study), 201) is None


def test_a_study_honours_its_smallest_group() -> None:
    table: dict[str, Any] = people(160)
    made = quick_learn(table, outcome="earnings", action="arm", propensity=0.5, features=["age"], smallest_group=40)
    rows = made.summary["explained"]["rows"]
    assert min(row["rows"] for row in rows) >= 40
    ages = np.sort(table["age"])
    assert abs(made.policy.seen.low[0] - ages[39]) <= 1.0
    assert abs(made.policy.seen.high[0] - ages[-40]) <= 1.0
