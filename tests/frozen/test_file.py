"""A saved policy is the fitted one, without JAX, rows or code; a file that is none is refused with a reason."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from safetensors import safe_open
from safetensors.numpy import save

import gbpl
from gbpl import (
    MLP,
    BaselineGap,
    Binary,
    FitConfig,
    ForestFeatures,
    FullVector,
    GBPLNet,
    Linear,
    Posterior,
    RandomFeatures,
    SavedPolicy,
    SavedPolicyError,
    Splines,
)
from gbpl.decisions.capacity import capacity_prices, priced_action
from gbpl.decisions.decisions import GroupPrices, Rule
from gbpl.decisions.gain import GainSlope, gain_slope
from gbpl.feedback.content import column_order
from gbpl.fitting.apply import Mixed, Mixture, combined_deviation, member_policies, policy_of_deviation
from gbpl.frozen.committee import Effects, Part
from gbpl.frozen.file import FORMAT, _digest
from gbpl.frozen.freeze import check_model, freeze
from gbpl.models.adapters import as_model
from gbpl.models.basis import spline_curves
from gbpl.models.numpy_form import Forests, Networks
from gbpl.squashing import SQUASHINGS, simplex_projection
from gbpl.tables.parts import Parts

N = 410
rng = np.random.default_rng(3)
X = rng.normal(size=(N, 4)) * [1.0, 10.0, 0.1, 3.0] + [0.0, 50.0, 0.0, -2.0]
Y3 = np.column_stack([np.zeros(N), X[:, 0], 0.1 * (X[:, 1] - 50.0)]) + rng.normal(size=(N, 3))
NEW = rng.normal(size=(3000, 4)) * [1.5, 15.0, 0.1, 3.0] + [0.0, 50.0, 0.0, -2.0]
ORDER = column_order(X, np.ones(4))
X, NEW = X[:, ORDER], NEW[:, ORDER]  # as members see them: other orders need format 4
FAST = FitConfig(max_epochs=15)
QUICK = FitConfig(max_epochs=30, learning_rate=0.03)
SMALL = ForestFeatures(trees=8, depth=3, components=8)

POLICIES = {
    "binary": dict(model=MLP(hidden=(32, 16))),
    "relu": dict(model=MLP(hidden=(32,), activation="relu")),
    "silu": dict(model=MLP(hidden=(32,), activation="silu")),
    "linear": dict(model=Linear(), fit_config=QUICK),
    "random features": dict(model=RandomFeatures(n_features=64, seed=5)),
    "unsquashed": dict(model=Linear(), surrogate=Binary(squash=False), zeta=1.0),
    "three": dict(model=MLP(hidden=(32, 16))),
    "three, gap": dict(model=MLP(hidden=(32,)), surrogate=BaselineGap(3, baseline=1)),
    "three, unsquashed": dict(model=Linear(), surrogate=FullVector(3, squash=False), zeta=1.0),
    "alone": dict(model=MLP(hidden=(32,)), committee=None, zeta=0.5),
    "three, forest": dict(model=SMALL, fit_config=QUICK, committee=2),
    "three, splines": dict(model=Splines(knots=5), fit_config=QUICK, committee=2),
    "three, given": dict(model=MLP(hidden=(32, 16)), zeta=0.5),
    "three, forest, given": dict(model=SMALL, fit_config=QUICK, committee=2, zeta=0.5),
    "three, splines, given": dict(model=Splines(knots=5), fit_config=QUICK, committee=2, zeta=0.5),
    "three, eta": dict(model=MLP(hidden=(32,)), eta=1.0),
}
AVERAGED = {name for name, settings in POLICIES.items() if "zeta" not in settings}
MIXED = ("three", "three, forest", "three, splines")
FITTED: dict[str, GBPLNet] = {}


def fitted(name: str) -> GBPLNet:
    if name not in FITTED:
        settings = {"fit_config": FAST, "random_state": 1, "device": "cpu"} | POLICIES[name]
        outcomes = Y3 if name.startswith("three") else Y3[:, :2]
        labels = ["none", "mail", "call"][: outcomes.shape[1]]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*its scores call the best")
            FITTED[name] = GBPLNet(actions=labels, **settings).fit(X, outcomes)
    return FITTED[name]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Of format 3: zetas are averaged."""
    path = tmp_path_factory.mktemp("saved") / "policy.gbpl"
    fitted("three").save(path)
    return path


@pytest.fixture(scope="module")
def given_file(tmp_path_factory):
    """Of format 1: networks at a given zeta."""
    path = tmp_path_factory.mktemp("given") / "policy.gbpl"
    fitted("three, given").save(path)
    return path


# -- the same numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
def test_a_loaded_policy_gives_the_same_numbers(name, tmp_path):
    policy = fitted(name)
    policy.save(tmp_path / "p")
    loaded = gbpl.load(tmp_path / "p")
    expected = policy.predict_proba(NEW)
    assert expected.std() > 0.01, "a constant policy would prove nothing"
    assert_allclose(loaded.predict_proba(NEW), expected, atol=1e-6)
    apart = np.sort(expected, axis=1)
    sure = apart[:, -1] - apart[:, -2] > 1e-5
    assert_array_equal(loaded.predict(NEW)[sure], policy.predict(NEW)[sure])
    assert loaded.actions_.tolist() == policy.actions_.tolist()
    assert (loaded.effects is not None) == (policy.effect_ is not None) == (name in AVERAGED)


WITH_DRAWS = ("binary", "relu", "three", "three, gap", "random features", "three, forest", "three, given", "three, eta")


@pytest.mark.parametrize("name", WITH_DRAWS)
def test_a_loaded_policy_has_the_posterior(name, tmp_path):
    policy = fitted(name)
    policy.save(tmp_path / "p", draws=120)
    loaded = gbpl.load(tmp_path / "p")
    expected = policy.posterior().action_probability(NEW, draws=120, seed=0)
    found = loaded.action_probability(NEW)
    # A draw whose two best outputs are equal to rounding may go either way: one draw in 120, in a few rows of 3,000.
    assert np.mean(np.abs(found - expected).max(axis=1) > 1e-9) < 0.005
    assert np.abs(found - expected).max() <= 1.0 / 120 + 1e-9
    decided = loaded.decide(NEW)
    assert_allclose(decided.draw_share.sum(axis=1), 1.0)
    count = found.shape[1]
    assert_allclose(decided.disagreement, count / (count - 1) * (1.0 - found.max(axis=1)), atol=1e-12)
    assert_array_equal(decided.deferred, decided.disagreement > 1.0)
    assert loaded.decide(NEW, defer=1.0).deferred.sum() == 0


# -- members of several models ----------------------------------------------------------------------------------------


def side_by_side():
    """Model, parameters and weights of three policies in one committee, members in any order, and their posterior."""
    policies = [fitted(name) for name in MIXED]
    counts = [len(policy.member_weights_) for policy in policies]
    owner = np.random.default_rng(0).permutation(np.repeat(np.arange(3), counts))
    weights, parts, share = np.empty(len(owner)), np.empty(len(owner), object), np.empty(len(owner))
    for number, policy in enumerate(policies):
        posterior = policy.posterior("last_layer")
        weights[owner == number] = policy.member_weights_ / 3.0
        parts[owner == number], share[owner == number] = posterior.parts, posterior.weights
    model, params = Mixture(tuple(p.model_ for p in policies)), Mixed(owner, tuple(p.params_ for p in policies))
    first = policies[0]
    posterior = Posterior(
        list(parts), share, standardizer=first.standardizer_, surrogate=first.surrogate_, actions=first.actions_,
    )  # fmt: skip
    return model, params, weights, posterior


def frozen_mixture(draws=120):
    model, params, weights, posterior = side_by_side()
    first = fitted("three")
    return freeze(
        model, first.surrogate_, params, weights, first.standardizer_, first.actions_,
        feature_names=None, posterior=posterior, draws=draws, gain=first.gain_slope_,
    )  # fmt: skip


