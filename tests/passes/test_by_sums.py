"""What learns from sums over the rows in passes: forests, additive regressions, propensities; what none of it sees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.samples import drawn_actions

from gbpl import (
    MLP,
    Binary,
    CrossFit,
    EstimatedPropensityWarning,
    FitConfig,
    ForestFeatures,
    FullFeedback,
    FullVector,
    LoggedFeedback,
)
from gbpl.fitting.stack import StackProblem
from gbpl.models.basis import leaf_numbers
from gbpl.nuisance.averaged import additive_means, convex_weights
from gbpl.passes import fit as passes_fit
from gbpl.passes.additive import AdditiveMeans
from gbpl.passes.chunks import Passes
from gbpl.passes.fit import LargeFit, fit_large
from gbpl.passes.forests import ForestMembers
from gbpl.passes.leaf_means import TREES, OutcomeForests
from gbpl.passes.rows import ArrayRows, Chunk, folds_of, sample_numbers
from gbpl.passes.screening import cannot_count, largest_share
from gbpl.path.plan import PathSettings

FOREST = ForestFeatures(trees=10, depth=3, components=6)
LINEAR = Binary(squash=False)  # its minimum is known in closed form


def settings(surrogate, model, **changed) -> PathSettings:
    made = PathSettings(
        surrogate=surrogate, model=model, zetas=[1.0], eta=1.0, prior_sd=1.0, committee=True, seed=0,
        config=FitConfig(learning_rate=1e-2, batch_size=256, max_epochs=2), device="auto", progress=False,
    )  # fmt: skip
    return replace(made, **changed)


def stepped(n: int, *, weights: bool = False) -> FullFeedback:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, 4))
    gap = np.where(x[:, 0] > 0.3, 1.0, -0.5) + 0.5 * (x[:, 1] > -0.2)
    outcomes = np.column_stack([np.zeros(n), gap]) + rng.standard_normal((n, 2))
    return FullFeedback.of(x, outcomes, sample_weight=rng.uniform(0.5, 2.0, n) if weights else None)


def logged(n: int, **changed) -> LoggedFeedback:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((n, 4))
    chance = np.exp(0.5 * x[:, :3])
    chance /= chance.sum(axis=1, keepdims=True)
    action = drawn_actions(rng, chance)
    outcome = np.sign(x[:, :3])[np.arange(n), action] + 0.5 * rng.standard_normal(n)
    return LoggedFeedback.of(x, outcome, action, **({"propensity": chance} | changed))


def forest_fit(feedback: FullFeedback, surrogate=LINEAR, *, sample: int, chunk_rows: int = 3000) -> LargeFit:
    return fit_large(ArrayRows(feedback), settings(surrogate, FOREST), sample=sample, chunk_rows=chunk_rows)


def learned_rows(feedback: FullFeedback, result: LargeFit) -> np.ndarray:
    return np.delete(np.arange(len(feedback)), result.numbers)


def in_memory(feedback: FullFeedback, result: LargeFit, rows: np.ndarray):
    """The same members fitted to some rows by what fits them in memory."""
    fit, fold = result.fit, folds_of(rows, 5, seed=0)
    target = ((feedback.outcomes[rows, 1:] - feedback.outcomes[rows, :1]) / fit.scale).astype("f")
    weight = None if feedback.weights is None else feedback.weights[rows]
    members = []
    for member in fit.every:
        train = np.flatnonzero(fold != member.fold).astype(np.int32)
        own = None if weight is None else weight[train]
        members.append(replace(member, train=train, weights=own, validation=train[:0], validation_weights=None))
    problem = StackProblem(fit.standardizer.apply(feedback.x[rows]), target, members)
    return FOREST.fit_stacks([problem], fit.surrogate, config=None, device="auto", progress=False)[0]


# -- forests of the score ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weighted"])
def test_forests_grown_on_all_rows_are_those_of_memory(monkeypatch, weights) -> None:
    """Half of the rows are kept aside, and trees are grown on the other half: all that is learned from."""
    monkeypatch.setattr(passes_fit, "LEAST_LEARNED", 2)
    feedback = stepped(3000, weights=weights)
    result = forest_fit(feedback, sample=1500)
    expected = in_memory(feedback, result, learned_rows(feedback, result))
    trees, last = result.fit.params
    for name in ("feature", "threshold", "value"):
        assert_array_equal(trees[name], expected.params[0][name])
    for name in ("weight", "bias"):
        assert_allclose(last[name], expected.params[1][name], atol=2e-4)


def test_one_newton_step_brings_the_last_layer_of_a_sample_to_that_of_all_rows() -> None:
    feedback = stepped(12_000)
    result = forest_fit(feedback, sample=1000)
    fit, rows = result.fit, learned_rows(feedback, result)
    grown = np.setdiff1d(sample_numbers(12_000, 2000, seed=0), result.numbers)
    first = in_memory(feedback, result, grown).params
    fold, target = folds_of(rows, 5, seed=0), (feedback.outcomes[rows, 1] - feedback.outcomes[rows, 0]) / fit.scale
    off, before = [], []
    for number, member in enumerate(fit.members):
        own = rows[fold != member.fold]
        seen = np.isin(own, grown)
        params = [{name: part[number] for name, part in layer.items()} for layer in fit.params]
        x = fit.standardizer.apply(feedback.x[own])
        phi = np.asarray(FOREST.features(params, x), np.float64)
        phi[seen] = FOREST.training_features(params, x[seen], member.seed)  # by trees that did not see them
        basis = np.column_stack([phi, np.ones(len(own))])
        ridge = np.eye(7) / (member.prior_sd**2 * member.eta * len(own))
        solved = np.linalg.solve(
            member.zeta * basis.T @ basis / len(own) + ridge, basis.T @ target[fold != member.fold] / len(own)
        )
        for held, layer in ((off, params[1]), (before, {name: part[number] for name, part in first[1].items()})):
            w = np.append(layer["weight"][:, 0], layer["bias"][0])
            held.append(np.mean((basis @ (w - solved)) ** 2))
    assert np.max(np.array(off) / before) < 0.1


def test_the_size_of_chunks_does_not_matter() -> None:
    feedback = stepped(6000, weights=True)
    one, two = (forest_fit(feedback, Binary(), sample=1000, chunk_rows=rows).fit for rows in (3000, 700))
    for name in ("weight", "bias"):
        assert_allclose(one.params[1][name], two.params[1][name], atol=1e-4)
    assert_allclose(one.path.welfare, two.path.welfare, atol=1e-4)


def test_nothing_learns_from_the_sample() -> None:
    """Other outcomes of its rows change nothing; and no pass has them."""
    feedback = stepped(6000)
    result = forest_fit(feedback, sample=1000)
    changed = feedback.outcomes.copy()
    changed[result.numbers] = changed[result.numbers][:, ::-1]
    again = forest_fit(replace(feedback, outcomes=changed), sample=1000)
    for name in ("weight", "bias"):
        assert_allclose(again.fit.params[1][name], result.fit.params[1][name], atol=1e-5)
    assert_allclose(again.fit.path.welfare, result.fit.path.welfare, atol=1e-9)
    passes = Passes(ArrayRows(feedback), settings(LINEAR, FOREST), folds=5, sample=1000, chunk_rows=700)
    for chunks in (passes.shuffled(1, 1), passes.in_order()):
        seen = np.sort(np.concatenate([read.chunk.number for read in chunks]))
        assert_array_equal(seen, learned_rows(feedback, result))


def test_forests_stand_beside_networks_and_are_weighed_with_them() -> None:
    chosen = settings(Binary(), MLP(hidden=(8,)), beside=(FOREST,), zetas=None, eta=None)
    result = fit_large(ArrayRows(stepped(6000)), chosen, sample=1000, chunk_rows=3000)
    path = result.fit.path
    assert path.model == ["MLP"] * 5 + ["ForestFeatures"] * 2
    assert path.weight[5:].sum() > 0.5  # effects are steps
    assert len(result.fit.problems()) == len(result.fit.members)
    assert all(problem.phi is None for problem in result.fit.problems())


def products(n: int, columns: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Features and effects without a first split: no half of any feature's values has a mean effect other than zero."""
    x = np.random.default_rng(4).standard_normal((n, 4)).astype("f")
    return x, np.column_stack([np.zeros(n), *(2.0 * x[:, k] * x[:, k + 1] for k in range(columns - 1))])


