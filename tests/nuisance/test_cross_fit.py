"""Cross-fitted nuisances: no row is judged by a model that saw it, on one level or on two.

`Signed` predicts 2 to the power of its number, so that each entry of what comes back tells which fits it is made of,
and each fit tells which rows it saw. For networks two fakes do the same with the members of the stack.
"""

from __future__ import annotations

import re
import warnings
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from support.checks import rows_outside

import gbpl.fitting.stack
import gbpl.nuisance.cross_fit
import gbpl.nuisance.plan
from gbpl import MLP, CrossFit, EstimatedPropensityWarning, FitConfig, LoggedFeedback, PerAction, WithAction
from gbpl.datasets import BinaryDesign, LoggedDesign, MultiActionDesign
from gbpl.feedback.content import column_order, content_order
from gbpl.fitting.members import fold_rows
from gbpl.fitting.stack import twins
from gbpl.nuisance.learners import MaskedSquare
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.off_policy import log_evaluator

ROWS = 200
CONFIG = FitConfig(max_epochs=60, learning_rate=0.02)
NETWORK: dict[str, Any] = {
    "outcome_model": MLP(hidden=(8,)), "fit_config": CONFIG, "device": "cpu", "progress": False,
}  # fmt: skip


def numbered_log(n: int = ROWS, actions: int = 2, seed: int = 0, **given: Any) -> LoggedFeedback:
    """A randomized log whose first feature is the number of the row."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.arange(n), rng.normal(size=n)])
    action = rng.integers(0, actions, n)
    outcome = x[:, 1] * action + rng.normal(size=n)
    return LoggedFeedback.of(x, outcome, action, **{"propensity": np.full((n, actions), 1 / actions), **given})


class Signed(RegressorMixin, BaseEstimator):
    """Predicts 2 ** number of the fit, and keeps the rows (first feature) and weights each fit saw."""

    seen: ClassVar[list[np.ndarray]] = []
    weights: ClassVar[list[np.ndarray | None]] = []

    def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> Signed:
        self.number_ = len(Signed.seen)
        Signed.seen.append(x[:, 0].astype(int))
        Signed.weights.append(sample_weight)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return np.full(len(x), 2.0**self.number_)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    Signed.seen, Signed.weights = [], []


def fits_in(total: float) -> list[int]:
    """Which powers of two a sum is made of."""
    whole = round(float(total))
    assert abs(whole - total) < 1e-6 * total
    return [place for place in range(whole.bit_length()) if whole >> place & 1]


def folds_of_a_run(log: LoggedFeedback, **settings: Any) -> list[np.ndarray]:
    """The folds a plain run judges together."""
    Signed.seen, Signed.weights = [], []
    means = CrossFit(outcome_model=WithAction(Signed()), **settings).run(log).means
    Signed.seen, Signed.weights = [], []
    return [np.flatnonzero(means[:, 0] == sign) for sign in np.unique(means[:, 0])]


# -- who saw whom: scikit-learn ---------------------------------------------------------------------------

LEARNERS = {"bare": Signed(), "PerAction": PerAction(Signed()), "WithAction": WithAction(Signed())}


@pytest.mark.parametrize("learner", LEARNERS)
def test_plain_folds_learn_from_exactly_the_other_rows(learner: str) -> None:
    log = numbered_log(actions=3)
    means = CrossFit(folds=5, outcome_model=LEARNERS[learner]).run(log).means
    assert means.shape == (ROWS, 3)
    assert len(Signed.seen) == (5 if learner == "WithAction" else 15)
    for action in range(3):
        signs = [fits_in(value) for value in means[:, action]]
        assert all(len(made_of) == 1 for made_of in signs)
        for number in {made_of[0] for made_of in signs}:
            judged = np.array([made_of[0] == number for made_of in signs])
            wanted = ~judged if learner == "WithAction" else ~judged & (log.action == action)
            assert_array_equal(np.sort(Signed.seen[number]), np.flatnonzero(wanted))
            assert judged.sum() == ROWS // 5


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("learner", LEARNERS)
def test_nested_folds_see_neither_the_fold_nor_the_row(learner: str, repeats: int) -> None:
    log = numbered_log()
    outer = fold_rows(ROWS, 3, seed=1, strata=log.action)
    run = CrossFit(folds=2, repeats=repeats, outcome_model=LEARNERS[learner]).run(log, outer=outer)
    assert run.fold_means.shape == (3, ROWS, 2)
    assert len(Signed.seen) == 3 * 2 * repeats * (1 if learner == "WithAction" else 2)
    for number, fold in enumerate(outer):
        for action in range(2):
            for row in fold:
                made_of = fits_in(2 * repeats * run.means[row, action])
                assert len(made_of) == 2 * repeats  # the models of both halves of the rest, averaged
                for fit in made_of:
                    assert not np.isin(Signed.seen[fit], fold).any()
            for row in rows_outside(ROWS, fold):
                made_of = fits_in(repeats * run.fold_means[number, row, action])
                assert len(made_of) == repeats
                for fit in made_of:
                    assert row not in Signed.seen[fit]
                    assert not np.isin(Signed.seen[fit], fold).any()
        assert_array_equal(run.fold_means[number, fold], run.means[fold].astype(np.float32))


@pytest.fixture
def few_rows_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows enough for models that leave out two folds."""
    assert gbpl.nuisance.cross_fit.ROWS_IN_PAIRS > ROWS // 2
    monkeypatch.setattr(gbpl.nuisance.cross_fit, "ROWS_IN_PAIRS", ROWS // 2)  # two actions


@pytest.mark.usefixtures("few_rows_in_pairs")
def test_where_folds_and_rows_are_enough_one_model_leaves_out_two_folds_for_both() -> None:
    log = numbered_log()
    outer = fold_rows(ROWS, 6, seed=1, strata=log.action)
    run = CrossFit(folds=5, outcome_model=WithAction(Signed())).run(log, outer=outer)
    assert len(Signed.seen) == 6 * 5 // 2
    for number, fold in enumerate(outer):
        signs = run.fold_means[number][:, 0]
        for other, part in enumerate(outer):
            if other != number:
                (fit,) = {made for row in part for made in fits_in(signs[row])}
                assert_array_equal(np.sort(Signed.seen[fit]), rows_outside(ROWS, np.concatenate([fold, part])))
                assert np.all(run.fold_means[other][fold, 0] == 2.0**fit)
        for row in fold:
            assert len(fits_in(5 * run.means[row, 0])) == 5


def test_nested_models_learn_from_all_that_is_left() -> None:
    log = numbered_log()
    outer = fold_rows(ROWS, 4, seed=1, strata=log.action)
    run = CrossFit(folds=3, outcome_model=WithAction(Signed())).run(log, outer=outer)
    for number, fold in enumerate(outer):
        signs = run.fold_means[number, rows_outside(ROWS, fold), 0]
        assert len(np.unique(signs)) == 3
        for sign in np.unique(signs):
            part = rows_outside(ROWS, fold)[signs == sign]
            assert_array_equal(np.sort(Signed.seen[fits_in(sign)[0]]), np.setdiff1d(rows_outside(ROWS, fold), part))


def test_a_learner_that_remembers_never_recognizes_a_row() -> None:
    rng = np.random.default_rng(3)
    log = LoggedFeedback.of(rng.normal(size=(ROWS, 3)), rng.normal(size=ROWS), np.arange(ROWS) % 2, propensity=0.5)
    outer = fold_rows(ROWS, 4, seed=0, strata=log.action)
    learner = KNeighborsRegressor(1)
    rows = np.arange(ROWS)
    assert np.all(CrossFit(outcome_model=learner).run(log).means[rows, log.action] != log.outcome)
    nested = CrossFit(outcome_model=learner).run(log, outer=outer)
    for number, fold in enumerate(outer):
        assert not np.isin(nested.fold_means[number], log.outcome[fold].astype(np.float32)).any()
        assert np.all(nested.fold_means[number, rows, log.action] != log.outcome.astype(np.float32))


# -- who saw whom: networks -------------------------------------------------------------------------------


@pytest.fixture
def stacks(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """What was to be fitted, a stack each; nothing is, and member m predicts 2 ** m."""
    called: list[SimpleNamespace] = []

    def fit_stack(x: Any, target: Any, members: Any, objective: Any, model: Any, **options: Any) -> SimpleNamespace:
        called.append(SimpleNamespace(x=x, target=target, members=members, objective=objective, model=model, **options))
        losses = [np.zeros(1)] * len(members)
        return SimpleNamespace(
            select=lambda chosen: chosen, members=members, validation_loss=losses, train_loss=losses,
            best_epoch=np.ones(len(members), int),
        )  # fmt: skip

    def member_outputs(model: Any, chosen: list[int], x: np.ndarray) -> np.ndarray:
        return np.full((1, len(x), called[-1].objective.n_raw), 2.0 ** chosen[0])

    monkeypatch.setattr(gbpl.fitting.stack, "fit_stack", fit_stack)
    monkeypatch.setattr(gbpl.nuisance.plan, "member_outputs", member_outputs)
    return called


def standard(log: LoggedFeedback, means: np.ndarray) -> np.ndarray:
    """Means in the units in which networks predict."""
    return (means - log.outcome.mean()) / log.outcome.std()


def test_plain_networks_see_nothing_of_the_fold(stacks: list[SimpleNamespace]) -> None:
    log = numbered_log(actions=3)
    run = CrossFit(folds=5, committee=4, **NETWORK).run(log)
    members = stacks[0].members
    assert len(stacks) == 1
    assert len(members) == 20
    assert_allclose(standard(log, run.means)[:, 1:], standard(log, run.means)[:, :1].repeat(2, axis=1))
    for row, total in enumerate(4 * standard(log, run.means)[:, 0]):
        committee = [members[number] for number in fits_in(total)]
        assert len(committee) == 4
        rest = np.sort(np.concatenate([committee[0].train, committee[0].validation]))
        for member in committee:
            assert row not in member.train
            assert row not in member.validation
            assert_array_equal(np.sort(np.concatenate([member.train, member.validation])), rest)
        stopped_on = np.sort(np.concatenate([member.validation for member in committee]))
        assert_array_equal(stopped_on, rest)  # each stops on its own part of the rest
    assert len({member.seed for member in members}) == 20


def test_one_network_a_fold_without_a_committee(stacks: list[SimpleNamespace]) -> None:
    log = numbered_log()
    run = CrossFit(folds=5, committee=None, validation_fraction=0.25, **NETWORK).run(log)
    members = stacks[0].members
    assert len(members) == 5
    for row, total in enumerate(standard(log, run.means)[:, 0]):
        (number,) = fits_in(total)
        assert row not in members[number].train
        assert row not in members[number].validation
    assert [len(member.validation) for member in members] == [40] * 5
    assert [len(member.train) for member in members] == [120] * 5


@pytest.mark.parametrize("repeats", [1, 2])
def test_nested_networks_see_neither_the_fold_nor_the_row(stacks: list[SimpleNamespace], repeats: int) -> None:
    log = numbered_log()
    outer = fold_rows(ROWS, 3, seed=1, strata=log.action)
    run = CrossFit(folds=2, repeats=repeats, **NETWORK).run(log, outer=outer)
    members = stacks[0].members
    assert len(members) == 6 * repeats
    means, fold_means = standard(log, run.means), standard(log, run.fold_means.astype(float))
    for number, fold in enumerate(outer):
        for row in fold:
            made_of = [members[fit] for fit in fits_in(2 * repeats * means[row, 0])]
            assert len(made_of) == 2 * repeats
            for member in made_of:
                assert not np.isin(fold, np.concatenate([member.train, member.validation])).any()
        for row in rows_outside(ROWS, fold):
            total = repeats * fold_means[number, row, 0]
            made_of = [members[fit] for fit in fits_in(np.round(total, 2))]
            assert len(made_of) == repeats
            for member in made_of:
                assert row not in member.train
                assert row in member.validation  # it decides only when to stop
                assert not np.isin(fold, np.concatenate([member.train, member.validation])).any()


@pytest.mark.usefixtures("few_rows_in_pairs")
def test_networks_of_two_folds_are_twins_that_each_stop_on_one(stacks: list[SimpleNamespace]) -> None:
    log = numbered_log()
    outer = fold_rows(ROWS, 5, seed=1, strata=log.action)
    fold_means = standard(log, CrossFit(**NETWORK).run(log, outer=outer).fold_means.astype(float))
    members = stacks[0].members
    assert len(members) == 20
    assert sorted(map(len, twins(members))) == [2] * 10
    for number, fold in enumerate(outer):
        for other, part in enumerate(outer):
            if other != number:
                ((made,),) = {tuple(fits_in(np.round(fold_means[number, row, 0], 2))) for row in part}
                assert_array_equal(np.sort(members[made].validation), part)
                assert_array_equal(np.sort(members[made].train), rows_outside(ROWS, np.concatenate([fold, part])))


def test_what_networks_are_given(stacks: list[SimpleNamespace]) -> None:
    rng = np.random.default_rng(0)
    weight, controls = rng.uniform(0.5, 2.0, ROWS), rng.normal(3.0, 2.0, (ROWS, 2))
    log = numbered_log(controls=controls, sample_weight=weight)
    CrossFit(**NETWORK).run(log)
    stack = stacks[0]
    seen = np.hstack([log.x, controls])
    mean = np.average(seen, axis=0, weights=weight)
    spread = np.sqrt(np.average((seen - mean) ** 2, axis=0, weights=weight))
    order = column_order(seen, spread)
    assert_allclose(stack.x, ((seen - mean) / spread)[:, order], rtol=1e-5, atol=1e-5)
    assert_allclose(stack.target[0], (log.outcome - log.outcome.mean()) / log.outcome.std(), rtol=1e-5, atol=1e-5)
    assert_array_equal(stack.target[1], content_order(log)[1])
    assert len({*zip(log.action.tolist(), stack.target[1].tolist(), strict=True)}) == 2  # one output per action
    assert (stack.objective, stack.model, stack.config) == (MaskedSquare(2), MLP(hidden=(8,)), CONFIG)
    for member in stack.members:
        assert_array_equal(member.weights, weight[member.train])
        assert_array_equal(member.validation_weights, weight[member.validation])
    CrossFit(**NETWORK).run(log, "centered_ipw")
    assert stacks[1].objective == MaskedSquare(1)
    assert_array_equal(stacks[1].target[1], 0)


def test_the_default_network(stacks: list[SimpleNamespace]) -> None:
    CrossFit().run(numbered_log())
    assert stacks[0].model == MLP()


def test_network_means_restated(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted: list[Any] = []
    real = gbpl.fitting.stack.fit_stack

    def fit_stack(*parts: Any, **options: Any) -> Any:
        fitted.append(real(*parts, **options))
        return fitted[-1]

    monkeypatch.setattr(gbpl.fitting.stack, "fit_stack", fit_stack)
    log = numbered_log()
    run = CrossFit(folds=2, committee=2, **NETWORK).run(log)
    (stack,) = fitted
    x = ((log.x - log.x.mean(axis=0)) / log.x.std(axis=0))[:, column_order(log.x, log.x.std(axis=0))]
    place = [content_order(log)[1][log.action == action][0] for action in range(2)]  # of each action's output
    outputs = []
    for number in range(4):
        params = jax.tree.map(lambda leaf, number=number: leaf[number], stack.params)
        outputs.append(np.asarray(MLP(hidden=(8,)).apply(params, jnp.asarray(x, jnp.float32)))[:, place])
    for row in range(ROWS):
        own = [
            output[row]
            for output, member in zip(outputs, stack.members, strict=True)
            if row not in member.train and row not in member.validation
        ]
        assert len(own) == 2
        wanted = log.outcome.mean() + log.outcome.std() * np.mean(own, axis=0)
        assert_allclose(run.means[row], wanted, rtol=1e-4, atol=1e-5)


def test_a_network_learns_the_mean_of_each_action() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, 2))
    action = rng.integers(0, 2, ROWS)
    truth = 50.0 + 10.0 * np.column_stack([x[:, 0], -x[:, 0] + 1.0])
    outcome = truth[np.arange(ROWS), action] + rng.normal(size=ROWS)
    log = LoggedFeedback.of(x, outcome, action, propensity=0.5)
    means = CrossFit(folds=2, committee=2, **NETWORK).run(log).means
    assert np.mean((means - truth) ** 2) < 0.1 * np.mean((outcome.mean() - truth) ** 2)


# -- the leak that nesting is there to stop ---------------------------------------------------------------


class CellMean(RegressorMixin, BaseEstimator):
    """Mean outcome of each value of the first feature."""

    cells: ClassVar[int] = 20

    def fit(self, x: np.ndarray, y: np.ndarray) -> CellMean:
        cell = x[:, 0].astype(int)
        count = np.bincount(cell, minlength=self.cells)
        self.mean_ = np.bincount(cell, y, minlength=self.cells) / np.maximum(count, 1)
        return self

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.mean_[x[:, 0].astype(int)]


def value_of_learned(table: np.ndarray, cell: np.ndarray, fold: np.ndarray, judge: np.ndarray) -> float:
    """Value on a fold, by the judge's table, of the best action in each cell by the table's rows outside the fold."""
    rest = rows_outside(len(cell), fold)
    totals = np.stack([np.bincount(cell[rest], table[rest, a], minlength=CellMean.cells) for a in range(2)], axis=1)
    return float(np.sum(judge[fold, totals.argmax(axis=1)[cell[fold]]]))


def test_nesting_stops_the_leak() -> None:
    n, nested_values, plain_values = 300, [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        cell, action = rng.integers(0, CellMean.cells, n), rng.integers(0, 2, n)
        log = LoggedFeedback.of(cell[:, None], rng.normal(size=n), action, propensity=0.5)  # nothing to be learned
        outer = fold_rows(n, 4, seed=seed, strata=action)
        settings = CrossFit(folds=4, outcome_model=CellMean(), seed=seed)
        nested, plain = settings.run(log, outer=outer), settings.run(log)
        judge = nested.pseudo_outcomes("dr")
        folds = list(enumerate(outer))
        honest = [value_of_learned(nested.fold_means[j], cell, fold, judge) for j, fold in folds]
        leaky = [value_of_learned(plain.means, cell, fold, judge) for _, fold in folds]
        nested_values.append(sum(honest) / n)
        plain_values.append(sum(leaky) / n)

    def in_errors(values: list[float]) -> float:
        return float(np.mean(values) / (np.std(values, ddof=1) / np.sqrt(len(values))))

    assert abs(in_errors(nested_values)) < 3.0
    assert in_errors(plain_values) > 3.0


# -- folds ------------------------------------------------------------------------------------------------


def test_folds_keep_the_actions_balanced() -> None:
    rng = np.random.default_rng(0)
    action = rng.choice(3, ROWS, p=[0.7, 0.2, 0.1])
    log = LoggedFeedback.of(
        np.column_stack([np.arange(ROWS), action]), rng.normal(size=ROWS), action, propensity={0: 0.7, 1: 0.2, 2: 0.1}
    )
    folds = folds_of_a_run(log, folds=7)
    assert len(folds) == 7
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(ROWS))
    for number in range(3):
        counts = [np.sum(action[fold] == number) for fold in folds]
        assert max(counts) - min(counts) <= 1
    outer = fold_rows(ROWS, 2, seed=0, strata=action)
    run = CrossFit(folds=3, outcome_model=WithAction(Signed())).run(log, outer=outer)
    for j, fold in enumerate(outer):
        signs = run.fold_means[j, :, 0]
        parts = [np.flatnonzero(signs == sign) for sign in np.unique(signs[rows_outside(ROWS, fold)])]
        for number in range(3):
            counts = [np.sum(action[part] == number) for part in parts]
            assert max(counts) - min(counts) <= 1


def test_groups_stay_together_on_both_levels() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 25, ROWS)
    log = numbered_log(groups=groups)
    run = CrossFit(folds=4, outcome_model=WithAction(Signed())).run(log)
    for row in range(ROWS):
        (fit,) = fits_in(run.means[row, 0])
        assert groups[row] not in groups[Signed.seen[fit]]
    Signed.seen = []
    outer = fold_rows(ROWS, 3, seed=0, strata=log.action, groups=log.groups)
    run = CrossFit(folds=2, outcome_model=WithAction(Signed())).run(log, outer=outer)
    for number, fold in enumerate(outer):
        for row in rows_outside(ROWS, fold):
            (fit,) = fits_in(run.fold_means[number, row, 0])
            assert groups[row] not in groups[Signed.seen[fit]]
            assert not np.isin(groups[Signed.seen[fit]], groups[fold]).any()