@pytest.fixture(scope="module")
def mixture_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixture") / "policy.gbpl"
    frozen_mixture().save(path)
    return path


def test_a_mixture_gives_the_same_numbers(mixture_file):
    model, params, weights, posterior = side_by_side()
    first, loaded = fitted("three"), gbpl.load(mixture_file)
    x = first.standardizer_.apply(NEW)
    assert_allclose(
        loaded.predict_proba(NEW),
        policy_of_deviation(combined_deviation(model, first.surrogate_, params, weights, x)),
        atol=1e-6,
    )
    expected, found = posterior.action_probability(NEW, draws=120, seed=0), loaded.action_probability(NEW)
    assert np.mean(np.abs(found - expected).max(axis=1) > 1e-9) < 0.005
    assert np.abs(found - expected).max() <= 1.0 / 120 + 1e-9
    assert loaded.draw_count == 120
    assert_allclose(loaded.decide(NEW).draw_share, found)
    counts = [len(fitted(name).member_weights_) for name in MIXED]
    assert repr(loaded) == (
        f"<SavedPolicy: none, mail, call from 4 features, {counts[0]} networks, {counts[1]} forests, "
        f"{counts[2]} splines>"
    )


def test_a_mixture_is_the_sum_of_its_members(mixture_file):
    """Each member by itself, and alone among no others as in its part."""
    policy = gbpl.load(mixture_file)
    x = ((NEW - policy.mean) / policy.scale).astype(np.float32)
    deviation = sum(
        weight
        * (SQUASHINGS[policy.squashing](np.float64(part.form.basis(member, x) @ part.form.last[member])) - 1.0 / 3.0)
        for part in policy.parts
        for member, weight in enumerate(part.weights)
    )
    assert_allclose(policy.predict_proba(NEW), simplex_projection(1.0 / 3.0 + deviation), atol=1e-6)
    for rows in (1, 17, 513):
        assert_allclose(policy.predict_proba(NEW[:rows]), policy.predict_proba(NEW)[:rows], atol=2e-6)


def test_a_loaded_mixture_is_saved_as_it_was(mixture_file, tmp_path):
    gbpl.load(mixture_file).save(tmp_path / "p")
    assert (tmp_path / "p").read_bytes() == mixture_file.read_bytes()


def test_the_models_of_auto_are_saved(tmp_path, monkeypatch):
    """The first is a network of a compiled shape, the other a small forest; a step is what only the latter sees."""
    monkeypatch.setattr("gbpl.estimators.gbplnet.MLP", partial(MLP, hidden=(32, 16)))
    monkeypatch.setattr("gbpl.estimators.gbplnet.BESIDE", (SMALL,))
    steps = np.column_stack([np.zeros(N), np.sign(X[:, 0]), np.sign(X[:, 1] - 50.0)]) + 0.3 * Y3
    policy = GBPLNet(model="auto", fit_config=QUICK, committee=2, random_state=1, device="cpu").fit(X, steps)
    assert isinstance(policy.model_, Mixture)
    assert set(policy.params_.owner) == {0, 1}, "both models are in the committee"
    policy.save(tmp_path / "p", draws=60)
    loaded = gbpl.load(tmp_path / "p")
    assert_allclose(loaded.predict_proba(NEW), policy.predict_proba(NEW), atol=1e-6)
    found, expected = loaded.action_probability(NEW), policy.posterior().action_probability(NEW, draws=60, seed=0)
    assert np.mean(np.abs(found - expected).max(axis=1) > 1e-9) < 0.005


def test_models_without_members_leave_nothing_behind():
    first = fitted("three")
    owner = np.zeros(len(first.member_weights_), int)
    frozen = freeze(
        Mixture((first.model_, SMALL)), first.surrogate_, Mixed(owner, (first.params_, None)), first.member_weights_,
        first.standardizer_, first.actions_, feature_names=None, posterior=None, draws=0, gain=None,
        effect=first.effect_,
    )  # fmt: skip
    assert len(frozen.parts) == 1
    assert_array_equal(frozen.predict_proba(NEW), first.frozen(draws=0).predict_proba(NEW))


def test_members_of_one_fold_share_their_forest():
    policy = fitted("three, forest")
    forests = policy.frozen(draws=0).parts[0].form
    assert isinstance(forests, Forests)
    assert len(forests.value) == 2, "one a fold"
    assert len(forests.forest) == len(policy.member_weights_) > 2
    for name in ("feature", "threshold", "value"):
        assert_array_equal(getattr(forests, name)[forests.forest], policy.params_[0][name])


def test_a_row_on_a_threshold_goes_the_same_way(tmp_path):
    """Thresholds that are rows' own values, to the last bit; leaves so far apart that the other way shows."""
    policy = fitted("three, forest")
    trees, layer = policy.params_
    chosen = np.random.default_rng(0).integers(len(NEW), size=trees["threshold"].shape)
    x = policy.standardizer_.apply(NEW)
    own = x[chosen, np.asarray(trees["feature"], int)]
    moved = [trees | {"threshold": np.where(np.isinf(trees["threshold"]), np.inf, own)}, layer]
    frozen = freeze(
        policy.model_, policy.surrogate_, moved, policy.member_weights_, policy.standardizer_, policy.actions_,
        feature_names=None, posterior=None, draws=0, gain=None,
    )  # fmt: skip
    frozen.save(tmp_path / "p")
    loaded = gbpl.load(tmp_path / "p")
    form, squashed = loaded.parts[0].form, SQUASHINGS[loaded.squashing]
    assert_array_equal(form.threshold, frozen.parts[0].form.threshold)
    expected = member_policies(policy.model_, policy.surrogate_, moved, x)
    for member in range(len(expected)):
        found = squashed((form.basis(member, x) @ form.last[member]).astype(np.float64))
        assert_allclose(found, expected[member], atol=1e-6)
    combined = policy_of_deviation(
        combined_deviation(policy.model_, policy.surrogate_, moved, policy.member_weights_, x)
    )
    assert_allclose(loaded.predict_proba(NEW), combined, atol=1e-6)
    assert_allclose(loaded.predict_proba(NEW.astype(np.float32)), policy_at(policy, moved, NEW), atol=1e-6)


def policy_at(policy, params, x):
    """What a policy with other parameters gives for float32 features."""
    x = policy.standardizer_.apply(x.astype(np.float32))
    return policy_of_deviation(combined_deviation(policy.model_, policy.surrogate_, params, policy.member_weights_, x))


def test_what_can_be_saved_is_known_before_the_fit():
    for model in (MLP(), Linear(), RandomFeatures(), Splines(), ForestFeatures()):
        assert check_model(model) is model
    with pytest.raises(ValueError, match="Splines or ForestFeatures"):
        check_model(as_model((lambda key, n, k: None, lambda params, x: x)))


def test_one_of_each_is_told_apart():
    networks, forests = fitted("three").frozen(draws=0), fitted("three, forest").frozen(draws=0)
    many, trees = networks.parts[0].form, forests.parts[0].form
    one = Networks(tuple(layer[:1] for layer in many.hidden), many.last[:1])
    trees = replace(trees, forest=trees.forest[:1], last=trees.last[:1])
    parts = [Part(one, np.array([0.5])), Part(trees, np.array([0.25])), Part(one, np.array([0.25]))]
    policy = SavedPolicy(
        parts, squashing="softmax", mean=networks.mean, scale=networks.scale, actions=networks.actions_
    )
    assert repr(policy).endswith("2 networks, 1 forest>")
    with pytest.raises(ValueError, match="without posterior draws"):
        policy.action_probability(NEW)