def test_forests_far_behind_the_networks_are_left_out_before_any_pass(monkeypatch) -> None:
    """A product has no first split; what is left are the networks, as if there had been no forest."""
    x, mean = products(20_000)
    feedback = FullFeedback.of(x, mean + np.random.default_rng(5).standard_normal(mean.shape))
    chosen = settings(
        Binary(), MLP(hidden=(16,)), beside=(FOREST,), zetas=None, eta=None,
        config=FitConfig(learning_rate=1e-2, batch_size=256, max_epochs=6),
    )  # fmt: skip
    monkeypatch.setattr(ForestMembers, "learn", lambda *_: pytest.fail("a pass for forests"))
    fit, alone = (
        fit_large(ArrayRows(feedback), one, sample=4000, chunk_rows=5000).fit
        for one in (chosen, replace(chosen, beside=()))
    )
    assert fit.path.model is None
    assert fit.model == MLP(hidden=(16,))
    assert_allclose(fit.path.welfare, alone.path.welfare, atol=1e-6)
    assert_allclose(fit.deviation, alone.deviation, atol=1e-5)


def test_forests_on_a_device_of_their_own_are_the_same(monkeypatch) -> None:
    """What a GPU computes with JAX, a CPU computes in numpy."""
    one = forest_fit(stepped(6000), Binary(), sample=1000).fit
    monkeypatch.setattr(Passes, "on_cpu", False)
    two = forest_fit(stepped(6000), Binary(), sample=1000).fit
    for name in ("weight", "bias"):
        assert_allclose(one.params[1][name], two.params[1][name], atol=1e-4)
    assert_allclose(one.path.welfare, two.path.welfare, atol=1e-4)


