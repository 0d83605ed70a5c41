"""Members that are solved: at the minimum of their objective, from all the rows they may see."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from support.calls import forbid_calls

import gbpl.fitting.stack
from gbpl import (
    MLP,
    BaselineGap,
    Binary,
    FitConfig,
    ForestFeatures,
    FullVector,
    GBPLNet,
    Linear,
    Member,
    NonFiniteLossError,
    RandomFeatures,
    Splines,
    fit_stack,
)  # fmt: skip
from gbpl.fitting.newton import is_solved

N = 90


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def basis(model, x):
    """Features and a one."""
    params = model.init(None, x.shape[1], 1)
    return np.column_stack([np.asarray(model.features(params, x), float), np.ones(len(x))])


def weights_of(fit, number):
    layer = fit.params[-1]
    return np.concatenate([layer["weight"][number], layer["bias"][number][None]])


def gradient(phi, target, weight, w, member, huber=np.inf):
    """Of sum_i v_i l_i / n + |w|^2 / (2 sd^2 eta n), where dl/ds = -psi(t - zeta s) and v has mean one."""
    slope = -np.clip(target - member.zeta * phi @ w, -huber, huber)
    v = weight / weight.mean()
    return phi.T @ (v[:, None] * slope) / len(phi) + w / (member.prior_sd**2 * member.eta * len(phi))


@pytest.mark.parametrize(
    "model", [Linear(), Splines(knots=4), RandomFeatures(20)], ids=lambda model: type(model).__name__
)
@pytest.mark.parametrize("surrogate", [Binary(squash=False), FullVector(3, squash=False)], ids=["two", "three"])
def test_squared_loss_is_solved_to_the_mean_of_the_posterior(rng, monkeypatch, model, surrogate):
    """Lambda^-1 eta Phi' V t with Lambda = eta zeta Phi' V Phi + I / sd^2 (section 4.4), of each member's own table."""
    forbid_calls(monkeypatch, (gbpl.fitting.stack, "TrainingLoop"))
    x = rng.normal(size=(N, 3)).astype(np.float32)
    target = rng.normal(size=(2 * N, surrogate.n_raw)).astype(np.float32)
    rows = rng.permutation(N).astype(np.int32)
    given = rng.exponential(size=60)
    members = [
        Member(rows[:60], rows[60:], weights=given, zeta=0.3, eta=2.0, prior_sd=0.7, table=1),
        Member(rows[:40], zeta=3.0, eta=0.5),
    ]
    fit = fit_stack(x, target, members, surrogate, model)
    for number, member in enumerate(members):
        own = member.train
        phi, t = basis(model, x[own]), np.asarray(target[member.table * N + own], float)
        v = np.ones(len(own)) if member.weights is None else member.weights / member.weights.mean()
        precision = member.eta * member.zeta * (phi.T * v) @ phi + np.eye(phi.shape[1]) / member.prior_sd**2
        mean = np.linalg.solve(precision, member.eta * (phi.T * v) @ t)
        assert_allclose(weights_of(fit, number), mean, rtol=1e-5, atol=1e-6)
        score = phi @ mean
        loss = v @ np.sum(-t * score + 0.5 * member.zeta * score**2, axis=1) / len(own)
        penalty = np.sum(mean**2) / (2 * member.prior_sd**2 * member.eta * len(own))
        assert_allclose(fit.train_loss[number], [loss + penalty], rtol=1e-5)
    held = members[0].validation
    score, t = basis(model, x[held]) @ weights_of(fit, 0), target[N + held]
    assert_allclose(fit.validation_loss[0], [np.mean(np.sum(-t * score + 0.15 * score**2, axis=1))], rtol=1e-4)
    assert len(fit.validation_loss[1]) == 0
    assert fit.best_epoch.tolist() == [1, 1]
    assert_allclose(fit.best_loss, [fit.validation_loss[0][0], fit.train_loss[1][0]])


