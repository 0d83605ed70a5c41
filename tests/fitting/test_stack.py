"""The contract of a stack: a member's result does not depend on its neighbours, and is what it says it is."""

import dataclasses
import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import gbpl.fitting.block
import gbpl.fitting.stack
from gbpl import MLP, Binary, FitConfig, FullVector, Linear, Member, NonFiniteLossError, fit_stack
from gbpl.datasets import BinaryDesign
from gbpl.fitting.batches import Batches
from gbpl.fitting.members import across_folds, fold_rows, over_zeta
from gbpl.fitting.stack import StackProblem, fit_stacks, twins
from gbpl.runtime.devices import resolve_devices

N = 230
CONFIG = FitConfig(max_epochs=30, patience=3, batch_size=32, learning_rate=5e-3)
MODEL = MLP(hidden=(16,))


@pytest.fixture(scope="module")
def table():
    sample = BinaryDesign("DGP2").sample(N, seed=1)
    return sample.x, np.asarray(Binary().target(sample.outcomes))


@pytest.fixture(scope="module")
def members():
    folds = fold_rows(N, 4, seed=0)
    return over_zeta(across_folds(Member(np.arange(N)), folds, seed=3), [10.0, 1.0, 0.01])


@pytest.fixture(scope="module")
def stack(table, members):
    return fit_stack(*table, members, Binary(), MODEL, config=CONFIG)


def assert_same_params(params, expected, rtol=2e-4):
    """Float32 rounding, grown over some hundred steps of Adam."""
    for got, want in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=2e-5)


def alone(fit, number):
    return fit.select([number])


@pytest.mark.parametrize("number", [0, 5, 11])
def test_alone_equals_in_a_stack_of_twelve(table, members, stack, number):
    single = fit_stack(*table, [members[number]], Binary(), MODEL, config=CONFIG)
    assert_same_params(single.params, alone(stack, number))
    assert single.best_epoch[0] == stack.best_epoch[number]


def test_shuffled(table, members, stack):
    order = np.random.default_rng(5).permutation(len(members))
    shuffled = fit_stack(*table, [members[i] for i in order], Binary(), MODEL, config=CONFIG)
    assert_same_params(shuffled.params, stack.select(order))


def test_in_chunks(table, members, stack, monkeypatch):
    monkeypatch.setattr(gbpl.fitting.stack, "SLOTS_PER_CPU", 2)  # members wait for slots, and sit beside others
    monkeypatch.setattr(gbpl.fitting.stack, "BLOCK_STEPS", 10)  # that are at other epochs
    chunked = fit_stack(*table, members, Binary(), MODEL, config=CONFIG)
    assert_same_params(chunked.params, stack.params)
    assert len(set(map(len, stack.validation_loss))) > 1, "the members must stop at different epochs to test this"


def test_one_and_two_devices(table, members, stack):
    assert len(resolve_devices("cpu")) >= 2
    one = fit_stack(*table, members, Binary(), MODEL, config=CONFIG, device=jax.devices("cpu")[:1])
    assert_same_params(one.params, stack.params)


def test_neighbours_of_other_shapes(table, members, stack):
    other = [Member(np.arange(60), np.arange(60, 90), seed=9), Member(np.arange(100), seed=10)]
    mixed = fit_stack(*table, [other[0], *members, other[1]], Binary(), MODEL, config=CONFIG)
    assert_same_params(mixed.select(range(1, 1 + len(members))), stack.params)


