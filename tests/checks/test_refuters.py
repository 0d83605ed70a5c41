"""Each planted defect is found by the test that is for it, with words that say what to do; clean tables pass."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom, ttest_1samp

from gbpl import LoggedFeedback, TableError
from gbpl.checks.balance import check_balance
from gbpl.checks.finding import CheckReport, Finding, by_level
from gbpl.checks.follow import Bounded, propensity_table
from gbpl.checks.leak import check_leak, explained
from gbpl.checks.placebo import check_placebo
from gbpl.checks.propensities import wrong_propensities
from gbpl.checks.refits import Change, on_columns, on_noise, on_stability
from gbpl.feedback.full import FullFeedback
from gbpl.value.estimate import Value

NAMES = ["age", "income", "extra"]
N = 800


def log(seed: int = 0, *, extra: Any = None, given: Any = None, shuffle: bool = False, strength: float = 1.0) -> Any:
    """A log with an effect that depends on age; `extra` makes a third column from (action, outcome, rng)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 2))
    chance = 1.0 / (1.0 + np.exp(-strength * x[:, 0]))
    action = (rng.random(N) < chance).astype(int)
    y = x[:, 1] + action * x[:, 0] + rng.normal(size=N)
    third = rng.normal(size=N) if extra is None else extra(action, y, rng)
    taken = rng.permutation(action) if shuffle else action
    table = np.column_stack([1.0 - chance, chance])
    propensity = table if given is None else given(table, action)
    return LoggedFeedback.of(np.column_stack([x, third]), y, taken, propensity=propensity)


def balance(feedback: LoggedFeedback) -> tuple[Finding, Finding]:
    first, second = check_balance(feedback, feedback.propensity, NAMES, estimated=False, tests=3, seed=0)
    return first, second


def test_a_clean_log_passes() -> None:
    feedback = log()
    findings = [*balance(feedback), check_leak(feedback, NAMES), check_placebo(feedback, feedback.propensity)]
    assert [one.verdict for one in findings] == ["passed"] * 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda table, action: table[:, ::-1], "exchange those of 0 and 1"),
        (lambda table, action: table[:, 1], "as probabilities of 1 in every row"),
        (lambda table, action: table[:, 0], "as probabilities of 0 in every row"),
        (lambda table, action: 0.1, "they say 10 %"),
        (lambda table, action: 0.02, "they say 2 %"),
    ],
)
def test_wrong_propensities_are_found_and_named(given: Any, words: str) -> None:
    finding = balance(log(given=given))[0]
    assert finding.verdict == "failed"
    assert words in finding.sentence.replace("\u00a0", " ")


def test_a_wrong_constant_is_answered_with_the_shares() -> None:
    finding = balance(log(given=lambda table, action: 0.1, strength=0.0))[0]
    share = log(strength=0.0).action.mean()
    assert f"1 {share:.3g}" in finding.sentence


def test_percent_is_refused_with_the_remedy() -> None:
    with pytest.raises(TableError, match="divide it by 100"):
        log(given=lambda table, action: 100.0 * np.where(action == 1, table[:, 1], table[:, 0]))


def test_actions_out_of_line_are_found_by_balance_or_placebo() -> None:
    varying, constant = log(shuffle=True), log(shuffle=True, strength=0.0)
    assert balance(varying)[0].verdict == "failed"
    assert "out of line" in balance(varying)[0].sentence
    finding = check_placebo(constant, constant.propensity)
    assert finding.verdict == "doubt"
    assert "out of line" in finding.sentence


def test_a_consequence_of_the_action_is_named() -> None:
    first, second = balance(log(extra=lambda action, y, rng: 0.5 * action + rng.normal(size=N)))
    assert first.verdict == "passed"
    assert second.verdict == "failed"
    assert second.details["columns"] == ["extra"]


