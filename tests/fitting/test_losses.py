"""Row losses of the comparison methods: formulas restated in NumPy, their minimisers, and several in one stack."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from gbpl import MLP, BaselineGap, Binary, FitConfig, FullVector, Linear, Member, NegativeWelfare, fit_stack, welfare
from gbpl.fitting.losses import GapSquare, OneOf, OutcomeSquare, RowLoss, SurrogateLoss, WeightedLogit
from gbpl.fitting.members import across_folds, fold_rows
from gbpl.value.welfare import deterministic

RNG = np.random.default_rng(0)
ROWS = 12
TWO, FOUR = RNG.normal(size=(ROWS, 2)), RNG.normal(size=(ROWS, 4))
RAW = RNG.normal(size=(ROWS, 4))
DIRECT_OF_TWO, DIRECT_OF_FOUR = SurrogateLoss(NegativeWelfare(2)), SurrogateLoss(NegativeWelfare(4))
OF_TWO: list[RowLoss] = [GapSquare(), WeightedLogit(), OutcomeSquare(2), DIRECT_OF_TWO, SurrogateLoss(Binary())]
OF_FOUR: list[RowLoss] = [
    OutcomeSquare(4), DIRECT_OF_FOUR, SurrogateLoss(FullVector(4)), SurrogateLoss(BaselineGap(4, baseline=2)),
]  # fmt: skip


def named(loss: Any) -> str:
    return type(getattr(loss, "surrogate", loss)).__name__


def outcomes_of(loss: RowLoss) -> np.ndarray:
    return TWO if loss in OF_TWO else FOUR


def values(loss: Any, raw: np.ndarray, target: Any, zeta: float = 0.5) -> np.ndarray:
    """Per row, with inputs in float32 as in a stack."""
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (raw, target))
    return np.asarray(loss.row_loss(*single, zeta))


def softmax(raw: np.ndarray) -> np.ndarray:
    e = np.exp(raw)
    return e / e.sum(axis=1, keepdims=True)


# -- formulas ---------------------------------------------------------------------------------------------


def loss_by_hand(loss: RowLoss, raw: np.ndarray) -> np.ndarray:
    gap = TWO[:, 1] - TWO[:, 0]
    match loss:
        case GapSquare():
            return (raw[:, 0] - gap) ** 2 / 2
        case WeightedLogit():
            chance = 1 / (1 + np.exp(-raw[:, 0]))  # of action 1
            return -np.abs(gap) * np.log(np.where(gap > 0, chance, 1 - chance))
        case OutcomeSquare(n_actions=count):
            return sum((raw[:, a] - outcomes_of(loss)[:, a]) ** 2 for a in range(count)) / (2 * count)
        case SurrogateLoss(surrogate=NegativeWelfare(n_actions=2)):
            treated = (np.tanh(raw[:, 0]) + 1) / 2
            return TWO.mean(axis=1) - (1 - treated) * TWO[:, 0] - treated * TWO[:, 1]
        case SurrogateLoss(surrogate=NegativeWelfare()):
            return FOUR.mean(axis=1) - (softmax(raw) * FOUR).sum(axis=1)
    raise AssertionError(loss)


@pytest.mark.parametrize("loss", [*OF_TWO[:4], *OF_FOUR[:2]], ids=lambda loss: f"{named(loss)}{loss.n_raw}")
def test_formula(loss: RowLoss) -> None:
    raw = RAW[:, : loss.n_raw]
    assert_allclose(values(loss, raw, outcomes_of(loss)), loss_by_hand(loss, raw), rtol=1e-5, atol=1e-6)
    assert_allclose(values(loss, raw, loss.target(outcomes_of(loss))), loss_by_hand(loss, raw), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zeta", [0.01, 2.0])
@pytest.mark.parametrize("surrogate", [Binary(), Binary(huber=0.4), BaselineGap(4), FullVector(4, centered=False)])
def test_a_surrogate_takes_the_table(surrogate: Any, zeta: float) -> None:
    loss = SurrogateLoss(surrogate)
    table, raw = FOUR[:, : surrogate.n_actions], jnp.asarray(RAW[:, : surrogate.n_raw], jnp.float32)
    expected = surrogate.row_loss(raw, surrogate.target(jnp.asarray(table, jnp.float32)), zeta)
    assert_allclose(values(loss, RAW[:, : surrogate.n_raw], loss.target(table), zeta), expected, rtol=2e-5, atol=1e-6)
    assert_array_equal(loss.policy(raw), surrogate.policy(surrogate.scores(raw)))


def test_welfare_is_the_surrogate_without_its_penalty() -> None:
    """As zeta goes to zero: W1 - W2 = (R2 - R1) / 2 for two actions, R2 - R1 for more (welfare-risk corollary)."""
    for count, surrogate in ((2, Binary()), (4, FullVector(4))):
        direct, other = SurrogateLoss(NegativeWelfare(count)), SurrogateLoss(surrogate)
        raw, table = RAW[:, : direct.n_raw], FOUR[:, :count]
        factor = surrogate.welfare_factor
        assert_allclose(values(direct, raw, table), factor * values(other, raw, table, 1e-9), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [DIRECT_OF_TWO, DIRECT_OF_FOUR], ids=["two", "four"])
def test_less_loss_is_more_welfare(loss: RowLoss) -> None:
    one, other = RAW[:, : loss.n_raw], -RAW[:, : loss.n_raw]
    table = outcomes_of(loss)
    gain = welfare(np.asarray(loss.policy(one)), table) - welfare(np.asarray(loss.policy(other)), table)
    assert_allclose(values(loss, other, table).mean() - values(loss, one, table).mean(), gain, atol=1e-6)


@pytest.mark.parametrize("loss", [*OF_TWO, *OF_FOUR], ids=lambda loss: f"{named(loss)}{loss.n_raw}")
def test_a_constant_of_the_row_matters_to_regressions_of_levels_alone(loss: RowLoss) -> None:
    raw, table = RAW[:, : loss.n_raw], outcomes_of(loss)
    shifted = table + 3.0 * RAW[:, 3:]
    same = np.allclose(values(loss, raw, shifted), values(loss, raw, table), rtol=1e-4, atol=1e-5)
    assert same != isinstance(loss, OutcomeSquare)


@pytest.mark.parametrize(
    "loss",
    [loss for loss in [*OF_TWO, *OF_FOUR] if not isinstance(loss, OutcomeSquare)],
    ids=lambda loss: f"{named(loss)}{loss.n_raw}",
)
def test_a_target_keeps_the_digits_of_differences(loss: RowLoss) -> None:
    raw, table = RAW[:, : loss.n_raw], outcomes_of(loss)
    assert_allclose(values(loss, raw, loss.target(table + 1e7)), values(loss, raw, table), rtol=1e-5, atol=1e-5)
    uncentered = SurrogateLoss(FullVector(4, centered=False, huber=1.0))
    assert_array_equal(uncentered.target(FOUR), FOUR)  # its robust loss depends on the level


# -- minimisers -------------------------------------------------------------------------------------------


def minimiser(loss: RowLoss, table: np.ndarray, steps: int = 60) -> np.ndarray:
    """Raw outputs, the same for every row, of the smallest mean loss: Newton's method with short steps."""
    target = jnp.asarray(table, jnp.float32)

    def mean_loss(raw: jax.Array) -> jax.Array:
        return loss.row_loss(jnp.tile(raw, (len(table), 1)), target, 1.0).mean()

    def newton(_: int, raw: jax.Array) -> jax.Array:
        curvature = jax.hessian(mean_loss)(raw) + 1e-6 * jnp.eye(loss.n_raw)
        return raw - jnp.clip(jnp.linalg.solve(curvature, jax.grad(mean_loss)(raw)), -1.0, 1.0)

    return np.asarray(jax.lax.fori_loop(0, steps, newton, jnp.zeros(loss.n_raw)))