def test_twins_are_one_training_and_the_fits_that_they_are_alone(table, members, monkeypatch):
    """Members that differ in nothing but the rows that stop them; what else differs makes another training."""
    first, other = members[0], members[5]
    part = first.validation
    group = [
        first,
        dataclasses.replace(first, validation=first.train[:40]),  # on what it learns from it goes on for longer
        other,
        dataclasses.replace(first, validation=part[20:], weights=np.ones(len(first.train))),
        dataclasses.replace(first, validation=part[35:]),
        dataclasses.replace(first, validation=part[35:], zeta=0.5),
        dataclasses.replace(first, validation=part[35:], seed=first.seed + 1),
    ]
    assert twins(group) == [[0, 1, 4], [2], [3], [5], [6]]
    seated = []
    slots = gbpl.fitting.block.Block.slots
    monkeypatch.setattr(
        gbpl.fitting.block.Block, "slots", lambda block, seats: seated.append(block) or slots(block, seats)
    )
    together = fit_stack(*table, group[:3], Binary(), MODEL, config=CONFIG)
    assert {len(training) for block in seated for training in block.trainings} == {1, 2}
    for number, member in enumerate(group[:3]):
        single = fit_stack(*table, [member], Binary(), MODEL, config=CONFIG)
        assert_same_params(single.params, alone(together, number))
        assert single.best_epoch[0] == together.best_epoch[number]
        np.testing.assert_allclose(single.validation_loss[0], together.validation_loss[number], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(single.train_loss[0], together.train_loss[number], rtol=1e-4, atol=1e-6)
    assert together.best_epoch[0] < together.best_epoch[1]


def test_smaller_block_for_the_tail(table, members, stack, monkeypatch):
    def tail(loop, bank):
        active = [place for place, number in enumerate(bank.seats) if number is not None]
        size = max(loop.block.rounded(len(active)), len(loop.block.devices))
        return (active + [place for place, number in enumerate(bank.seats) if number is None])[:size]

    monkeypatch.setattr(gbpl.fitting.stack.TrainingLoop, "_tail", tail)
    shrinking = fit_stack(*table, members, Binary(), MODEL, config=CONFIG)
    assert_same_params(shrinking.params, stack.params)


def test_tables_side_by_side_are_separate_fits(table, members):
    """Members of two tables, one below the other, against a fit of each table alone."""
    x, gap = table
    tables = (gap, -0.5 * gap[::-1] + 0.3)
    chosen = members[3:7]
    mixed = [dataclasses.replace(m, table=number) for m in chosen for number in (1, 0)]  # neighbours differ in table
    stacked = fit_stack(x, np.concatenate(tables), mixed, Binary(), MODEL, config=CONFIG)
    for number, target in enumerate(tables):
        apart = fit_stack(x, target, chosen, Binary(), MODEL, config=CONFIG)
        places = [place for place, member in enumerate(mixed) if member.table == number]
        assert_same_params(stacked.select(places), apart.params)
        assert stacked.best_epoch[places].tolist() == apart.best_epoch.tolist()
        np.testing.assert_allclose(stacked.best_loss[places], apart.best_loss, rtol=1e-3, atol=1e-5)
    first, second = (jax.tree.leaves(stacked.select([place])) for place in (0, 1))
    assert max(np.abs(a - b).max() for a, b in zip(first, second, strict=True)) > 0.05, "the tables must differ"


def test_stacks_of_several_problems_are_separate_fits(table, members):
    """Tables of different length, one of them with two tables of targets, as one stack against each alone."""
    x, gap = table
    two = [dataclasses.replace(m, table=number) for m in members[3:6] for number in (1, 0)]
    problems = [
        StackProblem(x, np.concatenate([gap, -gap]), two),
        StackProblem(x[:150][::-1].copy(), 0.5 * gap[:150], [Member(np.arange(90), np.arange(90, 120), seed=4)]),
    ]
    for problem, found in zip(problems, fit_stacks(problems, Binary(), MODEL, config=CONFIG), strict=True):
        alone = fit_stack(*problem, Binary(), MODEL, config=CONFIG)
        assert_same_params(found.params, alone.params)
        assert found.best_epoch.tolist() == alone.best_epoch.tolist()
        assert found.members == alone.members
        assert [len(loss) for loss in found.train_loss] == [len(loss) for loss in alone.train_loss]


def test_every_part_of_a_tree_of_targets_is_in_tables(table):
    """A tree of targets: each leaf is stacked, and a member reads the rows of its table in each."""
    x, gap = table

    @dataclass(frozen=True)
    class Weighted:
        n_raw: int = 1

        def row_loss(self, raw, target, zeta):
            value, size = target
            return size * 0.5 * jnp.sum((value - raw) ** 2, axis=-1)

    rng = np.random.default_rng(0)
    values = [gap, gap[::-1].copy()]
    sizes = [rng.uniform(0.5, 1.5, N).astype(np.float32) for _ in range(2)]
    config = FitConfig(max_epochs=600, batch_size=N, learning_rate=0.02, clip_norm=1e6)
    fit = fit_stack(
        x, (np.concatenate(values), np.concatenate(sizes)),
        [Member(np.arange(N), table=t, prior_sd=0.1) for t in (1, 0)], Weighted(), Linear(), config=config,
    )  # fmt: skip
    design = np.column_stack([x, np.ones(N)])
    for place, t in enumerate((1, 0)):
        ridge = np.eye(design.shape[1]) / 0.1**2
        w = sizes[t][:, None]
        expected = np.linalg.solve(design.T @ (w * design) + ridge, design.T @ (w * values[t]))[:, 0]
        got = np.append(fit.params[0]["weight"][place, :, 0], fit.params[0]["bias"][place, 0])
        np.testing.assert_allclose(got, expected, atol=3e-4)


def test_best_weights_are_kept(table, members, stack):
    """The loss of the kept weights on the validation rows is the lowest of the history, restated in numpy."""
    x, gap = table
    for number in (0, 7):
        member = members[number]
        layers = alone(stack, number)
        h = np.asarray(x[member.validation], np.float32)
        for layer in layers[:-1]:
            h = np.tanh(h @ layer["weight"][0] + layer["bias"][0])
        f = np.tanh(h @ layers[-1]["weight"][0] + layers[-1]["bias"][0])
        loss = np.mean(-gap[member.validation] * f + 0.5 * member.zeta * f**2)
        history = stack.validation_loss[number]
        assert loss == pytest.approx(history.min(), rel=1e-4)
        assert stack.best_loss[number] == pytest.approx(history.min())
        assert stack.best_epoch[number] == history.argmin() + 1


def test_patience(stack):
    for history, best in zip(stack.validation_loss, stack.best_epoch, strict=True):
        assert len(history) == min(CONFIG.max_epochs, best + CONFIG.patience)


@dataclass(frozen=True)
class Identity:
    """A quadratic row loss of an unsquashed output: ridge regression."""

    n_raw: int = 1

    def row_loss(self, raw, target, zeta):
        return 0.5 * jnp.sum((target - raw) ** 2, axis=-1)


def test_objective_is_mean_loss_plus_prior(table):
    """The fit reaches the closed-form ridge solution of mean loss + |w|^2 / (2 sd^2 eta n)."""
    x, gap = table
    eta, prior_sd = 0.5, 0.1
    member = Member(np.arange(N), eta=eta, prior_sd=prior_sd)
    config = FitConfig(max_epochs=600, batch_size=N, learning_rate=0.02, clip_norm=1e6)
    fit = fit_stack(x, gap, [member], Identity(), Linear(), config=config)
    design = np.column_stack([x, np.ones(N)])
    ridge = np.eye(design.shape[1]) / (prior_sd**2 * eta)
    expected = np.linalg.solve(design.T @ design + ridge, design.T @ gap)[:, 0]
    got = np.append(fit.params[0]["weight"][0, :, 0], fit.params[0]["bias"][0, 0])
    np.testing.assert_allclose(got, expected, atol=2e-4)


def test_weights_multiply_the_rows(table):
    """A weighted fit minimises the weighted mean loss: checked against scipy on the same objective."""
    x, gap = table
    weights = np.random.default_rng(2).exponential(size=N)
    member = Member(np.arange(N), weights=7.0 * weights, zeta=2.0, prior_sd=0.3)
    config = FitConfig(max_epochs=600, batch_size=N, learning_rate=0.02, clip_norm=1e6)
    fit = fit_stack(x, gap, [member], Binary(), Linear(), config=config)
    design = np.column_stack([x, np.ones(N)])

    def objective(w):
        f = np.tanh(design @ w)
        loss = -gap[:, 0] * f + 0.5 * 2.0 * f**2
        return np.average(loss, weights=weights) + w @ w / (2 * 0.3**2 * N)

    expected = scipy.optimize.minimize(objective, np.zeros(design.shape[1]), tol=1e-10).x
    got = np.append(fit.params[0]["weight"][0, :, 0], fit.params[0]["bias"][0, 0])
    np.testing.assert_allclose(got, expected, atol=1e-3)


def test_batches_deal_every_row_once_an_epoch():
    member = Member(np.arange(50, 153), weights=np.linspace(1, 2, 103))
    config = FitConfig(batch_size=32)
    steps, size = config.batch_shape(103)
    batches = Batches(member, config)
    rows, weight = np.zeros((4, steps, size), np.int32), np.zeros((4, steps, size), np.float32)
    batches.draw(rows, weight)
    for epoch in range(4):
        real = weight[epoch] > 0
        assert sorted(rows[epoch][real]) == list(range(50, 153))
        counts = real.sum(axis=1)
        assert counts.max() - counts.min() <= 1
        of_row = np.linspace(1, 2, 103) / np.linspace(1, 2, 103).mean()
        expected = of_row[rows[epoch] - 50] / counts[:, None]
        np.testing.assert_allclose(weight[epoch][real], expected[real], rtol=1e-5)
    assert not np.array_equal(rows[0], rows[1])


def test_batches_of_large_samples_cross_epochs_without_repeating():
    member = Member(np.arange(100))
    config = FitConfig(batch_size=10, epoch_rows=30)
    steps, size = config.batch_shape(100)
    batches = Batches(member, config)
    rows, weight = np.zeros((3, steps, size), np.int32), np.zeros((3, steps, size), np.float32)
    batches.draw(rows, weight)
    assert len(set(rows[weight > 0])) == 90


@pytest.mark.parametrize(("n", "most"), [(100, 25), (500, 100), (3000, 128), (1_000_000, 128)])
def test_batch_size_adapts(n, most):
    steps, size = FitConfig().batch_shape(n)
    assert steps >= 2
    assert size <= most
    assert steps * size >= min(n, FitConfig().epoch_rows)


def test_non_finite_loss_names_the_members(table, members):
    wild = dataclasses.replace(CONFIG, learning_rate=1e38)
    with pytest.raises(
        NonFiniteLossError,
        match=r"2 member\(s\): member \(fold 0, zeta 10.0, seed \d+\), member \(fold 1, .*learning_rate \(now 1e\+38\)",
    ):
        fit_stack(*table, members[:2], Binary(), MODEL, config=wild)


def test_interrupt_leaves_nothing(table, members, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(gbpl.fitting.stack.TrainingLoop, "_record", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit_stack(*table, members, Binary(), MODEL, config=CONFIG)


def test_k_actions(table):
    x, _ = table
    outcomes = np.column_stack([np.zeros(N), x[:, 0], -x[:, 0]])
    surrogate = FullVector(3)
    member = Member(np.arange(0, N, 2), np.arange(1, N, 2), zeta=0.1)
    fit = fit_stack(x, np.asarray(surrogate.target(outcomes)), [member], surrogate, MODEL,
                    config=FitConfig(max_epochs=60, patience=20))  # fmt: skip
    policy = surrogate.scores(MODEL.apply(jax.tree.map(lambda leaf: leaf[0], fit.params), x))
    assert np.mean(np.argmax(policy, 1) == np.argmax(outcomes, 1)) > 0.85


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.0}, "learning_rate must be a finite number > 0, got 0.0"),
        ({"patience": 0}, "patience must be a whole number >= 1, got 0"),
        ({"max_epochs": 2.5}, "max_epochs must be a whole number >= 1, got 2.5"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1, got 0"),
        ({"clip_norm": float("nan")}, "clip_norm must be a finite number > 0, got nan"),
    ],
)
def test_bad_config(change, message):
    with pytest.raises(ValueError, match=message):
        FitConfig(**change)