def test_an_entry_cannot_count_if_it_is_behind_by_more_than_four_standard_errors() -> None:
    rng = np.random.default_rng(6)
    best, noise = rng.standard_normal(400), rng.standard_normal((2, 400))
    noise = (noise - noise.mean(axis=1, keepdims=True)) / noise.std(axis=1, keepdims=True)  # standard error 1 / 20
    behind = best - np.array([[0.21], [0.3]]) + noise
    assert cannot_count(behind, np.stack([best - 1.0, best]))
    assert not cannot_count(behind + 0.02, np.stack([best - 1.0, best]))
    weight = np.repeat([1.0, 0.0], 200)  # with half of the rows the errors are larger
    assert not cannot_count(behind, np.stack([best - 1.0, best]), weight)


# -- models of the log -------------------------------------------------------------------------------------------


def sums_of(part, passes: Passes) -> None:
    for read in passes.in_order():
        part.add(read, read.chunk.outcome)
    part.close()


def test_leaves_have_the_means_of_all_rows_outside_the_fold() -> None:
    log = logged(5000, sample_weight=np.random.default_rng(2).uniform(0.5, 2.0, 5000))
    passes = Passes(ArrayRows(log), settings(FullVector(3), MLP()), folds=5, sample=800, chunk_rows=900)
    forests = OutcomeForests(passes, passes.grown.chunk.outcome, 3)
    sums_of(forests, passes)
    rows = np.delete(np.arange(5000), passes.sample.chunk.number)
    x, fold, new = passes.statistics.standardizer.apply(log.x[rows]), folds_of(rows, 5, seed=0), passes.sample
    forest = forests.forests[2, 1]
    own = (fold != 2) & (log.action[rows] == 1)
    leaf, of_new = (leaf_numbers(forest.feature, forest.threshold, part) for part in (x[own], new.x[new.fold == 2]))
    y, w = log.outcome[rows][own], log.weights[rows][own]
    expected = np.zeros(len(of_new))
    for tree in range(TREES):
        means = {number: np.average(y[leaf[:, tree] == number], weights=w[leaf[:, tree] == number])
                 for number in np.unique(leaf[:, tree])}  # fmt: skip
        expected += [means[number] for number in of_new[:, tree]]
    assert_allclose(forests.start(new)[new.fold == 2, 1], expected / TREES, atol=1e-5)


def test_additive_regressions_from_sums_are_those_of_memory() -> None:
    log = logged(4000, sample_weight=np.random.default_rng(3).uniform(0.5, 2.0, 4000))
    passes = Passes(ArrayRows(log), settings(FullVector(3), MLP()), folds=5, sample=500, chunk_rows=900)
    additive = AdditiveMeans(passes, 3)
    sums_of(additive, passes)
    rows = np.delete(np.arange(4000), passes.sample.chunk.number)
    known, fold = log.take(rows), folds_of(rows, 5, seed=0)
    expected = additive_means(known, [np.flatnonzero(fold == number) for number in range(5)])[0]
    read = passes.grown._replace(x=passes.statistics.standardizer.apply(known.x), fold=fold)
    assert_allclose(additive.finish(additive.start(read), len(rows)), expected, atol=0.02)  # units are of all rows