def test_expected_gain_is_the_estimators(tmp_path):
    policy = fitted("three")
    saved = policy.frozen(draws=0).with_study(rule=Rule(default=1), encoder=None, summary=None)
    decided = saved.decide(NEW)
    gains = policy.expected_gain(NEW, default="mail")
    numbers = np.array([["none", "mail", "call"].index(label) for label in decided.action])
    assert_allclose(decided.expected_gain, gains[np.arange(len(NEW)), numbers], atol=1e-4)
    assert decided.expected_gain[decided.action == "mail"].tolist() == [0.0] * int(np.sum(decided.action == "mail"))
    assert decided.draw_share is None, "saved without draws"
    assert decided.deferred is None
    assert (decided.expected_gain >= -1e-6).all(), "an action is taken for what it gains"


def slope_on(expected):
    """Of a regression through the origin of what came on what was expected, both centred in each row."""
    centred, outcomes = expected - expected.mean(axis=1, keepdims=True), Y3 - Y3.mean(axis=1, keepdims=True)
    return np.sum(centred * outcomes) / np.sum(centred**2)


def test_expected_gain_is_right_on_average():
    """Out of fold, a regression of what came on what was expected has slope one: that is what the slope is for."""
    policy = fitted("three, given")
    slope, training = policy.gain_slope_.slope, policy._training
    assert_allclose(slope_on(slope * training.fit.deviation), 1.0, rtol=1e-5)
    held = training.held_out.deviation.astype(np.float64)  # of rows of the fit: by fits that saw nothing of them
    assert_allclose(policy.expected_gain(), slope * (held - held[:, :1]), rtol=1e-6)
    assert_allclose(policy.expected_gain(default="mail"), slope * (held - held[:, [1]]), rtol=1e-6)
    with pytest.raises(ValueError, match="needs a committee"):
        fitted("alone").expected_gain(X)
    with pytest.raises(ValueError, match="one of the actions"):
        policy.expected_gain(X, default="visit")


def test_expected_gain_of_averaged_zetas_is_by_fits_without_the_fold():
    """slope d + level of a fit that saw nothing of the row's fold, in outcome units.

    What is played out of fold has the slope and level by the rows outside the fold; unit d has slope one. The slope is
    lowered by 1.5 standard errors and shrunk a little, so what came is a little more than was expected.
    """
    policy = fitted("three")
    fit, effect, held = policy._training.fit, policy.effect_, policy._training.held_out
    gain = held.deviation * held.unit[:, None]
    assert_allclose(policy.expected_gain(), gain - gain[:, :1], rtol=1e-6)
    committee = np.empty((N, 3))
    for number, fold in {member.fold: member.validation for member in fit.every}.items():
        own = fit.outside[number]
        committee[fold] = (fit.deviation[fold] * own.unit - own.level) / own.slope
    assert_allclose(slope_on(effect.unit * committee), 1.0, rtol=1e-5)
    assert policy.gain_slope_.slope == effect.unit
    error = policy.gain_slope_.se / policy.gain_slope_.slope
    assert_allclose(policy.gain_slope_.se, gain_slope(committee, Y3).se, rtol=1e-4)
    assert 1.0 < slope_on(effect.slope * committee + effect.level) < 1.0 / (1.0 - 2.5 * error)
    assert 1.0 - 2.0 * error < effect.slope / effect.unit < 1.0 - 1.0 * error


def test_gain_slope_is_weighted_least_squares_through_the_origin():
    d = rng.normal(size=(50, 3))
    y = rng.normal(size=(50, 3)) + 2.0 * d
    w = rng.uniform(0.5, 2.0, 50)
    root = np.repeat(np.sqrt(w), 3)
    centred = (y - y.mean(axis=1, keepdims=True)).ravel()
    expected = np.linalg.lstsq((root * d.ravel())[:, None], root * centred, rcond=None)[0][0]
    found = gain_slope(d, y, w)
    assert_allclose(found.slope, expected, rtol=1e-10)
    # Twenty bootstraps of rows would do for the error; the formula for clustered rows is exact enough to restate.
    r = np.sum(d * (y - y.mean(axis=1, keepdims=True) - expected * d), axis=1)
    assert_allclose(found.se, np.sqrt(np.sum((w * r) ** 2)) / np.sum(w * np.sum(d**2, axis=1)))
    assert gain_slope(d, -d).slope == 0.0
    assert gain_slope(np.zeros((3, 2)), np.ones((3, 2))) == GainSlope(0.0, 0.0)


# -- capacity -------------------------------------------------------------------------------------------------------


def test_prices_keep_the_capacity_and_take_the_best():
    gain = np.column_stack([np.zeros(1000), rng.normal(1.0, 1.0, 1000)])
    prices = capacity_prices(gain, {1: 0.25})
    taken = priced_action(gain, prices)
    assert taken.sum() == 250
    assert gain[taken == 1, 1].min() > prices[1] > gain[taken == 0, 1].max()
    assert capacity_prices(gain, {1: 0.99})[1] == 0.0, "more places than people who gain"
    assert capacity_prices(gain[:0], {1: 0.5}).tolist() == [0.0, 0.0]
    alone = np.array([[0.0, 3.0], [0.0, 5.0], [0.0, 1.0]])
    assert_allclose(capacity_prices(alone, {1: 0.34}), [0.0, 4.0], err_msg="halfway, so that rounding moves nobody")
    with pytest.raises(ValueError, match="leave one without"):
        capacity_prices(gain, {0: 0.5, 1: 0.5})


def best_assignment(gain, places):
    """The largest sum of gains of any assignment within the places, by a linear program."""
    from scipy.optimize import linprog

    n, count = gain.shape
    upper = [np.kron(np.ones(n), np.eye(count)[a]) for a in places]
    found = linprog(
        -gain.ravel(), A_ub=np.array(upper), b_ub=list(places.values()),
        A_eq=np.kron(np.eye(n), np.ones(count)), b_eq=np.ones(n), bounds=(0, 1),
    )  # fmt: skip
    return -found.fun


@pytest.mark.parametrize("kind", ["any", "far above the default", "ties", "all equal", "equal actions", "large"])
def test_prices_of_several_actions_are_the_best_assignment(kind):
    """Shares are never exceeded; without ties the dual prices give what a program over all assignments gives."""
    for _ in range(12):
        n, count = int(rng.integers(5, 70)), int(rng.integers(2, 6))
        gain = rng.normal(rng.normal(size=count), rng.uniform(0.1, 2.0, count), (n, count))
        match kind:
            case "far above the default":
                gain[:, 1:] = 1000.0 + 0.01 * gain[:, 1:]
            case "ties":
                gain = np.round(gain)
            case "all equal":
                gain[:] = 0.0
            case "equal actions":
                gain[:, 1:] = gain[:, [1]]
            case "large":
                gain *= 1e9
        gain -= gain[:, :1]
        limited = rng.permutation(np.arange(1, count))[: rng.integers(1, count)]
        shares = {int(action): float(rng.uniform(0.02, 0.6)) for action in limited}
        prices = capacity_prices(gain, shares)
        taken = priced_action(gain, prices)
        for action, share in shares.items():
            assert np.sum(taken == action) <= share * n + 1e-9
        assert all(prices[action] == 0.0 for action in range(count) if action not in shares)
        assert (prices >= 0.0).all()
        if kind not in ("ties", "all equal", "equal actions"):
            places = {action: np.floor(share * n + 1e-9) for action, share in shares.items()}
            assert_allclose(gain[np.arange(n), taken].sum(), best_assignment(gain, places), rtol=1e-9, atol=1e-9)


def test_rows_of_equal_gain_are_decided_alike():
    gain = np.column_stack([np.zeros(10), [3.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 0.0, -1.0, -1.0]])
    for places, expected in ((0, 0), (1, 1), (2, 1), (4, 1), (5, 5), (6, 5), (7, 7), (9, 8)):
        taken = priced_action(gain, capacity_prices(gain, {1: places}))
        assert taken.sum() == expected, places
        assert taken.tolist() == sorted(taken.tolist(), reverse=True)


