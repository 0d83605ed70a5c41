"""fit_paths: which members decide a row out of fold, which rows weigh them, and which table each learned from.

The outcomes here are multiples of 1/64 with a common denominator, so that sums over rows are exact in any order: what
must not change can be compared bit for bit. Tables are one or four, to compile few shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.calls import Call, record_calls
from support.checks import hidden_layer_policy, nearest_on_simplex

import gbpl.fitting.stack
import gbpl.path.path
from gbpl import MLP, Binary, FitConfig, FullFeedback, FullVector
from gbpl.feedback.content import column_order
from gbpl.fitting.members import fold_rows
from gbpl.fitting.stack import StackFit
from gbpl.path.grid import AUTO_PATH
from gbpl.path.out_of_fold import ZetaPath
from gbpl.path.path import PathFit, fit_paths
from gbpl.path.plan import PathProblem, PathSettings, Table
from gbpl.posterior.effect import fit_effect

ROWS, FOLDS = 90, 3
SHORT = (3.0, 0.3, 0.01)
CONFIG = FitConfig(max_epochs=8, learning_rate=0.1)


def feedback_of(count: int = 2, *, weighted: bool = False, seed: int = 0) -> FullFeedback:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 3))
    y = rng.normal(size=(ROWS, count))
    y[:, 1] += 0.5 * x[:, 0]
    weights = rng.integers(1, 9, ROWS) / 4.0 if weighted else None
    y = y[:, np.argsort(y.mean(axis=0))] + 0.3 * np.arange(count)  # the order in which members see the actions
    return FullFeedback(x, np.round(64.0 * y) / 64.0, weights, np.arange(count))


def settings_of(count: int = 2, **changes: Any) -> PathSettings:
    given: dict[str, Any] = {
        "surrogate": Binary() if count == 2 else FullVector(count),
        "model": MLP(hidden=(4,), activation="relu"),
        "zetas": None, "eta": None, "prior_sd": 1.0, "committee": True, "seed": 0, "config": CONFIG, "device": "cpu",
        "progress": False,
    }  # fmt: skip
    return PathSettings(**{**given, **changes})


def fit_path(*problem: Any) -> PathFit:
    return fit_paths([PathProblem(*problem)])[0]


def noisy(outcomes: np.ndarray, seed: int) -> np.ndarray:
    return outcomes + np.round(32.0 * np.random.default_rng(seed).normal(size=outcomes.shape)) / 64.0


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Calls of `fit_stack` while the test runs."""
    return record_calls(monkeypatch, "fit_stack", gbpl.fitting.stack, gbpl.path.path)


def each_fold_s(outcomes: np.ndarray) -> list[np.ndarray]:
    """A table for each fold."""
    return [noisy(outcomes, fold) for fold in range(FOLDS)]


def in_folds() -> list[np.ndarray]:
    return fold_rows(ROWS, FOLDS, seed=5)


# -- restated in NumPy ------------------------------------------------------------------------------------


def standardized(feedback: FullFeedback) -> np.ndarray:
    w = np.ones(ROWS) if feedback.weights is None else feedback.weights
    mean = np.average(feedback.x, axis=0, weights=w)
    spread = np.sqrt(np.average((feedback.x - mean) ** 2, axis=0, weights=w))
    return ((feedback.x - mean) / spread)[:, column_order(feedback.x, spread)]


def own_policies(
    stack: StackFit, feedback: FullFeedback, folds: list[np.ndarray], entries: list[tuple[float, int]]
) -> np.ndarray:
    """Policy of each entry (inner zeta, first table) on every row, by the member that did not train on the row."""
    x, count = standardized(feedback), feedback.outcomes.shape[1]
    policies = np.full((len(entries), ROWS, count), np.nan)
    for place, (zeta, tables) in enumerate(entries):
        for fold in folds:
            (number,) = [
                i for i, m in enumerate(stack.members)
                if np.isclose(m.zeta, zeta, rtol=1e-9) and m.table in tables and not np.intersect1d(m.train, fold).size
            ]  # fmt: skip
            member = stack.members[number]
            assert_array_equal(np.sort(np.concatenate([member.train, fold])), np.arange(ROWS))
            policies[place, fold] = hidden_layer_policy(stack.params, number, x[fold])
    return policies


