"""`policy.check()`: every refuter on a fit, from logs and from full feedback."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from support.policies import small_net

from gbpl import Binary, ForestFeatures, GBPLNet, Linear, PerAction
from gbpl.checks.finding import CheckReport

ALWAYS = ["copied outcome", "shuffled actions", "outcomes of noise", "other seeds", "random common cause", "fewer rows"]
N = 300


def trial(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 3))
    action = rng.integers(0, 2, N)
    return x, x[:, 1] + 2.0 * action * np.sign(x[:, 0]) + rng.normal(size=N), action


def quick(**changes: object) -> GBPLNet:
    """Solved, not trained: nothing is compiled for it."""
    given = {"model": Linear(), "outcome_model": PerAction(LinearRegression()), "nuisance_folds": 2}
    return small_net(**{**given, "surrogate": Binary(squash=False), **changes})


@pytest.fixture(scope="module")
def checked() -> tuple[GBPLNet, CheckReport]:
    x, y, action = trial()
    policy = quick().fit(x, y, action=action, propensity=0.5)
    return policy, policy.check(names=["a", "b", "c"])


def test_a_trial_passes_and_leans_on_what_decides(checked: tuple[GBPLNet, CheckReport]) -> None:
    report = checked[1]
    names = [one.name for one in report.findings]
    assert names == ["balance of the log", "columns after the action", *ALWAYS, "one column left out"]
    assert report.passed, str(report)
    assert report["one column left out"].details["columns"][0]["column"] == "a"
    assert len(report["outcomes of noise"].details["gains"]) == 6


def test_the_same_seed_gives_the_same_report(checked: tuple[GBPLNet, CheckReport]) -> None:
    policy, report = checked
    assert str(policy.check(names=["a", "b", "c"])) == str(report)


def test_a_leak_makes_the_value_doubtful() -> None:
    x, y, action = trial()
    x[:, 2] = y * (2 * action - 1)  # what the action did, seen after it
    report = quick().fit(x, y, action=action, propensity=0.5).check(names=["a", "b", "c"])
    assert report["columns after the action"].details["columns"] == ["c"]
    assert not report.passed


def test_full_feedback_has_no_balance_and_names_go_together() -> None:
    x, _, _ = trial()
    outcomes = np.column_stack([np.zeros(N), x[:, 0]]) + np.random.default_rng(1).normal(size=(N, 2))
    policy = quick(model=ForestFeatures(trees=8, depth=3, components=8)).fit(x, outcomes)
    report = policy.check(names=["a", "rest", "rest"])
    assert [one.name for one in report.findings] == [*ALWAYS, "one column left out"]
    assert {one["column"] for one in report["one column left out"].details["columns"]} == {"a", "rest"}


def test_what_cannot_be_checked_is_refused(checked: tuple[GBPLNet, CheckReport]) -> None:
    policy, _ = checked
    with pytest.raises(ValueError, match="one name for each of 3 features, got 2"):
        policy.check(names=["a", "b"])
    x, y, action = trial()
    alone = quick(committee=None).fit(x, y, action=action, propensity=0.5)
    with pytest.raises(ValueError, match="check needs a committee"):
        alone.check()