@pytest.mark.parametrize("huber", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("count", [2, 3])
def test_huber_loss_is_solved_to_where_its_gradient_is_zero(rng, huber, count):
    """The objective is convex: no other weights are better."""
    surrogate = Binary(squash=False, huber=huber) if count == 2 else FullVector(3, squash=False, huber=huber)
    x = rng.normal(size=(N, 4)).astype(np.float32)
    target = (3.0 * x[:, : surrogate.n_raw] + rng.standard_t(1.5, size=(N, surrogate.n_raw))).astype(np.float32)
    given = rng.exponential(size=N)
    members = [Member(np.arange(N, dtype=np.int32), weights=given, zeta=zeta, prior_sd=5.0) for zeta in (2.0, 0.05)]
    fit = fit_stack(x, target, members, surrogate, Linear())
    for number, member in enumerate(members):
        w, phi = np.asarray(weights_of(fit, number), float), basis(Linear(), x)
        at_zero = gradient(phi, target, given, np.zeros_like(w), member, huber)
        assert np.abs(gradient(phi, target, given, w, member, huber)).max() < 1e-5 * np.abs(at_zero).max()


def test_more_rows_than_a_block_are_added_up(rng, monkeypatch):
    x, target = rng.normal(size=(900, 2)).astype(np.float32), rng.normal(size=(900, 1)).astype(np.float32)
    member = Member(np.arange(900, dtype=np.int32), np.arange(300, dtype=np.int32))
    whole = fit_stack(x, target, [member], Binary(squash=False, huber=0.5), Linear())
    monkeypatch.setattr(gbpl.fitting.newton, "BLOCK", 256)
    parts = fit_stack(x, target, [member], Binary(squash=False, huber=0.5), Linear())
    assert_allclose(weights_of(parts, 0), weights_of(whole, 0), rtol=1e-6)
    assert_allclose(parts.best_loss, whole.best_loss, rtol=1e-10)


def test_features_that_repeat_each_other_are_solved_by_the_prior_alone(rng):
    """Two equal columns: the ridge divides the weight evenly, however weak it is."""
    x = np.repeat(rng.normal(size=(N, 1)), 2, axis=1).astype(np.float32)
    member = Member(np.arange(N, dtype=np.int32), prior_sd=1e4)
    fit = fit_stack(x, x[:, :1], [member], Binary(squash=False), Linear())
    assert_allclose(weights_of(fit, 0)[:2], 0.5, rtol=1e-3)


def test_extreme_outcomes_are_refused_by_name():
    target = np.array([[1.0], [np.inf]], np.float32)
    with pytest.raises(NonFiniteLossError, match=r"zeta 1\.0, seed 3"):
        fit_stack(np.ones((2, 1), np.float32), target, [Member(np.arange(2), seed=3)], Binary(squash=False), Linear())


def test_only_convex_objectives_of_a_last_layer_are_solved():
    solved = Linear(), Splines(), RandomFeatures(), ForestFeatures()
    for surrogate in (Binary(squash=False), FullVector(3, squash=False, huber=1.0)):
        assert all(is_solved(surrogate, model) for model in solved)
        assert not is_solved(surrogate, MLP())
    for surrogate in (Binary(), FullVector(3), BaselineGap(3)):
        assert not any(is_solved(surrogate, model) for model in solved)


SETTINGS = dict(surrogate=Binary(squash=False), eta=1.3, prior_sd=0.8, random_state=0)


@pytest.fixture
def sample(rng):
    x = rng.normal(size=(N, 2))
    return x, np.column_stack([np.zeros(N), 4.0 * x[:, 0]]) + rng.normal(size=(N, 2))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_single_policy_stands_at_the_mean_of_the_exact_posterior_of_all_rows(sample, rng, weighted):
    """(eta zeta Phi' V Phi + I / sd^2)^-1 eta Phi' V t, in outcome units: no row is left out to stop the fit."""
    x, y = sample
    given = rng.exponential(size=N) if weighted else np.ones(N)
    policy = GBPLNet(model=Linear(), committee=None, zeta=2.0, **SETTINGS)
    policy.fit(x, y, sample_weight=given if weighted else None)
    v = given / given.mean()
    center = v @ x / N
    phi = np.column_stack([(x - center) / np.sqrt(v @ (x - center) ** 2 / N), np.ones(N)])
    precision = 1.3 * 2.0 * (phi.T * v) @ phi + np.eye(3) / 0.8**2
    mean = np.linalg.solve(precision, 1.3 * (phi.T * v) @ (y[:, 1] - y[:, 0]))
    layer = policy.params_[0]
    assert_allclose([*layer["weight"][0, :, 0], layer["bias"][0, 0]], mean, rtol=2e-5)
    draws = policy.posterior("exact").parts[0]
    assert_allclose(draws.mean, mean, rtol=2e-5)
    assert_allclose(draws.root @ draws.root.T, precision, rtol=2e-5, atol=1e-4)


def test_zetas_are_still_weighed_by_rows_that_members_did_not_learn_from(sample):
    """The history and the path are of members without the held rows; the one selected then learns from all."""
    x, y = sample
    policy = GBPLNet(model=Linear(), committee=None, zeta=[20.0, 2.0], **SETTINGS).fit(x, y)
    alone = GBPLNet(model=Linear(), committee=None, zeta=policy.zeta_, **SETTINGS).fit(x, y)
    assert_allclose(policy.params_[0]["weight"], alone.params_[0]["weight"], rtol=1e-6)
    fit = policy._training.fit
    assert [len(member.train) for member in fit.every] == [72, 72]
    assert [len(member.train) for member in fit.members] == [N]
    own, phi, t = fit.every[1], np.column_stack([fit.x, np.ones(N)]), fit.target[:, 0]
    known, scale = phi[own.train], own.eta * own.zeta
    w = np.linalg.solve(scale * known.T @ known + np.eye(3) / 0.8**2, own.eta * known.T @ t[own.train])
    score = phi[own.validation] @ w
    loss = np.mean(-t[own.validation] * score + own.zeta / 2 * score**2)
    assert_allclose(policy.history_[1]["validation_loss"], [loss], rtol=1e-4)


def test_members_of_a_committee_leave_their_fold_out(sample):
    x, y = sample
    policy = GBPLNet(model=Linear(), committee=3, zeta=2.0, **SETTINGS).fit(x, y)
    for number, part in enumerate(policy.posterior("exact").parts):
        assert len(part.problem) == 60
        layer = policy.params_[0]
        assert_allclose(part.mean, [*layer["weight"][number, :, 0], layer["bias"][number, 0]], rtol=1e-4)


def test_a_forest_stands_at_the_mean_of_its_last_layer(sample):
    """Its features of training rows are those of trees that did not see them."""
    x, y = sample
    model = ForestFeatures(trees=6, depth=3, components=5)
    policy = GBPLNet(model=model, committee=None, zeta=2.0, **SETTINGS).fit(x, y)
    part = policy.posterior("exact").parts[0]
    assert len(part.problem) == N
    phi = np.column_stack([part.problem.phi, np.ones(N)])
    mean = np.linalg.solve(1.3 * 2.0 * phi.T @ phi + np.eye(6) / 0.8**2, 1.3 * phi.T @ (y[:, 1] - y[:, 0]))
    layer = policy.params_[1]
    assert_allclose([*layer["weight"][0, :, 0], layer["bias"][0, 0]], mean, rtol=1e-3, atol=1e-4)


def test_safe_bayes_takes_all_rows_of_a_solved_member(sample):
    x, y = sample
    policy = GBPLNet(model=Linear(), committee=None, zeta=2.0, **SETTINGS).fit(x, y)
    choice = policy.calibrate_eta("safe_bayes")
    assert np.isfinite(choice.curve).all()


def test_bootstrap_refits_are_solved(sample):
    """With nearly equal weights a refit would be the fit; here each is the minimum for its own exponential weights."""
    x, y = sample
    policy = GBPLNet(model=Linear(), committee=None, zeta=2.0, **SETTINGS).fit(x, y)
    part = policy.posterior("bootstrap", refits=3).parts[0]
    fit = policy._training.fit
    copies = gbpl.posterior.bootstrap.bootstrap_members(fit.members[0], 3, seed=0)
    phi = np.column_stack([fit.x, np.ones(N)])
    for number, copy in enumerate(copies):
        w = np.concatenate([part.params[0]["weight"][number], part.params[0]["bias"][number][None]])
        at_zero = gradient(phi, fit.target, copy.weights, np.zeros_like(w), copy)
        assert np.abs(gradient(phi, fit.target, copy.weights, w, copy)).max() < 1e-5 * np.abs(at_zero).max()


def test_a_member_is_the_same_alone_and_beside_others(rng):
    x, target = rng.normal(size=(N, 3)).astype(np.float32), rng.normal(size=(N, 1)).astype(np.float32)
    first = Member(np.arange(50, dtype=np.int32), zeta=0.5)
    others = [first, replace(first, zeta=2.0), Member(np.arange(30, N, dtype=np.int32))]
    config = FitConfig(max_epochs=1)  # no effect
    together = fit_stack(x, target, others, Binary(squash=False), Splines(), config=config)
    for number, member in enumerate(others):
        alone = fit_stack(x, target, [member], Binary(squash=False), Splines())
        np.testing.assert_array_equal(weights_of(alone, 0), weights_of(together, number))
