"""Features that nothing learns are computed once, which changes no fit; others are computed at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import gbpl.fitting.once
from gbpl.fitting.config import FitConfig
from gbpl.fitting.members import Member
from gbpl.fitting.once import LastLayer, computed_once
from gbpl.fitting.stack import fit_stack
from gbpl.models.basis import spline_curves
from gbpl.models.networks import MLP, Linear, RandomFeatures
from gbpl.models.splines import Splines
from gbpl.surrogates import Binary

CURVES = Splines(knots=4, curve_sd=0.3)
X = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
GAP = (np.sin(2.0 * X[:, :1]) + X[:, 1:2]).astype(np.float32)
CONFIG = FitConfig(max_epochs=30, learning_rate=0.02, patience=30)


def test_a_table_has_the_curves_of_every_row() -> None:
    model, table = computed_once(CURVES, X, 1)
    assert model == LastLayer(CURVES, 3)
    assert table.shape == (300, 9)
    assert_allclose(table, spline_curves(X, 4) * np.tile([1.0, 0.3, 0.3], 3), atol=1e-6)


@pytest.mark.parametrize("model", [CURVES, RandomFeatures(n_features=20)], ids=["curves", "waves"])
def test_a_fit_is_that_of_the_model_itself(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(300)
    members = [Member(rows[:200], rows[200:], zeta=zeta, seed=seed) for seed, zeta in enumerate((3.0, 0.3))]
    once = fit_stack(X, GAP, members, Binary(), model, config=CONFIG, device="cpu")
    monkeypatch.setattr(gbpl.fitting.once, "MOST", 0)
    each = fit_stack(X, GAP, members, Binary(), model, config=CONFIG, device="cpu")
    assert np.abs(once.params[0]["weight"]).max(axis=(1, 2)).min() > 0.2, "something was learned"
    for name in ("weight", "bias"):
        assert_allclose(once.params[0][name], each.params[0][name], atol=2e-4)
    assert_allclose(once.best_loss, each.best_loss, rtol=1e-4)


class _Pairs(MLP):
    """A network for an even number of features."""

    def init(self, key: Any, n_features: int, n_raw: int) -> Any:
        assert n_features % 2 == 0, "it is never asked about tables that it is not for"
        return super().init(key, n_features, n_raw)


def test_a_model_is_asked_about_the_table_that_it_is_for() -> None:
    model = _Pairs(hidden=(4,))
    assert computed_once(model, X[:, :2], 1)[0] is model


@pytest.mark.parametrize("model", [Linear(), MLP(hidden=(4,))], ids=["linear", "network"])
def test_what_has_no_fixed_features_is_left_as_it_is(model: Any) -> None:
    same, x = computed_once(model, X, 1)
    assert same is model
    assert_array_equal(x, X)
