"""Explanations of saved policies by hand: what moved a gain, and what would flip a decision."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm, t

import gbpl
from gbpl import SavedPolicy
from gbpl.decisions.decisions import Rule
from gbpl.decisions.gain import GainSlope, t_reach
from gbpl.frozen.committee import Effects, Part
from gbpl.frozen.explain import EXACT, SAMPLED, Explanation
from gbpl.frozen.seen import Seen
from gbpl.frozen.shapley import coalitions, from_table
from gbpl.models.numpy_form import Forests, Networks, NumpyForm
from gbpl.tables.encoder import Encoder

UNSQUASHED = 1e-3  # of outputs, small enough that nothing is clipped


def forests(rng: Any, features: int, outputs: int, size: float) -> Forests:
    shape, components = (2, 5, 7), 3
    return Forests(
        rng.integers(0, features, shape).astype(np.int32), rng.normal(size=shape).astype(np.float32),
        rng.normal(size=(2, 5, 8, components)).astype(np.float32), np.array([0, 1, 1], np.int32),
        (size * rng.normal(size=(3, components + 1, outputs))).astype(np.float32),
    )  # fmt: skip


def networks(rng: Any, features: int, outputs: int, size: float, hidden: int = 6, knots: int = 0) -> Networks:
    layers = (rng.normal(size=(3, features + 1, hidden)).astype(np.float32),) if hidden else ()
    width = hidden or features * (knots - 1 if knots else 1)
    last = size * rng.normal(size=(3, width + 1, outputs))
    return Networks(layers, last.astype(np.float32), knots=knots)


def form_of(kind: str, rng: Any, features: int, outputs: int, size: float = 0.3) -> NumpyForm:
    if kind == "forests":
        return forests(rng, features, outputs, size)
    if kind == "networks":
        return networks(rng, features, outputs, size)
    return networks(rng, features, outputs, size, hidden=0, knots=5 if kind == "splines" else 0)


def policy_of(*forms: NumpyForm, squashing: str, features: int, **given: Any) -> SavedPolicy:
    rng = np.random.default_rng(9)
    count = max(2, forms[0].last.shape[2])
    given = {"actions": np.array(["none", "mail", "call"][:count]), "gain": GainSlope(2.0, 0.1)} | given
    mean, scale = rng.normal(size=features), rng.uniform(0.5, 2.0, features)
    parts = [Part(form, np.full(3, 1.0 / (3 * len(forms)))) for form in forms]
    return SavedPolicy(parts, squashing=squashing, mean=mean, scale=scale, **given)


def by_column(why: Explanation) -> np.ndarray:
    """Contributions in the order of the features."""
    moved = {one.column: one.contribution for one in why.contributions}
    return np.array([moved[f"feature {j}"] for j in range(len(moved))])


def table_of(policy: SavedPolicy, x: np.ndarray, about: int) -> np.ndarray:
    """The gain of every coalition of features."""
    inside = coalitions(len(x))
    return policy.expected_gain(np.where(inside, x, policy.mean))[:, about]


KINDS = ["forests", "networks", "splines", "lines"]


@pytest.mark.parametrize(
    ("kind", "squashing", "count"),
    [*product(KINDS, ["tanh", "clip"], [2]), *product(KINDS, ["softmax", "project", "gap 1"], [3])],
)
def test_contributions_are_the_mean_over_all_orders(
    kind: str, squashing: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    outputs = 1 if count == 2 else count
    policy = policy_of(form_of(kind, rng, 5, outputs), squashing=squashing, features=5, rule=Rule(count - 1))
    x, gain = rng.normal(size=5), policy.expected_gain
    known: dict[int, np.ndarray] = {}
    record = lambda rows, **given: known.setdefault(len(rows), gain(rows, **given))  # noqa: E731
    monkeypatch.setattr(policy, "expected_gain", record)
    why = policy.explain(x)
    about = policy.actions_.tolist().index(why.about)
    table = known[32][:, about]  # members compute in float32: the last digits differ from call to call
    assert_allclose(table, gain(np.where(coalitions(5), x, policy.mean))[:, about], rtol=0, atol=1e-6)
    total, orders = np.zeros(5), list(permutations(range(5)))
    for order in orders:
        before = 0
        for j in order:
            total[j] += table[before | 1 << j] - table[before]
            before |= 1 << j
    assert_allclose(by_column(why), total / len(orders), rtol=0, atol=1e-12)
    assert why.mode == EXACT
    assert why.about != why.default
    assert_allclose(by_column(why).sum(), why.gain - why.reference_gain, rtol=0, atol=1e-14)
    assert_allclose(why.gain, gain(x)[0, about], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("squashing", "count"), [("clip", 2), ("project", 3)])
def test_many_columns_are_exact_where_nothing_is_squashed(squashing: str, count: int) -> None:
    """Forests, splines and lines together, in closed form, against all 2^13 coalitions."""
    rng = np.random.default_rng(4)
    forms = [form_of(kind, rng, 13, 1 if count == 2 else count, UNSQUASHED) for kind in ("forests", "splines", "lines")]
    policy = policy_of(*forms, squashing=squashing, features=13)
    x = rng.normal(size=13)
    why = policy.explain(x)
    exact = from_table(table_of(policy, x, policy.actions_.tolist().index(why.about)))
    assert why.mode == EXACT
    assert np.abs(exact).max() > UNSQUASHED / 3
    assert_allclose(by_column(why), exact, rtol=1e-4, atol=1e-8)  # the table has the digits of float32
    assert_allclose(by_column(why).sum(), why.gain - why.reference_gain, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("squashing", "count"), [("clip", 2), ("project", 3), ("tanh", 2), ("softmax", 3)])
def test_many_columns_are_sampled_within_their_error_where_something_is(squashing: str, count: int) -> None:
    """A network, and forests some of whose outputs are clipped: those that are not have their closed form."""
    rng = np.random.default_rng(5)
    forms = [form_of(kind, rng, 13, 1 if count == 2 else count) for kind in ("forests", "networks")]
    policy = policy_of(*forms, squashing=squashing, features=13)
    x = rng.normal(size=13)
    why = policy.explain(x)
    exact = from_table(table_of(policy, x, policy.actions_.tolist().index(why.about)))
    error = np.array([{one.column: one.se for one in why.contributions}[f"feature {j}"] for j in range(13)])
    assert why.mode == SAMPLED
    assert 0.0 < error.max() < 0.05 * np.abs(exact).max()
    assert np.abs((by_column(why) - exact) / error).max() < 4.5
    assert_allclose(by_column(why).sum(), why.gain - why.reference_gain, rtol=0, atol=1e-14)
    again = policy.explain(x, seed=1)
    assert not np.array_equal(by_column(again), by_column(why))


@pytest.mark.parametrize(("squashing", "count", "size"), [("clip", 2, 0.3), ("project", 3, 0.1)])
def test_a_closed_form_is_not_used_where_a_coalition_is_squashed(squashing: str, count: int, size: float) -> None:
    """Lines alone, of which the sum is beyond the bounds for some coalitions."""
    policy = policy_of(
        form_of("lines", np.random.default_rng(12), 13, 1 if count == 2 else count, size),
        squashing=squashing,
        features=13,
    )
    x = policy.mean + 2.0 * policy.scale * np.random.default_rng(13).choice([-1.0, 1.0], 13)
    why = policy.explain(x)
    table = table_of(policy, x, policy.actions_.tolist().index(why.about))
    error = np.array([{one.column: one.se for one in why.contributions}[f"feature {j}"] for j in range(13)])
    assert why.mode == SAMPLED
    assert np.abs(by_column(why) - from_table(table)).max() < 4.5 * error.max()


def test_columns_that_change_nothing_have_nothing() -> None:
    """The members see two of three columns, and a row is average in one of them."""
    rng = np.random.default_rng(6)
    policy = policy_of(form_of("networks", rng, 2, 1), squashing="tanh", features=3, columns=np.array([2, 0]))
    x = policy.mean + np.array([0.0, 5.0, 1.0])
    why = policy.explain(x)
    assert by_column(why)[:2].tolist() == [0.0, 0.0]
    assert_allclose(by_column(why)[2], why.gain - why.reference_gain)
    at_mean = policy.explain(policy.mean)
    assert not np.any(by_column(at_mean))
    assert "No column moves the gain" in str(at_mean)


# -- raw columns -------------------------------------------------------------------------------------------------------


def raw_policy(weights: dict[str, float], **given: Any) -> tuple[SavedPolicy, dict[str, list[Any]]]:
    """A line in the features of a table: number, whole number with gaps, category, and true or false."""
    rng = np.random.default_rng(7)
    frame: dict[str, list[Any]] = {
        "income": rng.uniform(0.0, 100.0, 400).tolist(), "visits": [*rng.integers(0, 9, 399).tolist(), None],
        "region": rng.choice(["north", "south", "west"], 400).tolist(), "member": (rng.random(400) < 0.5).tolist(),
    }  # fmt: skip
    encoder = Encoder.fit(frame)[0]
    x = encoder.apply(frame)[0]
    last = np.array([*(weights.get(name, 0.0) for name in encoder.names), weights["bias"]], np.float32)
    mean, scale = x.mean(axis=0), x.std(axis=0)
    last[:-1] *= scale
    form = Networks((), last[None, :, None])
    policy = SavedPolicy(
        [Part(form, np.ones(1))], squashing="tanh", mean=mean, scale=scale, actions=np.array(["none", "mail"]),
        encoder=encoder, gain=GainSlope(1.0, 0.1), seen=Seen.of(x), **given,
    )  # fmt: skip
    return policy, frame


ROW = {"income": 20.0, "visits": 4, "region": "north", "member": False}


def test_the_features_of_a_column_move_together_and_are_shown_as_they_came() -> None:
    policy, _ = raw_policy({"income": 0.02, "region=north": 0.5, "region=west": -0.5, "member": 0.3, "bias": 0.2})
    why = policy.explain(ROW)
    shown = {one.column: (one.value, one.reference) for one in why.contributions}
    assert set(shown) == {"income", "visits", "region", "member"}
    assert shown["region"] == ("north", None)
    assert shown["member"] == ("false", None)
    assert shown["income"][0] == "20"
    assert policy.explain(ROW | {"visits": None}).to_dict()["contributions"][-1]["value"] == "(missing)"
    mean = dict(zip(policy.encoder.names, policy.mean, strict=True))
    bare = {
        "income": 0.02 * (20.0 - mean["income"]), "visits": 0.0, "member": -0.3 * mean["member"],
        "region": 0.5 * (1.0 - mean["region=north"]) + 0.5 * mean["region=west"],
    }  # fmt: skip
    names = list(bare)
    table = [np.tanh(0.2 + sum(bare[n] for n, i in zip(names, row, strict=True) if i)) for row in coalitions(4)]
    expected = dict(zip(names, from_table(np.array(table)), strict=True))
    found = {one.column: one.contribution for one in why.contributions}
    assert_allclose([found[name] for name in names], [expected[name] for name in names], rtol=0, atol=1e-6)


def test_the_nearest_number_that_flips_is_found_and_rounded() -> None:
    """tanh(0.02 (income - mean) + bias) is 0 at mean - 50 bias."""
    policy, _ = raw_policy({"income": 0.02, "bias": 0.2})
    end = policy.mean[0] - 10.0
    low = ROW | {"income": 20.0}
    assert policy.predict(low) == ["none"]
    (flip,) = policy.explain(low).flips
    ((name, before, after),) = flip.changes
    assert (name, before, flip.decided) == ("income", "20", "mail")
    assert end <= float(after) <= end + 0.05 * (end - 20.0)
    assert len(after) <= 4
    assert_allclose(flip.distance, (float(after) - 20.0) / policy.scale[0])
    assert policy.predict(low | {"income": float(after)}) == ["mail"]
    high = policy.explain(low | {"income": 90.0}).flip
    assert high is not None
    assert end * 0.95 <= float(high.changes[0][2]) < end


def test_whole_numbers_stay_whole_and_missing_ones_can_be_given() -> None:
    policy, _ = raw_policy({"visits": 0.3, "bias": 0.0})
    for row in (ROW | {"visits": 2}, ROW | {"visits": None}):
        flip = policy.explain(row).flip
        assert flip is not None
        ((name, _, after),) = flip.changes
        assert name == "visits"
        assert float(after).is_integer()
        assert policy.predict(row) != policy.predict(row | {"visits": float(after)})
    assert policy.explain(ROW | {"visits": None}).flip.changes[0][1] == "(missing)"


def test_other_levels_flip_and_fixed_columns_do_not() -> None:
    policy, _ = raw_policy({"region=north": 0.6, "region=west": 0.55, "member": 0.1, "bias": -0.05})
    why = policy.explain(ROW)
    assert [flip.changes for flip in why.flips] == [(("region", "north", "south"),)]
    assert why.flips[0].distance == 1.0
    assert policy.predict(ROW | {"region": "south"}) == ["none"]
    fixed = policy.explain(ROW, fixed=["region"])
    assert fixed.flips == ()
    assert "No change of one or two columns other than region within what was seen" in str(fixed)
    with pytest.raises(ValueError, match="fixed names 'age', which is no column of the policy; it has income, visits"):
        policy.explain(ROW, fixed="age")


def test_two_columns_are_changed_where_one_is_not_enough() -> None:
    policy, _ = raw_policy({"region=south": -1.0, "member": 1.0, "region=west": -0.2, "bias": -0.7})
    row = ROW | {"region": "south"}
    flip = policy.explain(row).flip
    assert flip is not None
    assert {name: after for name, _, after in flip.changes} == {"region": "north", "member": "true"}
    assert_allclose(flip.distance, np.sqrt(2.0))
    assert policy.predict(row | {"region": "north", "member": True}) == ["mail"]


def test_the_nearest_pair_of_numbers_is_found() -> None:
    """0.3 x + 0.3 y - 1.25 is positive for none of the values of one that were seen."""
    line = Networks((), np.array([[[0.3], [0.3], [-1.25]]], np.float32))
    policy = SavedPolicy(
        [Part(line, np.ones(1))], squashing="tanh", mean=np.zeros(2), scale=np.ones(2), actions=np.arange(2),
        gain=GainSlope(1.0, 0.1), seen=Seen(np.full(2, -2.0), np.full(2, 3.0), np.zeros(2, bool)),
    )  # fmt: skip
    flip = policy.explain([0.0, 0.1]).flip
    assert flip is not None
    assert len(flip.changes) == 2
    nearest = (1.25 / 0.3 - 0.1) / np.sqrt(2.0)  # straight to the line x + y = 1.25 / 0.3
    assert nearest <= flip.distance <= nearest + 0.25
    assert policy.predict(np.array(flip.features)) == [1]


def test_a_rounded_number_still_flips() -> None:
    """Mail from 53.17 to 53.77 only: 54 has fewer digits, and does not flip."""
    feature, threshold = np.zeros((1, 1, 3), np.int32), np.array([[[53.17, 0.0, 53.77]]], np.float32)
    value = np.array([-1.0, -1.0, 1.0, -1.0], np.float32).reshape(1, 1, 4, 1)
    forest = Forests(feature, threshold, value, np.zeros(1, np.int32), np.array([[[1.0], [0.0]]], np.float32))
    policy = SavedPolicy(
        [Part(forest, np.ones(1))], squashing="clip", mean=np.zeros(1), scale=np.ones(1), actions=np.arange(2),
        gain=GainSlope(1.0, 0.1), seen=Seen(np.zeros(1), np.full(1, 100.0), np.zeros(1, bool)),
    )  # fmt: skip
    assert policy.predict([[54.0], [53.5]]).tolist() == [0, 1]
    flip = policy.explain([20.0]).flip
    assert flip is not None
    assert flip.changes == (("feature 0", "20", "53.2"),)
    assert policy.predict([53.2]) == [1]


@pytest.mark.parametrize("kind", ["forests", "networks"])
def test_flips_are_decided_so_and_none_is_nearer(kind: str) -> None:
    """Against a much finer grid; a forest may have an island between two values of ours."""
    rng = np.random.default_rng(8)
    policy = policy_of(form_of(kind, rng, 3, 3), squashing="softmax", features=3, rule=Rule(1))
    flips = 0
    for x in rng.normal(size=(20, 3)):
        why, now = policy.explain(x), policy.predict(x)[0]
        assert why.decided == now
        for flip in why.flips:
            assert policy.predict(np.array(flip.features))[0] == flip.decided != now
        best = np.inf
        for j in range(3):
            rows = np.tile(x, (4001, 1))
            rows[:, j] = np.linspace(policy.mean[j] - 2 * policy.scale[j], policy.mean[j] + 2 * policy.scale[j], 4001)
            away = np.abs(rows[:, j] - x[j])[policy.predict(rows) != now] / policy.scale[j]
            best = min(best, away.min(initial=np.inf))
        if np.isfinite(best) and why.flip is not None and len(why.flip.changes) == 1:
            flips += 1
            assert why.flip.distance <= 1.06 * best + 0.04
    assert flips > 5


# -- what is said ------------------------------------------------------------------------------------------------------


def test_prices_and_intervals_are_those_of_the_policy() -> None:
    rng = np.random.default_rng(10)
    form, draws = form_of("networks", rng, 4, 3), 60
    effects = Effects(
        1.0, 0, np.zeros(3), rng.normal(size=(5, 7)).astype(np.float32),
        rng.normal(1.0, 0.3, size=(draws, 3)).astype(np.float32),
        rng.normal(size=(draws, 1 + 7, 3)).astype(np.float32) / 10, freedom=4,
    )  # fmt: skip
    policy = policy_of(form, squashing="softmax", features=4, effects=effects, rule=Rule(0, 1.0, (0.0, 0.5, 0.0)))
    x = rng.normal(size=4)
    why, decided = policy.explain(x, level=0.8), policy.decide(x)
    assert why.decided == decided.action[0]
    assert [one.draw_share for one in why.gains] == decided.draw_share[0].tolist()
    assert why.draw_share == dict(zip(policy.actions_, decided.draw_share[0], strict=True))[why.decided]
    assert [one.price for one in why.gains] == [0.0, 0.5, 0.0]
    gain, low, high = policy.expected_gain(x, level=0.8)
    assert [one.gain for one in why.gains] == gain[0].tolist()
    assert [(one.low, one.high) for one in why.gains] == list(zip(low[0].tolist(), high[0].tolist(), strict=True))
    assert_allclose(t_reach(0.8, 4), t.ppf(0.9, 4))
    assert_allclose(t_reach(0.8, None), norm.ppf(0.9))
    old = policy_of(form, squashing="softmax", features=4, effects=replace(effects, freedom=None), rule=policy.rule)
    assert np.all((high - low)[0, 1:] > 1.05 * np.subtract(*old.expected_gain(x, level=0.8)[:0:-1])[0, 1:])
    assert "with 80 % intervals:" in str(why)
    assert "and its price is 0.5" in str(why)
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, got 1\.0; try 0\.9"):
        policy.explain(x, level=1.0)


def test_words_and_json_say_the_same_and_hostile_names_are_text() -> None:
    policy, _ = raw_policy({"income": 0.02, "region=north": 0.5, "bias": 0.2})
    why = policy.explain(ROW)
    made = json.loads(json.dumps(why.to_dict()))
    assert made["decided"] == why.decided == "none"
    assert made["gain"] == pytest.approx(made["reference_gain"] + sum(c["contribution"] for c in made["contributions"]))
    first = made["contributions"][0]
    assert f"{first['column']} = {first['value']}" in str(why)
    assert str(made["flips"][0]["changes"][0]["to"]) in str(why)
    named = policy_of(
        form_of("lines", np.random.default_rng(0), 1, 1),
        squashing="tanh",
        features=1,
        feature_names=["<b>\nDecided: x"],
    )
    assert "&lt;b&gt; Decided: x = " in named.explain([3.0])._repr_html_()
    assert sum(line.startswith("Decided") for line in str(named.explain([3.0])).split("\n")) == 1


def test_what_cannot_be_explained_is_refused() -> None:
    form = form_of("lines", np.random.default_rng(0), 2, 1)
    policy = policy_of(form, squashing="tanh", features=2)
    with pytest.raises(ValueError, match="explain is about one row, got 2; call it for each of them"):
        policy.explain(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="fitted without a committee, so its gains are not known"):
        policy_of(form, squashing="tanh", features=2, gain=None).explain([0.0, 1.0])
    with pytest.raises(ValueError, match="intervals of gains need a policy that averages zetas"):
        policy.expected_gain([0.0, 1.0], level=0.9)
    with pytest.raises(ValueError, match="level must be between 0 and 1, got 90"):
        policy.explain([0.0, 1.0], level=90)


@pytest.mark.parametrize("name", ["forests", "networks", "table"])
def test_files_written_before_are_explained(name: str) -> None:
    files = Path(__file__).parent / "policies"
    rows = json.loads((files / "decisions.json").read_text(encoding="utf-8"))[name]["rows"]
    policy = gbpl.load(files / f"{name}.gbpl")
    assert policy.seen is None
    row = {column: values[0] for column, values in rows.items()} if isinstance(rows, dict) else rows[0]
    why = policy.explain(row)
    assert_allclose(sum(one.contribution for one in why.contributions), why.gain - why.reference_gain, atol=1e-12)


@pytest.mark.parametrize(
    "stored", [[], {"low": [0.0], "high": [1.0]}, {"low": [0.0], "high": [-1.0], "whole": [True]},
               {"low": [0.0], "high": [1.0], "whole": [1]}, {"low": [0.0, 0.0], "high": [1.0, 1.0], "whole": [True]},
               {"low": [float("nan")], "high": [1.0], "whole": [True]}],
)  # fmt: skip
def test_what_was_seen_is_checked(stored: Any) -> None:
    with pytest.raises(ValueError, match="rows seen"):
        Seen.from_json(stored, 1)


def test_what_was_seen_has_ten_rows_beyond_each_end() -> None:
    rng = np.random.default_rng(11)
    x = np.column_stack([rng.lognormal(10.0, 1.0, 500), rng.integers(1990, 2020, 500), np.zeros(500)])
    x[0, 0] = 1e9
    seen = Seen.of(x)
    assert seen is not None
    assert seen.whole.tolist() == [False, True, True]
    order = np.sort(x, axis=0)
    unit = 10.0 ** (np.floor(np.log10(x.std(axis=0)[:2])) - 1)
    assert np.all(np.abs(seen.low[:2] - order[9, :2]) <= unit)
    assert np.all(np.abs(seen.high[:2] - order[-10, :2]) <= unit)
    assert Seen.of(x[:19]) is None
    again = Seen.from_json(json.loads(json.dumps(seen.to_json())), 3)
    assert again.low.tolist() == seen.low.tolist()