def test_propensities_of_the_action_taken_alone_are_tested_too() -> None:
    """Three actions whose propensities vary: only e_A is known, so no table can be made of it."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3))
    table = np.exp(np.column_stack([np.zeros(N), x[:, 0], -x[:, 0]]))
    table /= table.sum(axis=1, keepdims=True)
    action = (rng.random((N, 1)) > table.cumsum(axis=1)).sum(axis=1)
    taken = table[np.arange(N), action]
    right = LoggedFeedback.of(x, rng.normal(size=N), action, propensity=taken)
    assert propensity_table(taken, right) is None
    assert [one.verdict for one in balance(right)] == ["passed", "passed"]
    wrong = LoggedFeedback.of(x, rng.normal(size=N), action, propensity=taken / 2)
    assert balance(wrong)[0].verdict == "failed"


@pytest.mark.parametrize(
    ("extra", "verdict", "words"),
    [
        (lambda action, y, rng: 3.0 * y - 7.0, "failed", "copies the outcome"),
        (lambda action, y, rng: np.exp(-y), "failed", "copies the outcome"),
        (lambda action, y, rng: y + 0.3 * y.std() * rng.normal(size=N), "doubt", "alone explains"),
        (lambda action, y, rng: 5.0 - action, "failed", "copies the action"),
    ],
)
def test_copies_are_named(extra: Any, verdict: str, words: str) -> None:
    finding = check_leak(log(extra=extra), NAMES)
    assert finding.verdict == verdict
    assert words in finding.sentence
    assert finding.details["column"] == "extra"


def test_copies_are_found_with_full_feedback() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)), rng.normal(size=(300, 2))
    assert check_leak(FullFeedback.of(x, y), NAMES[:2]).verdict == "passed"
    leaking = FullFeedback.of(np.column_stack([x, y[:, 1] - y[:, 0]]), y)
    assert check_leak(leaking, NAMES).details["column"] == "extra"


def test_a_line_explains_its_squared_correlation_at_least() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    b = a + rng.normal(size=400)
    assert explained(a, b[:, None])[0] >= np.corrcoef(a, b)[0, 1] ** 2 - 1e-12


def test_noise_is_judged_by_a_one_sided_t_test() -> None:
    gains = [0.3, -0.02, 0.2, 0.05, 0.1, 0.15]
    finding = on_noise(gains, tests=2)
    assert_allclose(finding.p_value, ttest_1samp(gains, 0.0, alternative="greater").pvalue)
    assert finding.verdict == by_level(finding.p_value, 2) == "doubt"
    assert on_noise([-g for g in gains], tests=2).verdict == "passed"
    assert on_noise([0.0] * 6, tests=2).verdict == "passed"


def test_verdicts_by_level_are_bonferroni() -> None:
    assert [by_level(p, 2) for p in (0.004, 0.02, 0.03)] == ["failed", "doubt", "passed"]


def change(share: float, moved: float) -> Change:
    return Change(share, Value(moved + np.array([-0.01, 0.01] * 50), "mean"))


def test_stability_is_judged_by_the_error_of_the_value_and_by_the_decisions() -> None:
    value = Value(np.array([-1.0, 1.0] * 50), "mean")  # se 0.1
    verdicts = [
        on_stability("seeds", "With another seed", value, [change(share, moved)], actions).verdict
        for share, moved, actions in [(0.1, 0.15, 2), (0.1, 0.25, 2), (0.4, 0.0, 2), (0.4, 0.0, 10), (0.7, 0.0, 10)]
    ]
    assert verdicts == ["passed", "doubt", "doubt", "passed", "doubt"]


def test_a_column_that_carries_the_value_is_doubtful_only_if_it_is_suspect() -> None:
    value = Value(np.array([-1.0, 1.0] * 50), "mean")
    changes = [change(0.0, 0.0), change(0.4, -0.3)]
    assert on_columns(["a", "b"], changes, value, set()).verdict == "passed"
    found = on_columns(["a", "b"], changes, value, {"b"})
    assert found.verdict == "doubt"
    assert [one["column"] for one in found.details["columns"]] == ["b", "a"]


def test_a_report_has_the_worst_verdict_and_is_plain() -> None:
    report = CheckReport([Finding("a", "passed", "Fine."), Finding("b", "doubt", "Odd.", np.float64(1.0), 0.2)])
    assert report.verdict == "doubt"
    assert not report.passed
    assert report["b"].p_value == 0.2
    assert report.to_dict()["findings"][1]["statistic"] == 1.0
    assert "doubt  b  Odd." in str(report)
    with pytest.raises(KeyError, match="there are a, b"):
        report["c"]
    with pytest.raises(ValueError, match="verdict must be one of"):
        Finding("a", "good", "")


# -- before a fit -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda table, action: 0.1, r"1 was taken in \d+\s% of the rows, and they say 10\s%"),
        (lambda table, action: 0.02, r"1 was taken in \d+\s% of the rows, and they say 2\s%"),
        (lambda table, action: table[:, ::-1], "exchange those of 0 and 1"),
        (lambda table, action: table[:, 1], "as probabilities of 1 in every row, where those of the action taken"),
    ],
)
def test_wrong_propensities_are_named_without_redraws(given: Any, words: str) -> None:
    sentence = wrong_propensities(log(given=given))
    assert sentence is not None
    assert re.search(words, sentence)


def test_the_propensity_of_the_second_label_given_for_the_first() -> None:
    """80 % got 'drug' and the number 0.8 means 'placebo', the second label: mean(1[A = drug] / e) is 4."""
    rng = np.random.default_rng(0)
    taken = rng.permutation(np.repeat(["drug", "placebo"], [320, 80]))
    feedback = LoggedFeedback.of(rng.normal(size=(400, 2)), rng.random(400), taken, propensity=0.8)
    sentence = wrong_propensities(feedback)
    assert sentence is not None
    assert "exchange those of 'drug' and 'placebo'" in sentence
    assert wrong_propensities(LoggedFeedback.of(feedback.x, feedback.outcome, taken, propensity=0.2)) is None


def test_a_constant_for_the_action_taken_of_three() -> None:
    rng = np.random.default_rng(0)
    taken = rng.integers(0, 3, 600)
    given = LoggedFeedback.of(rng.normal(size=(600, 2)), rng.random(600), taken, propensity=np.full(600, 0.1))
    sentence = wrong_propensities(given)
    assert sentence is not None
    assert "and should be 1" in sentence
    assert wrong_propensities(LoggedFeedback.of(given.x, given.outcome, taken, propensity=np.full(600, 1 / 3))) is None


def test_the_bound_of_sums_holds_for_a_rare_action() -> None:
    """Bennett's bound is above the exact P(|S| >= t) of a sum of 20 coins of 0.02, for each t that can occur."""
    coins, chance = 20, 0.02
    sd = np.sqrt(coins * chance * (1 - chance))
    for taken in range(1, 6):
        z = (taken - coins * chance) / sd
        below = [k for k in range(coins + 1) if abs(k - coins * chance) / sd >= z - 1e-12]
        bound = Bounded(np.array([[z]]), np.array([[1.0 / sd]])).p_value()
        assert binom.pmf(below, coins, chance).sum() <= bound
    assert Bounded(np.array([[8.0]]), np.array([[1e-4]])).p_value() == pytest.approx(2 * np.exp(-32), rel=1e-2)


def test_clean_logs_hardly_ever_raise_a_doubt_about_their_propensities() -> None:
    assert not [seed for seed in range(100) if wrong_propensities(log(seed)) is not None]
