"""An exported policy gives what numpy gives, in another runtime; what has no place in such a file is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from support.policies import small_net, small_study_net

import gbpl
from gbpl import GBPL, Encoder, FitConfig, to_onnx
from gbpl.decisions.decisions import Rule
from gbpl.decisions.gain import GainSlope
from gbpl.frozen.committee import Effects, Part
from gbpl.frozen.policy import NumpyPolicy
from gbpl.models.numpy_form import ACTIVATIONS, Forests, Networks
from gbpl.squashing import SQUASHINGS, simplex_projection

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

CENTRE, SPREAD = np.array([0.0, 2e7, -3.0, 0.5]), np.array([1.0, 2.0, 10.0, 0.01])
X = CENTRE + SPREAD * np.random.default_rng(0).normal(size=(3000, 4))
MODELS = [*((name, (8, 5)) for name in ACTIVATIONS), ("tanh", ()), ("random features", (16,))]
SHAPES = [(name, count) for name in SQUASHINGS for count in ((2,) if name in ("tanh", "clip") else (2, 3, 7))]
GAPS = [("gap 0", 2), ("gap 1", 3), ("gap 4", 7)]


def networks(activation="tanh", hidden=(8, 5), squashing="softmax", count=3, members=4):
    """Random layers; the last bias brings each output to mean zero over X, so that the action varies."""
    rng = np.random.default_rng([len(hidden), count])
    widths = [len(CENTRE), *hidden, 1 if squashing in ("tanh", "clip") else count]
    *layers, last = [rng.normal(size=(members, a + 1, b)).astype(np.float32) for a, b in pairwise(widths)]
    made = Networks(tuple(layers), last, activation)
    if activation == "random features":
        shared = np.broadcast_to(layers[0][:1], layers[0].shape)
        made = Networks((shared,), last, "cos", gain=float(np.sqrt(2.0 / hidden[0])))
    x = ((X - CENTRE) / SPREAD).astype(np.float32)
    for member in range(members):
        last[member, -1] -= (made.basis(member, x) @ last[member]).mean(axis=0)
    return made


def numpy_policy(made: Networks | Forests, count=3, squashing="softmax", *, weights=None, beside=(), **more):
    weights = np.random.default_rng(1).dirichlet(np.ones(len(made.last))) if weights is None else weights
    settings = {"squashing": squashing, "mean": CENTRE, "scale": SPREAD, "actions": np.arange(count)}
    return NumpyPolicy([Part(made, weights), *beside], **(settings | more))


def splines(knots=6, squashing="softmax", count=3, members=4):
    rng = np.random.default_rng([knots, count])
    raw = 1 if squashing in ("tanh", "clip") else count
    last = rng.normal(size=(members, len(CENTRE) * (knots - 1) + 1, raw)).astype(np.float32)
    return Networks((), last, knots=knots)


def forests(depth=3, squashing="softmax", count=3, members=5):
    """Three forests of six trees; a quarter of the nodes are not split, and a threshold is a row's own value."""
    rng = np.random.default_rng([depth, count])
    raw, shape = 1 if squashing in ("tanh", "clip") else count, (3, 6, 2**depth - 1)
    threshold = np.where(rng.random(shape) < 0.25, np.inf, rng.normal(size=shape)).astype(np.float32)
    feature = rng.integers(0, len(CENTRE), shape).astype(np.int32)
    feature[0, 0, 0], threshold[0, 0, 0] = 1, ((X - CENTRE) / SPREAD).astype(np.float32)[17, 1]
    value = rng.normal(size=(3, 6, 2**depth, 4)).astype(np.float32)
    forest = np.array([2, 0, 1, 0, 2], np.int32)[:members]
    return Forests(feature, threshold, value, forest, rng.normal(size=(members, 5, raw)).astype(np.float32))


