"""The posterior of a committee: a draw is the committee with other weights, and its spread is what is not known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import gbpl
from gbpl import MLP, FitConfig, GBPLNet
from gbpl.decisions.rules import threshold_rule
from gbpl.fitting.apply import member_policies
from gbpl.posterior import committee as module
from gbpl.posterior.committee import CommitteePosterior
from gbpl.posterior.problem import PosteriorError

SETTINGS = {
    "committee": 3, "model": MLP(hidden=(8,)), "fit_config": FitConfig(max_epochs=15, learning_rate=0.03),
    "random_state": 0, "device": "cpu", "progress": False,
}  # fmt: skip


def _sample(n: int, actions: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    mean = np.column_stack([np.zeros(n), x[:, 0], 0.5 * x[:, 1]])[:, :actions]
    return x, mean + 0.5 * rng.normal(size=mean.shape)


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request) -> GBPLNet:
    return GBPLNet(**SETTINGS).fit(*_sample(300, request.param, 0))


def _members(policy: GBPLNet, x: np.ndarray) -> np.ndarray:
    """What each member adds to the policy: its weight times its policy's deviation from uniform."""
    policies = member_policies(policy.model_, policy.surrogate_, policy.params_, policy.standardizer_.apply(x))
    return policy.member_weights_[:, None, None] * (policies - 1.0 / policies.shape[2])


def test_it_is_the_default_where_zetas_are_averaged(fitted):
    assert isinstance(fitted.posterior(), CommitteePosterior)
    assert fitted.posterior() is fitted.posterior("committee")
    assert fitted.posterior("last_layer").method == "last_layer"
    assert fitted.posterior(eta=2.0).method == "last_layer"


def test_with_one_zeta_or_a_given_eta_it_is_refused_by_name():
    x, y = _sample(120, 2, 1)
    for given in ({"zeta": 1.0}, {"eta": 1.0}, {"committee": None}):
        policy = GBPLNet(**{**SETTINGS, **given}).fit(x, y)
        assert policy.posterior().method == "last_layer"
        with pytest.raises(PosteriorError, match="method='last_layer'"):
            policy.posterior("committee")
    with pytest.raises(ValueError, match="leave level out"):
        policy.expected_gain(x, level=0.9) if policy.committee else GBPLNet(**{**SETTINGS, "zeta": 1.0}).fit(
            x, y
        ).expected_gain(x, level=0.9)


def test_draws_are_centred_on_the_expected_effects_and_their_shares_are_the_probabilities(fitted):
    x, _ = _sample(50, len(fitted.actions_), 2)
    posterior = fitted.posterior()
    drawn = posterior.sample(4000, seed=3)
    effects = np.concatenate([part for _, part in posterior.effects(x, draws=4000, seed=3)], axis=1)
    slopes, _ = fitted._training.fit.effect.whole.mean()
    assert drawn["weight"].shape == (4000, len(fitted.member_weights_))
    # the weights' mean is the slope times the committee's weights
    size = fitted._training.fit.effect.size
    error = drawn["weight"].std(axis=0) / np.sqrt(4000)
    assert np.all(np.abs(drawn["weight"].mean(axis=0) - slopes / size * fitted.member_weights_) <= 5 * error)
    best = np.argmax(effects, axis=2)
    shares = np.stack([(best == action).mean(axis=0) for action in range(effects.shape[2])], axis=1)
    assert_allclose(posterior.action_probability(x, draws=4000, seed=3), shares)
    assert_allclose(shares.sum(axis=1), 1.0)
    assert_allclose(posterior.disagreement(x), gbpl.decisions.rules.disagreement(posterior.action_probability(x)))


