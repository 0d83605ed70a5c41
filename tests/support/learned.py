"""The value of held-out decisions with the error of learning them, restated in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.checks import nearest_on_simplex

DRAWS = 300
LEARNED = 0.12


def ruled(probability: np.ndarray, rule: str) -> np.ndarray:
    """What a rule makes of action probabilities."""
    if rule == "randomized":
        return probability
    return np.eye(probability.shape[1])[probability.argmax(axis=1)]


def held_out_value(policy: Any, x: Any, outcomes: np.ndarray, rule: str, less: Any = 0.0) -> tuple[float, float]:
    """Estimate and standard error, from (pseudo-)outcomes of independent rows; `less` is what a baseline has of each.

    psi_i + more_i are averaged, psi_i = sum_a delta_a^held Y_i(a) and more_i = sum_a (delta_a - delta_a^held) theta_a
    over the doubt, times 1.5 for its shrinkage. The variance is 1.12 times that of their mean, the squares of
    v_i = E[z sum_a delta_a(f(x_i) + T^{1/2} z) Y_i(a)] over n^2, with scores f that are shrunk towards zero, and the
    square of half of the mean of more_i.
    """
    held = policy._training.held_out
    n, count = outcomes.shape
    decided = ruled(nearest_on_simplex(1.0 / count + held.deviation.astype(float)), rule)
    psi, more = np.sum(decided * outcomes, axis=1) - less, np.zeros(n)
    if policy.effect_ is not None:
        ours = ruled(policy.predict_proba(x).astype(float), rule)
        more = 1.5 * np.sum((ours - decided) * policy.expected_gain(x), axis=1) / policy._training.fit.effect.doubt
    scores = held.gain - held.gain.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(held.covariance)
    kept = values > 1e-9 * values.max()
    left = max(0.0, 1.0 - values[kept].sum() / np.mean(np.sum(scores**2, axis=1)))
    z = np.random.default_rng(8).normal(size=(DRAWS, kept.sum()))
    z = np.concatenate([z, -z])
    moved = z @ (vectors[:, kept] * np.sqrt(values[kept])).T
    v = np.empty((n, kept.sum()))
    for row in range(n):
        drawn = np.sqrt(left) * scores[row] + moved
        if rule == "randomized":
            drawn = nearest_on_simplex(1.0 / count + drawn / held.unit[row])
        v[row] = z.T @ (ruled(drawn, rule) @ (outcomes[row] - outcomes[row].mean())) / len(z)
    squares = (1.0 + LEARNED) * np.sum((psi + more - np.mean(psi + more)) ** 2) + np.sum(v**2)
    return float(np.mean(psi + more)), float(np.sqrt(squares / (n * (n - 1)) + (np.mean(more) / 2) ** 2))