def test_groups_stay_together_in_networks(stacks: list[SimpleNamespace]) -> None:
    groups = np.random.default_rng(0).integers(0, 25, ROWS)
    log = numbered_log(groups=groups)
    run = CrossFit(folds=4, **NETWORK).run(log)
    committees = [fits_in(total) for total in 5 * standard(log, run.means)[:, 0]]
    for row, numbers in enumerate(committees):
        for member in (stacks[0].members[number] for number in numbers):
            assert groups[row] not in groups[np.concatenate([member.train, member.validation])]
            assert not np.isin(groups[member.train], groups[member.validation]).any()


def rare(taken: int, **given: Any) -> LoggedFeedback:
    x = np.column_stack([np.arange(60), np.zeros(60)])
    action = ["often"] * (60 - taken) + ["rarely"] * taken
    return LoggedFeedback.of(x, np.arange(60.0), action, propensity={"often": 0.9, "rarely": 0.1}, **given)


RARE = r"no row with action 'rarely', which is taken in 3 of 60 rows"


@pytest.mark.parametrize("model", [Signed(), MLP(hidden=(8,))], ids=["learner", "network"])
def test_an_action_too_rare_for_the_folds_is_named(model: Any, stacks: list[SimpleNamespace]) -> None:
    with pytest.raises(
        ValueError, match=rf"one of 5 nuisance folds has {RARE}; use fewer folds .*leave the action out"
    ):
        CrossFit(folds=5, outcome_model=model).run(rare(3))
    assert not Signed.seen  # found before any work
    assert not stacks
    assert CrossFit(folds=3, outcome_model=model).run(rare(3)).means.shape == (60, 2)
    assert CrossFit(folds=5).run(rare(3), "ipw").means is None  # needs no model, hence no folds