def test_the_spread_over_rows_is_that_of_a_jackknife_over_folds(fitted, monkeypatch):
    """Without models, bias and roughness: (F - 1) / F sum_f (d_f - d)^2, d_f the committee of fold f alone."""
    for name, value in (("BIAS", 1.0), ("MODELS", 0.0), ("ROUGH", 0.0)):
        monkeypatch.setattr(module, name, value)
    x, _ = _sample(30, len(fitted.actions_), 4)
    posterior = CommitteePosterior(fitted._training.fit, fitted.actions_)
    fold = np.array([member.fold for member in fitted._training.fit.members])
    parts = _members(fitted, x)
    count = fold.max() + 1
    of_fold = np.stack([count * parts[fold == f].sum(axis=0) for f in range(count)])
    jackknife = (count - 1) / count * np.sum((of_fold - of_fold.mean(axis=0)) ** 2, axis=0)
    moved = posterior._drawn(40_000, 0)["moved"]
    variance = np.tensordot(moved, parts, axes=1).var(axis=0)
    assert_allclose(variance, jackknife, rtol=0.06, atol=1e-12)


def test_the_spread_over_entries_is_their_weighted_variance(fitted, monkeypatch):
    for name, value in (("BIAS", 0.0), ("MODELS", 1.0)):
        monkeypatch.setattr(module, name, value)
    x, _ = _sample(30, len(fitted.actions_), 5)
    fit = fitted._training.fit
    entry = np.unique([member.entry for member in fit.members], return_inverse=True)[1]
    parts, share = _members(fitted, x), np.bincount(entry, fit.shares)
    of_entry = np.stack([parts[entry == e].sum(axis=0) / share[e] for e in range(len(share))])
    mean = np.tensordot(share, of_entry, axes=1)
    expected = np.tensordot(share, (of_entry - mean) ** 2, axes=1)
    moved = CommitteePosterior(fit, fitted.actions_)._drawn(40_000, 0)["moved"]
    assert_allclose(np.tensordot(moved, parts, axes=1).var(axis=0), expected, rtol=0.06, atol=1e-12)


def test_the_rule_that_is_played_is_the_action_with_the_largest_expected_gain(fitted):
    x, _ = _sample(200, len(fitted.actions_), 6)
    assert_array_equal(fitted.predict(x), fitted.actions_[np.argmax(fitted.expected_gain(x), axis=1)])
    gain = fitted.expected_gain(x, level=0.8)
    assert_array_equal(gain.gain, fitted.expected_gain(x))
    assert np.all((gain.low <= gain.gain) & (gain.gain <= gain.high))
    assert_allclose(gain.high[:, 0] - gain.low[:, 0], 0.0, atol=1e-6)  # over itself
    wider = fitted.expected_gain(x, level=0.95)
    assert np.all(wider.high - wider.low >= gain.high - gain.low)
    with pytest.raises(ValueError, match=r"level must be between 0 and 1, got 2"):
        fitted.expected_gain(x, level=2)


def test_welfare_of_draws_lies_about_that_of_the_policy(fitted):
    x, y = _sample(500, len(fitted.actions_), 7)
    for rule in ("deterministic", "randomized"):
        policy = fitted.predict_proba(x)
        if rule == "deterministic":
            policy = np.eye(policy.shape[1])[np.argmax(policy, axis=1)]
        drawn = fitted.posterior().welfare(x, y, rule=rule)
        assert abs(drawn.mean - np.mean(np.sum(policy * y, axis=1))) < 4 * drawn.sd + 0.02
        assert drawn.sd > 0
    assert fitted.posterior().welfare(x, y).about.startswith("welfare of the deterministic policy")


def test_members_are_refused_with_a_remedy_that_exists(fitted):
    x, y = _sample(50, len(fitted.actions_), 8)
    posterior = fitted.posterior()
    with pytest.raises(PosteriorError, match=r"posterior\('last_layer'\)"):
        posterior.welfare(x, y, of="member")
    with pytest.raises(PosteriorError, match=r"posterior\('last_layer'\)"):
        posterior.member_draws(10, seed=0)
    fitted.posterior("last_layer").welfare(x, y, of="member", draws=20)
    assert posterior.welfare(x, y, of="committee", draws=20).values.shape == (20,)


