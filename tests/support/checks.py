"""What the implementation is compared with: formulas restated in NumPy, and fits that must be the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.testing import assert_array_equal
from scipy.special import rel_entr

from gbpl import GBPLNet

try:
    from jax import enable_x64 as enable_x64
except ImportError:  # where it was before jax 0.8
    from jax.experimental import enable_x64 as enable_x64


def assert_same_fit(one: GBPLNet, other: GBPLNet, x: Any, *, same_labels: bool = True) -> None:
    """Parameters, weights, and decisions at x are the same bit for bit; `same_labels=False` compares no labels."""
    for layer, expected in zip(one.params_, other.params_, strict=True):
        for name in layer:
            assert_array_equal(layer[name], expected[name])
    assert_array_equal(one.member_weights_, other.member_weights_)
    assert_array_equal(one.predict_proba(x), other.predict_proba(x))
    if same_labels:
        assert_array_equal(one.predict(x), other.predict(x))


def hidden_layer_policy(params: Sequence[dict[str, Any]], member: int, x: np.ndarray) -> np.ndarray:
    """Policy of one member: a hidden ReLU layer, then tanh (two actions) or softmax."""
    (w1, b1), (w2, b2) = ((np.asarray(layer["weight"][member], float), layer["bias"][member]) for layer in params)
    raw = np.maximum(x @ w1 + b1, 0.0) @ w2 + b2
    if raw.shape[1] == 1:
        f = np.tanh(raw[:, 0])
        return np.stack([1 - f, 1 + f], axis=1) / 2
    exponential = np.exp(raw - raw.max(axis=1, keepdims=True))
    return exponential / exponential.sum(axis=1, keepdims=True)


def nearest_on_simplex(points: np.ndarray) -> np.ndarray:
    """Projection along the last axis: max(points - c, 0), with c found by halving so that it sums to one."""
    low, high = points.min(axis=-1, keepdims=True) - 1.0, points.max(axis=-1, keepdims=True)
    for _ in range(100):
        c = (low + high) / 2
        above = np.maximum(points - c, 0.0).sum(axis=-1, keepdims=True) > 1.0
        low, high = np.where(above, c, low), np.where(above, high, c)
    return np.maximum(points - c, 0.0)


def binary_kl(p: float, q: float) -> float:
    """KL divergence between Bernoulli distributions."""
    return float(rel_entr(p, q) + rel_entr(1 - p, 1 - q))


def rows_outside(rows: int, *folds: np.ndarray) -> np.ndarray:
    """Numbers of the rows that are in none of the folds."""
    return np.setdiff1d(np.arange(rows), np.concatenate(folds))
