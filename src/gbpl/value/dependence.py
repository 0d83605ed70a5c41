"""How values of different folds depend on each other, and what that adds to the error of their mean.

A cross-fitted value is the mean over rows of psi_i = sum_a delta_a(x_i) Y~_i(a), with delta by a fit that did not see
row i. Given that fit, psi_i is an honest draw; but row i has a part in the fits that decide the other rows, and they
in its own. Where delta follows scores that are sums over rows, f(x_i) = sum_j k_ij Y~_j with k_ij = k_ji, the two
influences of a pair have the same sign, and

    2 sum_{i<j} E[psi_i psi_j] = sum_i E |v_i|^2,    v_i = T^{-1/2} E_g[g sum_a delta_a(f(x_i) + g) Y~_i(a)],

with g ~ N(0, T), by Stein's identity, T the covariance of a row's scores over samples. For a rule of two actions
|v_i| = phi(f / t) |Y~_i(1) - Y~_i(0)| with t the standard deviation of f = f_1 - f_0, so nothing is added where the
decision is clear; where there is nothing to find it is up to a third of the variance (standard errors grow by a sixth).
Bates, Hastie and Tibshirani (2024) describe the problem for prediction errors, and estimate it by more fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["fold_dependence"]

DRAWS = 256
BLOCK = 2_048
ROUNDING = 1e-9


def fold_dependence(
    scores: Float[np.ndarray, "row action"],
    covariance: Float[np.ndarray, "action action"],
    outcomes: Float[np.ndarray, "row action"],
    play: Callable[[Float[np.ndarray, "... action"], slice], Float[np.ndarray, "... action"]],
) -> Float[np.ndarray, "row action"]:
    """The v_i of every row. `play` turns scores of a block of rows, with a leading axis of draws, into policies.

    They are vectors over the actions, so that those of two fits to the same rows can be multiplied.

    The scores that decide are estimates: where there is nothing to find they are all noise, and would look clearer
    than they are. They are shrunk by sqrt(1 - trace T / mean |f|^2), so that what is left is as large as the signal.
    """
    centred = np.asarray(scores, np.float64) - np.mean(scores, axis=1, keepdims=True, dtype=np.float64)
    values, vectors = np.linalg.eigh(covariance)
    kept = values > ROUNDING * max(values[-1], 1e-300)
    root = vectors[:, kept] * np.sqrt(values[kept])
    found = np.zeros(centred.shape)
    size = float(np.mean(np.sum(centred**2, axis=1)))
    if not root.shape[1] or size == 0.0:
        return found
    shrunk = np.sqrt(max(0.0, 1.0 - float(values[kept].sum()) / size)) * centred
    half = np.random.default_rng(0).standard_normal((DRAWS // 2, root.shape[1]))
    draws = np.concatenate([half, -half])
    moved = (draws @ root.T)[:, None, :]
    centre = outcomes - outcomes.mean(axis=1, keepdims=True)
    for start in range(0, len(scores), BLOCK):
        rows = slice(start, min(start + BLOCK, len(scores)))
        played = np.sum(play(shrunk[rows] + moved, rows) * centre[rows], axis=2)
        found[rows] = played.T @ draws / DRAWS @ vectors[:, kept].T
    return found