def test_an_action_too_rare_for_two_levels_is_named() -> None:
    log = rare(3)
    five = fold_rows(60, 5, seed=0, strata=log.action)
    with pytest.raises(ValueError, match=rf"fold \d of 5 has {RARE}; use fewer folds \(committee"):
        CrossFit(folds=2, outcome_model=Signed()).run(log, outer=five)
    together = rare(3, groups=np.repeat(np.arange(20), 3))  # all three in one group
    halves = [np.arange(0, 60, 2), np.arange(1, 60, 2)]
    with pytest.raises(ValueError, match=rf"rows outside two folds has {RARE}, with groups kept together"):
        CrossFit(folds=2, outcome_model=Signed()).run(together, outer=halves)
    assert not Signed.seen


def test_too_few_rows_for_the_folds() -> None:
    with pytest.raises(ValueError, match=r"too few rows for 31 nuisance folds: n_samples=60; use fewer"):
        CrossFit(folds=31, outcome_model=Signed()).run(rare(30))


def test_too_few_groups_for_the_folds() -> None:
    with pytest.raises(ValueError, match=r"3 groups cannot be divided into 5 folds; use at most 3"):
        CrossFit(folds=5, outcome_model=Signed()).run(rare(30, groups=np.arange(60) % 3))


def test_repeats_average_dealings() -> None:
    log = numbered_log()
    made_of = CrossFit(folds=4, repeats=2, outcome_model=Signed(), seed=3).run(log).means
    means = CrossFit(folds=4, repeats=2, outcome_model=DummyRegressor(), seed=3).run(log).means
    for row in range(ROWS):
        for action in range(2):
            fits = fits_in(2 * made_of[row, action])
            assert [fit // 8 for fit in fits] == [0, 1]  # a model of each dealing, which has 4 folds x 2 actions
            wanted = np.mean([log.outcome[Signed.seen[fit]].mean() for fit in fits])
            assert means[row, action] == pytest.approx(wanted, rel=1e-12)
    once = CrossFit(folds=4, outcome_model=DummyRegressor(), seed=3).run(log).means
    assert not np.allclose(once, means)


@pytest.mark.parametrize("model", [DummyRegressor(), NETWORK["outcome_model"]], ids=["learner", "network"])
def test_a_seed_gives_the_same_again(model: Any) -> None:
    log = numbered_log()
    settings = {**NETWORK, "folds": 2, "committee": 2, "outcome_model": model}
    one, again, other = (CrossFit(seed=seed, **settings).run(log).means for seed in (4, 4, 5))
    assert_array_equal(one, again)
    assert not np.allclose(one, other)


# -- learners ---------------------------------------------------------------------------------------------


def test_per_action_restated() -> None:
    log = numbered_log(actions=3)
    means = CrossFit(outcome_model=PerAction(LinearRegression())).run(log).means
    assert_array_equal(means, CrossFit(outcome_model=LinearRegression()).run(log).means)
    design = np.column_stack([np.ones(ROWS), log.x])
    for fold in folds_of_a_run(log):
        for action in range(3):
            rows = rows_outside(ROWS, fold)[log.action[rows_outside(ROWS, fold)] == action]
            slope = np.linalg.lstsq(design[rows], log.outcome[rows], rcond=None)[0]
            assert_allclose(means[fold, action], design[fold] @ slope, rtol=1e-8, atol=1e-8)


def test_with_action_restated() -> None:
    log = numbered_log(actions=3)
    means = CrossFit(outcome_model=WithAction(Ridge(alpha=2.0))).run(log).means
    design = np.hstack([log.x, np.eye(3)[log.action]])
    for fold in folds_of_a_run(log):
        rows = rows_outside(ROWS, fold)
        center, level = design[rows].mean(axis=0), log.outcome[rows].mean()
        centered = design[rows] - center
        slope = np.linalg.solve(centered.T @ centered + 2.0 * np.eye(5), centered.T @ (log.outcome[rows] - level))
        for action in range(3):
            asked = np.hstack([log.x[fold], np.tile(np.eye(3)[action], (len(fold), 1))])
            assert_allclose(means[fold, action], level + (asked - center) @ slope, rtol=1e-8)


def test_centered_ipw_needs_one_regression_on_x_alone() -> None:
    log = numbered_log(actions=3)
    run = CrossFit(outcome_model=LinearRegression()).run(log, "centered_ipw")
    assert run.means.shape == (ROWS, 1)
    assert run.outcome_mean is None
    design = np.column_stack([np.ones(ROWS), log.x])
    for fold in folds_of_a_run(log):
        slope = np.linalg.lstsq(design[rows_outside(ROWS, fold)], log.outcome[rows_outside(ROWS, fold)], rcond=None)[0]
        assert_allclose(run.means[fold, 0], design[fold] @ slope, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("classes", [(0.0, 1.0), (1.0, 3.0)], ids=["0/1", "1/3"])
@pytest.mark.parametrize("wrapped", [PerAction, WithAction])
def test_a_classifier_gives_means(wrapped: Any, classes: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(ROWS, 2)), np.arange(ROWS) % 2
    won = rng.random(ROWS) < 1 / (1 + np.exp(-2.0 * x[:, 1] * (2 * action - 1)))
    log = LoggedFeedback.of(x, np.where(won, classes[1], classes[0]), action, propensity=0.5)
    means = CrossFit(folds=2, outcome_model=wrapped(LogisticRegression())).run(log).means
    assert classes[0] < means.min()
    assert means.max() < classes[1]
    if wrapped is PerAction:
        for fold in folds_of_a_run(log, folds=2):
            for number in range(2):
                rows = rows_outside(ROWS, fold)[action[rows_outside(ROWS, fold)] == number]
                chance = LogisticRegression().fit(x[rows], won[rows]).predict_proba(x[fold])[:, 1]
                assert_allclose(means[fold, number], classes[0] + (classes[1] - classes[0]) * chance, rtol=1e-6)


@pytest.mark.parametrize("wrapped", [PerAction, WithAction])
def test_weights_reach_the_learner(wrapped: Any) -> None:
    weight = np.random.default_rng(0).uniform(0.1, 5.0, ROWS)
    log = numbered_log(sample_weight=weight)
    CrossFit(outcome_model=wrapped(Signed())).run(log)
    assert len(Signed.seen) == (10 if wrapped is PerAction else 5)
    for seen, given in zip(Signed.seen, Signed.weights, strict=True):
        assert_array_equal(given, weight[seen])


def test_weighted_means_restated() -> None:
    weight = np.random.default_rng(0).uniform(0.1, 5.0, ROWS)
    log = numbered_log(sample_weight=weight)
    means = CrossFit(outcome_model=DummyRegressor()).run(log).means
    for fold in folds_of_a_run(log):
        for action in range(2):
            rows = rows_outside(ROWS, fold)[log.action[rows_outside(ROWS, fold)] == action]
            assert_allclose(means[fold, action], np.sum(weight[rows] * log.outcome[rows]) / weight[rows].sum())


def test_without_weights_none_are_passed() -> None:
    CrossFit(outcome_model=Signed()).run(numbered_log())
    assert Signed.weights == [None] * 10


def test_a_learner_without_weights_is_refused() -> None:
    log = numbered_log(sample_weight=np.linspace(1.0, 2.0, ROWS))
    with pytest.raises(ValueError, match=r"KNeighborsRegressor takes no sample_weight; bring a learner that does, or"):
        CrossFit(outcome_model=KNeighborsRegressor()).run(log)


@pytest.mark.parametrize("construction", ["dr", "centered_ipw"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("model", [None, MLP(hidden=(8,)), DummyRegressor()], ids=["default", "MLP", "learner"])
def test_a_constant_outcome_has_constant_means(model: Any, nested: bool, construction: str) -> None:
    x, action = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    log = LoggedFeedback.of(x, np.full(60, 0.1), action, propensity=0.5)
    outer = fold_rows(60, 3, seed=0, strata=action) if nested else None
    run = CrossFit(folds=3, outcome_model=model).run(log, construction, outer=outer)
    assert_allclose(run.means, 0.1, rtol=1e-12)
    if nested:
        assert_allclose(run.fold_means, 0.1, rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"folds": 1}, ValueError, r"folds .*whole number >= 2, got 1; try 5"),
        ({"folds": 2.5}, ValueError, r"folds .*whole number.*2\.5"),
        ({"folds": True}, ValueError, r"folds .*True"),
        ({"repeats": 0}, ValueError, r"repeats .*>= 1, got 0; try 1"),
        ({"clip": 0.5}, ValueError, r"clip .*'auto'.*\[0, 0\.5\), got 0\.5; try 0\.01"),
        ({"clip": -0.1}, ValueError, r"clip .*got -0\.1"),
        ({"clip": np.nan}, ValueError, r"clip .*got nan"),
        ({"clip": None}, ValueError, r"clip .*got None"),
        ({"clip": "none"}, ValueError, r"clip .*got 'none'"),
        ({"outcome_model": "forest"}, TypeError, r"model .*'forest'"),
        ({"outcome_model": MLP}, TypeError, r"model .*MLP"),
    ],
    ids=lambda value: "" if not isinstance(value, dict) else " ".join(f"{k} {v}" for k, v in value.items()),
)
def test_settings_are_refused(given: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        CrossFit(**given)


def test_an_unknown_construction_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one of dr, ipw, centered_ipw, dm, got 'best'"):
        CrossFit().run(numbered_log(), "best")


# -- masked loss ------------------------------------------------------------------------------------------


def test_masked_square_restated() -> None:
    rng = np.random.default_rng(0)
    raw, outcome = rng.normal(size=(12, 3)).astype(np.float32), rng.normal(size=12).astype(np.float32)
    action = np.tile([0, 1, 2], 4)
    loss = MaskedSquare(3)
    assert loss.n_raw == 3
    wanted = [0.5 * (raw[row, action[row]] - outcome[row]) ** 2 for row in range(12)]
    for kind in (np.int32, np.float32):  # beside outcomes actions may be kept as floats
        losses = loss.row_loss(jnp.asarray(raw), (jnp.asarray(outcome), jnp.asarray(action.astype(kind))), jnp.ones(()))
        assert losses.shape == (12,)
        assert_allclose(losses, wanted, rtol=1e-6)


def test_only_the_output_of_the_action_taken_learns() -> None:
    rng = np.random.default_rng(0)
    raw, outcome = rng.normal(size=(12, 3)).astype(np.float32), rng.normal(size=12).astype(np.float32)
    action = np.tile([0, 1, 2], 4)
    slope = jax.grad(lambda raw: MaskedSquare(3).row_loss(raw, (outcome, jnp.asarray(action)), 1.0).sum())(raw)
    taken = np.eye(3)[action] == 1
    assert_array_equal(np.asarray(slope)[~taken], 0.0)
    assert_allclose(np.asarray(slope)[taken], raw[taken] - outcome, rtol=1e-6)  # one a row, in order


# -- propensities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("design", [BinaryDesign("DGP2"), MultiActionDesign(n_actions=3)], ids=["two", "three"])
def test_estimated_propensities_are_near_and_said_to_be_estimated(design: Any) -> None:
    sample = LoggedDesign(design).sample(4000, seed=0)
    log = LoggedFeedback.of(sample.x, sample.outcome, sample.action)
    with pytest.warns(EstimatedPropensityWarning) as warned:
        run = CrossFit().run(log, "ipw")
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert run.estimated
    assert run.propensity.shape == sample.propensity.shape
    assert_allclose(run.propensity.sum(axis=1), 1.0, rtol=1e-6)
    assert np.mean(np.abs(run.propensity - sample.propensity)) < 0.05
    fitted, constant = (float(number) for number in re.findall(r"(-\d\.\d+)", str(warned[0].message)))
    assert fitted == pytest.approx(np.mean(np.log(run.propensity[np.arange(4000), log.action])), abs=6e-4)
    shares = np.bincount(log.action) / 4000
    assert constant == pytest.approx(np.sum(shares * np.log(shares)), abs=6e-4)
    assert fitted > constant


def test_given_propensities_pass_untouched() -> None:
    log = numbered_log()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = CrossFit(outcome_model=DummyRegressor()).run(log)
    assert run.propensity is log.propensity
    assert not run.estimated


class SignedClassifier(ClassifierMixin, Signed):
    """The chance of action 0 is 2 ** -(1 + number of the fit)."""

    def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> SignedClassifier:
        super().fit(x, y, sample_weight)
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        chance = np.full(len(x), 2.0 ** -(1 + self.number_))
        return np.column_stack([chance, 1.0 - chance])


def test_a_classifier_is_cross_fitted_without_a_word() -> None:
    weight = np.random.default_rng(0).uniform(0.5, 2.0, ROWS)
    log = numbered_log(propensity=SignedClassifier(), sample_weight=weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = CrossFit(folds=5).run(log, "ipw")
    assert run.estimated
    assert len(Signed.seen) == 5
    signs = np.round(-np.log2(run.propensity[:, 0])).astype(int) - 1
    for number, (seen, given) in enumerate(zip(Signed.seen, Signed.weights, strict=True)):
        assert_array_equal(np.sort(seen), np.flatnonzero(signs != number))
        assert_array_equal(given, weight[seen])
    assert len(np.unique(signs)) == 5


def test_repeats_average_propensities() -> None:
    log = numbered_log(actions=3, propensity=DummyClassifier(strategy="prior"))
    run = CrossFit(folds=4, repeats=2, outcome_model=WithAction(Signed()), seed=3).run(log)
    for row in range(ROWS):
        fits = fits_in(2 * run.means[row, 0])  # the same dealings as those of the outcome model
        shares = [np.bincount(log.action[Signed.seen[fit]], minlength=3) / len(Signed.seen[fit]) for fit in fits]
        assert_allclose(run.propensity[row], np.mean(shares, axis=0), rtol=1e-12)


def test_a_classifier_and_outer_folds_go_together() -> None:
    log = numbered_log(propensity=LogisticRegression())
    outer = fold_rows(ROWS, 3, seed=0, strata=log.action)
    run = CrossFit(folds=2, outcome_model=DummyRegressor()).run(log, outer=outer)
    assert_allclose(run.propensity.sum(axis=1), 1.0)
    assert np.all(run.propensity > 0.2)


# -- controls ---------------------------------------------------------------------------------------------


def test_nuisances_see_features_and_controls() -> None:
    columns: list[int] = []

    class Wide(Signed):
        def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> Wide:
            columns.append(x.shape[1])
            return super().fit(x, y, sample_weight)

    class WideClassifier(SignedClassifier):
        def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None) -> WideClassifier:
            columns.append(x.shape[1])
            return super().fit(x, y, sample_weight)

    log = numbered_log(controls=np.zeros((ROWS, 3)), propensity=WideClassifier())
    CrossFit(outcome_model=Wide()).run(log)
    assert columns == [5] * 15  # two features and three controls; five classifiers, ten regressors


def test_a_confounder_among_the_controls_is_controlled_for() -> None:
    n, everybody, seen, unseen = 1000, np.tile([0.0, 1.0], (1000, 1)), [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x, hidden = rng.normal(size=(n, 2)), rng.normal(size=n)
        action = (rng.random(n) < 1 / (1 + np.exp(-1.5 * hidden))).astype(int)
        outcome = 0.5 * action + 2.0 * hidden + x[:, 0] + rng.normal(size=n)  # everybody treated: 0.5
        for errors, controls in ((seen, hidden[:, None]), (unseen, None)):
            log = LoggedFeedback.of(x, outcome, action, propensity=LogisticRegression(), controls=controls)
            models = CrossFit(folds=2, outcome_model=LinearRegression(), seed=seed)
            value = log_evaluator(log, models).value_of(everybody)
            errors.append((value.estimate - 0.5) / value.se)
    assert abs(np.mean(seen)) * np.sqrt(8) < 3.0
    assert np.max(np.abs(seen)) < 3.5
    assert np.min(unseen) > 3.0


# -- pseudo-outcomes --------------------------------------------------------------------------------------

CLIP = 0.1


def ran(construction: str, *, outer: bool = False, **given: Any) -> Nuisances:
    rng = np.random.default_rng(1)
    chances = rng.dirichlet([1.0, 1.0, 1.0], ROWS)
    log = numbered_log(actions=3, **{"propensity": chances, **given})
    folds = fold_rows(ROWS, 3, seed=0, strata=log.action) if outer else None
    return CrossFit(folds=2, outcome_model=LinearRegression(), clip=CLIP).run(log, construction, outer=folds)


def restated(run: Nuisances, construction: str, means: Any, share: float = 1.0) -> np.ndarray:
    """The n x K table, row by row."""
    log = run.feedback
    table = np.zeros((ROWS, 3))
    for row in range(ROWS):
        taken, chance = log.action[row], run.logged_propensity[row]
        for action in range(3):
            center = {"ipw": 0.0, "centered_ipw": None if means is None else means[row, 0]}.get(
                construction, None if means is None else means[row, action % means.shape[1]]
            )
            table[row, action] = center
            if action == taken and construction != "dm":
                table[row, action] += share * (log.outcome[row] - center) / chance
            if log.cost is not None:
                table[row, action] -= log.cost[row, action]
    return table


COSTS = {"free": None, "cost": {0: 0.25, 2: 1.5}}


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("construction", ["dr", "ipw", "centered_ipw", "dm"])
def test_pseudo_outcomes_restated(construction: str, cost: str) -> None:
    run = ran(construction, cost=COSTS[cost])
    assert_allclose(run.pseudo_outcomes(construction), restated(run, construction, run.means), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("construction", ["dr", "ipw", "centered_ipw", "dm"])
def test_pseudo_outcomes_of_a_fold_restated(construction: str, cost: str) -> None:
    run = ran(construction, outer=True, cost=COSTS[cost])
    for fold in range(3):
        means = None if construction == "ipw" else run.fold_means[fold].astype(float)
        wanted = restated(run, construction, means)
        assert_allclose(run.pseudo_outcomes(construction, fold=fold), wanted, rtol=1e-10, atol=1e-12)
    if construction != "ipw":
        one, two = (run.pseudo_outcomes(construction, fold=fold) for fold in (0, 1))
        assert not np.allclose(one, two)


@pytest.mark.parametrize("fold", [None, 1])
def test_correction_moves_from_the_model_to_doubly_robust(fold: int | None) -> None:
    run = ran("dr", outer=True, cost={1: 0.5})
    means = run.means if fold is None else run.fold_means[fold].astype(float)
    none, half, all_of_it = (run.pseudo_outcomes("dr", correction=share, fold=fold) for share in (0.0, 0.5, 1.0))
    assert_allclose(none, run.pseudo_outcomes("dm", fold=fold))
    assert_allclose(none, means - run.feedback.cost)
    assert_allclose(half, 0.5 * (none + all_of_it), rtol=1e-12, atol=1e-12)
    assert_allclose(half, restated(run, "dr", means, 0.5), rtol=1e-10, atol=1e-12)
    assert not np.allclose(half, all_of_it)


def test_logged_propensity_is_clipped_and_of_the_action_taken() -> None:
    run = ran("ipw")
    chances, taken = run.propensity, run.feedback.action
    kept = np.all(chances >= CLIP, axis=1)
    assert 0 < kept.sum() < ROWS
    rows = np.arange(ROWS)
    assert_allclose(run.logged_propensity[kept], chances[rows, taken][kept])
    low = chances[rows, taken] < CLIP
    assert low.any()
    assert_allclose(run.logged_propensity[low], CLIP)
    assert run.logged_propensity.min() >= CLIP


def test_one_propensity_a_row_is_clipped_alone() -> None:
    chance = np.linspace(0.01, 1.0, ROWS)
    run = ran("ipw", propensity=chance)
    assert_allclose(run.logged_propensity, np.maximum(chance, CLIP))
    assert_allclose(run.pseudo_outcomes("ipw"), restated(run, "ipw", None))


# -- clip -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 5, 40])
def test_the_automatic_clip(count: int) -> None:
    assert CrossFit().clip_for(count) == pytest.approx(0.02 / count)
    assert CrossFit(clip=0.003).clip_for(count) == 0.003
    assert CrossFit(clip=0).clip_for(count) == 0.0


@pytest.mark.parametrize(("clip", "count"), [(0.25, 4), (0.34, 3), (0.4, 10)])
def test_a_clip_of_one_over_the_actions_is_refused(clip: float, count: int) -> None:
    message = rf"clip must be below 1/{count} with {count} actions, got {clip}; try {0.02 / count:g}"
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossFit(clip=clip).clip_for(count)
    with pytest.raises(ValueError, match=re.escape(message)):
        CrossFit(clip=clip).run(numbered_log(actions=count), "ipw")


def test_the_clip_is_kept() -> None:
    assert CrossFit().run(numbered_log(actions=4), "ipw").clip == pytest.approx(0.005)
