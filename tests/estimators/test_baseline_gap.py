"""Baseline gap as its users see it: rule, gains and draws follow the gaps, not the probabilities (section 5.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import gbpl
from gbpl import BaselineGap, FitConfig, FullVector, GBPLNet, Linear

N = 500
RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, size=(N, 2))
NOISE = 0.2 * RNG.normal(size=(N, 3))
CONFIG = FitConfig(max_epochs=60, learning_rate=0.03)
WARNS = r"most probable action of BaselineGap is not .* predict and gains follow the scores.*FullVector\(3\)"


def fitted(means: Any, surrogate: Any, **settings: Any) -> GBPLNet:
    settings = {"zeta": 1.0, "model": Linear(), "committee": 2, "fit_config": CONFIG, "random_state": 0} | settings
    return GBPLNet(surrogate=surrogate, **settings).fit(X, means + NOISE)


@pytest.fixture(scope="module", params=[0, 2], ids=["first", "last"])
def never(request: pytest.FixtureRequest) -> GBPLNet:
    """The baseline is the best by 0.2 everywhere."""
    with pytest.warns(UserWarning, match=WARNS):
        return fitted(-0.2 * (np.arange(3) != request.param), BaselineGap(3, baseline=request.param))


def test_the_baseline_is_chosen_where_it_is_the_best(never: GBPLNet) -> None:
    baseline = never.surrogate_.baseline
    assert (never.predict(X) == baseline).all()
    assert (never.predict_proba(X).argmax(axis=1) == baseline).all()
    assert_allclose(never.zeta_path_.welfare, NOISE[:, baseline].mean(), atol=1e-6)


def test_gains_over_the_baseline_have_their_sign_and_size(never: GBPLNet) -> None:
    """Those of the sample: -0.2 and what its noise adds, also by fits without the row's fold."""
    baseline = never.surrogate_.baseline
    sampled = -0.2 + np.delete(NOISE - NOISE[:, [baseline]], baseline, axis=1).mean(axis=0)
    for gain in (never.expected_gain(X, default=baseline), never.expected_gain(default=baseline)):
        others = np.delete(gain, baseline, axis=1)
        assert (others < 0.0).all()
        assert_allclose(others.mean(axis=0), sampled, atol=0.03)


def test_gains_of_the_rows_of_the_fit_are_those_of_held_out_policies(never: GBPLNet) -> None:
    """At a given zeta: slope (d_a - d_default), d by fits without the row's fold."""
    held, slope = never._training.held_out, never.gain_slope_
    assert slope is not None
    assert_array_equal(held.unit, 1.0)
    assert_allclose(never.expected_gain(default=1), slope.slope * (held.deviation - held.deviation[:, [1]]), rtol=1e-6)


def test_the_policy_of_the_paper_is_still_there(never: GBPLNet) -> None:
    """delta_a = (gap_a / zeta + 1) / 2 = 0.4 for the others, and the baseline has what is left."""
    policy = np.asarray(never.surrogate_.policy(never.decision_function(X)))
    expected = np.where(np.arange(3) == never.surrogate_.baseline, 0.2, 0.4)
    assert_allclose(policy.mean(axis=0), expected, atol=0.03)


def test_draws_and_files_follow_the_gaps(never: GBPLNet, tmp_path: Any) -> None:
    baseline = never.surrogate_.baseline
    assert (never.posterior().action_probability(X, draws=40)[:, baseline] > 0.5).mean() > 0.95
    drawn = never.posterior().welfare(X, -0.2 * (np.arange(3) != baseline) + np.zeros((N, 1)), rule="deterministic")
    assert_allclose(drawn.mean, 0.0, atol=0.02)
    never.save(tmp_path / "policy", draws=40)
    loaded = gbpl.load(tmp_path / "policy")
    decided = loaded.decide(X)
    assert (decided.action == baseline).all()
    assert_allclose(loaded.predict_proba(X), never.predict_proba(X), atol=1e-6)
    assert_allclose(loaded.action_probability(X), never.posterior().action_probability(X, draws=40), atol=1 / 40 + 1e-9)
    gbpl.to_onnx(loaded, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx", providers=["CPUExecutionProvider"])
    probability, action = session.run(None, {"features": X})
    assert_array_equal(action, baseline)
    assert_allclose(probability, never.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("zeta", [1.0, "auto"])
@pytest.mark.filterwarnings("ignore:.*its scores call the best")
def test_an_action_is_chosen_where_it_is_the_best(zeta: Any) -> None:
    """Action 2 gains 0.6 x_0, action 1 loses 0.3."""
    means = np.column_stack([np.zeros(N), np.full(N, -0.3), 0.6 * X[:, 0]])
    policy = fitted(means, BaselineGap(3), zeta=zeta)
    clear = np.abs(X[:, 0]) > 0.2
    assert_array_equal(policy.predict(X)[clear], np.where(X[:, 0] > 0.0, 2, 0)[clear])
    slope, level = np.polyfit(0.6 * X[:, 0], policy.expected_gain(X)[:, 2], 1)
    assert slope == pytest.approx(1.0, abs=0.2)
    assert level == pytest.approx(0.0, abs=0.1)
    out_of_fold, truth = (table - table.mean(axis=1, keepdims=True) for table in (policy.expected_gain(), means))
    assert np.sum(out_of_fold * truth) / np.sum(out_of_fold**2) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("surrogate", [BaselineGap(3), FullVector(3)], ids=["gap", "full"])
def test_nothing_is_said_where_probabilities_and_gaps_agree(surrogate: Any) -> None:
    means = np.array([0.0, -0.5, 0.5])
    assert (fitted(means, surrogate, zeta=0.1).predict(X) == 2).all()