def test_regressions_find_means() -> None:
    assert_allclose(minimiser(GapSquare(), TWO), [np.mean(TWO[:, 1] - TWO[:, 0])], atol=1e-5)
    assert_allclose(minimiser(OutcomeSquare(4), FOUR), FOUR.mean(axis=0), atol=1e-5)


def test_weighted_logit_finds_the_log_ratio() -> None:
    gap = np.array([3.0, 1.0, -1.5, 0.0, -0.5])
    table = np.column_stack([np.zeros(5), gap])
    assert_allclose(minimiser(WeightedLogit(), table), [np.log(4.0 / 2.0)], atol=1e-4)  # sum of U+ over that of U-


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-5, 5, width=32), min_size=6, max_size=6))
def test_weighted_logit_has_the_sign_of_the_mean_gap(gaps: list[float]) -> None:
    """At raw = 0 the slope is -E[U] / 2, so the minimiser lies on the side of the mean gap (the loss is convex)."""
    table = jnp.asarray(np.column_stack([np.zeros(6), gaps]), jnp.float32)
    loss, raw = WeightedLogit(), jnp.zeros((6, 1))
    slope = jax.grad(lambda shift: loss.row_loss(raw + shift, table, 1.0).mean())(0.0)
    assert_allclose(slope, -np.mean(gaps) / 2, atol=1e-5)