def test_bad_members(table):
    with pytest.raises(ValueError, match="at least one member"):
        fit_stack(*table, [], Binary(), MODEL)
    with pytest.raises(ValueError, match="needs training rows"):
        Member(np.empty(0, int))
    with pytest.raises(ValueError, match="zeta must be a finite number > 0, got -1"):
        Member(np.arange(3), zeta=-1)


# -- folds ------------------------------------------------------------------------------------------------


def assert_every_row_once(folds, n):
    np.testing.assert_array_equal(np.sort(np.concatenate(folds)), np.arange(n))
    assert all(np.array_equal(fold, np.sort(fold)) and fold.dtype == np.int32 for fold in folds)


@pytest.mark.parametrize(("n", "count"), [(103, 5), (6, 3), (7, 7)])
@pytest.mark.parametrize("stratified", [False, True])
def test_folds_hold_every_row_once_and_are_even(n, count, stratified):
    strata = np.random.default_rng(0).integers(0, 3, n) if stratified else None
    folds = fold_rows(n, count, seed=1, strata=strata)
    assert len(folds) == count
    assert_every_row_once(folds, n)
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    if stratified:
        for number in range(3):
            of_it = [np.sum(strata[fold] == number) for fold in folds]
            assert max(of_it) - min(of_it) <= 1


