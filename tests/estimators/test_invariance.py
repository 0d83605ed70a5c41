"""A fit depends on what the table says, not on how it is laid out."""

import numpy as np
import pytest

from gbpl import GBPL, FitConfig

N, D = 120, 3
RNG = np.random.default_rng(11)
X = np.column_stack([RNG.normal(size=(N, 2)), RNG.integers(3, size=N)])
NEW = np.column_stack([RNG.normal(size=(200, 2)), RNG.integers(3, size=200)])
SHORT = FitConfig(max_epochs=6)


def _log(actions):
    rng = np.random.default_rng(actions)
    action = rng.integers(actions, size=N)
    return action, 0.5 * X[np.arange(N), action % D] + 0.1 * action + rng.normal(size=N)


def _fitted(x, y, action, actions):
    return GBPL(random_state=0, fit_config=SHORT).fit(x, y, action=action, propensity=1.0 / actions)


@pytest.fixture(scope="module")
def fitted():
    action, y = _log(3)
    return 3, action, y, _fitted(X, y, action, 3).expected_gain(NEW)


def test_rows_in_another_order(fitted):
    actions, action, y, gain = fitted
    order = np.random.default_rng(1).permutation(N)
    again = _fitted(X[order], y[order], action[order], actions).expected_gain(NEW)
    np.testing.assert_allclose(again, gain, atol=1e-5)


def test_columns_in_another_order_in_other_units_and_a_constant_one(fitted):
    actions, action, y, gain = fitted

    def laid_out(x):
        return np.column_stack([10.0 * x[:, 2] - 3.0, np.full(len(x), 5.0), x[:, 0], x[:, 1]])

    again = _fitted(laid_out(X), y, action, actions).expected_gain(laid_out(NEW))
    np.testing.assert_allclose(again, gain, atol=1e-4)


def test_actions_by_other_names(fitted):
    actions, action, y, gain = fitted
    names = np.array(["none", "mail", "call"])
    policy = _fitted(X, y, names[action], actions)
    assert policy.actions_.tolist() == sorted(names)
    again = policy.expected_gain(NEW)[:, np.argsort(names).argsort()]
    # Gains are against the first label, which is another action: compare differences between actions.
    np.testing.assert_allclose(again - again[:, :1], gain - gain[:, :1], atol=1e-4)


def test_every_row_twice_is_named_and_changes_nothing(fitted):
    actions, action, y, gain = fitted
    with pytest.warns(UserWarning, match="every row is there twice, with the same features, action and outcome"):
        policy = _fitted(np.vstack([X, X]), np.r_[y, y], np.r_[action, action], actions)
    np.testing.assert_allclose(policy.expected_gain(NEW), gain, atol=1e-5)


def test_full_feedback_too():
    y = np.column_stack([np.zeros(N), X[:, 0]]) + RNG.normal(size=(N, 2))
    gain = GBPL(random_state=0, fit_config=SHORT).fit(X, y).expected_gain(NEW)
    order = np.random.default_rng(2).permutation(N)
    again = GBPL(random_state=0, fit_config=SHORT).fit(X[order], y[order][:, ::-1]).expected_gain(NEW)
    np.testing.assert_allclose(again[:, 1], -gain[:, 1], atol=1e-4)  # gains are against the first action