@pytest.mark.parametrize("loss", [DIRECT_OF_TWO, DIRECT_OF_FOUR], ids=["two", "four"])
def test_direct_welfare_moves_to_the_best_action(loss: RowLoss) -> None:
    table = outcomes_of(loss)
    target = jnp.asarray(table, jnp.float32)
    slope = jax.grad(lambda raw: loss.row_loss(jnp.tile(raw, (ROWS, 1)), target, 1.0).mean())
    raw = jax.lax.fori_loop(0, 2000, lambda _, raw: raw - 2.0 * slope(raw), jnp.zeros(loss.n_raw))
    policy = np.asarray(loss.policy(raw[None]))[0]
    assert policy.argmax() == table.mean(axis=0).argmax()
    assert policy.max() > 0.98


# -- policies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [GapSquare(), WeightedLogit()], ids=named)
def test_the_sign_decides(loss: RowLoss) -> None:
    policy = np.asarray(loss.policy(np.array([[-0.1], [0.0], [2.0]])))
    assert_array_equal(policy, [[1, 0], [0, 1], [0, 1]])  # action 1 where f >= 0
    assert_array_equal(deterministic(policy), [0, 1, 1])


def test_the_largest_prediction_decides() -> None:
    assert_array_equal(OutcomeSquare(2).policy(np.array([[1.0, 0.5], [0.2, 0.3], [0.4, 0.4]])), np.eye(2)[[0, 1, 1]])
    assert_array_equal(OutcomeSquare(4).policy(RAW), np.eye(4)[RAW.argmax(axis=1)])


def test_direct_welfare_is_randomized() -> None:
    treated = (np.tanh(RAW[:, 0]) + 1) / 2
    assert_allclose(DIRECT_OF_TWO.policy(RAW[:, :1]), np.column_stack([1 - treated, treated]), atol=1e-6)
    assert_allclose(DIRECT_OF_FOUR.policy(RAW), softmax(RAW), atol=1e-6)


@pytest.mark.parametrize("loss", [*OF_TWO, *OF_FOUR], ids=lambda loss: f"{named(loss)}{loss.n_raw}")
def test_policies_sum_to_one_with_a_member_axis(loss: RowLoss) -> None:
    raw = RAW[None, :, : loss.n_raw] * np.array([1.0, -2.0])[:, None, None]
    policy = np.asarray(loss.policy(raw))
    assert policy.shape == (2, ROWS, outcomes_of(loss).shape[1])
    assert_allclose(policy.sum(axis=-1), 1.0, atol=1e-6)
    assert_allclose(policy[1], loss.policy(raw[1]), atol=1e-7)


@pytest.mark.parametrize("make", [OutcomeSquare, NegativeWelfare])
def test_one_action_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"n_actions must be >= 2, got 1; count every action"):
        make(1)


@pytest.mark.parametrize("loss", [*OF_TWO, OneOf(tuple(OF_TWO))], ids=named)
def test_losses_are_frozen_and_known_by_value(loss: Any) -> None:
    assert hash(replace(loss)) == hash(loss)
    assert replace(loss) == loss
    with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
        loss.n_actions = 3


# -- several methods in one stack -------------------------------------------------------------------------


def value_and_slope(loss: Any, raw: Any, target: Any, zeta: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    single = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (raw, target))

    def total(raw: Any) -> tuple[Any, Any]:
        rows = loss.row_loss(raw, single[1], zeta)
        return rows.sum(), rows

    (_, rows), slope = jax.jit(jax.value_and_grad(total, has_aux=True))(single[0])
    return np.asarray(rows), np.asarray(slope)


@pytest.mark.parametrize("losses", [OF_TWO, OF_FOUR], ids=["two", "four"])
def test_one_of_is_the_loss_its_code_names(losses: list[RowLoss]) -> None:
    both = OneOf(tuple(losses))
    assert both.n_raw == max(loss.n_raw for loss in losses)
    raw = RAW[:, : both.n_raw]
    for code, loss in enumerate(losses):
        value, slope = value_and_slope(both, raw, both.target(outcomes_of(loss), code))
        alone, slope_alone = value_and_slope(loss, raw[:, : loss.n_raw], loss.target(outcomes_of(loss)))
        assert_array_equal(value, alone)
        assert_array_equal(slope[:, : loss.n_raw], slope_alone)
        assert_array_equal(slope[:, loss.n_raw :], 0.0)
        assert_array_equal(both.policy(raw, code), loss.policy(raw[:, : loss.n_raw]))