def test_gains_within_rounding_count_as_equal():
    base = np.repeat([2.0, 1.0], [30, 70])
    jitter = 1e-7 * rng.normal(size=(3, 100))
    taken = []
    for shift in jitter:
        gain = np.column_stack([np.zeros(100), base + jitter[0]])
        prices = capacity_prices(gain, {1: 0.5}, rounding=1e-6)
        taken.append(priced_action(np.column_stack([np.zeros(100), base + shift]), prices))
    assert_array_equal(taken[0], taken[1])
    assert_array_equal(taken[0], taken[2])
    assert taken[0].sum() == 30, "seventy alike do not fit into the twenty places left"


# -- without JAX ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["given_file", "mixture_file", "file"])
def test_loading_and_deciding_import_neither_jax_nor_scipy(which, request):
    file = request.getfixturevalue(which)
    code = f"""
        import sys
        import numpy as np
        import gbpl
        policy = gbpl.load({str(file)!r})
        decided = policy.decide(np.zeros((5, 4)))
        monitor = policy.monitor(outcome_range=(0, 1), least_propensity=0.3)
        monitor.update(np.zeros((5, 4)), np.zeros(5), action=decided.action, propensity=1 / len(policy.actions_))
        heavy = [name for name in ("jax", "sklearn", "scipy", "pandas", "pyarrow", "optax") if name in sys.modules]
        print(heavy, len(decided), decided.action[0])
    """
    out = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert out.stdout.split()[:2] == ["[]", "5"]


def test_rows_of_the_fit_are_not_in_the_file(file):
    content = file.read_bytes()
    for row in (X[0], Y3[1], X[17]):
        for number in row:
            assert np.float64(number).tobytes() not in content
            assert repr(float(number)).encode() not in content
    with safe_open(file, framework="numpy") as opened:
        assert max(opened.get_tensor(name).shape[0] for name in opened.keys()) != N  # noqa: SIM118


def test_frames_need_the_columns_of_the_fit(tmp_path):
    names = ["a", "b", "c", "d"]
    policy = GBPLNet(model=MLP(hidden=(4,)), fit_config=FitConfig(max_epochs=2), random_state=0)
    policy.fit(pd.DataFrame(X, columns=names), Y3[:, :2])
    policy.save(tmp_path / "p")
    loaded = gbpl.load(tmp_path / "p")
    frame = pd.DataFrame(NEW, columns=names)
    assert_allclose(loaded.predict_proba(frame), policy.predict_proba(frame), atol=1e-6)
    with pytest.raises(ValueError, match="no column 'b'"):
        loaded.predict(frame.rename(columns={"b": "z"}))
    with pytest.raises(ValueError, match="4 features"):
        loaded.predict(NEW[:, :3])
    with pytest.raises(ValueError, match="first in row 2"):
        loaded.predict(np.where(np.arange(len(NEW))[:, None] == 2, np.nan, NEW))
    assert len(loaded.decide(NEW[:0])) == 0


def test_labels_keep_their_type(tmp_path):
    for labels in ([0, 1], ["b", "a"], [False, True], [0.5, 2.0], ["a", 1]):
        policy = GBPLNet(model=Linear(), actions=labels, fit_config=FitConfig(max_epochs=2), random_state=0)
        policy.fit(X, Y3[:, :2]).save(tmp_path / "p")
        found = gbpl.load(tmp_path / "p").actions_.tolist()
        assert found == labels
        assert [type(label) for label in found] == [type(label) for label in labels]
    policy.actions_ = np.array([(0, 1), None], object)
    with pytest.raises(ValueError, match="use text or numbers"):
        policy.save(tmp_path / "p")


def test_a_policy_that_holds_code_is_not_saved(tmp_path):
    model = (lambda key, n, k: {"w": np.zeros((n, k), np.float32)}, lambda params, x: x @ params["w"])
    policy = GBPLNet(model=model, fit_config=FitConfig(max_epochs=1), random_state=0).fit(X, Y3[:, :2])
    with pytest.raises(ValueError, match="holds code"):
        policy.save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_policy_without_rows_saves_without_draws(tmp_path):
    policy = pickle.loads(pickle.dumps(fitted("binary")))
    policy.save(tmp_path / "p")
    loaded = gbpl.load(tmp_path / "p")
    assert_allclose(loaded.predict_proba(NEW), fitted("binary").predict_proba(NEW), atol=1e-6)
    with pytest.raises(ValueError, match="without posterior draws"):
        loaded.action_probability(NEW)


# -- many rows, one row, several threads ------------------------------------------------------------------------------


def test_an_estimator_is_watched_as_its_file_is(file):
    saved, net = gbpl.load(file), fitted("three")
    assert net.frozen(draws=0).digest() == saved.digest()  # draws decide nothing
    x = np.random.default_rng(0).normal(size=(30, saved.n_features_in_))
    rows = {"outcome": np.full(30, 0.5), "action": saved.actions_[[0] * 30], "propensity": 1.0 / 3.0}
    one, other = (policy.monitor(outcome_range=(0.0, 1.0)).update(x, **rows) for policy in (net, saved))
    assert one.to_dict() == other.to_dict()
    assert one.rows == 30


def test_a_row_is_decided_the_same_alone_and_among_others(file):
    policy = gbpl.load(file)
    together = policy.predict_proba(NEW)
    chances = policy.action_probability(NEW)
    for rows in (1, 2, 17, 513):
        assert_allclose(policy.predict_proba(NEW[:rows]), together[:rows], atol=2e-6)
        close = np.abs(policy.action_probability(NEW[:rows]) - chances[:rows]).max(axis=1) <= 1.01 / 400
        assert close.all()
    gain = policy.expected_gain(NEW)
    assert (gain[:, 0] == 0.0).all(), "over the first action, the default"
    number = np.argmax(gain, axis=1)
    assert_allclose(policy.decide(NEW).expected_gain, gain[np.arange(len(NEW)), number])
    assert (policy.decide(NEW).action == policy.actions_[number]).all()


@pytest.mark.parametrize("name", ["three", "linear", "random features", "silu"])
def test_many_members_at_a_time_are_each_member_by_itself(name):
    policy, effect = fitted(name).frozen(draws=0), fitted(name).effect_
    networks, x = policy.parts[0].form, ((NEW - policy.mean) / policy.scale).astype(np.float32)
    count = len(policy.actions_)
    deviation = sum(
        weight
        * (SQUASHINGS[policy.squashing](np.float64(networks.basis(member, x) @ networks.last[member])) - 1.0 / count)
        for member, weight in enumerate(policy.parts[0].weights)
    )
    played = (effect.slope * deviation + effect.level) / effect.unit
    assert_allclose(policy.predict_proba(NEW), simplex_projection(1.0 / count + played), atol=1e-6)


def test_blocks_and_members_at_a_time_change_nothing(file, monkeypatch):
    expected = gbpl.load(file).decide(NEW[:700])
    for block, cached in ((64, 1), (128, 1 << 30), (1 << 20, 1 << 10)):
        monkeypatch.setattr("gbpl.frozen.committee.BLOCK", block)
        monkeypatch.setattr("gbpl.models.numpy_form.CACHED", cached)
        decisions = gbpl.load(file).decide(NEW[:700])
        assert_allclose(decisions.expected_gain, expected.expected_gain, atol=1e-4)
        assert np.mean(decisions.draw_share != expected.draw_share) < 0.01


def test_blas_has_its_threads_back_whoever_ends_first(file):
    """Decisions made at the same time share one limit; when the last one ends it goes."""
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info, threadpool_limits

    from gbpl.runtime.threads import one_thread

    def threads():
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    policy = gbpl.load(file)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        assert set(threads()) == {1}
        first.__exit__(None, None, None)
        assert set(threads()) == {1}
        second.__exit__(None, None, None)
        assert threads() == before
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(policy.predict_proba, [NEW] * 8))
        assert threads() == before
        for one in found[1:]:
            assert_array_equal(one, found[0])
        with pytest.raises(RuntimeError, match="stop"), one_thread():
            raise RuntimeError("stop")
        assert threads() == before