@pytest.fixture
def export(tmp_path):
    """From a policy to what its file computes."""

    def exported(policy, x):
        to_onnx(policy, tmp_path / "policy.onnx", encoded=True)
        one = runtime.SessionOptions()
        one.intra_op_num_threads = 1
        session = runtime.InferenceSession(str(tmp_path / "policy.onnx"), one, providers=["CPUExecutionProvider"])
        return session.run(["probability", "action"], {"features": x})

    return exported


def assert_decides_the_same(policy, exported, x=X):
    probability, action = exported
    expected = policy.predict_proba(x)
    assert_allclose(probability, expected, atol=1e-5, rtol=0.0)
    assert probability.shape == expected.shape
    assert action.shape == (len(x),)
    assert action.dtype == np.int64
    apart = np.sort(expected, axis=1)
    sure = apart[:, -1] - apart[:, -2] > 2e-5
    assert_array_equal(action[sure], policy.decide(x).action[sure])
    return sure


# -- the same numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("squashing", "count"), SHAPES + GAPS)
@pytest.mark.parametrize(("activation", "hidden"), MODELS)
def test_a_file_gives_the_numbers_of_numpy(export, activation, hidden, squashing, count):
    policy = numpy_policy(networks(activation, hidden, squashing, count), count, squashing)
    exported = export(policy, X)
    assert_allclose(exported[0].sum(axis=1), 1.0)
    assert exported[0].std() > 0.05, "a constant policy would prove nothing"
    assert assert_decides_the_same(policy, exported).mean() > 0.99
    assert len(np.unique(exported[1])) > count / 2


@pytest.mark.parametrize(("squashing", "count"), SHAPES + GAPS)
@pytest.mark.parametrize("make", [splines, forests])
def test_splines_and_forests_give_the_numbers_of_numpy(export, make, squashing, count):
    policy = numpy_policy(make(squashing=squashing, count=count), count, squashing)
    exported = export(policy, X)
    assert exported[0].std() > 0.05, "a constant policy would prove nothing"
    assert assert_decides_the_same(policy, exported).mean() > 0.99


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_trees_of_any_depth(export, depth):
    policy = numpy_policy(forests(depth))
    assert_decides_the_same(policy, export(policy, X))


@pytest.mark.parametrize("knots", [3, 4, 12])
def test_splines_of_any_knots(export, knots):
    policy = numpy_policy(splines(knots))
    assert_decides_the_same(policy, export(policy, X))


@pytest.mark.parametrize("rows", [0, 1, 3000])
def test_a_mixture_is_the_sum_of_its_parts(export, rows):
    weights = np.random.default_rng(4).dirichlet(np.ones(13))
    beside = [Part(forests(), weights[4:9]), Part(splines(), weights[9:])]
    policy = numpy_policy(networks(), weights=weights[:4], beside=beside)
    assert_decides_the_same(policy, export(policy, X[:rows]), X[:rows])


def test_a_row_that_numpy_refuses_is_not_decided_by_trees(export):
    policy = numpy_policy(forests(), weights=np.full(5, 0.1), beside=[Part(splines(), np.full(4, 0.1))])
    x = X[:20].copy()
    x[3, 1], x[7, 0], x[9, 2] = np.nan, np.inf, -np.inf
    bad = np.isin(np.arange(20), [3, 7, 9])
    probability, action = export(policy, x)
    assert np.isnan(probability[bad]).all()
    assert action[bad].tolist() == [-1] * 3
    assert_decides_the_same(policy, (probability[~bad], action[~bad]), X[:20][~bad])