def test_rows_of_several_codes() -> None:
    both = OneOf(tuple(OF_TWO))
    code = np.arange(ROWS) % len(OF_TWO)
    value, slope = value_and_slope(both, RAW[:, :2], (TWO, code))
    for number, loss in enumerate(OF_TWO):
        mine = code == number
        alone = value_and_slope(loss, RAW[:, : loss.n_raw], TWO)
        assert_allclose(value[mine], alone[0][mine], rtol=1e-6)
        assert_allclose(slope[mine, : loss.n_raw], alone[1][mine], rtol=1e-6)


def test_a_loss_that_overflows_leaves_the_others_alone() -> None:
    """Of a raw output of 1e30 and zeta 1e20 the unsquashed score's slope is infinite; zero times it would be NaN."""
    both = OneOf((SurrogateLoss(Binary(squash=False)), DIRECT_OF_TWO, WeightedLogit()))
    raw, table = np.array([[1e30], [-1e30]]), np.array([[0.0, 1.0], [2.0, -1.0]])
    for code, expected in ((1, [-0.5, -1.5]), (2, [0.0, 0.0])):
        value, slope = value_and_slope(both, raw, (table, np.full(2, code)), zeta=1e20)
        assert_allclose(value, expected)
        assert_allclose(slope, 0.0)
    overflown = value_and_slope(both, raw, (table, np.zeros(2)), zeta=1e20)
    assert not any(np.isfinite(part).any() for part in overflown)


def test_a_stack_of_several_methods_is_the_stacks_of_each() -> None:
    """Same seeds, same number of raw outputs: the same parameters to float32 rounding."""
    x = RNG.normal(size=(60, 3)).astype(np.float32)
    table = np.column_stack([np.zeros(60), x[:, 0]]) + 0.3 * RNG.normal(size=(60, 2))
    both = OneOf((SurrogateLoss(Binary()), OutcomeSquare(2)))
    base = across_folds(Member(np.arange(60, dtype=np.int32)), fold_rows(60, 2, seed=0), seed=1)
    options: Any = {"config": FitConfig(max_epochs=8, learning_rate=0.03), "device": "cpu", "progress": False}
    count = len(both.losses)
    targets = [both.target(table, code) for code in range(count)]
    members = [replace(m, table=code, zeta=0.5 + code) for code in range(count) for m in base]
    mixed = fit_stack(x, tuple(map(np.concatenate, zip(*targets, strict=True))), members, both, MLP((8,)), **options)

    class Wide:
        """One of the losses on a network with as many outputs as the mixed stack's."""

        def __init__(self, loss: RowLoss) -> None:
            self.loss, self.n_raw = loss, both.n_raw

        def row_loss(self, raw: Any, target: Any, zeta: Any) -> Any:
            return self.loss.row_loss(raw[..., : self.loss.n_raw], target, zeta)

    distinct = set()
    for code, loss in enumerate(both.losses):
        own = [replace(m, zeta=0.5 + code) for m in base]
        alone = fit_stack(x, loss.target(table), own, Wide(loss), MLP((8,)), **options)
        chosen = mixed.find(table=code)
        for together, single in zip(jax.tree.leaves(mixed.select(chosen)), jax.tree.leaves(alone.params), strict=True):
            assert_allclose(together, single, rtol=2e-4, atol=2e-5)
        assert_array_equal(mixed.best_epoch[chosen], alone.best_epoch)
        distinct.add(round(float(mixed.params[-1]["bias"][chosen[0], 0]), 4))
    assert len(distinct) == count  # the methods do differ


def test_a_stack_finds_least_squares() -> None:
    """Linear scores and no prior to speak of: the regression of the gap is that of textbooks."""
    x = RNG.normal(size=(200, 2)).astype(np.float32)
    table = np.column_stack([x @ [0.3, -0.2], 0.5 + x @ [1.0, 0.4]]) + 0.1 * RNG.normal(size=(200, 2))
    stack = fit_stack(
        x, GapSquare().target(table), [Member(np.arange(200, dtype=np.int32), prior_sd=1e3)], GapSquare(), Linear(),
        config=FitConfig(max_epochs=150, learning_rate=0.01, batch_size=200), device="cpu", progress=False,
    )  # fmt: skip
    design = np.column_stack([x, np.ones(200)])
    expected = np.linalg.lstsq(design, table[:, 1] - table[:, 0], rcond=None)[0]
    found = [*stack.params[0]["weight"][0, :, 0], stack.params[0]["bias"][0, 0]]
    assert_allclose(found, expected, atol=0.01)