def test_it_goes_to_arviz(fitted):
    pytest.importorskip("arviz")
    data = fitted.posterior().to_arviz(20)
    assert set(data.posterior.data_vars) == {"weight", "coefficient", "rough"}
    assert data.posterior["weight"].shape[:2] == (1, 20)


def test_a_saved_policy_has_the_same_probabilities_gains_and_decisions(fitted, tmp_path):
    x, _ = _sample(100, len(fitted.actions_), 9)
    fitted.save(tmp_path / "policy.gbpl")
    loaded = gbpl.load(tmp_path / "policy.gbpl")
    assert_allclose(loaded.action_probability(x), fitted.posterior().action_probability(x), atol=1 / 400)
    assert_allclose(loaded.expected_gain(x), fitted.expected_gain(x), atol=1e-5)
    assert_array_equal(loaded.predict(x), fitted.predict(x))
    loaded.save(tmp_path / "again.gbpl")
    assert (tmp_path / "again.gbpl").read_bytes() == (tmp_path / "policy.gbpl").read_bytes()
    without = fitted.frozen(draws=0)
    assert_allclose(without.predict_proba(x), fitted.predict_proba(x), atol=1e-6)
    with pytest.raises(ValueError, match="without posterior draws"):
        without.action_probability(x)


def test_reliability_sets_what_was_expected_beside_what_outcomes_say(fitted):
    found = fitted.reliability(groups=4)
    feedback = fitted._training.feedback
    assert found.rows.tolist() == [75] * 4
    assert np.all(np.diff(found.said) >= 0)
    probability = fitted.posterior().probability_around(feedback.x, fitted.expected_gain())
    order = np.sort(probability, axis=1)
    rows = np.argsort(order[:, -1], kind="stable")[-75:]
    first, second = np.argsort(probability, axis=1, kind="stable")[rows, ::-1][:, :2].T
    done = feedback.outcomes[rows, first] - feedback.outcomes[rows, second]
    assert_allclose(found.estimate[-1], done.mean())
    assert_allclose(found.se[-1], done.std(ddof=1) / np.sqrt(75))
    assert_allclose(found.said[-1], order[rows, -1].mean())
    assert "expected" in str(found)


def test_where_signals_are_strong_sure_rows_can_be_treated():
    """The threshold rule at 0.1 once treated nobody here: no probability was above 0.89."""
    x, y = _sample(600, 2, 10)
    policy = GBPLNet(**SETTINGS).fit(x, y)
    new, _ = _sample(2000, 2, 11)
    probability = policy.posterior().action_probability(new)
    rule = threshold_rule(probability, alpha=0.1).action
    assert np.mean(rule == 1) > 0.3
    assert np.mean(new[rule == 1, 0] > 0) > 0.97


def test_draws_of_effects_take_no_more_memory_with_more_rows_or_actions(fitted, monkeypatch):
    """With 34 actions and 10,000 rows they took a gigabyte; in smaller parts they are the same."""
    posterior = fitted.posterior()
    x, _ = _sample(70, 2, 5)
    whole = np.concatenate([effect for _, effect in posterior.effects(x, draws=50)], axis=1)
    shares = posterior.action_probability(x, draws=50)
    monkeypatch.setattr(module, "NUMBERS", 2_000)
    parts = list(posterior.effects(x, draws=50))
    assert max(effect.size for _, effect in parts) <= 2_000
    assert [rows.start for rows, _ in parts] == [0, *(rows.stop for rows, _ in parts[:-1])]
    assert_allclose(np.concatenate([effect for _, effect in parts], axis=1), whole, rtol=1e-4, atol=1e-5)
    best = np.argmax(whole, axis=2)
    expected = np.stack([np.mean(best == action, axis=0) for action in range(whole.shape[2])], axis=1)
    assert_allclose(shares, expected, atol=1e-12)