def test_one_row_starts_no_threads(file, monkeypatch):
    monkeypatch.setattr("gbpl.frozen.committee.ThreadPoolExecutor", None)
    policy = gbpl.load(file)
    policy.decide(NEW[:1])
    policy.decide(NEW[:500])
    with pytest.raises(TypeError):
        policy.decide(NEW[:1500])


# -- files that are none --------------------------------------------------------------------------------------------


def test_every_flipped_byte_is_noticed(file, tmp_path):
    """Any bit, anywhere: an error that says so, or (in the blanks that pad the header) the same policy."""
    content = bytearray(file.read_bytes())
    told = int.from_bytes(content[:8], "little")
    places = np.unique(np.concatenate([np.arange(8), rng.integers(8, 8 + told, 60), rng.integers(0, len(content), 60)]))
    expected = gbpl.load(file).predict_proba(NEW[:5])
    noticed = 0
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "p").write_bytes(damaged)
        try:
            probabilities = gbpl.load(tmp_path / "p").predict_proba(NEW[:5])
        except SavedPolicyError:
            noticed += 1
        else:
            assert content[place : place + 1].isspace(), place
            assert_array_equal(probabilities, expected)
    assert noticed >= len(places) - 8


@pytest.mark.parametrize("length", [0, 3, 8, 50, 1000, -1000, -1])
def test_a_truncated_file_is_refused(file, tmp_path, length):
    (tmp_path / "p").write_bytes(file.read_bytes()[:length])
    with pytest.raises(SavedPolicyError, match="damaged"):
        gbpl.load(tmp_path / "p")


def header_of(file):
    with safe_open(file, framework="numpy") as opened:
        arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        return json.loads(opened.metadata()["gbpl policy"]), arrays


def forged(path, header, arrays, told=None, **changes):
    """A file with a right checksum: what somebody who knows the format could write."""
    told = json.loads(header["policy"]) | changes if told is None else told
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}  # else they are written otherwise
    text = told if isinstance(told, str) else json.dumps(told)
    header = header | {"policy": text, "sha256": _digest(text, arrays)}
    path.write_bytes(save(arrays, metadata={"gbpl policy": json.dumps(header)}))
    return path


def test_a_newer_format_says_so(file, tmp_path):
    header, arrays = header_of(file)
    assert (header["format"], FORMAT) == (3, 5)
    forged(tmp_path / "p", header | {"format": 6}, arrays)
    with pytest.raises(SavedPolicyError, match="has format 6, and this gbpl reads up to 5; install a newer gbpl"):
        gbpl.load(tmp_path / "p")


def test_a_pickle_is_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'boom')!r}, 'w')",))

    (tmp_path / "p").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(SavedPolicyError):
        gbpl.load(tmp_path / "p")
    assert not (tmp_path / "boom").exists()


HOSTILE = {
    "no such activation": {"activation": "exec"},
    "activation that is no text": {"activation": ["tanh"]},
    "one action": {"actions": ["a"]},
    "many actions": {"actions": ["a", "b", "c", "d"]},
    "actions nested": {"actions": [["a"], "b", "c"]},
    "twice the same": {"actions": ["a", "a", "b"]},
    "wrong squashing": {"squashing": "tanh"},
    "a baseline that is no action": {"squashing": "gap 3"},
    "gain": {"gain": "1e400"},
    "gain true": {"gain": True},
    "names": {"features": ["a"]},
    "names of numbers": {"features": [1, 2, 3, 4]},
    "slope": {"slope": [1.0]},
    "rule": {"rule": None},
    "default": {"rule": {"default": 7, "defer": 0.5, "prices": []}},
    "default true": {"rule": {"default": True, "defer": 0.5, "prices": []}},
    "defer": {"rule": {"default": 0, "defer": 5, "prices": []}},
    "prices": {"rule": {"default": 0, "defer": 0.5, "prices": [1.0]}},
    "summary": {"summary": "text"},
    "encoder": {"encoder": {"columns": "all"}},
    "no gain": {"gain": None},
}
OF_NETWORKS = ("activation", "gain")  # settings of a part in the later formats, see HOSTILE_PARTS


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_settings_are_refused(given_file, file, tmp_path, name):
    for own in (given_file, file)[: 1 if set(HOSTILE[name]) & set(OF_NETWORKS) else 2]:
        forged(tmp_path / "p", *header_of(own), **HOSTILE[name])
        with pytest.raises(SavedPolicyError, match="damaged, or was never a policy"):
            gbpl.load(tmp_path / "p")


@pytest.mark.parametrize("name", [name for name, change in HOSTILE.items() if set(change) & set(OF_NETWORKS)])
def test_hostile_settings_of_a_part_are_refused(file, tmp_path, name):
    header, arrays = header_of(file)
    (part,) = json.loads(header["policy"])["parts"]
    forged(tmp_path / "p", header, arrays, parts=[part | HOSTILE[name]])
    with pytest.raises(SavedPolicyError, match="damaged, or was never a policy"):
        gbpl.load(tmp_path / "p")


@pytest.mark.parametrize("name", ["three", "three, given"])
def test_prices_by_group_are_those_of_each_row(name):
    """In each group, actions and shares of draws are as by a rule with that price of every action but the default."""
    policy, city = fitted(name).frozen(draws=100), np.array(["a", "b"])[np.arange(len(NEW)) % 2]
    groups = GroupPrices("city", Parts.of(city), (0.3, -0.2))
    made = policy.with_study(rule=Rule(1, groups=groups), encoder=None, summary=None).decide(NEW, group=city)
    for level, price in (("a", 0.3), ("b", -0.2)):
        rule = Rule(1, prices=(price, 0.0, price))
        alone = policy.with_study(rule=rule, encoder=None, summary=None).decide(NEW)
        own = city == level
        assert_array_equal(made.action[own], alone.action[own])
        assert_array_equal(made.draw_share[own], alone.draw_share[own])
        assert (alone.action[own] != policy.decide(NEW).action[own]).any(), "a price that changes nothing"


HOSTILE_GROUPS = {
    "no prices": None,
    "no table": ["city"],
    "no column": {"column": None},
    "a price too few": {"prices": [0.1]},
    "a price that is no number": {"prices": [0.1, "x"]},
    "no parts": {"parts": None},
    "parts without names": {"parts": {"names": []}},
}


def test_prices_by_group_have_a_format_of_their_own(file, tmp_path):
    header, arrays = header_of(file)
    rule = json.loads(header["policy"])["rule"]
    parts = Parts.of(np.array(["a", "b"] * 10)).to_json()
    groups = {"column": "city", "parts": parts, "prices": [0.1, -0.2]}
    newer = header | {"format": 5}
    forged(tmp_path / "p", newer, arrays, rule=rule | {"groups": groups})
    assert gbpl.load(tmp_path / "p").rule.groups.prices == (0.1, -0.2)
    for change in HOSTILE_GROUPS.values():
        wrong = groups | change if isinstance(change, dict) else change
        forged(tmp_path / "p", newer, arrays, rule=rule | {"groups": wrong})
        with pytest.raises(SavedPolicyError, match="damaged, or was never a policy"):
            gbpl.load(tmp_path / "p")
    forged(tmp_path / "p", header, arrays, rule=rule | {"groups": groups})  # which an older gbpl would not look at
    with pytest.raises(SavedPolicyError, match="it does not have the prices of its format"):
        gbpl.load(tmp_path / "p")