@pytest.mark.parametrize(("squashing", "count"), SHAPES + GAPS)
def test_effects_are_played_in_place_of_the_deviation(export, squashing, count):
    """slope d + level, here so that the action is often another one; prices count in its units."""
    level = np.random.default_rng(6).normal(size=count) / 3.0
    beside = [Part(forests(squashing=squashing, count=count), np.full(5, 0.1))]
    plain = numpy_policy(networks("tanh", (8,), squashing, count), count, squashing, beside=beside)
    deviation = plain._committee.apply(X, draws=False)[0]
    effects = Effects(0.6, 0, level - level.mean())
    policy = NumpyPolicy(
        plain.parts, squashing=squashing, mean=CENTRE, scale=SPREAD, actions=plain.actions_, effects=effects,
        gain=GainSlope(2.0, 0.1),
    )  # fmt: skip
    exported = export(policy, X)
    played = 0.6 * deviation + effects.level
    assert_allclose(exported[0], simplex_projection(1.0 / count + played), atol=1e-5)
    assert assert_decides_the_same(policy, exported).mean() > 0.99
    assert np.mean(exported[1] != plain.decide(X).action) > 0.02
    prices = np.linspace(0.0, 0.3, count)
    priced = policy.with_study(rule=Rule(prices=tuple(prices.tolist())), encoder=None, summary=None)
    action = export(priced, X)[1]
    assert np.mean(action != np.argmax(2.0 * played - prices, axis=1)) < 0.001, "but for rounding"
    assert np.mean(action != priced.decide(X).action) < 0.001


@pytest.mark.parametrize("rows", [0, 1, 7, 3000])
@pytest.mark.parametrize("squashing", SQUASHINGS)
def test_any_number_of_rows(export, rows, squashing):
    count = 2 if squashing in ("tanh", "clip") else 3
    policy = numpy_policy(networks(squashing=squashing, count=count), count, squashing)
    assert_decides_the_same(policy, export(policy, X[:rows]), X[:rows])


def test_one_member_and_members_that_are_alike(export):
    made = networks(members=1)
    alone = numpy_policy(made)
    assert_decides_the_same(alone, export(alone, X))
    alike = [np.repeat(layer, 3, axis=0) for layer in (*made.hidden, made.last)]
    policy = numpy_policy(Networks(tuple(alike[:-1]), alike[-1], "tanh"))
    assert_decides_the_same(policy, export(policy, X))
    assert_allclose(export(policy, X)[0], alone.predict_proba(X), atol=1e-5)


def test_weights_that_leave_the_simplex_are_projected(export):
    policy = numpy_policy(networks(), weights=np.array([0.9, 0.8, -0.2, 0.7]))
    exported = export(policy, X)
    assert_decides_the_same(policy, exported)
    assert 0.1 < np.mean(exported[0] == 0.0) < 0.9


@pytest.mark.parametrize("squashing", SQUASHINGS)
def test_outputs_that_are_huge(export, squashing):
    count = 2 if squashing in ("tanh", "clip") else 3
    made = networks(squashing=squashing, count=count, members=1)
    made.last[:] *= 1e18
    policy = numpy_policy(made, count, squashing)
    exported = export(policy, X)
    assert_decides_the_same(policy, exported)
    assert_allclose(exported[0].max(axis=1), 1.0)


def test_random_features_are_kept_once(tmp_path):
    for members in (1, 20):
        made = networks("random features", (400,), members=members)
        to_onnx(numpy_policy(made), tmp_path / f"{members}")
    own = 19 * (made.last[0].nbytes + 8)  # last layer and weight of a member
    assert (tmp_path / "20").stat().st_size - (tmp_path / "1").stat().st_size < own + 100


@pytest.mark.parametrize(("squashing", "count"), SHAPES + GAPS)
def test_a_file_is_valid_and_old_enough(tmp_path, squashing, count):
    policy = numpy_policy(networks("silu", (8,), squashing, count), count, squashing)
    to_onnx(policy, tmp_path / "p.onnx")
    model = onnx.load(tmp_path / "p.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [(item.domain, item.version) for item in model.opset_import] == [("", 17)]
    assert model.ir_version <= 9, "onnxruntime 1.17 reads up to 9"
    mixture = numpy_policy(
        forests(2, squashing, count), count, squashing, beside=[Part(splines(4, squashing, count), np.full(4, 0.1))]
    )
    to_onnx(mixture, tmp_path / "mixture.onnx")
    onnx.checker.check_model(onnx.load(tmp_path / "mixture.onnx"), full_check=True)
    other = pytest.importorskip("onnx.reference").ReferenceEvaluator(model)
    assert_decides_the_same(policy, other.run(None, {"features": X[:50]}), X[:50])


# -- from an estimator ----------------------------------------------------------------------------------------------


def run_file(path, x):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["probability", "action"], {"features": np.asarray(x, np.float64)})