def fit_log(log: LoggedFeedback, **options) -> LargeFit:
    nuisance = CrossFit(outcome_model="auto")
    chosen = settings(FullVector(3), FOREST)
    return fit_large(ArrayRows(log), chosen, nuisance=nuisance, sample=1000, chunk_rows=3000, **options)


def test_outcome_models_are_averaged_and_steps_belong_to_the_forest() -> None:
    log = logged(6000)
    known = fit_log(log).nuisances
    assert sum(known.shares.values()) == pytest.approx(1.0)
    assert known.shares["forest"] > 0.5
    error = known.outcome_mean - np.sign(known.feedback.x[:, :3])
    assert np.sqrt(np.mean(error**2)) < 0.4


def test_a_learner_that_adds_nothing_to_the_network_costs_no_pass(monkeypatch) -> None:
    x, mean = products(20_000, 3)
    action = np.random.default_rng(7).integers(3, size=len(x))
    outcome = mean[np.arange(len(x)), action] + 0.5 * np.random.default_rng(8).standard_normal(len(x))
    log = LoggedFeedback.of(x, outcome, action, propensity=np.full((len(x), 3), 1 / 3))
    chosen = settings(
        FullVector(3), MLP(hidden=(8,)), config=FitConfig(learning_rate=1e-2, batch_size=128, max_epochs=20)
    )
    nuisance = CrossFit(outcome_model="auto")
    monkeypatch.setattr(OutcomeForests, "add", lambda *_: pytest.fail("a pass for forests"))
    known = fit_large(ArrayRows(log), chosen, nuisance=nuisance, sample=4000, chunk_rows=5000).nuisances
    assert known.shares == {"network": 1.0}


def test_the_largest_share_is_that_of_least_squares_and_two_standard_errors() -> None:
    rng = np.random.default_rng(9)
    network, learner, weight = rng.standard_normal(500), rng.standard_normal(500), rng.uniform(0.5, 2.0, 500)
    y = 0.7 * network + 0.3 * learner + rng.standard_normal(500)
    gap, off = learner - network, y - network
    best = np.sum(weight * gap * off) / np.sum(weight * gap**2)
    products = weight / weight.mean() * gap * off
    error = products.std() / np.sqrt(500) / np.mean(weight / weight.mean() * gap**2)
    assert largest_share(network, learner, y, weight) == pytest.approx(best + 2.0 * error)
    assert largest_share(network, network, y) == 0.0
    assert convex_weights(np.column_stack([network, learner]), y, weight)[1] == pytest.approx(best, abs=1e-4)


def test_propensities_are_estimated_where_they_are_not_given() -> None:
    log = logged(6000)
    with pytest.warns(EstimatedPropensityWarning, match="logistic regression averaged with a forest"):
        known = fit_log(replace(log, propensity=None)).nuisances
    assert known.estimated
    true = log.propensity[sample_numbers(6000, 1000, seed=0)]
    assert np.sqrt(np.mean((known.propensity - true) ** 2)) < 0.05
    assert_allclose(known.propensity.sum(axis=1), 1.0, atol=1e-5)


def test_a_group_is_in_one_fold_and_not_partly_in_the_sample() -> None:
    log = logged(6000, groups=np.arange(6000) // 4)
    result = fit_log(log)
    groups = result.nuisances.feedback.groups
    assert_array_equal(groups, result.numbers // 4)
    assert (np.unique(groups, return_counts=True)[1] == 4).all()
    assert 700 < len(groups) < 1300
    assert (folds_of(groups, 5, seed=0)[::4] == folds_of(groups, 5, seed=0)[3::4]).all()
    for member in result.fit.every:
        assert not set(groups[member.train]) & set(groups[member.validation])
    chunk = Chunk(np.arange(8), np.zeros((8, 1)), group=np.repeat([5, 6], 4))
    assert len(np.unique(chunk.folds(5, seed=0)[:4])) == 1