def test_folds_follow_their_seed():
    one, same, other = (fold_rows(50, 4, seed=seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    groups = np.arange(50) // 2
    one, same, other = (fold_rows(50, 4, seed=seed, groups=groups) for seed in (1, 1, 2**32 + 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("stratified", [False, True])
def test_groups_stay_together(stratified):
    rng = np.random.default_rng(3)
    groups = rng.permutation(np.repeat(np.arange(30), rng.integers(1, 8, 30)))
    n = len(groups)
    strata = rng.integers(0, 2, n) if stratified else None
    folds = fold_rows(n, 4, seed=0, strata=strata, groups=groups)
    assert len(folds) == 4
    assert_every_row_once(folds, n)
    where = [{number for number, fold in enumerate(folds) if np.any(groups[fold] == group)} for group in range(30)]
    assert all(len(found) == 1 for found in where)
    sizes = [len(fold) for fold in folds]
    assert min(sizes) > n / 4 - 8  # as even as groups of at most seven rows allow


def test_groups_of_one_row_leave_the_strata_balanced():
    n = 200
    strata = (np.arange(n) % 10 == 0).astype(int)  # a rare action: 20 rows
    folds = fold_rows(n, 5, seed=0, strata=strata, groups=np.random.default_rng(0).permutation(n))
    assert_every_row_once(folds, n)
    assert [int(strata[fold].sum()) for fold in folds] == [4] * 5
    assert [len(fold) for fold in folds] == [40] * 5


def test_groups_are_dealt_at_random():
    groups = np.repeat(np.arange(40), 3)
    together = np.zeros((40, 40))
    for seed in range(30):
        fold_of = np.empty(40, int)
        for number, fold in enumerate(fold_rows(120, 2, seed=seed, groups=groups)):
            fold_of[groups[fold]] = number
        together += fold_of[:, None] == fold_of
    pairs = together[np.triu_indices(40, 1)] / 30
    assert 0.35 < pairs.mean() < 0.65
    assert pairs.max() < 1.0
    assert pairs.min() > 0.0


@pytest.mark.parametrize("stratified", [False, True])
def test_a_stratum_of_few_rows_or_groups_says_nothing(stratified):
    """Whoever needs every action in every fold checks it, with a message of his own."""
    strata = (np.arange(40) < 2).astype(int) if stratified else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_every_row_once(fold_rows(40, 4, seed=0, strata=strata, groups=np.arange(40) // 2), 40)


def test_too_few_groups():
    with pytest.raises(ValueError, match="3 groups cannot be divided into 5 folds; use at most 3 folds"):
        fold_rows(60, 5, seed=0, groups=np.arange(60) % 3)
    assert len(fold_rows(60, 3, seed=0, groups=np.arange(60) % 3)) == 3