@pytest.mark.parametrize("zeta", [1.0, "auto"])
@pytest.mark.parametrize("made", [small_net, GBPL], ids=["GBPLNet", "GBPL"])
def test_an_estimator_writes_its_own_file(tmp_path, made, zeta):
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(rng.normal(size=(120, 3)) * [1, 50, 0.1] + [0, 1e4, 2], columns=["age", "income", "rate"])
    z = (frame.to_numpy() - [0, 1e4, 2]) / [1, 50, 0.1]
    outcomes = np.column_stack([np.zeros(120), z[:, 0], z[:, 1]]) + 0.3 * rng.normal(size=(120, 3))
    config = FitConfig(max_epochs=5, learning_rate=0.03)
    short = {"zeta": zeta, "committee": 2, "fit_config": config, "random_state": 0}
    policy = made(actions=["wait", "call", "visit"], **short).fit(frame, outcomes)
    assert (policy.effect_ is not None) == (zeta == "auto")
    policy.to_onnx(tmp_path / "a.onnx")
    to_onnx(policy, tmp_path / "b.onnx")
    policy.frozen(draws=0).to_onnx(tmp_path / "c.onnx")
    assert len({(tmp_path / f"{name}.onnx").read_bytes() for name in "abc"}) == 1
    probability, action = run_file(tmp_path / "a.onnx", frame)
    expected = policy.predict_proba(frame)
    assert expected.std() > 0.05
    assert_allclose(probability, expected, atol=1e-5)
    apart = np.sort(expected, axis=1)
    sure = apart[:, -1] - apart[:, -2] > 2e-5
    assert_array_equal(policy.actions_[action][sure], policy.predict(frame)[sure])
    assert told_by(tmp_path / "a.onnx") == {
        "actions": ["wait", "call", "visit"],
        "features": ["age", "income", "rate"],
        "inputs": None,
    }