def welfare_and_size(policies: np.ndarray, feedback: FullFeedback, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    w = (np.ones(ROWS) if feedback.weights is None else feedback.weights)[rows]
    count = feedback.outcomes.shape[1]
    gained = [feedback.outcomes[rows, policy[rows].argmax(axis=1)] for policy in policies]
    spread = [np.sum((policy[rows] - 1 / count) ** 2, axis=1) for policy in policies]
    return np.average(gained, axis=1, weights=w), np.sqrt(np.average(spread, axis=1, weights=w))


def combined(policies: np.ndarray, weight: np.ndarray, size: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Deviations from uniform brought to size one, and averaged."""
    return np.tensordot(weight / size, policies[:, rows] - 1 / policies.shape[2], axes=1)


def committee_deviation(fitted: PathFit, fold: int, rows: np.ndarray) -> np.ndarray:
    """What the committee says of a fold's rows, before it is made an expected effect: slope d + level over unit."""
    assert fitted.deviation is not None
    effect = fitted.outside[fold]
    return (effect.unit * fitted.deviation[rows].astype(float) - effect.level) / effect.slope


def deviations_of(fitted: PathFit, folds: list[np.ndarray]) -> np.ndarray:
    """The committee's deviations on all rows."""
    deviation = np.empty((ROWS, fitted.settings.surrogate.n_actions))
    for number, fold in enumerate(folds):
        deviation[fold] = committee_deviation(fitted, number, fold)
    return deviation


def mean_size(fitted: PathFit) -> float:
    return float(fitted.path.weight @ fitted.path.size)


def of_size_one(deviation: np.ndarray) -> np.ndarray:
    return deviation / np.sqrt(np.mean(deviation**2))


def smooth(welfare: np.ndarray) -> np.ndarray:
    """Stands in for the probability of being best: as sharp, without its draws."""
    weight = np.exp(20.0 * (welfare - welfare.max()))
    return weight / weight.sum()


# -- out of fold ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "weighted"), [(2, False), (2, True), (3, True)])
def test_a_row_is_decided_by_its_own_fold_s_members_as_the_other_folds_weigh_them(
    monkeypatch: pytest.MonkeyPatch, stacks: list[Call], count: int, weighted: bool
) -> None:
    """Two tables, each with its zetas; the weights are a smooth function of welfare, so the policy is restated."""
    monkeypatch.setattr(gbpl.path.path, "average_weights", lambda path: smooth(path.welfare))
    feedback, folds = feedback_of(count, weighted=weighted), in_folds()
    tables = [
        Table([feedback.outcomes], 2.0, path=SHORT),
        Table(each_fold_s(feedback.outcomes), 1.5, 0.0, (2.0, 0.1)),
    ]
    fitted = fit_path(feedback, tables, folds, settings_of(count))
    stack = stacks[0].result
    assert len(stacks) == 1
    entries = [(z * 2.0 / fitted.scale, [0]) for z in SHORT] + [(z * 1.5 / fitted.scale, [1, 2, 3]) for z in (2.0, 0.1)]
    policies = own_policies(stack, feedback, folds, entries)
    chosen = []
    assert fitted.out_of_fold is not None
    for number, fold in enumerate(folds):
        others = np.setdiff1d(np.arange(ROWS), fold)
        welfare, size = welfare_and_size(policies, feedback, others)
        chosen.append(smooth(welfare))
        own, effect = combined(policies, chosen[-1], size, fold), fitted.outside[number]
        assert_allclose(of_size_one(committee_deviation(fitted, number, fold)), of_size_one(own), atol=2e-4)
        # One size in all folds, that of the policy's own deviations: the slope of one is that of the others.
        played = (effect.slope * (fitted.path.weight @ fitted.path.size) * own + effect.level) / effect.unit
        assert_allclose(fitted.out_of_fold[fold], nearest_on_simplex(1 / count + played), atol=5e-5)
    assert np.ptp(chosen, axis=0).max() > 0.05, "the folds must weigh the zetas differently to test this"
    # The path itself is judged on every row, and so is what the members count in the policy.
    welfare, size = welfare_and_size(policies, feedback, np.arange(ROWS))
    assert_allclose(fitted.path.welfare, welfare, atol=1e-12)
    assert_allclose(fitted.path.size, size, rtol=1e-4)
    assert_allclose(fitted.path.weight, smooth(welfare))
    assert_allclose(fitted.shares, np.repeat(smooth(welfare) / FOLDS, FOLDS))
    expected = smooth(welfare) * (smooth(welfare) @ size) / size
    assert_allclose(fitted.policy_weights, np.repeat(expected / FOLDS, FOLDS), rtol=1e-4)


def test_of_listed_zetas_the_best_by_the_other_folds_decides(stacks: list[Call]) -> None:
    folds, telling = in_folds(), 0
    for seed in range(4):
        feedback = feedback_of(seed=seed)
        fitted = fit_path(feedback, [Table([feedback.outcomes], 1.0)], folds, settings_of(zetas=SHORT, seed=seed))
        policies = own_policies(stacks[-1].result, feedback, folds, [(zeta / fitted.scale, [0]) for zeta in SHORT])
        overall = int(np.argmax(fitted.path.weight))
        assert fitted.out_of_fold is not None
        for fold in folds:
            welfare, _ = welfare_and_size(policies, feedback, np.setdiff1d(np.arange(ROWS), fold))
            best = np.flatnonzero(welfare > welfare.max() - 1e-9)  # several where they decide alike
            apart = [np.abs(policies[i, fold] - fitted.out_of_fold[fold]).max() for i in best]
            assert min(apart) < 1e-5
            telling += overall not in best
    assert telling > 0, "some fold must be decided by another zeta than all rows together would choose"


@pytest.mark.parametrize("zetas", [None, SHORT], ids=["averaged", "selected"])
@pytest.mark.parametrize("turned", range(FOLDS))
def test_what_happened_to_a_fold_does_not_decide_it(turned: int, zetas: Sequence[float] | None) -> None:
    """Turning the judge's outcomes of one fold round changes no decision on it; it changes some elsewhere.

    The tables that members learn from and stop on are held. Two columns turned round keep the outcome scale. Where
    zetas are averaged, the size of a policy is not a decision: its unit is that of all rows.
    """
    feedback, folds = feedback_of(), in_folds()
    tables = [Table([feedback.outcomes], 1.0, path=SHORT), Table(each_fold_s(feedback.outcomes), 1.0, 0.0, (1.0,))]
    outcomes = feedback.outcomes.copy()
    outcomes[folds[turned]] = outcomes[folds[turned]][:, ::-1]
    judges = (feedback, replace(feedback, outcomes=outcomes))
    one, other = (fit_path(judge, tables, folds, settings_of(zetas=zetas)) for judge in judges)
    assert one.scale == other.scale
    assert one.out_of_fold is not None
    assert other.out_of_fold is not None
    rows = folds[turned]
    if zetas is None:
        deviations = [of_size_one(committee_deviation(fit, turned, rows)) for fit in (one, other)]
        assert_allclose(*deviations, atol=1e-5)
        # The same deviation is played by each: what differs is one slope and one level, which the others' weights move.
        for fit in (one, other):
            effect = fit.outside[turned]
            own = committee_deviation(one, turned, rows) * mean_size(fit) / mean_size(one)
            played = nearest_on_simplex(0.5 + (effect.slope * own + effect.level) / effect.unit)
            assert_allclose(fit.out_of_fold[rows], played, atol=1e-5)
        effects = [fit_effect(one.x, judge.outcomes, deviations_of(one, folds), folds)[1][turned] for judge in judges]
        assert (effects[0].slope, *effects[0].level) == (effects[1].slope, *effects[1].level)
    else:
        assert_array_equal(other.out_of_fold[rows], one.out_of_fold[rows])
    assert not np.array_equal(other.path.weight, one.path.weight)
    elsewhere = np.setdiff1d(np.arange(ROWS), folds[turned])
    assert np.abs(other.out_of_fold[elsewhere] - one.out_of_fold[elsewhere]).max() > 1e-3


def test_without_a_committee_nothing_is_decided_out_of_fold(stacks: list[Call]) -> None:
    feedback, held = feedback_of(), np.arange(0, ROWS, 3, dtype=np.int32)
    fitted = fit_path(feedback, [Table([feedback.outcomes], 1.0, path=SHORT)], [held], settings_of(committee=False))
    assert fitted.out_of_fold is None
    train = np.setdiff1d(np.arange(ROWS), held)
    for member in stacks[0].result.members:
        assert_array_equal(member.train, train)
        assert_array_equal(member.validation, held)
    assert_allclose(fitted.standardizer.mean, feedback.x[train].mean(axis=0))
    assert_allclose(fitted.standardizer.scale, feedback.x[train].std(axis=0))
    gained = [
        feedback.outcomes[held, p[held].argmax(axis=1)].mean() for p in _on_all_rows(stacks[0].result, fitted, feedback)
    ]
    assert_allclose(fitted.path.welfare, gained)


def _on_all_rows(stack: StackFit, fitted: PathFit, feedback: FullFeedback) -> list[np.ndarray]:
    x = ((feedback.x - fitted.standardizer.mean) / fitted.standardizer.scale)[:, fitted.standardizer.columns]
    return [hidden_layer_policy(stack.params, number, x) for number in range(len(stack.members))]


# -- tables -----------------------------------------------------------------------------------------------


def params_of_fold(stack: StackFit, fold: int) -> list[np.ndarray]:
    """Of the three zetas of the last table."""
    params = stack.select(stack.find(fold=fold)[-3:])
    return [layer[name] for layer in params for name in ("weight", "bias")]


def test_a_table_for_each_fold_is_used_by_that_fold_s_members_only(stacks: list[Call]) -> None:
    feedback, folds = feedback_of(), in_folds()
    each = each_fold_s(feedback.outcomes)
    changed = [noisy(-feedback.outcomes, 9) if fold == 1 else table for fold, table in enumerate(each)]
    for outcomes in (each, changed):
        both = [Table([feedback.outcomes], 1.0, path=(1.0,)), Table(outcomes, 1.0, 0.0, SHORT)]
        fit_path(feedback, both, folds, settings_of())
    for table in each:
        fit_path(feedback, [Table([table], 1.0, 0.0, SHORT)], folds, settings_of())
    own, other, *alone = (call.result for call in stacks)
    for fold in range(FOLDS):
        for mine, moved, single in zip(*(params_of_fold(s, fold) for s in (own, other, alone[fold])), strict=True):
            assert_allclose(mine, single, rtol=2e-4, atol=2e-5)  # as if it were the only table
            if fold != 1:
                assert_allclose(mine, moved, rtol=2e-4, atol=2e-5)
    first, second = (params_of_fold(stack, 1)[0] for stack in (own, other))
    assert np.abs(first - second).max() > 0.05
    assert np.abs(params_of_fold(own, 0)[0] - params_of_fold(alone[1], 0)[0]).max() > 0.01, "tables must differ"


@pytest.mark.parametrize("count", [2, 3])
def test_targets_are_the_tables_one_below_the_other(count: int) -> None:
    """Binary: the gap; full vector: outcomes less their mean over actions; both over the judge's scale."""
    feedback, folds = feedback_of(count, weighted=True), in_folds()
    each = [table + 1e6 for table in each_fold_s(feedback.outcomes)]
    tables = [Table([feedback.outcomes], 1.0, path=SHORT), Table(each, 1.0, 0.0, (2.0, 0.1))]
    fitted = fit_path(feedback, tables, folds, settings_of(count))
    assert fitted.target.shape == ((1 + FOLDS) * ROWS, 1 if count == 2 else count)
    by_hand = []
    for outcomes in (feedback.outcomes, *each):
        row_mean = outcomes.mean(axis=1, keepdims=True)
        by_hand.append((outcomes[:, 1:] - outcomes[:, :1] if count == 2 else outcomes - row_mean) / fitted.scale)
        assert_allclose(fitted.target[len(by_hand[:-1]) * ROWS :][:ROWS], by_hand[-1], atol=1e-5)
    # The generalized posterior of a member is that of its rows of its own table.
    problems = fitted.problems()
    assert len(problems) == len(fitted.members)
    for member, problem in zip(fitted.members, problems, strict=True):
        fold = member.fold
        assert member.table == (0 if member.zeta in np.array(SHORT) / fitted.scale else 1 + fold)
        assert_array_equal(np.sort(np.concatenate([member.train, folds[fold]])), np.arange(ROWS))
        assert_allclose(problem.target, by_hand[member.table][member.train], atol=1e-5)
        assert_allclose(problem.x, standardized(feedback)[member.train], atol=1e-5)
        assert feedback.weights is not None
        assert_allclose(problem.weights, feedback.weights[member.train] / feedback.weights[member.train].mean())
    assert {member.table for member in fitted.members} > {0}, "both kinds of table must be kept to test this"


def check_path(path: ZetaPath, zetas: list[float], corrections: list[float]) -> None:
    assert_allclose(path.zeta, zetas)
    assert path.correction.tolist() == corrections
    assert (path.weight >= 0.0).all()
    assert_allclose(path.weight.sum(), 1.0)


def test_the_path_has_the_zetas_of_both_tables(stacks: list[Call]) -> None:
    feedback, folds = feedback_of(), in_folds()
    tables = [Table([feedback.outcomes], 1.25), Table(each_fold_s(feedback.outcomes), 0.75, 0.0, (3.0, 0.1))]
    fitted = fit_path(feedback, tables, folds, settings_of())
    zetas = [1.25 * zeta for zeta in AUTO_PATH] + [0.75 * 3.0, 0.75 * 0.1]  # in units of each table's own scale
    check_path(fitted.path, zetas, [1.0] * 5 + [0.0] * 2)
    assert_allclose(fitted.shares.sum(), 1.0)
    members = stacks[0].result.members
    assert [m.table for m in members] == [0] * 15 + [1, 2, 3] * 2
    assert_allclose([m.zeta for m in members], np.repeat(zetas, FOLDS) / fitted.scale)
    for i, entry in enumerate(fitted.history):
        assert_allclose(entry["zeta"], zetas[i // FOLDS])
        assert (entry["correction"], entry["fold"]) == (1.0 if i < 15 else 0.0, i % FOLDS)
    assert len(fitted.history) == 21
    # What is kept is what counts, in the order of the path.
    kept = [i for i in range(21) if fitted.path.weight[i // FOLDS] > 0]
    assert [id(m) for m in fitted.members] == [id(members[i]) for i in kept]
    assert_array_equal(fitted.params[0]["weight"], stacks[0].result.params[0]["weight"][kept])


def test_listed_zetas_are_those_of_every_table() -> None:
    """One zeta is selected, and its entries of both tables share all the weight."""
    feedback, folds = feedback_of(), in_folds()
    tables = [Table([feedback.outcomes], 1.25), Table(each_fold_s(feedback.outcomes), 0.75, 0.0, (3.0, 0.1))]
    path = fit_path(feedback, tables, folds, settings_of(zetas=[2.0, 0.2])).path
    check_path(path, [2.0, 0.2, 2.0, 0.2], [1.0, 1.0, 0.0, 0.0])
    best = path.zeta[np.argmax(path.welfare)]
    assert_allclose(path.weight[path.zeta == best].sum(), 1.0)


def test_a_table_without_differences_takes_the_judge_s_scale() -> None:
    """As an outcome model that says the same of every action: its zetas must be > 0 all the same."""
    feedback = feedback_of()
    flat = np.zeros_like(feedback.outcomes)
    tables = [Table([feedback.outcomes], feedback.scale, path=SHORT), Table([flat] * FOLDS, 0.0, 0.0, (2.0,))]
    fitted = fit_path(feedback, tables, in_folds(), settings_of())
    check_path(fitted.path, [*(z * fitted.scale for z in SHORT), 2.0 * fitted.scale], [1.0] * 3 + [0.0])
