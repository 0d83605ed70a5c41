"""A saved committee by hand: forests with their last layers in the leaves, draws of effects, rows that come alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.calls import record_calls

import gbpl.models.numpy_form
from gbpl import SavedPolicy
from gbpl.frozen.committee import Effects, Part
from gbpl.models.basis import effect_basis, rough_basis, rough_functions
from gbpl.models.numpy_form import Forests, Networks
from gbpl.tables.encoder import Encoder

rng = np.random.default_rng(0)
TREES, DEPTH, COMPONENTS, FEATURES = 6, 3, 12, 4
X = rng.normal(size=(40, FEATURES)).astype(np.float32)


def forests(outputs: int, owners: tuple[int, ...] = (0, 1, 1, 0, 1)) -> Forests:
    """Two forests, five members that share them unevenly."""
    shape = (2, TREES, 2**DEPTH - 1)
    return Forests(
        rng.integers(0, FEATURES, shape).astype(np.int32),
        rng.normal(size=shape).astype(np.float32),
        rng.normal(size=(2, TREES, 2**DEPTH, COMPONENTS)).astype(np.float32),
        np.array(owners, np.int32),
        rng.normal(size=(len(owners), COMPONENTS + 1, outputs)).astype(np.float32),
    )


def policy_of(part: Part, squashing: str, count: int, **given: Any) -> SavedPolicy:
    size = given.pop("features", FEATURES)
    return SavedPolicy(
        [part], squashing=squashing, mean=np.zeros(size), scale=np.ones(size), actions=np.arange(count), **given
    )


@pytest.mark.parametrize("outputs", [1, 4])
def test_leaves_that_hold_outputs_give_those_of_the_last_layers(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = forests(outputs)
    folded = made.folded()
    assert folded is not None
    calls = record_calls(monkeypatch, "leaf_numbers", gbpl.models.numpy_form)
    raws = folded.raws(X)
    assert len(calls) == 1  # the trees of all forests together: a single row takes microseconds
    for member in range(5):
        assert_allclose(raws[member], made.basis(member, X) @ made.last[member], rtol=1e-4, atol=1e-4)
    assert_array_equal(folded.raws(X[3:4])[:, 0], raws[:, 3])


def test_leaves_are_not_made_wider() -> None:
    """Three members of six outputs are more numbers per leaf than twelve components."""
    assert forests(6).folded() is None


@pytest.mark.parametrize("count", [2, 5])
def test_draws_take_the_best_action_and_of_level_ones_the_first(count: int) -> None:
    """Every draw restated: its weights of members, curves and rough functions; half of the draws are level."""
    squashing, outputs = ("tanh", 1) if count == 2 else ("softmax", count)
    made, draws, knots = forests(outputs), 30, 5
    functions = rough_functions(FEATURES, 7)
    width = 1 + FEATURES * (knots - 1)
    weight = rng.normal(size=(draws, 5)).astype(np.float32)
    coefficient = rng.normal(size=(draws, width + 7, count)).astype(np.float32)
    weight[::2], coefficient[::2] = 0.0, 0.0
    effects = Effects(1.0, knots, np.zeros(count), functions, weight, coefficient)
    policy = policy_of(Part(made, np.full(5, 0.2)), squashing, count, effects=effects)
    raw = np.stack([made.basis(member, X) @ made.last[member] for member in range(5)]).astype(np.float64)
    if count == 2:
        advantage = 0.5 * np.tanh(raw) * [-1.0, 1.0]
    else:
        advantage = np.exp(raw) / np.exp(raw).sum(axis=2, keepdims=True) - 1.0 / count
    basis = np.column_stack([effect_basis(X, knots, width), rough_basis(X, functions)])
    drawn = np.einsum("dm,mna->dna", weight, advantage) + np.einsum("nb,dba->dna", basis, coefficient)
    best = np.argmax(drawn, axis=2)
    expected = np.stack([np.mean(best == action, axis=0) for action in range(count)], axis=1)
    assert expected[:, 0].min() >= 0.5
    assert_allclose(policy.action_probability(X), expected, atol=1e-9)


def named(encoder: Encoder | None, names: list[str], **given: Any) -> SavedPolicy:
    """A linear policy: the second action where the sum of the features is positive."""
    size = len(names)
    last = np.vstack([np.ones((size, 1)), np.zeros((1, 1))]).astype(np.float32)[None]
    part = Part(Networks((), last), np.ones(1))
    return policy_of(part, "tanh", 2, features=size, encoder=encoder, feature_names=names, **given)


def test_a_row_that_comes_alone_is_decided_as_in_a_table() -> None:
    table = {"age": [-1.0, 2.0, 0.5, 1.5, 3.0, -4.0], "sex": ["f", "m", "f", "m", "f", "m"]}
    encoder, _ = Encoder.fit(table)
    policy = named(encoder, encoder.names)
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    whole = policy.predict_proba(table)
    assert_allclose(policy.predict_proba(rows), whole)
    assert_allclose(np.concatenate([policy.predict_proba(row) for row in rows]), whole)
    assert policy.decide(rows[1]).action.tolist() == [1]
    assert policy.decide({"sex": None, "age": 2.0}).counts == {"missing sex": 1}
    with pytest.raises(ValueError, match="row 0 has 'sex', and row 1 does not; give None where a value is missing"):
        policy.predict([rows[0], {"age": 3.0}])


def test_numbers_by_name_or_in_order() -> None:
    policy = named(None, ["income", "age"])
    assert policy.predict([3.0, -1.0]).tolist() == [1]
    assert policy.predict(np.array([-3.0, 1.0])).tolist() == [0]
    assert policy.predict({"age": -1.0, "income": 3.0}).tolist() == [1]
    assert policy.predict([{"age": -1.0, "income": 3.0}, {"income": -3.0, "age": 1.0}]).tolist() == [1, 0]
    with pytest.raises(ValueError, match="the row has no column 'income'"):
        policy.predict({"age": 3.0})
    with pytest.raises(ValueError, match="must be a table of 2 features"):
        policy.predict([3.0, -1.0, 2.0])