def test_an_estimator_that_is_not_fitted_or_holds_code_writes_none(tmp_path):
    with pytest.raises(NotFittedError):
        small_net().to_onnx(tmp_path / "p")
    pair = (lambda key, p, k: {"w": jnp.zeros((p, k))}, lambda params, x: x @ params["w"])
    rng = np.random.default_rng(0)
    policy = small_net(model=pair, fit_config=FitConfig(max_epochs=1)).fit(
        rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    )
    with pytest.raises(ValueError, match="FunctionModel holds code, which is neither saved nor exported; fit with one"):
        policy.to_onnx(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


# -- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("squashing", "count"), SHAPES)
def test_equal_actions(export, squashing, count):
    made = networks(squashing=squashing, count=count)
    made.last[:] = 0.0
    policy = numpy_policy(made, count, squashing)
    probability, action = export(policy, X[:9])
    assert_allclose(probability, 1.0 / count)
    assert action.tolist() == [1 if count == 2 else 0] * 9, "as the paper's f >= 0; the first of more"
    assert_array_equal(action, policy.decide(X[:9]).action)


def test_the_first_of_the_best(export):
    made = networks(count=3)
    made.last[:] = 0.0
    made.last[:, -1, 0] = -5.0
    assert export(numpy_policy(made), X[:9])[1].tolist() == [1] * 9


@pytest.mark.parametrize(("squashing", "count"), SHAPES + GAPS)
def test_prices_of_limited_actions(export, squashing, count):
    made, prices = networks(squashing=squashing, count=count), (0.0, 0.7, 0.2, 0.0, 0.1, 0.0, 1.0)[:count]
    free = numpy_policy(made, count, squashing, gain=GainSlope(3.0, 0.1))
    priced = free.with_study(rule=Rule(default=1, prices=prices), encoder=None, summary=None)
    probability, action = export(priced, X)
    assert_allclose(probability, free.predict_proba(X), atol=1e-5)
    expected = priced.decide(X).action
    assert np.mean(expected != free.decide(X).action) > 0.02
    assert np.mean(action != expected) < 0.001, "but for rounding"


def test_prices_and_ties(export):
    made = networks(squashing="tanh", count=2)
    made.last[:] = 0.0
    for prices, expected in (((1, 1), 1), ((0.0, 1e-9), 0), ((0, 0), 1), ((), 1)):
        policy = numpy_policy(made, 2, "tanh", gain=GainSlope(3, 0), rule=Rule(prices=prices))
        assert export(policy, X[:1])[1].tolist() == policy.decide(X[:1]).action.tolist() == [expected]
    without = numpy_policy(made, 2, "tanh", rule=Rule(prices=(0.0, 9.0)))
    assert export(without, X[:1])[1].tolist() == without.decide(X[:1]).action.tolist() == [1], "no slope, no prices"


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_that_numpy_refuses_is_not_decided(export, activation, value):
    policy = numpy_policy(networks(activation))
    x = X[:20].copy()
    x[3, 1] = x[7, 0] = value
    bad = np.isin(np.arange(20), [3, 7])
    probability, action = export(policy, x)
    assert np.isnan(probability[bad]).all()
    assert action[bad].tolist() == [-1, -1]
    assert_decides_the_same(policy, (probability[~bad], action[~bad]), X[:20][~bad])


# -- what the file tells --------------------------------------------------------------------------------------------


def told_by(path: Path) -> dict[str, object]:
    return {item.key: json.loads(item.value) for item in onnx.load(path).metadata_props}


def test_metadata(tmp_path):
    labels = np.array(["none", 'say "hé" 🙂', 3], object)
    to_onnx(numpy_policy(networks(), actions=labels), tmp_path / "p")
    assert told_by(tmp_path / "p") == {"actions": labels.tolist(), "features": None, "inputs": None}
    to_onnx(numpy_policy(networks(), feature_names=["a", "b", "<c>", "ü"]), str(tmp_path / "p"))
    assert told_by(tmp_path / "p") == {"actions": [0, 1, 2], "features": ["a", "b", "<c>", "ü"], "inputs": None}
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_a_policy_with_an_encoder_takes_encoded_features_where_asked(export, tmp_path):
    rng = np.random.default_rng(5)
    table = {"age": rng.uniform(18, 65, 60), "area": rng.choice(["a", "b", "c"], 60).tolist()}
    encoder, _ = Encoder.fit(table)
    assert len(encoder.names) == 4
    policy = numpy_policy(networks(), mean=np.array([40.0, 0, 0, 0]), scale=np.array([10.0, 1, 1, 1]), encoder=encoder)
    probability, action = export(policy, encoder.apply(table)[0])
    assert_allclose(probability, policy.predict_proba(table), atol=1e-5)
    assert_array_equal(action, policy.decide(table).action)
    assert told_by(tmp_path / "policy.onnx")["features"] == encoder.names


# -- what is refused ------------------------------------------------------------------------------------------------


def test_other_things_are_refused(tmp_path, monkeypatch):
    policy = numpy_policy(networks())
    with pytest.raises(ValueError, match=r"fitted or saved, got Networks; that of a study is study\.policy"):
        to_onnx(networks(), tmp_path / "p")
    for label in (None, (0, 1), b"a"):
        odd = np.empty(3, object)
        odd[:] = ["a", "b", label]
        with pytest.raises(ValueError, match="use text or numbers"):
            to_onnx(numpy_policy(networks(), actions=odd), tmp_path / "p")
    with pytest.raises(ValueError, match="JSON"):
        to_onnx(numpy_policy(networks(), actions=np.array([0.0, 1.0, np.nan])), tmp_path / "p")
    for wrong in (tmp_path, tmp_path / "no" / "p"):
        with pytest.raises(ValueError, match="folder"):
            to_onnx(policy, wrong)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"pip install 'gbpl\[onnx\]'"):
        to_onnx(policy, tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "p").write_text("old")
    monkeypatch.setattr("os.replace", lambda *given: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        to_onnx(numpy_policy(networks()), tmp_path / "p")
    assert (tmp_path / "p").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_the_module_waits_for_onnx():
    code = "import sys, gbpl.frozen.onnx; print([name for name in ('onnx', 'jax', 'scipy') if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_raw_columns_of_a_table_go_in(tmp_path):
    """The encoder is in the file: numbers with NaN, text with "", new levels, and a column named as an output."""
    rng = np.random.default_rng(0)
    n = 240
    table = {
        "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40.0, 10.0, n)),
        "action": rng.choice(["web", "shop", "phone"], n),
        "sex": rng.choice(["f", "m"], n),
        "vip": rng.random(n) < 0.3,
        "arm": rng.choice(["a", "b"], n),
        "town": np.where(rng.random(n) < 0.1, "", rng.choice(["Ulm", "Bonn"], n)).astype(object),
    }
    table["town"][table["town"] == ""] = None
    table["y"] = np.nan_to_num(table["age"], nan=40.0) * (table["arm"] == "b") / 40.0 + rng.normal(size=n)
    study = gbpl.learn(table, outcome="y", action="arm", propensity=0.5, estimator=small_study_net())
    study.policy.to_onnx(tmp_path / "raw.onnx")
    session = runtime.InferenceSession(str(tmp_path / "raw.onnx"), providers=["CPUExecutionProvider"])
    onnx.checker.check_model(onnx.load(tmp_path / "raw.onnx"), full_check=True)
    inputs = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    assert inputs == {"age": "age", "action": "column action", "sex": "sex", "vip": "vip", "town": "town"}
    new = {name: table[name][:50].copy() for name in inputs}
    new["action"][:3], new["town"][:3] = "fax", "Rom"
    fed = {
        inputs[name]: column.astype(float)[:, None]
        if column.dtype.kind in "bf"
        else np.array([["" if cell is None else str(cell)] for cell in column.tolist()], dtype=object)
        for name, column in new.items()
    }
    probability, action = session.run(None, fed)
    assert_allclose(probability, study.policy.predict_proba(new), atol=2e-5)
    assert_array_equal(study.policy.actions_[action], study.policy.predict(new))
    study.policy.to_onnx(tmp_path / "encoded.onnx", encoded=True)
    features = study.policy.encoder.apply(new)[0]
    again, _ = run_file(tmp_path / "encoded.onnx", features)
    assert_allclose(again, probability, atol=1e-9)
    study.fitted.to_onnx(tmp_path / "fitted.onnx")
    del study.fitted.encoder_  # as if it had been fitted to what an encoder made
    study.fitted.to_onnx(tmp_path / "given.onnx", encoder=study.policy.encoder)
    assert len({(tmp_path / f"{name}.onnx").read_bytes() for name in ("raw", "fitted", "given")}) == 1
    assert study.fitted.to_sql(encoder=study.policy.encoder) == study.policy.to_sql()
    assert study.fitted.to_python(encoder=study.policy.encoder) == study.policy.to_python()
    with pytest.raises(ValueError, match="the encoder makes 2 features, and the policy was fitted to 10"):
        study.fitted.to_onnx(tmp_path / "other.onnx", encoder=Encoder.fit({"age": table["age"][:9]}, ["age"])[0])