def test_hostile_arrays_are_refused(given_file, tmp_path):
    header, arrays = header_of(given_file)
    last = arrays["last"]
    for change in (
        {"last": last[:, :-1]}, {"last": last.astype(np.float64)}, {"last": np.full_like(last, np.nan)},
        {"weights": arrays["weights"][:-1]}, {"scale": np.zeros_like(arrays["scale"])}, {"mean": arrays["mean"][:2]},
        {"hidden0": arrays["hidden0"][:, :2]}, {"hidden7": arrays["hidden0"]}, {"extra": last},
        {"draw_member": arrays["draw_member"] + 10_000}, {"draw_member": arrays["draw_member"][1:]},
        {"draws": arrays["draws"][:, 1:]}, {"last": np.zeros((0, 3, 3), np.float32)}, {"/last": last},
    ):  # fmt: skip
        forged(tmp_path / "p", header, arrays | change)
        with pytest.raises(SavedPolicyError, match="damaged, or was never a policy"):
            gbpl.load(tmp_path / "p")
    del arrays["draws"]
    forged(tmp_path / "p", header, arrays)
    with pytest.raises(SavedPolicyError, match="it holds the arrays"):
        gbpl.load(tmp_path / "p")


def written(policy, version, settings, arrays):
    """The bytes of a file, as its format says."""
    settings |= {
        "actions": ["none", "mail", "call"], "features": None, "slope": [policy.gain.slope, policy.gain.se],
        "rule": {"default": 0, "defer": 1.0, "prices": []}, "encoder": None, "summary": None,
    }  # fmt: skip
    settings |= {"fingerprint": policy.fingerprint_.to_json(), "seen": policy.seen.to_json()}
    arrays |= {"mean": policy.mean, "scale": policy.scale}
    header = {"format": version, "sha256": _digest(json.dumps(settings), arrays), "policy": json.dumps(settings)}
    return save(arrays, metadata={"gbpl policy": json.dumps(header)})


def test_a_policy_of_networks_is_written_as_ever(given_file):
    """The whole of format 1: what earlier versions read, and wrote."""
    policy = gbpl.load(given_file)
    (part,) = policy.parts
    settings = {"activation": "tanh", "squashing": "softmax", "gain": 1.0}
    arrays = {
        "weights": part.weights, "last": part.form.last, "hidden0": part.form.hidden[0],
        "hidden1": part.form.hidden[1], "draws": part.draws, "draw_member": part.draw_member,
    }  # fmt: skip
    assert given_file.read_bytes() == written(policy, 1, settings, arrays)


@pytest.mark.parametrize("name", ["three, forest, given", "three, splines, given"])
def test_a_policy_of_other_models_is_written_as_ever(name, tmp_path):
    """The whole of format 2."""
    policy = fitted(name).frozen(draws=30)
    policy.save(tmp_path / "p")
    (part,) = policy.parts
    form = part.form
    arrays = {"weights": part.weights, "last": form.last, "draws": part.draws, "draw_member": part.draw_member}
    if isinstance(form, Forests):
        split = np.where(np.isinf(form.threshold), np.finfo(np.float32).max, form.threshold)
        settings = {"kind": "forests"}
        arrays |= {"feature": form.feature, "threshold": split, "value": form.value, "forest": form.forest}
    else:
        settings = {"kind": "networks", "activation": "tanh", "gain": 1.0, "knots": 5}
    assert (tmp_path / "p").read_bytes() == written(
        policy,
        2,
        {"parts": [settings], "squashing": "softmax"},
        {f"part0/{array}": np.ascontiguousarray(values) for array, values in arrays.items()},
    )


@pytest.mark.parametrize("draws", [0, 30])
def test_a_policy_of_averaged_zetas_is_written_with_its_effects(draws, tmp_path):
    """The whole of format 3, with draws of effects and without."""
    policy = fitted("three").frozen(draws=draws)
    policy.save(tmp_path / "p")
    effect, drawn, (part,) = fitted("three").effect_, fitted("three").posterior().sample(30), policy.parts
    settings = {
        "parts": [{"kind": "networks", "activation": "tanh", "gain": 1.0, "knots": 0}], "squashing": "softmax",
        "effects": {"slope": effect.slope / effect.unit, "knots": 0},
    }  # fmt: skip
    if draws:
        settings["effects"]["freedom"] = fitted("three").posterior().freedom
    arrays = {
        "part0/weights": part.weights, "part0/last": part.form.last, "part0/hidden0": part.form.hidden[0],
        "part0/hidden1": part.form.hidden[1], "effects/level": effect.level / effect.unit,
    }  # fmt: skip
    if draws:
        arrays |= {
            "effects/functions": fitted("three").posterior().functions, "effects/draw_weight": drawn["weight"],
            "effects/draw_coefficient": np.concatenate([drawn["coefficient"], drawn["rough"]], axis=1),
        }  # fmt: skip
    assert (tmp_path / "p").read_bytes() == written(policy, 3, settings, arrays)
    loaded = gbpl.load(tmp_path / "p")
    assert loaded.draw_count == draws
    assert (loaded.decide(NEW[:5]).draw_share is None) == (draws == 0)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "p").read_bytes()


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A policy whose members see its columns in another order and without a constant one, and its file, of format 4."""

    def laid_out(x):
        return np.column_stack([x[:, ::-1], np.full(len(x), 7.0)])

    policy = GBPLNet(zeta=0.5, model=MLP(hidden=(8,)), fit_config=FAST, random_state=1, device="cpu")
    policy.fit(laid_out(X), Y3)
    path = tmp_path_factory.mktemp("wide") / "policy.gbpl"
    policy.save(path)
    return policy, laid_out(NEW), path


def test_a_policy_of_some_columns_in_their_order(wide):
    """Format 4: those of the others and the columns that members see."""
    policy, new, path = wide
    header, _ = header_of(path)
    assert header["format"] == 4
    assert json.loads(header["policy"])["columns"] == [3, 2, 1, 0]  # the constant one is not seen
    loaded = gbpl.load(path)
    assert_allclose(loaded.predict_proba(new), policy.predict_proba(new), atol=1e-6)
    new[:, 4] = 1e6
    assert_allclose(loaded.predict_proba(new), policy.predict_proba(new), atol=1e-6)


@pytest.mark.parametrize(
    "columns", [None, [], [0, 0, 1, 2], [0, 1, 2, 5], [-1, 0, 1, 2], [0, 1, 2.0, 3], "0123", [True]]
)
def test_hostile_columns_are_refused(wide, tmp_path, columns):
    header, arrays = header_of(wide[2])
    forged(tmp_path / "p", header, arrays, columns=columns)
    with pytest.raises(SavedPolicyError, match="columns"):
        gbpl.load(tmp_path / "p")


@pytest.mark.parametrize(
    ("own", "other"), [(own, other) for own, other in product((1, 2, 3), (1, 2, 3, 4)) if own != other]
)
def test_another_format_is_refused(given_file, mixture_file, file, tmp_path, own, other):
    header, arrays = header_of((given_file, mixture_file, file)[own - 1])
    assert header["format"] == own
    forged(tmp_path / "p", header | {"format": other}, arrays)
    with pytest.raises(SavedPolicyError, match="damaged, or was never a policy"):
        gbpl.load(tmp_path / "p")


# -- effects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("curves", ["none", "lines", "of 4 knots"])
def test_effects_of_several_models_restated(mixture_file, tmp_path, curves):
    """slope d + level; a draw is sum_m w_m a_m + phi'B + sqrt(2 / J) sum_j cos(x'f_j + b_j) c_j, members in order."""
    plain, made = gbpl.load(mixture_file), np.random.default_rng(8)
    parts = [replace(part, draws=None, draw_member=None) for part in plain.parts]
    x = ((NEW - plain.mean) / plain.scale).astype(np.float32)
    knots = 4 if curves == "of 4 knots" else 0
    phi = {"none": x[:, :0], "lines": x, "of 4 knots": spline_curves(x, 4)}[curves]
    phi = np.column_stack([np.ones(len(x)), phi])
    members = np.stack(
        [
            SQUASHINGS["softmax"](np.float64(part.form.basis(member, x) @ part.form.last[member])) - 1.0 / 3.0
            for part in parts
            for member in range(len(part.weights))
        ]
    )
    shapes = {"functions": (5, 6), "draw_weight": (50, len(members)), "draw_coefficient": (50, phi.shape[1] + 6, 3)}
    drawn = {name: made.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    effects = Effects(0.7, knots, np.array([0.1, -0.15, 0.05]), **drawn)
    policy = SavedPolicy(
        parts, squashing="softmax", mean=plain.mean, scale=plain.scale, actions=plain.actions_,
        gain=GainSlope(2.0, 0.1), effects=effects,
    )  # fmt: skip
    policy.save(tmp_path / "p")
    loaded = gbpl.load(tmp_path / "p")
    weights = np.concatenate([part.weights for part in parts])
    played = 0.7 * np.tensordot(weights, members, axes=1) + effects.level
    assert_allclose(loaded.predict_proba(NEW), simplex_projection(1.0 / 3.0 + played), atol=1e-6)
    assert_allclose(loaded.expected_gain(NEW), 2.0 * (played - played[:, :1]), atol=1e-5)
    rough = np.sqrt(2.0 / 6.0) * np.cos(x @ drawn["functions"][:-1] + drawn["functions"][-1])
    every = np.tensordot(drawn["draw_weight"], members, axes=1)
    every = every + np.column_stack([phi, rough]) @ drawn["draw_coefficient"]
    expected = np.mean(every.argmax(axis=2)[..., None] == np.arange(3), axis=0)
    found = loaded.action_probability(NEW)
    assert np.mean(np.abs(found - expected).max(axis=1) > 1e-9) < 0.005
    assert np.abs(found - expected).max() <= 1.0 / 50 + 1e-9
    assert_array_equal(loaded.decide(NEW).draw_share, found)


HOSTILE_EFFECTS = {
    "none": (None, "effects of its format"),
    "a list": ([1.0, 0], "TypeError"),
    "text": ("effects", "TypeError"),
    "true": (True, "TypeError"),
    "no slope": ({"knots": 0}, "KeyError"),
    "no knots": ({"slope": 1.0}, "KeyError"),
    "slope of text": ({"slope": "1.0", "knots": 0}, "not a number"),
    "slope true": ({"slope": True, "knots": 0}, "not a number"),
    "slope of none": ({"slope": None, "knots": 0}, "not a number"),
    "huge slope": ({"slope": 10**400, "knots": 0}, "OverflowError"),
    "knots true": ({"slope": 1.0, "knots": True}, "knots of its effects"),
    "knots of a float": ({"slope": 1.0, "knots": 5.0}, "knots of its effects"),
    "knots of text": ({"slope": 1.0, "knots": "5"}, "knots of its effects"),
    "knots of none": ({"slope": 1.0, "knots": None}, "knots of its effects"),
    "a billion knots": ({"slope": 1.0, "knots": 10**9}, "knots of its effects"),
    "two knots": ({"slope": 1.0, "knots": 2}, "knots of its effects"),
    "fewer than no knots": ({"slope": 1.0, "knots": -3}, "knots of its effects"),
    "knots of other curves": ({"slope": 1.0, "knots": 5}, "no coefficients"),
}


@pytest.mark.parametrize("name", HOSTILE_EFFECTS)
def test_hostile_effects_are_refused(file, tmp_path, name):
    effects, reason = HOSTILE_EFFECTS[name]
    forged(tmp_path / "p", *header_of(file), effects=effects)
    with pytest.raises(SavedPolicyError, match=f"damaged, or was never a policy: .*{reason}"):
        gbpl.load(tmp_path / "p")


def test_hostile_arrays_of_effects_are_refused(file, tmp_path):
    header, arrays = header_of(file)
    names = ("level", "functions", "draw_weight", "draw_coefficient")
    level, functions, weight, drawn = (arrays[f"effects/{name}"] for name in names)
    wide = np.concatenate([drawn, drawn[:, :1]], axis=1)
    for change, reason in (
        ({"level": level[:2]}, "a level for each action"), ({"level": np.append(level, 0.0)}, "a level for each"),
        ({"level": level[None]}, "level has shape"), ({"level": level[:0]}, "level has shape"),
        ({"level": level.astype(np.float32)}, "level holds float32"), ({"level": level * np.nan}, "not finite"),
        ({"functions": functions[1:]}, "fit its features"), ({"functions": functions[[0, *range(5)]]}, "its features"),
        ({"functions": functions[0]}, "functions has shape"), ({"functions": functions[:, :0]}, "has shape"),
        ({"functions": functions.astype(np.float64)}, "float64"), ({"functions": functions * np.inf}, "not finite"),
        ({"functions": functions[:, 1:]}, "no coefficients"),
        ({"draw_weight": weight[:, 1:]}, "weigh every member"), ({"draw_weight": weight[:, [0, *range(25)]]}, "weigh"),
        ({"draw_weight": weight[1:]}, "no coefficients"), ({"draw_weight": weight[:0]}, "draw_weight has shape"),
        ({"draw_weight": weight[None]}, "has shape"), ({"draw_weight": weight.astype(np.float64)}, "holds float64"),
        ({"draw_weight": weight * np.nan}, "draw_weight has values that are not finite"),
        ({"draw_coefficient": drawn[1:]}, "no coefficients"), ({"draw_coefficient": drawn[:, 1:]}, "no coefficients"),
        ({"draw_coefficient": wide}, "no coefficients"), ({"draw_coefficient": drawn[..., :2]}, "no coefficients"),
        ({"draw_coefficient": drawn[0]}, "draw_coefficient has shape"),
        ({"draw_coefficient": drawn.astype(np.float64)}, "float64"),
        ({"draw_coefficient": drawn * np.nan}, "draw_coefficient has values that are not finite"),
        ({"other": drawn}, "its effects hold the arrays"), ({"/level": level}, "its effects hold the arrays"),
        ({"effects/level": level}, "its effects hold the arrays"), ({"part0/level": level}, "its effects hold"),
    ):  # fmt: skip
        forged(tmp_path / "p", header, arrays | {f"effects/{name}": array for name, array in change.items()})
        with pytest.raises(SavedPolicyError, match=f"damaged, or was never a policy: .*{reason}"):
            gbpl.load(tmp_path / "p")
    for name in names:
        forged(tmp_path / "p", header, {other: own for other, own in arrays.items() if other != f"effects/{name}"})
        with pytest.raises(SavedPolicyError, match="never a policy: its effects hold the arrays"):
            gbpl.load(tmp_path / "p")
    for name in ("level", "part0/level", "/effects/level", "part0/effects/level"):
        forged(tmp_path / "p", header, arrays | {name: level})
        with pytest.raises(SavedPolicyError, match="never a policy: it holds the arrays"):
            gbpl.load(tmp_path / "p")


def test_draws_of_two_kinds_are_refused(file, tmp_path):
    header, arrays = header_of(file)
    last = arrays["part0/last"]
    both = {"part0/draws": last, "part0/draw_member": np.arange(len(last), dtype=np.int32)}
    forged(tmp_path / "p", header, arrays | both)
    with pytest.raises(SavedPolicyError, match="draws of two kinds"):
        gbpl.load(tmp_path / "p")


def test_effects_are_in_files_of_their_format_alone(given_file, mixture_file, file, tmp_path):
    effects = json.loads(header_of(file)[0]["policy"])["effects"]
    own = {name: array for name, array in header_of(file)[1].items() if name.startswith("effects/")}
    for other in (given_file, mixture_file):
        header, arrays = header_of(other)
        for change, more, reason in (
            ({"effects": effects}, own, "effects of its format"), ({"effects": effects}, {}, "effects of its format"),
            ({}, own, "it holds the arrays"),
        ):  # fmt: skip
            forged(tmp_path / "p", header, arrays | more, **change)
            with pytest.raises(SavedPolicyError, match=f"damaged, or was never a policy: .*{reason}"):
                gbpl.load(tmp_path / "p")
    header, arrays = header_of(file)
    told = json.loads(header["policy"])
    del told["effects"]
    for kept in (arrays, {name: array for name, array in arrays.items() if name not in own}):
        forged(tmp_path / "p", header, kept, told=told)
        with pytest.raises(SavedPolicyError, match="does not have the effects of its format"):
            gbpl.load(tmp_path / "p")


# -- parts ------------------------------------------------------------------------------------------------------------


PARTS = [
    {"kind": "networks", "activation": "tanh", "gain": 1.0, "knots": 0}, {"kind": "forests"},
    {"kind": "networks", "activation": "tanh", "gain": 1.0, "knots": 5},
]  # fmt: skip
HOSTILE_PARTS = {
    "none": [],
    "two": PARTS[:2],
    "four": [*PARTS, {"kind": "forests"}],
    "another order": PARTS[::-1],
    "no table": [*PARTS[:2], "networks"],
    "a number": 3,
    "no such kind": [PARTS[0], {"kind": "exec"}, PARTS[2]],
    "kind that is no text": [PARTS[0], {"kind": ["forests"]}, PARTS[2]],
    "no kind": [PARTS[0], {}, PARTS[2]],
    "other knots": [*PARTS[:2], PARTS[2] | {"knots": 6}],
    "knots true": [*PARTS[:2], PARTS[2] | {"knots": True}],
    "knots of a float": [*PARTS[:2], PARTS[2] | {"knots": 5.0}],
    "a billion knots": [*PARTS[:2], PARTS[2] | {"knots": 10**9}],
    "two knots": [*PARTS[:2], PARTS[2] | {"knots": 2}],
    "no knots": [PARTS[0] | {"knots": None}, *PARTS[1:]],
    "activation": [PARTS[0] | {"activation": "exec"}, *PARTS[1:]],
}


@pytest.mark.parametrize("name", HOSTILE_PARTS)
def test_hostile_parts_are_refused(mixture_file, tmp_path, name):
    header, arrays = header_of(mixture_file)
    assert json.loads(header["policy"])["parts"] == PARTS
    forged(tmp_path / "p", header, arrays, parts=HOSTILE_PARTS[name])
    with pytest.raises(SavedPolicyError, match="damaged, or was never a policy"):
        gbpl.load(tmp_path / "p")


def test_hostile_trees_are_refused(mixture_file, tmp_path):
    header, arrays = header_of(mixture_file)
    trees = {name.removeprefix("part1/"): array for name, array in arrays.items() if name.startswith("part1/")}
    feature, threshold, value, forest = (trees[name] for name in ("feature", "threshold", "value", "forest"))
    shallow = {"feature": feature[:, :, :6], "threshold": threshold[:, :, :6], "value": value[:, :, :7]}
    nodes = 2**11 - 1
    deep = {
        "feature": np.zeros((2, 1, nodes), np.int32), "threshold": np.zeros((2, 1, nodes), np.float32),
        "value": np.zeros((2, 1, nodes + 1, 8), np.float32),
    }  # fmt: skip
    for change, reason in (
        ({"feature": feature + 4}, "a feature that does not exist"), ({"feature": feature - 4}, "does not exist"),
        ({"feature": feature.astype(np.float32)}, "holds float32"), ({"feature": feature[:1]}, "threshold"),
        ({"threshold": np.full_like(threshold, np.inf)}, "not finite"), ({"threshold": threshold[:, :1]}, "threshold"),
        ({"value": value[:, :, :4]}, "leaf"), ({"value": value[..., :3]}, "does not fit"),
        ({"value": value[0]}, "has shape"),
        ({"value": np.full_like(value, np.nan)}, "not finite"), ({"forest": forest + 2}, "no forest"),
        ({"forest": forest - 1}, "no forest"), ({"forest": forest[1:]}, "no forest"),
        ({"forest": forest.astype(np.int64)}, "int64"), (shallow, "not whole"), (deep, "deeper than 10"),
        ({"last": trees["last"][1:]}, "does not fit"), ({"draw_member": trees["draw_member"] + 99}, "no member"),
        ({"weights": trees["weights"][1:]}, "no forest"), ({"hidden0": trees["last"]}, "holds the arrays"),
    ):  # fmt: skip
        forged(tmp_path / "p", header, arrays | {f"part1/{name}": array for name, array in change.items()})
        with pytest.raises(SavedPolicyError, match=f"damaged, or was never a policy: .*{reason}"):
            gbpl.load(tmp_path / "p")
    for name in ("part1/feature", "part1/draws", "mean", "part2/last"):
        forged(tmp_path / "p", header, {other: array for other, array in arrays.items() if other != name})
        with pytest.raises(SavedPolicyError, match="damaged, or was never a policy"):
            gbpl.load(tmp_path / "p")
    for name in ("last", "part3/last", "part1/part1/last", "/last", "/mean", "part1//last"):
        forged(tmp_path / "p", header, arrays | {name: arrays.get(name.removeprefix("/"), trees["last"])})
        with pytest.raises(SavedPolicyError, match="it holds the arrays"):
            gbpl.load(tmp_path / "p")


@pytest.mark.parametrize("told", ["[]", "{", "NaN", '{"gain": NaN}', "{}", "[" * 100_000, '"policy"'])
def test_hostile_json_is_refused(file, tmp_path, told):
    forged(tmp_path / "p", *header_of(file), told=told)
    with pytest.raises(SavedPolicyError):
        gbpl.load(tmp_path / "p")


def test_other_files_are_refused(file, tmp_path):
    with pytest.raises(SavedPolicyError, match="there is no file"):
        gbpl.load(tmp_path / "nothing")
    with pytest.raises(SavedPolicyError, match="not a file"):
        gbpl.load(tmp_path)
    (tmp_path / "other.safetensors").write_bytes(save({"a": np.zeros(3)}))
    with pytest.raises(SavedPolicyError, match="does not say that it is one"):
        gbpl.load(tmp_path / "other.safetensors")
    (tmp_path / "text.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SavedPolicyError, match="damaged"):
        gbpl.load(tmp_path / "text.csv")
    huge = (1 << 62).to_bytes(8, "little")
    (tmp_path / "huge").write_bytes(huge + b"{}")
    with pytest.raises(SavedPolicyError, match="claims"):
        gbpl.load(tmp_path / "huge")


def test_saving_is_whole_or_not_at_all(file, tmp_path, monkeypatch):
    (tmp_path / "p").write_text("old")
    policy = gbpl.load(file)
    with monkeypatch.context() as patched:
        patched.setattr("os.replace", lambda *given: (_ for _ in ()).throw(OSError("disk")))
        with pytest.raises(OSError, match="disk"):
            policy.save(tmp_path / "p")
    assert (tmp_path / "p").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["p"]
    policy.save(tmp_path / "p")
    assert (tmp_path / "p").read_bytes() == file.read_bytes(), "what is loaded is saved as it was"
    for wrong in (tmp_path, tmp_path / "no" / "p"):
        with pytest.raises(ValueError, match="folder"):
            policy.save(wrong)


@pytest.mark.parametrize("name", ["binary", "three", "three, forest"])
def test_an_explanation_of_the_saved_policy_is_that_of_the_estimator(name, tmp_path):
    policy = fitted(name)
    policy.save(tmp_path / "p")
    loaded = gbpl.load(tmp_path / "p")
    for row in NEW[:3]:
        ours, theirs = policy.explain(row), loaded.explain(row)
        assert ours.to_dict() == theirs.to_dict()
        assert ours.decided == policy.predict(row[None])[0]
        expected = policy.expected_gain(row[None], level=0.9)
        for end in ("gain", "low", "high"):
            found = [getattr(one, end) for one in ours.gains]
            assert_allclose(found, getattr(expected, end)[0], rtol=1e-4, atol=1e-5)
    other = policy.explain(NEW[0], default="mail", level=0.5)
    assert other.default == "mail"
    assert_allclose(other.gains[0].low, policy.expected_gain(NEW[:1], default="mail", level=0.5).low[0, 0], atol=1e-5)
    with pytest.raises(ValueError, match="default must be one of the actions"):
        policy.explain(NEW[0], default="fax")
